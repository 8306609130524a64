"""What is known of one text that went through a model: frozen data, about which everything else is a function.

`compute.py` makes an `ExplanationData`; tensors are taken from it in `tensor_values.py`, JSON is made of it in `manifest.py`,
weights of words in `attribution/`, figures and pages in the folders of that name. `explanation.py` is the door
for those who would rather call methods.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

from glassformer.explain.answers import Answer
from glassformer.explain.capture.records import Check
from glassformer.explain.decode_log import DecodeLog
from glassformer.explain.ensemble_member import EnsembleMember
from glassformer.explain.predictions import Prediction
from glassformer.explain.preparing.prepared import Wrote
from glassformer.explain.record_store import RecordStore
from glassformer.explain.request import TraceRequest
from glassformer.explain.streams import Stream
from glassformer.explain.subject import Subject


class Omitted(TypedDict):
    """Something that is not shown, and the reason, a sentence each."""

    what: str
    why: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Inference:
    """What a model read and what it said: all that is needed to ask it again with words erased.

    Attributes:
        subject: the model (of an ensemble one member) and its task, with the weights that were asked for.
        model_inputs: what the model was called with, a batch of one: {"ids"} (and "padding_mask" where there
            is padding, "spelling" where n-grams are read), or {"src", "tgt_in"} (and "src_padding_mask").
        streams: the tokens. predictions: what the model says after each position.
        wrote: where the model's own writing begins.
    """

    subject: Subject
    model_inputs: dict[str, Any]
    streams: list[Stream]
    predictions: list[Prediction]
    wrote: Wrote

    @property
    def decides(self) -> bool:
        """Whether it said one thing of the whole text, a class, and not what comes after each token."""
        return self.predictions[0].position is None

    @property
    def written(self) -> list[int]:
        """Which of the predictions are of tokens that the model wrote itself, or was asked about as a translation."""
        told = enumerate(self.predictions)
        return [i for i, p in told if p.position is not None and p.position >= self.wrote.first]

    def read_until(self, prediction: Prediction) -> list[int]:
        """How many tokens of each stream a prediction is made from: all, or, of what is written, those before."""
        lengths = [len(stream) for stream in self.streams]
        return lengths if prediction.position is None else [*lengths[:-1], prediction.position + 1]


@dataclass(frozen=True, eq=False, kw_only=True)
class ExplanationData(Inference):
    """One text, seen through.

    Attributes:
        request: what was asked. id: what a page calls this.
        decode: how the target came about. answer: in a line, and how sure of it the model is.
        together: which member of an ensemble this is, and its own answer, while `answer` is that of all; else None.
        records: every tensor by id, a mapping like a trace.
        checks: comparisons of two ways to compute the same. omitted: what is not shown, and why.
        warnings: what to know about the input. seconds: how long it took.
    """

    request: TraceRequest
    id: str
    decode: DecodeLog
    answer: Answer
    together: EnsembleMember | None
    records: RecordStore
    checks: list[Check]
    omitted: list[Omitted]
    warnings: list[str]
    seconds: float

    @property
    def window(self) -> tuple[int, int] | None:
        """Positions shown of streams that are too long, from a start to an end that is not included; else None."""
        return self.records.window

    def __repr__(self) -> str:
        answer = f"{self.answer['headline']} {self.answer['detail']}"
        return f"<Explanation of {self.request.text[:60]!r}: {answer}; {len(self.records)} tensors>"
