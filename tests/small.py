"""Small tasks in memory, trained in a second: what the tests of training share."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from glassformer.config import Config, DecodeConfig, ModelConfig, TextConfig, TrainConfig
from glassformer.data.corpus import EncodedCorpus
from glassformer.data.splits import Split, TextData
from glassformer.tasks import TASKS, Task
from glassformer.training.loop import StepReport, train_steps
from glassformer.training.state import TrainState
from glassformer.training.validation import Validator

CPU = torch.device("cpu")
MODEL = ModelConfig(n_layers=1, d_model=32, n_heads=2, d_ff=64, dropout=0.1)
TRAIN = TrainConfig(
    epochs=2, max_tokens=128, lr=3e-3, precision="fp32", device="cpu", ema_decay=0.9, average_last=2
)


def config_of(task: str, **train: object) -> Config:
    """A small configuration of a task."""
    text = TextConfig(tokenizer="word" if task == "classify" else "char", vocab_size=200, max_len=24)
    decode = DecodeConfig(beam_size=1, max_new_tokens=24)
    return Config(task=task, text=text, model=MODEL, train=replace(TRAIN, **train), decode=decode)


def data_of(task: str, n: int = 60, seed: int = 0) -> TextData:
    """Made data: the label is whether a text says good; the target is the source reversed; a looping text."""
    rng = np.random.default_rng(seed)

    def split(name: str, n: int) -> Split:
        words = [" ".join(rng.choice(list("abcdefg"), rng.integers(2, 9))) for _ in range(n)]
        if task == "classify":
            labels = [int(x) for x in rng.integers(0, 2, n)]
            texts = [f"{w} {('bad', 'good')[y]} {w[::-1]}" for w, y in zip(words, labels, strict=True)]
            return Split(texts, None, labels, name)
        if task == "translate":
            sources = [w.replace(" ", "") for w in words]
            return Split(sources, [s[::-1] for s in sources], None, name)
        return Split(["".join(words)], None, None, name)

    names = ["bad", "good"] if task == "classify" else None
    return TextData(split("train", n), split("valid", max(8, n // 4)), split("test", max(8, n // 4)), names)


@dataclass
class Small:
    """Everything `train_steps` takes."""

    config: Config
    task: Task
    corpus: EncodedCorpus
    validator: Validator

    def new_state(self) -> TrainState:
        torch.manual_seed(self.config.train.seed)
        return TrainState.start(self.task.build_model(), self.config.train)

    def run(self, state: TrainState, most: int | None = None) -> list[StepReport]:
        """Reports of at most `most` updates; a generator that is dropped there is a run that was killed there."""
        reports = []
        for report in train_steps(state, self.task, self.corpus, self.validator, self.config, CPU, "fp32"):
            reports.append(report)
            if most is not None and len(reports) >= most:
                break
        return reports


def small(name: str, n: int = 60, **train: object) -> Small:
    """A task on made data, ready to train."""
    config, data = config_of(name, **train), data_of(name, n)
    task = TASKS[config.task].fit(config, data)
    corpus, valid = task.encode(data.train, training=True), task.encode(data.valid, training=False)
    return Small(config, task, corpus, Validator(task, valid, data.valid, config.train, CPU, "fp32"))
