"""docs/architecture.md lists the files that a command passes through: as many as are executed, and no others."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
TRAIN = "train classify --train-file reviews.csv --steps 2 --threads 1 --device cpu --out RUN"
COMMANDS = {
    "Train a classifier": TRAIN,
    "Predict": "predict RUN TEXT --device cpu",
    "Explain": "explain RUN TEXT --device cpu --json",
}
"""By heading; RUN is what the first one trains."""


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    place = tmp_path_factory.mktemp("ways")
    rows = [f"a {word} film number {i},{label}" for i in range(30) for word, label in (("good", "pos"), ("bad", "neg"))]
    (place / "reviews.csv").write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    found = {}
    for heading, command in COMMANDS.items():
        arguments = ["a good film" if word == "TEXT" else word for word in command.split()]
        code = [sys.executable, "-m", "tests.helpers.executed_files", "files.txt", *arguments]
        done = subprocess.run(code, cwd=place, env=environment(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found[heading] = (place / "files.txt").read_text(encoding="utf-8").split()
    return found


def environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]), "OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize("heading", COMMANDS)
def test_the_page_lists_the_files_of_a_command(executed: dict[str, list[str]], heading: str) -> None:
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    listed = re.findall(r"^\d+\. `([\w/]+\.py)`", section, re.MULTILINE)
    assert sorted(listed) == sorted(executed[heading])
    assert f"{len(listed)} files" in section


def test_the_commands_on_the_page_are_those_that_were_run() -> None:
    for command in COMMANDS.values():
        assert f"glassformer {command}" in PAGE
