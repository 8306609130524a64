"""The files of the package in which a command calls functions, in the order in which it enters them.

python -m tests.helpers.executed_files FILES.txt train classify --train-file reviews.csv --steps 2 --out RUN
"""

import inspect
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import glassformer

PACKAGE = str(Path(glassformer.__file__).parent) + "/"


def executed_files(arguments: list[str]) -> tuple[int, list[str]]:
    """Run a command here; return its exit code and the files, relative to the package."""
    from glassformer.cli.main import main

    entered: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        # The bodies of modules and classes are executed too, but have no fast locals.
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED and code.co_filename.startswith(PACKAGE):
            entered[code.co_filename.removeprefix(PACKAGE)] = None

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        code = main(arguments)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # pyright: ignore[reportArgumentType]
    return code, list(entered)


if __name__ == "__main__":
    code, files = executed_files(sys.argv[2:])
    Path(sys.argv[1]).write_text("\n".join(files) + "\n", "utf-8")
    sys.exit(code)
