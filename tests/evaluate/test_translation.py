"""Translation scores equal sacreBLEU's own, their intervals hold them, and comparisons are paired."""

from __future__ import annotations

import json

import numpy as np
import pytest
import sacrebleu

from glassformer.errors import UsageError
from glassformer.evaluate.scoring import bootstrap_interval, paired
from glassformer.evaluate.translation import bleu_scoring, headline_of, score, tokenizer_for

WORDS = "a dog runs over the green grass while two men in red shirts watch it near an old house .".split()


def corpus(n: int, error_rate: float, seed: int = 0) -> tuple[list[str], list[str]]:
    """Return (hypotheses, references): sentences, and the same with some words replaced."""
    rng = np.random.default_rng(seed)
    references, hypotheses = [], []
    for _ in range(n):
        words = list(rng.choice(WORDS, size=int(rng.integers(5, 25))))
        references.append(" ".join(words))
        noisy = [str(rng.choice(WORDS)) if rng.uniform() < error_rate else word for word in words]
        hypotheses.append(" ".join(noisy))
    return hypotheses, references


def test_scores_equal_sacrebleu() -> None:
    hypotheses, references = corpus(150, 0.2)
    result = score(hypotheses, references, n_bootstrap=0)
    assert result["bleu"] == pytest.approx(sacrebleu.corpus_bleu(hypotheses, [references]).score, abs=1e-9)
    assert result["chrf"] == pytest.approx(sacrebleu.corpus_chrf(hypotheses, [references]).score, abs=1e-9)
    assert result["bleu_signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert "nc:6|nw:0" in result["chrf_signature"]
    assert "bleu_ci95" not in result and result["headline"] == "bleu"


def test_intervals_hold_the_score_and_agree_with_sacrebleu() -> None:
    hypotheses, references = corpus(150, 0.2)
    result = score(hypotheses, references, n_bootstrap=400)
    for name in ("bleu", "chrf"):
        low, high = result[f"{name}_ci95"]
        assert low < result[name] < high
    theirs = sacrebleu.metrics.BLEU().corpus_score(hypotheses, [references], n_bootstrap=400)._ci
    rows = [{"translation": line, "reference": other} for line, other in zip(hypotheses, references, strict=True)]
    low, high = bootstrap_interval(bleu_scoring().counts(rows), bleu_scoring().score, n_resamples=400)
    assert (high - low) / 2 == pytest.approx(theirs, rel=0.15)
    assert result["bleu_ci95"][0] < low and high < result["bleu_ci95"][1]  # a best and a worst sentence are in ours
    assert json.loads(json.dumps(result)) == result
    assert result == score(hypotheses, references, n_bootstrap=400)


def test_exact_match_ignores_only_outer_spaces() -> None:
    result = score(["a b c d e f", "a  b c d e f", " a b c d e f\n"], ["a b c d e f"] * 3, n_bootstrap=0)
    assert result["exact_match"] == pytest.approx(2 / 3)
    assert result["exact_match_ci95"][0] < 2 / 3 < result["exact_match_ci95"][1]


def test_short_answers_are_quoted_by_exact_match() -> None:
    dates = score(["2014-03-05", "1999-12-31"], ["2014-03-05", "1999-12-30"], n_bootstrap=10)
    assert dates["headline"] == "exact_match" and dates["bleu"] > 0
    words = score(["ja", "nein"], ["ja", "nein"], n_bootstrap=10)
    assert words["headline"] == "exact_match" and words["bleu"] == 0


def test_another_tokenizer_is_named_and_an_unknown_one_refused(caplog: pytest.LogCaptureFixture) -> None:
    lines = ["a b c d ."] * 150
    assert "tok:none" in score(lines, lines, n_bootstrap=0, tokenize="none")["bleu_signature"]
    with pytest.raises(UsageError, match="klingon"):
        score(lines, lines, tokenize="klingon")
    assert score([""] * 3, ["a b c d"] * 3, n_bootstrap=5)["bleu"] == 0
    score(lines, lines, n_bootstrap=0)
    assert not caplog.records, "no warning about tokenised full stops"


def test_the_paired_test_tells_better_from_equal() -> None:
    better, references = corpus(200, 0.1, seed=0)
    worse, _ = corpus(200, 0.3, seed=0)
    worse = [w if i % 2 else b for i, (w, b) in enumerate(zip(worse, better, strict=True))]
    ours, theirs = (
        [{"translation": line, "reference": other} for line, other in zip(lines, references, strict=True)]
        for lines in (better, worse)
    )
    result = paired(bleu_scoring(), ours, theirs)
    assert result["difference"] > 0 and result["p_value"] < 0.01
    assert result["ci95"][0] < result["difference"] < result["ci95"][1]
    same = paired(bleu_scoring(), ours, ours)
    assert same["difference"] == 0 and same["p_value"] == 1.0


CHINESE = ["那只猫坐在红色的垫子上看书。", "两只狗在公园里追一个球。", "一个男人在街上骑自行车。"]
JAPANESE = [
    "猫は赤いマットの上に座っている。",
    "二匹の犬が公園でボールを追いかける。",
    "男の人が道で自転車に乗っている。",
]
THAI = ["แมวนั่งอยู่บนเสื่อสีแดง", "สุนัขสองตัววิ่งไล่ลูกบอลในสวน", "ผู้ชายขี่จักรยานบนถนน"]


@pytest.mark.parametrize(
    ("lines", "tokenizer"),
    [(CHINESE, "zh"), (JAPANESE, "char"), (THAI, "char"), (["Two dogs chase a ball.", "Ein Mann fährt Rad."], "13a")],
    ids=["Chinese", "Japanese", "Thai", "Latin"],
)
def test_scripts_without_spaces_are_scored_on_bleu(lines: list[str], tokenizer: str) -> None:
    """With 13a such a sentence is one word: an answer was called short, headlined on exact match, and BLEU was 0."""
    assert tokenizer_for(lines) == tokenizer
    nearly = [line[:-3] + line[-1] for line in lines]
    result = score(nearly, lines, n_bootstrap=0)
    assert f"tok:{tokenizer}|" in result["bleu_signature"]
    if tokenizer != "13a":
        assert result["headline"] == headline_of(lines) == "bleu" and result["bleu"] > 50
        assert score(nearly, lines, n_bootstrap=0, tokenize="13a")["bleu"] == pytest.approx(0.0, abs=1e-6)


def test_one_cut_off_says_what_a_short_answer_is() -> None:
    """What chooses the metric of the validations and what chooses the headline are the same function."""
    for words in range(1, 10):
        lines = [" ".join("abcdefghij"[:words])] * 3
        assert headline_of(lines) == score(lines, lines, n_bootstrap=0)["headline"]
        assert headline_of(lines) == ("exact_match" if words < 6 else "bleu")
