"""`glassformer compare`: runs side by side, and for each pair whether they differ by more than chance."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from glassformer.cli import flags
from glassformer.errors import UsageError
from glassformer.utils import console

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CompareArguments:
    """Put runs, or folders of several seeds, into one table, and tell which differences are more than chance."""

    json: bool = False
    """Print one JSON object."""


def run(argv: Sequence[str]) -> int:
    """Run the command."""
    words, flag_args = flags.split_words(CompareArguments, argv, "compare")
    arguments = flags.parse(CompareArguments, flag_args, "compare RUN RUN ...")
    if not words:
        raise UsageError("compare takes run folders", "as in: glassformer compare runs/a runs/b")
    folders = [flags.run_folder(word, all_seeds=True) for word in words]

    from glassformer.report.compare import compare_runs

    comparison = compare_runs(folders)
    if arguments.json:
        console.write_json(asdict(comparison))
        return 0
    console.write_table([*comparison.rows[0]], [[*map(_cell, row.values())] for row in comparison.rows])
    if comparison.tests:
        columns = "first second metric difference ci95 p_value p_holm n".split()
        console.write("")
        console.write_table(columns, [[_cell(test[name]) for name in columns] for test in comparison.tests])
        console.write("")
        for sentence in comparison.verdicts:
            console.write(sentence)
    for note in comparison.notes:
        logger.info(note)
    return 0


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4f}"
    if isinstance(value, list):
        return " to ".join(map(_cell, value))
    return f"{value:,}" if isinstance(value, int) else str(value)
