"""Vectors of the n-grams that a token ends, beside its own: what "e" means after "th" and what it means after "wh".

A language model of characters has to learn to look back before it can tell one "e" from another. Tables of n-grams tell
it at once, by a lookup for each length and no product (Pagnoni et al. 2024, "Byte Latent Transformer", 3.2.1). As there an
n-gram's row is a hash of it, so that none has to be listed, counted or stored; two may share a row. Departures: rows begin
at zero, so that what was never seen says nothing; n begins at 2; the sum is not divided.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from glassformer.models.spelling import NgramEmbedding, Spelling
from glassformer.nn.cache import DecoderCache
from glassformer.nn.dropout import Dropout

MULTIPLIER = 6364136223846793005
"""Of a linear congruential generator modulo 2⁶⁴ (Knuth, "The Art of Computer Programming", 3.3.4): it spreads the ids of
an n-gram over all bits of a number, of which the upper ones choose the row."""
UPPER = 33
"""Bits that are left away: the lower ones of such a product say little."""


class HashedNgramEmbedding(NgramEmbedding):
    """The sum of the rows of the n-grams that end with a token, of 2 to `longest` tokens.

    An n-gram that would begin before the text, or has a special token in it, has no row.

    Args:
        longest: tokens of the longest n-gram, at least 2.
        rows: of the table of each length.
        d_model: width of a row.
        dropout: share of a token's n-grams that are left out while training, the sum of the others being made up for
            them. A long n-gram stands in few places and tells what comes next there: the model would learn by heart.
        special: ids below this one are special tokens.
    """

    def __init__(self, longest: int, rows: int, d_model: int, dropout: float = 0.0, special: int = 0) -> None:
        super().__init__(1 + (longest - 1) * rows, d_model, std=0.0, how="sum")
        self.longest, self.rows, self.special = longest, rows, special
        self.dropout = Dropout(dropout)

    def numbers(self, ids: Int[Tensor, "B L"], n_new: int) -> Int[Tensor, "B T G"]:
        """The rows of the last T = n_new tokens' n-grams, shortest first; 0 for none.

        Those of one length lie together: of length n from 1 + (n - 2) · rows.
        """
        key, whole = (ids + 1) * MULTIPLIER, ids >= self.special
        found: list[Tensor] = []
        for n in range(2, self.longest + 1):
            before = F.pad(ids, (n - 1, 0), value=-1)[:, : ids.shape[1]]
            key = (key + before + 1) * MULTIPLIER  # modulo 2⁶⁴
            whole = whole & (before >= self.special)
            row = (key >> UPPER) % self.rows + 1 + (n - 2) * self.rows
            found.append(torch.where(whole, row, 0))
        return torch.stack(found, dim=-1)[:, ids.shape[1] - n_new :]

    def of(self, ids: Int[Tensor, "B L"], n_new: int) -> Spelling:
        """What `forward` reads of the last T = n_new tokens, those before them being known; some left out in training."""
        numbers = self.numbers(ids, n_new)
        if self.training:
            kept = self.dropout(torch.ones(numbers.shape, device=ids.device))
            numbers = torch.where(kept > 0, numbers, 0)
        which = torch.arange(numbers.shape[0] * n_new, device=ids.device).view(-1, n_new)
        return Spelling(which, numbers.flatten(0, 1))

    def forward(self, spelling: Spelling) -> Float[Tensor, "B S D"]:
        """A vector a token; zeros where it ends no n-gram."""
        x = super().forward(spelling)
        return x / (1 - self.dropout.p) if self.training else x


class NgramCache(DecoderCache):
    """A cache that knows the last ids of each row, too: an n-gram looks back at ids and not at keys."""

    def __init__(self, n_layers: int) -> None:
        super().__init__(n_layers)
        self._recent: Tensor | None = None

    def with_recent(self, ids: Int[Tensor, "B n"], most: int) -> Int[Tensor, "B m"]:
        """New ids behind those of earlier calls, of which the last `most` are kept."""
        seen = ids if self._recent is None else torch.cat([self._recent, ids], dim=1)
        self._recent = seen[:, max(0, seen.shape[1] - most) :]
        return seen

    def select(self, rows: Int[Tensor, " R"]) -> None:
        if self._recent is not None:
            self._recent = self._recent.index_select(0, rows)
        super().select(rows)
