"""Would more data help: the power law, its forecast, and the runs on parts of the data."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import glassformer
from glassformer.cli.main import main
from glassformer.data.findings import FEW
from glassformer.errors import DataError, Interrupted, UsageError
from glassformer.evaluate.learning_curve import expected, forecast, power_law
from glassformer.evaluate.scoring import Counted, Scoring, ratio
from glassformer.runs.folder import RunFolder
from glassformer.training import learning_curve as module
from glassformer.training.learning_curve import FOLDER, learning_curve, with_auto

SIZES = [400, 800, 1600]
TINY: dict[str, Any] = {
    "threads": 1,
    "precision": "fp32",
    "epochs": 1,
    "batch_size": 32,
    "adversarial": 0.0,
    "model": {"d_model": 8, "n_heads": 2, "d_ff": 8, "ensemble_size": 1},
    "text": {"vocab_size": 300, "max_len": 32},
}


def shares(right: np.ndarray) -> Counted:
    return Scoring("accuracy", np.array, ratio), np.column_stack([right, np.ones(len(right))])


def test_the_law_is_found_where_it_holds() -> None:
    a, b = power_law(SIZES, [0.9 - 3 * n**-0.5 for n in SIZES])
    assert (a, b) == pytest.approx((0.9, 3.0))
    assert expected(SIZES, [0.9 - 3 * n**-0.5 for n in SIZES], 3200, 1.0) == pytest.approx(0.9 - 3 * 3200**-0.5)
    assert power_law(SIZES, [0.8, 0.8, 0.8]) == pytest.approx((0.8, 0.0))
    assert power_law(SIZES, [0.9, 0.8, 0.7]) == pytest.approx((0.8, 0.0)), "more data does no harm"
    assert expected(SIZES, [0.5, 0.8, 0.99], 10**9, 1.0) == 1.0, "no score is above the best"


def test_the_interval_holds_what_the_law_gives() -> None:
    rng, hits, n_tries = np.random.default_rng(0), 0, 20
    for _ in range(n_tries):
        ease = rng.random(400)
        scores = [0.9 - 4 * n**-0.5 for n in (*SIZES, 3200)]
        runs = [shares((0.7 * ease + 0.3 * rng.random(400)) / 1.0 < score) for score in scores]
        found = forecast(SIZES, [[run] for run in runs[:3]], 3200)
        measured = ratio(runs[3][1].sum(axis=0))
        hits += found["ci95"][0] <= measured <= found["ci95"][1]
        assert found["ci95"][0] <= found["score"] <= found["ci95"][1]
        assert found["gain"] >= 0 and found["gain_ci95"][0] <= found["gain"] <= found["gain_ci95"][1]
    assert hits >= 0.8 * n_tries


def test_several_runs_of_a_size_are_averaged() -> None:
    rng = np.random.default_rng(1)
    of = {share: shares(rng.random(200) < share) for share in (0.5, 0.6, 0.7, 0.8)}
    found = forecast([10, 20, 40], [[of[0.5], of[0.6]], [of[0.6], of[0.7]], [of[0.7], of[0.8]]], 80)
    first = [ratio(of[each][1].sum(axis=0)) for each in (0.5, 0.6)]
    assert found["points"][0]["score"] == pytest.approx(np.mean(first)) and found["points"][0]["runs"] == 2
    assert found["interval"] == "95% interval"
    assert found == forecast([10, 20, 40], [[of[0.5], of[0.6]], [of[0.6], of[0.7]], [of[0.7], of[0.8]]], 80)


def files(folder: Path, task: str, n: int = 120) -> dict[str, Path]:
    rng = np.random.default_rng(0)
    lines = [" ".join(rng.choice(["one", "two", "red", "dog"], size=4)) for _ in range(n)]
    if task == "translate":
        for name, of in (("a", lines), ("b", [line.upper() for line in lines])):
            (folder / name).write_text("\n".join(of) + "\n", encoding="utf-8")
        return {"src_file": folder / "a", "tgt_file": folder / "b"}
    if task == "tag":
        tags = {"red": "B-X"}
        of = ["".join(f"{word} {tags.get(word, 'O')}\n" for word in line.split()) for line in lines]
        (folder / "t.conll").write_text("\n".join(of), encoding="utf-8")
        return {"train_file": folder / "t.conll"}
    if task == "regress":
        rows = [f"{line} {i},{line.count('red') / 100}" for i, line in enumerate(lines)]
        (folder / "t.csv").write_text("\n".join(["text,target", *rows]) + "\n", encoding="utf-8")
        return {"train_file": folder / "t.csv"}
    column, labels = ("labels", ["x", "y", "x; y"]) if task == "multilabel" else ("label", ["x", "y"])
    rows = [f"{line} {i},{labels[i % len(labels)]}" for i, line in enumerate(lines)]
    (folder / "t.csv").write_text("\n".join([f"text,{column}", *rows]) + "\n", encoding="utf-8")
    return {"train_file": folder / "t.csv"}


@pytest.fixture(scope="module", params=["classify", "translate", "multilabel", "regress", "tag"])
def trained(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLASSFORMER_CACHE", str(folder / "cache"))
        options = {
            key: value
            for key, value in TINY.items()
            if key != "adversarial" or request.param not in ("translate", "tag")
        }
        glassformer.train(
            request.param, out=folder / "run", valid_fraction=0.1, **files(folder, request.param), **options
        )
        yield folder / "run"


def test_the_command_trains_on_parts_and_forecasts(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (trained / "report.md").read_bytes()
    assert main(["data", "curve", str(trained), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    n = RunFolder(trained).read_data().splits["train"].n
    assert [point["n"] for point in found["points"]] == [n // 4, n // 2, n] and found["n"] == 2 * n
    scored, now = json.loads((trained / "evaluation.json").read_text(encoding="utf-8")), found["points"][-1]
    assert now["score"] == pytest.approx(scored[found["metric"]]), "the same number as the run's own evaluation"
    assert now["ci95"][0] <= now["ci95"][1] and found["gain"] >= 0
    assert found == json.loads((trained / FOLDER / "report.json").read_text(encoding="utf-8"))
    parts = [RunFolder(trained / FOLDER / f"n-{size}-seed-1") for size in (n // 4, n // 2)]
    for part, size in zip(parts, (n // 4, n // 2), strict=True):
        assert part.finished and part.read_config().data.limit == size
        record = part.read_data()
        assert record.splits["valid"] == RunFolder(trained).read_data().splits["valid"]
    scores = json.loads(RunFolder(trained).evaluation.read_text(encoding="utf-8"))
    assert found["points"][-1]["score"] == pytest.approx(scores[found["metric"]])
    text = (trained / FOLDER / "report.md").read_text(encoding="utf-8")
    assert "Hestness" in text and "expected" in text and "One run of a size" in text
    assert found["interval"] == "range with one seed" and "95% interval" not in text
    assert (trained / "report.md").read_bytes() == before and glassformer.load(trained).path == trained
    assert main(["data", "curve", str(trained)]) == 0, "nothing is trained again"
    printed = capsys.readouterr()
    assert f"{2 * n:,}" in printed.out and ("Only " in printed.out) == (found["n_valid"] < FEW)
    assert "of the fitted curve now" in printed.out or found["law"]["b"] == 0
    assert "training" not in printed.err.lower().replace("training examples", "")
    shutil.rmtree(trained / FOLDER)


@pytest.mark.parametrize("trained", ["classify"], indirect=True)
def test_an_interrupted_curve_is_continued(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train, calls = module.train_or_resume, list[Path]()

    def once(config: Any, run: RunFolder, *rest: Any) -> None:
        calls.append(run.path)
        if len(calls) == 2:
            raise Interrupted("stopped", "resume", 130)
        train(config, run, *rest)

    monkeypatch.setattr(module, "train_or_resume", once)
    with pytest.raises(Interrupted) as caught:
        learning_curve(trained, seeds=2)
    assert "same command" in str(caught.value.hint)
    found = learning_curve(trained, seeds=2)
    assert [point["runs"] for point in found["points"]] == [2, 2, 2]
    assert len(calls) == 6 and len({*calls}) == 5, "two of both parts, and a second of the whole"
    assert "One run of a size" not in (trained / FOLDER / "report.md").read_text(encoding="utf-8")
    shutil.rmtree(trained / FOLDER)


def test_settings_that_the_recipe_chose_are_chosen_for_each_part(trained: Path) -> None:
    run = glassformer.load(trained)
    config, data = (
        RunFolder(trained).read_config(),
        module.load_run_data(trained, run.task.schema, run.config.data).text,
    )
    auto = with_auto(config, data).auto
    assert "epochs" not in auto and "dropout" in auto


def test_what_has_no_curve_is_refused(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FEWEST", 10**6)
    with pytest.raises(DataError, match="too few"):
        learning_curve(trained)
    monkeypatch.undo()
    assert main(["data", "curve", str(trained), "--seeds", "0"]) == UsageError.exit_code
    assert main(["data", "curve"]) == UsageError.exit_code
    without_answers = SimpleNamespace(text=SimpleNamespace(train=SimpleNamespace(answer=None)))
    monkeypatch.setattr(module, "load_run_data", lambda *_, **__: without_answers)
    with pytest.raises(UsageError, match="counts examples"):
        learning_curve(trained)
