"""The whole Transformer on one page: plain PyTorch, to copy (Vaswani et al. 2017)."""

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

PAD, BEGIN, END = 0, 1, 2  # ids of padding, of the start token and of the end token


@dataclass
class Config:
    n_layers: int = 2
    d_model: int = 64  # width D of a token's vector
    n_heads: int = 4
    d_ff: int = 256  # inner width of the feed-forward block
    dropout: float = 0.1
    max_len: int = 512  # longest text, in tokens


class PositionalEncoding(nn.Module):
    """Add sines and cosines of the position to each token's vector; then dropout."""

    def __init__(self, c):
        super().__init__()
        position = torch.arange(c.max_len, dtype=torch.float64)[:, None]
        even = torch.arange(0, c.d_model, 2, dtype=torch.float64)
        angle = position / 10000 ** (even / c.d_model)  # (max_len, D / 2)
        table = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)
        self.register_buffer("table", table.float(), persistent=False)
        self.dropout = nn.Dropout(c.dropout)

    def forward(self, x):  # (B, L, D)
        return self.dropout(x + self.table[: x.shape[1]])


class Embedding(nn.Module):
    """Look up a vector per id, multiply it by √D, and add its position."""

    def __init__(self, c, vocab_size):
        super().__init__()
        self.scale = math.sqrt(c.d_model)
        self.weight = nn.Parameter(torch.randn(vocab_size, c.d_model) / self.scale)
        self.positions = PositionalEncoding(c)

    def forward(self, ids):  # (B, L)
        return self.positions(self.weight[ids] * self.scale)  # (B, L, D)


def padding_mask(ids):
    """Return which keys are real tokens: (B, 1, 1, L), for all heads and queries."""
    return (ids != PAD)[:, None, None, :]


def causal_mask(ids):
    """Return which keys are not after the query: (L, L), a lower triangle."""
    length = ids.shape[1]
    return torch.ones(length, length, dtype=torch.bool, device=ids.device).tril()


def attention(q, k, v, mask):
    """Return softmax(q kᵀ / √E) v, with weight 0 where the mask is False."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, H, Q, K)
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    return weights @ v  # (B, H, Q, E)


class MultiHeadAttention(nn.Module):
    """Attend from x (B, Q, D) to memory (B, K, D), in H heads of width E = D / H."""

    def __init__(self, c):
        super().__init__()
        self.n_heads = c.n_heads
        self.q_proj = nn.Linear(c.d_model, c.d_model)
        self.k_proj = nn.Linear(c.d_model, c.d_model)
        self.v_proj = nn.Linear(c.d_model, c.d_model)
        self.o_proj = nn.Linear(c.d_model, c.d_model)

    def split(self, x):  # (B, L, D) -> (B, H, L, E)
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)

    def forward(self, x, memory, mask):
        q = self.split(self.q_proj(x))
        k, v = self.split(self.k_proj(memory)), self.split(self.v_proj(memory))
        heads = attention(q, k, v, mask).transpose(1, 2)  # (B, Q, H, E)
        return self.o_proj(heads.flatten(2))  # (B, Q, D)


class LayerNorm(nn.Module):
    """Give each token's vector mean 0 and variance 1; then scale and shift it."""

    def __init__(self, c):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(c.d_model))
        self.bias = nn.Parameter(torch.zeros(c.d_model))

    def forward(self, x):
        mean = x.mean(dim=-1, keepdim=True)
        variance = x.var(dim=-1, keepdim=True, correction=0)
        return (x - mean) / (variance + 1e-5).sqrt() * self.weight + self.bias


class FeedForward(nn.Module):
    """Widen each token's vector, apply GELU, and narrow it again."""

    def __init__(self, c):
        super().__init__()
        self.up_proj = nn.Linear(c.d_model, c.d_ff)
        self.down_proj = nn.Linear(c.d_ff, c.d_model)

    def forward(self, x):
        return self.down_proj(F.gelu(self.up_proj(x)))


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward; each is x + dropout(f(norm(x)))."""

    def __init__(self, c):
        super().__init__()
        self.self_attention, self.self_norm = MultiHeadAttention(c), LayerNorm(c)
        self.feed_forward, self.feed_forward_norm = FeedForward(c), LayerNorm(c)
        self.dropout = nn.Dropout(c.dropout)

    def forward(self, x, mask):
        y = self.self_norm(x)
        x = x + self.dropout(self.self_attention(y, y, mask))
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the encoder's output, feed-forward."""

    def __init__(self, c):
        super().__init__()
        self.self_attention, self.self_norm = MultiHeadAttention(c), LayerNorm(c)
        self.cross_attention, self.cross_norm = MultiHeadAttention(c), LayerNorm(c)
        self.feed_forward, self.feed_forward_norm = FeedForward(c), LayerNorm(c)
        self.dropout = nn.Dropout(c.dropout)

    def forward(self, x, mask, memory, memory_mask):
        y = self.self_norm(x)
        x = x + self.dropout(self.self_attention(y, y, mask))
        y = self.cross_norm(x)  # queries: target; keys and values: source
        x = x + self.dropout(self.cross_attention(y, memory, memory_mask))
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))


class Stack(nn.Module):
    """Embed ids, apply N layers and a last norm: an encoder or a decoder."""

    def __init__(self, c, vocab_size, layer):
        super().__init__()
        self.embedding = Embedding(c, vocab_size)
        self.layers = nn.ModuleList(layer(c) for _ in range(c.n_layers))
        self.norm = LayerNorm(c)

    def forward(self, ids, *more):  # the mask; a decoder's memory and its mask
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, *more)
        return self.norm(x)


class EncoderDecoder(nn.Module):
    """Translate: from source (B, S) and target so far (B, T) to logits (B, T, V)."""

    def __init__(self, c, vocab_size):
        super().__init__()
        self.encoder = Stack(c, vocab_size, EncoderLayer)
        self.decoder = Stack(c, vocab_size, DecoderLayer)
        self.output = nn.Linear(c.d_model, vocab_size, bias=False)

    def encode(self, source):
        return self.encoder(source, padding_mask(source))

    def decode(self, target, memory, source):
        mask, memory_mask = causal_mask(target), padding_mask(source)
        return self.output(self.decoder(target, mask, memory, memory_mask))

    def forward(self, source, target):
        return self.decode(target, self.encode(source), source)


class Classifier(nn.Module):
    """Classify texts (B, L): an encoder, the mean of its output, a linear layer."""

    def __init__(self, c, vocab_size, n_classes):
        super().__init__()
        self.encoder = Stack(c, vocab_size, EncoderLayer)
        self.head = nn.Linear(c.d_model, n_classes)

    def forward(self, ids):
        real = (ids != PAD)[:, :, None]  # padding has no part in the mean
        x = self.encoder(ids, padding_mask(ids)) * real
        return self.head(x.sum(dim=1) / real.sum(dim=1))  # (B, C)


class LanguageModel(nn.Module):
    """Predict each next token: layers without cross-attention, and a causal mask."""

    def __init__(self, c, vocab_size):
        super().__init__()
        self.decoder = Stack(c, vocab_size, EncoderLayer)
        self.output = nn.Linear(c.d_model, vocab_size, bias=False)

    def forward(self, ids):
        return self.output(self.decoder(ids, causal_mask(ids)))  # (B, L, V)


def shift(ids):
    """Return what a decoder reads, and the token after each; -100 is not learned."""
    return ids[:, :-1], ids[:, 1:].masked_fill(ids[:, 1:] == PAD, -100)


def train(model, batches, lr, warmup=100):
    """Fit a model to batches (inputs, answers) with Adam; return the losses."""
    adam = torch.optim.Adam(model.parameters(), lr, betas=(0.9, 0.98), eps=1e-9)
    losses = []
    for step, (inputs, answers) in enumerate(batches, start=1):
        rate = lr * min(step / warmup, math.sqrt(warmup / step))
        adam.param_groups[0]["lr"] = rate
        logits = model.train()(*inputs).flatten(0, -2)  # (B · T, V)
        loss = F.cross_entropy(logits, answers.flatten(), label_smoothing=0.1)
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def greedy(logits_of, ids, n_new):
    """Append the most probable token to ids (B, T), n_new times or until all end."""
    for _ in range(n_new):
        best = logits_of(ids)[:, -1].argmax(dim=-1, keepdim=True)  # (B, 1)
        ids = torch.cat([ids, best], dim=1)
        if (ids == END).any(dim=1).all():
            break
    return ids


def translate(model, source, n_new):
    """Return what an encoder–decoder writes for source (B, S), without dropout."""
    memory, begin = model.eval().encode(source), torch.full_like(source[:, :1], BEGIN)
    return greedy(lambda ids: model.decode(ids, memory, source), begin, n_new)
