"""Glassformer's translator as a user has it: `Run.predict`, its tokenizer included."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from benchmarks.speed.peers.ours import words_tokenizer
from benchmarks.speed.peers.translating import Checkpoint, serve_translator
from benchmarks.speed.workloads import WORKLOADS

import glassformer
from glassformer.api import Run
from glassformer.config import Config, ModelConfig, TextConfig
from glassformer.tasks import task_class
from glassformer.utils.device import Precision


class Ours:
    """A `Run`, loaded from its folder, or put together from random weights."""

    def __init__(self, checkpoint: Checkpoint, settings: dict[str, Any]) -> None:
        self.words = checkpoint.words
        precision = settings["precision"]
        if checkpoint.run:
            self.run = glassformer.load(checkpoint.run, precision=precision)
        else:
            self.run = random_run(checkpoint, precision)
        self.options = {"max_new_tokens": checkpoint.steps} if checkpoint.steps else {}

    def bulk(self, which: list[int], beam: int) -> list[list[int]]:
        """Translate all texts in one call."""
        answers = self.run.predict([self.words[i] for i in which], beam_size=beam, length_penalty=1.0, **self.options)
        return [self.run.task.tokenizer.encode(answer["translation"]) for answer in answers]

    def one(self, which: int, beam: int) -> list[int]:
        """Translate one text."""
        return self.bulk([which], beam)[0]


def random_run(checkpoint: Checkpoint, precision: Precision) -> Run:
    """Return a run with the checkpoint's weights and words for its tokens."""
    s = checkpoint.sizes
    model = ModelConfig(
        n_layers=s["n_layers"],
        d_model=s["d_model"],
        n_heads=s["n_heads"],
        d_ff=s["d_ff"],
        activation=s["activation"],
        pre_norm=s["pre_norm"],
        tie_embeddings=True,
    )
    text = TextConfig(tokenizer="word", vocab_size=s["vocab_size"], max_len=s["max_len"] - 1)
    words = words_tokenizer(replace(WORKLOADS["b"], vocab_size=s["vocab_size"]))
    task = task_class("translate")(Config(task="translate", model=model, text=text), words)
    translator = task.build_model()
    named = dict(translator.named_parameters())
    with torch.no_grad():
        for name, p in named.items():
            p.copy_(torch.from_numpy(checkpoint.weights[name]))
    return Run(Path("."), task, translator.eval(), torch.device("cpu"), precision)


if __name__ == "__main__":
    serve_translator(Ours)
