"""Embeddings added to those of tokens: character n-grams of a word, pairs of words, hashed n-grams of tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.nn.dropout import Dropout
from glassformer.nn.steps import is_reporting, step

MULTIPLIER = 6364136223846793005
"""Of a linear congruential generator modulo 2⁶⁴ (Knuth, "The Art of Computer Programming", 3.3.4)."""
SHIFT = 33
"""Low bits that are dropped from a hash: those of such a product are hardly mixed."""


@dataclass(frozen=True)
class NgramBatch:
    """The n-grams of a batch of texts; those of a repeated token are stored once.

    Args:
        index: row of `ngrams` of each token. Where texts were encoded ahead, row 0 has no n-grams.
        ngrams: n-gram ids, from 1; 0 where there are fewer than G.
    """

    index: Int[Tensor, "B S"]
    ngrams: Int[Tensor, "U G"]

    def to(self, device: torch.device | str) -> "NgramBatch":
        """Return a copy on that device."""
        return NgramBatch(self.index.to(device, non_blocking=True), self.ngrams.to(device, non_blocking=True))


class NgramEmbedding(nn.Module):
    """Mean of the embeddings of each token's n-grams (the sum in Bojanowski et al. 2017).

    The table has n_ngrams rows, of which row 0 is padding and never read. `std` is that of the initial weights.
    """

    mode = "mean"
    kind: str | None = None

    def __init__(self, n_ngrams: int, d_model: int, std: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_ngrams, d_model))
        nn.init.normal_(self.weight, std=std)

    def forward(self, batch: NgramBatch) -> Float[Tensor, "B S D"]:
        """Return a vector per token; zeros where it has no n-grams."""
        vectors = F.embedding_bag(batch.ngrams, self.weight, mode=self.mode, padding_idx=0)  # (U, D)
        x = F.embedding(batch.index, vectors)
        if not is_reporting():
            return x
        ids = step(self, "ngram_ids", batch.ngrams[batch.index], kind=self.kind)  # (B, S, G)
        return step(self, "ngrams", x, ids, how=self.mode)


class BigramEmbedding(nn.Module):
    """Embedding of the pair of each token and the one before it, for listed pairs (Joulin et al. 2017).

    Args:
        bigrams: pairs of ids that have a row, at least one. Row 0 is for all others and stays zero.
        vocab_size: upper bound of ids.
        d_model: width of a row.
        std: standard deviation of the initial weights.
    """

    def __init__(self, bigrams: Sequence[tuple[int, int]], vocab_size: int, d_model: int, std: float) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        # Not saved with the weights, since the tokenizer's file lists the pairs.
        self.keys: Tensor
        keys = sorted(first * vocab_size + second for first, second in bigrams)
        self.register_buffer("keys", torch.tensor(keys), persistent=False)
        self.weight = nn.Parameter(torch.empty(len(bigrams) + 1, d_model))
        nn.init.normal_(self.weight, std=std)
        nn.init.zeros_(self.weight[0])

    def lookup_ids(self, ids: Int[Tensor, "B S"]) -> Int[Tensor, "B S"]:
        """Return the row of the pair that each token ends, 0 if it is not listed."""
        key = F.pad(ids[:, :-1], (1, 0)) * self.vocab_size + ids  # id 0 is padding, which is in no pair
        position = torch.searchsorted(self.keys, key).clamp(max=len(self.keys) - 1)
        return torch.where(self.keys[position] == key, position + 1, 0)

    def forward(self, ids: Int[Tensor, "B S"]) -> Float[Tensor, "B S D"]:
        """Return a vector per token; zeros where its pair is not listed."""
        rows = step(self, "bigram_ids", self.lookup_ids(ids))
        return step(self, "bigrams", F.embedding(rows, self.weight, padding_idx=0), rows)


class HashedNgramEmbedding(NgramEmbedding):
    """Sum of the embeddings of the n-grams of 2 to `max_ngram` tokens that end with each token.

    A hash of the n-gram chooses its row, so that n-grams may share one (Pagnoni et al. 2024, "Byte Latent Transformer",
    3.2.1). Departures: weights begin at zero, n begins at 2, the sum is not divided. An n-gram that would begin before
    the text, or contains a special token, has no row.

    Args:
        max_ngram: tokens of the longest n-gram, at least 2.
        d_model: width of a row.
        dropout: probability of omitting an n-gram in training; the sum of the others is scaled up.
        n_special: ids below this are special tokens.
        n_rows: rows per length of n-grams.
    """

    mode, kind = "sum", "hashed"

    def __init__(
        self, max_ngram: int, d_model: int, dropout: float = 0.0, n_special: int = 0, n_rows: int = 16_384
    ) -> None:
        super().__init__(1 + (max_ngram - 1) * n_rows, d_model, std=0.0)
        self.max_ngram, self.n_special, self.n_rows = max_ngram, n_special, n_rows
        self.dropout = Dropout(dropout)

    def lookup_ids(self, ids: Int[Tensor, "B L"], n_new: int) -> Int[Tensor, "B T G"]:
        """Return the rows of the last T = n_new tokens' n-grams, shortest first; 0 for none."""
        key, exists, rows = (ids + 1) * MULTIPLIER, ids >= self.n_special, list[Tensor]()
        for n in range(2, self.max_ngram + 1):
            before = F.pad(ids, (n - 1, 0), value=-1)[:, : ids.shape[1]]
            key = (key + before + 1) * MULTIPLIER  # modulo 2⁶⁴
            exists = exists & (before >= self.n_special)
            rows.append(torch.where(exists, (key >> SHIFT) % self.n_rows + 1 + (n - 2) * self.n_rows, 0))
        return torch.stack(rows, dim=-1)[:, ids.shape[1] - n_new :]

    def batch_of(self, ids: Int[Tensor, "B L"], n_new: int) -> NgramBatch:
        """Return the input of `forward` for the last n_new tokens of ids, with dropout in training."""
        rows = self.lookup_ids(ids, n_new)
        if self.training:
            kept = self.dropout(torch.ones(rows.shape, device=ids.device)) > 0  # a random mask
            rows = torch.where(kept, rows, 0)
        index = torch.arange(rows.shape[0] * n_new, device=ids.device).view(-1, n_new)  # nothing is stored once here
        return NgramBatch(index, rows.flatten(0, 1))

    def forward(self, batch: NgramBatch) -> Float[Tensor, "B S D"]:
        """Return a vector per token; zeros where it ends no n-gram."""
        x = super().forward(batch)
        return x / (1 - self.dropout.p) if self.training else x


class SegmentEmbedding(nn.Module):
    """One trained vector per segment, which separates the two texts of a pair (Devlin et al. 2019, 3).

    `separator` is the id of the token that ends the first text of a pair; None where a text is no pair, and where there
    is one segment alone, as in RoBERTa.
    """

    def __init__(self, n_segments: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_segments, d_model))
        nn.init.normal_(self.weight, std=0.02)
        self.separator: int | None = None

    def segment_ids(self, ids: Int[Tensor, "B S"]) -> Int[Tensor, "B S"]:
        """Return the segment of each token: the first one; of a pair the second one after the first separator."""
        if self.separator is None:
            return torch.zeros_like(ids)
        divides = (ids == self.separator).long()
        return (divides.cumsum(dim=1) - divides).clamp(max=1)

    def forward(self, ids: Int[Tensor, "B S"]) -> Float[Tensor, "B S D"]:
        """Return the vector of each token's segment."""
        rows = step(self, "segment_ids", self.segment_ids(ids), separator=self.separator)
        return step(self, "segments", F.embedding(rows, self.weight), rows)
