"""Nothing that the library reads can run code: pickle and what stands on it are not in the source."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import glassformer

SOURCES = sorted(Path(glassformer.__file__).parent.rglob("*.py"))
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
CALLS = {"torch.load", "torch.save", "torch.jit.load", "numpy.fromfile", "eval", "exec"}
METHODS = {"extractall"}
COLLECTIVES = re.compile(r"^(all_gather|gather)_object$|_object_list$")
"""torch.distributed's, which pickle what they send."""
PICKLING = {"torch.multiprocessing", "torch.distributed.checkpoint"}
"""Of torch: the former pickles what it hands over, the latter the table of a checkpoint."""


def faults(code: str) -> list[str]:
    """What in this source could run code it reads."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            origins = [node.module or ""] if isinstance(node, ast.ImportFrom) else names
            found += [name for name in origins if name.split(".")[0] in MODULES]
            found += [name for name in origins if any(name == p or name.startswith(f"{p}.") for p in PICKLING)]
            if isinstance(node, ast.ImportFrom) and node.module == "torch":
                found += [name for name in names if f"torch.{name}" in CALLS]
        if isinstance(node, ast.Call):
            call = ast.unparse(node.func)
            last = call.rpartition(".")[2]
            if call in CALLS or last in METHODS or COLLECTIVES.search(last):
                found.append(call)
            found += [k.arg for k in node.keywords if k.arg == "allow_pickle" and ast.unparse(k.value) != "False"]
    return found


def test_no_source_file_can_run_what_it_reads() -> None:
    found = {path.as_posix(): faults(path.read_text("utf-8")) for path in SOURCES}
    assert {path: named for path, named in found.items() if named} == {}


def test_the_lint_finds_what_it_looks_for() -> None:
    for code in (
        "import pickle",
        "from pickle import loads",
        "import a, joblib",
        "import torch\ntorch.load('x')",
        "from torch import load",
        "tar.extractall()",
        "dist.all_gather_object(a, b)",
        "broadcast_object_list(a)",
        "import torch.multiprocessing",
        "from torch.distributed.checkpoint import save",
        "np.load(p, allow_pickle=True)",
        "eval('1')",
    ):
        assert len(faults(code)) == 1, code
