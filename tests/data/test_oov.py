"""Unknown tokens are counted in texts nobody trained on, answers unread, and told where they are many."""

from __future__ import annotations

from dataclasses import replace

from tests.helpers.for_each import for_each
from tests.helpers.small import config_of, data_of, small_run

from glassformer.config import TextConfig
from glassformer.data.check import count_unknown_tokens, n_texts_with_unknown, unknown_finding
from glassformer.data.corpus import RaggedArray
from glassformer.data.splits import Split
from glassformer.text.tokenizer import Tokenizer
from glassformer.training.budget import Pace
from glassformer.training.preflight import describe_data, describe_splits, preflight

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
    assert count_unknown_tokens(tokenizer, texts, text, running=False) == (6, 2, 3, 2)
    assert count_unknown_tokens(tokenizer, texts, text, running=True) == (9, 0, 6, 3)
    kept = replace(text, max_len=256)
    assert count_unknown_tokens(tokenizer, texts * 700, kept, running=False)[2:] == (4200, 2100)


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
    facts = preflight(context, PACE, context.task.build_model())
    lines = "\n".join(facts.lines())
    assert "0.00% of tokens in training" in lines and "of tokens in validation" in lines and "in test" in lines
    assert ("(in 3 of 5 texts)" in lines) == (task != "lm")
    message = [warning for warning in facts.warnings if "unknown to the model" in warning.matter]
    assert len(message) == 2 and "--text.tokenizer byte-bpe" in message[0].remedy
    described = describe_data(context, facts)
    assert described.splits == splits and described.findings == facts.warnings


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
    found = unknown_finding("validation", rate, n_texts, 100)
    assert (found is not None) == message
    if found and n_texts:
        assert f"in {n_texts} of 100 texts" in found.matter
