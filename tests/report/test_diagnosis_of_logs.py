"""Rules of the log about updates and first losses; and that no damage to a log ends in a traceback."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from glassformer.cli.main import main
from glassformer.config import Config, ModelConfig
from glassformer.data.diagnostics import Finding
from glassformer.report import findings
from glassformer.report.findings import Checkup, NotMade, diagnose, run_checks
from glassformer.report.run_record import RunRecord
from glassformer.runs.records import DataRecord, Evaluation, StepMetrics

V = 100


def record(rows: list[StepMetrics], base: dict | None = None, tied: bool = False) -> RunRecord:
    data = DataRecord(tokenizer={"vocab_size": V}, base=base or {})
    return RunRecord(
        Path("run"),
        Config(task="lm", model=ModelConfig(tie_embeddings=tied)),
        data=data,
        training=rows,
        evaluation=Evaluation(),
    )


def moved(*ratios: float, lr: float = 1e-3) -> list[StepMetrics]:
    """The first line, and one every fifty steps in which each of three matrices moves by the same."""
    steps = [1, *range(50, 50 * len(ratios) + 1, 50)]
    return [
        StepMetrics(step, loss=1.0, lr=lr, update_ratios=dict.fromkeys("abc", ratio))
        for step, ratio in zip(steps, (1e-9, *ratios), strict=True)
    ]


@pytest.mark.parametrize(
    ("ratios", "is_found"),
    [((1e-4, 2e-4, 2.9e-4), True), ((1e-4, 3.1e-4, 1e-2), False), ((1.9e-2,), False), ((2.1e-2,), True)],
)
def test_the_median_update_near_the_peak(ratios: tuple[float, ...], is_found: bool) -> None:
    found = list(findings.update_ratio(record(moved(*ratios))))
    assert len(found) == is_found
    if found:
        assert found[0].numbers["ratio"] == sorted(ratios)[len(ratios) // 2] and found[0].grade == "look"


def test_updates_at_a_small_rate_do_not_count() -> None:
    rows = moved(5e-3, 5e-3) + [replace(row, step=row.step + 200, lr=1e-5) for row in moved(1e-6, 1e-6, 1e-6, 1e-6)[1:]]
    assert list(findings.update_ratio(record(rows))) == []
    assert list(findings.update_ratio(record(moved(1e-5), base={"path": "bert"}))) == [], "trained before"
    only_small = [StepMetrics(2, lr=1e-3), *(replace(row, lr=1e-5) for row in moved(1e-6))]
    with pytest.raises(NotMade, match="near the largest"):
        list(findings.update_ratio(record(only_small)))


def test_a_matrix_that_never_moves_is_named() -> None:
    rows = [replace(row, update_ratios={**(row.update_ratios or {}), "b": 0.0}) for row in moved(1e-3, 1e-3)]
    [found] = findings.frozen(record(rows))
    assert (found.grade, found.at, found.numbers) == ("stop", "b", {"n": 1, "n_all": 3})
    assert list(findings.frozen(record([*rows, *moved(1e-3, 1e-3, 1e-3)[-1:]]))) == [], "it moved once"
    with pytest.raises(NotMade, match="takes 2"):
        list(findings.frozen(record(rows[:1])))


@pytest.mark.parametrize(
    ("loss", "place"),
    [
        (math.log(V) - 0.31, "answer-visible"),
        (math.log(V) - 0.29, ""),
        (math.log(V) + 1.49, ""),
        (math.log(V) + 1.51, "first-loss"),
    ],
)
def test_the_first_loss_is_near_that_of_guessing(loss: float, place: str) -> None:
    of = record([StepMetrics(1, loss=loss)])
    found = [*findings.answer_visible(of), *findings.first_loss(of)]
    assert [f.place for f in found] == ([place] if place else [])
    assert all(f.grade == "stop" and f.numbers["loss"] == loss and f.numbers["chance"] == math.log(V) for f in found)


@pytest.mark.parametrize(
    ("of", "reason"),
    [
        (record([StepMetrics(1, loss=0.1)], base={"path": "x"}), "random weights"),
        (record([StepMetrics(2, loss=0.1)]), "first step"),
        (record([StepMetrics(1, loss=math.nan)]), "first step"),
        (record([]), "first step"),
        (replace(record([StepMetrics(1, loss=0.1)]), data=DataRecord()), "how many answers"),
    ],
    ids=["trained before", "cut at the start", "NaN", "empty", "no vocabulary"],
)
def test_why_a_first_loss_cannot_be_judged(of: RunRecord, reason: str) -> None:
    checkup = diagnose(of)
    assert reason in checkup.not_made["first-loss"] and reason in checkup.not_made["answer-visible"]


def test_a_tied_output_starts_higher() -> None:
    """The recipe `lm` begins 5 nats above guessing; below it no model begins."""
    checkup = diagnose(record([StepMetrics(1, loss=math.log(V) + 5, grad_norm=1.0)], tied=True))
    assert "tied" in checkup.not_made["first-loss"] and checkup.findings == []
    assert diagnose(record([StepMetrics(1, loss=1.0, grad_norm=1.0)], tied=True)).findings[0].place == "answer-visible"


def test_findings_come_by_grade_causes_first_and_none_twice() -> None:
    places = [("heads", "look"), ("training loss", "look"), ("data", "know"), ("scores", "look"), ("unknown", "stop")]
    first = Checkup([Finding("x", place=place, grade=grade) for place, grade in places], ["a"], {"b": "no log"})  # pyright: ignore
    both = first + Checkup([Finding("y", place="heads"), Finding("z", place="frozen", grade="stop")], ["b"], {"c": "?"})
    assert [f.place for f in both.findings] == ["frozen", "unknown", "scores", "training loss", "heads", "data"]
    assert both.made == ["a", "b"] and both.not_made == {"c": "?"}
    impossible = run_checks({"x": lambda: [Finding("a", place=str(1 // 0))], "y": list})
    assert impossible.made == ["y"] and "division" in impossible.not_made["x"]


def test_lines_that_cannot_be_read_are_counted(fake_run: Callable[..., Path], capsys: pytest.CaptureFixture) -> None:
    run = fake_run("lm")
    text = [StepMetrics(step).line() for step in range(1, 9)]
    text[3], text[7] = "{\n", '{"step": "x"}\n'
    (run / "metrics.jsonl").write_text("".join(text), encoding="utf-8")
    assert main(["doctor", str(run), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    [found] = [each for each in answer["findings"] if each["place"] == "log"]
    assert found["numbers"] == {"n": 2} and found["grade"] == "look"


@pytest.mark.parametrize("name", ["metrics.jsonl", "data.json", "evaluation.json", "env.json"])
def test_a_missing_file_is_no_traceback(name, fake_run, capsys):
    run = fake_run("classify")
    (run / name).unlink()
    for more in ([], ["--examine"]):
        assert main(["doctor", str(run), *more]) == 0
        assert "not made: " in capsys.readouterr().out


def test_a_reason_is_no_remedy() -> None:
    warnings = [{"matter": "only 9: expect little", "remedy": "add some"}, {"matter": "only 9 of 100 are used"}]
    found = findings.data(replace(record([]), data=DataRecord(preflight={"warnings": warnings})))
    assert [(f.matter, f.remedy) for f in found] == [
        ("only 9: expect little", "add some"),
        ("only 9 of 100 are used", ""),
    ]
