"""Answers by how sure a classifier is: a temperature, answers withheld."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.helpers.exports import run_of
from tests.helpers.small_runs import SMALL

import glassformer
from glassformer.errors import UsageError
from glassformer.evaluate.scores import calibration_error, fit_temperature
from glassformer.interop.exported import load_exported
from glassformer.runs.folder import RunFolder
from glassformer.tasks import heads
from glassformer.text.answers import COLDEST, HOTTEST, Decision, answer_lines, at_temperature

TEXTS = ["a good film", "a bad film", "", "good bad", "neither here nor there", "bad bad bad"]


def table(path: Path, n: int) -> Path:
    """Write texts of which every seventh has another label than its words say."""
    words = [("bad", "good")[i % 2] for i in range(n)]
    labels = [words[i] if i % 7 else ("good", "bad")[i % 2] for i in range(n)]
    rows = [f"a {word} film {i % 5},{name}" for i, (word, name) in enumerate(zip(words, labels, strict=True))]
    path.write_text("\n".join(["text,label", *rows]) + "\n", "utf-8")
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, sizes = tmp_path_factory.mktemp("classify"), {"train_file": 80, "valid_file": 60, "test_file": 50}
    files = {name: table(folder / f"{name}.csv", n) for name, n in sizes.items()}
    glassformer.train("classify", out=folder / "run", **files, **SMALL, epochs=2, ensemble_size=2)
    return folder / "run"


def test_the_temperature_is_that_of_the_least_loss():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(20_000, 3))
    truth = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)  # the softmax of these is calibrated
    for temperature in (0.5, 1.0, 3.0):
        p = at_temperature(torch.tensor(logits).softmax(-1).numpy(), 1 / temperature)
        assert fit_temperature(truth, p) == pytest.approx(temperature, rel=0.05)
        assert calibration_error(truth, at_temperature(p, temperature)) < 0.02
    assert fit_temperature(truth, np.full((20_000, 3), np.nan)) is None
    assert fit_temperature(np.zeros(60, int), np.tile([0.8, 0.2], (60, 1))) is None, "nothing is wrong"
    assert fit_temperature(np.ones(60, int), np.tile([1.0, 0.0], (60, 1))) == pytest.approx(HOTTEST, rel=1e-3)


def test_a_temperature_keeps_order_and_sum():
    p = np.array([[0.7, 0.2, 0.1], [1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3]])
    for temperature in (COLDEST, 0.7, 1.0, HOTTEST):
        found = at_temperature(p, temperature)
        assert found.sum(axis=-1) == pytest.approx(1)
        assert (found.argsort(axis=-1)[:2] == p.argsort(axis=-1)[:2]).all()
    assert at_temperature(p, 1.0) == pytest.approx(p)


def test_a_run_stores_its_temperature_and_reports_what_it_changes(trained):
    run = glassformer.load(trained)
    temperature = run.task.decision.temperature
    assert temperature is not None and COLDEST <= temperature <= HOTTEST
    evaluation = RunFolder(trained).read_evaluation()
    assert evaluation is not None
    scores = evaluation.scores
    assert scores["temperature"] == temperature
    assert scores["log_loss_calibrated"] != scores["log_loss"] and {"ece", "ece_calibrated"} <= scores.keys()
    assert "predict --calibrated" in (trained / "report.md").read_text("utf-8")
    again = run.evaluate()
    assert again["ece_calibrated"] == pytest.approx(scores["ece_calibrated"], abs=1e-6)


def test_the_temperature_is_that_of_the_mean_of_the_members(trained):
    run = glassformer.load(trained)
    rows = [line.rsplit(",", 1) for line in (trained.parent / "valid_file.csv").read_text().splitlines()[1:]]
    answers, names = run.predict([text for text, _ in rows]), run.task.label_names or []
    p = np.array([[*answer["probabilities"].values()] for answer in answers])
    truth = np.array([names.index(label) for _, label in rows])
    assert fit_temperature(truth, p) == pytest.approx(run.task.decision.temperature, rel=1e-3)


def shares(answers: list[dict[str, Any]]) -> np.ndarray:
    return np.array([[*answer["probabilities"].values()] for answer in answers])


def test_calibrated_answers_are_the_same_labels(trained):
    run = glassformer.load(trained)
    plain, calibrated = run.predict(TEXTS), run.predict(TEXTS, calibrated=True)
    assert shares(calibrated) == pytest.approx(at_temperature(shares(plain), run.task.decision.temperature or 1.0))
    assert not np.array_equal(shares(plain), shares(calibrated))
    for was, now in zip(plain, calibrated, strict=True):
        assert was["label"] == now["label"] and now["probability"] == now["probabilities"][now["label"]]
    assert [*run.predict_stream(TEXTS, calibrated=True)] == calibrated
    assert run.predict(TEXTS, calibrated=False, min_probability=None) == plain == [*run.predict_stream(TEXTS)]
    assert shares([run.predict(TEXTS[0], calibrated=True)]) == pytest.approx(shares(calibrated[:1]), abs=1e-5)


def test_no_label_below_a_probability(trained):
    run = glassformer.load(trained)
    plain = run.predict(TEXTS)
    least = float(np.median(shares(plain).max(axis=1)))
    answers = run.predict(TEXTS, min_probability=least)
    assert (shares(answers) == shares(plain)).all()
    for was, now in zip(plain, answers, strict=True):
        assert now == was | {"label": was["label"] if was["probability"] >= least else None}
        [line] = answer_lines(now)
        assert line.split("\t") == [now["label"] or "", f"{was['probability']:.4f}"]
    assert {answer["label"] for answer in answers} > {None}
    assert all(answer["label"] is None for answer in run.predict(TEXTS, min_probability=1.0))
    assert run.predict(TEXTS, min_probability=0.0) == plain


def test_of_several_labels_those_below_a_probability_are_left_out(monkeypatch):
    run = run_of("multilabel", monkeypatch)
    run.task.decision = Decision(thresholds=[0.0] * len(run.task.label_names or ()))
    was = run.predict("a b")
    least = float(np.median([*was["probabilities"].values()]))
    kept = [name for name in was["labels"] if was["probabilities"][name] >= least]
    assert run.predict("a b", min_probability=least) == was | {"labels": kept} and len(kept) < len(was["labels"])
    with pytest.raises(UsageError, match="no temperature"):
        run.predict("a", calibrated=True)


def test_what_has_no_temperature_or_probabilities_is_refused(monkeypatch):
    run = run_of("classify", monkeypatch)
    with pytest.raises(UsageError, match="no temperature"):
        run.predict("a", calibrated=True)
    for wrong in (-0.1, 1.5, "much", True):
        with pytest.raises(UsageError, match="min_probability"):
            run.predict("a", min_probability=wrong)
    translator = run_of("translate", monkeypatch)
    for options in ({"calibrated": True}, {"min_probability": 0.5}):
        with pytest.raises(UsageError, match="classifiers"):
            translator.predict_stream(["a"], **options)
    assert translator.predict("a", calibrated=False)


def test_joined_runs_have_no_temperature(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "other")
    joined = glassformer.load(trained, tmp_path / "other")
    assert "temperature" not in joined.evaluate(), "it was fitted to one run"
    with pytest.raises(UsageError, match="no temperature"):
        joined.predict("a", calibrated=True)
    assert glassformer.load(trained).task.decision.temperature is not None


def test_few_validation_texts_give_no_temperature():
    found = [heads.temperature(np.zeros(n, int), np.full((n, 2), 0.5)).keys() for n in (49, 50)]
    assert found == [set(), {"temperature"}]


def test_a_kept_run_has_the_temperature_and_an_edited_member_has_not(trained, tmp_path):
    run = glassformer.load(trained)
    edits = ["encoder.0.self.head1=0"]
    with pytest.raises(UsageError, match="the temperature is of the whole ensemble"):
        run.predict(TEXTS, edits=edits, calibrated=True)
    kept = glassformer.load(run.learn("a good film", "good", steps=1).keep(tmp_path / "kept"))
    assert kept.task.decision == run.task.decision
    assert kept.predict("a", calibrated=True)["probabilities"]


def test_an_export_answers_alike(trained, tmp_path, cli):
    pytest.importorskip("onnxruntime")
    run = glassformer.load(trained)
    run.export("onnx", tmp_path / "out")
    exported = load_exported(tmp_path / "out")
    options: dict[str, Any] = {"calibrated": True, "min_probability": 0.55}
    ours, theirs = run.predict(TEXTS, **options), exported.predict(TEXTS, **options)
    assert shares(theirs) == pytest.approx(shares(ours), abs=1e-4)
    assert [(a["text"], a["label"]) for a in ours] == [(a["text"], a["label"]) for a in theirs]
    assert [*exported.predict_stream(TEXTS, **options)] == theirs
    assert exported.predict(TEXTS) == exported.predict(TEXTS, calibrated=False)
    for folder, expected in ((tmp_path / "out", theirs), (trained, ours)):
        printed = cli("predict", folder, *TEXTS, "--json", "--calibrated", "--min-probability", "0.55").ok.out
        lines = [json.loads(line) for line in printed.splitlines()]
        assert [{k: v for k, v in line.items() if k != "precision"} for line in lines] == expected


def test_the_command_takes_a_least_probability(trained, cli):
    lines = cli("predict", trained, *TEXTS, "--min-probability", "1").ok.out.splitlines()
    assert all(line.startswith("\t0.") for line in lines)
    cli("predict", trained, "a", "--min-probability", "2").refused()
