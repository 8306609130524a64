"""Commands that are shown can be copied to a shell, whatever the folder is called."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable
from pathlib import Path

from tests.helpers.for_each import for_each

from glassformer.report.findings import diagnose
from glassformer.report.run_record import load_run_record
from glassformer.report.write import write_report
from glassformer.runs.folder import RunFolder
from glassformer.utils.formatting import glassformer_command

PACKAGE = Path(__file__).parents[2] / "src" / "glassformer"


@for_each("name", ["my run", "it's", "a;rm b", "$HOME", "x&y", "(1)", "plain"])
def test_a_command_is_read_back_word_by_word(name: str) -> None:
    path = Path("runs") / name
    words = ["glassformer", "train", "--resume", str(path)]
    assert shlex.split(glassformer_command("train", "--resume", path)) == words
    assert shlex.split(RunFolder(path).resume_command) == words


def test_a_report_shows_commands_for_its_own_name(fake_run: Callable[..., Path]) -> None:
    run = fake_run("lm", "it's a run")
    write_report(load_run_record(run))
    lines = (run / "report.md").read_text("utf-8").splitlines()
    shown = [shlex.split(line) for line in lines if line.startswith("glassformer ")]
    assert [words[2] for words in shown] == ["it's a run"] * 2


def test_an_unfinished_run_names_itself(fake_run: Callable[..., Path]) -> None:
    run = fake_run("lm", "it's a run", evaluated=False)
    write_report(load_run_record(run))
    [shown] = re.findall(r"Run `(.+)`", (run / "report.md").read_text("utf-8"))
    assert shlex.split(shown)[1:] == ["train", "--resume", run.name]
    remedies = [finding.remedy for finding in diagnose(load_run_record(run)).findings if "--resume" in finding.remedy]
    assert [shlex.split(remedy) for remedy in remedies] == [["glassformer", "train", "--resume", str(run)]]


def test_no_message_puts_a_value_into_a_command_unquoted() -> None:
    """In strings with values a command of the package is written by `glassformer_command`, or takes a quoted word."""
    allowed = {"run", "train", "usage", "verb", "__version__", "word"}  # quoted by the caller; names of ours
    found = set[str]()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.JoinedStr):
                continue
            for before, value in zip(node.values, node.values[1:], strict=False):
                is_command = isinstance(before, ast.Constant) and re.search(
                    r"(?<![\w.])glassformer [a-z]+ (--?[a-z-]+ )?$", str(before.value)
                )
                if is_command and isinstance(value, ast.FormattedValue):
                    expression = ast.unparse(value.value)
                    if expression not in allowed:
                        found.add(f"{path.relative_to(PACKAGE).as_posix()}: {expression}")
    assert not found
