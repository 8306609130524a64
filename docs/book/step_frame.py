"""Write a small page that shows some steps of an explanation, or what was learned, to be framed in another document.

It has the steps' formulas, values, arithmetic and checks, and their inputs, so that a browser can compute them again;
or the loss of an answer, the steps of the optimizer and its update of some parameters. Script and style are separate
files, which several frames share.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, cast
from urllib.parse import urlencode

from glassformer.errors import UsageError
from glassformer.explain.explanation import Explanation
from glassformer.explain.learn.learning import update_of
from glassformer.explain.page.manifest import Manifest, manifest, run_info
from glassformer.explain.page.saved_page import WHOLE, SavedPageData, html_json, packed_tensor

MAX_BYTES = 150_000
"""Maximum size of a frame, without script and style."""
N_CANDIDATES = 12
"""Candidates of each prediction that are kept."""

LEARN_ADDRESS = "#/learn?frame=learn"
"""The part of the address that opens what was learned."""


def step_frame_html(explanation: Explanation, ids: Sequence[str], assets: str) -> str:
    """Return the page of some steps; `step_address` is the part after its name that opens one of them."""
    kept = _reduced(manifest(explanation), ids)
    data = _data(explanation, [kept])
    inputs = {id for node in kept["nodes"] for id in node["inputs"]} & set(explanation.records)
    names = dict.fromkeys([*ids, *sorted(inputs), *kept["params"]])
    data["tensors"] = {explanation.id: {name: packed_tensor(explanation.tensor(name), half=True) for name in names}}
    return _page(data, ", ".join(ids), assets)


def learn_frame_html(after: Explanation, parameters: Sequence[str], assets: str) -> str:
    """Return the page of what was learned, with the update of some parameters; `LEARN_ADDRESS` opens it."""
    explanations = [cast(Explanation, after.base), after]
    whole = manifest(after)
    losses = [node["id"] for node in whole["nodes"] if node["id"].partition(".")[0] == "loss"]
    traces = [_reduced(manifest(e), ["logits", *losses]) for e in explanations]
    traces[1]["params"] = {name: whole["params"][name] for name in parameters}
    data = _data(after, traces)
    for e in explanations:
        data["tensors"][e.id] = {id: packed_tensor(e.tensor(id)) for id in losses}
    updates = [id for name in parameters for id in update_of(after, name)]
    data["tensors"][after.id] |= {id: packed_tensor(after.tensor(id)) for id in updates}
    return _page(data, f"learning {after.request.answer!r}", assets)


def _data(explanation: Explanation, traces: list[Manifest]) -> SavedPageData:
    """Return the data of a saved page that has no tensors yet."""
    return {
        "run": {**run_info(explanation.run), "examples": [], "checkpoints": []},
        "traces": traces,
        "tensors": {},
        "attributions": [],
        "erased": [],
        "dropped": [],
    }


def _page(data: SavedPageData, title: str, assets: str) -> str:
    html = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n"
        f'<link rel="icon" href="data:,">\n<link rel="stylesheet" href="{assets}/app.css">\n</head>\n<body>\n'
        '<div id="app"></div>\n'
        f'<script type="application/json" id="glassformer-data">{html_json(data)}</script>\n'
        f'<script src="{assets}/{WHOLE}"></script>\n</body>\n</html>\n'
    )
    if len(html) > MAX_BYTES:
        raise UsageError(
            f"this frame takes {len(html):,} bytes, more than {MAX_BYTES:,}", "name fewer steps or parameters"
        )
    return html


def step_address(id: str, head: int = 0) -> str:
    """Return the part of the address that opens a step; heads are counted from 0."""
    return "#/step?" + urlencode({"node": id, "head": head, "frame": "step"})


def _reduced(whole: Manifest, ids: Sequence[str]) -> Manifest:
    """Return a copy of a manifest with some of its steps, their parameters and the most probable candidates."""
    nodes = [node for node in whole["nodes"] if node["id"] in ids]
    if missing := [id for id in ids if id not in {node["id"] for node in nodes}]:
        raise UsageError(f"there is no step {missing[0]!r}", "see the list of steps in the reference")
    names = {name for node in nodes for name in node["params"].values()}
    reduced: dict[str, Any] = dict(whole)
    reduced["nodes"], reduced["gradients"] = nodes, []
    reduced["params"] = {name: param for name, param in whole["params"].items() if name in names}
    reduced["predictions"] = [p | {"top": p["top"][:N_CANDIDATES]} for p in whole["predictions"]]
    return Manifest(**reduced)
