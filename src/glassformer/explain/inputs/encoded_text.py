"""The encoded text of a request, and helpers of the modules that encode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from glassformer.errors import UsageError
from glassformer.explain.decode_log import DecodeLog
from glassformer.explain.ngram_streams import add_bigrams, add_ngrams
from glassformer.explain.request import MAX_LAYERED_TOKENS
from glassformer.explain.streams import Stream
from glassformer.explain.subject import Subject
from glassformer.nn.ngram_embeddings import BigramEmbedding
from glassformer.text.tokenizer import Tokenizer

PARTS = {"head": "beginning", "tail": "end", "head+tail": "beginning and end", "middle": "middle"}
"""The parts of a text that truncation keeps (`TextConfig.truncate`), and the middle, where [MASK] is."""


@dataclass(frozen=True)
class GenerationInfo:
    """Where generated tokens begin, and which tokens are never generated."""

    first: int
    """Position before the first generated token, or, for a given translation, before its first token; 0 for a
    classifier."""
    n_fixed: int
    """Number of tokens of the last stream that no prefix can change: [BOS], or the prompt."""
    suppressed: list[int]
    """Ids that are never generated."""
    masked: list[int] | None = None
    """Positions of [MASK], where the model predicts the token itself; null: it predicts the next token, or a class."""


@dataclass(frozen=True, kw_only=True)
class EncodedText:
    """An encoded text with its decoding, before the forward pass is recorded.

    Attributes:
        model_inputs: arguments of the model by name, with a batch of one: tensors, and a classifier's n-grams.
        streams: their tokens, ["text"] or ["source", "target"].
        positions: positions of the last stream whose prediction is shown; [None] for a classifier.
        following: the actual token after each position, None where there is none.
        decode: the log of decoding.
        answer: the generated text; empty for a classifier.
        warnings: notes on the input for the user.
        generation: where generated tokens begin.
        log_start: the position before the first token of the log's hypotheses.
    """

    model_inputs: dict[str, Any]
    streams: list[Stream]
    positions: list[int | None]
    following: list[int | None]
    decode: DecodeLog
    answer: str = ""
    warnings: list[str]
    generation: GenerationInfo
    log_start: int = 0


def following_tokens(ids: Sequence[int], finished: bool, eos: int, n: int) -> list[int | None]:
    """Return the token after each of n positions, given the tokens after the first position."""
    after: list[int | None] = [*ids, eos] if finished else [*ids]
    return [after[i] if i < len(after) else None for i in range(n)]


def with_padding_mask(stream: Stream, subject: Subject, ids: str, mask: str) -> dict[str, Any]:
    """Return the ids (1, L) by name, and the mask of real tokens if there is padding."""
    inputs = {ids: torch.tensor([stream.ids], device=subject.device)}
    if any(stream.padding):
        inputs[mask] = ~torch.tensor([stream.padding], device=subject.device)
    return inputs


def add_embeddings(stream: Stream, subject: Subject, surfaces: Sequence[str], inputs: dict[str, Any]) -> Stream:
    """Return a stream with the n-grams and bigrams that a text encoder reads, and add the n-grams to its arguments."""
    if subject.task.tokenizer.ngrams is not None:
        stream, ngram_batch = add_ngrams(subject.task.tokenizer, stream, surfaces)
        inputs["ngram_batch"] = ngram_batch.to(subject.device)
    if isinstance(bigrams := getattr(subject.model, "bigrams", None), BigramEmbedding):
        stream = add_bigrams(stream, bigrams)
    return stream


def input_warnings(
    ids: Sequence[int],
    kept: Sequence[int],
    t: Tokenizer,
    name: str,
    keep: str,
    *,
    reads: int = 0,
    warn_if_empty: bool = True,
) -> list[str]:
    """Return a sentence each for an empty text, truncation and unknown tokens.

    The model reads the tokens with the indices `kept`, the part `keep` of `PARTS`; in prediction it `reads` so many.
    """
    warnings: list[str] = []
    if not ids and warn_if_empty:
        warnings.append(f"{name} is empty")
    if len(kept) < len(ids):
        warnings.append(f"{name} was truncated from {len(ids)} to {len(kept)} tokens, keeping its {PARTS[keep]}")
        if len(kept) < min(len(ids), reads):
            warnings.append(
                f"an explanation shows at most {MAX_LAYERED_TOKENS} tokens, and prediction reads up to {reads}: "
                "it may answer differently"
            )
    n_unknown = sum(ids[i] == t.unk_id for i in kept)
    if n_unknown:
        verb = "is" if n_unknown == 1 else "are"
        ngrams = ", but the model reads their n-grams" if t.ngrams else ""
        warnings.append(f"{n_unknown} of {len(kept)} tokens of {name} {verb} unknown to the model{ngrams}")
    return warnings


def check_length(n_tokens: int, n_pad: int, max_len: int) -> None:
    """Check that tokens and padding fit into the model's context."""
    if n_pad and n_tokens + n_pad > max_len:
        raise UsageError(
            f"the model reads at most {max_len} tokens, got {n_tokens} and {n_pad} of padding",
            f"pad with {max(0, max_len - n_tokens)} or fewer",
        )
