"""The command called in this process, and three tiny runs to call it on, trained by the command itself."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

SMALL = [
    "--model.n-layers",
    "1",
    "--model.d-model",
    "16",
    "--model.n-heads",
    "2",
    "--model.d-ff",
    "32",
    "--steps",
    "4",
    "--max-tokens",
    "256",
    "--device",
    "cpu",
    "--precision",
    "fp32",
]


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Runs:
    """Folders of three tiny runs, and the files they were trained on."""

    classify: Path
    translate: Path
    lm: Path
    table: Path
    src: Path
    tgt: Path
    book: Path


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing a test encodes lands in the cache of whoever runs the tests."""
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """`cli("predict", run, stdin=b"a\\n")` → exit code, stdout, stderr."""
    from glassformer.cli.main import main

    def call(*arguments: object, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        capsys.readouterr()
        code = main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Trained once for all tests, with everything in a folder of its own, the cache too."""
    from glassformer.cli.main import main

    folder = tmp_path_factory.mktemp("cli")
    made = Runs(*(folder / n for n in ("classify", "translate", "lm", "table.csv", "a.src", "a.tgt", "book.txt")))
    rows = [f'"a {"good" if i % 2 else "bad"} film, number {i}",{"pos" if i % 2 else "neg"}\n' for i in range(60)]
    made.table.write_text("text,label\n" + "".join(rows), encoding="utf-8", newline="\n")
    made.src.write_text("".join(f"number {i}\n" for i in range(60)), encoding="utf-8", newline="\n")
    made.tgt.write_text("".join(f"Nummer {i}\n" for i in range(60)), encoding="utf-8", newline="\n")
    made.book.write_text("In the beginning was the word. " * 80, encoding="utf-8", newline="\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLASSFORMER_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        commands = [
            ["train", "classify", "--train-file", made.table, "--out", made.classify, *SMALL],
            ["train", "translate", "--src-file", made.src, "--tgt-file", made.tgt, "--out", made.translate, *SMALL],
            ["train", "lm", "--train-file", made.book, "--out", made.lm, "--text.max-len", "32", *SMALL],
        ]
        for command in commands:
            assert main([*map(str, command), "--debug"]) == 0, command
    return made
