"""Glassformer as it is shipped: its models, its batches, and the update of its own training loop.

For part i: a recipe with a shorter schedule, scored as its own validation scores it.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from benchmarks.speed.peers.serving import ArrayBatch, Spec, serve
from benchmarks.speed.peers.training import WARM_UP_UPDATES, start_alike
from benchmarks.speed.workloads import FIRST_WORD, Workload, load_data, word_of

from glassformer.config import Config, ModelConfig, TextConfig, TrainConfig
from glassformer.config.recipes import load_recipe, override
from glassformer.data.corpus import EncodedCorpus, RaggedArray
from glassformer.data.splits import Split, TextData
from glassformer.tasks import task_class
from glassformer.text.tokenizer import Tokenizer
from glassformer.training.computing import CHOICES, computing, in_words, trial
from glassformer.training.loop import RunContext, TrainState, optimizer_step, train_step, validation_scores
from glassformer.training.preparation import prepare
from glassformer.utils.device import Computing


def config_of(w: Workload) -> Config:
    """Return the workload as a configuration of glassformer."""
    translate = w.kind == "translate"
    model = ModelConfig(
        n_layers=w.n_layers,
        d_model=w.d_model,
        n_heads=w.n_heads,
        dropout=w.dropout,
        pre_norm=w.pre_norm,
        activation="relu" if translate else "gelu",
        positions="sinusoidal" if translate else "learned",
        embedding_init_std=None if translate else 0.02,
        tie_embeddings=True,
        pooling="mean",
    )
    train = TrainConfig(
        steps=1,
        max_tokens=w.max_tokens,
        lr=w.lr,
        max_grad_norm=1.0,
        optimizer="adamw",
        schedule="constant",
        weight_decay=0.01,
    )
    text = TextConfig(tokenizer="word", vocab_size=w.vocab_size, max_len=w.max_len)
    return Config(task=w.kind, model=model, train=train, text=text)


def words_tokenizer(w: Workload) -> Tokenizer:
    """Return a tokenizer with the workload's number of words and glassformer's special tokens."""
    words = [word_of(i) for i in range(FIRST_WORD, w.vocab_size)]
    tokenizer = Tokenizer.train([" ".join(words)], TextConfig(tokenizer="word", vocab_size=w.vocab_size))
    assert tokenizer.encode(" ".join(words)) == list(range(FIRST_WORD, w.vocab_size))
    return tokenizer


class OurTrainer:
    """One row of glassformer, with the settings of `computing` for as long as the process lives."""

    def __init__(self, spec: Spec) -> None:
        w = spec.workload
        torch.manual_seed(spec.seed)
        config, texts = config_of(w), load_data(spec.data)[0]
        task = task_class(w.kind)(config, words_tokenizer(w), ["0", "1"] if w.kind == "classify" else None)
        self.corpus = EncodedCorpus(
            RaggedArray(texts.ids, np.array([0, len(texts.ids)]) if w.kind == "lm" else texts.offsets),
            target=RaggedArray(texts.target, texts.target_offsets) if len(texts.target) else None,
            labels=texts.labels if len(texts.labels) else None,
        )
        nothing = TextData(Split([]), Split([]), None, [])
        run, set_to = RunContext(nothing, task, self.corpus, self.corpus, torch.device("cpu")), spec.settings
        found = Computing(
            precision="bf16" if set_to.precision == "bf16" else "fp32",
            products="onednn" if set_to.medium else "blas",
            attention="fused" if set_to.flash else "explicit",
        )
        if set_to.precision == "auto":
            found, _ = trial(run)
            self.chosen = in_words(found)
        train = replace(config.train, **{name: getattr(found, name) for name in CHOICES})
        self.entered = ExitStack()  # held, for one that is dropped leaves what it entered
        self.run = self.entered.enter_context(computing(run.with_config(replace(config, train=train))))
        model = task.build_model()
        start_alike(model, embedding_std=w.d_model**-0.5 if w.kind == "translate" else 0.02)
        self.state = TrainState(model, task)
        self.w, self.texts = w, texts
        self.n_parameters = sum(p.numel() for p in model.parameters())

    def prepare(self, batch: ArrayBatch) -> Any:
        """Return the same examples through the task's own collation."""
        return self.run.task.make_batch(self.corpus, self.index_of(batch))

    def index_of(self, batch: ArrayBatch) -> np.ndarray:
        """Return the batch as an entry of a batch plan."""
        if self.w.kind != "lm":
            return batch.index
        start = self.texts.offsets[batch.index]
        return np.stack([start, start + self.w.max_len, start + 1], axis=1)

    def update(self, prepared: Any) -> float:
        """Run one step of the training loop, with the number of threads that it chooses."""
        if self.run.threads is not None:
            self.run.threads.adjust()
        lr = self.w.lr * min(1.0, (self.state.progress.step + 1) / WARM_UP_UPDATES)
        loss = optimizer_step(self.state, self.run, [prepared], lr).loss
        self.state.progress.step += 1
        return loss


class OurCurve:
    """The steps of `glassformer train RECIPE --steps N`.

    Args:
        spec: "recipe", "steps", "seed", and the "metric" of its validation that is the score.
    """

    def __init__(self, spec: dict[str, Any]) -> None:
        changes = {"seed": spec["seed"], "steps": spec["steps"], "snapshots": False}
        config = override(load_recipe(spec["recipe"]), changes)
        self.entered = ExitStack()
        self.context, self.metric = self.entered.enter_context(computing(prepare(config))), spec["metric"]
        torch.manual_seed(config.train.seed)
        self.state = TrainState(self.context.task.build_model(), self.context.task)

    def step(self, seconds: float) -> bool:
        """Run the next step, if there is one; the harness asks for scores, and none is validated in between."""
        progress, n = self.state.progress, self.context.config.train.accumulate
        if progress.finished:
            return False
        if progress.position == 0:
            self.plan = [*self.context.task.epoch_batches(self.context.train, progress.epoch)]
        part = self.plan[progress.position : progress.position + n]
        train_step(self.state, self.context, part, len(self.plan))
        return True

    def score(self) -> dict[str, float]:
        """Return the score of the averaged weights."""
        c = self.context
        return {"score": validation_scores(c, self.state, c.valid, c.data.valid)[self.metric]}


if __name__ == "__main__":
    serve(OurTrainer, OurCurve)
