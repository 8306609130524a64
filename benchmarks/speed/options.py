"""What a run of the harness is asked for; `--help` is made from it."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.speed.registry import PEERS
from benchmarks.speed.workloads import WORKLOADS, Workload, tiny

PARTS = (*WORKLOADS, "d", "e", "f", "g", "h", "i", "j")

DESCRIPTION = """\
How fast glassformer is beside others, on this machine: one table on stdout (markdown), everything measured in JSON.

parts:
  a   training an encoder classifier, d 256, 4 layers, IMDB's lengths
  b   training an encoder-decoder 3+3, d 256, vocabulary 8k, Multi30k's lengths; b6 the same 6+6, d 512
  c   training a language model, d 384, 6 layers, context 256
  d   translating, greedy and with a beam of 4, one sentence at a time and in bulk, all from one checkpoint
  e   training seconds to 83.06% on IMDB's test set (reads IMDB from GLASSFORMER_DATA, or downloads it)
  f   ours in a, b, c beside one and two busy loops, under several settings of OpenMP's waiting
  g   the first answer of `glassformer predict` from a cold start
  h   ours in a, b, c in as many processes as cores, against one process of as many threads
  i   training seconds to validation BLEU 30 on Multi30k and to 1.60 nats on tiny Shakespeare (data as for e)
  j   a translator answered by torch and by the libraries it is exported to (--checkpoint; else trained on dates)

Repeats are interleaved: every row is measured once before any is measured again. A row during which other processes
took more than a tenth of a core is not shown. Peers live in environments of their own: make bench-peers."""


@dataclass(frozen=True)
class Options:
    """The flags, read."""

    only: tuple[str, ...]
    peers: tuple[str, ...]
    repeats: int
    rows: tuple[str, ...]
    at_once: int
    anyway: bool
    wait: float
    minutes: float
    threads: int | None
    batches: int | None
    tiny: bool
    sentences: int
    checkpoint: Path | None
    whole: bool
    json: Path | None
    write: Path | None
    readme: Path | None

    def rounds(self) -> Iterator[int]:
        """Yield the numbers of the rounds to measure; none but the first starts after `minutes`."""
        began = time.monotonic()
        for i in range(self.repeats):
            if i and time.monotonic() - began > 60 * self.minutes:
                return
            yield i

    def settling(self, seconds: float) -> float:
        """Return seconds of unmeasured work before a measurement: none with `--tiny`, whose figures are of no use."""
        return 0.0 if self.tiny else seconds

    def workload(self, name: str) -> Workload:
        """Return a workload in the requested size."""
        w = tiny(WORKLOADS[name]) if self.tiny else WORKLOADS[name]
        return w if self.batches is None else replace(w, n_batches=self.batches)

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
    parser.add_argument("--repeats", type=int, default=5, help="rounds of each row (5)")
    parser.add_argument("--rows", type=_any_names, default=(), help="only rows whose names begin so, by commas")
    parser.add_argument(
        "--at-once",
        type=int,
        default=8,
        metavar="N",
        help="parts a to c: rows that are warm at the same time, ours in each group of them (8: 12 to 15 GB)",
    )
    parser.add_argument("--anyway", action="store_true", help="show rows of a busy machine, marked")
    parser.add_argument("--threads", type=int, help="threads of every implementation; each chooses by itself if absent")
    parser.add_argument("--minutes", type=float, default=60, help="begin no further round of a part after these (60)")
    parser.add_argument("--wait", type=float, default=60, help="seconds to wait for a quiet machine (60)")
    parser.add_argument("--tiny", action="store_true", help="models and texts of no use, to try the harness in seconds")
    parser.add_argument("--sentences", type=int, default=2000, help="sentences of part d in bulk (2000)")
    parser.add_argument(
        "--checkpoint",
        type=Path,
        help="parts d and j: a translator's run folder, instead of random weights or a short training",
    )
    parser.add_argument("--whole", action="store_true", help="part e: train the tutorial's model to the end, too")
    parser.add_argument(
        "--json", type=Path, help="file for everything measured; its parts that are not measured now stay"
    )
    parser.add_argument("--write", type=Path, help="write the tables between <!-- speed --> and <!-- /speed --> here")
    parser.add_argument("--readme", type=Path, help="write the lines of parts e and i between the same markers here")
    parser.add_argument("--batches", type=int, help="batches of a training round, if not the workload's own")
    return Options(**vars(parser.parse_args(argv)))


def _names(known: tuple[str, ...]):
    def read(text: str) -> tuple[str, ...]:
        names = tuple(name.strip() for name in text.split(",") if name.strip())
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"there is no {unknown[0]!r}; there are {', '.join(known)}")
        return names

    return read


def _any_names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
