"""Explain one text: `explain` returns an `Explanation` with tensors, attributions, figures and pages as methods.

An `Explanation` is an `ExplanationData`, the frozen data, with a method for each function of it. Nothing is computed
here, and nothing else in `explain/` imports this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.errors import UsageError
from glassformer.explain import tensor_values
from glassformer.explain.compute import compute_explanation
from glassformer.explain.edits.checkpoints import CheckpointsSweep, sweep_checkpoints
from glassformer.explain.edits.contributions import Contributions, contributions
from glassformer.explain.edits.lens import LayersSweep, sweep_layers
from glassformer.explain.edits.states import StatesSweep, sweep_states
from glassformer.explain.edits.sweeps import KeysSweep, PartsSweep, sweep_keys, sweep_parts
from glassformer.explain.edits.what_if import explain_edited, what_if
from glassformer.explain.effects import WhatIf
from glassformer.explain.explanation_data import ExplanationData
from glassformer.explain.manifest import Manifest, manifest
from glassformer.explain.request import TraceRequest
from glassformer.explain.subject import Subject
from glassformer.explain.trace import Trace

__all__ = ["Explanation", "TraceRequest", "explain"]


def explain(subject: Subject, request: TraceRequest | str, *, trace_id: str = "t1") -> Explanation:
    """Return the explanation of one text: encode and decode it as `predict` would, then record one forward pass.

    Args:
        subject: a loaded `Run`.
        request: the text, or a whole request.
        trace_id: the name of this explanation on the page.

    Raises:
        UsageError: the request does not suit this task, vocabulary or context; or an edit does not fit the text.
        CheckpointError: the requested checkpoint is damaged.
        DivergedError: the model's logits are NaN or infinite.
    """
    request = TraceRequest(request) if isinstance(request, str) else request
    if request.edits:
        return Explanation(**vars(explain_edited(subject, request, trace_id)))
    return Explanation(**vars(compute_explanation(subject, request, trace_id)))


class Explanation(ExplanationData):
    """The explanation of one text; its attributes are those of `ExplanationData` and `Inference`."""

    def manifest(self) -> Manifest:
        """Return all that the page needs except tensors, as JSON data; it is cached, so do not change it."""
        return manifest(self)

    def tensor(self, id: str, slice: str = "") -> np.ndarray:
        """Return the values of a node or parameter, or a slice of them, "head:3;token:0-50".

        Raises:
            UsageError: there is no such tensor, or no such slice of it.
        """
        return tensor_values.get_tensor(self, id, slice)

    @property
    def trace(self) -> Trace:
        """Return the trace of the forward pass.

        Raises:
            UsageError: the text is too long to be kept whole; `records` has its tensors one layer at a time.
        """
        if self.records.trace is None:
            raise UsageError("this text is too long for one trace", "use `records` instead")
        return self.records.trace

    def attribute(self, method: str = "erase", **request: Any) -> Any:
        """Return the attribution of one prediction to the words; keyword arguments as in `AttributeRequest`.

        Raises:
            UsageError: the explanation has edits; or the prediction, class or token does not exist.
        """
        from glassformer.explain.attribution.attribute import attribute_fields

        return attribute_fields(self, method=method, **request)

    def what_if(self, *edits: str, other: ExplanationData | None = None) -> WhatIf:
        """Return what the model predicts when steps are replaced: `e.what_if("decoder.1.cross.head2=0")`.

        Args:
            edits: edits as text: a step, a slice of it, and `=NUMBER`, `*NUMBER`, `=B`, `=blocked` or `=skip`; see
                `explain/edits/grammar.py`.
            other: the explanation of a second text by the same model, whose values =B takes.

        The edits of this explanation, if it has any, stay in both passes that are compared. The sweeps and
        contributions do the same.

        Raises:
            UsageError: an edit is malformed, names no step, does not fit it or never acts; or the text has more than
                128 tokens.
        """
        return what_if(self, edits, other)

    def sweep_parts(self) -> PartsSweep:
        """Return the effect of switching off each head and feed-forward block, and of each head alone."""
        return sweep_parts(self)

    def sweep_keys(self) -> KeysSweep:
        """Return the effect of keeping each head from attending to each token."""
        return sweep_keys(self)

    def sweep_layers(self) -> LayersSweep:
        """Return what the model would predict after each layer, with the later ones skipped."""
        return sweep_layers(self)

    def sweep_states(self, other: ExplanationData) -> StatesSweep:
        """Return the share of the answer that each state of the residual stream carries.

        Args:
            other: the explanation of a second text with another answer.
        """
        return sweep_states(self, other)

    def sweep_checkpoints(self) -> CheckpointsSweep:
        """Return what the edits of this explanation change at every checkpoint of its run.

        Raises:
            UsageError: the explanation has no edits.
        """
        return sweep_checkpoints(self)

    def contributions(self, prediction: int | None = None) -> Contributions:
        """Return the parts whose sum is the logit of a prediction minus that of its contrast.

        Args:
            prediction: index of the prediction, by default the first generated token.
        """
        return contributions(self, prediction)

    def readings(self) -> list[Any]:
        """Return the layers and steps to read a word alignment from, the one that agrees best with erasing words first.

        Raises:
            UsageError: the model is not a translator, or the explanation has edits.
        """
        from glassformer.explain.attribution.alignment import readings

        return readings(self)

    @property
    def plot(self) -> Any:
        """Return the figures of this explanation: `explanation.plot.attribution()`."""
        from glassformer.explain.figures.explanation_plots import ExplanationPlots

        return ExplanationPlots(self)

    def save(self, path: str | Path, *, parameters: bool = False) -> None:
        """Write the page with this explanation as one HTML file.

        Args:
            path: the .html file.
            parameters: store all parameters, so that the page can recompute every step; by default those that fit in
                1.5 MB with the rest.
        """
        from glassformer.explain.page.saved_page import write_saved_page

        write_saved_page(Path(path), self, parameters=parameters)

    def page(self) -> Any:
        """Return the page as the output of a notebook cell: a few seconds to compute, a few megabytes."""
        from glassformer.explain.page.notebook import NotebookPage

        return NotebookPage(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Mapping[str, Any]:
        from glassformer.explain.page.notebook import mimebundle

        return mimebundle(self)
