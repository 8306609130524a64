"""A stable loss: `binary_cross_entropy(logits, labels)`."""

from __future__ import annotations

import torch
from torch import Tensor

from exercises.checker import Exercise


def solution(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean binary cross-entropy of logits (N,) and labels (N,), 0.0 or 1.0, as a tensor without axes."""
    losses = logits.clamp(min=0) - logits * labels + (1 + (-logits.abs()).exp()).log()
    return losses.mean()


def library(logits: Tensor, labels: Tensor) -> Tensor:
    """Return what torch computes; the reference."""
    return torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)


def in_two_steps(logits: Tensor, labels: Tensor) -> Tensor:
    """Take the logarithm of the sigmoid."""
    p = logits.sigmoid()
    return -(labels * p.log() + (1 - labels) * (1 - p).log()).mean()


def one_class_only(logits: Tensor, labels: Tensor) -> Tensor:
    """Score only texts with the label 1."""
    return (-labels * torch.nn.functional.logsigmoid(logits)).mean()


def reversed_labels(logits: Tensor, labels: Tensor) -> Tensor:
    """Exchange the classes."""
    return library(-logits, labels)


def of_all(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the sum."""
    return library(logits, labels) * len(logits)


def of_probabilities(logits: Tensor, labels: Tensor) -> Tensor:
    """Take logits for probabilities."""
    p = logits.clamp(1e-7, 1 - 1e-7)
    return -(labels * p.log() + (1 - labels) * (1 - p).log()).mean()


def inputs(generator: torch.Generator) -> tuple[Tensor, ...]:
    """Return logits, in some cases one of ±1000, and labels of both kinds."""
    n = int(torch.randint(3, 9, (), generator=generator))
    logits = 2 * torch.randn(n, generator=generator)
    labels = (torch.rand(n, generator=generator) < 0.5).float()
    labels[0], labels[1] = 0.0, 1.0
    if torch.rand((), generator=generator) < 0.5:
        logits[0] = -1000.0
        logits[1] = 1000.0 if torch.rand((), generator=generator) < 0.5 else -1000.0
    return logits, labels


EXERCISE = Exercise(
    reference=library,
    inputs=inputs,
    mistakes={
        in_two_steps: "a sigmoid of 1000 is rounded to 1, and log(1 - 1) is minus infinity: use log(1 + exp(-|x|))",
        one_class_only: "texts with the label 0 have a loss, too",
        reversed_labels: "a large logit speaks for the label 1, and here it speaks for 0",
        of_all: "return the mean, not the sum",
        of_probabilities: "these are logits, not probabilities: the sigmoid is missing",
    },
)
