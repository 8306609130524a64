"""Answers that are numbers: data, scores, training, prediction, explanation, export and starts from other runs."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error
from tests.helpers.exports import run_of
from tests.helpers.for_each import for_each
from tests.helpers.reading import read, table
from tests.helpers.small import small

import glassformer
from glassformer.cli.main import main
from glassformer.data.datasets.labels import mean_and_sd, why_no_number
from glassformer.errors import CheckpointError, UsageError
from glassformer.evaluate.baselines import Known, number_baselines
from glassformer.evaluate.scores import number_scores
from glassformer.evaluate.scoring import paired
from glassformer.explain.explanation import explain
from glassformer.explain.request import TraceRequest
from glassformer.models.ensemble import Ensemble, mean_logits, members_of
from glassformer.run import Run
from glassformer.tasks.encoder import Regress
from glassformer.tasks.heads import squared_errors
from glassformer.text.answers import Decision, number_text
from glassformer.training.finetune import in_scale

pytestmark = pytest.mark.draws

WORTH = {"good": 10.0, "great": 20.0, "bad": -10.0}
TINY: dict[str, Any] = {
    "model": {"n_layers": 1, "d_model": 16, "n_heads": 2, "d_ff": 16, "ensemble_size": 1, "dropout": 0.0},
    "text": {"vocab_size": 60, "max_len": 16, "bigrams": 0, "ngrams": 0},
    "epochs": 12,
    "lr": 0.02,
    "batch_size": 16,
    "adversarial": 0.0,
    "device": "cpu",
    "threads": 1,
}


def rows(n: int, seed: int, shift: float = 100.0) -> list[dict[str, Any]]:
    """Return texts with the worth of their words."""
    rng = np.random.default_rng(seed)
    names = [*WORTH, *"abcde"]
    texts = [" ".join(rng.choice(names, 5)) + f" n{i % 40}" for i in range(n)]
    return [{"text": text, "stars": shift + sum(WORTH.get(w, 0.0) for w in text.split())} for text in texts]


def write(path: Path, found: list[dict[str, Any]]) -> Path:
    """Write rows as JSON Lines or CSV."""
    if path.suffix == ".jsonl":
        text = "".join(json.dumps(row) + "\n" for row in found)
    else:
        text = "text,stars\n" + "".join(f"{row['text']},{row['stars']}\n" for row in found)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("numbers")
    files = {"train_file": write(folder / "a.jsonl", rows(160, 0)), "test_file": write(folder / "t.csv", rows(60, 1))}
    glassformer.train("regress", out=folder / "run", label_column="stars", **files, **TINY)
    return folder / "run"


@for_each(
    ("cell", "message"),
    [
        ("3", ""),
        ("-0.5", ""),
        (".5", ""),
        ("1e-3", ""),
        ("1e300", ""),
        ("", "the number is empty"),
        ("n/a", "'n/a' is not a number"),
        ("nan", "'nan' is not a number"),
        ("inf", "'inf' is not a number"),
        ("1,5", "without a comma"),
        ("1_000", "is not a number"),
        ("٣", "is not a number"),
        ("1e301", "is beyond 1e+300"),
        ("1e999", "is beyond 1e+300"),
    ],
)
def test_what_a_number_is(cell: str, message: str) -> None:
    assert (message in why_no_number(cell)) and bool(why_no_number(cell)) == bool(message)


@for_each("bad", ['"1,5"', '"n/a"', "NaN", "true"])
def test_a_bad_number_is_named_with_its_line(bad: str, tmp_path: Path) -> None:
    lines = [*map(json.dumps, rows(40, 0)), f'{{"text": "a", "stars": {bad}}}']
    assert re.search(r"a\.jsonl:41: .* is not a number", read(tmp_path, "\n".join(lines), "a.jsonl", "regress").message)


def test_equal_numbers_are_refused(tmp_path: Path) -> None:
    content = table([(f"a {i}", "3") for i in range(20)], ("text", "stars"))
    assert "numbers are 3, so there is nothing to learn" in read(tmp_path, content, task="regress").message


def test_scores_are_those_of_scikit_learn_and_scipy() -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=300).round(1)
    predicted = (truth + rng.normal(size=300)).round(1)  # with equal ranks
    scores = number_scores(truth, predicted)
    expected = {
        "mae": mean_absolute_error(truth, predicted),
        "rmse": root_mean_squared_error(truth, predicted),
        "r2": r2_score(truth, predicted),
        "pearson": pearsonr(truth, predicted)[0],
        "spearman": spearmanr(truth, predicted)[0],
    }
    for name, value in expected.items():
        assert scores[name] == pytest.approx(value, abs=1e-9)
        low, high = scores.get(f"{name}_ci95", (-math.inf, math.inf))
        assert low < value < high


@for_each("scale", [1e-300, 1.0, 1e15, 1e299])
def test_scores_do_not_depend_on_the_unit(scale: float) -> None:
    truth, predicted = np.array([1.0, 2.0, 3.0, 5.0]), np.array([1.5, 2.0, 2.0, 4.0])
    scores, one = number_scores(truth * scale, predicted * scale), number_scores(truth, predicted)
    assert scores["mae"] == pytest.approx(one["mae"] * scale, rel=1e-9)
    assert scores["r2"] == pytest.approx(one["r2"], rel=1e-9)
    mean, sd = mean_and_sd(truth * scale)
    assert mean == pytest.approx(2.75 * scale) and sd == pytest.approx(truth.std() * scale, rel=1e-9)


def test_what_is_undefined_is_none() -> None:
    scores = number_scores(np.array([1.0, 2.0, 3.0]), np.full(3, 2.0))
    assert scores["pearson"] is None and scores["spearman"] is None and scores["mae"] == pytest.approx(2 / 3)
    assert number_scores(np.full(3, 2.0), np.array([1.0, 2.0, 3.0]))["r2"] is None


def test_the_loss_is_the_squared_error_of_standardised_numbers() -> None:
    made = small("regress")
    task, model = made.task, made.task.build_model().eval()
    assert isinstance(task, Regress)
    numbers = np.array([float(a) for a in made.context.data.train.answers])
    assert task.decision.scale == pytest.approx((numbers.mean(), numbers.std()))
    batch = made.batch(made.batches()[0])
    expected = (numbers[batch.index] - numbers.mean()) / numbers.std()
    assert batch.labels.numpy() == pytest.approx(expected, abs=1e-5)
    outputs = task.logits(model, batch)
    assert outputs.shape == (len(expected), 1)
    theirs = torch.nn.functional.mse_loss(outputs[:, 0], batch.labels, reduction="sum")
    assert task.loss_sum(model, batch).item() == pytest.approx(theirs.item(), rel=1e-5)
    assert squared_errors(torch.tensor([[2.0]]), torch.tensor([5.0])).item() == 9.0
    scores = task.validate(model, made.context.valid, made.context.data.valid)
    answers = task.predict(model, made.context.data.valid.text, made.config.decode)
    truth = np.array([float(a) for a in made.context.data.valid.answers])
    error = np.abs(np.array([a["number"] for a in answers]) - truth).mean()
    assert scores["mae"] == pytest.approx(error, rel=1e-6) and not task.higher_is_better


def test_an_ensemble_averages_numbers() -> None:
    assert mean_logits([torch.tensor([[1.0]]), torch.tensor([[4.0]])]).item() == 2.5
    made = small("regress")
    members = [made.task.build_model().eval() for _ in range(3)]
    [text] = made.context.data.test.text[:1]  # pyright: ignore
    alone = [made.task.predict(m, [text], made.config.decode)[0]["number"] for m in members]
    [together] = made.task.predict(Ensemble(members), [text], made.config.decode)
    assert together["number"] == pytest.approx(np.mean(alone), rel=1e-6)


def test_a_run_answers_as_it_was_evaluated(trained: Path, capfd: Any) -> None:
    run = glassformer.load(trained, precision="fp32")
    stored = [json.loads(line) for line in (trained / "predictions.jsonl").read_text("utf-8").splitlines()]
    texts = [row["text"] for row in rows(60, 1)]
    assert [a["number"] for a in run.predict(texts)] == pytest.approx([row["number"] for row in stored], abs=1e-3)
    scores = run.evaluate()
    assert scores["r2"] > 0.5 and {"mean", "tfidf_ridge"} <= scores["baselines"].keys()
    assert scores["mae"] < scores["baselines"]["mean"]["mae"] and scores["mae_ci95"]
    report = (trained / "report.md").read_text("utf-8")
    assert "Mean absolute error" in report and "TF-IDF + ridge regression" in report
    assert main(["predict", str(trained), "good great", "--json"]) == 0
    assert set(json.loads(capfd.readouterr().out)) == {"text", "number", "precision"}
    assert main(["compare", str(trained), str(trained)]) == 0
    assert "approximate randomization" in capfd.readouterr().out


@for_each("flags", [["--calibrated"], ["--min-probability", "0.5"]])
def test_what_needs_probabilities_is_refused(flags: list[str], trained: Path, capfd: Any) -> None:
    assert main(["predict", str(trained), "a b", *flags]) == UsageError.exit_code
    message = capfd.readouterr().err
    assert "is for classifiers" in message and ", whose answers have probabilities" in message


@for_each("flags", [["--label-smoothing", "0.1"], ["--label-separator", ";"]])
def test_settings_of_classes_are_refused(flags: list[str], capfd: Any) -> None:
    assert main(["train", "regress", "--train-file", "a.csv", *flags]) == UsageError.exit_code
    assert "has no use for" in capfd.readouterr().err


def test_a_table_gets_a_column_of_numbers(trained: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "in.csv", rows(20, 3))
    assert main(["predict-table", str(trained), str(path), str(tmp_path / "out.jsonl")]) == 0
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text("utf-8").splitlines()]
    assert len(found) == 20 and all(isinstance(row["number"], float) for row in found)


def test_two_runs_are_compared_by_absolute_errors() -> None:
    answers = (
        [{"truth": t, "number": x} for t, x in zip((1, 2, 5), numbers, strict=True)]
        for numbers in ((1, 2, 4), (1, 3, 9))
    )
    test = paired(Regress.report.scoring({}), *answers)
    assert test["metric"] == "mae" and test["difference"] == pytest.approx(1 / 3 - 5 / 3)


@for_each("value", [{"mean": 1.0}, {"mean": 1.0, "sd": 0.0}, {"mean": 1.0, "sd": -1.0}])
def test_a_damaged_scale_is_refused(value: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match=r"standard deviation above 0|expected `float` > 0"):
        Decision.from_json(value, None, "config.json")


def test_a_run_is_begun_with_its_scale(trained: Path) -> None:
    scale = json.loads((trained / "data.json").read_text("utf-8"))["scale"]
    assert (scale["mean"], scale["sd"]) == glassformer.load(trained).task.decision.scale


@for_each("members", [1, 2])
def test_an_explanation_is_in_the_units_of_the_numbers(members: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        run = run_of("regress", patch, ensemble_size=members)
    text = "a good b good"
    e = explain(run, TraceRequest(text))
    one = run.task.predict(members_of(run.model)[0], [text], run.config.decode)[0]["number"]
    assert float(e.answer["headline"].replace("−", "-")) == pytest.approx(one, rel=1e-4)
    assert (e.together is not None) == (members > 1) and e.predictions == []
    found = e.attribute()
    assert found.value == pytest.approx(one, rel=1e-5)
    less = run.task.predict(members_of(run.model)[0], [text], run.config.decode)[0]["number"]
    assert less == one and len(found.scores["text"]) == len(e.streams[0])
    summed = e.attribute("integrated_gradients")
    assert sum(summed.scores["text"]) == pytest.approx(summed.value - summed.baseline_value, rel=0.05, abs=0.05)
    edited = e.what_if("encoder.0.self.out=0")
    assert edited.answer_after is not None and "without edits" in edited.answer["detail"]


def test_a_head_is_brought_to_another_scale() -> None:
    weights = {"head.weight": torch.tensor([[2.0]]), "head.bias": torch.tensor([1.0]), "other": torch.tensor([3.0])}
    scaled = in_scale(weights, Decision(mean=10.0, sd=4.0), Decision(mean=20.0, sd=2.0))
    x = torch.tensor([0.7])
    before = 10 + 4 * (2 * x + 1)
    after = 20 + 2 * (scaled["head.weight"] @ x + scaled["head.bias"])
    assert after.item() == pytest.approx(before.item(), rel=1e-6) and scaled["other"] is weights["other"]


def test_starts_from_other_runs(trained: Path, tmp_path: Path) -> None:
    """A run of other numbers keeps its answers; one of classes gives its layers, and not its head."""
    shifted = write(tmp_path / "b.jsonl", rows(80, 4, shift=1000.0))
    begun = {name: value for name, value in TINY.items() if name not in ("model", "text")}
    begun |= {"init_from": str(trained), "epochs": 1, "lr": 1e-9}
    run = glassformer.train("regress", out=tmp_path / "next", train_file=shifted, label_column="stars", **begun)
    assert isinstance(run, Run)
    first = glassformer.load(trained, precision="fp32").predict("good great a")["number"]
    assert glassformer.load(tmp_path / "next", precision="fp32").predict("good great a")["number"] == pytest.approx(
        first, rel=1e-2
    )
    path = tmp_path / "c.csv"
    path.write_text("text,label\n" + "".join(f"{w} {i},{w}\n" for i in range(20) for w in ("good", "bad")), "utf-8")
    classes = glassformer.train("classify", out=tmp_path / "classes", train_file=path, **begun)
    assert isinstance(classes, Run)
    models = [members_of(one.model)[0] for one in (classes, glassformer.load(trained))]
    heads = [dict(model.named_parameters())["head.weight"] for model in models]
    assert heads[0].shape == heads[1].shape and not torch.allclose(heads[0], heads[1], atol=1e-3)


def test_an_edit_prints_the_numbers_and_no_table_of_logits(trained: Path, capfd: Any) -> None:
    assert main(["edit", str(trained), "a good b", "encoder.0.self.out=0"]) == 0
    printed = capfd.readouterr().out
    assert "before" in printed and "after" in printed and "logit" not in printed and "log p" not in printed


def test_numbers_far_from_zero_keep_their_digits_and_their_baseline() -> None:
    rng = np.random.default_rng(0)
    texts = [f"{'good' if i % 2 else 'bad'} film {i % 7}" for i in range(60)]
    numbers = np.array([5.0 * (i % 2) for i in range(60)]) + rng.normal(size=60) / 10
    errors = []
    for offset in (0.0, 1.7e9):
        data = numbers + offset
        found = number_baselines(Known(texts[:40], data[:40]), Known(texts[40:], data[40:]))
        errors.append(found["tfidf_ridge"]["mae"])
    assert errors[1] == pytest.approx(errors[0], rel=1e-3)
    assert number_text(1700003442.6) == "1700003442.6" and number_text(-1234567.0) == "-1234567"
    assert number_text(0.123456789) == "0.123457" and number_text(12.5) == "12.5" and number_text(1e300) == "1e+300"
