"""The harness's command: measure the parts asked for, print one page of tables, and write JSON beside it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from functools import partial

from benchmarks.speed.options import Options, read_options
from benchmarks.speed.quality import run_quality
from benchmarks.speed.table import Section, machine, merged, short_table, write_between
from benchmarks.speed.training import run_training
from benchmarks.speed.workloads import WORKLOADS

README_PART = "i"
"""Seconds of training to a score, which is what a user waits for; the other parts explain it."""
RUN: dict[str, Callable[[Options], Section]] = {
    **{name: partial(run_training, name) for name in WORKLOADS},
    README_PART: run_quality,
}


def main(argv: list[str] | None = None) -> None:
    """Measure part by part; each is written as soon as it is measured."""
    options, sections = read_options(argv), list[Section]()
    for part in options.only:
        sections.append(section := RUN[part](options))
        section.part, section.machine, section.date = part, machine(), date.today().isoformat()
        print(section.markdown(), end="\n\n", flush=True)
        write(sections, options)


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
        shown = [section for section in sections if section.part == README_PART]
        machines = "\n".join(dict.fromkeys(section.machine for section in shown))
        write_between(options.readme, "speed", f"{machines}\n\n{short_table(shown)}")


if __name__ == "__main__":
    main()
