"""The words of a saved page: their weights, and every word erased alone, as far as time and room allow."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Annotated, Any, TypedDict, get_args

from glassformer.explain.attribution.attribute import (
    AttributeRequest,
    Attribution,
    Erased,
    EraseRequest,
    attribute,
    erase_each,
)
from glassformer.explain.attribution.value_function import Method
from glassformer.explain.explanation import Explanation
from glassformer.explain.page.inline import size_of

IN_WORDS = {"erase": "by erasing", "integrated_gradients": "by integrated gradients"}


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


class SavedAttribution(TypedDict):
    """The weights of words, and what was asked."""

    request: Annotated[dict[str, Any], AttributeRequest]
    attribution: Annotated[dict[str, Any], Attribution]


class SavedErasure(TypedDict):
    """What is said with a word erased, and which one was."""

    request: Annotated[dict[str, Any], EraseRequest]
    erased: Annotated[dict[str, Any], Erased]


def saved_attributions(
    explanations: Sequence[Explanation], deadline: float, dropped: list[str], room: ByteBudget
) -> tuple[list[SavedAttribution], list[SavedErasure]]:
    """Compute `SavedPageData.attributions` and `.erased`: of a classifier's prediction by both methods.

    Of a translation or continuation token by token until the deadline, leave-one-out first. What exceeds the byte
    budget is dropped.
    """
    attributions: list[SavedAttribution] = []
    erasures: list[SavedErasure] = []
    n_left = 0
    for method in get_args(Method):
        for explained in explanations:
            targets = [None] if explained.is_classifier else written(explained)
            for n_done, prediction in enumerate(targets):
                which = {"trace": explained.id} | ({} if prediction is None else {"prediction": prediction})
                saved: SavedAttribution | None = None
                why = "written tokens are left out, to keep the file short; the live page has any."
                if explained.is_classifier or time.monotonic() <= deadline:
                    result = attribute(explained, AttributeRequest.from_dict(which | {"method": method}))
                    saved = {"request": which | {"method": method}, "attribution": asdict(result)}
                    why = "answers are left out, as the file is full; the live page weighs any."
                if saved is None or not room.take(saved):
                    left = f"{len(targets) - n_done} of {len(targets)}"
                    dropped.append(f"Why: the weights of words {IN_WORDS[method]} for {left} {why}")
                    break
                attributions.append(saved)
                if method == "erase":
                    for one in word_erasures(explained, which):
                        fits = room.take(one)
                        n_left += not fits
                        erasures += [one] * fits
    if n_left:
        dropped.append(f"Why: {n_left} erased words are left out, as the file is full; the live page erases any.")
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
    n_read = explanation.visible_lengths(explanation.predictions[prediction or 0])
    for stream, n in zip(explanation.streams, n_read, strict=True):
        seen = stream.words[:n]
        for word in range(max(seen, default=-1) + 1):
            positions = [i for i, w in enumerate(seen) if w == word]
            if positions:
                yield {stream.name: positions}
