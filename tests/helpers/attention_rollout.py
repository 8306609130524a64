"""Compute attention rollout: attention weights multiplied through the layers (Abnar and Zuidema 2020).

It describes attention and does not explain a prediction: weights do not show what the vectors they mix contain, nor how
the result is used (Jain and Wallace 2019).
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

import numpy as np
from jaxtyping import Float

from glassformer.errors import UsageError
from glassformer.explain.explanation_data import ExplanationData
from glassformer.explain.tensor_values import get_tensor


def attention_rollout(explanation: ExplanationData) -> dict[str, Float[np.ndarray, "L K"]]:
    """Return, for each position of the last stream, the shares of the tokens of each stream in its vector.

    Returns:
        One matrix per stream; over all matrices, each row sums to one.

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
    """Return the attention rollout of an encoder or decoder: heads averaged, half of each layer for the residual.

    Args:
        weights: the attention weights of each layer, first to last.

    Returns:
        (L, L): row i holds the shares of the input tokens in position i.
    """
    flow = np.eye(weights[0].shape[-1])
    for layer in weights:
        flow = _with_residual(layer) @ flow
    return flow


def rollout_decoder(
    self_weights: Sequence[Float[np.ndarray, "H T T"]],
    cross_weights: Sequence[Float[np.ndarray, "H T S"]],
    memory: Float[np.ndarray, "S S"],
) -> tuple[Float[np.ndarray, "T S"], Float[np.ndarray, "T T"]]:
    """Return the rollout of a decoder with cross attention, half of which is the residual too (not in the paper).

    Args:
        self_weights: the self-attention weights of each layer, first to last.
        cross_weights: the cross-attention weights of each layer, first to last.
        memory: the encoder's rollout.

    Returns:
        The shares of the source (T, S) and of the target (T, T); over both, each row sums to one.
    """
    target, source = (np.eye(self_weights[0].shape[-1]), np.zeros((cross_weights[0].shape[-2], memory.shape[-1])))
    for self_layer, cross_layer in zip(self_weights, cross_weights, strict=True):
        mixed = _with_residual(self_layer)
        source, target = mixed @ source, mixed @ target
        attended = cross_layer.astype(np.float64).mean(axis=0) @ memory
        # A half, or all where every key is masked.
        residual = 1 - attended.sum(axis=-1, keepdims=True) / 2
        source, target = residual * source + attended / 2, residual * target
    return source, target


def _with_residual(weights: Float[np.ndarray, "H L L"]) -> Float[np.ndarray, "L L"]:
    """Return half the mean of the heads plus half the identity; a fully masked row is the identity's."""
    mean = weights.astype(np.float64).mean(axis=0)
    return mean / 2 + np.diag(1 - mean.sum(axis=-1) / 2)


def _weights(explanation: ExplanationData, stack: str, block: str) -> list[Float[np.ndarray, "H Q K"]]:
    """Return the attention weights of each layer of a kind, first to last."""
    ids = [id for id in explanation.records if fnmatchcase(id, f"{stack}.*.{block}.weights")]
    weights = [get_tensor(explanation, id) for id in ids]
    if weights and weights[0].shape[1] != len(explanation.streams[0 if stack == "encoder" else -1]):
        raise UsageError("only a window of this text is kept, which is not enough for attention rollout")
    return weights
