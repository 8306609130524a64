"""A classifier of texts as scikit-learn uses one: in pipelines, searches, other processes and pickles."""

from __future__ import annotations

import copy
import gc
import io
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from tests.helpers.estimators import OPTIONS, lowered
from tests.helpers.for_each import for_each

import glassformer
from glassformer import api
from glassformer.errors import DataError, Interrupted, UsageError
from glassformer.sklearn import TextClassifier, base
from glassformer.sklearn.inputs import TextsError, class_names

TEXTS = [f"{'good' if i % 2 else 'bad'} word{i % 13} and word{i % 7}" for i in range(60)]
LABELS = ["pos" if i % 2 else "neg" for i in range(60)]


def classifier(**parameters: Any) -> TextClassifier:
    return TextClassifier(**{"device": "cpu", "threads": 1, "options": OPTIONS} | parameters)


@pytest.fixture(scope="module")
def fitted() -> TextClassifier:
    return classifier().fit(TEXTS, LABELS)


def test_it_fits_predicts_and_scores(fitted: TextClassifier) -> None:
    assert is_classifier(fitted) and fitted.classes_.tolist() == ["neg", "pos"]
    p = fitted.predict_proba(TEXTS)
    assert p.shape == (60, 2) and p.dtype == np.float64
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-6)
    assert fitted.predict(TEXTS).tolist() == fitted.classes_[p.argmax(axis=1)].tolist()
    assert fitted.score(TEXTS, LABELS) > 0.9
    answers = fitted.run_.predict(TEXTS)
    assert [answer["label"] for answer in answers] == fitted.predict(TEXTS).tolist()
    assert [answer["probabilities"]["pos"] for answer in answers] == p[:, 1].tolist()


def test_no_text_gives_no_row(fitted: TextClassifier) -> None:
    assert fitted.predict([]).shape == (0,) and fitted.predict_proba([]).shape == (0, 2)
    assert fitted.predict([""]).shape == (1,)


@for_each(
    "labels",
    [
        np.array(LABELS),
        np.array(LABELS, dtype=object),
        [i % 2 for i in range(60)],
        np.array([i % 2 for i in range(60)], dtype=np.int8),
        [bool(i % 2) for i in range(60)],
        [float(i % 2) for i in range(60)],
        ["nan" if i % 2 else "1" for i in range(60)],
        [" a" if i % 2 else "a " for i in range(60)],
        ["" if i % 2 else "a\nb" for i in range(60)],
        ["none" if i % 2 else "Café" for i in range(60)],
    ],
)
def test_labels_come_back_as_they_were(labels: Any) -> None:
    made = classifier(options=OPTIONS | {"train.epochs": 1}).fit(np.array(TEXTS), labels)
    predicted = made.predict(TEXTS)
    assert predicted.dtype == np.asarray(labels).dtype
    assert {*predicted.tolist()} <= {*np.asarray(labels).tolist()}
    assert made.classes_.tolist() == sorted({*np.asarray(labels).tolist()})


@for_each(
    ("labels", "names"),
    [
        (["a", "b"], ["a", "b"]),
        ([False, True], ["False", "True"]),
        ([1, 10, 2], ["1", "10", "2"]),
        (["none", "x"], ["none", "x"]),
        (["nan", "x"], ["0", "1"]),
        (["-inf", "x"], ["0", "1"]),
        (["a", "a "], ["0", "1"]),
        (["a\u200b", "a"], ["0", "1"]),
        (["", "a"], ["0", "1"]),
        (["a\0", "a"], ["0", "1"]),
        (["a\nb", "a"], ["0", "1"]),
    ],
)
def test_classes_have_their_names_in_the_run(labels: list[Any], names: list[str]) -> None:
    assert class_names(np.array(labels, dtype=object)) == names


class Series:
    """Has values by position and a shape, as a column of a data frame does."""

    shape = (60,)

    def __iter__(self) -> Iterator[str]:
        return iter(TEXTS)


@for_each("texts", [tuple(TEXTS), np.array(TEXTS), np.array(TEXTS, dtype=object), Series(), (t for t in TEXTS)])
def test_texts_may_be_in_any_sequence(texts: Any, fitted: TextClassifier) -> None:
    assert fitted.predict(texts).tolist() == fitted.predict(TEXTS).tolist()


@for_each(
    ("texts", "message"),
    [
        ("a text", "expected a list of texts, not str"),
        (b"a text", "expected a list of texts, not bytes"),
        (5, "expected a list of texts, not int"),
        ({"text": TEXTS}, "expected a list of texts, not dict"),
        ({*TEXTS}, "expected a list of texts, not set"),
        ([1, 2], "text 1 of 2 is of type int, not a string"),
        (["a", None], "text 2 of 2 is missing: None"),
        (["a", float("nan")], "text 2 of 2 is missing: nan"),
        (np.zeros(3), "text 1 of 3 is of type float64, not a string"),
        (np.zeros((3, 2)), r"expected a list of texts, not ndarray of shape \(3, 2\)"),
        (["a\ud800"], "text 1 of 1: the text holds half a surrogate pair"),
        (["a", "a\0"], "text 2 of 2: the text holds NUL"),
    ],
)
def test_what_is_no_list_of_texts_is_refused(texts: Any, message: str, fitted: TextClassifier) -> None:
    for use in (fitted.predict, fitted.predict_proba, lambda x: classifier().fit(x, [0, 1])):
        with pytest.raises(TextsError, match=message) as error:
            use(texts)
        assert isinstance(error.value, ValueError) and isinstance(error.value, DataError) and error.value.hint


@for_each(
    ("labels", "message"),
    [
        (None, "requires y to be passed, but the target y is None"),
        (LABELS[:-1], "there are 60 texts and 59 labels"),
        ([None, *LABELS[1:]], "label 1 of 60 is missing: None"),
        ([float("nan")] * 60, "label 1 of 60 is missing: nan"),
        (np.full(60, np.nan), "Input y contains NaN"),
        ([1, "a"] * 30, "labels of one type are expected, not of int, str"),
        ([1.5, 2.5] * 30, "Unknown label type: continuous"),
        (np.zeros((60, 2)), "should be a 1d array"),
        (["a"] * 60, "the labels are of one class, 'a'"),
    ],
)
def test_labels_that_cannot_be_learned_are_refused(labels: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        classifier().fit(TEXTS, labels)


@for_each(
    ("parameters", "message"),
    [
        ({"recipe": "lm"}, "trains recipes of the task classify, not lm"),
        ({"options": {"train_file": "a.csv"}}, "the texts come from fit"),
        ({"options": {"data": {"files": {"valid_file": "a.csv"}}}}, "the texts come from fit"),
        ({"options": {"data.dataset": "imdb"}}, "the texts come from fit"),
        ({"options": {"epoch": 1}}, "'epoch' is not a field"),
        ({"options": {"train.epoch": 1}}, "epoch"),
        ({"options": 5}, "options is a dictionary of settings, not int"),
        ({"threads": -1}, "threads must be a whole number in"),
        ({"device": "tpu"}, "device"),
    ],
)
def test_parameters_are_checked_in_fit(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        classifier(**parameters).fit(TEXTS, LABELS)


def test_one_that_is_not_fitted_says_so() -> None:
    for use in (classifier().predict, classifier().predict_proba, lambda _: classifier().run_):
        with pytest.raises(NotFittedError):
            use(TEXTS)


def test_settings_are_parameters_by_name() -> None:
    made = classifier(options={"train.epochs": 1, "d_model": 16})
    assert made.get_params()["options__d_model"] == 16 and "options__d_model" not in made.get_params(deep=False)
    made.set_params(options__epochs=2, options__model__d_model=8)
    assert made.options == {"epochs": 2, "model__d_model": 8}
    copied = clone(made).set_params(options__train__lr=0.1)
    assert copied.options == {"epochs": 2, "model__d_model": 8, "train__lr": 0.1} and len(made.options) == 2
    own = {"epochs": 2, "lr": 0.1, "device": "cpu", "threads": 1}
    assert copied._settings() == {"train": own, "model": {"d_model": 8}}
    with pytest.raises(ValueError, match="Invalid parameter"):
        made.set_params(option=1)


def test_the_seed_is_the_random_state() -> None:
    assert "seed" not in classifier()._settings()["train"]
    assert classifier(random_state=np.int64(5))._settings()["train"]["seed"] == 5
    drawn = [classifier(random_state=np.random.RandomState(seed))._settings()["train"]["seed"] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_the_same_seed_trains_the_same_model(fitted: TextClassifier) -> None:
    again, other = clone(fitted).fit(TEXTS, LABELS), clone(fitted).set_params(random_state=5).fit(TEXTS, LABELS)
    np.testing.assert_array_equal(again.predict_proba(TEXTS), fitted.predict_proba(TEXTS))
    assert (other.predict_proba(TEXTS) != fitted.predict_proba(TEXTS)).any()


def test_nothing_is_written_unless_it_is_verbose(capfd: pytest.CaptureFixture[str], fitted: TextClassifier) -> None:
    quiet = clone(fitted).fit(TEXTS, LABELS)
    quiet.predict(["a word that nobody knows"])
    assert capfd.readouterr() == ("", "")
    clone(fitted).set_params(verbose=True).fit(TEXTS, LABELS).predict(["a word that nobody knows"])
    err = capfd.readouterr().err
    assert "validation:" in err and "unknown to the model" in err


def test_the_run_goes_with_the_estimator_and_leaves_no_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fitted: TextClassifier
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "t"))
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "cache"))
    (tmp_path / "t").mkdir()
    made = clone(fitted).fit(TEXTS, LABELS)
    first = made.run_.path
    assert made.fit(TEXTS, LABELS).run_.path != first and not first.exists()
    with pytest.raises(TextsError):
        made.fit(["a"] * 60, LABELS)
    [private] = (tmp_path / "t").iterdir()
    assert private == made.run_.path.parent and not (tmp_path / "cache").exists()
    if os.name == "posix":
        assert private.stat().st_mode & 0o077 == 0
    base._remove(private, os.getpid() + 1)  # another process
    assert private.exists()
    run = made.run_
    del made
    gc.collect()
    assert run.evaluate("valid")["n"] > 0  # the texts are there as long as the run is
    del run
    gc.collect()
    assert [*(tmp_path / "t").iterdir()] == []


def test_a_run_that_is_kept_is_opened_and_explained(tmp_path: Path, fitted: TextClassifier) -> None:
    made = clone(fitted).set_params(out=tmp_path / "deep" / "run").fit(TEXTS, LABELS)
    p = made.predict_proba(TEXTS)
    with pytest.raises(UsageError, match="is not empty"):
        clone(made).fit(TEXTS, LABELS)
    del made
    gc.collect()
    run = glassformer.load(tmp_path / "deep" / "run", device="cpu")
    assert [answer["probabilities"]["pos"] for answer in run.predict(TEXTS)] == p[:, 1].tolist()
    assert run.evaluate("valid")["n"] > 0
    e = run.explain(TEXTS[1])
    assert e["encoder.0.self.weights"].shape[0] == 2
    assert (tmp_path / "deep" / "run.texts.jsonl").read_text(encoding="utf-8").count("\n") == 60
    assert sorted(path.name for path in (tmp_path / "deep").iterdir()) == ["run", "run.texts.jsonl"]


def test_texts_beside_a_kept_run_are_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "run.texts.jsonl").write_text("kept", encoding="utf-8")
    with pytest.raises(UsageError, match="is there already"):
        classifier(out=tmp_path / "run").fit(TEXTS, LABELS)
    assert [path.read_text(encoding="utf-8") for path in tmp_path.iterdir()] == ["kept"]


def test_a_fit_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(TextsError):
        classifier(out=tmp_path / "run").fit(["a"] * 60, LABELS)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "lock"]


def dumped(estimator: TextClassifier) -> TextClassifier:
    return pickle.loads(pickle.dumps(estimator))


def dumped_by_joblib(estimator: TextClassifier) -> TextClassifier:
    file = io.BytesIO()
    joblib.dump(estimator, file)
    file.seek(0)
    return joblib.load(file)


@for_each("copied", [dumped, dumped_by_joblib, copy.deepcopy, lambda e: dumped(dumped(e))])
def test_a_copy_answers_alike(copied: Any, fitted: TextClassifier) -> None:
    other = copied(fitted)
    assert [value for name, value in vars(other).items() if name == "_run"] == [None]  # nothing is written yet
    np.testing.assert_array_equal(other.predict_proba(TEXTS), fitted.predict_proba(TEXTS))
    assert other.run_.path != fitted.run_.path and not (other.run_.path / "checkpoints").exists()
    assert other.run_.explain(TEXTS[0])["encoder.0.self.weights"].shape[0] == 2
    assert other.classes_.tolist() == ["neg", "pos"]


def test_it_is_pickled_before_it_is_fitted_and_fitted_after() -> None:
    other = dumped(classifier()).fit(TEXTS, LABELS)
    again = dumped(other).fit(TEXTS, LABELS)
    assert again._files == {} and again.score(TEXTS, LABELS) > 0.9


def test_in_a_pipeline(fitted: TextClassifier) -> None:
    pipeline = make_pipeline(FunctionTransformer(lowered), clone(fitted))
    pipeline.set_params(textclassifier__options__train__epochs=5)
    pipeline.fit([text.upper() for text in TEXTS], LABELS)
    assert pipeline[-1].run_.config.train.epochs == 5
    assert pipeline.score([text.upper() for text in TEXTS], LABELS) > 0.9
    assert pipeline.predict_proba(TEXTS[:2]).shape == (2, 2)


def test_in_a_search_over_settings(fitted: TextClassifier) -> None:
    search = GridSearchCV(clone(fitted), {"options__train__steps": [1, 8]}, cv=2, error_score="raise")
    search.fit(TEXTS, np.array(LABELS))
    assert search.best_params_ == {"options__train__steps": 8}
    assert search.best_estimator_.run_.config.train.steps == 8
    assert search.predict(TEXTS[:2]).tolist() == ["neg", "pos"]


@pytest.mark.slow
def test_in_other_processes(fitted: TextClassifier) -> None:
    alone = cross_val_score(clone(fitted), TEXTS, LABELS, cv=2, error_score="raise")
    shared = cross_val_score(clone(fitted), TEXTS, LABELS, cv=2, n_jobs=2, error_score="raise")
    assert alone.tolist() == shared.tolist()


def test_in_two_threads(fitted: TextClassifier) -> None:
    """Which draw from the same random generators, so that one trains after the other."""
    alone = cross_val_score(clone(fitted), TEXTS, LABELS, cv=2, error_score="raise")
    with joblib.parallel_config(backend="threading"):
        shared = cross_val_score(clone(fitted), TEXTS, LABELS, cv=2, n_jobs=2, error_score="raise")
    assert alone.tolist() == shared.tolist()


def test_models_that_answer_together(fitted: TextClassifier) -> None:
    made = clone(fitted).set_params(options__model__ensemble_size=2).fit(TEXTS, LABELS)
    assert made.run_.config.model.ensemble_size == 2
    np.testing.assert_array_equal(dumped(made).predict_proba(TEXTS), made.predict_proba(TEXTS))


def test_from_a_run(fitted: TextClassifier) -> None:
    options = {"train.steps": 1, "train.lr": 1e-6, "train.adversarial": 0.0, "train.word_unknown_prob": 0.0}
    made = classifier(init_from=fitted.run_.path, options=options).fit(TEXTS, LABELS)
    assert made.run_.config.model.d_model == 16
    np.testing.assert_allclose(made.predict_proba(TEXTS), fitted.predict_proba(TEXTS), atol=1e-3)


@for_each(("code", "raised"), [(130, KeyboardInterrupt), (143, SystemExit)])
def test_a_signal_ends_a_search_too(code: int, raised: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    """A search continues after an Exception of one training."""

    def train(*_: Any, **__: Any) -> None:
        raise Interrupted("stopped", "resume", code)

    monkeypatch.setattr(api, "train", train)
    with pytest.raises(raised):
        GridSearchCV(classifier(), {"random_state": [1, 2]}, cv=2).fit(TEXTS, LABELS)


def test_only_who_imports_it_imports_scikit_learn() -> None:
    script = "import sys, glassformer.api, glassformer.cli.main; assert 'sklearn' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
