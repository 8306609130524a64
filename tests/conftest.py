"""For all tests: every shape and type annotated in `glassformer` is checked when it is called, and one thread computes.

Sums divided among threads have other last bits, and how many threads there are depends on what else runs.
"""

from __future__ import annotations

import os

from tests.helpers.typechecker import install

os.environ.setdefault("OMP_NUM_THREADS", "1")
install()
