"""Write the page as one HTML file that holds its data and makes no network requests.

Tensors are stored in base64, as 16-bit floats where they fit, those most likely viewed first, until the file has its
full size; attributions may take half of what the rest leaves. The file lists what it lacks, and how to see it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Sequence
from importlib.resources import files
from typing import Annotated, Any, NotRequired, TypedDict

import numpy as np

from glassformer.errors import GlassformerError, UsageError
from glassformer.explain.attribution import METHODS, AttributeRequest, attribute, erase_words
from glassformer.explain.capture.sites import Step
from glassformer.explain.capture.slices import get_parameter
from glassformer.explain.explanation import Explanation, explain
from glassformer.explain.learn.backward import is_gradient
from glassformer.explain.page.manifest import Json, Manifest, Packing, RunInfo, pack, plain, run_info
from glassformer.explain.subject import MODEL, Subject
from glassformer.explain.watch import ProbeAnswer, Training, TrainingNow, default_texts, probe
from glassformer.utils.formatting import counted

MAX_BYTES = 20_000_000
PARAMETERS_BYTES = 1_500_000
"""Size of the file up to which parameters are stored."""
SENTENCES_BYTES, NAMING_BYTES = 10_000, 200
"""Reserved for the sentences on what the file lacks; and for the id, type and shape of a tensor."""
ATTRIBUTION_SECONDS = 30.0
"""Time limit for attributions, since a long translation has many words."""
REPLAY_SECONDS = 120.0
"""Time limit of the answers at all snapshots, since a model may be large and its texts long."""
MAX_LOGITS_BYTES = 2_000_000
RANKS = {
    **dict.fromkeys(("ids", "mask", "softmax", "pool", "pin_zero"), 0),
    **dict.fromkeys(("lookup", "padded_lookup", "scale"), 1),
    "dot": 3,
}
"""Priority of operations, most viewed first; products are last, as they differ from scores only by a factor."""
OTHER_RANK, GRADIENT_RANK = 2, 4
POLICY = (
    "default-src 'none'; script-src '{}'; style-src '{}'; connect-src 'none'; img-src data: blob:; base-uri 'none'; "
    "form-action 'none'"
)
"""Allows one script and one style, by their hashes, and blocks everything else."""


STATIC = files("glassformer.explain.page") / "static"
WHOLE = "whole.js"
"""All scripts in one, for a page without a server."""


class PackedTensor(TypedDict):
    """A tensor in a file: little-endian, in base64."""

    dtype: Packing
    shape: list[int]
    data: str


class SavedTraining(TypedDict):
    """The training in a saved page."""

    now: TrainingNow
    texts: list[str]
    answers: list[ProbeAnswer]


class SavedPageData(TypedDict):
    """The data of a saved page."""

    run: RunInfo
    traces: list[Manifest]
    """One trace, then that with edits or after steps of learning, then a second one to compare with."""
    tensors: dict[str, dict[str, PackedTensor]]
    """By trace id, then node, gradient or parameter id. Parameters that two traces of the same weights share are stored
    under the first."""
    attributions: list[Annotated[Json, "{ request: AttributeRequest; attribution: Attribution }"]]
    """The weights of words, with the requests that they answer."""
    erased: list[Annotated[Json, "{ request: AttributeRequest; erased: Erased }"]]
    """What is answered with a word erased, each alone."""
    dropped: list[str]
    """What the file lacks, and how to see it, a sentence each."""
    training: NotRequired[SavedTraining]
    """The curves of the training, and what the model answered at each snapshot."""
    view: NotRequired[str]
    """The address within the page that it begins at, "#/step?node=…"; default: Flow."""


def asset(name: str) -> str:
    """Return the text of one of the page's files."""
    try:
        return (STATIC / name).read_text(encoding="utf-8")
    except OSError as error:
        raise GlassformerError(
            f"the page's file {name} is missing from this installation", "in a source checkout: make web"
        ) from error


def saved_page_html(
    explanation: Explanation,
    *,
    other: Explanation | None = None,
    max_bytes: int = MAX_BYTES,
    seconds: float = ATTRIBUTION_SECONDS,
    **shown: Any,
) -> tuple[str, list[str]]:
    """Return the page as text, and what it lacks, a sentence each.

    It shows an explanation, with edits or after learning also that before, and another text to compare with. Parameters
    are stored up to 1.5 MB of the file. `shown` are `view` and `training` of `SavedPageData`.
    """
    page = (asset("index.html"), asset(WHOLE), asset("app.css"))
    explanations = [e for e in (explanation.base, explanation, other) if e is not None]
    unlearned = [e for e in explanations if e.base is None]  # of edits and of a model that learned there are none
    dropped: list[str] = []
    deadline = time.monotonic() + seconds
    data: Any = {"run": run_info(explanation.run), "traces": [e.manifest() for e in explanations]} | shown
    needed = sum(len(part.encode()) for part in page) + size_of(data) + SENTENCES_BYTES
    if needed > max_bytes:
        raise UsageError(f"this page takes {needed:,} bytes without any tensor, more than {max_bytes:,}")
    data |= saved_attributions(unlearned, deadline, dropped, (max_bytes - needed) // 2)
    used = needed + size_of([data["attributions"], data["erased"]])
    data["tensors"] = pack_tensors(explanations, used, max_bytes, dropped)
    data["dropped"] = list(dict.fromkeys(dropped))
    return inline_page(*page, data), data["dropped"]


def replay_html(subject: Subject, training: Training, seconds: float = REPLAY_SECONDS) -> tuple[str, list[str]]:
    """Return the page that begins with a training, and what it lacks; its other screens show the first of the texts."""
    dropped = list[str]()
    saved = saved_training(subject, training, dropped, seconds=seconds)
    first = explain(subject, next(iter(saved["texts"]), "a"))
    page, lacks = saved_page_html(first, seconds=seconds, view="#/training", training=saved)
    return page, [*dropped, *lacks]


def saved_training(
    subject: Subject,
    training: Training,
    dropped: list[str],
    texts: list[str] | None = None,
    seconds: float = REPLAY_SECONDS,
) -> SavedTraining:
    """Return the curves, and the answers to a few texts at each snapshot; what is missing is added to `dropped`."""
    now = training.now()
    names = [each["name"] for each in now["snapshots"]] + ([MODEL] if now["has_model"] else [])
    if texts is None:
        found = default_texts(subject)
        texts = list[str](found["texts"])
        if found["missing"]:
            dropped.append(found["missing"])
    answers, deadline = list[ProbeAnswer](), time.monotonic() + seconds
    pairs = [(text, name) for name in names for text in texts]
    for i, (text, name) in enumerate(pairs):
        if time.monotonic() > deadline:
            dropped.append(f"Training: {len(pairs) - i} of {len(pairs)} answers are left out, as they take long.")
            break
        try:
            answers.append(probe(subject, text, name))
        except GlassformerError as error:
            dropped.append(f"Training: {name} gives no answer: {error.message}.")
    return {"now": now, "texts": texts, "answers": answers}


def saved_attributions(
    explanations: Sequence[Explanation], deadline: float, dropped: list[str], room: int
) -> dict[str, list[Any]]:
    """Compute `SavedPageData.attributions` and `.erased`, in so many bytes: of a class by both methods.

    Of a translation or continuation token by token, leave-one-out first. What exceeds the bytes is dropped, and what
    begins after the deadline, but for a classifier's scores by leave-one-out.
    """
    attributions, erasures = list[Any](), list[Any]()
    for method, name in METHODS.items():
        for explained in explanations:
            once = explained.is_classifier or explained.is_number
            # Nothing follows a [MASK]: what is explained there is the most probable token.
            masked, of = explained.decode.masked is not None, explained.predictions
            targets = [None] if once else [i for i in explained.generated if masked or of[i].actual is not None]
            for n_done, prediction in enumerate(targets):
                which = {"trace": explained.id} | ({} if prediction is None else {"prediction": prediction})
                new: list[Any] = []
                if time.monotonic() <= deadline or (once and method == "erase"):
                    request = which | {"method": method}
                    result = attribute(explained, AttributeRequest.from_dict(request))
                    new.append({"request": request, "attribution": plain(result)})
                    words = erase_words(explained, prediction) if method == "erase" else []
                    new += [{"request": which | {"erase": at}, "erased": plain(erased)} for at, erased in words]
                size = size_of(new)
                if not new or size > room:
                    left = f"{len(targets) - n_done} of {len(targets)}"
                    how = f"the weights of words by {name}"
                    dropped.append(f"Why: {how} for {left} answers are left out; the live page weighs any.")
                    break
                room -= size
                attributions.append(new[0])
                erasures += new[1:]
    return {"attributions": attributions, "erased": erasures}


def pack_tensors(
    explanations: Sequence[Explanation], used: int, max_bytes: int, dropped: list[str]
) -> dict[str, dict[str, PackedTensor]]:
    """Return `SavedPageData.tensors`: as many as fit into the file, in order of priority.

    So many bytes of the file are used by all else. `dropped` gets a sentence on what is left out.
    """
    packed: dict[str, dict[str, PackedTensor]] = {e.id: {} for e in explanations}
    missed = list[str]()

    def add(e: Explanation, name: str, n: int, limit: int) -> None:
        """Store a tensor of `n` numbers."""
        nonlocal used
        # From the losses the page computes that of an answer to 5 digits; of small gradients 16 bits leave few.
        half = n > 1 and name != "loss.each" and not is_gradient(name)
        if used + n * (2 if half else 4) + NAMING_BYTES <= limit:  # at least
            new = packed_tensor(e.tensor(name), half)
            size = len(new["data"]) + len(name) + NAMING_BYTES
            if used + size <= limit:
                packed[e.id][name] = new
                used += size
                return
        missed.append(name)

    for e in explanations:
        same = set() if e.edited is None else set(e.edited.same)  # found under the first trace
        for step in sorted(e.records.values(), key=_rank):  # in computing order within a rank
            n = step.value.numel()
            if step.id in same:
                continue
            if any(axis.name == "vocab" for axis in step.axes) and 2 * n > MAX_LOGITS_BYTES:
                missed.append(step.id)
                continue
            add(e, step.id, n, max_bytes)
    sizes = [(get_parameter(e.subject.model, name).numel(), e, name) for e in explanations for name in e.records.params]
    limit, seen = min(max_bytes, PARAMETERS_BYTES), set[int]()
    for n, e, name in sorted(sizes, key=lambda one: (explanations.index(one[1]), one[0])):
        weights = get_parameter(e.subject.model, name).data_ptr()
        if weights not in seen and name not in packed[e.id]:
            seen.add(weights)  # the page finds it under the first
            add(e, name, n, limit)
    if n := len(missed):
        shown = ", ".join(missed[:6]) + (f" and {n - 6} more" if n > 6 else "")
        dropped.append(
            f"{counted(n, 'tensors')} {'is' if n == 1 else 'are'} left out, to limit the size of the file: {shown}. "
            "Steps computed from them cannot be checked here; glassformer explain shows them."
        )
    return packed


def _rank(step: Step) -> int:
    return GRADIENT_RANK if is_gradient(step.id) else RANKS.get(step.op, OTHER_RANK)


def packed_tensor(values: np.ndarray, half: bool = False) -> PackedTensor:
    """Return values as they stand in a file, as `pack` gives them."""
    data, dtype = pack(values, half)
    return {"dtype": dtype, "shape": list(values.shape), "data": base64.b64encode(data).decode("ascii")}


def inline_page(index: str, script: str, style: str, data: Any) -> str:
    """Return the page with its script, style and data inside, and a policy that blocks everything else."""
    meta = f'<meta http-equiv="Content-Security-Policy" content="{POLICY.format(_hash(script), _hash(style))}">'
    # The data before the script, and both at the end, where all that the script looks for exists.
    parts = {
        '<meta charset="utf-8">': f'<meta charset="utf-8">\n{meta}',
        '<link rel="stylesheet" href="app.css">': f"<style>{style}</style>",
        '<script type="module" src="app.js"></script>\n': (
            f'<script type="application/json" id="glassformer-data">{html_json(data)}</script>\n'
            f"<script>{script}</script>\n"
        ),
    }
    for part, inside in parts.items():
        index = index.replace(part, inside, 1)
    return index


def html_json(data: Any) -> str:
    """Return JSON that is safe inside a script element: it cannot end the element or open another.

    It is ASCII, since one character beyond Latin-1 makes Chromium store all 20 MB in two bytes per character.
    """
    text = json.dumps(plain(data), separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def size_of(data: Any) -> int:
    """Return the size of this data in the file, in bytes."""
    return len(html_json(data))


def _hash(content: str) -> str:
    """Return a Content-Security-Policy source that allows exactly this inline content."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode("utf-8")).digest()).decode("ascii")
