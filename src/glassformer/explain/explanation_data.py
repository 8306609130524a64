"""The data of one explanation, frozen: a text, the model's predictions, and every tensor of the forward pass.

`compute.py` makes an `ExplanationData`. Functions of it return tensors (`tensor_values.py`), JSON (`manifest.py`),
attributions, figures and pages (the folders of that name); `explanation.py` offers them as methods.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

from glassformer.errors import UsageError
from glassformer.explain.answers import Answer
from glassformer.explain.capture.records import Check
from glassformer.explain.decode_log import DecodeLog
from glassformer.explain.effects import WhatIf
from glassformer.explain.ensemble_member import EnsembleMember
from glassformer.explain.inputs.encoded_text import GenerationInfo
from glassformer.explain.predictions import Prediction
from glassformer.explain.record_store import RecordStore
from glassformer.explain.request import TraceRequest
from glassformer.explain.streams import Stream
from glassformer.explain.subject import Subject

PRECISION = "fp32"
"""In what explanations are computed (`capture/exact_inference.py`)."""


class Omitted(TypedDict):
    """Something that is not shown, and the reason, one sentence each."""

    what: str
    why: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Inference:
    """The inputs and predictions of a model for one text, enough to call it again with words erased.

    Attributes:
        subject: the model (one member of an ensemble) with the requested weights, and its task.
        model_inputs: the arguments of the model, a batch of one: {"ids"} (and "padding_mask" where there
            is padding, "ngram_batch" where n-grams are read), or {"src", "tgt_in"} (and "src_padding_mask").
        streams: the tokens.
        predictions: the prediction at each position.
        generation: where the generated tokens begin.
        edited: what the edits of the forward pass change; None without edits.
    """

    subject: Subject
    model_inputs: dict[str, Any]
    streams: list[Stream]
    predictions: list[Prediction]
    generation: GenerationInfo
    edited: WhatIf | None = None

    def check_not_edited(self) -> None:
        """Check that the predictions are those of the model as it is, which is called again.

        Raises:
            UsageError: the forward pass was edited.
        """
        if self.edited is not None:
            raise UsageError("words are weighed without edits only", "take the explanation without edits")

    @property
    def is_classifier(self) -> bool:
        """Return True if there is one prediction for the whole text, False if there is one per token."""
        return self.predictions[0].position is None

    @property
    def answered(self) -> list[int]:
        """Return the indices of the predictions that make the answer: `generated`, or that of a classifier."""
        return [0] if self.is_classifier else self.generated

    @property
    def generated(self) -> list[int]:
        """Return the indices of the predictions of generated tokens, of a given translation, or of masked tokens.

        Of a masked language model these are all tokens where none is masked.
        """
        if self.generation.masked:
            return self.generation.masked
        positions = enumerate(p.position for p in self.predictions)
        return [i for i, position in positions if position is not None and position >= self.generation.first]

    def visible_lengths(self, prediction: Prediction) -> list[int]:
        """Return the number of tokens of each stream that a prediction depends on: of a decoder's, those before it."""
        lengths = [len(stream) for stream in self.streams]
        if prediction.position is None or self.generation.masked is not None:
            return lengths
        return [*lengths[:-1], prediction.position + 1]


@dataclass(frozen=True, eq=False, kw_only=True)
class ExplanationData(Inference):
    """An inference with every tensor of its forward pass.

    Attributes:
        request: the request that was answered.
        id: the name of this explanation on the page.
        decode: how the target was generated.
        answer: the output in one line, with its probability.
        together: the member of an ensemble that is explained, and the answer of all; None for a single model.
        records: every tensor by id, a mapping like a trace.
        checks: comparisons of two computations that must agree.
        omitted: what is not shown, and why.
        warnings: what to know about the input.
        seconds: the time it took.
        run: the run that was asked, of which `subject` is one model with the requested weights.
        base: the explanation of the same text without the edits of the request; None without edits.
        other: the explanation of the second text of the request, for =B.
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
    run: Subject
    base: ExplanationData | None = None
    other: ExplanationData | None = None

    @property
    def precision(self) -> str:
        """Return the precision of all numbers here, that of the pass too; `predict` may answer in another one."""
        return PRECISION

    def __repr__(self) -> str:
        answer = f"{self.answer['headline']} {self.answer['detail']}"
        return f"<Explanation of {self.request.text[:60]!r}: {answer}; {len(self.records)} tensors>"
