"""Reports of made-up runs: every fact is said, nothing missing breaks them, and hostile text stays text."""

import ast
import json
import re
import shlex
import struct
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.for_each import for_each
from tests.helpers.hostile import edit_json
from tests.helpers.small import config_of, data_of, small_run

from glassformer.data.splits import Split
from glassformer.errors import CheckpointError
from glassformer.evaluate.metrics import Metric
from glassformer.report.findings import diagnose
from glassformer.report.run_record import load_run_record
from glassformer.report.write import draw_all, model_card, write_report
from glassformer.runs.folder import RunFolder
from glassformer.runs.records import DataRecord, Evaluation, StepMetrics, from_json
from glassformer.tasks.encoder import Classify
from glassformer.tasks.heads import confusion_matrix
from glassformer.tasks.reporting import TaskReport
from glassformer.training.preparation import Pace, preflight
from glassformer.utils.formatting import glassformer_command
from glassformer.utils.plotting import style

PLOTS = {"classify": {"loss", "metric", "confusion"}, "translate": {"loss", "metric"}, "lm": {"loss", "metric"}}


def report_of(run: Path) -> str:
    write_report(load_run_record(run))
    return (run / "report.md").read_text("utf-8")


@pytest.mark.draws
@pytest.mark.parametrize("task", ["classify", "translate", "lm"])
def test_every_task_has_its_plots_and_every_plot_is_shown(fake_run, task):
    run = fake_run(task)
    text = report_of(run)
    assert {path.stem for path in (run / "plots").glob("*.png")} == PLOTS[task]
    assert set(re.findall(r"\(plots/(\w+)\.png\)", text)) == PLOTS[task]
    for path in (run / "plots").glob("*.png"):
        data = path.read_bytes()
        width, height = struct.unpack(">II", data[16:24])
        assert data.startswith(b"\x89PNG") and width >= 700 and height >= 500
    assert "1,500 steps, " in text
    shown = {
        "classify": "TF-IDF + logistic regression",
        "translate": "`nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:",
        "lm": "````\nROMEO:",  # a fence is longer than the backticks inside
    }
    assert shown[task] in text and (task != "translate" or "Decoding: beam 5." in text)


def test_the_report_says_what_a_reader_needs(fake_run):
    run = fake_run("classify", "it's a run")
    test = {"n": 90, "n_tokens": 1000, "unknown_rate": 0.31, "n_texts_unknown": 77}
    edit_json(run / "data.json", lambda data: data["splits"].update(test=test))
    text = report_of(run)
    row = next(line for line in text.split("## Data")[1].splitlines() if line.startswith("| test"))
    assert "31.00%" in row and "| 77 |" in row
    shown = [shlex.split(line) for line in text.splitlines() if line.startswith("glassformer ")]
    assert shown and all(words[2] == run.name for words in shown)
    sections = re.findall(r"^## (.+)$", text, flags=re.MULTILINE)
    assert sections == ["Result", "Training", "Data", "Use it"]
    opening = text.split("## ")[0]
    assert "trained on imdb" in opening and "95% interval" in opening and "2,143,490 parameters" in opening
    for fact in ("majority class", "5,076", "0.12%", "label smoothing of 0.1", "no film on both sides", "seed 1"):
        assert fact in text, fact


def test_a_bag_of_words_that_wins_is_said_at_the_top(fake_run):
    run = fake_run("classify")
    [found] = [each for each in diagnose(load_run_record(run)).findings if each.place == "baseline"]
    assert found.matter.startswith("“TF-IDF + logistic regression” does as well or better")
    assert f"{found.matter}; {found.remedy}." in report_of(run).split("## Result")[0]
    record = load_run_record(run)
    record.validations[-1] = replace(record.validations[-1], best=False)
    [before] = [each for each in diagnose(record).findings if each.place == "baseline"]
    assert found.remedy.startswith("train longer") and "half of the data" in before.remedy
    edit_json(run / "evaluation.json", lambda e: e["baselines"]["tfidf_logistic"].update(accuracy=0.6))
    assert "does as well or better" not in report_of(run).split("## Result")[0]


def test_what_makes_a_score_unclean_is_said_at_the_top(fake_run):
    run = fake_run("classify")
    config = (run / "config.toml").read_text("utf-8")
    limited = {"matter": "only 500 of 22,500 training examples are used, drawn by seed", "place": "limit"}
    unclean = {"matter": "the weights are chosen on it: no clean test score", "place": "test split"}
    edit_json(run / "data.json", lambda d: d["preflight"].update(warnings=[limited, unclean]))
    (run / "config.toml").write_text(config.replace('note = ""', 'note = "A restatement."'), "utf-8")
    edit_json(run / "evaluation.json", lambda e: e.update(split="valid"))
    opening = report_of(run).split("## Result")[0]
    for words in (
        "no clean test score",
        "nly 500 of 22,500 training examples are used, drawn by seed",
        "scores are on the validation split",
        "A restatement.",
    ):
        assert words in opening
    assert "no clean test score" in model_card(load_run_record(run))


def test_dates_are_quoted_by_exact_match(fake_run):
    run = fake_run("translate")
    edit_json(run / "evaluation.json", lambda e: e.update(headline="exact_match", exact_match=0.987))
    assert "Exact match on the test split: **98.7%**" in model_card(load_run_record(run))


@pytest.mark.parametrize(
    ("task", "missing"),
    [
        *(("classify", name) for name in ("env.json", "data.json", "metrics.jsonl", "evaluation.json")),
        ("translate", "data.json"),
        ("lm", "data.json"),
    ],
)
def test_a_report_survives_what_is_missing(fake_run, task, missing):
    run = fake_run(task)
    (run / missing).unlink()
    text = report_of(run)
    assert len(re.findall(r"^## ", text, flags=re.MULTILINE)) == 4
    assert "None" not in text and "nan" not in text.lower().split()
    assert model_card(load_run_record(run)).startswith("---\nlibrary_name: glassformer\n")
    for path in run.glob("*.json*"):
        path.unlink()
    text = report_of(run)
    assert "Not evaluated yet" in text and "No step was logged" in text


@pytest.mark.draws
def test_hostile_text_stays_text(fake_run):
    run = fake_run("classify")
    names = ["$x_{$ \\frac", "a|b`c"]

    def poison(evaluation: dict) -> None:
        evaluation["label_names"] = names
        for row, name in zip(evaluation["per_class"], names, strict=True):
            row["label"] = name
        evaluation["examples"][0]["text"] = "<script>alert(1)</script> ![x](http://example.com/x.png) | new\n# line"

    edit_json(run / "evaluation.json", poison)
    text = report_of(run)
    assert "<script>" not in text and "![x]" not in text and "\n# line" not in text
    rows = [line for line in text.split("\n") if line.startswith("| ")]
    widths = {len(re.findall(r"(?<!\\)\|", line)) for line in rows if "alert(1)" in line}
    assert widths == {5}
    assert (run / "plots" / "confusion.png").stat().st_size > 5000


@pytest.mark.draws
def test_many_classes_and_labels_no_font_knows():
    names, counts = [f"类别-{i} with a long name" for i in range(25)], (9 * np.eye(25, dtype=int) + 1).tolist()
    with style():
        assert confusion_matrix(Evaluation(scores={"label_names": names, "confusion": counts}))
        assert confusion_matrix(Evaluation(scores={"label_names": ["x"] * 61, "confusion": [[1] * 61] * 61})) is None


@pytest.mark.draws
def test_writing_twice_gives_the_same(fake_run):
    run = fake_run("lm")
    write_report(load_run_record(run))
    before = {path.name: path.read_bytes() for path in sorted(run.rglob("*.*")) if path.is_file()}
    write_report(load_run_record(run))
    assert {path.name: path.read_bytes() for path in sorted(run.rglob("*.*")) if path.is_file()} == before


def test_the_later_of_two_lines_of_a_step_counts_and_a_torn_last_line_is_ignored(fake_run):
    run = fake_run("lm")
    log = run / "metrics.jsonl"
    row = {"step": 1500, "epoch": 4.0, "loss": 9.0, "lr": 0.0}
    log.write_text(log.read_text("utf-8") + json.dumps(row) + '\n{"step": 1501, "lo', "utf-8")
    facts = load_run_record(run)
    assert len(facts.training) == 1500 and facts.training[-1].loss == 9.0
    log.write_text('{"step": 1}\nnonsense\n{"step": 2}\n', "utf-8")
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl:2"):
        load_run_record(run)


def test_the_model_card_stands_alone(fake_run):
    run = fake_run("classify")
    card = model_card(load_run_record(run))
    for fact in ("imdb", "95% interval", "256 tokens", "any text gets one of them", "glassformer predict path/to/run"):
        assert fact in card, fact
    early = fake_run("translate", "early", evaluated=False)
    assert "not evaluated on a test split" in model_card(load_run_record(early))


def test_a_task_that_says_nothing_of_itself_still_gets_a_report_and_a_card(fake_run, monkeypatch):
    monkeypatch.setattr(Classify, "report", TaskReport())
    run = fake_run("classify")
    text = report_of(run)
    assert re.findall(r"^## (.+)$", text, flags=re.MULTILINE) == ["Result", "Training", "Data", "Use it"]
    assert "A model trained on imdb" in text and "Accuracy on the test split: **" in text
    assert "| Calibration error |" in text and "majority" in text and "Two hours of rain" in text
    assert {path.stem for path in (run / "plots").glob("*.png")} == {"loss", "metric"}
    assert "elsewhere it may do worse" in model_card(load_run_record(run))


def test_a_tasks_own_metric_and_plot_are_told(fake_run, monkeypatch):
    tagging = TaskReport(
        model_name="tagger",
        metrics=(Metric("slips", "Slips", "tags a sentence", lambda value: f"{value:.2f} a line", False),),
        plots={"tags": (lambda evaluation: b"a picture", "What is tagged as what.")},
    )
    monkeypatch.setattr(Classify, "report", tagging)
    run = fake_run("classify")
    edit_json(run / "evaluation.json", lambda e: e.update(slips=0.5))
    edit_json(run / "data.json", lambda d: d.update(metric="slips"))
    row = {"epoch": 1.0, "loss": 1.0}
    at = enumerate((3.0, 2.0, 4.0), start=1)
    rows = [row | {"step": s, "valid": {"loss": 1.0, "slips": v}, "best": s < 3} for s, v in at]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    text = report_of(run)
    assert "A tagger trained on" in text and "Slips on the test split: **0.50 a line**" in text
    assert "Kept: the weights of step 2 (Slips on validation: 2.00 a line)." in text, "fewer are better"
    assert "(plots/tags.png)" in text and "What is tagged as what." in text


def log(run: Path, rows: list[StepMetrics]) -> None:
    run.mkdir()
    (run / "config.toml").write_text('task = "classify"\n', "utf-8")
    (run / "metrics.jsonl").write_text("".join(row.line() for row in rows), "utf-8")


def row(step: int, accuracy: float, loss: float, best: bool = False) -> StepMetrics:
    return StepMetrics(step, loss=1.0, valid={"loss": loss, "accuracy": accuracy}, best=best)


@pytest.mark.parametrize(
    ("rows", "kept"),
    [
        ([row(50, 1.0, 0.3, True), row(100, 1.0, 0.2, True), row(150, 1.0, 0.1, True)], 150),
        ([row(50, 1.0, 0.3, True), row(100, 1.0, 0.2, True), row(150, 1.0, 0.25)], 100),
        ([row(50, float("nan"), 0.1)], None),
    ],
)
def test_the_validation_that_was_kept(tmp_path, rows, kept):
    log(tmp_path / "run", rows)
    best = load_run_record(tmp_path / "run").best_validation()
    assert (best.step if best else None) == kept


def test_only_the_best_are_marked_in_the_log():
    lines = [json.loads(each.line()) for each in (row(1, 0.5, 0.1, True), row(2, 0.5, 0.2), StepMetrics(3))]
    assert [line.get("best") for line in lines] == [True, None, None]
    assert from_json(StepMetrics, lines[0], "log").best


PACKAGE = Path(__file__).parents[2] / "src" / "glassformer"


@for_each("name", ["my run", "it's", "a;rm b", "$HOME", "x&y", "(1)", "plain"])
def test_a_command_is_read_back_word_by_word(name):
    path = Path("runs") / name
    words = ["glassformer", "train", "--resume", str(path)]
    assert shlex.split(glassformer_command("train", "--resume", path)) == words
    assert shlex.split(RunFolder(path).resume_command) == words


def test_an_unfinished_run_names_itself(fake_run):
    run = fake_run("lm", "it's a run", evaluated=False)
    write_report(load_run_record(run))
    [shown] = re.findall(r"Run `(.+)`", (run / "report.md").read_text("utf-8"))
    assert shlex.split(shown)[1:] == ["train", "--resume", run.name]
    remedies = [finding.remedy for finding in diagnose(load_run_record(run)).findings if "--resume" in finding.remedy]
    assert [shlex.split(remedy) for remedy in remedies] == [["glassformer", "train", "--resume", str(run)]]


def test_no_message_puts_a_value_into_a_command_unquoted():
    """In strings with values a command of the package is written by `glassformer_command`, or takes a quoted word."""
    allowed = {"run", "train", "usage", "verb", "__version__", "word"}  # quoted by the caller; names of ours
    found = set[str]()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.JoinedStr):
                continue
            for before, value in zip(node.values, node.values[1:], strict=False):
                is_command = isinstance(before, ast.Constant) and re.search(
                    r"(?<![\w.])glassformer [a-z]+ (--?[a-z-]+ )?$", str(before.value)
                )
                if is_command and isinstance(value, ast.FormattedValue):
                    expression = ast.unparse(value.value)
                    if expression not in allowed:
                        found.add(f"{path.relative_to(PACKAGE).as_posix()}: {expression}")
    assert not found


def test_rare_and_prevailing_labels_are_named_whole():
    label, texts = "genre: sci-fi", [f"good text {i}" for i in range(30)]
    split = Split(texts, [label] * 28 + ["other", "lonely: one"], "made")
    run = small_run(config_of("classify"), replace(data_of("classify"), train=split, valid=split, test=None))
    warnings = preflight(run.context, Pace(0.01, 0.1, 1000.0, 0.1), run.task.build_model()).findings
    prevails = next(warning for warning in warnings if warning.place == "prevailing class")
    assert prevails.matter.endswith(f"have the label {label!r}: always answering it is right as often")
    assert prevails.remedy.startswith("read macro F1")
    lonely = next(warning for warning in warnings if warning.place == "classes of one example")
    assert "(lonely: one, other)" in lonely.matter and lonely.remedy == "give more of them, or leave them out"
    stored = json.loads(json.dumps({"warnings": [asdict(warning) for warning in warnings]}))
    assert DataRecord(preflight=stored).findings == warnings


def test_a_test_split_that_chooses_the_weights_is_warned_of():
    run = small_run(config_of("classify"), data_of("classify"))
    config = replace(run.config, data=replace(run.config.data, use_test_as_validation=True))
    for changed, expected in ((run.config, []), (config, ["leave out --use-test-as-validation"])):
        context = run.context.with_config(changed)
        warnings = preflight(context, Pace(0.01, 0.1, 1000.0, 0.1), run.task.build_model()).findings
        assert [warning.remedy for warning in warnings if warning.place == "test split"] == expected


def test_data_check_says_what_the_start_of_a_training_says(tmp_path, cli):
    rows = [f"text {i},{'ab'[i % 2]}" for i in range(40)] + ["odd one,c", "odd two,d"]
    (tmp_path / "a.csv").write_text("\n".join(["text,label", *rows]) + "\n", "utf-8")
    argv = ["classify", "--train-file", str(tmp_path / "a.csv"), "--test-file", str(tmp_path / "a.csv")]
    found = cli("data", "check", *argv, "--json").ok.json["findings"]
    places = ["overlap", "few examples", "few validation examples", "classes of one example"]
    assert [finding["place"] for finding in found] == places
    for command in (["data", "check", *argv], ["train", *argv, "--dry-run"]):
        message = cli(*command).ok.err
        assert all(f"{finding['matter']}; {finding['remedy']}" in message for finding in found)


@for_each("damaged", ["a sentence", {"remedy": "look"}, {"matter": 7}])
def test_what_is_no_finding_is_refused(damaged):
    with pytest.raises(CheckpointError, match=r"data\.json"):
        _ = DataRecord(preflight={"warnings": [damaged]}).findings


@pytest.mark.draws
def test_constant_and_lonely_numbers_are_drawn(fake_run):
    run = fake_run("classify")
    row = {"step": 1, "epoch": 1.0, "loss": 0.5, "lr": 0.0, "grad_norm": 0.0, "seconds": 1.0}
    rows = [row, {**row, "step": 2, "valid": {"loss": 0.5, "accuracy": 1.0}}]
    (run / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n", "utf-8")
    edit_json(run / "evaluation.json", lambda e: e.update(accuracy=1.0, ci95=[1.0, 1.0]))
    assert {"loss", "metric"} <= set(draw_all(load_run_record(run)))
