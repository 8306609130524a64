"""What the model is called with, and what must be known of it; how each kind of model comes to it is in the files beside.

Nothing is captured yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from glassformer.errors import UsageError
from glassformer.explain.decode_log import DecodeLog
from glassformer.explain.streams import Stream
from glassformer.explain.subject import Subject
from glassformer.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Wrote:
    """Where the model's own writing begins, and what it may not write."""

    first: int
    """Position after which the first token stands that the model chose itself, or, where a whole translation was given,
    that it was asked about; 0 for a classifier, which writes nothing."""
    n_fixed: int
    """Tokens of the last stream that no prefix can change: [BOS], or the prompt as it was typed."""
    banned: list[int]
    """Ids that are never written."""


@dataclass(frozen=True)
class Prepared:
    """A text, ready to be captured.

    Attributes:
        model_inputs: arguments of the model by name, a batch of one: tensors, and a classifier's `Spelling`.
        streams: their tokens, ["text"] or ["source", "target"].
        positions: rows of the last stream whose prediction is shown; [None] for a classifier.
        following: the token that in fact comes after each of the positions, None where none does.
        decode: how the target came about.
        answer: what the model wrote; empty for a classifier.
        warnings: what the user should know about the input.
        wrote: what the page must know of how a text is written here.
        logged_from: the position after which the first token of the log's hypotheses stands.
    """

    model_inputs: dict[str, Any]
    streams: list[Stream]
    positions: list[int | None]
    following: list[int | None]
    decode: DecodeLog
    answer: str
    warnings: list[str]
    wrote: Wrote
    logged_from: int


def following_of(ids: Sequence[int], finished: bool, eos: int, n: int) -> list[int | None]:
    """The token after each of n positions, when ids are those after the first."""
    after: list[int | None] = [*ids, eos] if finished else [*ids]
    return [after[i] if i < len(after) else None for i in range(n)]


def padded(stream: Stream, subject: Subject, ids: str, mask: str) -> dict[str, Any]:
    """Ids (1, L) under their name, and the mask of the real ones where some are padding."""
    inputs = {ids: torch.tensor([stream.ids], device=subject.device)}
    if any(stream.padding):
        inputs[mask] = ~torch.tensor([stream.padding], device=subject.device)
    return inputs


def warnings_of(
    ids: Sequence[int], kept: Sequence[int], t: Tokenizer, what: str, keep: str, empty_is_odd: bool = True
) -> list[str]:
    """What was cut or is unknown, each in a sentence."""
    notes: list[str] = []
    if not ids and empty_is_odd:
        notes.append(f"{what} is empty: what is shown says only what the model does with nothing")
    if len(kept) < len(ids):
        part = {
            "head": "the beginning is",
            "tail": "the end is",
            "head+tail": "the beginning and the end are",
        }
        notes.append(f"{what} is cut from {len(ids)} to {len(kept)} tokens: {part[keep]} read")
    n_unknown = sum(ids[i] == t.unk_id for i in kept)
    if n_unknown:
        verb = "is" if n_unknown == 1 else "are"
        told = f"{n_unknown} of {len(kept)} tokens of {what} {verb} unknown to the model"
        notes.append(told + (", which still reads how they are spelled" if t.spelling else ""))
    return notes


def check_room(n_tokens: int, n_pad: int, max_len: int) -> None:
    if n_pad and n_tokens + n_pad > max_len:
        raise UsageError(
            f"{n_tokens} tokens and {n_pad} of padding are more than the {max_len} the model reads",
            f"pad with {max(0, max_len - n_tokens)} or fewer",
        )
