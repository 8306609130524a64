"""Unknown tokens are counted in texts nobody trained on, and reported where they are many."""

from __future__ import annotations

from dataclasses import replace

from tests.helpers.for_each import for_each
from tests.helpers.small import config_of, data_of, small_run

from glassformer.config import Config
from glassformer.data.check import KnownData, unknown
from glassformer.data.corpus import RaggedArray
from glassformer.data.splits import Split
from glassformer.runs.records import SplitRecord
from glassformer.training.preparation import Pace, describe_splits, n_texts_with_unknown, preflight

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


@for_each("task", ["classify", "translate", "lm"])
def test_training_and_validation_say_how_much_of_it_is_unknown(task: str) -> None:
    data = data_of(task)
    answers = None if task == "lm" else [{"classify": "bad", "translate": "a"}[task]] * len(STRANGE)
    texts = [text.replace(" ", "") for text in STRANGE] if task == "translate" else STRANGE
    strange = Split(texts, answers, "strange")
    context = small_run(config_of(task), replace(data, valid=strange, test=strange)).context
    splits = describe_splits(context)
    assert splits["train"].unknown_rate == 0.0
    assert (splits["valid"].unknown_rate or 0) > 0.05
    assert splits["valid"].n_texts_unknown == (None if task == "lm" else 3)
    assert splits["test"].unknown_rate is None, "the test part is not looked at"
    assert splits["test"].sha256 == splits["valid"].sha256 != splits["train"].sha256
    record = preflight(context, PACE, context.task.build_model())
    message = [finding for finding in record.findings if "unknown to the model" in finding.matter]
    assert len(message) == 1 and "--text.tokenizer byte-bpe" in message[0].remedy
    assert all(("in 3 of 5 texts" in finding.matter) == (task != "lm") for finding in message)
    assert record.splits == splits


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
