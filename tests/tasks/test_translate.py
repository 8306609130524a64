"""What an evaluation of translations records: how they were made, and how many pairs were cut."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
from tests.helpers.for_each import for_each
from tests.helpers.small import small

from glassformer.data.splits import Split
from glassformer.runs.records import Evaluation
from glassformer.tasks.translate import REPORT


@for_each(("changes", "sentence"), [({"beam_size": 3}, "Decoding: beam 3."), ({"sample": True}, "Decoding: sampling.")])
def test_an_evaluation_records_its_decoding(changes: dict, sentence: str, caplog: pytest.LogCaptureFixture) -> None:
    run = small("translate", n=12)
    decode = replace(run.config.decode, max_new_tokens=4, **changes)
    caplog.set_level("INFO")
    scores = run.task.evaluate(run.new_state().eval_model, run.context.data.valid, decode)
    assert scores["decode"] == asdict(decode) and "n_truncated" in scores and "truncated" not in scores
    [details] = REPORT.details(Evaluation("translate", "test", scores))
    assert sentence in details and "validations are greedy" in caplog.text


def test_a_pair_of_which_both_sides_are_cut_is_one_that_is_cut() -> None:
    made = small("translate")
    long = " ".join("abcdefgh" * made.config.text.max_len)
    corpus = made.task.encode(Split([long, "a b", "a"], [long, "a b", long], "x"), training=False)
    assert corpus.stats["n_truncated"] == 2 and corpus.stats["n"] == 3
