"""How a translator's process talks with the harness: part d, all peers from one checkpoint.

The checkpoint is a folder that every peer converts for itself: `weights.npz`, glassformer's names and arrays;
`model.json`, the sizes; `sources.json`, sentences as ids and as words.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from benchmarks.speed.peers.serving import answer, own_stdout, peak_mb, questions


@dataclass(frozen=True)
class Checkpoint:
    """One translator, pre-norm, and what it is to translate.

    Args:
        weights: arrays by glassformer's names.
        sizes: n_layers (of each stack), d_model, n_heads, d_ff, vocab_size, max_len, activation, pre_norm.
        sources: sentences as ids, the end token included. words: the same as glassformer reads them.
        steps: tokens that every translation has, for weights which never end one; None where they do.
        run: a run folder, where the checkpoint is one.
    """

    weights: dict[str, np.ndarray]
    sizes: dict[str, Any]
    sources: list[list[int]]
    words: list[str]
    steps: int | None
    run: str | None

    @staticmethod
    def read(folder: str | Path) -> Checkpoint:
        """Read what the harness wrote."""
        spec = json.loads((Path(folder) / "model.json").read_text(encoding="utf-8"))
        with np.load(Path(folder) / "weights.npz") as arrays:
            weights = {name: arrays[name] for name in arrays}
        return Checkpoint(weights, spec["sizes"], spec["sources"], spec["words"], spec["steps"], spec["run"])

    @property
    def most_tokens(self) -> int:
        """Return the maximum length of a translation."""
        return self.steps or 2 * max(map(len, self.sources)) + 20


class Translating(Protocol):
    """What a peer provides."""

    def bulk(self, which: list[int], beam: int) -> list[list[int]]:
        """Translate these sources, all passed at once; ids without the end token."""
        ...

    def one(self, which: int, beam: int) -> list[int]:
        """Translate one source."""
        ...


def serve_translator(make: Any) -> None:
    """Serve as a peer: read the spec, convert the checkpoint, translate on request.

    Args:
        make: from a `Checkpoint` and the row's settings (a dictionary) a `Translating`.
    """
    answers = own_stdout()
    with open(sys.argv[1], encoding="utf-8") as file:
        spec = json.load(file)
    checkpoint = Checkpoint.read(spec["checkpoint"])
    began = time.perf_counter()
    peer: Translating = make(checkpoint, spec["settings"])
    for beam in (1, 4):
        peer.bulk(list(range(min(64, len(checkpoint.sources)))), beam)
        peer.one(0, beam)
    answer(answers, {"warm_up": time.perf_counter() - began})
    for question in questions():
        which, beam = question["which"], question["beam"]
        began = time.perf_counter()
        if question["how"] == "bulk":
            found, latencies = peer.bulk(which, beam), []
            seconds = time.perf_counter() - began
        else:
            found, latencies = [], []
            for i in which:
                at = time.perf_counter()
                found.append(peer.one(i, beam))
                latencies.append(time.perf_counter() - at)
            seconds = sum(latencies)
        measured = {"seconds": seconds, "latencies": latencies, "found": found, "peak_mb": peak_mb()}
        answer(answers, measured)
