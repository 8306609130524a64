"""Two runs side by side: rows, a paired test on the same examples, and reasons where there is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from glassformer.errors import CheckpointError
from glassformer.report.compare import compare_runs

SENTENCES = [f"the {a} dog sees a {b} house near the {c} tree ." for a in "xyz" for b in "uvw" for c in "rst"] * 4


def make_run(path: Path, task: str, rows: list[dict] | None = None, **evaluation: object) -> Path:
    path.mkdir()
    (path / "config.toml").write_text(f'task = "{task}"\n[data]\ndataset = "files"\n', encoding="utf-8")
    (path / "data.json").write_text('{"metric": "accuracy", "preflight": {"n_parameters": 1234}}', encoding="utf-8")
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
    row, unevaluated = compare_runs(run, str(bare)).rows
    assert (row["metric"], row["value"], row["ci95"], row["n"]) == ("accuracy", 0.9, [0.85, 0.93], 200)
    assert row["split"] == "test"
    assert unevaluated["value"] is None and unevaluated["n"] is None


def test_classifiers_are_compared_by_accuracy(tmp_path: Path) -> None:
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


def test_translators_are_compared_by_the_tokenizer_they_were_scored_with(tmp_path: Path) -> None:
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


def test_where_there_is_no_pair_the_reason_is_said(tmp_path: Path) -> None:
    one = make_run(tmp_path / "one", "classify", labelled(5, 10), accuracy=0.5)
    other_examples = make_run(tmp_path / "other", "classify", labelled(5, 11), accuracy=0.5)
    bare = make_run(tmp_path / "bare", "classify")
    model = make_run(tmp_path / "lm", "lm", [], bits_per_char=2.0)
    reasons = {"same examples": other_examples, "no predictions.jsonl": bare, "one is classify, the other lm": model}
    for words, other in reasons.items():
        comparison = compare_runs(one, other)
        assert comparison.test is None and words in comparison.verdict


def test_a_damaged_line_and_a_folder_that_is_no_run_are_named(tmp_path: Path) -> None:
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
    (run / "data.json").write_text(json.dumps(facts), encoding="utf-8")
    return run


def test_language_models_are_compared_by_blocks_of_the_text(tmp_path: Path) -> None:
    good = with_data(make_run(tmp_path / "good", "lm", blocks(0), bits_per_char=2.1), "x")
    poor = with_data(make_run(tmp_path / "poor", "lm", blocks(9), bits_per_char=2.2), "x", "another")
    comparison = compare_runs(poor, good)
    test = comparison.test
    assert test and test["metric"] == "bits_per_char" and test["p_value"] < 0.01
    assert test["difference"] == pytest.approx(9 / 200 / 0.6931, abs=1e-4)
    assert "good is better than" in comparison.verdict and "more than chance" in comparison.verdict
    assert "120 blocks of the text" in comparison.verdict


def test_scores_for_each_token_compare_only_with_one_tokenizer(tmp_path: Path) -> None:
    scores = {"headline": "nats_per_token", "nats_per_token": 3.0}
    one = with_data(make_run(tmp_path / "one", "lm", blocks(0), **scores), "x", "a")
    two = with_data(make_run(tmp_path / "two", "lm", blocks(9), **scores), "x", "b")
    assert "tokenizers differ" in compare_runs(one, two).verdict
    with_data(two, "x", "a")
    assert (compare_runs(one, two).test or {})["metric"] == "bits_per_char"
