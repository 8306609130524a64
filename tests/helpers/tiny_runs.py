"""Three tiny runs that many folders of tests share, trained by the command once a session, and the command itself.

With several workers one trains, and each gets a copy of its own, which tests may write into.
"""

import fcntl
import json
import os
import shutil
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import pytest

SMALL = (
    "--model.n-layers 1 --model.d-model 16 --model.n-heads 2 --model.d-ff 32 --steps 4 --max-tokens 256 "
    "--device cpu --precision fp32"
).split()


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def ok(self) -> "Outcome":
        """It, which must have ended well."""
        assert self.code == 0, self.err
        return self

    def refused(self, *messages: str, code: int = 2) -> None:
        """Assert that it ended with a code, and said this."""
        assert self.code == code and all(message in self.err for message in messages), self

    @property
    def json(self) -> Any:
        """What it printed, as one JSON object."""
        return json.loads(self.out)


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

    @staticmethod
    def in_folder(folder: Path) -> "Runs":
        return Runs(*(folder / n for n in ("classify", "translate", "lm", "table.csv", "a.src", "a.tgt", "book.txt")))


def shared_runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Return the runs, after training them if no worker of this session has."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    trained = base / "tiny-runs"
    with (base / "tiny-runs.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (trained / "done").exists():
            _train(trained)
            (trained / "done").touch()
    own = Runs.in_folder(tmp_path_factory.mktemp("cli"))
    for made, copy in zip(astuple(Runs.in_folder(trained)), astuple(own), strict=True):
        shutil.copytree(made, copy) if made.is_dir() else shutil.copy(made, copy)
    return own


def _train(folder: Path) -> None:
    from glassformer.cli.main import main

    made = Runs.in_folder(folder)
    folder.mkdir()
    rows = [f'"a {"good" if i % 2 else "bad"} film, number {i}",{"pos" if i % 2 else "neg"}\n' for i in range(60)]
    made.table.write_text("text,label\n" + "".join(rows), encoding="utf-8", newline="\n")
    made.src.write_text("".join(f"number {i}\n" for i in range(60)), encoding="utf-8", newline="\n")
    made.tgt.write_text("".join(f"Nummer {i}\n" for i in range(60)), encoding="utf-8", newline="\n")
    made.book.write_text("In the beginning was the word. " * 80, encoding="utf-8", newline="\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLASSFORMER_CACHE", str(folder / "cache"))
        commands = [
            ["train", "classify", "--train-file", made.table, "--out", made.classify, *SMALL],
            ["train", "translate", "--src-file", made.src, "--tgt-file", made.tgt, "--out", made.translate, *SMALL],
            ["train", "lm", "--train-file", made.book, "--out", made.lm, "--text.max-len", "32", *SMALL],
        ]
        for command in commands:
            assert main([*map(str, command), "--debug"]) == 0, command
