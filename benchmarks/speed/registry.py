"""Which implementations there are, where each lives, and its rows.

Defaults, and every setting of the process that may make it faster.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.speed.peers.serving import Settings

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / "build" / "bench"
LOCKS = Path(__file__).parent / "peers" / "locks"


@dataclass(frozen=True)
class Peer:
    """One implementation.

    Args:
        name, title: how it is asked for, and what the table calls it.
        module: its file in `peers/`, as the training workloads run it.
        environment: folder below build/bench; None for the one that the harness runs in.
        kinds: the kinds of training that it has.
    """

    name: str
    title: str
    module: str
    environment: str | None
    kinds: frozenset[str] = frozenset()

    @property
    def python(self) -> Path:
        """Return the interpreter of its environment."""
        return Path(sys.executable) if self.environment is None else ENVIRONMENTS / self.environment / "bin" / "python"

    def why_not(self) -> str | None:
        """Return why it cannot run here, or None."""
        if self.python.exists() and not (reason := self.python.parents[1] / "failed.txt").exists():
            return None
        if self.environment and (reason := ENVIRONMENTS / self.environment / "failed.txt").exists():
            return reason.read_text(encoding="utf-8").strip()
        return "not installed: make bench-peers"


PEERS = {
    peer.name: peer
    for peer in (
        Peer("ours", "glassformer", "ours", None, frozenset({"classify", "translate", "lm"})),
        Peer("torch", "nn.Transformer", "torch_loop", "torch", frozenset({"classify", "translate", "lm"})),
        Peer(
            "transformers", "transformers", "hugging_face", "transformers", frozenset({"classify", "translate", "lm"})
        ),
        Peer("nanogpt", "nanoGPT-like", "nanogpt", "torch", frozenset({"lm"})),
        Peer(
            "x-transformers",
            "x-transformers",
            "x_transformers",
            "x_transformers",
            frozenset({"classify", "translate", "lm"}),
        ),
        Peer("keras", "Keras on torch", "keras_torch", "keras", frozenset({"classify"})),
        Peer("joeynmt", "JoeyNMT", "joeynmt", "joeynmt", frozenset({"translate"})),
        Peer("ctranslate2", "CTranslate2", "ctranslate2", "ctranslate2"),
        Peer("tutorial", "the sentiment tutorial", "tutorial", "torch"),
    )
}


def precisions() -> list[str]:
    """Return the precisions that are measured: bf16 where a product in it is not many times slower, as if emulated."""
    from glassformer.training.computing import BEHIND, bf16_slowdown

    return ["fp32", "bf16"] if bf16_slowdown(256, time.perf_counter) <= BEHIND else ["fp32"]


def rows_of(peer: Peer, known: Sequence[str]) -> dict[str, Settings]:
    """Return the rows of a peer by name in the table: its defaults, and each of `known`, the precisions, at its best.

    Ours are as a run chooses by its trial, and under each fixed setting.
    """
    ours, flash = peer.name == "ours", peer.name in ("ours", "x-transformers")
    rows = {"as chosen": Settings("auto", "bucketed")} if ours else {"defaults": Settings()}
    for precision in known:
        best = Settings(precision, "bucketed", fused=True, keep_memory=not ours)
        rows[precision] = best
        if flash:
            rows[f"{precision} fused"] = replace(best, flash=True)
        if precision == "fp32":
            rows["fp32 oneDNN"] = replace(best, medium=True)
            if flash:
                rows["fp32 oneDNN fused"] = replace(best, medium=True, flash=True)
    return rows
