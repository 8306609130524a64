"""Small tasks in memory, trained in a second: what the tests of training share."""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.config import Config, DecodeConfig, ModelConfig, TextConfig, TrainConfig
from glassformer.data.batches import Batch
from glassformer.data.splits import Split, TextData
from glassformer.nn.dropout import Dropout
from glassformer.run import Run
from glassformer.runs.model_folder import tensor_chunks
from glassformer.runs.records import StepMetrics
from glassformer.tasks import TASKS, Task
from glassformer.training.loop import Callback, RunContext, TrainState, Validation, optimizer_step, train_steps

CPU = torch.device("cpu")
MODEL = ModelConfig(n_layers=1, d_model=32, n_heads=2, d_ff=64, dropout=0.1)
TRAIN = TrainConfig(epochs=2, max_tokens=128, lr=3e-3, precision="fp32", device="cpu", ema_decay=0.9)


def config_of(task: str, **train: object) -> Config:
    """A small configuration of a task."""
    of_words = task in ("classify", "multilabel", "regress", "tag")
    text = TextConfig(tokenizer="word" if of_words else "char", vocab_size=200, max_len=24)
    decode = DecodeConfig(beam_size=1, max_new_tokens=24)
    return Config(task=task, text=text, model=MODEL, train=replace(TRAIN, **train), decode=decode)


def data_of(task: str, n: int = 60, seed: int = 0) -> TextData:
    """Made data: a label is whether a text says good, a number how often; a target a source reversed; looping text."""
    rng = np.random.default_rng(seed)

    def split(name: str, n: int) -> Split:
        words = [" ".join(rng.choice(list("abcdefg"), rng.integers(2, 9))) for _ in range(n)]
        if task == "classify":
            labels = [("bad", "good")[x] for x in rng.integers(0, 2, n)]
            texts = [f"{w} {label} {w[::-1]}" for w, label in zip(words, labels, strict=True)]
            return Split(texts, labels, name)
        if task == "multilabel":
            sets = [[name for name in ("bad", "good", "odd") if rng.random() < 0.4] for _ in range(n)]
            texts = [f"{w} {' '.join(names)} {w[::-1]}" for w, names in zip(words, sets, strict=True)]
            return Split(texts, ["\n".join(names) for names in sets], name)
        if task == "tag":
            texts = [f"{w} good {w[::-1]}" for w in words]
            return Split(texts, ["\n".join("B-G" if x == "good" else "O" for x in t.split()) for t in texts], name)
        if task == "regress":
            n_good = rng.integers(0, 5, n)
            texts = [f"{w} {' '.join(['good'] * k)} {w[::-1]}" for w, k in zip(words, n_good, strict=True)]
            return Split(texts, [str(10 + 2.5 * k) for k in n_good], name)
        if task == "translate":
            sources = [w.replace(" ", "") for w in words]
            return Split(sources, [s[::-1] for s in sources], name)
        if task == "pretrain":
            return Split(words, None, name)
        return Split(["".join(words)], None, name)

    return TextData(split("train", n), split("valid", max(8, n // 4)), split("test", max(8, n // 4)))


def random_run(config: Config, data: TextData, seed: int = 0, scale: float = 2.0, path: Path | None = None) -> Run:
    """A run of random weights whose predictions depend strongly on the text; no bias and no norm is as it begins."""
    task = TASKS[config.task].from_data(config, data)
    torch.manual_seed(seed)
    model = task.build_model()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(scale) if p.ndim > 1 and p.any() else p.add_(0.3 * torch.randn_like(p))
    return Run(path or Path("runs") / config.task, task, model.eval(), CPU)


def without_dropout(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if isinstance(module, Dropout):
            module.p = 0.0
    return model


class Enough(Exception):
    """Ends a training after a step."""


def steps_of(
    state: TrainState, context: RunContext, most: int | None = None, act: Callback | None = None
) -> list[StepMetrics]:
    """Reports of at most `most` steps with their validations; `act` follows each."""
    reports: list[StepMetrics] = []

    def note(report: StepMetrics) -> None:
        reports.append(report)
        if act is not None:
            act(report)
        if len(reports) == most:
            raise Enough

    with suppress(Enough):
        train_steps(state, context, [Validation(state, context), note])
    return reports


@dataclass
class Small:
    """Everything `train_steps` takes."""

    context: RunContext

    @property
    def config(self) -> Config:
        return self.context.config

    @property
    def task(self) -> Task:
        return self.context.task

    def new_state(self) -> TrainState:
        torch.manual_seed(self.config.train.seed)
        return TrainState(self.task.build_model(), self.task)

    def batches(self, epoch: int = 0) -> list[np.ndarray]:
        """The plan of an epoch."""
        return self.task.epoch_batches(self.context.train, epoch)

    def batch(self, index: np.ndarray) -> Batch:
        """One entry of a plan."""
        return self.task.make_batch(self.context.train, index)

    def update(self, state: TrainState, batches: list[Batch], lr: float) -> tuple[float, float]:
        """One update of a state."""
        return optimizer_step(state, self.context, batches, lr)[:2]

    def run(self, state: TrainState, most: int | None = None) -> list[StepMetrics]:
        """Reports of at most `most` updates; what stops there is a run that was killed there."""
        return steps_of(state, self.context, most)


def small(name: str, n: int = 60, **train: object) -> Small:
    """A task on made data, ready to train."""
    return small_run(config_of(name, **train), data_of(name, n))


def small_run(config: Config, data: TextData) -> Small:
    """A run of a configuration on data in memory."""
    task = TASKS[config.task].from_data(config, data)
    corpus, valid = task.encode(data.train, training=True), task.encode(data.valid, training=False)
    context = RunContext(data, task, corpus, valid, CPU)
    return Small(context)


def state_sha256(tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> str:
    """One SHA-256 of a whole state: equal exactly when every bit of it is."""
    digest = hashlib.sha256(json.dumps(state, sort_keys=True, indent=1).encode("utf-8"))
    for chunk in tensor_chunks(tensors):
        digest.update(chunk)
    return digest.hexdigest()
