"""Inspect a trained model: every tensor of a forward pass, and attributions of its predictions to the input.

`trace` records a forward pass; the other modules make explanations, figures and a page from such records.

Ids of steps (`decoder.1.cross.weights`), edits, flags, figures and the page count layers, heads and tokens from 0.
"""

from glassformer.explain.capture.sites import Axis, Check, SourceLine, Step
from glassformer.explain.trace import Trace, trace

__all__ = ["Axis", "Check", "SourceLine", "Step", "Trace", "trace"]
