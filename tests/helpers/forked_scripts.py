"""Run `script.py` of each folder with the package in its `src`: `python -m tests.helpers.forked_scripts FOLDER…`.

Each has a process of its own, forked from this one, which has imported the slow libraries, but not the package.
Prints the folders whose scripts failed; what a script prints comes before.
"""

import os
import runpy
import sys
import traceback
from pathlib import Path

import matplotlib.pyplot  # noqa: F401
import sklearn.linear_model  # noqa: F401
import torch  # noqa: F401


def run(folder: Path) -> int:
    """Run one script; returns its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        os.chdir(folder)
        sys.path.insert(0, str(folder / "src"))
        os.environ["GLASSFORMER_CACHE"] = str(folder / "cache")
        runpy.run_path("script.py", run_name="__main__")
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    assert "glassformer" not in sys.modules
    failed = [folder for folder in sys.argv[1:] if run(Path(folder)) != 0]
    print("failed:", *failed, flush=True)
    sys.exit(bool(failed))
