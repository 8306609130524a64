"""Say how long the tests take on this machine, and what they leave out: `python -m tests.helpers.announce`.

Not measured are disks and other programs, so it is right to about a third.
"""

import os
import time
from concurrent.futures import ProcessPoolExecutor

from tests.helpers.chromium import chromium

MINUTES, SECONDS = 8.8, 0.175
"""What `make test` and the work below took on two cores of one machine."""


def seconds_of_work(_: int = 0) -> float:
    """Return the least of three times of a bit of what tests do most: Python."""
    times = []
    for _ in range(3):
        began, names = time.perf_counter(), dict[str, int]()
        for i in range(600_000):
            names[f"name {i % 1000}"] = names.get(f"name {i % 999}", 0) + 1
        times.append(time.perf_counter() - began)
    return min(times)


if __name__ == "__main__":
    n_workers = min(2, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    # As many at once as there are workers: two threads of one core are slower than two cores.
    with ProcessPoolExecutor(n_workers) as pool:
        minutes = MINUTES * max(pool.map(seconds_of_work, range(n_workers))) / SECONDS * 2 / n_workers
    left_out = ["slow tests (make test-all)", "the book's cells and the built documentation (make docs-check)"]
    if chromium() is None and os.environ.get("CI") != "true":
        left_out.append("the page in a browser, as none is installed (make browser)")
    print(f"About {max(1, round(minutes))} minutes on this machine. Left out: {'; '.join(left_out)}.", flush=True)
