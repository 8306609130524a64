"""The question an attribution answers: one number the model gives of a text, asked again with words erased.

A question knows which tokens make a word, what stands in for an erased one, and how to ask for many variants
in one batch. How the answers become scores is in `leave_one_out.py` and `integrated_gradients.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.explain.capture.exactly import answer, asking
from glassformer.explain.capture.hooks import instead
from glassformer.models.bigrams import BigramEmbedding
from glassformer.models.hashed_ngrams import HashedNgramEmbedding
from glassformer.models.spelling import NgramEmbedding, Spelling
from glassformer.nn.embeddings import TokenEmbedding

BATCH_TOKENS = 4096
"""Most tokens asked about at once: more is no faster on a CPU, whose caches it leaves."""


@dataclass(frozen=True)
class Words:
    """One stream of tokens as the question sees it.

    Attributes:
        name: "text", "source" or "target".
        word_of: for each token the number of its word among all words of the question, or -1: special
            tokens, padding, and what follows the position asked about are never erased.
    """

    name: str
    word_of: Int[np.ndarray, " L"]


@dataclass(frozen=True, eq=False)
class ValueFunction:
    """How much the model prefers `target` (to `foil`), as a function of which words it sees.

    With a foil it is logit[target] − logit[foil], which is also the difference of their log-probabilities;
    without one it is log p(target), in nats.

    Args:
        model: a classifier, translator or language model of ours.
        ids: what the model reads, (1, L) a stream: [text], or [source, target so far].
        mask: which source tokens are real, (1, S), or None.
        words: the words of each stream, in the order of `ids`.
        n_words: number of words of all streams.
        position: None for a classifier; else the row of the logits that is asked about, the last of `ids`.
        target, foil: class or token ids.
        erase_id: the id that replaces an erased token.
        spelling: how the tokens of the text are spelled, for a model that reads it; an erased one is not.
    """

    model: nn.Module
    ids: list[Tensor]
    mask: Tensor | None
    words: list[Words]
    n_words: int
    position: int | None
    target: int
    foil: int | None
    erase_id: int
    spelling: Spelling | None = None

    def quantity(self, logits: Float[Tensor, "N C"]) -> Float[Tensor, " N"]:
        """The number asked for, of the logits of N variants."""
        if self.foil is not None:
            return logits[:, self.target] - logits[:, self.foil]
        return logits.log_softmax(dim=-1)[:, self.target]

    def logits_without(self, tokens: Sequence[Bool[np.ndarray, "N _"]]) -> Float[Tensor, "N C"]:
        """Logits at the position asked about, of N variants: what is True, a stream, is erased."""
        return self.logits(self.variants(tokens), spelling=self._spelling_without(tokens))

    def logits(
        self, ids: Sequence[Tensor], vectors: Sequence[Tensor] | None = None, spelling: Spelling | None = None
    ) -> Float[Tensor, "N C"]:
        """Logits at the position asked about, of N variants.

        Args:
            ids: (N, L) a stream.
            vectors: (N, L, D) a stream: what embeddings are to make of `ids`, positions not yet added.
            spelling: of `ids`, for a model that reads it; `vectors` have it in them.
        """
        mask = None if self.mask is None else self.mask.expand(ids[0].shape[0], -1)
        with _reading(self.embeddings, vectors):
            if self.position is None:
                return answer(self.model, ids[0], mask, *([] if spelling is None else [spelling]))
            with _stopping_after(cast(nn.Module, self.model.decoder)):
                try:
                    answer(self.model, *ids, *([] if len(ids) == 1 else [mask]))
                except _Reached as reached:
                    # The projection to the vocabulary, often the dearest part, for one position and not for all.
                    table = getattr(self.model.output, "weight", self.embeddings[-1].weight)
                    return F.linear(reached.output[:, -1], table)
        raise RuntimeError("the model did not call its decoder")

    @property
    def embeddings(self) -> list[TokenEmbedding]:
        """The embedding that reads each stream; one module may read both."""
        names = ["embedding"] if len(self.ids) == 1 else ["src_embedding", "tgt_embedding"]
        return [cast(TokenEmbedding, getattr(self.model, name)) for name in names]

    @property
    def n_tokens(self) -> int:
        """Tokens of one variant."""
        return sum(x.shape[1] for x in self.ids)

    def variants(self, tokens: Sequence[Bool[np.ndarray, "N _"]]) -> list[Tensor]:
        """The ids of N variants: what is True, a stream, is erased."""
        masks = map(self._mask, tokens)
        return [ids.masked_fill(mask, self.erase_id) for ids, mask in zip(self.ids, masks, strict=True)]

    def vectors(self, tokens: Sequence[Bool[np.ndarray, "N _"]]) -> list[Float[Tensor, "N _ D"]]:
        """What the embeddings make of N variants, positions not yet added: scaled rows, and vectors of n-grams and pairs."""
        spelling = self._spelling_without(tokens)
        with torch.no_grad():
            ids = self.variants(tokens)
            read = zip(ids, self.embeddings, strict=True)
            found = [F.embedding(x, embedding.weight) * embedding.scale for x, embedding in read]
            if spelling is not None:
                found[0] = found[0] + cast(NgramEmbedding, self.model.ngrams)(spelling)
            if isinstance(ngrams := getattr(self.model, "ngrams", None), HashedNgramEmbedding):
                found[0] = found[0] + ngrams(ngrams.of(ids[0], ids[0].shape[1]))
            if isinstance(bigrams := getattr(self.model, "bigrams", None), BigramEmbedding):
                found[0] = found[0] + bigrams(ids[0])
        return found

    def _spelling_without(self, tokens: Sequence[Bool[np.ndarray, "N _"]]) -> Spelling | None:
        """The spelling of N variants: an erased token loses its n-grams, as a masked one does in training."""
        if self.spelling is None:
            return None
        return replace(self.spelling, which=self.spelling.which.masked_fill(self._mask(tokens[0]), 0))

    def _mask(self, tokens: Bool[np.ndarray, "N L"]) -> Bool[Tensor, "N L"]:
        return torch.from_numpy(np.ascontiguousarray(tokens)).to(self.ids[0].device)

    def tokens_of(self, erased: Bool[np.ndarray, "N W"]) -> list[Bool[np.ndarray, "N _"]]:
        """From words erased to tokens erased, a stream."""
        never = np.zeros((len(erased), 1), dtype=bool)
        padded = np.concatenate([erased, never], axis=1)  # so that word -1 is the column of nothing
        return [padded[:, stream.word_of] for stream in self.words]

    def values(self, erased: Bool[np.ndarray, "N W"]) -> Float[np.ndarray, " N"]:
        """The number asked for, with these words erased; each different set of words is asked about once."""
        distinct: dict[bytes, int] = {}
        which = np.array([distinct.setdefault(row.tobytes(), len(distinct)) for row in erased], dtype=np.intp)
        first = [int(i) for i in np.unique(which, return_index=True)[1]]
        answers: list[float] = []
        size = max(1, BATCH_TOKENS // max(1, self.n_tokens))
        with asking(self.model):
            for start in range(0, len(first), size):
                tokens = self.tokens_of(erased[first[start : start + size]])
                answers += self.quantity(self.logits_without(tokens)).double().tolist()
        return np.array(answers, dtype=np.float64)[which]

    def ends(self) -> tuple[float, float]:
        """The number with every word erased, and with none."""
        both = np.array([[True], [False]]).repeat(self.n_words, axis=1)
        nothing_left, intact = self.values(both)
        return float(nothing_left), float(intact)

    def spread(self, falls: Float[np.ndarray, " W"]) -> dict[str, list[float]]:
        """One number a word to one a token, shared equally among its tokens, so that sums stay what they are."""
        n_pieces = np.bincount(
            np.concatenate([s.word_of[s.word_of >= 0] for s in self.words]), minlength=self.n_words
        )
        shares = np.append(falls / np.maximum(n_pieces, 1), 0.0)  # the last is for word -1
        return {stream.name: shares[stream.word_of].tolist() for stream in self.words}

    def per_word(self, scores: dict[str, list[float]]) -> Float[np.ndarray, " W"]:
        """One number a token to one a word: the sum over its tokens."""
        total = np.zeros(self.n_words + 1)
        for stream in self.words:
            np.add.at(total, stream.word_of, np.asarray(scores[stream.name])[: len(stream.word_of)])
        return total[:-1]


def _reading(
    embeddings: Sequence[TokenEmbedding], vectors: Sequence[Tensor] | None
) -> AbstractContextManager[None]:
    """Within the block and in this thread, the embeddings return `vectors`, placed as ever, in turn.

    A hook and no seam in the embedding: the model then computes as it always does, from the embedding on.
    """
    remaining = iter(vectors or [])

    def place(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        embedding = cast(TokenEmbedding, module)
        x = next(remaining)
        return x if embedding.positions is None else x + embedding.positions(args[1])

    return instead([] if vectors is None else dict.fromkeys(embeddings), place)  # one may read both streams


class _Reached(Exception):
    """Carries what a module returned out of the forward pass that is over now."""

    def __init__(self, output: Tensor) -> None:
        super().__init__()
        self.output = output


def _stopping_after(module: nn.Module) -> AbstractContextManager[None]:
    """Within the block and in this thread, a forward pass ends where this module does, with `_Reached`."""

    def stop(module: nn.Module, args: Any, output: Tensor) -> None:
        raise _Reached(output)

    return instead([module], stop)
