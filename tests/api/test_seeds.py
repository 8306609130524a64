"""Several seeds of one recipe: whole runs one after the other, resumed, summed up, and used by the best of them."""

from __future__ import annotations

import json
import re
import shutil
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.small_runs import Killed

import glassformer
from glassformer.cli.main import main
from glassformer.errors import CheckpointError, DivergedError, Interrupted, UsageError
from glassformer.evaluate.scores import class_scores as score
from glassformer.runs.folder import RunFolder, SeedsFolder
from glassformer.training.trainer import resume_seeds

from .test_end_to_end import TINY, write_reviews


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three seeds of a tiny classifier, from seed 4 on."""
    folder = tmp_path_factory.mktemp("seeds")
    reviews, tests = write_reviews(folder / "r.csv"), write_reviews(folder / "t.csv", 60)
    glassformer.train("classify", out=folder / "x", seeds=3, train_file=reviews, test_file=tests, seed=4, **TINY)
    return folder / "x"


def test_each_seed_is_a_whole_run(three: Path, tmp_path: Path) -> None:
    names = {"seeds.json", "report.json", "ensemble.json", "seed-4", "seed-5", "seed-6"}
    assert {p.name for p in three.iterdir()} == names
    configs = [glassformer.load_recipe(three / f"seed-{seed}") for seed in (4, 5, 6)]
    assert [config.train.seed for config in configs] == [4, 5, 6]
    glassformer.train(configs[1], out=tmp_path / "alone")
    weights = [(p / "model" / "model.safetensors").read_bytes() for p in (three / "seed-5", tmp_path / "alone")]
    assert weights[0] == weights[1], "a seed among others is the run that it is alone"


def test_an_error_in_the_data_or_the_number_leaves_the_folder_free(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.csv").write_text("text,label\na b,1\nc d\n", encoding="utf-8")
    for file, seeds, code, message in (
        ("none.csv", 2, 3, "none.csv"),
        ("bad.csv", 2, 3, "bad.csv"),
        ("bad.csv", 1, 2, "seeds"),
    ):
        command = ["train", "classify", "--seeds", str(seeds), "--out", str(tmp_path / "x")]
        assert main([*command, "--train-file", str(tmp_path / file)]) == code
        assert message in capsys.readouterr().err and not (tmp_path / "x").exists()


def test_the_report_has_mean_spread_and_best(three: Path) -> None:
    report = json.loads((three / "report.json").read_text(encoding="utf-8"))
    values = [RunFolder(three / f"seed-{s}").read_evaluation().value("accuracy") for s in (4, 5, 6)]
    together = json.loads((three / "ensemble.json").read_text(encoding="utf-8"))
    score = {"metric": "accuracy", "n": 3, "min": min(values), "max": max(values)}
    assert score.items() <= report["score"].items() and report["split"] == "test"
    assert report["score"]["mean"] == pytest.approx(statistics.fmean(values))
    assert report["score"]["sd"] == pytest.approx(statistics.stdev(values))
    assert (report["ensemble"]["metric"], report["ensemble"]["value"]) == ("accuracy", together["accuracy"])
    assert report["best"] == max(report["runs"], key=lambda run: run["valid"])["run"] and report["missing"] == []


def test_all_seeds_are_scored_as_one_by_the_mean_of_their_probabilities(three: Path) -> None:
    evaluation = SeedsFolder(three).read_ensemble()
    assert evaluation is not None and "predictions" not in evaluation.scores
    output = [list(RunFolder(three / f"seed-{seed}").read_predictions() or ()) for seed in (4, 5, 6)]
    names = list(output[0][0]["probabilities"])
    table = np.array([[[row["probabilities"][name] for name in names] for row in rows] for rows in output])
    expected = score([names.index(row["truth"]) for row in output[0]], table.mean(axis=0), names)
    for name in ("accuracy", "macro_f1", "ece", "log_loss"):
        assert evaluation.value(name) == pytest.approx(expected[name], rel=1e-5), name
    assert evaluation.interval("accuracy") == pytest.approx(expected["ci95"])


def test_scores_of_all_seeds_as_one_that_are_missing_are_made(three: Path, tmp_path: Path) -> None:
    folder = SeedsFolder(shutil.copytree(three, tmp_path / "x"))
    before = folder.ensemble.read_bytes()
    folder.ensemble.unlink()
    glassformer.resume(folder.path)
    assert folder.ensemble.read_bytes() == before


def test_the_folder_is_used_by_its_best(three: Path, capsys: pytest.CaptureFixture[str]) -> None:
    best = json.loads((three / "report.json").read_text(encoding="utf-8"))["best"]
    run = glassformer.load(three)
    assert run.path == three / best
    assert run.predict("film plot great") == glassformer.load(three / best).predict("film plot great")
    capsys.readouterr()
    assert main(["predict", str(three), "film plot great"]) == 0
    message = capsys.readouterr()
    assert f"{three / best} is the best by validation" in message.err
    assert main(["evaluate", str(three), "--split", "valid", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["split"] == "valid"


def test_it_continues_with_the_seeds_that_remain(three: Path, tmp_path: Path) -> None:
    """Killed in the second of three: the first is left alone, the second resumed, the third begun."""
    config, out = glassformer.load_recipe(three / "seed-4"), tmp_path / "x"

    def kill(report: Any) -> None:
        if report.step == 2 and (out / "seed-5").exists():
            raise Killed

    with pytest.raises(Killed):
        glassformer.train(config, out=out, seeds=3, on_step=kill)
    assert not (out / "seed-6").exists()
    with pytest.raises(CheckpointError, match="not all of them are trained") as caught:
        glassformer.load(out)
    assert "--resume" in caught.value.hint and "seed-4" in caught.value.hint
    with pytest.raises(UsageError, match="is not empty") as refused:
        glassformer.train(config, out=out, seeds=3)
    assert f"--resume {out}" in refused.value.hint
    before = (out / "seed-4" / "report.md").stat().st_mtime_ns
    glassformer.resume(out)
    assert (out / "seed-4" / "report.md").stat().st_mtime_ns == before
    for seed in (4, 5, 6):
        pair = [folder / f"seed-{seed}" / "model" / "model.safetensors" for folder in (three, out)]
        assert pair[0].read_bytes() == pair[1].read_bytes(), seed


def test_an_interruption_says_how_to_resume_all_of_them(three: Path, tmp_path: Path) -> None:
    def stop(report: Any) -> None:
        raise Interrupted("stopped at update 1", "resume with: glassformer train --resume elsewhere", 143)

    with pytest.raises(Interrupted) as caught:
        glassformer.train(glassformer.load_recipe(three / "seed-4"), out=tmp_path / "x", seeds=2, on_step=stop)
    assert caught.value.hint == f"resume with: glassformer train --resume {tmp_path / 'x'}"
    assert caught.value.exit_code == 143


def test_a_seed_that_diverges_does_not_stop_the_others(
    three: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = SeedsFolder(shutil.copytree(three, tmp_path / "x"))
    shutil.rmtree(folder.run(5).path)
    shutil.rmtree(folder.run(6).path)

    def diverge(run: Any, *_: Any) -> None:
        run.write_divergence(3, "no number")
        raise DivergedError("the loss is no number")

    monkeypatch.setattr("glassformer.training.trainer.train_run", diverge)
    facts = resume_seeds(folder, lambda paths: pytest.fail(f"one run is no ensemble: {paths}"))
    assert facts.ensemble is None and not folder.ensemble.exists(), "what all three scored as one"
    report = json.loads(folder.report.read_text(encoding="utf-8"))
    assert report["missing"] == [5, 6] and report["best"] == folder.best.path.name == "seed-4"
    assert [run.path.name for run in folder.finished] == ["seed-4"], "what has no weights labels nothing"
    assert "warning: seed 6: the loss is no number" in capsys.readouterr().err


def test_the_command_trains_seeds_and_resumes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A budget in minutes is measured once."""
    out, file = tmp_path / "x", write_reviews(tmp_path / "r.csv")
    small = "--model.n-layers 1 --model.d-model 16 --model.n-heads 2 --minutes 0.003 --device cpu --precision fp32"
    command = ["train", "classify", "--train-file", str(file), "--out", str(out), "--seeds", "2", "--json"]
    assert main([*command, *small.split()]) == 0
    message = capsys.readouterr()
    report = json.loads(message.out)
    assert report["score"]["n"] == 2 and report["split"] == "valid" and "test" not in {*report, *report["runs"][0]}
    assert f"report: {out / 'report.json'}" in message.err and "seed 2, run 2 of 2" in message.err
    first, second = (glassformer.load_recipe(out / f"seed-{seed}").train for seed in (1, 2))
    assert first.steps == second.steps and first.minutes is second.minutes is None
    assert main(["train", "--resume", str(out)]) == 0
    printed = capsys.readouterr().out
    assert all(re.search(rf"^{name} +\S", printed, re.MULTILINE) for name in ("metric", "n", "mean", "sd"))
