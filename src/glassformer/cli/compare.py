"""`glassformer compare`: two runs side by side, and whether they differ by more than chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from glassformer.cli import flags
from glassformer.errors import UsageError
from glassformer.utils import console


@dataclass(frozen=True)
class CompareArguments:
    """Put two runs into one table, and say whether they differ by more than chance.

    A folder of several seeds is its best run by validation.
    """

    json: bool = False
    """Print one JSON object."""


def run(argv: Sequence[str]) -> int:
    """Run the command."""
    words, flag_args = flags.split_words(CompareArguments, argv, "compare")
    arguments = flags.parse(CompareArguments, flag_args, "compare RUN RUN")
    if len(words) != 2:
        raise UsageError("compare takes two run folders", "as in: glassformer compare runs/a runs/b")
    folders = [flags.run_folder(word) for word in words]

    from glassformer.report.compare import compare_runs

    comparison = compare_runs(*folders)
    if arguments.json:
        console.write_json(asdict(comparison))
        return 0
    console.write_table([*comparison.rows[0]], [[*map(_cell, row.values())] for row in comparison.rows])
    if test := comparison.test:
        columns = "test metric difference ci95 p_value n".split()
        console.write("")
        console.write_table(columns, [[_cell(test[name]) for name in columns]])
        console.write("")
    console.write(comparison.verdict)
    return 0


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4f}"
    if isinstance(value, list):
        return " to ".join(map(_cell, value))
    return f"{value:,}" if isinstance(value, int) else str(value)
