"""Counting parameters: `parameters(n_layers, width, inner, vocabulary)`, of a translator with shared embeddings."""

from __future__ import annotations

import torch
from torch import Tensor

from exercises.checker import Exercise


def solution(n_layers: Tensor, width: Tensor, inner: Tensor, vocabulary: Tensor) -> Tensor:
    """Return the number of parameters of a translator with as many encoder as decoder layers and biases."""
    attention = 4 * (width**2 + width)
    feed_forward = 2 * width * inner + inner + width
    norm = 2 * width
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    return n_layers * (encoder_layer + decoder_layer) + vocabulary * width


def counted(n_layers: Tensor, width: Tensor, inner: Tensor, vocabulary: Tensor) -> Tensor:
    """Return the number of parameters of a model of these sizes; the reference."""
    from glassformer import Translator
    from glassformer.config import ModelConfig

    sizes = {"n_layers": int(n_layers), "d_model": int(width), "d_ff": int(inner), "n_heads": 1}
    with torch.device("meta"):
        model = Translator(ModelConfig(**sizes, pre_norm=False), int(vocabulary), max_len=8)
    return torch.tensor(sum(p.numel() for p in model.parameters()))


def one_attention_in_the_decoder(n_layers: Tensor, width: Tensor, inner: Tensor, vocabulary: Tensor) -> Tensor:
    """Forget cross-attention and its norm."""
    return solution(n_layers, width, inner, vocabulary) - n_layers * (4 * (width**2 + width) + 2 * width)


def without_biases(n_layers: Tensor, width: Tensor, inner: Tensor, vocabulary: Tensor) -> Tensor:
    """Count matrices of linear layers only."""
    return solution(n_layers, width, inner, vocabulary) - n_layers * (12 * width + 2 * (inner + width))


def without_norms(n_layers: Tensor, width: Tensor, inner: Tensor, vocabulary: Tensor) -> Tensor:
    """Forget the norms."""
    return solution(n_layers, width, inner, vocabulary) - n_layers * 10 * width


def two_embeddings(n_layers: Tensor, width: Tensor, inner: Tensor, vocabulary: Tensor) -> Tensor:
    """Count the embeddings of source and target apart."""
    return solution(n_layers, width, inner, vocabulary) + vocabulary * width


def inputs(generator: torch.Generator) -> tuple[Tensor, ...]:
    """Return small sizes that differ from each other."""

    def between(low: int, high: int) -> Tensor:
        return torch.randint(low, high, (), generator=generator)

    return between(1, 4), between(5, 9), between(11, 30), between(31, 60)


EXERCISE = Exercise(
    reference=counted,
    inputs=inputs,
    mistakes={
        one_attention_in_the_decoder: "a decoder layer has two attentions, and a norm for each",
        without_biases: "a linear layer has a bias for each of its outputs",
        without_norms: "each sublayer has a norm, with a scale and a shift",
        two_embeddings: "source, target and output share one table here",
    },
)
