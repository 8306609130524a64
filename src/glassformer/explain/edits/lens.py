"""What the model would predict after each layer: later layers are skipped, and the rest of the model reads the state.

Of a decoder this is the logit lens (nostalgebraist 2020); of the encoder of a translator, whose decoder then reads an
early memory, DecoderLens (Langedijk et al. 2023, https://arxiv.org/abs/2310.03686). The last norm takes its statistics
from the state that it reads. Early rows are biased: those states were not made for this reader (Belrose et al. 2023,
https://arxiv.org/abs/2303.08112).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from glassformer.explain.edits.batch import base_logits, edited_logits, followed
from glassformer.explain.explanation import Explanation
from glassformer.explain.predictions import readable


@dataclass(frozen=True)
class LayerRow:
    """The predictions after one layer."""

    layer: int
    """Number of layers that act, from 0; those after them are skipped."""
    tokens: list[str]
    """The most probable class or token of each prediction."""
    log_probs: list[float]
    """Log-probability of what the whole model predicts, in nats."""
    ranks: list[int]
    """Number of classes or tokens with a larger logit than it."""
    kl: list[float]
    """Kullback–Leibler divergence of this distribution from that of the whole model, in nats."""


@dataclass(frozen=True)
class LayersStack:
    """The predictions by layer of one stack; the other stack acts whole."""

    stack: str
    """"encoder" or "decoder"."""
    rows: list[LayerRow]
    """From the embedding alone to the whole model."""


@dataclass(frozen=True)
class LayersSweep:
    """The predictions after each layer."""

    positions: list[int | None]
    """Position of each prediction; null for a classifier."""
    stacks: list[LayersStack]
    """The encoder before the decoder."""


def sweep_layers(explanation: Explanation) -> LayersSweep:
    """Return the predictions after each layer of each stack; the last row is the model's own."""
    depth = explanation.records.n_layers
    variants = [
        [f"{stack}.{i}.state=skip" for i in range(n, n_layers)]
        for stack, n_layers in depth.items()
        for n in range(n_layers)
    ]
    chosen = explanation.answered
    whole = base_logits(explanation)[chosen]
    early = iter(edited_logits(explanation, variants)[:, chosen])
    stacks = []
    for stack, n_layers in depth.items():
        rows = [_row(explanation, n, next(early), whole) for n in range(n_layers)]
        stacks.append(LayersStack(stack, [*rows, _row(explanation, n_layers, whole, whole)]))
    return LayersSweep([explanation.predictions[i].position for i in chosen], stacks)


def _row(explanation: Explanation, layer: int, logits: torch.Tensor, whole: torch.Tensor) -> LayerRow:
    """Return the predictions of logits (P, C), compared with those of the whole model."""
    task = explanation.subject.task
    log_probs, target = logits.log_softmax(dim=-1), whole.log_softmax(dim=-1)
    own = followed(explanation, log_probs)
    return LayerRow(
        layer=layer,
        tokens=[readable(task, id) for id in logits.argmax(dim=-1).tolist()],
        log_probs=own.tolist(),
        ranks=(log_probs > own[:, None]).sum(dim=-1).tolist(),
        kl=(target.exp() * (target - log_probs)).sum(dim=-1).tolist(),
    )
