"""What a file of tests may not leave to the next: settings of the process, and what stays alive."""

import asyncio
import gc
import locale
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch

OURS = ("forkserver", "resource_tracker", "playwright", "chrom")
"""Processes that a whole session shares, by a word of their command."""
OF_LIBRARIES = ("torchinductor_", "torchelastic_", "pymp-", ".ses", "sklearn_testing_", "glassformer-")
"""Files that a library makes when it is first used, as tqdm does a thread, by how their names begin; and the folder of
an estimator's run, which goes when the estimator does."""
LIBRARIES = {"PYTEST_CURRENT_TEST", "TOKENIZERS_PARALLELISM", "TORCHINDUCTOR_CACHE_DIR"}
LIBRARIES |= {"KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"}
"""Variables that libraries set when they are first used, for the life of the process."""
SHARED: set[str] = set()
"""What fixtures of a whole session have opened: `SHARED |= opened_since(before)`."""
REPOSITORY = Path(__file__).parents[2]


def settings() -> dict[str, Any]:
    """The settings of this process that code can change, by name."""
    variables = {name: value for name, value in os.environ.items() if name not in LIBRARIES}
    found: dict[str, Any] = {f"variable {name}": value for name, value in variables.items()}
    found |= {f"handler of {each.name}": signal.getsignal(each) for each in signal.Signals}
    found |= {
        "blocked signals": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "working folder": os.getcwd(),
        "locale": locale.setlocale(locale.LC_ALL),
        "paths of imports": tuple(sys.path),
        "recursion limit": sys.getrecursionlimit(),
        "event loop": asyncio._get_running_loop(),
        "torch threads": torch.get_num_threads(),
        "torch dtype": torch.get_default_dtype(),
        "torch device": torch.get_default_device(),
        "torch gradients": torch.is_grad_enabled(),
        "torch autocast": torch.is_autocast_enabled("cpu"),
        "torch deterministic": torch.are_deterministic_algorithms_enabled(),
        "torch anomalies": torch.is_anomaly_enabled(),
        "torch products": torch.get_float32_matmul_precision(),
        "torch fused attention": torch.backends.cuda.flash_sdp_enabled(),
        "torch oneDNN": torch._C._get_mkldnn_enabled(),
        "torch process group": torch.distributed.is_available() and torch.distributed.is_initialized(),
    }
    return found


def living() -> dict[str, set[str]]:
    """Threads and processes that run, and files of the folders that all tests share, by kind."""
    return {
        "threads": {f"{t.name} ({t.ident})" for t in threading.enumerate() if t.name != "tqdm_monitor"},
        "processes": {process for process in processes() if not any(word in process for word in OURS)},
        "files": {
            str(path)
            for folder in (Path(tempfile.gettempdir()), Path(os.environ["HOME"]), REPOSITORY)
            for path in folder.iterdir()
            if not path.name.startswith(OF_LIBRARIES)
        },
    }


def processes() -> set[str]:
    """Children of this process, ended ones that nobody waited for among them; none where /proc does not tell."""
    multiprocessing.active_children()  # waits for those of its own that have ended
    found = set()
    for listing in Path("/proc/self/task").glob("*/children"):
        for number in listing.read_text(encoding="ascii").split():
            command = Path(f"/proc/{number}/cmdline")
            found.add(f"{number}: {command.read_text(encoding='utf-8', errors='replace')}".replace("\0", " "))
    return found


def left(settings_before: dict[str, Any], living_before: dict[str, set[str]]) -> list[str]:
    """One sentence for each setting that is another than before, and for each new thing that does not end soon."""
    now = settings()
    changed = [
        f"{name} was {settings_before.get(name)!r} and is {now.get(name)!r}"
        for name in sorted(settings_before.keys() | now.keys())
        if settings_before.get(name) != now.get(name)
    ]
    patience = time.monotonic() + 10  # a thread that was told to end may need a moment
    gc.collect()  # a folder that an object owns goes with it
    while (new := opened_since(living_before)) and time.monotonic() < patience:
        time.sleep(0.02)
    return changed + sorted(new)


def opened_since(before: dict[str, set[str]]) -> set[str]:
    """What lives now and did not then, and is not shared."""
    return {f"{kind}: {thing}" for kind, things in living().items() for thing in things - before[kind]} - SHARED
