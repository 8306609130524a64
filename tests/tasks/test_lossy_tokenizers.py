"""A tokenizer that drops some of the text makes bits per character smaller, not the model better."""

from __future__ import annotations

import torch
from tests.helpers.for_each import for_each
from tests.helpers.small import config_of, small_run

from glassformer.config import TextConfig
from glassformer.data.splits import Split, TextData

TEXT = "The cat sat.\nA dog ran on and on.  The End " * 40
LOSES = {
    "word": (TextConfig(tokenizer="word", vocab_size=300, max_len=24), "unknown tokens (1 here)"),
    "lower case": (TextConfig(tokenizer="char", lowercase=True, max_len=24), "unknown tokens (0 here)"),
    "unknown": (TextConfig(tokenizer="char", max_len=24), "unknown tokens (2 here)"),
}


@for_each("name", [*LOSES, "nothing"])
def test_bits_per_character_are_headlined_only_where_they_compare(name: str) -> None:
    text, message = LOSES.get(name, (TextConfig(tokenizer="byte-bpe", vocab_size=300, max_len=24), ""))
    config = config_of("lm")
    parts = [Split([TEXT]), Split([TEXT[:200]]), Split([TEXT[:200] + ("ßß" if name == "unknown" else "")])]
    run = small_run(type(config)(task="lm", text=text, model=config.model, train=config.train), TextData(*parts))
    torch.manual_seed(0)
    scores = run.task.evaluate(run.task.build_model().eval(), parts[2], config.decode)
    assert scores["bits_per_char"] > 0
    if message:
        assert scores["headline"] == "nats_per_token"
        assert message in scores["notes"][0] and "do not compare" in scores["notes"][0]
    else:
        assert "headline" not in scores and "notes" not in scores
