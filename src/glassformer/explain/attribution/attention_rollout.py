"""Where information moved: attention weights followed through the layers.

This describes attention and does not say why a model answered as it did: weights do not tell what was in the
vectors they moved, nor what became of them (Jain and Wallace 2019). For that see `attribute.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

import numpy as np
from jaxtyping import Float

from glassformer.errors import UsageError
from glassformer.explain.explanation_data import ExplanationData
from glassformer.explain.tensor_values import tensor


def attention_rollout(explanation: ExplanationData) -> dict[str, Float[np.ndarray, "L K"]]:
    """For each position of the last stream, which tokens of each stream its vector was mixed from.

    Returns:
        One matrix a stream; the rows of all matrices together add up to one.

    Raises:
        UsageError: the text is so long that only a window of it is kept.
    """
    encoder, decoder = (_weights(explanation, stack, "self") for stack in ("encoder", "decoder"))
    cross = _weights(explanation, "decoder", "cross")
    first, *last = (stream.name for stream in explanation.streams)
    if not cross:
        return {first: rollout(encoder or decoder)}
    source, target = rollout_decoder(decoder, cross, rollout(encoder))
    return {first: source, last[0]: target}


def rollout(weights: Sequence[Float[np.ndarray, "H L L"]]) -> Float[np.ndarray, "L L"]:
    """Attention rollout (Abnar and Zuidema 2020): heads averaged, half of each layer for the residual, and
    the layers multiplied.

    Args:
        weights: of each layer, the first one first.

    Returns:
        (L, L): row i says which tokens of the input position i was mixed from.
    """
    flow = np.eye(weights[0].shape[-1])
    for layer in weights:
        flow = _with_residual(layer) @ flow
    return flow


def rollout_decoder(
    own: Sequence[Float[np.ndarray, "H T T"]],
    cross: Sequence[Float[np.ndarray, "H T S"]],
    memory: Float[np.ndarray, "S S"],
) -> tuple[Float[np.ndarray, "T S"], Float[np.ndarray, "T T"]]:
    """Rollout through a decoder with cross attention, of which the paper does not speak: there too half of
    what comes out is the residual, and half what the memory's positions were mixed from.

    Args:
        own, cross: self and cross attention of each layer, the first one first.
        memory: the encoder's rollout.

    Returns:
        Shares of the source (T, S) and of the target (T, T); a row of both adds up to one.
    """
    target, source = np.eye(own[0].shape[-1]), np.zeros((cross[0].shape[-2], memory.shape[-1]))
    for own_weights, cross_weights in zip(own, cross, strict=True):
        mixed = _with_residual(own_weights)
        source, target = mixed @ source, mixed @ target
        read = cross_weights.astype(np.float64).mean(axis=0) @ memory
        kept = 1 - read.sum(axis=-1, keepdims=True) / 2  # a half, or all where there was nothing to attend to
        source, target = kept * source + read / 2, kept * target
    return source, target


def _with_residual(weights: Float[np.ndarray, "H L L"]) -> Float[np.ndarray, "L L"]:
    """Half the mean of the heads and half the identity; a row without any weight is all identity."""
    mean = weights.astype(np.float64).mean(axis=0)
    return mean / 2 + np.diag(1 - mean.sum(axis=-1) / 2)


def _weights(explanation: ExplanationData, stack: str, block: str) -> list[Float[np.ndarray, "H Q K"]]:
    """Of each layer that has such attention, the first one first."""
    named = [id for id in explanation.records if fnmatchcase(id, f"{stack}.*.{block}.weights")]
    found = [tensor(explanation, id) for id in named]
    if found and found[0].shape[1] != len(explanation.streams[0 if stack == "encoder" else -1]):
        raise UsageError("only a window of this text is kept, and information cannot be followed through it")
    return found
