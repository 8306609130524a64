"""Tiny trainings for attacks on run folders: a table, flags, and the command in a process of its own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.helpers.forking import Act, Command

SMALL: dict[str, Any] = {
    "model": {"n_layers": 1, "d_model": 16, "n_heads": 2, "d_ff": 32, "ensemble_size": 1},
    "text": {"vocab_size": 100, "max_len": 16, "bigrams": 0, "ngrams": 0},
    "max_tokens": 64,
    "lr": 5e-3,
    "device": "cpu",
    "precision": "fp32",
}
FLAGS = (
    "--model.n-layers 1 --model.d-model 16 --model.n-heads 2 --model.d-ff 32 --model.ensemble-size 1 "
    "--text.vocab-size 100 --text.max-len 16 --text.bigrams 0 --text.ngrams 0 --max-tokens 64 --lr 0.005 "
    "--device cpu --precision fp32"
).split()


class Killed(Exception):
    """Ends a training as a kill does, with the log as it is."""


def kill_at(step: int) -> Callable[[Any], None]:
    """What follows a training and ends it after a step."""

    def kill(report: Any) -> None:
        if report.step == step:
            raise Killed

    return kill


def write_table(folder: Path, n: int = 80) -> Path:
    """Write a table whose label is a word of its text; return its path."""
    rows = [f"{'good' if i % 2 else 'bad'} word{i % 13} and word{i % 7},{'ab'[i % 2]}" for i in range(n)]
    path = folder / "table.csv"
    path.write_text("text,label\n" + "\n".join(rows) + "\n", "utf-8")
    return path


def command(output: Path, *arguments: str, before: Act = None) -> Command:
    """Start `glassformer ARGUMENTS` in a process; what it says goes to the file `output`."""
    return Command(output, arguments, {"GLASSFORMER_CACHE": str(output.parent / "cache")}, before)
