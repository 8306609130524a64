"""The recipe of GPT-2's size: what docs/ranks.md says of it, and its dry run, without the sizes that need a GPU."""

from __future__ import annotations

from pathlib import Path

import torch

from glassformer.config.recipes import load_recipe
from glassformer.models import LanguageModel
from glassformer.models.build import decoder_flops

PAGE = (Path(__file__).parents[2] / "docs" / "ranks.md").read_text(encoding="utf-8")


def test_the_page_s_arithmetic_is_that_of_the_recipe() -> None:
    """On the meta device, where a model of any size is built at once and holds nothing."""
    config = load_recipe("gpt2-124m")
    c, vocab_size = config.train, config.text.vocab_size
    with torch.device("meta"):
        model = LanguageModel(config.model, vocab_size, config.text.max_len)
    update = c.max_tokens * c.accumulate
    flops = 3 * decoder_flops(config.model, 2 * config.text.max_len, vocab_size, cross=False)
    hours = update * (c.steps or 0) * flops / (0.4 * 989e12) / 3600
    logits = f"{12 * c.max_tokens * vocab_size / 1e9:.1f} GB"
    for message in (
        f"{sum(p.numel() for p in model.parameters()):,} parameters",
        f"{c.steps:,} steps of {update:,} tokens",
        f"{flops / 1e9:.3f} GFLOP per token",
        f"{hours:.1f} hours on one H200",
        f"{hours * 60 / 8:.0f} minutes on eight",
        f"the logits of {c.max_tokens:,} tokens, their softmax and gradient take\n  {logits}",
    ):
        assert message in PAGE, message
