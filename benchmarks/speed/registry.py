"""Which implementations there are, where each lives, and its rows: every setting of the process that may be fastest."""

from __future__ import annotations

import sys
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
    kinds: tuple[str, ...] = ("classify", "translate", "lm")

    @property
    def python(self) -> Path:
        """Return the interpreter of its environment."""
        return Path(sys.executable) if self.environment is None else ENVIRONMENTS / self.environment / "bin" / "python"

    def why_not(self) -> str | None:
        """Return why it cannot run here, or None."""
        if self.environment and (reason := ENVIRONMENTS / self.environment / "failed.txt").exists():
            return reason.read_text(encoding="utf-8").strip()
        return None if self.python.exists() else "not installed: make bench-peers"


PEERS = {
    peer.name: peer
    for peer in (
        Peer("ours", "glassformer", "ours", None),
        Peer("torch", "nn.Transformer", "torch_loop", "torch"),
        Peer("nanogpt", "nanoGPT-like", "nanogpt", "torch", ("lm",)),
        Peer("x-transformers", "x-transformers", "x_transformers", "x_transformers"),
        Peer("joeynmt", "JoeyNMT", "joeynmt", "joeynmt", ("translate",)),
    )
}


def precisions() -> list[str]:
    """Return the precisions that are measured: bf16 where a product in it is not many times slower, as if emulated."""
    from glassformer.training.computing import BEHIND, bf16_slowdown

    return ["fp32", "bf16"] if bf16_slowdown(256) <= BEHIND else ["fp32"]


def rows_of(peer: Peer, known: Sequence[str]) -> dict[str, Settings]:
    """Return the rows of a peer by name in the table: each of `known`, the precisions, under each setting.

    Ours are also as a run chooses by its trial.
    """
    rows = {precision: Settings(precision) for precision in known} | {"fp32 oneDNN": Settings("fp32", medium=True)}
    if peer.name in ("ours", "x-transformers"):
        rows |= {f"{name} fused": replace(settings, flash=True) for name, settings in rows.items()}
    return {"as chosen": Settings("auto")} | rows if peer.name == "ours" else rows
