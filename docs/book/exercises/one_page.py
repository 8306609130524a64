"""After the end: `pad_after_end(ids, end, pad)`, for texts (B, T) which were decoded together."""

from __future__ import annotations

import torch
from torch import Tensor

from exercises.checker import Exercise


def solution(ids: Tensor, end: int, pad: int) -> Tensor:
    """Return ids (B, T) in which every token after the first `end` of a row is `pad`."""
    is_end = (ids == end).int()
    ends_before = is_end.cumsum(dim=1) - is_end
    return ids.masked_fill(ends_before > 0, pad)


def row_by_row(ids: Tensor, end: int, pad: int) -> Tensor:
    """Return what a loop over rows gives; the reference."""
    rows = []
    for row in ids.tolist():
        n = row.index(end) + 1 if end in row else len(row)
        rows.append(row[:n] + [pad] * (len(row) - n))
    return torch.tensor(rows)


def end_too(ids: Tensor, end: int, pad: int) -> Tensor:
    """Replace the end token as well."""
    return ids.masked_fill((ids == end).int().cumsum(dim=1) > 0, pad)


def after_the_last(ids: Tensor, end: int, pad: int) -> Tensor:
    """Keep what stands before the last end token."""
    is_end = (ids == end).int()
    from_here = is_end.flip(1).cumsum(dim=1).flip(1)
    return ids.masked_fill((from_here == 0) & is_end.any(dim=1, keepdim=True), pad)


def same_for_all(ids: Tensor, end: int, pad: int) -> Tensor:
    """Cut all rows where the first of them ends."""
    is_end = (ids == end).any(dim=0).int()
    return ids.masked_fill(is_end.cumsum(dim=0) - is_end > 0, pad)


def down_the_columns(ids: Tensor, end: int, pad: int) -> Tensor:
    """Count end tokens along the wrong axis."""
    is_end = (ids == end).int()
    return ids.masked_fill(is_end.cumsum(dim=0) - is_end > 0, pad)


def inputs(generator: torch.Generator) -> tuple[Tensor, int, int]:
    """Return random ids, of which some rows have no end token and some have several; then `end` and `pad`."""
    n_texts, length = (torch.randperm(6, generator=generator)[:2] + 3).tolist()
    end, pad = (torch.randperm(4, generator=generator)[:2]).tolist()
    return torch.randint(0, 7, (n_texts, length), generator=generator), end, pad


EXERCISE = Exercise(
    reference=row_by_row,
    inputs=inputs,
    mistakes={
        end_too: "the end token itself stays; only what comes after it is replaced",
        after_the_last: "a row may have several end tokens; the first of them counts",
        same_for_all: "each text ends at a place of its own",
        down_the_columns: "count along a row, which is one text: `dim=1`",
    },
)
