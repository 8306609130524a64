"""Plain `torch.nn.Transformer`: what anyone writes with torch and nothing else."""

from __future__ import annotations

import math
from typing import Any

import torch
from benchmarks.speed.peers.serving import Spec, serve
from benchmarks.speed.peers.training import Batch, build, mean_pool, sinusoids
from torch import Tensor, nn


def layer_options(spec: Spec) -> dict[str, Any]:
    """Return the arguments of torch's layers."""
    w = spec.workload
    return {
        "d_model": w.d_model,
        "nhead": w.n_heads,
        "dim_feedforward": w.d_ff,
        "dropout": w.dropout,
        "activation": "relu" if w.kind == "translate" else "gelu",
        "batch_first": True,
        "norm_first": w.pre_norm,
    }


def as_ours(layers: nn.Module) -> nn.Module:
    """Remove the dropout on attention weights and inside the feed-forward block, which the workloads do not have."""
    for layer in layers.modules():
        if isinstance(layer, nn.MultiheadAttention):
            layer.dropout = 0.0
        if isinstance(layer, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
            layer.dropout = nn.Dropout(0.0)
    return layers


class Classifier(nn.Module):
    """Learned positions, `nn.TransformerEncoder`, mean pooling."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        w = spec.workload
        self.tokens, self.positions = (nn.Embedding(w.vocab_size, w.d_model), nn.Embedding(w.max_len, w.d_model))
        self.dropout = nn.Dropout(w.dropout)
        self.encoder = as_ours(nn.TransformerEncoder(nn.TransformerEncoderLayer(**layer_options(spec)), w.n_layers))
        self.head = nn.Linear(w.d_model, 2)

    def forward(self, batch: Batch) -> Tensor:
        x = self.tokens(batch.ids) + self.positions(torch.arange(batch.ids.shape[1]))
        hidden = None if batch.mask is None else ~batch.mask  # True = may not attend
        x = self.encoder(self.dropout(x), src_key_padding_mask=hidden)
        return self.head(mean_pool(x, batch.mask))


class Translator(nn.Module):
    """One tied embedding, sinusoids, `nn.TransformerEncoder` and `nn.TransformerDecoder`."""

    positions: Tensor

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        w, options = spec.workload, layer_options(spec)
        self.tokens = nn.Embedding(w.vocab_size, w.d_model)
        self.register_buffer("positions", sinusoids(w.max_len + 1, w.d_model))
        self.dropout = nn.Dropout(w.dropout)
        self.encoder = as_ours(nn.TransformerEncoder(nn.TransformerEncoderLayer(**options), w.n_layers))
        self.decoder = as_ours(nn.TransformerDecoder(nn.TransformerDecoderLayer(**options), w.n_layers))

    def embed(self, ids: Tensor) -> Tensor:
        return self.dropout(self.tokens(ids) * math.sqrt(self.tokens.embedding_dim) + self.positions[: ids.shape[1]])

    def forward(self, batch: Batch) -> Tensor:
        assert batch.tgt_in is not None
        hidden = None if batch.mask is None else ~batch.mask
        memory = self.encoder(self.embed(batch.ids), src_key_padding_mask=hidden)
        causal = nn.Transformer.generate_square_subsequent_mask(batch.tgt_in.shape[1])
        x = self.decoder(
            self.embed(batch.tgt_in), memory, tgt_mask=causal, tgt_is_causal=True, memory_key_padding_mask=hidden
        )
        return x @ self.tokens.weight.T


class LanguageModel(nn.Module):
    """Learned positions, `nn.TransformerEncoder` with a causal mask, tied output."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        w = spec.workload
        self.tokens, self.positions = (nn.Embedding(w.vocab_size, w.d_model), nn.Embedding(w.max_len, w.d_model))
        self.dropout = nn.Dropout(w.dropout)
        layer = nn.TransformerEncoderLayer(**layer_options(spec))
        self.layers = as_ours(nn.TransformerEncoder(layer, w.n_layers, norm=nn.LayerNorm(w.d_model)))

    def forward(self, batch: Batch) -> Tensor:
        length = batch.ids.shape[1]
        x = self.tokens(batch.ids) + self.positions(torch.arange(length))
        causal = nn.Transformer.generate_square_subsequent_mask(length)
        x = self.layers(self.dropout(x), mask=causal, is_causal=True)
        return x @ self.tokens.weight.T


if __name__ == "__main__":
    serve(build({"classify": Classifier, "translate": Translator, "lm": LanguageModel}))
