"""Own files in, a run folder out: train, load elsewhere, predict, evaluate, resume; with one seed or several."""

import json
import re
import shutil
import signal
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.reading import written
from tests.helpers.small_runs import FLAGS, Killed, command, write_table

import glassformer
from glassformer import api
from glassformer.config.recipes import load_recipe
from glassformer.errors import CheckpointError, DivergedError, Interrupted, UsageError
from glassformer.evaluate.scores import class_scores as score
from glassformer.runs.folder import RunFolder, SeedsFolder
from glassformer.training.trainer import resume_seeds

TINY = {
    "model": {"n_layers": 1, "d_model": 32, "n_heads": 2, "d_ff": 64, "ensemble_size": 1},
    "text": {"vocab_size": 300, "max_len": 40},
    "epochs": 3,
    "minutes": None,
    "max_tokens": 256,
    "lr": 5e-3,
    "device": "cpu",
    "precision": "fp32",
}


def write_reviews(path: Path, n: int = 120) -> Path:
    """A CSV whose label is a word in its text."""
    rng = np.random.default_rng(0)
    rows = [("id", "text", "label")]
    for i in range(n):
        label = ["awful", "fine", "great"][rng.integers(3)]
        words = " ".join(rng.choice(["film", "plot", "actor", "scene", "the", "a"], 6))
        rows.append((str(i), f'{words}, "{label}"\nsaid I', label))
    path.write_text(written(rows), "utf-8")
    return path


def write_pairs(folder: Path, n: int = 150) -> tuple[Path, Path]:
    """Parallel files: the target says the source in capitals."""
    rng = np.random.default_rng(0)
    lines = ["".join(rng.choice(list("abcd "), 8)).strip() or "a" for _ in range(n)]
    src, tgt = folder / "s.txt", folder / "t.txt"
    src.write_text("".join(f"{x}\n" for x in lines), "utf-8")
    tgt.write_text("".join(f"{x.upper()}\n" for x in lines), "utf-8")
    return src, tgt


def test_a_moved_run_works_without_its_data(runs, tmp_path):
    moved = shutil.copytree(runs.classify / "model", tmp_path / "elsewhere")
    here, there = glassformer.load(runs.classify), glassformer.load(moved)
    texts = ["a good film", "", "bad bad \U0001f600", "x" * 500]
    assert here.predict(texts) == there.predict(texts)


def test_predictions_do_not_depend_on_company(runs):
    """Alone, in a list, in a stream, in another order: the same answer."""
    texts = ["abc d", "a", "bad cab dad", "d c b a d c b a"]
    for path, key in ((runs.classify, "label"), (runs.translate, "translation")):
        run = glassformer.load(path)
        together = run.predict(texts)
        for text, expected in zip(texts, together, strict=True):
            alone = run.predict(text)
            assert alone[key] == expected[key]
            number = "probability" if key == "label" else "score"
            assert alone[number] == pytest.approx(expected[number], abs=1e-5)
        assert [r[key] for r in run.predict_stream(iter(texts))] == [r[key] for r in together]
        assert [r[key] for r in run.predict(texts[::-1])] == [r[key] for r in together][::-1]
    run = glassformer.load(runs.lm)
    options: Any = {"max_new_tokens": 12, "decode_seed": 3}
    together = run.predict(texts, **options)
    assert run.predict(texts[0], **options) == together[0]
    assert list(run.predict_stream(iter(texts), **options)) == together


def test_samples_of_a_stream_are_numbered_through(runs, monkeypatch):
    """However few texts are taken at a time, and with an empty one among them: one list of samples."""
    run, texts = glassformer.load(runs.translate), ["abc d", "abc d", "", "abc d", "abc d"]
    options = {"sample": True, "temperature": 2.0}
    together = [r["translation"] for r in run.predict(texts, **options)]
    assert len(set(together)) > 2 and together[2] == ""
    monkeypatch.setattr("glassformer.run.PREDICTED_TOGETHER", 2)
    assert [r["translation"] for r in run.predict_stream(iter(texts), **options)] == together
    texts[2] = "a"
    assert [r["translation"] for r in run.predict(texts, **options)][3:] == together[3:]


def test_dry_run_and_overfit_write_nothing(tmp_path, monkeypatch):
    file = write_reviews(tmp_path / "r.csv")
    monkeypatch.chdir(tmp_path)
    glassformer.dry_run("classify", train_file=file, **TINY)
    assert glassformer.overfit_batch("classify", train_file=file, **TINY) > 0
    assert [path.name for path in tmp_path.iterdir()] == ["r.csv"]


def test_refusals_say_what_to_do(runs, tmp_path):
    for call, error, message in (
        (lambda: glassformer.load(tmp_path), CheckpointError, "no trained model"),
        (lambda: glassformer.resume(tmp_path), CheckpointError, "no run"),
        (lambda: glassformer.load(runs.classify).predict("a", n_bestt=3), UsageError, "n_bestt"),
    ):
        with pytest.raises(error, match=message):
            call()


# A run to initialise from is found alone, in its section, and switched off by None


@pytest.mark.parametrize(
    ("overrides", "uses"),
    [
        ({"init_from": "BASE"}, True),
        ({"train": {"init_from": "BASE", "lr": 0.1}}, True),
        ({"train": {"init_from": "BASE"}, "init_from": None}, False),
        ({"init_from": None, "train": {"init_from": "BASE"}}, True),
        ({"train": {"init_from": None}}, False),
        ({"train": {"lr": 0.1}}, None),
    ],
)
@pytest.mark.parametrize("recipe_names_it", [True, False])
def test_the_settings_of_a_pretrained_run(runs, overrides, uses, recipe_names_it, monkeypatch):
    """Only the configuration that training would begin with is looked at."""
    base, recipe = str(runs.classify), load_recipe("classify")
    if recipe_names_it:
        recipe = replace(recipe, train=replace(recipe.train, init_from=base))
    monkeypatch.setattr(api, "load_recipe", lambda name: recipe)
    given = json.loads(json.dumps(overrides).replace("BASE", base))
    config = api._configured("classify", {"train_file": "t.csv"} | given)
    expected = recipe_names_it if uses is None else uses
    assert (config.model.d_model == 16, config.train.init_from) == (expected, base if expected else None)


def test_several_folders_are_not_the_one_that_is_expected(cli):
    for use in (glassformer.load, lambda name: glassformer.dry_run("classify", init_from=name)):
        with pytest.raises(CheckpointError, match="one run folder is expected, and a,b holds") as error:
            use("a,b")
        assert error.value.hint == "give the folder that out named"
    assert "one run folder is expected, and a,b holds" in cli("train", "classify", "--init-from", "a,b").err


# Several seeds of one recipe: whole runs one after the other, resumed, summed up, and used by the best of them


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three seeds of a tiny classifier, from seed 4 on."""
    folder = tmp_path_factory.mktemp("seeds")
    reviews, tests = write_reviews(folder / "r.csv"), write_reviews(folder / "t.csv", 60)
    glassformer.train("classify", out=folder / "x", seeds=3, train_file=reviews, test_file=tests, seed=4, **TINY)
    return folder / "x"


def test_each_seed_is_a_whole_run(three, tmp_path):
    names = {"seeds.json", "report.json", "ensemble.json", "seed-4", "seed-5", "seed-6"}
    assert {p.name for p in three.iterdir()} == names
    configs = [glassformer.load_recipe(three / f"seed-{seed}") for seed in (4, 5, 6)]
    assert [config.train.seed for config in configs] == [4, 5, 6]
    glassformer.train(configs[1], out=tmp_path / "alone")
    weights = [(p / "model" / "model.safetensors").read_bytes() for p in (three / "seed-5", tmp_path / "alone")]
    assert weights[0] == weights[1], "a seed among others is the run that it is alone"


def test_an_error_in_the_data_or_the_number_leaves_the_folder_free(tmp_path, cli):
    (tmp_path / "bad.csv").write_text("text,label\na b,1\nc d\n", "utf-8")
    for file, seeds, code in (("none.csv", 2, 3), ("bad.csv", 2, 3), ("bad.csv", 1, 2)):
        ended = cli("train", "classify", "--seeds", seeds, "--out", tmp_path / "x", "--train-file", tmp_path / file)
        ended.refused(file if code == 3 else "seeds", code=code)
        assert not (tmp_path / "x").exists()


def test_the_report_has_mean_spread_and_best(three):
    report = json.loads((three / "report.json").read_text("utf-8"))
    values = [RunFolder(three / f"seed-{s}").read_evaluation().value("accuracy") for s in (4, 5, 6)]
    together = json.loads((three / "ensemble.json").read_text("utf-8"))
    score = {"metric": "accuracy", "n": 3, "min": min(values), "max": max(values)}
    assert score.items() <= report["score"].items() and report["split"] == "test"
    assert report["score"]["mean"] == pytest.approx(statistics.fmean(values))
    assert report["score"]["sd"] == pytest.approx(statistics.stdev(values))
    assert (report["ensemble"]["metric"], report["ensemble"]["value"]) == ("accuracy", together["accuracy"])
    assert report["best"] == max(report["runs"], key=lambda run: run["valid"])["run"] and report["missing"] == []


def test_all_seeds_are_scored_as_one_by_the_mean_of_their_probabilities(three):
    evaluation = SeedsFolder(three).read_ensemble()
    assert evaluation is not None and "predictions" not in evaluation.scores
    output = [list(RunFolder(three / f"seed-{seed}").read_predictions() or ()) for seed in (4, 5, 6)]
    names = list(output[0][0]["probabilities"])
    table = np.array([[[row["probabilities"][name] for name in names] for row in rows] for rows in output])
    expected = score([names.index(row["truth"]) for row in output[0]], table.mean(axis=0), names)
    for name in ("accuracy", "macro_f1", "ece", "log_loss"):
        assert evaluation.value(name) == pytest.approx(expected[name], rel=1e-5), name
    assert evaluation.interval("accuracy") == pytest.approx(expected["ci95"])


def test_scores_of_all_seeds_as_one_that_are_missing_are_made(three, tmp_path):
    folder = SeedsFolder(shutil.copytree(three, tmp_path / "x"))
    before = folder.ensemble.read_bytes()
    folder.ensemble.unlink()
    glassformer.resume(folder.path)
    assert folder.ensemble.read_bytes() == before


def test_the_folder_is_used_by_its_best(three, cli):
    best = json.loads((three / "report.json").read_text("utf-8"))["best"]
    run = glassformer.load(three)
    assert run.path == three / best
    assert run.predict("film plot great") == glassformer.load(three / best).predict("film plot great")
    assert f"{three / best} is the best by validation" in cli("predict", three, "film plot great").ok.err
    assert cli("evaluate", three, "--split", "valid", "--json").ok.json["split"] == "valid"


def test_it_continues_with_the_seeds_that_remain(three, tmp_path):
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


def test_an_interruption_says_how_to_resume_all_of_them(three, tmp_path):
    def stop(report: Any) -> None:
        raise Interrupted("stopped at update 1", "resume with: glassformer train --resume elsewhere", 143)

    with pytest.raises(Interrupted) as caught:
        glassformer.train(glassformer.load_recipe(three / "seed-4"), out=tmp_path / "x", seeds=2, on_step=stop)
    assert caught.value.hint == f"resume with: glassformer train --resume {tmp_path / 'x'}"
    assert caught.value.exit_code == 143


def test_a_seed_that_diverges_does_not_stop_the_others(three, tmp_path, monkeypatch, capsys):
    folder = SeedsFolder(shutil.copytree(three, tmp_path / "x"))
    shutil.rmtree(folder.run(5).path)
    shutil.rmtree(folder.run(6).path)

    def diverge(run: Any, *_: Any) -> None:
        run.write_divergence(3, "no number")
        raise DivergedError("the loss is no number")

    monkeypatch.setattr("glassformer.training.trainer.train_run", diverge)
    facts = resume_seeds(folder, lambda paths: pytest.fail(f"one run is no ensemble: {paths}"))
    assert facts.ensemble is None and not folder.ensemble.exists(), "what all three scored as one"
    report = json.loads(folder.report.read_text("utf-8"))
    assert report["missing"] == [5, 6] and report["best"] == folder.best.path.name == "seed-4"
    assert [run.path.name for run in folder.finished] == ["seed-4"], "what has no weights labels nothing"
    assert "warning: seed 6: the loss is no number" in capsys.readouterr().err


def test_the_command_trains_seeds_and_resumes_them(tmp_path, cli):
    """A budget in minutes is measured once."""
    out, file = tmp_path / "x", write_reviews(tmp_path / "r.csv")
    small = "--model.n-layers 1 --model.d-model 16 --model.n-heads 2 --minutes 0.003 --device cpu --precision fp32"
    command = ["train", "classify", "--train-file", file, "--out", out, "--seeds", "2", "--json"]
    message = cli(*command, *small.split()).ok
    report = message.json
    assert report["score"]["n"] == 2 and report["split"] == "valid" and "test" not in {*report, *report["runs"][0]}
    assert f"report: {out / 'report.json'}" in message.err and "seed 2, run 2 of 2" in message.err
    first, second = (glassformer.load_recipe(out / f"seed-{seed}").train for seed in (1, 2))
    assert first.steps == second.steps and first.minutes is second.minutes is None
    printed = cli("train", "--resume", out).ok.out
    assert all(re.search(rf"^{name} +\S", printed, re.MULTILINE) for name in ("metric", "n", "mean", "sd"))


# Real processes, really killed: whatever the instant, the run ends in the weights it would have had


def outcome(run: Path) -> tuple[bytes, int]:
    """The weights of a run, and how many updates it logs."""
    logged = (run / "metrics.jsonl").read_text("utf-8").splitlines()
    return (run / "model" / "model.safetensors").read_bytes(), len(logged)


def test_a_killed_run_ends_in_the_same_weights(tmp_path):
    """Really killed: the run ends in the weights it would have had, and its log has every update once."""
    settings = ("--train-file", str(write_table(tmp_path)), "--epochs", "30", "--save-every", "7", *FLAGS)
    whole, hit = tmp_path / "whole", tmp_path / "hit"
    code, output = command(tmp_path / "1", "train", "classify", "--out", str(whole), *settings).wait(180)
    assert code == 0, output
    process = command(tmp_path / "2", "train", "classify", "--out", str(hit), *settings)
    process.until(lambda: any((hit / "checkpoints").glob("step-*")))
    process.send(signal.SIGKILL)
    assert process.wait(60)[0] == -signal.SIGKILL
    code, output = command(tmp_path / "3", "train", "--resume", str(hit)).wait(180)
    assert code == 0 and outcome(hit) == outcome(whole), output
