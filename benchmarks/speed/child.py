"""A peer's process as the harness sees it: started, asked, closed."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.speed.registry import ROOT

THREAD_VARIABLES = ("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_")
"""Every implementation chooses its threads by itself; what the caller's shell says about them is not handed on."""


class ChildError(Exception):
    """A peer's process ended before it answered; the message is the last line that it wrote."""


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return a child's environment: this process's without thread settings, and `more`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(THREAD_VARIABLES)}
    paths = [str(ROOT / "src"), str(ROOT)]
    return kept | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONWARNINGS": "ignore"} | dict(more or {})


class Child:
    """A process that answers lines of JSON with lines of JSON; close it, or use it in a `with`.

    Args:
        python: its interpreter.
        module: what it runs, a file in `peers/`.
        spec: written to a file, whose path is its one argument.
        variables: of its environment, beside this process's.
    """

    def __init__(
        self, python: Path, module: str, spec: dict[str, Any], variables: Mapping[str, str] | None = None
    ) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="bench-")
        path = Path(self.folder.name)
        (path / "spec.json").write_text(json.dumps(spec), encoding="utf-8")
        self.errors = (path / "stderr").open("w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [str(python), "-m", f"benchmarks.speed.peers.{module}", str(path / "spec.json")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            cwd=ROOT,
            env=environment(variables),
        )

    def answer(self) -> dict[str, Any]:
        """Return the child's next line.

        Raises:
            ChildError: it ended instead.
        """
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.errors.seek(0)
            lines = self.errors.read().strip().splitlines() or [f"exit code {self.process.returncode}"]
            raise ChildError(lines[-1])
        return json.loads(line)

    def request(self, **question: Any) -> dict[str, Any]:
        """Ask, and wait for the answer."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended: `answer` says why
        return self.answer()

    def close(self) -> None:
        """End it. Between two answers it ends by itself when its stdin does; otherwise it is killed."""
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):  # it has ended, and was asked something in vain
                    stream.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.errors.close()
        self.folder.cleanup()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self.close()
