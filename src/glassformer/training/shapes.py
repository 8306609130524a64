"""Batches of one shape, for what is slow the first time it meets a shape: compiled layers, CUDA graphs."""

from __future__ import annotations

import math
from dataclasses import replace

from torch.nn import functional as F

from glassformer.config import Config
from glassformer.data.batching import Batch
from glassformer.nn.cross_entropy import IGNORE_INDEX


def rows_of_piece(config: Config, n_ranks: int) -> int:
    """The most rows that a rank's piece of a batch of windows has (`Ranks.pieces`)."""
    c = config.train
    rows = c.batch_size or max(1, c.max_tokens // config.text.max_len)
    return math.ceil(rows / math.ceil(n_ranks / c.accumulate))


def filled(batch: Batch, rows: int, width: int, pad_id: int) -> Batch:
    """Windows of a running text, (rows, width) of them: what is added is read last, has no label and counts nothing."""
    missing = (0, width - batch.ids.shape[1], 0, rows - batch.ids.shape[0])
    return replace(
        batch, padding_mask=None,
        ids=F.pad(batch.ids, missing, value=pad_id), labels=F.pad(batch.labels, missing, value=IGNORE_INDEX),
    )  # fmt: skip
