"""Two runs side by side, and what the log of one tells: rows, tests, rules, and reasons where there is none."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from glassformer.config import Config, ModelConfig
from glassformer.data.diagnostics import Finding
from glassformer.errors import CheckpointError
from glassformer.report import findings
from glassformer.report.compare import compare_runs
from glassformer.report.findings import Checkup, NotMade, diagnose, run_checks
from glassformer.report.run_record import RunRecord
from glassformer.runs.records import DataRecord, Evaluation, StepMetrics

SENTENCES = [f"the {a} dog sees a {b} house near the {c} tree ." for a in "xyz" for b in "uvw" for c in "rst"] * 4


def make_run(path: Path, task: str, rows: list[dict] | None = None, **evaluation: object) -> Path:
    path.mkdir()
    (path / "config.toml").write_text(f'task = "{task}"\n[data]\ndataset = "files"\n', "utf-8")
    (path / "data.json").write_text('{"metric": "accuracy", "preflight": {"n_parameters": 1234}}', "utf-8")
    if evaluation:
        scores = json.dumps({"task": task, "split": "test", **evaluation})
        (path / "evaluation.json").write_text(scores, "utf-8")
    if rows is not None:
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (path / "predictions.jsonl").write_text(lines, "utf-8")
    return path


def labelled(n_right: int, n: int = 200, offset: int = 0) -> list[dict]:
    """Return predictions of which the examples from `offset` on, n_right of them, are right."""
    right = {(offset + i) % n for i in range(n_right)}
    return [{"text": f"é{i}", "label": "a" if i in right else "b", "truth": "a"} for i in range(n)]


def test_rows_hold_scores_size_and_data(tmp_path):
    run = make_run(tmp_path / "one", "classify", n=200, accuracy=0.9, ci95=[0.85, 0.93])
    bare = make_run(tmp_path / "two", "classify")
    row, unevaluated = compare_runs(run, str(bare)).rows
    assert (row["metric"], row["value"], row["ci95"], row["n"]) == ("accuracy", 0.9, [0.85, 0.93], 200)
    assert row["split"] == "test"
    assert unevaluated["value"] is None and unevaluated["n"] is None


def test_classifiers_are_compared_by_accuracy(tmp_path):
    good = make_run(tmp_path / "good", "classify", labelled(180), accuracy=0.9)
    poor = make_run(tmp_path / "poor", "classify", labelled(140), accuracy=0.7)
    near = make_run(tmp_path / "near", "classify", labelled(179), accuracy=0.895)
    comparison = compare_runs(good, poor)
    test = comparison.test
    assert test and test["difference"] == pytest.approx(0.2)
    assert test["p_value"] < 0.001 and test["ci95"][0] < 0.2 < test["ci95"][1]
    assert comparison.verdict == (
        f"{good} is better than {poor} by 20.0 points, which is more than chance "
        "(p < .001, approximate randomization, 200 examples)."
    )
    assert "differ by 0.5 points, which may be chance (p = 1.000" in compare_runs(good, near).verdict
    shifted = make_run(tmp_path / "shifted", "classify", labelled(180, offset=7), accuracy=0.9)
    test = compare_runs(good, shifted).test
    assert test and test["difference"] == 0 and test["p_value"] == 1.0
    with_data(good, "x")
    comparison = compare_runs(good, with_data(poor, "y"))
    assert comparison.test is None and "not evaluated on the same examples" in comparison.verdict
    assert "--test-file" in comparison.verdict and "--split-seed" in comparison.verdict


def translated(wrong_every: int) -> list[dict]:
    return [
        {"text": "…", "reference": s, "translation": s if i % wrong_every else s.replace("dog", "cat")}
        for i, s in enumerate(SENTENCES)
    ]


def test_translators_are_compared_by_the_tokenizer_they_were_scored_with(tmp_path):
    """Of each, so that a test never contradicts the scores; those of two tokenizers do not compare."""
    by_words = {"headline": "bleu", "bleu_signature": "nrefs:1|case:mixed|eff:no|tok:none|smooth:exp|version:2.5"}
    rows = translated(9)
    apart = make_run(tmp_path / "apart", "translate", rows, **by_words)
    joined = [row | {"translation": row["translation"].replace(" .", ".")} for row in rows]
    glued = make_run(tmp_path / "glued", "translate", joined, **by_words)
    test = compare_runs(apart, glued).test
    assert test and test["metric"] == "bleu" and test["p_value"] < 0.01
    assert test["difference"] > 0, "a full stop that is joined to a word makes another word of it"
    short = [make_run(tmp_path / f"{n}", "translate", translated(n), headline="exact_match") for n in (9, 2)]
    test = compare_runs(*short).test
    assert test and test["metric"] == "exact_match" and test["difference"] > 0
    usual = make_run(tmp_path / "usual", "translate", joined, headline="bleu")
    assert "none, the other with sacreBLEU's tokenizer auto (--bleu-tokenize)" in compare_runs(glued, usual).verdict


def test_where_there_is_no_pair_the_reason_is_said(tmp_path):
    one = make_run(tmp_path / "one", "classify", labelled(5, 10), accuracy=0.5)
    other_examples = make_run(tmp_path / "other", "classify", labelled(5, 11), accuracy=0.5)
    bare = make_run(tmp_path / "bare", "classify")
    model = make_run(tmp_path / "lm", "lm", [], bits_per_char=2.0)
    reasons = {"same examples": other_examples, "no predictions.jsonl": bare, "one is classify, the other lm": model}
    for words, other in reasons.items():
        comparison = compare_runs(one, other)
        assert comparison.test is None and words in comparison.verdict


def test_a_damaged_line_and_a_folder_that_is_no_run_are_named(tmp_path):
    one = make_run(tmp_path / "one", "classify", [{"label": "a"}])
    with pytest.raises(CheckpointError, match=r"one.predictions\.jsonl does not hold truth and label"):
        compare_runs(one, one)
    with pytest.raises(CheckpointError, match=r"config\.toml"):
        compare_runs(one, tmp_path)


def blocks(extra: float, n: int = 120) -> list[dict]:
    """Nats by block of a text whose blocks differ much more than two models do."""
    return [{"block": i, "chars": 200, "nats": 300 + 100 * (i % 7) + extra + (i % 3)} for i in range(n)]


def with_data(run: Path, sha256: str, tokenizer: str = "t") -> Path:
    facts = {"splits": {"test": {"n": 1, "sha256": sha256}}, "tokenizer": {"sha256": tokenizer}}
    (run / "data.json").write_text(json.dumps(facts), "utf-8")
    return run


def test_language_models_are_compared_by_blocks_of_the_text(tmp_path):
    good = with_data(make_run(tmp_path / "good", "lm", blocks(0), bits_per_char=2.1), "x")
    poor = with_data(make_run(tmp_path / "poor", "lm", blocks(9), bits_per_char=2.2), "x", "another")
    comparison = compare_runs(poor, good)
    test = comparison.test
    assert test and test["metric"] == "bits_per_char" and test["p_value"] < 0.01
    assert test["difference"] == pytest.approx(9 / 200 / 0.6931, abs=1e-4)
    assert "good is better than" in comparison.verdict and "more than chance" in comparison.verdict
    assert "120 blocks of the text" in comparison.verdict


def test_scores_for_each_token_compare_only_with_one_tokenizer(tmp_path):
    scores = {"headline": "nats_per_token", "nats_per_token": 3.0}
    one = with_data(make_run(tmp_path / "one", "lm", blocks(0), **scores), "x", "a")
    two = with_data(make_run(tmp_path / "two", "lm", blocks(9), **scores), "x", "b")
    assert "tokenizers differ" in compare_runs(one, two).verdict
    with_data(two, "x", "a")
    assert (compare_runs(one, two).test or {})["metric"] == "bits_per_char"


# Rules of the log about updates and first losses; and that no damage to a log ends in a traceback


V = 100


def record(rows: list[StepMetrics], base: dict | None = None, tied: bool = False) -> RunRecord:
    data = DataRecord(tokenizer={"vocab_size": V}, base=base or {})
    config = Config(task="lm", model=ModelConfig(tie_embeddings=tied))
    return RunRecord(Path("run"), config, data=data, training=rows, evaluation=Evaluation())


def moved(*ratios: float, lr: float = 1e-3) -> list[StepMetrics]:
    """The first line, and one every fifty steps in which each of three matrices moves by the same."""
    steps = [1, *range(50, 50 * len(ratios) + 1, 50)]
    moves = zip(steps, (1e-9, *ratios), strict=True)
    return [StepMetrics(step, loss=1.0, lr=lr, update_ratios=dict.fromkeys("abc", ratio)) for step, ratio in moves]


@pytest.mark.parametrize(
    ("ratios", "is_found"),
    [((1e-4, 2e-4, 2.9e-4), True), ((1e-4, 3.1e-4, 1e-2), False), ((1.9e-2,), False), ((2.1e-2,), True)],
)
def test_the_median_update_near_the_peak(ratios, is_found):
    found = list(findings.update_ratio(record(moved(*ratios))))
    assert len(found) == is_found
    if found:
        assert found[0].numbers["ratio"] == sorted(ratios)[len(ratios) // 2] and found[0].grade == "look"


def test_updates_at_a_small_rate_do_not_count():
    rows = moved(5e-3, 5e-3) + [replace(row, step=row.step + 200, lr=1e-5) for row in moved(1e-6, 1e-6, 1e-6, 1e-6)[1:]]
    assert list(findings.update_ratio(record(rows))) == []
    assert list(findings.update_ratio(record(moved(1e-5), base={"path": "bert"}))) == [], "trained before"
    only_small = [StepMetrics(2, lr=1e-3), *(replace(row, lr=1e-5) for row in moved(1e-6))]
    with pytest.raises(NotMade, match="near the largest"):
        list(findings.update_ratio(record(only_small)))


def test_a_matrix_that_never_moves_is_named():
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
def test_the_first_loss_is_near_that_of_guessing(loss, place):
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
def test_why_a_first_loss_cannot_be_judged(of, reason):
    checkup = diagnose(of)
    assert reason in checkup.not_made["first-loss"] and reason in checkup.not_made["answer-visible"]


def test_a_tied_output_starts_higher():
    """The recipe `lm` begins 5 nats above guessing; below it no model begins."""
    checkup = diagnose(record([StepMetrics(1, loss=math.log(V) + 5, grad_norm=1.0)], tied=True))
    assert "tied" in checkup.not_made["first-loss"] and checkup.findings == []
    assert diagnose(record([StepMetrics(1, loss=1.0, grad_norm=1.0)], tied=True)).findings[0].place == "answer-visible"


def test_findings_come_by_grade_causes_first_and_none_twice():
    places = [("heads", "look"), ("training loss", "look"), ("data", "know"), ("scores", "look"), ("unknown", "stop")]
    first = Checkup([Finding("x", place=place, grade=grade) for place, grade in places], ["a"], {"b": "no log"})  # pyright: ignore
    both = first + Checkup([Finding("y", place="heads"), Finding("z", place="frozen", grade="stop")], ["b"], {"c": "?"})
    assert [f.place for f in both.findings] == ["frozen", "unknown", "scores", "training loss", "heads", "data"]
    assert both.made == ["a", "b"] and both.not_made == {"c": "?"}
    impossible = run_checks({"x": lambda: [Finding("a", place=str(1 // 0))], "y": list})
    assert impossible.made == ["y"] and "division" in impossible.not_made["x"]


def test_lines_that_cannot_be_read_are_counted(fake_run, cli):
    run = fake_run("lm")
    text = [StepMetrics(step).line() for step in range(1, 9)]
    text[3], text[7] = "{\n", '{"step": "x"}\n'
    (run / "metrics.jsonl").write_text("".join(text), "utf-8")
    findings = cli("doctor", run, "--json").ok.json["findings"]
    [found] = [each for each in findings if each["place"] == "log"]
    assert found["numbers"] == {"n": 2} and found["grade"] == "look"


@pytest.mark.parametrize("name", ["metrics.jsonl", "data.json", "evaluation.json", "env.json"])
def test_a_missing_file_is_no_traceback(name, fake_run, cli):
    run = fake_run("classify")
    (run / name).unlink()
    for more in ([], ["--examine"]):
        assert "not made: " in cli("doctor", run, *more).ok.out


def test_a_reason_is_no_remedy():
    warnings = [{"matter": "only 9: expect little", "remedy": "add some"}, {"matter": "9 of 100 are used"}]
    found = findings.data(replace(record([]), data=DataRecord(preflight={"warnings": warnings})))
    assert [(f.matter, f.remedy) for f in found] == [("only 9: expect little", "add some"), ("9 of 100 are used", "")]
