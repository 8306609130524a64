"""The page as one HTML file that opens from a disk, asks nothing of any network and holds its numbers itself.

What there is to show comes from `explanation.py`; here it is chosen, packed and inlined. Tensors are put in
as 16-bit floats in base64, the ones most looked at first, until the file has its full size; what found no
room is listed in the file, with the way to see it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, get_args, runtime_checkable

from glassformer.errors import GlassformerError
from glassformer.explain.attribution.alignment import Aligned, readings_json
from glassformer.explain.attribution.asking import Method
from glassformer.explain.attribution.attribute import AttributeRequest, EraseRequest, attribute, erase_each
from glassformer.explain.checkpoints import Subject
from glassformer.explain.facts import run_facts
from glassformer.explain.page.assets import WHOLE, asset
from glassformer.explain.page.responses import pack, to_json
from glassformer.files import atomic_write_text

MAX_BYTES = 20_000_000
MAX_LOGITS_BYTES = 2_000_000
"""Logits of a small vocabulary are kept whole; of a large one only the best of each position."""
WEIGHING_SECONDS = 30.0
"""Time spent on weighing and erasing words; a long translation has more of them than anyone will look at."""
IN_WORDS = {"erase": "by erasing", "integrated_gradients": "by integrated gradients"}
RANKS = {"ids": 0, "mask": 0, "softmax": 0, "pool": 0, "pin_zero": 0, "lookup": 1, "scale": 1, "dot": 3}
"""What is looked at most comes first; products differ from scores by a factor, so they come last."""
OTHER_RANK = 2
SUFFIX = {"f16": 2, "f32": 4, "i32": 4, "u8": 1}


@runtime_checkable
class Shown(Aligned, Protocol):
    """What is needed of an explanation."""

    @property
    def id(self) -> str: ...
    def manifest(self) -> dict[str, Any]: ...


def write_report(
    path: Path, explanation: Shown, *, other: Shown | None = None, subject: Subject | None = None
) -> list[str]:
    """Write the report; returns a sentence for each thing that was left out.

    Args:
        path: the .html file; an earlier one is replaced in one step.
        explanation: what it shows. other: a second one, to compare.
        subject: the run; the explanation's own when absent.

    Raises:
        ResourceError: the file cannot be written.
    """
    html, dropped = report_html(explanation, other=other, subject=subject)
    atomic_write_text(path, html)
    return dropped


def report_html(
    explanation: Shown,
    *,
    other: Shown | None = None,
    subject: Subject | None = None,
    max_bytes: int = MAX_BYTES,
    seconds: float = WEIGHING_SECONDS,
) -> tuple[str, list[str]]:
    """The report as text, and a sentence for each thing that was left out.

    Args:
        explanation, other, subject: as in `write_report`.
        max_bytes: of the whole file. seconds: what weighing and erasing words may take.
    """
    page = (asset("index.html"), asset(WHOLE), asset("app.css"))
    explanations = [explanation] if other is None else [explanation, other]
    dropped: list[str] = []
    deadline = time.monotonic() + seconds
    attributions, erasures = words_weighed(explanations, deadline, dropped)
    data: dict[str, Any] = {
        "run": run_facts(subject or explanation.subject),
        "traces": [e.manifest() for e in explanations],
        "tensors": {},
        "attributions": attributions,
        "erased": erasures,
        "alignments": alignments(explanations),
        "dropped": dropped,
    }
    spent = sum(len(part.encode()) for part in page) + len(escaped(to_json(data)).encode()) + 10_000
    data["tensors"] = packed_tensors(explanations, max_bytes - spent, dropped)
    data["dropped"] = list(dict.fromkeys(dropped))  # two traces lack much the same
    return one_file(*page, data), data["dropped"]


def alignments(explanations: list[Shown]) -> dict[str, dict[str, Any]]:
    """`ReportData.alignments`: of each translation, by trace."""
    return {
        e.id: readings_json(e.readings())
        for e in explanations
        if e.subject.task.name == "translate" and e.window is None
    }


def words_weighed(
    explanations: Sequence[Shown], deadline: float, dropped: list[str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """`ReportData.attributions` and `.erased`: of a classifier's answer by both methods; of what a
    translator or language model wrote token after token until the deadline, first by erasing."""
    attributions, erasures = [], []
    for method in get_args(Method):
        for explanation in explanations:
            manifest = explanation.manifest()
            classifier = manifest["model"]["task"] == "classify"
            targets = [None] if classifier else written(manifest)
            for n_done, prediction in enumerate(targets):
                if time.monotonic() > deadline and not classifier:
                    dropped.append(
                        f"Why: the weights of words {IN_WORDS[method]} for {len(targets) - n_done} of "
                        f"{len(targets)} written tokens, to keep the export short; the live page weighs any."
                    )
                    break
                which = {"trace": explanation.id} | ({} if prediction is None else {"prediction": prediction})
                request = which | {"method": method}
                told = attribute(explanation, AttributeRequest.from_dict(request))
                attributions.append({"request": request, "attribution": told.to_json()})
                if method == "erase":
                    erasures += each_word_erased(explanation, which)
    return attributions, erasures


def each_word_erased(explanation: Shown, which: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """`ReportData.erased` of one prediction: every word that it can see, erased alone."""
    words = list(words_before(explanation.manifest(), which.get("prediction")))
    if words:
        base = EraseRequest.from_dict(which | {"erase": {}})
        for positions, told in zip(words, erase_each(explanation, base, words), strict=True):
            yield {"request": which | {"erase": positions}, "erased": told.to_json()}


def written(manifest: dict[str, Any]) -> list[int]:
    """Indices into `predictions` of the tokens that the model wrote, or that it was given as a translation."""
    stream = manifest["streams"][-1]
    n_given = stream["n_given"] if manifest["model"]["task"] == "lm" else 0
    return [
        i
        for i, p in enumerate(manifest["predictions"])
        if p["actual"] is not None and (p["position"] or 0) + 1 >= n_given
    ]


def words_before(manifest: dict[str, Any], prediction: int | None) -> Iterator[dict[str, list[int]]]:
    """For each word that a prediction can see: the positions of its tokens, by stream."""
    last = None if prediction is None else manifest["predictions"][prediction]["position"]
    for stream in manifest["streams"]:
        seen = stream["words"]
        if last is not None and stream["name"] != "source":
            seen = seen[: last + 1]
        for word in range(max(seen, default=-1) + 1):
            positions = [i for i, w in enumerate(seen) if w == word]
            if positions:
                yield {stream["name"]: positions}


def packed_tensors(
    explanations: list[Shown], room: int, dropped: list[str]
) -> dict[str, dict[str, dict[str, Any]]]:
    """`ReportData.tensors`: as many as have room, in the order in which they are likely to be looked at."""
    packed: dict[str, dict[str, dict[str, Any]]] = {e.id: {} for e in explanations}
    left_out: list[str] = []
    for explanation in explanations:
        manifest = explanation.manifest()
        nodes = [n for n in manifest["nodes"] if not _is_large_logits(n["axes"])]
        if len(nodes) < len(manifest["nodes"]):
            dropped.append(
                "Logits of the whole vocabulary: the 50 most probable tokens of each position are here; "
                "the live page has them all."
            )
        nodes.sort(key=lambda n: RANKS.get(n["op"], OTHER_RANK))  # stable: in computing order within a rank
        for name, axes, dtype in [(n["id"], n["axes"], n["dtype"]) for n in nodes]:
            room = _pack_one(explanation, name, axes, dtype, room, packed, left_out)
    manifests = [e.manifest() for e in explanations]
    weights = [(m["model"]["checkpoint"], m["request"].get("member")) for m in manifests]
    for i, explanation in enumerate(explanations):
        if weights[i] in weights[:i]:
            continue  # the same parameters: the page finds them under the first
        params = explanation.manifest()["params"]
        for name, param in sorted(params.items(), key=lambda item: _size(item[1]["axes"])):
            room = _pack_one(explanation, name, param["axes"], "f32", room, packed, left_out)
    if left_out:
        shown = ", ".join(left_out[:6]) + (f" and {len(left_out) - 6} more" if len(left_out) > 6 else "")
        dropped.append(
            f"{len(left_out)} tensors, as the file is full: {shown}. What is computed from them cannot be "
            "checked here; `glassformer explain` shows them."
        )
    return packed


def _pack_one(
    explanation: Shown,
    name: str,
    axes: list[dict[str, Any]],
    dtype: str,
    room: int,
    packed: dict[str, dict[str, dict[str, Any]]],
    left_out: list[str],
) -> int:
    """Put a tensor in if it fits; returns the room that is left."""
    smallest = _size(axes) * SUFFIX["f16" if dtype == "f32" else dtype] * 4 // 3
    if smallest + 200 > room:
        left_out.append(name)
        return room
    values = explanation.tensor(name)
    data, sent = pack(values, "f16")
    text = base64.b64encode(data).decode("ascii")
    if len(text) + len(name) + 200 > room:  # too large for 16 bits, so it took 32
        left_out.append(name)
        return room
    packed[explanation.id][name] = {"dtype": sent, "shape": list(values.shape), "data": text}
    return room - len(text) - len(name) - 200


def _is_large_logits(axes: list[dict[str, Any]]) -> bool:
    return any(axis["name"] == "vocab" for axis in axes) and _size(axes) * 2 > MAX_LOGITS_BYTES


def _size(axes: list[dict[str, Any]]) -> int:
    return math.prod(axis["size"] for axis in axes)


def one_file(index: str, script: str, style: str, data: dict[str, Any]) -> str:
    """The page with its script, style and data inside, and a policy that lets nothing else run or load.

    Raises:
        GlassformerError: the built page is not of the form this expects.
    """
    if re.search(r"</script|<!--", script, re.IGNORECASE) or "</style" in style.lower():
        raise GlassformerError("the built page would end its own script or style", "build it again: make web")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; connect-src 'none'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    html = _swap(r"<link\b[^>]*app\.css[^>]*>", f"<style>{style}</style>", index)
    html = _swap(r"<script\b[^>]*app\.js[^>]*>\s*</script>", "", html)
    html = _swap(r"<meta charset=[^>]*>", f'<meta charset="utf-8">\n{meta}', html)
    # The data before the script, and both at the end, where all that the script looks for exists.
    inlined = (
        f'<script type="application/json" id="glassformer-data">{escaped(to_json(data))}</script>\n'
        f"<script>{script}</script>\n</body>"
    )
    return _swap(r"</body>", inlined, html)


def escaped(text: str) -> str:
    """JSON that is safe inside a script element: no token in it can end the element or open another.

    All of it is ASCII: for one character beyond Latin-1 Chromium keeps every other of 20 MB in two bytes,
    too, and such a page opened .2 s later.
    """
    return re.sub(r"[<>&]", lambda found: f"\\u{ord(found[0]):04x}", re.sub(r"[^\0-\x7f]+", _in_ascii, text))


def _in_ascii(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1]


def _hash(content: str) -> str:
    """A content-security-policy source that allows exactly this inline content."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode("utf-8")).digest()).decode("ascii")


def _swap(pattern: str, replacement: str, text: str) -> str:
    """Replace the one place a pattern matches."""
    swapped, n_places = re.subn(pattern, lambda match: replacement, text, flags=re.IGNORECASE)
    if n_places != 1:
        raise GlassformerError(
            f"the built page matches {pattern} {n_places} times", "build it again: make web"
        )
    return swapped
