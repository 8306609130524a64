"""Runs side by side: rows, paired tests on the same examples, and reasons where there is no test."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from glassformer.errors import CheckpointError
from glassformer.report.compare import compare_runs

SENTENCES = [
    f"the {a} dog sees a {b} house near the {c} tree ." for a in "xyz" for b in "uvw" for c in "rst"
] * 4


def make_run(path: Path, task: str, rows: list[dict] | None = None, **evaluation: object) -> Path:
    path.mkdir()
    (path / "config.toml").write_text(f'task = "{task}"\n[data]\ndataset = "files"\n', encoding="utf-8")
    (path / "data.json").write_text('{"preflight": {"n_parameters": 1234}}', encoding="utf-8")
    if evaluation:
        scores = json.dumps({"task": task, "split": "test", **evaluation})
        (path / "evaluation.json").write_text(scores, encoding="utf-8")
    if rows is not None:
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (path / "predictions.jsonl").write_text(lines, encoding="utf-8")
    return path


def labelled(n_right: int, n: int = 200, offset: int = 0) -> list[dict]:
    """Return predictions of which the examples from `offset` on, n_right of them, are right."""
    right = {(offset + i) % n for i in range(n_right)}
    return [{"text": f"é{i}", "label": "a" if i in right else "b", "truth": "a"} for i in range(n)]


def test_rows_hold_scores_size_and_data(tmp_path: Path) -> None:
    run = make_run(tmp_path / "one", "classify", n=200, accuracy=0.9, ci95=[0.85, 0.93])
    bare = make_run(tmp_path / "two", "classify")
    row, unevaluated = compare_runs([run, str(bare)]).rows
    assert (row["metric"], row["value"], row["ci95"], row["n"]) == ("accuracy", 0.9, [0.85, 0.93], 200)
    assert (row["parameters"], row["dataset"], row["split"]) == (1234, "files", "test")
    assert unevaluated["value"] is None and unevaluated["steps"] is None


def test_classifiers_are_compared_by_mcnemar(tmp_path: Path) -> None:
    good = make_run(tmp_path / "good", "classify", labelled(180), accuracy=0.9)
    poor = make_run(tmp_path / "poor", "classify", labelled(140), accuracy=0.7)
    (test,) = compare_runs([good, poor]).tests
    assert test["test"].startswith("McNemar") and test["difference"] == pytest.approx(0.2)
    assert test["p_value"] < 1e-6 and test["ci95"][0] < 0.2 < test["ci95"][1]
    shifted = make_run(tmp_path / "shifted", "classify", labelled(180, offset=7), accuracy=0.9)
    (test,) = compare_runs([good, shifted]).tests
    assert test["difference"] == 0 and test["p_value"] == 1.0


def translated(wrong_every: int) -> list[dict]:
    return [
        {"text": "…", "reference": s, "translation": s if i % wrong_every else s.replace("dog", "cat")}
        for i, s in enumerate(SENTENCES)
    ]


def test_translators_are_compared_by_paired_bootstrap(tmp_path: Path) -> None:
    good = make_run(tmp_path / "good", "translate", translated(9), bleu=90.0)
    poor = make_run(tmp_path / "poor", "translate", translated(2), bleu=70.0)
    (test,) = compare_runs([good, poor]).tests
    assert test["metric"] == "bleu" and test["difference"] > 0 and test["p_value"] < 0.01


def test_translators_of_short_answers_are_compared_by_exact_match(tmp_path: Path) -> None:
    good = make_run(tmp_path / "good", "translate", translated(9), headline="exact_match", exact_match=0.9)
    poor = make_run(tmp_path / "poor", "translate", translated(2), headline="exact_match", exact_match=0.5)
    (test,) = compare_runs([good, poor]).tests
    assert test["metric"] == "exact_match" and test["test"].startswith("McNemar") and test["difference"] > 0


def test_where_there_is_no_pair_the_reason_is_said(tmp_path: Path) -> None:
    one = make_run(tmp_path / "one", "classify", labelled(5, 10), accuracy=0.5)
    other_examples = make_run(tmp_path / "other", "classify", labelled(5, 11), accuracy=0.5)
    bare = make_run(tmp_path / "bare", "classify")
    model = make_run(tmp_path / "lm", "lm", [], bits_per_char=2.0)
    comparison = compare_runs([one, other_examples, bare, model])
    assert comparison.tests == [] and len(comparison.notes) == 6
    notes = " ".join(comparison.notes)
    for words in ("same examples", "no predictions.jsonl", "one is classify, the other lm"):
        assert words in notes


def test_a_damaged_line_and_a_folder_that_is_no_run_are_named(tmp_path: Path) -> None:
    one = make_run(tmp_path / "one", "classify", [{"label": "a"}])
    with pytest.raises(CheckpointError, match=r"predictions\.jsonl:1"):
        compare_runs([one])
    with pytest.raises(CheckpointError, match=r"config\.toml"):
        compare_runs([tmp_path])
