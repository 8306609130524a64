"""The page's side of `sites.py`: `make web` writes what this prints into web/src/sites.ts, and a test compares them."""

from __future__ import annotations

import json
import sys

from glassformer.explain.capture.sites import OPERATIONS, SITES


def sites_ts() -> str:
    """The operations as a type, with how each is computed, and the steps there are."""
    width = max(len(f"{op} {takes}") for op, (takes, _) in OPERATIONS.items() if len(takes) < 30) + 2
    table = [f" *   {f'{op} {takes}'.ljust(width)}{gives}" for op, (takes, gives) in OPERATIONS.items()]
    steps = [
        f"  {json.dumps(key)}: {json.dumps([site.op, *site.axes])},"
        for key, site in SITES.items()
        if site.op in OPERATIONS
    ]
    return "\n".join([
        "/** Made by `make web` from explain/capture/sites.py, where steps and operations are described: change them there. */",
        "",
        "/**",
        " * Every operation there is, with how it is computed from `inputs` (nodes) and `params`. L = positions.",
        " *",
        *table,
        " */",
        f"export type Op = {' | '.join(json.dumps(op) for op in OPERATIONS)};",
        "",
        "/** Operation and axes of every step, by its name with its kind where there are several. */",
        "export const SITES: Record<string, [Op, ...string[]]> = {",
        *steps,
        "};",
        "",
    ])  # fmt: skip


if __name__ == "__main__":
    sys.stdout.buffer.write(sites_ts().encode("utf-8"))
