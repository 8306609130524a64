"""Reports of made-up runs: every fact is said, nothing missing breaks them, and hostile text stays text."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from glassformer.errors import CheckpointError
from glassformer.evaluate.metrics import Metric
from glassformer.report.findings import diagnose
from glassformer.report.run_record import load_run_record
from glassformer.report.write import draw_all, model_card, write_report
from glassformer.tasks.encoder import Classify
from glassformer.tasks.reporting import TaskReport

MakeRun = Callable[..., Path]

PLOTS = {"classify": {"loss", "metric", "confusion"}, "translate": {"loss", "metric"}, "lm": {"loss", "metric"}}


def edit(path: Path, change: Callable[[dict], None]) -> None:
    value = json.loads(path.read_text(encoding="utf-8"))
    change(value)
    path.write_text(json.dumps(value), encoding="utf-8")


def report_of(run: Path) -> str:
    write_report(load_run_record(run))
    return (run / "report.md").read_text(encoding="utf-8")


@pytest.mark.draws
@pytest.mark.parametrize("task", ["classify", "translate", "lm"])
def test_every_task_has_its_plots_and_every_plot_is_shown(fake_run: MakeRun, task: str) -> None:
    run = fake_run(task)
    text = report_of(run)
    assert {path.stem for path in (run / "plots").glob("*.png")} == PLOTS[task]
    assert set(re.findall(r"\(plots/(\w+)\.png\)", text)) == PLOTS[task]
    for path in (run / "plots").glob("*.png"):
        data = path.read_bytes()
        width, height = struct.unpack(">II", data[16:24])
        assert data.startswith(b"\x89PNG") and width >= 700 and height >= 500
    assert "1,500 steps, " in text


def test_the_report_says_what_a_reader_needs(fake_run: MakeRun) -> None:
    text = report_of(fake_run("classify"))
    sections = re.findall(r"^## (.+)$", text, flags=re.MULTILINE)
    assert sections == ["Result", "Training", "Data", "Use it"]
    opening = text.split("## ")[0]
    assert "trained on imdb" in opening and "95% interval" in opening and "2,143,490 parameters" in opening
    for fact in (
        "TF-IDF + logistic regression",
        "majority class",
        "5,076",
        "0.12%",
        "label smoothing of 0.1",
        "glassformer predict classify",
        "no film on both sides",
        "seed 1",
    ):
        assert fact in text, fact


def test_a_bag_of_words_that_wins_is_said_at_the_top(fake_run: MakeRun) -> None:
    run = fake_run("classify")
    [found] = [each for each in diagnose(load_run_record(run)).findings if each.place == "baseline"]
    assert found.matter.startswith("“TF-IDF + logistic regression” does as well or better")
    assert f"{found.matter}; {found.remedy}." in report_of(run).split("## Result")[0]
    record = load_run_record(run)
    record.validations[-1] = replace(record.validations[-1], best=False)
    [before] = [each for each in diagnose(record).findings if each.place == "baseline"]
    assert found.remedy.startswith("train longer") and "half of the data" in before.remedy
    edit(run / "evaluation.json", lambda e: e["baselines"]["tfidf_logistic"].update(accuracy=0.6))
    assert "does as well or better" not in report_of(run).split("## Result")[0]


def test_what_makes_a_score_unclean_is_said_at_the_top(fake_run: MakeRun) -> None:
    run = fake_run("classify")
    config = (run / "config.toml").read_text(encoding="utf-8")
    limited = {"matter": "only 500 of 22,500 training examples are used, drawn by seed", "place": "limit"}
    unclean = {"matter": "the weights are chosen on it: no clean test score", "place": "test split"}
    edit(run / "data.json", lambda d: d["preflight"].update(warnings=[limited, unclean]))
    (run / "config.toml").write_text(config.replace('note = ""', 'note = "A restatement."'), encoding="utf-8")
    edit(run / "evaluation.json", lambda e: e.update(split="valid"))
    opening = report_of(run).split("## Result")[0]
    for words in (
        "no clean test score",
        "nly 500 of 22,500 training examples are used, drawn by seed",
        "scores are on the validation split",
        "A restatement.",
    ):
        assert words in opening
    assert "no clean test score" in model_card(load_run_record(run))


def test_dates_are_quoted_by_exact_match(fake_run: MakeRun) -> None:
    run = fake_run("translate")
    edit(run / "evaluation.json", lambda e: e.update(headline="exact_match", exact_match=0.987))
    edit(run / "data.json", lambda d: d.update(metric="exact_match"))
    text = report_of(run)
    assert "Exact match on the test split: **98.7%**" in text.split("## Result")[0]
    assert load_run_record(run).metric.name == "exact_match"


def test_signatures_stand_beside_bleu(fake_run: MakeRun) -> None:
    text = report_of(fake_run("translate"))
    assert "`nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:" in text and "Decoding: beam 5." in text


@pytest.mark.parametrize(
    ("task", "missing"),
    [
        *(("classify", name) for name in ("env.json", "data.json", "metrics.jsonl", "evaluation.json")),
        ("translate", "data.json"),
        ("lm", "data.json"),
    ],
)
def test_a_report_survives_what_is_missing(fake_run: MakeRun, task: str, missing: str) -> None:
    run = fake_run(task)
    (run / missing).unlink()
    text = report_of(run)
    assert len(re.findall(r"^## ", text, flags=re.MULTILINE)) == 4
    assert "None" not in text and "nan" not in text.lower().split()
    assert model_card(load_run_record(run)).startswith("---\nlibrary_name: glassformer\n")


def test_a_run_with_only_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('task = "lm"\n', encoding="utf-8")
    text = report_of(tmp_path)
    assert "Not evaluated yet" in text and "No step was logged" in text
    assert list((tmp_path / "plots").iterdir()) == []


@pytest.mark.draws
def test_hostile_text_stays_text(fake_run: MakeRun) -> None:
    run = fake_run("classify")
    names = ["$x_{$ \\frac", "a|b`c"]

    def poison(evaluation: dict) -> None:
        evaluation["label_names"] = names
        for row, name in zip(evaluation["per_class"], names, strict=True):
            row["label"] = name
        evaluation["examples"][0]["text"] = "<script>alert(1)</script> ![x](http://example.com/x.png) | new\n# line"

    edit(run / "evaluation.json", poison)
    text = report_of(run)
    assert "<script>" not in text and "![x]" not in text and "\n# line" not in text
    rows = [line for line in text.split("\n") if line.startswith("| ")]
    widths = {len(re.findall(r"(?<!\\)\|", line)) for line in rows if "alert(1)" in line}
    assert widths == {5}
    assert (run / "plots" / "confusion.png").stat().st_size > 5000


def test_a_fence_is_longer_than_the_backticks_inside(fake_run: MakeRun) -> None:
    assert "````\nROMEO:" in report_of(fake_run("lm"))


@pytest.mark.draws
def test_many_classes_and_labels_no_font_knows(fake_run: MakeRun) -> None:
    run = fake_run("classify")
    n = 25

    def widen(evaluation: dict) -> None:
        evaluation["label_names"] = [f"类别-{i} with a long name" for i in range(n)]
        evaluation["confusion"] = [[10 if i == j else 1 for j in range(n)] for i in range(n)]

    edit(run / "evaluation.json", widen)
    assert "confusion" in draw_all(load_run_record(run))
    edit(run / "evaluation.json", lambda e: e.update(confusion=[[1] * 61] * 61, label_names=["x"] * 61))
    assert "confusion" not in draw_all(load_run_record(run))


@pytest.mark.draws
def test_constant_and_lonely_numbers_are_drawn(fake_run: MakeRun) -> None:
    run = fake_run("classify")
    row = {"step": 1, "epoch": 1.0, "loss": 0.5, "lr": 0.0, "grad_norm": 0.0, "seconds": 1.0}
    rows = [row, {**row, "step": 2, "valid": {"loss": 0.5, "accuracy": 1.0}}]
    (run / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    edit(run / "evaluation.json", lambda e: e.update(accuracy=1.0, ci95=[1.0, 1.0]))
    assert {"loss", "metric"} <= set(draw_all(load_run_record(run)))


@pytest.mark.draws
def test_writing_twice_gives_the_same(fake_run: MakeRun) -> None:
    run = fake_run("lm")
    write_report(load_run_record(run))
    before = {path.name: path.read_bytes() for path in sorted(run.rglob("*.*")) if path.is_file()}
    write_report(load_run_record(run))
    assert {path.name: path.read_bytes() for path in sorted(run.rglob("*.*")) if path.is_file()} == before


def test_the_later_of_two_lines_of_a_step_counts_and_a_torn_last_line_is_ignored(fake_run: MakeRun) -> None:
    run = fake_run("lm")
    log = run / "metrics.jsonl"
    row = {"step": 1500, "epoch": 4.0, "loss": 9.0, "lr": 0.0}
    log.write_text(log.read_text(encoding="utf-8") + json.dumps(row) + '\n{"step": 1501, "lo', encoding="utf-8")
    facts = load_run_record(run)
    assert len(facts.training) == 1500 and facts.training[-1].loss == 9.0
    log.write_text('{"step": 1}\nnonsense\n{"step": 2}\n', encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl:2"):
        load_run_record(run)


def test_a_folder_that_is_no_run_and_a_damaged_file_are_named(tmp_path: Path, fake_run: MakeRun) -> None:
    with pytest.raises(CheckpointError, match=r"config\.toml"):
        write_report(load_run_record(tmp_path / "nowhere"))
    run = fake_run("lm")
    (run / "env.json").write_text("{", encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"env\.json"):
        write_report(load_run_record(run))


def test_the_model_card_stands_alone(fake_run: MakeRun) -> None:
    run = fake_run("classify")
    card = model_card(load_run_record(run))
    for fact in ("imdb", "95% interval", "256 tokens", "any text gets one of them", "glassformer predict path/to/run"):
        assert fact in card, fact
    early = fake_run("translate", "early", evaluated=False)
    assert "not evaluated on a test split" in model_card(load_run_record(early))


# A task that says little


def test_a_task_that_says_nothing_of_itself_still_gets_a_report_and_a_card(
    fake_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Classify, "report", TaskReport())
    run = fake_run("classify")
    text = report_of(run)
    assert re.findall(r"^## (.+)$", text, flags=re.MULTILINE) == ["Result", "Training", "Data", "Use it"]
    assert "A model trained on imdb" in text and "Accuracy on the test split: **" in text
    assert "| Calibration error |" in text and "majority" in text and "Two hours of rain" in text
    assert {path.stem for path in (run / "plots").glob("*.png")} == {"loss", "metric"}
    assert "elsewhere it may do worse" in model_card(load_run_record(run))


def test_a_tasks_own_metric_and_plot_are_told(fake_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    tagging = TaskReport(
        model_name="tagger",
        metrics=(Metric("slips", "Slips", "tags a sentence", lambda value: f"{value:.2f} a line", False),),
        plots={"tags": (lambda evaluation: b"a picture", "What is tagged as what.")},
    )
    monkeypatch.setattr(Classify, "report", tagging)
    run = fake_run("classify")
    edit(run / "evaluation.json", lambda e: e.update(slips=0.5))
    edit(run / "data.json", lambda d: d.update(metric="slips"))
    rows = [
        {"step": s, "epoch": 1.0, "loss": 1.0, "valid": {"loss": 1.0, "slips": v}, "best": s < 3}
        for s, v in ((1, 3.0), (2, 2.0), (3, 4.0))
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    text = report_of(run)
    assert "A tagger trained on" in text and "Slips on the test split: **0.50 a line**" in text
    assert "Kept: the weights of step 2 (Slips on validation: 2.00 a line)." in text, "fewer are better"
    assert "(plots/tags.png)" in text and "What is tagged as what." in text


def test_what_is_unknown_in_unseen_texts_is_in_the_table_of_data(fake_run: MakeRun) -> None:
    run = fake_run("classify")
    test = {"n": 90, "n_tokens": 1000, "unknown_rate": 0.31, "n_texts_unknown": 77}
    edit(run / "data.json", lambda data: data["splits"].update(test=test))
    row = next(line for line in report_of(run).split("## Data")[1].splitlines() if line.startswith("| test"))
    assert "31.00%" in row and "| 77 |" in row
