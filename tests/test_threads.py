"""Importing the package says how threads wait, before torch is loaded, and never against the user."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from glassformer.threads import SPINS

SHOW = "import os; print(os.environ.get('GOMP_SPINCOUNT'), os.environ.get('OMP_WAIT_POLICY'))"
CLEAN = {
    k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_PROC_BIND")
}


def shown(code: str, **environment: str) -> str:
    command = [sys.executable, "-c", f"{code}; {SHOW}"]
    return subprocess.run(
        command, env=CLEAN | environment, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_importing_the_package_says_how_threads_wait_and_loads_no_torch() -> None:
    assert shown("import glassformer, sys; assert 'torch' not in sys.modules") == f"{SPINS} None"
    assert shown("from glassformer.nn import MultiHeadAttention") == f"{SPINS} None"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({"GOMP_SPINCOUNT": "7"}, "7 None"), ({"OMP_WAIT_POLICY": "active"}, "None active")],
)
def test_what_the_user_says_stands(environment: dict[str, str], expected: str) -> None:
    assert shown("import glassformer", **environment) == expected


def test_after_torch_it_would_be_too_late_and_nothing_is_claimed() -> None:
    assert shown("import sys; sys.modules['torch'] = object(); import glassformer") == "None None"
