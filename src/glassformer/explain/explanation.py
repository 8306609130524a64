"""`explain`: one text through a trained model, with everything that can be said about it, as methods.

An `Explanation` is an `ExplanationData`, the frozen data, with a door to each function that takes one; nothing is worked
out here, and nothing else in `explain/` needs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.errors import UsageError
from glassformer.explain import tensor_values
from glassformer.explain.compute import compute_explanation
from glassformer.explain.explanation_data import ExplanationData
from glassformer.explain.manifest import Manifest, manifest
from glassformer.explain.request import TraceRequest
from glassformer.explain.subject import Subject
from glassformer.explain.trace import Trace

__all__ = ["Explanation", "TraceRequest", "explain"]


def explain(subject: Subject, request: TraceRequest | str, *, trace_id: str = "t1") -> Explanation:
    """Look at one text as the model does: encode and decode it as `predict` would, then capture one pass.

    Args:
        subject: a loaded `Run`.
        request: the text, or a whole request.
        trace_id: what a page calls this explanation.

    Raises:
        UsageError: the request asks what this task, vocabulary or context cannot give.
        CheckpointError: the checkpoint asked for is damaged.
        DivergedError: the model's logits are not numbers.
    """
    request = TraceRequest(request) if isinstance(request, str) else request
    return Explanation(**vars(compute_explanation(subject, request, trace_id)))


class Explanation(ExplanationData):
    """One text, seen through: the attributes are those of `ExplanationData` and `Inference`."""

    def manifest(self) -> Manifest:
        """What a page is told, ready for JSON; made once, so not to be changed."""
        return manifest(self)

    def tensor(self, id: str, slice: str = "") -> np.ndarray:
        """The values of a node or a parameter, or a slice of them, "head:3;token:0-50": see `tensor_values.tensor`.

        Raises:
            UsageError: there is no such tensor, or no such slice of it.
        """
        return tensor_values.tensor(self, id, slice)

    @property
    def trace(self) -> Trace:
        """The trace of the forward pass, as long as the text is short enough to be kept whole.

        Raises:
            UsageError: it is longer; `records` has its tensors one layer at a time.
        """
        if self.records.trace is None:
            raise UsageError("this text is too long for one trace", "look at `records` instead")
        return self.records.trace

    def attribute(self, method: str = "erase", **request: Any) -> Any:
        """Why the model said that, see `attribution.attribute`; fields of `AttributeRequest` by name."""
        from glassformer.explain.attribution.attribute import weigh

        return weigh(self, method=method, **request)

    def readings(self) -> list[Any]:
        """Where an alignment can be read, the place that agrees best with erasing first, see `attribution.alignment`.

        Raises:
            UsageError: the model is no translator, or the text is too long.
        """
        from glassformer.explain.attribution.alignment import readings

        return readings(self)

    @property
    def plot(self) -> Any:
        """Figures of this explanation: `explanation.plot.attribution()`."""
        from glassformer.explain.figures.explanation_plots import ExplanationPlots

        return ExplanationPlots(self)

    def save(self, path: str | Path) -> None:
        """Write the whole page, with this explanation in it, as one HTML file."""
        from glassformer.explain.page.report import write_report

        write_report(Path(path), self)

    def page(self) -> Any:
        """The whole page, to be shown by a notebook's cell: a few seconds of weighing words, a few megabytes."""
        from glassformer.explain.page.notebook import NotebookPage

        return NotebookPage(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Mapping[str, Any]:
        from glassformer.explain.page.notebook import mimebundle

        return mimebundle(self)
