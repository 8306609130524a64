"""How torch's threads wait for each other, which has to be said before torch is loaded.

A parallel piece of work ends when its slowest thread does, and until then the others spin: they ask again and again, so
as to go on at once. On a machine of one's own that is fastest. Beside a browser or a second training a thread that was
put aside keeps all others spinning, and the run loses not its share of the machine but most of its speed. After a
bounded number of turns they should sleep. libgomp, which torch uses on Linux, reads that number when it is loaded.
"""

from __future__ import annotations

import os
import sys

SPINS = "300"
"""Turns before a waiting thread sleeps (libgomp's own: 300,000, and 1,000 where there are more threads than cores)."""
_SAID = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


def wait_politely() -> None:
    """Have threads sleep soon, unless torch is loaded already or the environment says how they wait."""
    if "torch" not in sys.modules and not any(name in os.environ for name in _SAID):
        os.environ["GOMP_SPINCOUNT"] = SPINS
