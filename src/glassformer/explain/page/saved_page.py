"""Write the page as one HTML file that holds its data and makes no network requests.

Tensors are stored as 16-bit floats in base64, those most likely viewed first, until the file has its full size;
attributions may take half of what the rest leaves. The file lists what it lacks, and how to see it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any, NotRequired, TypedDict, get_args

from glassformer.errors import GlassformerError, UsageError
from glassformer.explain.attribution.attribute import (
    AttributeRequest,
    Attribution,
    Erased,
    EraseRequest,
    attribute,
    erase_each,
)
from glassformer.explain.attribution.value_function import Method, requested_prediction
from glassformer.explain.explanation import Explanation
from glassformer.explain.page.manifest import Manifest, RunInfo, manifest, run_info
from glassformer.explain.page.responses import WHOLE, asset, to_json
from glassformer.explain.page.saved_tensors import PackedTensor, pack_tensors
from glassformer.explain.watch.replay import SavedTraining

IN_WORDS = {"erase": "by erasing", "integrated_gradients": "by integrated gradients"}
MAX_BYTES = 20_000_000
PARAMETERS_BYTES = 1_500_000
"""Size of the file up to which parameters are stored, unless all are wanted."""
SENTENCES_BYTES = 10_000
"""Reserved for the sentences on what the file lacks."""
ATTRIBUTION_SECONDS = 30.0
"""Time limit for attributions, since a long translation has many words."""


class SavedAttribution(TypedDict):
    """The weights of words, and what was unlearned."""

    request: Annotated[dict[str, Any], AttributeRequest]
    attribution: Annotated[dict[str, Any], Attribution]


class SavedErasure(TypedDict):
    """What is said with a word erased, and which one was."""

    request: Annotated[dict[str, Any], EraseRequest]
    erased: Annotated[dict[str, Any], Erased]


class SavedView(TypedDict):
    """Where a saved page begins, and what it shows besides texts."""

    training: NotRequired[SavedTraining]
    """The curves of the training, and what the model answered at each snapshot."""
    view: NotRequired[str]
    """The address within the page that it begins at, "#/step?node=…"; default: Flow."""


class SavedPageData(SavedView):
    """The data of a saved page."""

    run: RunInfo
    traces: list[Manifest]
    """One trace, then that with edits or after steps of learning, then a second one to compare with."""
    tensors: dict[str, dict[str, PackedTensor]]
    """By trace id, then node, gradient or parameter id. Parameters that two traces of the same weights share are stored
    under the first."""
    attributions: list[SavedAttribution]
    erased: list[SavedErasure]
    """Each word erased alone."""
    dropped: list[str]
    """What the file lacks, and how to see it, a sentence each."""


class ByteBudget:
    """Bytes that may be spent, and how many are."""

    def __init__(self, n_bytes: int) -> None:
        self.n_bytes, self.spent = n_bytes, 0

    def take(self, value: Any) -> bool:
        """Spend what this takes in the file; False, and nothing spent, where that is more than there is."""
        size = size_of(value) + 1  # and a comma
        fits = self.spent + size <= self.n_bytes
        self.spent += size if fits else 0
        return fits


def saved_page_html(
    explanation: Explanation,
    *,
    edited: Explanation | None = None,
    other: Explanation | None = None,
    parameters: bool = False,
    max_bytes: int = MAX_BYTES,
    seconds: float = ATTRIBUTION_SECONDS,
    view: SavedView | None = None,
) -> tuple[str, list[str]]:
    """Return the page as text, and what it lacks, a sentence each.

    It shows an explanation, the same text under edits or after learning, and another text to compare with. Parameters
    are stored up to 1.5 MB of the file, or all of them, so that the page can recompute every step. It begins at the
    address in `view`, and shows the training in it.
    """
    if explanation.base is not None and edited is None:
        explanation, edited = explanation.base, explanation
    page = (asset("index.html"), asset(WHOLE), asset("app.css"))
    explanations = [e for e in (explanation, edited, other) if e is not None]
    unlearned = [e for e in explanations if e.base is None]  # of edits and of a model that learned there are none
    dropped: list[str] = []
    deadline = time.monotonic() + seconds
    data: SavedPageData = {
        **(view or {}),
        "run": run_info(explanation.run),
        "traces": [manifest(e) for e in explanations],
        "tensors": {},
        "attributions": [],
        "erased": [],
        "dropped": dropped,
    }
    needed = sum(len(part.encode()) for part in page) + size_of(data) + SENTENCES_BYTES
    if needed > max_bytes:
        raise UsageError(f"this page takes {needed:,} bytes without any tensor, more than {max_bytes:,}")
    words = ByteBudget((max_bytes - needed) // 2)
    data["attributions"], data["erased"] = saved_attributions(unlearned, deadline, dropped, words)
    used = needed + words.spent
    limit = max_bytes if parameters else min(max_bytes, PARAMETERS_BYTES)
    data["tensors"] = pack_tensors(explanations, max_bytes - used, limit - used, dropped)
    data["dropped"] = list(dict.fromkeys(dropped))
    return inline_page(*page, data), data["dropped"]


def saved_attributions(
    explanations: Sequence[Explanation], deadline: float, dropped: list[str], room: ByteBudget
) -> tuple[list[SavedAttribution], list[SavedErasure]]:
    """Compute `SavedPageData.attributions` and `.erased`: of a classifier's prediction by both methods.

    Of a translation or continuation token by token, leave-one-out first. What exceeds the byte budget is dropped, and
    what begins after the deadline, but for a classifier's scores by leave-one-out.
    """
    attributions: list[SavedAttribution] = []
    erasures: list[SavedErasure] = []
    for method in get_args(Method):
        for explained in explanations:
            once = explained.is_classifier or explained.is_number
            targets = [None] if once else written(explained)
            for n_done, prediction in enumerate(targets):
                which = {"trace": explained.id} | ({} if prediction is None else {"prediction": prediction})
                erased, request = list[SavedErasure](), which | {"method": method}
                saved: SavedAttribution | None = None
                if time.monotonic() <= deadline or (once and method == "erase"):
                    result = attribute(explained, AttributeRequest.from_dict(request))
                    saved = {"request": request, "attribution": asdict(result)}
                    erased += word_erasures(explained, which) if method == "erase" else ()
                if saved is None or not room.take([saved, *erased]):
                    left = f"{len(targets) - n_done} of {len(targets)}"
                    how = f"the weights of words {IN_WORDS[method]}"
                    dropped.append(f"Why: {how} for {left} answers are left out; the live page weighs any.")
                    break
                attributions.append(saved)
                erasures += erased
    return attributions, erasures


def word_erasures(explanation: Explanation, which: dict[str, Any]) -> Iterator[SavedErasure]:
    """Yield `SavedPageData.erased` of one prediction: every word that it can attend to, erased alone."""
    words = list(words_before(explanation, which.get("prediction")))
    if words:
        base = EraseRequest.from_dict(which | {"erase": {}})
        for positions, result in zip(words, erase_each(explanation, base, words), strict=True):
            yield {"request": which | {"erase": positions}, "erased": asdict(result)}


def written(explanation: Explanation) -> list[int]:
    """Return the indices into `predictions` that the page can explain: of tokens that were written, or are masked.

    Nothing follows a [MASK]: what is explained there is the most probable token.
    """
    masked = explanation.generation.masked is not None
    return [i for i in explanation.generated if masked or explanation.predictions[i].actual is not None]


def words_before(explanation: Explanation, prediction: int | None) -> Iterator[dict[str, list[int]]]:
    """Yield for each word that a prediction can attend to the positions of its tokens, by stream."""
    n_read = explanation.visible_lengths(requested_prediction(explanation, prediction or 0))
    for stream, n in zip(explanation.streams, n_read, strict=True):
        seen = stream.words[:n]
        for word in range(max(seen, default=-1) + 1):
            positions = [i for i, w in enumerate(seen) if w == word]
            if positions:
                yield {stream.name: positions}


def inline_page(index: str, script: str, style: str, data: Mapping[str, Any]) -> str:
    """Return the page with its script, style and data inside, and a policy that blocks everything else."""
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
        f'<script type="application/json" id="glassformer-data">{escape_json(to_json(data))}</script>\n'
        f"<script>{script}</script>\n</body>"
    )
    return _swap(r"</body>", inlined, html)


def escape_json(text: str) -> str:
    """Return JSON that is safe inside a script element: it cannot end the element or open another.

    It is ASCII, since one character beyond Latin-1 makes Chromium store all 20 MB in two bytes per character.
    """
    return re.sub(r"[<>&]", lambda match: f"\\u{ord(match[0]):04x}", re.sub(r"[^\0-\x7f]+", _in_ascii, text))


def _in_ascii(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1]


def _hash(content: str) -> str:
    """Return a Content-Security-Policy source that allows exactly this inline content."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode("utf-8")).digest()).decode("ascii")


def _swap(pattern: str, replacement: str, text: str) -> str:
    """Replace the single match of a pattern."""
    swapped, n_places = re.subn(pattern, lambda match: replacement, text, flags=re.IGNORECASE)
    if n_places != 1:
        raise GlassformerError(f"the built page matches {pattern} {n_places} times", "build it again: make web")
    return swapped


def size_of(data: Any) -> int:
    """Return the size of this data in the file, in bytes."""
    return len(escape_json(to_json(data)))
