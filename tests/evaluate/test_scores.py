"""Scores, baselines and intervals: by hand, by other libraries, and on degenerate cases."""

import json
import math

import numpy as np
import pytest
import sacrebleu
from scipy.stats import binomtest
from tests.helpers.for_each import for_each

from glassformer.errors import UsageError
from glassformer.evaluate import scoring
from glassformer.evaluate.baselines import Baselines, Known, class_baselines, tag_baselines
from glassformer.evaluate.metrics import METRICS, Metric, metric
from glassformer.evaluate.metrics import score as text_score
from glassformer.evaluate.scores import calibration_error, class_scores, label_counts, tag_counts, tag_scores
from glassformer.evaluate.translation import bleu_scoring, headline_of, score, tokenizer_for
from glassformer.tasks import TASKS
from glassformer.text.words import spans_of, tag_names
from glassformer.utils.formatting import number

NAMES = ["neg", "pos"]


def test_two_classes_by_hand():
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


def test_a_class_nobody_mentions_does_not_lower_macro_f1_and_the_result_is_plain_json():
    probabilities = np.array([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0]], dtype=np.float32)
    result = class_scores(np.array([0, 1]), probabilities, ["a", "b", "unseen"])
    assert result["macro_f1"] == 1.0 and result["per_class"][2]["support"] == 0
    assert json.loads(json.dumps(result)) == result


def test_calibration_of_a_calibrated_and_of_an_overconfident_classifier():
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.5, 1.0, size=20_000)
    right = rng.uniform(size=20_000) < confidence
    probabilities = np.stack([confidence, 1 - confidence], axis=1)
    assert calibration_error((~right).astype(int), probabilities) < 0.02
    always_sure = np.tile([1.0, 0.0], (1000, 1))
    assert calibration_error(np.array([0, 1] * 500), always_sure) == pytest.approx(0.5)


def test_which_way_is_better():
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


def test_intervals_are_written_in_the_metrics_own_unit():
    assert metric("accuracy").between([0.877, 0.885]) == "87.7–88.5%"
    assert metric("bleu").between([30.12, 31.0]) == "30.1–31.0"
    assert metric("bleu").between(None) == ""
    assert Metric("r2", "R²").between([-0.12, -0.03]) == "-0.120 to -0.03"
    assert [number(x) for x in (999.94, 999.96)] == ["999.9", "1,000"]


@for_each("name", TASKS)
def test_every_task_is_validated_and_quoted_by_a_known_metric(name):
    task_report = TASKS[name].report
    known = METRICS.keys() | {metric.name for metric in task_report.metrics}
    assert {TASKS[name].metric, task_report.headline, *task_report.table_metrics} <= known


def test_tokens_characters_and_bytes_divide_the_same_sum():
    result = text_score(600.0, n_tokens=100, n_chars=300, n_bytes=400)
    assert (result["nats_per_token"], result["nats_per_char"], result["n"]) == (6.0, 2.0, 100)
    assert result["perplexity"] == pytest.approx(math.exp(6))
    assert result["bits_per_char"] == pytest.approx(2.0 / math.log(2))
    assert result["bits_per_byte"] == pytest.approx(1.5 / math.log(2))
    assert text_score(1e6, 1, 1, 1)["perplexity"] is None, "a hopeless model has none"


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
def test_spans_are_those_of_conlleval(tags, expected):
    assert [tuple(span) for span in spans_of(tags.split())] == expected


def test_the_names_of_tags_are_whole():
    assert tag_names(["B-X", "O", "I-Y"]) == ["O", "B-X", "I-X", "B-Y", "I-Y"]
    assert tag_names(["VERB", "NOUN"]) == ["NOUN", "VERB"]


def test_scores_are_those_counted_by_hand():
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


def test_the_window_sees_what_the_word_alone_does_not():
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


def translated(lines: list[str], references: list[str]) -> list[dict[str, str]]:
    return [{"translation": line, "reference": other} for line, other in zip(lines, references, strict=True)]


def test_scores_equal_sacrebleu():
    hypotheses, references = corpus(150, 0.2)
    result = score(hypotheses, references, n_bootstrap=0)
    assert result["bleu"] == pytest.approx(sacrebleu.corpus_bleu(hypotheses, [references]).score, abs=1e-9)
    assert result["chrf"] == pytest.approx(sacrebleu.corpus_chrf(hypotheses, [references]).score, abs=1e-9)
    assert result["bleu_signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert "nc:6|nw:0" in result["chrf_signature"]
    assert "bleu_ci95" not in result and result["headline"] == "bleu"


def test_intervals_hold_the_score_and_agree_with_sacrebleu():
    hypotheses, references = corpus(150, 0.2)
    result = score(hypotheses, references, n_bootstrap=400)
    for name in ("bleu", "chrf"):
        low, high = result[f"{name}_ci95"]
        assert low < result[name] < high
    theirs = sacrebleu.metrics.BLEU().corpus_score(hypotheses, [references], n_bootstrap=400)._ci
    rows = translated(hypotheses, references)
    low, high = scoring.bootstrap_interval(bleu_scoring().counts(rows), bleu_scoring().score, n_resamples=400)
    assert (high - low) / 2 == pytest.approx(theirs, rel=0.15)
    assert result["bleu_ci95"][0] < low and high < result["bleu_ci95"][1]  # a best and a worst sentence are in ours
    assert json.loads(json.dumps(result)) == result
    assert result == score(hypotheses, references, n_bootstrap=400)


def test_exact_match_ignores_only_outer_spaces_and_is_quoted_for_short_answers():
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


def test_another_tokenizer_is_named_and_an_unknown_one_refused(caplog):
    lines = ["a b c d ."] * 150
    assert "tok:none" in score(lines, lines, n_bootstrap=0, tokenize="none")["bleu_signature"]
    with pytest.raises(UsageError, match="klingon"):
        score(lines, lines, tokenize="klingon")
    assert score([""] * 3, ["a b c d"] * 3, n_bootstrap=5)["bleu"] == 0
    score(lines, lines, n_bootstrap=0)
    assert not caplog.records, "no warning about tokenised full stops"


def test_the_paired_test_parts_better_from_equal():
    better, references = corpus(200, 0.1, seed=0)
    worse, _ = corpus(200, 0.3, seed=0)
    worse = [w if i % 2 else b for i, (w, b) in enumerate(zip(worse, better, strict=True))]
    ours, theirs = translated(better, references), translated(worse, references)
    result = scoring.paired(bleu_scoring(), ours, theirs)
    assert result["difference"] > 0 and result["p_value"] < 0.01
    assert result["ci95"][0] < result["difference"] < result["ci95"][1]
    same = scoring.paired(bleu_scoring(), ours, ours)
    assert same["difference"] == 0 and same["p_value"] == 1.0


CHINESE = ["那只猫坐在红色的垫子上看书。", "两只狗在公园里追一个球。", "一个男人在街上骑自行车。"]
JAPANESE = ["猫は赤いマットの上に座っている。", "二匹の犬が公園でボールを追いかける。"]
THAI = ["แมวนั่งอยู่บนเสื่อสีแดง", "สุนัขสองตัววิ่งไล่ลูกบอลในสวน", "ผู้ชายขี่จักรยานบนถนน"]


@pytest.mark.parametrize(
    ("lines", "tokenizer"),
    [(CHINESE, "zh"), (JAPANESE, "char"), (THAI, "char"), (["Two dogs chase a ball.", "Ein Mann fährt Rad."], "13a")],
    ids=["Chinese", "Japanese", "Thai", "Latin"],
)
def test_scripts_without_spaces_are_scored_on_bleu(lines, tokenizer):
    """With 13a such a sentence is one word: an answer was called short, headlined on exact match, and BLEU was 0."""
    assert tokenizer_for(lines) == tokenizer
    nearly = [line[:-3] + line[-1] for line in lines]
    result = score(nearly, lines, n_bootstrap=0)
    assert f"tok:{tokenizer}|" in result["bleu_signature"]
    if tokenizer != "13a":
        assert result["headline"] == headline_of(lines) == "bleu" and result["bleu"] > 50
        assert score(nearly, lines, n_bootstrap=0, tokenize="13a")["bleu"] == pytest.approx(0.0, abs=1e-6)


# The yardsticks learn what they should, are the same every time, and never stop an evaluation


def fit_baselines(*given: object) -> Baselines:
    """Fit and score the baselines of training texts, their labels, test texts and theirs."""
    train_texts, train_labels, test_texts, test_labels = given
    return class_baselines(Known(train_texts, np.array(train_labels)), Known(test_texts, np.array(test_labels)))  # pyright: ignore


def reviews(n: int, seed: int) -> tuple[list[str], list[int]]:
    """Write reviews whose label hangs on one pair of words among noise."""
    rng = np.random.default_rng(seed)
    filler = ["film", "plot", "the", "actor", "scene", "it", "was", "of"]
    texts, labels = [], []
    for _ in range(n):
        label = int(rng.uniform() < 0.6)
        words = list(rng.choice(filler, size=12))
        words[3:3] = ["not", "good"] if label == 0 else ["very", "good"]
        texts.append(" ".join(words))
        labels.append(label)
    return texts, labels


def test_both_baselines_on_learnable_text():
    train, test = reviews(300, 0), reviews(200, 1)
    result = fit_baselines(*train, *test)
    assert result["majority"]["accuracy"] == pytest.approx(np.mean(test[1]))
    assert result["tfidf_logistic"]["accuracy"] > 0.99
    assert "C = " in result["tfidf_logistic"]["settings"] and "300 training" in result["tfidf_logistic"]["settings"]
    for row in result.values():
        assert row["ci95"][0] <= row["accuracy"] <= row["ci95"][1]
    assert json.loads(json.dumps(result)) == result


def test_the_penalty_is_chosen_without_the_test_labels():
    train, (texts, labels) = reviews(400, 0), reviews(60, 1)
    honest = fit_baselines(*train, texts, labels)["tfidf_logistic"]["settings"]
    flipped = fit_baselines(*train, texts, [1 - y for y in labels])["tfidf_logistic"]["settings"]
    assert honest == flipped


def test_a_handful_of_texts_is_enough_and_a_class_that_was_not_seen_keeps_its_place():
    """Its columns are those of the labels, not of the classes that were in its training texts."""
    result = fit_baselines(["red", "red red", "blue", "so blue"], [0, 0, 2, 2], ["red", "blue", "blue"], [0, 2, 2])
    assert result["tfidf_logistic"]["accuracy"] == 1.0


@for_each(
    ("train_texts", "train_labels"),
    [(["a good film", "a fine film"], [1, 1]), (["", "  "], [0, 1]), (["…", "!!"], [0, 1])],
)
def test_what_cannot_be_fitted_is_left_out(train_texts, train_labels):
    result = fit_baselines(train_texts, train_labels, ["a film"], [1])
    assert list(result) == ["majority"]


def clauses(good: list[str], bad: list[str], n: int, seed: int) -> tuple[list[str], list[int]]:
    """Write texts without spaces: filler of random letters around one of seven good or bad phrases."""
    rng, texts, labels = np.random.default_rng(seed), [], []
    letters = sorted(set("".join(good + bad)))
    for _ in range(n):
        label = int(rng.integers(2))
        phrase = str(rng.choice(good if label else bad))
        before, after = ("".join(rng.choice(letters, 4)) for _ in range(2))
        texts.append(before + phrase + after)
        labels.append(label)
    return texts, labels


def test_scripts_without_spaces_are_counted_by_characters():
    """By words it would know no clause again and guess; by characters it is a fair comparison."""
    good, bad = ["非常好看", "值得推荐", "十分满意"], ["非常难看", "浪费时间", "十分失望"]
    row = fit_baselines(*clauses(good, bad, 600, 0), *clauses(good, bad, 200, 1))["tfidf_logistic"]
    assert row["accuracy"] > 0.97
    assert "one, two and three characters" in row["settings"] and "script without spaces" in row["settings"]


def test_words_stay_words_where_most_texts_have_spaces():
    train, test = reviews(300, 0), reviews(100, 1)
    mixed = [f"{text} 好" for text in train[0]]
    assert "words and word pairs" in fit_baselines(mixed, train[1], *test)["tfidf_logistic"]["settings"]


# The intervals against values worked out elsewhere, and the properties that make them usable


@for_each(("right", "n"), [(0, 10), (10, 10), (7, 10), (22031, 25000), (1, 1)])
def test_wilson_agrees_with_scipy(right, n):
    expected = binomtest(right, n).proportion_ci(0.95, method="wilson")
    assert scoring.wilson_interval(right, n) == pytest.approx([expected.low, expected.high], abs=1e-9)
    assert scoring.wilson_interval(0, 0) == [0.0, 1.0]


def test_resampled_sums_are_reproducible_and_centred_on_the_sum():
    statistics = np.random.default_rng(0).normal(size=(400, 3))
    sums = scoring.resampled_sums(statistics, 500)
    assert np.array_equal(sums, scoring.resampled_sums(statistics, 500))
    spread = statistics.std(axis=0) * np.sqrt(400)
    assert np.all(np.abs(sums.mean(axis=0) - statistics.sum(axis=0)) < 4 * spread / np.sqrt(500))
    assert np.allclose(sums.std(axis=0), spread, rtol=0.15)


def test_columns_side_by_side_are_drawn_on_the_same_examples():
    column = np.arange(50.0)[:, None]
    sums = scoring.resampled_sums(np.hstack([column, 2 * column]), 40)
    assert np.allclose(sums[:, 1], 2 * sums[:, 0])


def test_percentile_interval_holds_the_middle_95_percent():
    assert scoring.percentile_interval(np.arange(1001)) == [25.0, 975.0]


@for_each(("n", "wrong"), [(n, wrong) for n in (20, 50, 200) for wrong in (0.01, 0.05, 0.3)])
def test_the_interval_of_f1_holds_it_and_is_not_wide(n, wrong):
    """Four labels a text; wrong decisions come together, for the rate of each text is drawn."""
    rng = np.random.default_rng(0)

    def drawn(n_texts: int) -> np.ndarray:
        rates = rng.beta(4 * wrong, 4 * (1 - wrong), size=(n_texts, 1))
        truth, is_wrong = rng.random((n_texts, 4)) < 0.4, rng.random((n_texts, 4)) < rates
        return label_counts(truth, truth ^ is_wrong)

    true = scoring.f1(drawn(200_000).sum(axis=0))
    found, widths = [], []
    for counts in (drawn(n) for _ in range(400)):
        low, high = scoring.interval(scoring.f1, counts)
        found.append(low <= true <= high)
        ends = scoring.wilson_interval(counts[:, 0].sum(), counts.sum())
        widths.append((high - low) / np.diff([2 * end / (1 + end) for end in ends])[0])
    assert np.mean(found) > 0.89 and np.mean(widths) < 1.5  # of 2,000 draws it is 0.92 and more


@for_each(("b", "c"), [(0, 0), (5, 5), (0, 5), (1, 9), (40, 12)])
def test_of_shares_it_is_mcnemars_exact_test(b, c):
    """`b` examples that the first alone gets right, and `c` that the second does, of 100."""
    n = [b, c, 100 - b - c]
    first, second = (np.repeat([[x, 1.0], [y, 1.0], [1.0, 1.0]], n, axis=0) for x, y in ((1, 0), (0, 1)))
    test = scoring.paired_test(first, second, scoring.share, n_draws=4000)
    expected = binomtest(b, b + c, 0.5).pvalue if b + c else 1.0
    assert test["p_value"] == pytest.approx(expected, abs=0.02) and test["n"] == 100
    assert test["difference"] == pytest.approx((b - c) / 100)
    assert test["ci95"][0] <= test["difference"] <= test["ci95"][1]


def test_no_number_of_draws_claims_certainty():
    right, wrong = np.ones((60, 2)), np.tile([0.0, 1.0], (60, 1))
    assert scoring.paired_test(right, wrong, scoring.share, n_draws=999)["p_value"] == 1 / 1000
