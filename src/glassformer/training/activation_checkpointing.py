"""How the layers of a model are computed while it is trained: as they are, compiled, or twice to save memory.

The numbers stay (compiled ones up to rounding), and so do the names of the weights: a layer is told to compute otherwise,
and is not wrapped. Models that are only asked have none of it.
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
    """Have each layer of the stacks computed as the settings say."""
    stacks = [module for module in model.modules() if isinstance(module, Encoder | Decoder)]
    for layer in (layer for stack in stacks for layer in stack.layers):
        if config.recompute:
            layer.forward = recomputed(layer.forward)
        if config.compile:
            layer.compile()


def recomputed(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A forward pass of which only the input is kept; the backward pass computes the rest again (Chen et al. 2016).

    Random numbers are drawn again as they were, so dropout hides the same elements.
    """
    return wraps(forward)(partial(checkpoint, forward, use_reentrant=False))
