"""A nanoGPT-like language model, restated: one file, fused attention, queries, keys and values in one product."""

from __future__ import annotations

import torch
from benchmarks.speed.peers.serving import Spec, serve
from benchmarks.speed.peers.training import Batch, build
from torch import Tensor, nn
from torch.nn import functional as F


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, d_model: int, n_heads: int, dropout: float) -> None:
        super().__init__()
        self.n_heads, self.dropout = n_heads, nn.Dropout(dropout)
        self.norm_1, self.norm_2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
        self.up, self.down = nn.Linear(d_model, 4 * d_model), nn.Linear(4 * d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            y.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for y in self.qkv(self.norm_1(x)).chunk(3, dim=-1)
        )
        context = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(context.transpose(1, 2).flatten(-2)))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm_2(x)))))


class NanoGPT(nn.Module):
    """Embeddings, blocks, norm, tied output."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        w = spec.workload
        self.tokens, self.positions = (nn.Embedding(w.vocab_size, w.d_model), nn.Embedding(w.max_len, w.d_model))
        self.dropout, self.norm = nn.Dropout(w.dropout), nn.LayerNorm(w.d_model)
        self.blocks = nn.ModuleList(Block(w.d_model, w.n_heads, w.dropout) for _ in range(w.n_layers))

    def forward(self, batch: Batch) -> Tensor:
        x = self.dropout(self.tokens(batch.ids) + self.positions(torch.arange(batch.ids.shape[1])))
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tokens.weight)


if __name__ == "__main__":
    serve(build({"lm": NanoGPT}))
