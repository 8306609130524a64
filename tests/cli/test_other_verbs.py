"""demo, data, recipes, compare and doctor."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.for_each import for_each
from tests.helpers.tiny_runs import SMALL, Runs

import glassformer
from glassformer.config import Config
from glassformer.config.recipes import TASK_NAMES, config_to_dict, load_recipe, recipe_names
from glassformer.report.findings import diagnose
from glassformer.report.run_record import RunRecord
from glassformer.runs.records import DataRecord, Divergence, Evaluation, SplitRecord, StepMetrics


def test_demo_trains_shows_and_points_to_the_report(
    cli: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first folder that is free."""
    monkeypatch.chdir(tmp_path)
    Path("runs/demo").mkdir(parents=True)
    Path("runs/demo/mine").touch()
    message = cli("demo", "--n-dates", "200", "--max-new-tokens", "3", *SMALL).ok
    assert message.out.startswith("exact match 0.")
    assert "exact match" in message.out and "translation" in message.out and "reference" in message.out
    report = Path("runs/demo-2/report.md")
    assert str(report) in message.err and report.is_file()
    assert cli("demo", "dates").code == cli("demo", "--out", "runs/demo").code == 2


def test_data_check_passes_sound_files_and_lists_what_is_not(cli: Callable, runs: Runs, tmp_path: Path) -> None:
    good = cli("data", "check", "classify", "--train-file", runs.table).ok
    assert "nothing stands in the way" in good.err
    path = tmp_path / "bad.csv"
    path.write_bytes(b"text,label\nfine,pos\n\xff,neg\nfine too,neg\n")
    bad = cli("data", "check", "classify", "--train-file", path)
    assert bad.code == 3 and f"{path}:3" in bad.out
    facts = cli("data", "check", "classify", "--train-file", path, "--json").json
    assert not facts["ok"] and facts["errors"][0]["line"] == 3


@pytest.mark.parametrize("words", [[], ["chekc"], ["check"], ["check", "nope"], ["show", "imdb", "lm"]], ids=str)
def test_data_needs_to_know_what(words: list[str], cli: Callable) -> None:
    assert cli("data", *words).code == 2


def test_data_show_and_its_help(cli: Callable, runs: Runs) -> None:
    command = ["data", "show", "translate", "--src-file", runs.src, "--tgt-file", runs.tgt]
    message = cli(*command).ok
    assert "54" in message.out and "Nummer" in message.out
    facts = cli(*command, "--json").json
    assert [(split["split"], split["n"]) for split in facts["splits"]] == [("train", 54), ("valid", 6)]
    trained = [name for name in TASK_NAMES if name != "embed"]
    names = f"{', '.join(trained[:-1])} or {trained[-1]} for files"
    assert names in " ".join(cli("data", "--help").out.split())


def test_recipes_are_listed_and_printed(cli: Callable, tmp_path: Path) -> None:
    listed = cli("recipes")
    assert all(f"\n{name} " in listed.out for name in recipe_names())
    rows = cli("recipes", "--json").json["recipes"]
    assert [row["recipe"] for row in rows] == recipe_names()
    printed = cli("recipes", "imdb").out
    shipped = (Path(glassformer.__file__).parent / "recipes" / "imdb.toml").read_text(encoding="utf-8")
    assert "# " in shipped and printed == shipped
    (tmp_path / "mine.toml").write_text(printed, encoding="utf-8")
    assert cli("recipes", tmp_path / "mine.toml").out == printed
    resolved = cli("recipes", "imdb", "--json").json
    assert resolved == json.loads(json.dumps(config_to_dict(load_recipe("imdb"))))
    assert cli("recipes", "imbd").code == 2


def test_compare(cli: Callable, runs: Runs) -> None:
    message = cli("compare", runs.classify, runs.lm).ok
    assert str(runs.classify) in message.out and str(runs.lm) in message.out
    facts = cli("compare", runs.classify, runs.lm, "--json").json
    assert [row["task"] for row in facts["rows"]] == ["classify", "lm"]
    assert cli("compare").code == 2 and cli("compare", runs.classify, runs.classify.with_name("none")).code == 4


def test_doctor_knows_the_machine_and_reads_a_run(cli: Callable, runs: Runs) -> None:
    facts = cli("doctor", "--json").json
    assert {"python", "torch", "device", "threads", "cache"} <= facts.keys() and "torch" in cli("doctor").out
    message = cli("doctor", runs.classify).ok
    assert "only 6 examples to validate on" in message.out and "try: " in message.out
    assert not any(f"try: {word}" in message.out for word in ("expect", "where", "guessing", "scores"))  # no remedies
    model = runs.classify / "model"
    alone = cli("doctor", model).ok
    assert "no log is here" in alone.out and "nothing stands out" not in alone.out
    assert "no log is here" in cli("doctor", model, "--examine").out
    for words, code in ((["--examine"], 2), ([runs.lm, "--lr", "1"], 2), (["none"], 4)):
        assert cli("doctor", *words).code == code


@for_each("task", ["classify", "translate", "lm"])
def test_doctor_examines_a_run(task: str, cli: Callable, runs: Runs) -> None:
    plain = cli("doctor", getattr(runs, task), "--json").json
    looked = cli("doctor", getattr(runs, task), "--examine", "--json").json
    activity = {"scores", "heads", "dead-units"}
    assert all("--examine" in plain["not_made"][name] for name in activity)
    assert "scores" in looked["made"] and {"first-loss", "answer-visible", "frozen"} <= {*looked["made"]}
    assert activity <= {*looked["made"], *looked["not_made"]}  # ReLU and queries that see 8 keys are not everywhere
    assert all(finding["grade"] != "stop" for finding in looked["findings"])


def _facts(losses: list[float], valid: list[float] = (), **more: Any) -> RunRecord:  # type: ignore[assignment]
    training = [StepMetrics(i, loss=loss, grad_norm=1.0, padding=0.1) for i, loss in enumerate(losses, start=1)]
    validations = [StepMetrics(i, epoch=float(i), valid={"loss": v}) for i, v in enumerate(valid, start=1)]
    data = DataRecord(splits={"train": SplitRecord(n=10_000, unknown_rate=0.0, n_truncated=0)})
    facts: dict[str, Any] = {"data": data, "training": training, "validations": validations, "evaluation": Evaluation()}
    return RunRecord(Path("run"), Config(task="classify"), **facts | more)


FALLING = [2 * 0.97**i + 0.1 for i in range(100)]


def test_what_is_negligible_beside_the_first_loss_is_no_finding() -> None:
    assert diagnose(_facts(FALLING, [1.0, 0.8, 0.8])).findings == []
    assert diagnose(_facts(FALLING, [0.05, 0.01, 0.005])).findings == []  # of 2.1 nats at the start
    assert diagnose(_facts(FALLING, [0.02, 0.01, 0.014])).findings == [], "no rise to speak of"


@pytest.mark.parametrize(
    ("facts", "matter", "remedy"),
    [
        (_facts(FALLING, evaluation=None), "not finished", "--resume run"),
        (_facts(FALLING, evaluation=None, diverged=Divergence(7, "loss nan")), "at step 7: loss nan", "--lr"),
        (_facts([1.0 + 0.03 * i for i in range(60)]), "from 1.14 to 2.63", "halve --lr"),
        (_facts([2.0] * 60), "hardly moved", "--overfit-batch"),
        (_facts(FALLING, [1.0, 0.5, 0.6, 0.9]), "overfits", "--patience"),
        (_facts(FALLING, [1.0, 0.7, 0.5]), "still improving", "train longer"),
        (_facts(FALLING, [0.05, 0.03, 0.02]), "still improving", "train longer"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_the_doctor_names_what_stands_out(facts: RunRecord, matter: str, remedy: str) -> None:
    [found] = diagnose(facts).findings
    assert matter in found.matter and remedy in found.remedy
