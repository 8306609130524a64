"""The harness's command: measure the parts asked for, print one page of tables, and write JSON beside it."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from datetime import date
from functools import partial

from benchmarks.speed.engines import run_engines
from benchmarks.speed.imdb import run_imdb
from benchmarks.speed.options import Options, read_options
from benchmarks.speed.quality import run_quality
from benchmarks.speed.ranks import run_ranks
from benchmarks.speed.shared_cpu import run_shared_cpu
from benchmarks.speed.startup import run_startup
from benchmarks.speed.table import Section, machine, merged, short_table, write_between
from benchmarks.speed.training import run_training
from benchmarks.speed.translating import run_translating
from benchmarks.speed.workloads import WORKLOADS

INTERRUPTED = 130
README_PARTS = "e", "i"
"""Seconds of training to a score, which is what a user waits for; the other parts explain it."""
RUN: dict[str, Callable[[Options], Section]] = {
    **{name: partial(run_training, name) for name in WORKLOADS},
    "d": run_translating,
    "e": run_imdb,
    "f": run_shared_cpu,
    "g": run_startup,
    "h": run_ranks,
    "i": run_quality,
    "j": run_engines,
}


def main(argv: list[str] | None = None) -> int:
    """Run; what is done so far is printed and written even if it is interrupted."""
    options = read_options(argv)
    signal.signal(signal.SIGTERM, end_once)
    sections: list[Section] = []
    try:
        for part in options.only:
            sections.append(RUN[part](options))
            sections[-1].part, sections[-1].machine = part, machine()
            sections[-1].date = date.today().isoformat()
            print(sections[-1].markdown(), end="\n\n", flush=True)
            if sections[-1].interrupted:
                return INTERRUPTED
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    finally:
        if sections:
            write(sections, options)
    return 0


def end_once(*_: object) -> None:
    """Stop at the first signal and show what was measured; ignore further ones."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def write(sections: list[Section], options: Options) -> None:
    """Write the JSON file, the tables in one page and the short table in another, as requested.

    Parts of the JSON file that were not measured now stay in all three.
    """
    if options.json is not None:
        if options.json.exists():
            earlier_sections = json.loads(options.json.read_text(encoding="utf-8"))["sections"]
            sections = merged([Section(**earlier) for earlier in earlier_sections], sections)
        options.json.parent.mkdir(parents=True, exist_ok=True)
        found = {"sections": [vars(section) for section in sections]}
        options.json.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if options.write is not None:
        write_between(options.write, "speed", "\n\n".join(section.markdown() for section in sections))
    if options.readme is not None:
        shown = [section for section in sections if section.part in README_PARTS]
        machines = "\n".join(dict.fromkeys(section.machine for section in shown))
        write_between(options.readme, "speed", f"{machines}\n\n{short_table(shown)}")


if __name__ == "__main__":
    sys.exit(main())
