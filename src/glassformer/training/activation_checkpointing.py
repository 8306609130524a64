"""Activation checkpointing and compilation of the layers while training.

Checkpointing changes no result, compilation only its rounding. The forward method of a layer is replaced and the layer
is not wrapped, so that the names of the weights stay.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from glassformer.config import TrainConfig
from glassformer.nn import Decoder, Encoder


def prepare_layers(model: nn.Module, config: TrainConfig) -> None:
    """Checkpoint or compile each encoder and decoder layer of the model in place, as configured."""
    stacks = [module for module in model.modules() if isinstance(module, Encoder | Decoder)]
    for layer in (layer for stack in stacks for layer in stack.layers):
        if config.activation_checkpointing:
            layer.forward = checkpointed(layer.forward)
        if config.compile:
            layer.compile()


def checkpointed(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Return a forward pass that keeps its input only and is recomputed in the backward pass (Chen et al. 2016).

    The random state is restored for it, so that dropout zeroes the same elements.
    """
    return wraps(forward)(partial(checkpoint, forward, use_reentrant=False))
