"""Unknown tokens are counted in texts nobody trained on, answers unread, and told where they are many."""

from __future__ import annotations

from dataclasses import replace

from tests.helpers.for_each import for_each
from tests.helpers.small import config_of, data_of, small_run

from glassformer.config import Config, TextConfig
from glassformer.data.corpus import RaggedArray
from glassformer.data.findings import KnownData, unknown
from glassformer.data.splits import Split
from glassformer.runs.records import SplitRecord
from glassformer.text.tokenizer import Tokenizer
from glassformer.training.budget import Pace
from glassformer.training.preflight import count_tokens, describe_splits, n_texts_with_unknown, preflight

PACE = Pace(0.01, 0.1, 1000.0, 0.1)
STRANGE = ["q r s", "a b c", "", "x a", "z"]
"""Of eight letters, five the training texts do not have, in three of five texts."""


def test_texts_with_an_unknown_token_are_counted_once() -> None:
    one, other = RaggedArray.from_lists([[1, 5], [], [1, 1], [7]]), RaggedArray.from_lists([[5], [1], [6], [6]])
    assert (
        n_texts_with_unknown([one], 1) == 2
        and n_texts_with_unknown([one, other], 1) == 3
        and n_texts_with_unknown([other], 9) == 0
    )
    assert n_texts_with_unknown([RaggedArray.from_lists([[], []])], 1) == 0


def test_counting_encodes_texts_as_a_task_does() -> None:
    text = TextConfig(tokenizer="word", vocab_size=20, max_len=2, truncate="tail")
    tokenizer = Tokenizer.train(["a b c", "x"], text)
    texts = ["q a b", "a q", "", "q q q q"]
    found = {"n": 4, "n_tokens": 6, "n_unknown": 3, "n_truncated": 2, "n_texts_unknown": 2, "unknown_rate": 0.5}
    assert count_tokens(tokenizer, texts, text, running=False) == found
    whole = count_tokens(tokenizer, texts, text, running=True)
    assert whole == {"n": 4, "n_tokens": 9, "n_unknown": 6, "unknown_rate": 6 / 9}
    many = count_tokens(tokenizer, texts * 700, replace(text, max_len=256), running=False)
    assert (many["n_unknown"], many["n_texts_unknown"]) == (4200, 2100)


@for_each("task", ["classify", "translate", "lm"])
def test_every_part_says_how_much_of_it_is_unknown(task: str) -> None:
    data = data_of(task)
    answers = None if task == "lm" else [{"classify": "bad", "translate": "a"}[task]] * len(STRANGE)
    texts = [text.replace(" ", "") for text in STRANGE] if task == "translate" else STRANGE
    strange = Split(texts, answers, "strange")
    context = small_run(config_of(task), replace(data, valid=strange, test=strange)).context
    splits = describe_splits(context)
    assert splits["train"].unknown_rate == 0.0
    for name in ("valid", "test"):
        assert (splits[name].unknown_rate or 0) > 0.05
        assert splits[name].n_texts_unknown == (None if task == "lm" else 3)
        assert splits[name].sha256 == splits["valid"].sha256 != splits["train"].sha256
    record = preflight(context, PACE, context.task.build_model())
    message = [finding for finding in record.findings if "unknown to the model" in finding.matter]
    assert len(message) == 2 and "--text.tokenizer byte-bpe" in message[0].remedy
    assert all(("in 3 of 5 texts" in finding.matter) == (task != "lm") for finding in message)
    assert record.splits == splits


def test_the_answers_of_a_test_part_are_not_looked_at() -> None:
    """A label that the task would refuse changes no count and raises nothing."""
    data, found = data_of("classify"), []
    for label in ("bad", "no such label"):
        test = Split(STRANGE, [label] * len(STRANGE), "strange")
        context = small_run(config_of("classify"), replace(data, test=test)).context
        found.append(replace(describe_splits(context)["test"], sha256=None))
    assert found[0] == found[1]


@for_each(
    ("rate", "n_texts", "message"),
    [
        (0.0, 0, False),
        (None, None, False),
        (0.04, 15, False),
        (0.06, 15, True),
        (0.03, 30, True),
        (0.01, 90, False),
        (0.04, None, False),
        (0.3, None, True),
    ],
)
def test_a_noticeable_share_is_told(rate: float | None, n_texts: int | None, message: bool) -> None:
    valid = SplitRecord(100, unknown_rate=rate, n_texts_unknown=n_texts)
    found = [*unknown(KnownData(Config(), {"train": valid, "valid": valid}))]
    assert len(found) == message
    if found and n_texts:
        assert f"in {n_texts} of 100 texts" in found[0].matter
