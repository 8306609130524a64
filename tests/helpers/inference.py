"""Explain small tasks with random models, whose predictions depend strongly on their input."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from tests.helpers.small import CPU, config_of, data_of
from torch import nn

from glassformer.explain.explanation import Explanation, TraceRequest, explain
from glassformer.tasks import TASKS, Task


@dataclass(frozen=True)
class Subject:
    task: Task
    model: nn.Module
    path: Path = Path()
    device: torch.device = CPU


def untrained(name: str, word_mask_prob: float = 0.1, seed: int = 0, **model: Any) -> Subject:
    """Return a task on synthetic data with a random model whose predictions depend strongly on its input."""
    config = config_of(name, word_mask_prob=word_mask_prob)
    config = replace(config, model=replace(config.model, **({"dropout": 0.0} | model)))
    task = TASKS[config.task].from_data(config, data_of(name))
    torch.manual_seed(seed)
    network = task.build_model()
    with torch.no_grad():
        for p in network.parameters():
            p.mul_(2.0) if p.ndim > 1 else p.add_(0.3 * torch.randn_like(p))
    return Subject(task, network.eval())


def infer(subject: Subject, text: str, target: str = "") -> Explanation:
    """Return the explanation of a text: of a translator with this target, of a language model with one token more."""
    name = subject.task.name
    decode = {"max_new_tokens": 1} if name == "lm" else {}
    return explain(subject, TraceRequest(text, target=target if name == "translate" else None, decode=decode))
