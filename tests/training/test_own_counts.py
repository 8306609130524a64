"""A task counts what it likes of its texts; the counts that a split's record has no field for are kept by name."""

from __future__ import annotations

from dataclasses import replace

from tests.helpers.for_each import for_each
from tests.helpers.small import small

from glassformer.runs.records import DataRecord
from glassformer.training.preparation import describe_splits
from glassformer.utils.safe_read import from_json


@for_each("own", [{"n_emoji": 3}, {"lengths": 2, "sha256": 1, "unknown_rate": 5}, {"n_words": 1, "n": 9}, {}])
def test_counts_of_the_task_are_recorded(own: dict[str, int]) -> None:
    context = small("classify").context
    corpus = replace(context.train, stats={**context.train.stats, **own})
    record = describe_splits(replace(context, train=corpus))["train"]
    own.pop("n", None)
    assert record.counts == (own or None) and record.n == len(context.train)
    assert record.n_tokens == context.train.stats["n_tokens"]
    as_json = DataRecord(splits={"train": record}).as_json()
    assert from_json(DataRecord, as_json, "data.json").train.counts == (own or None)
