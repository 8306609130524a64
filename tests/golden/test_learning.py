"""Each model learns what it must: a small batch by heart, and copying and reversing by rule."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.small import small

from glassformer.config import Config, DecodeConfig, ModelConfig, TextConfig, TrainConfig
from glassformer.data.batching import epoch_batches, make_batch
from glassformer.data.splits import Split, TextData
from glassformer.tasks import TASKS
from glassformer.training.loop import train_steps, update
from glassformer.training.state import TrainState
from glassformer.training.validation import Validator

CPU = torch.device("cpu")


@pytest.mark.parametrize("task", ["classify", "translate", "lm"])
def test_overfits_a_small_batch(task: str) -> None:
    """One batch again and again: the loss must all but vanish."""
    run = small(task, n=12, max_tokens=256)
    plan = epoch_batches(run.corpus, run.task.name, run.config.train, run.config.text, 0)
    batch = make_batch(run.corpus, run.task.name, plan[0], run.task.tokenizer)
    state = run.new_state()
    for module in state.model.modules():
        if hasattr(module, "p"):
            module.p = 0.0  # no dropout: by heart
    losses = [update(state, run.task, [batch], 3e-3, run.config.train, CPU, "fp32")[0] for _ in range(250)]
    assert losses[0] > 0.5
    assert losses[-1] < 0.05


@pytest.mark.parametrize(("rule", "positions"), [("copy", "sinusoidal"), ("reverse", "learned")])
def test_learns_to_copy_and_to_reverse(rule: str, positions: str) -> None:
    """Strings never seen in training are copied or reversed without a mistake (nearly)."""
    rng = np.random.default_rng(0)

    def split(n: int) -> Split:
        texts = ["".join(rng.choice(list("abcdefghij"), rng.integers(3, 9))) for _ in range(n)]
        return Split(texts, texts if rule == "copy" else [t[::-1] for t in texts], None, rule)

    config = Config(
        task="translate",
        text=TextConfig(tokenizer="char", vocab_size=50, max_len=12),
        model=ModelConfig(n_layers=1, d_model=64, n_heads=4, d_ff=128, dropout=0.0, positions=positions),
        train=TrainConfig(epochs=8, max_tokens=256, lr=4e-3, warmup=0.1, validate_every=4, precision="fp32"),
        decode=DecodeConfig(beam_size=1, max_new_tokens=16),
    )
    data = TextData(split(4000), split(200), split(200))
    task = TASKS["translate"].fit(config, data)
    assert task.metric == "exact_match", "answers of one word are right or wrong"
    torch.manual_seed(1)
    state = TrainState.start(task.build_model(), config.train)
    validator = Validator(
        task, task.encode(data.valid, training=False), data.valid, config.train, CPU, "fp32"
    )
    corpus = task.encode(data.train, training=True)
    reports = list(train_steps(state, task, corpus, validator, config, CPU, "fp32"))
    assert reports[-1].valid is not None
    assert reports[-1].valid["exact_match"] >= 0.97
    with torch.inference_mode():
        beam = task.evaluate(state.model, data.test or data.valid, CPU, replace(config.decode, beam_size=4))
    assert beam["exact_match"] >= 0.95
