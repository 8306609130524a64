"""What an evaluation of translations records: how they were made, and how many pairs were cut."""

from __future__ import annotations

from dataclasses import replace

from tests.helpers.for_each import for_each
from tests.helpers.small import small

from glassformer.data.splits import Split
from glassformer.runs.records import Evaluation
from glassformer.tasks.translate import REPORT


@for_each(
    ("changes", "recorded", "sentence"),
    [
        ({"beam_size": 3}, {"beam_size": 3, "length_penalty": 1.0}, "Decoded with beam 3."),
        (
            {"sample": True, "temperature": 0.5, "decode_seed": 7},
            {"sample": True, "temperature": 0.5},
            "temperature 0.5",
        ),
        ({"sample": True, "top_k": 2, "beam_size": 5}, {"top_k": 2, "decode_seed": 0}, "seed 0"),
    ],
)
def test_beam_search_and_sampling(changes: dict, recorded: dict, sentence: str) -> None:
    run = small("translate", n=12)
    decode = replace(run.config.decode, max_new_tokens=4, **changes)
    scores = run.task.evaluate(run.new_state().eval_model, run.context.data.valid, decode)
    assert recorded.items() <= scores.items()
    assert ("beam_size" in scores) != decode.sample
    [details] = REPORT.details(Evaluation("translate", "test", scores))
    assert sentence in details and ("beam" in details) != decode.sample


def test_a_pair_of_which_both_sides_are_cut_is_one_that_is_cut() -> None:
    made = small("translate")
    long = " ".join("abcdefgh" * made.config.text.max_len)
    corpus = made.task.encode(Split([long, "a b", "a"], [long, "a b", long], "x"), training=False)
    assert corpus.stats["n_truncated"] == 2 and corpus.stats["n"] == 3
