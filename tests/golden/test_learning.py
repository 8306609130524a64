"""Each model learns what it must: a small batch by heart, and reversing by rule."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tests.helpers.for_each import for_each
from tests.helpers.small import small, small_run, without_dropout

from glassformer.config import Config, DecodeConfig, ModelConfig, TextConfig, TrainConfig
from glassformer.data.splits import Split, TextData


@for_each("task", ["classify", "lm"])
def test_overfits_a_small_batch(task: str) -> None:
    """One batch again and again: the loss must all but vanish."""
    run = small(task, n=12, max_tokens=256)
    batch = run.batch(run.batches()[0])
    state = run.new_state()
    without_dropout(state.model)
    losses = [run.update(state, [batch], 3e-3)[0] for _ in range(250)]
    assert losses[0] > 0.5
    assert losses[-1] < 0.05


def test_learns_to_reverse() -> None:
    """Strings never seen in training are reversed without a mistake (nearly)."""
    rng = np.random.default_rng(0)

    def split(n: int) -> Split:
        texts = ["".join(rng.choice(list("abcdef"), rng.integers(2, 6))) for _ in range(n)]
        return Split(texts, [text[::-1] for text in texts], "reverse")

    config = Config(
        task="translate",
        text=TextConfig(tokenizer="char", vocab_size=50, max_len=12),
        model=ModelConfig(n_layers=1, d_model=64, n_heads=4, d_ff=128, dropout=0.0),
        train=TrainConfig(epochs=8, max_tokens=256, lr=4e-3, warmup=0.1, validate_every=4, precision="fp32"),
        decode=DecodeConfig(beam_size=1, max_new_tokens=16),
    )
    run = small_run(config, TextData(split(2500), split(100), split(100)))
    assert run.task.metric == "exact_match", "answers of one word are right or wrong"
    state = run.new_state()
    valid = run.run(state)[-1].valid
    assert valid is not None and valid["exact_match"] >= 0.97
    beam = run.task.evaluate(state.model, run.context.data.test, replace(config.decode, beam_size=4))
    assert beam["exact_match"] >= 0.95
