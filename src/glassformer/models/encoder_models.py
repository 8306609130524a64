"""`TextClassifier` and `MaskedLanguageModel`, and the embedding and encoder that they share."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.config import ModelConfig
from glassformer.models.build import initialise, make_embedding, make_norm, make_rotation, make_stack
from glassformer.models.ensemble import members_of
from glassformer.nn.attention import Mask
from glassformer.nn.ngram_embeddings import BigramEmbedding, NgramBatch, NgramEmbedding, SegmentEmbedding
from glassformer.nn.steps import step

Ids: TypeAlias = Int[Tensor, "B S"]
"""Token ids."""
Real: TypeAlias = Bool[Tensor, "B S"] | None
"""A padding mask, True at real tokens; None if all are."""
Bigrams: TypeAlias = Sequence[tuple[int, int]]
"""Pairs of ids that have an embedding."""


class TextEncoder(nn.Module):
    """Base class of models that encode a text: token, n-gram and bigram embeddings, then an encoder.

    A subclass adds its head. Since the parameters have the same names in all of them, a classifier can be initialised
    from a masked language model.

    Args:
        config: sizes and choices of the Transformer.
        vocab_size: rows of the token embedding.
        max_len: maximum length of a text, in tokens.
        n_ngrams: rows of the table of character n-grams; 0 for none.
        bigrams: pairs of ids that have an embedding.
    """

    def __init__(
        self, config: ModelConfig, vocab_size: int, max_len: int, n_ngrams: int = 0, bigrams: Bigrams = ()
    ) -> None:
        super().__init__()
        self.config, self.max_len = config, max_len
        self.embedding = make_embedding(config, vocab_size, max_len)
        d_model, std = config.d_model, config.embedding_init_std or 1.0
        self.ngrams = NgramEmbedding(n_ngrams, d_model, std) if n_ngrams else None
        self.bigrams = BigramEmbedding(bigrams, vocab_size, d_model, std) if bigrams else None
        self.segments = SegmentEmbedding(config.n_segments, d_model) if config.n_segments else None
        self.encoder = make_stack(config)

    def encode(
        self, ids: Ids, padding_mask: Real = None, ngram_batch: NgramBatch | None = None
    ) -> Float[Tensor, "B S D"]:
        """Return the encoder's output for texts (B, S).

        Args:
            ids: token ids.
            padding_mask: True at real tokens; None if all are.
            ngram_batch: n-grams of the tokens; without them, words have only their own embedding.
        """
        positions = torch.arange(ids.shape[1], device=ids.device)[None]
        more = [] if self.ngrams is None or ngram_batch is None else [self.ngrams(ngram_batch)]
        more += [table(ids) for table in (self.bigrams, self.segments) if table is not None]
        x = self.embedding(ids, positions, *more)
        return self.encoder(x, Mask.of(padding_mask=padding_mask), make_rotation(self.config, positions))


Pooling = Literal["mean", "max", "mean+max", "first"]


def pool(x: Float[Tensor, "B S D"], padding_mask: Real, method: Pooling) -> Float[Tensor, "B P"]:
    """Pool token vectors (B, S, D) into one vector per text, (B, D), or (B, 2D) for "mean+max".

    Padding is excluded. A text without a real token gives zeros.
    """
    if method == "first":
        return x[:, 0] if padding_mask is None else x[:, 0] * padding_mask[:, :1]
    if padding_mask is None:
        mean, peak = x.mean(dim=1), x.amax(dim=1)
    else:
        real = padding_mask[:, :, None]  # (B, S, 1)
        n_real = real.sum(dim=1)  # (B, 1)
        mean = (x * real).sum(dim=1) / n_real.clamp(min=1)
        peak = x.masked_fill(~real, torch.finfo(x.dtype).min).amax(dim=1) * (n_real > 0)
    match method:
        case "mean":
            return mean
        case "max":
            return peak
        case "mean+max":
            return torch.cat([mean, peak], dim=-1)


class Pooler(nn.Module):
    """activation(dense(x)) of the pooled vector, as in BERT, which has tanh (Devlin et al. 2019)."""

    def __init__(self, width: int, activation: Literal["tanh", "relu"]) -> None:
        super().__init__()
        self.dense, self.activation = nn.Linear(width, width), activation

    def forward(self, x: Float[Tensor, "B P"]) -> Float[Tensor, "B P"]:
        x = self.dense(x)
        return x.tanh() if self.activation == "tanh" else x.relu()


class TextClassifier(TextEncoder):
    """Text encoder, pooling, one linear layer; before it a pooler where the configuration has one.

    Two classes share one logit: the other is fixed at zero, so that softmax is the sigmoid of that logit and
    cross-entropy is binary cross-entropy. Where a text may have several classes, each is such a decision of its own,
    and has two logits: for "no" and for "yes".

    Args:
        config: sizes and choices of the Transformer.
        vocab_size: rows of the token embedding.
        n_classes: number of classes C; of 1 the output is a number.
        max_len: maximum length of a text, in tokens.
        tables: `n_ngrams` and `bigrams` of `TextEncoder`.
        several: whether a text may have several classes, or none.
    """

    def __init__(
        self, config: ModelConfig, vocab_size: int, n_classes: int, max_len: int, *tables: Any, several: bool = False
    ) -> None:
        super().__init__(config, vocab_size, max_len, *tables)
        self.n_classes, self.several = n_classes, several
        self.token: int | None = None
        width = config.d_model * (2 if config.pooling == "mean+max" else 1)
        self.pooler = None if config.pooler == "none" else Pooler(width, config.pooler)
        self.head = nn.Linear(width, 1 if n_classes == 2 and not several else n_classes)
        initialise(self)

    def forward(
        self, ids: Ids, padding_mask: Real = None, ngram_batch: NgramBatch | None = None
    ) -> Float[Tensor, "B C"] | Float[Tensor, "B C 2"]:
        """Return logits (B, C) of texts (B, S), or (B, C, 2) of several classes.

        Arguments as in `TextEncoder.encode`.
        """
        x, real = self.encode(ids, padding_mask, ngram_batch), self.pooled_tokens(ids, padding_mask)
        how = self.config.pooling
        x = step(self, "pooled", pool(x, real, how), x, real, how=how, token=self.token)
        if self.pooler is not None:
            x = step(self, "pooler_hidden", self.pooler(x), "pooler", op=self.pooler.activation)
        logits = self.head(x)
        if self.several:
            logits = logits[:, :, None]  # (B, C, 1): each class is a classifier of two
            return torch.cat([torch.zeros_like(logits), logits], dim=-1)
        if self.n_classes == 2:
            return step(self, "logits", torch.cat([torch.zeros_like(logits), logits], dim=-1), logits, op="pin_zero")
        return logits

    def pooled_tokens(self, ids: Ids, padding_mask: Real) -> Real:
        """Return which tokens are pooled: all real ones, or the one whose vector is looked at (`TokenClassifier`)."""
        if self.token is None:
            return padding_mask
        of_word = (torch.arange(ids.shape[1], device=ids.device) == self.token).repeat(len(ids), 1)
        return step(self, "mask", of_word, kind="word")

    def of_pairs(self, separator: Sequence[int]) -> TextClassifier:
        """Return the model, which gives the second text of a pair its own segment, where it has segments.

        `separator` are the ids between the two texts; none where a text is no pair.
        """
        if separator and self.segments is not None and self.config.n_segments > 1:
            self.segments.separator = separator[0]
        return self

    def of_label(self, number: int) -> TextClassifier:
        """Return, of several classes, the classifier of two that decides on one; it shares all but the head's row."""
        one = copy.copy(self)
        one._modules = dict(self._modules)
        one.n_classes, one.several = 2, False
        one.head = nn.Linear(self.head.in_features, 1, device="meta")
        one.head.weight = nn.Parameter(self.head.weight.detach()[number : number + 1])
        one.head.bias = nn.Parameter(self.head.bias.detach()[number : number + 1])
        return one


class TokenClassifier(TextClassifier):
    """Text encoder and one linear layer at every token (Devlin et al. 2019, 5.3), which share `TextClassifier`'s names.

    Two classes share one logit, as there. What the configuration says of pooling has no meaning. Arguments as for
    `TextClassifier`.
    """

    def __init__(self, config: ModelConfig, *sizes: Any) -> None:
        super().__init__(replace(config, pooling="mean", pooler="none"), *sizes)

    def forward(
        self, ids: Ids, padding_mask: Real = None, ngram_batch: NgramBatch | None = None
    ) -> Float[Tensor, "B S C"]:
        """Return the logits (B, S, C) of every token. Arguments as in `TextEncoder.encode`."""
        logits = self.head(self.encode(ids, padding_mask, ngram_batch))
        return torch.cat([torch.zeros_like(logits), logits], dim=-1) if self.n_classes == 2 else logits

    def at_token(self, index: int) -> TextClassifier:
        """Return the classifier whose pooled vector is the vector of one token; it shares all parameters."""
        one = TextClassifier.__new__(TextClassifier)
        one.__dict__.update(self.__dict__)
        one._modules, one.token = dict(self._modules), index
        return one


def label_logits(model: nn.Module, logits: Tensor) -> Tensor:
    """Return logits as other libraries give them: of several labels (B, L), each that of "yes" minus that of "no"."""
    return logits[..., 1] - logits[..., 0] if getattr(members_of(model)[0], "several", False) else logits


class TextEmbedder(TextEncoder):
    """Text encoder and pooling: one vector per text. Arguments as for `TextEncoder`."""

    def forward(
        self, ids: Ids, padding_mask: Real = None, ngram_batch: NgramBatch | None = None
    ) -> Float[Tensor, "B P"]:
        """Return vectors (B, P) of texts (B, S)."""
        x, how = self.encode(ids, padding_mask, ngram_batch), self.config.pooling
        return step(self, "pooled", pool(x, padding_mask, how), x, padding_mask, how=how)


class MaskedLanguageModel(TextEncoder):
    """Text encoder and a head that predicts tokens: linear layer, GELU, norm, projection to the vocabulary.

    The head is BERT's (Devlin et al. 2019). The projection is tied to the embedding or not. Arguments as for
    `TextEncoder`.
    """

    def __init__(self, config: ModelConfig, vocab_size: int, *sizes: Any) -> None:
        super().__init__(config, vocab_size, *sizes)
        self.mlm_transform = nn.Linear(config.d_model, config.d_model)
        self.mlm_norm = make_norm(config)
        self.output = None if config.tie_embeddings else nn.Linear(config.d_model, vocab_size, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(vocab_size))
        initialise(self)

    def forward(
        self,
        ids: Ids,
        padding_mask: Real = None,
        ngram_batch: NgramBatch | None = None,
        selected: Bool[Tensor, "B S"] | None = None,
    ) -> Float[Tensor, "*N V"]:
        """Return logits (B, S, V) of all tokens, or (N, V) of the N tokens where `selected` is True, row by row.

        Few tokens are predicted and the vocabulary is large, so the head is not computed for the others. The other
        arguments are those of `TextEncoder.encode`.
        """
        x = self.encode(ids, padding_mask, ngram_batch)
        x = x if selected is None else x[selected]  # (N, D)
        x = self.mlm_transform(x)
        x = self.mlm_norm(step(self, "mlm_hidden", F.gelu(x), x))
        weight, bias = (self.embedding if self.output is None else self.output).weight, self.output_bias
        return step(self, "logits", F.linear(x, weight, bias), x, weight=weight, bias=bias)
