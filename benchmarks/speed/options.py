"""What a run of the harness is asked for; `--help` is made from it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.speed.registry import PEERS
from benchmarks.speed.workloads import WORKLOADS, Workload, tiny

PARTS = (*WORKLOADS, "i")

DESCRIPTION = """\
How fast glassformer is beside others, on this machine: one table on stdout (markdown), everything measured in JSON.

parts:
  a   training an encoder classifier, d 256, 4 layers, IMDB's lengths
  b   training an encoder-decoder 3+3, d 256, vocabulary 8k, Multi30k's lengths
  c   training a language model, d 384, 6 layers, context 256
  i   training seconds to validation BLEU 30 on Multi30k and to 1.60 nats on tiny Shakespeare (reads both from
      GLASSFORMER_DATA, or downloads them)

Repeats are interleaved: every row is measured once before any is measured again, so all rows of a part are in memory
together, 1 to 3 GB each. A row during which other processes took more than a tenth of a core is not shown. Peers live
in environments of their own: make bench-peers."""


@dataclass(frozen=True)
class Options:
    """The flags, read."""

    only: tuple[str, ...]
    peers: tuple[str, ...]
    rows: tuple[str, ...]
    repeats: int
    anyway: bool
    wait: float
    threads: int | None
    tiny: bool
    json: Path | None
    write: Path | None
    readme: Path | None

    def workload(self, name: str) -> Workload:
        """Return a workload in the requested size."""
        return tiny(WORKLOADS[name]) if self.tiny else WORKLOADS[name]

    @property
    def variables(self) -> dict[str, str]:
        """Return the environment of every peer's process."""
        return {} if self.threads is None else {"OMP_NUM_THREADS": str(self.threads)}


def read_options(argv: list[str] | None = None) -> Options:
    """Parse options from a command line."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks.speed", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", type=_names(PARTS), default=PARTS, help=f"parts, by commas: {','.join(PARTS)}")
    parser.add_argument("--peers", type=_names(tuple(PEERS)), default=tuple(PEERS), help=f"of {','.join(PEERS)}")
    parser.add_argument("--rows", type=_names(()), default=(), help="only rows of these names, by commas")
    parser.add_argument("--repeats", type=int, default=5, help="rounds of each row (5)")
    parser.add_argument("--anyway", action="store_true", help="show rows of a busy machine, marked")
    parser.add_argument("--wait", type=float, default=60, help="seconds to wait for a quiet machine (60)")
    parser.add_argument("--threads", type=int, help="threads of every implementation; each chooses by itself if absent")
    parser.add_argument("--tiny", action="store_true", help="models and texts of no use, to try the harness in seconds")
    parser.add_argument(
        "--json", type=Path, help="file for everything measured; its parts that are not measured now stay"
    )
    parser.add_argument("--write", type=Path, help="write the tables between <!-- speed --> and <!-- /speed --> here")
    parser.add_argument("--readme", type=Path, help="write the lines of part i between the same markers here")
    return Options(**vars(parser.parse_args(argv)))


def _names(known: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    """Return the type of a flag that takes names by commas, of `known` if there are any."""

    def read(text: str) -> tuple[str, ...]:
        names = tuple(name.strip() for name in text.split(",") if name.strip())
        if unknown := [name for name in names if known and name not in known]:
            raise argparse.ArgumentTypeError(f"there is no {unknown[0]!r}; there are {', '.join(known)}")
        return names

    return read
