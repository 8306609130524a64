"""Which implementations there are, where each lives, and its rows.

Defaults, documented best, best with our settings.
"""

from __future__ import annotations

import sys
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


def rows_of(peer: Peer, precision: str) -> dict[str, Settings]:
    """Return the rows of a peer by name in the table.

    Args:
        peer: whose.
        precision: "bf16" where the processor multiplies it, as glassformer chooses it; else "fp32".
    """
    if peer.name == "ours":
        return {
            f"as shipped ({precision})": Settings(precision, "bucketed"),
            **({"fp32": Settings("fp32", "bucketed")} if precision != "fp32" else {}),
        }
    best = Settings(precision, "bucketed", fused=True)
    ours = replace(best, medium=True, keep_memory=True)
    rows = {"defaults": Settings(), "its best": best, "with our settings": ours}
    if peer.name == "x-transformers":
        rows |= {"its best, flash": replace(best, flash=True), "with our settings, flash": replace(ours, flash=True)}
    return rows
