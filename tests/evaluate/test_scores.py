"""Scores of classes, tags, translations and running text: by hand, by other libraries, and on degenerate cases."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import sacrebleu
from tests.helpers.for_each import for_each

from glassformer.errors import UsageError
from glassformer.evaluate.baselines import tag_baselines
from glassformer.evaluate.metrics import METRICS, Metric, metric
from glassformer.evaluate.metrics import score as text_score
from glassformer.evaluate.scores import calibration_error, class_scores, tag_counts, tag_scores
from glassformer.evaluate.scoring import bootstrap_interval, paired
from glassformer.evaluate.translation import bleu_scoring, headline_of, score, tokenizer_for
from glassformer.tasks import TASKS
from glassformer.text.words import spans_of, tag_names
from glassformer.utils.formatting import number

NAMES = ["neg", "pos"]


def test_two_classes_by_hand() -> None:
    labels = [0, 0, 0, 1, 1]
    pos = np.array([0.1, 0.2, 0.6, 0.9, 0.4])
    result = class_scores(labels, np.stack([1 - pos, pos], axis=1), NAMES)
    assert result["n"] == 5
    assert result["accuracy"] == pytest.approx(3 / 5)
    assert result["confusion"] == [[2, 1], [1, 1]]
    f1_neg, f1_pos = 2 / 3, 1 / 2
    assert result["macro_f1"] == pytest.approx((f1_neg + f1_pos) / 2)
    assert result["log_loss"] == pytest.approx(-np.log([0.9, 0.8, 0.4, 0.9, 0.4]).mean())
    assert result["per_class"][1] == {"label": "pos", "precision": 0.5, "recall": 0.5, "f1": 0.5, "support": 2}
    low, high = result["ci95"]
    assert 0 < low < 0.6 < high < 1
    certain = class_scores([0], np.array([[0.0, 1.0]]), NAMES)["log_loss"]
    assert np.isfinite(certain) and certain > 100, "a certain mistake costs much"


def test_a_class_nobody_mentions_does_not_lower_macro_f1_and_the_result_is_plain_json() -> None:
    probabilities = np.array([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0]], dtype=np.float32)
    result = class_scores(np.array([0, 1]), probabilities, ["a", "b", "unseen"])
    assert result["macro_f1"] == 1.0 and result["per_class"][2]["support"] == 0
    assert json.loads(json.dumps(result)) == result


def test_calibration_of_a_calibrated_and_of_an_overconfident_classifier() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.5, 1.0, size=20_000)
    right = rng.uniform(size=20_000) < confidence
    probabilities = np.stack([confidence, 1 - confidence], axis=1)
    assert calibration_error((~right).astype(int), probabilities) < 0.02
    always_sure = np.tile([1.0, 0.0], (1000, 1))
    assert calibration_error(np.array([0, 1] * 500), always_sure) == pytest.approx(0.5)


def test_which_way_is_better() -> None:
    rates = "nats_per_token nats_per_char bits_per_char bits_per_byte"
    lower = {*f"ece ece_calibrated log_loss loss perplexity {rates}".split()}
    assert {name for name, known in METRICS.items() if not known.higher_is_better} == lower
    assert metric("bleu").better(31.0, 30.0) and metric("loss").better(0.1, 0.2)
    known = metric("train_loss")
    assert (known.name, known.title, known.higher_is_better) == ("train_loss", "Loss on train", False)
    own = Metric("hamming", "Hamming distance", "labels", higher_is_better=False)
    assert metric("hamming", [own]) is own
    assert metric("train_hamming", [own]).higher_is_better is False
    assert metric("hit_rate").title == "Hit rate" and metric("hit_rate").higher_is_better


def test_intervals_are_written_in_the_metrics_own_unit() -> None:
    assert metric("accuracy").between([0.877, 0.885]) == "87.7–88.5%"
    assert metric("bleu").between([30.12, 31.0]) == "30.1–31.0"
    assert metric("bleu").between(None) == ""
    assert Metric("r2", "R²").between([-0.12, -0.03]) == "-0.120 to -0.03"
    assert [number(x) for x in (999.94, 999.96)] == ["999.9", "1,000"]


@for_each("name", TASKS)
def test_every_task_is_validated_and_quoted_by_a_known_metric(name: str) -> None:
    task_report = TASKS[name].report
    known = METRICS.keys() | {metric.name for metric in task_report.metrics}
    assert {TASKS[name].metric, task_report.headline, *task_report.table_metrics} <= known


def test_tokens_characters_and_bytes_divide_the_same_sum() -> None:
    result = text_score(600.0, n_tokens=100, n_chars=300, n_bytes=400)
    assert (result["nats_per_token"], result["nats_per_char"], result["n"]) == (6.0, 2.0, 100)
    assert result["perplexity"] == pytest.approx(math.exp(6))
    assert result["bits_per_char"] == pytest.approx(2.0 / math.log(2))
    assert result["bits_per_byte"] == pytest.approx(1.5 / math.log(2))
    assert text_score(1e6, 1, 1, 1)["perplexity"] is None, "a hopeless model has none"


def spans(tags: str) -> list[tuple[int, int, str]]:
    return [tuple(span) for span in spans_of(tags.split())]  # pyright: ignore[reportReturnType]


@for_each(
    ("tags", "expected"),
    [
        ("O O", []),
        ("B-X I-X O", [(0, 2, "X")]),
        ("B-X B-X", [(0, 1, "X"), (1, 2, "X")]),
        ("I-X I-X O", [(0, 2, "X")]),  # conlleval: I- at the beginning begins a span
        ("O I-X", [(1, 2, "X")]),  # and after O
        ("B-X I-Y I-Y", [(0, 1, "X"), (1, 3, "Y")]),  # and after another label
        ("I-X I-Y", [(0, 1, "X"), (1, 2, "Y")]),
        ("B-X I-X B-X I-X I-Y O I-Y", [(0, 2, "X"), (2, 4, "X"), (4, 5, "Y"), (6, 7, "Y")]),
        ("B-X-Y I-X-Y", [(0, 2, "X-Y")]),  # the label is all after the first hyphen
        ("NOUN VERB", []),
    ],
)
def test_spans_are_those_of_conlleval(tags: str, expected: list[tuple[int, int, str]]) -> None:
    assert spans(tags) == expected


def test_the_names_of_tags_are_whole() -> None:
    assert tag_names(["B-X", "O", "I-Y"]) == ["O", "B-X", "I-X", "B-Y", "I-Y"]
    assert tag_names(["VERB", "NOUN"]) == ["NOUN", "VERB"]


def test_scores_are_those_counted_by_hand() -> None:
    truth = [t.split() for t in ("B-X I-X O B-Y", "O O", "B-X O")]
    found = [t.split() for t in ("B-X I-X O O", "O B-Y", "I-X O")]
    # I-X after nothing is the same span, and another tag
    assert tag_counts(truth, found).tolist() == [[1, 0, 1, 3, 4], [0, 1, 0, 1, 2], [1, 0, 0, 1, 2]]
    scores = tag_scores(truth, found, plain=False)
    assert scores["span_precision"] == scores["span_recall"] == scores["span_f1"] == pytest.approx(2 / 3)
    assert scores["tag_accuracy"] == 5 / 8 and (scores["n"], scores["n_words"]) == (3, 8)
    rows = [(row["label"], row["precision"], row["recall"], row["support"]) for row in scores["per_label"]]
    assert rows == [("X", 1.0, 1.0, 2), ("Y", 0.0, 0.0, 1)]
    assert scores["macro_f1"] == 0.5
    low, high = scores["span_f1_ci95"]
    assert low <= scores["span_f1"] <= high
    scores = tag_scores([["N", "V", "N"]], [["N", "N", "N"]], plain=True)
    assert scores["headline"] == "tag_accuracy" and "span_f1" not in scores
    assert scores["tag_accuracy"] == pytest.approx(2 / 3) and scores["macro_f1"] == pytest.approx(0.4)
    assert tag_scores([["O"]], [["O"]], plain=False)["span_f1"] == 0.0


def made(n: int, seed: int) -> tuple[list[list[str]], list[list[str]]]:
    """A word after "to" is a place, and the same word elsewhere is none."""
    rng = np.random.default_rng(seed)
    words = [[str(word) for word in rng.choice(["to", "oslo", "rome", "we", "go"], 8)] for _ in range(n)]
    tags = [
        ["B-LOC" if before == "to" and word != "to" else "O" for before, word in zip(["", *row], row, strict=False)]
        for row in words
    ]
    return words, tags


def test_the_window_sees_what_the_word_alone_does_not() -> None:
    train, test = made(80, 0), made(20, 1)
    baselines = tag_baselines(*train, *test, plain=False)
    assert baselines["frequent"]["span_f1"] == 0.0 and baselines["window"]["span_f1"] > 0.95
    assert all(row["settings"] and "span_f1_ci95" in row for row in baselines.values())
    assert baselines == tag_baselines(*train, *test, plain=False)
    assert tag_baselines([["a"]], [["O"]], [["a", "b"]], [["O", "O"]], plain=False).keys() == {"frequent"}
    assert "window" in tag_baselines([["a", "b"]], [["O", "B-X"]], [["a"]], [["O"]], plain=False)


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


def test_exact_match_ignores_only_outer_spaces_and_is_quoted_for_short_answers() -> None:
    result = score(["a b c d e f", "a  b c d e f", " a b c d e f\n"], ["a b c d e f"] * 3, n_bootstrap=0)
    assert result["exact_match"] == pytest.approx(2 / 3)
    assert result["exact_match_ci95"][0] < 2 / 3 < result["exact_match_ci95"][1]
    dates = score(["2014-03-05", "1999-12-31"], ["2014-03-05", "1999-12-30"], n_bootstrap=10)
    assert dates["headline"] == "exact_match" and dates["bleu"] > 0
    words = score(["ja", "nein"], ["ja", "nein"], n_bootstrap=10)
    assert words["headline"] == "exact_match" and words["bleu"] == 0
    for n in range(1, 10):  # what chooses the metric of the validations and the headline is one function
        lines = [" ".join("abcdefghij"[:n])] * 3
        assert headline_of(lines) == score(lines, lines, n_bootstrap=0)["headline"]
        assert headline_of(lines) == ("exact_match" if n < 6 else "bleu")


def test_another_tokenizer_is_named_and_an_unknown_one_refused(caplog: pytest.LogCaptureFixture) -> None:
    lines = ["a b c d ."] * 150
    assert "tok:none" in score(lines, lines, n_bootstrap=0, tokenize="none")["bleu_signature"]
    with pytest.raises(UsageError, match="klingon"):
        score(lines, lines, tokenize="klingon")
    assert score([""] * 3, ["a b c d"] * 3, n_bootstrap=5)["bleu"] == 0
    score(lines, lines, n_bootstrap=0)
    assert not caplog.records, "no warning about tokenised full stops"


def test_the_paired_test_parts_better_from_equal() -> None:
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
JAPANESE = ["猫は赤いマットの上に座っている。", "二匹の犬が公園でボールを追いかける。"]
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
