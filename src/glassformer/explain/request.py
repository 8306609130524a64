"""A request to explain one text, and its limits.

A request may come from a page, that is from anywhere: the type and range of each field are checked as it is built,
whether by the page, the command or in Python, and the error names the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Annotated, Any, Self

from msgspec import Meta

from glassformer.config import DecodeConfig
from glassformer.config.recipes import build, check_request

MAX_EDITED_TOKENS, MAX_TOKENS = 128, 512
"""Longest streams that are edited and learned from, and longest that are recorded; a longer text is cut to that."""
MAX_TEXT = 1 << 20
"""Maximum characters of a text; the server's limit is lower."""
MAX_PREFIX, MAX_EDITS, MAX_EDIT_TEXT = 4096, 64, 200
"""Maximum ids of a prefix, edits of a request, and characters of an edit."""
MAX_STEPS = 100
"""Maximum steps of learning."""
CHECKPOINT, OPTIMIZER = r"^(model|step-[0-9]{8})\Z", r"^(adamw|adam|sgd|muon)\Z"
Text = Annotated[str, Meta(max_length=MAX_TEXT)]
ShortText = Annotated[str, Meta(max_length=40)]
EditText = Annotated[str, Meta(max_length=MAX_EDIT_TEXT)]
Id = Annotated[int, Meta(ge=0, le=2**31 - 1)]


@dataclass(frozen=True)
class DecodeLimits(DecodeConfig):
    """The decoding settings of an explanation, whose search is logged: smaller where the log would grow with them."""

    beam_size: Annotated[int, Meta(ge=1, le=32)] = 5
    n_best: Annotated[int, Meta(ge=1, le=32)] = 1
    max_new_tokens: Annotated[int, Meta(ge=1, le=1024)] = 256


class Request:
    """A request, whose fields are checked as it is built; the error names the field."""

    def __post_init__(self) -> None:
        check_request(self)

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Return a request from parsed JSON."""
        return build(cls, data, "", "request")


@dataclass(frozen=True)
class TraceRequest(Request):
    """One text to explain."""

    text: Text
    """The text, the source sentence or the prompt."""
    target: Text | None = None
    """A translation to explain instead of the model's own."""
    prefix: Annotated[tuple[Id, ...], Meta(max_length=MAX_PREFIX)] = ()
    """Ids that the translation must start with, or that follow the prompt."""
    decode: Annotated[Mapping[str, Any], "Partial<DecodeSettings>"] = field(default_factory=dict)
    """Fields of `DecodeConfig` that differ from the run's."""
    checkpoint: Annotated[str, Meta(pattern=CHECKPOINT, description='"model" or like "step-00001000"')] = "model"
    """"model" (the best weights) or a checkpoint's name; nothing else is ever used in a path."""
    member: Annotated[int, Meta(ge=0, le=99)] = 0
    """Model of an ensemble to trace, counted from 0."""
    edits: Annotated[tuple[EditText, ...], Meta(max_length=MAX_EDITS)] = ()
    """Edits of the forward pass; the tokens are those that are decoded without them."""
    other_text: Text | None = None
    """A second text, whose values the edits with =B take."""

    label: Text | None = None
    """Of several labels the one that is looked at; null: that of the answer, or the most probable one. Of a tagger the
    word, or its number from 1; null: the first whose tag is not O."""
    answer: Text | None = None
    """The answer to learn: a class, a number, a translation, the next words, the words at [MASK]."""
    learn_steps: Annotated[int, Meta(ge=0, le=MAX_STEPS)] = 0
    """Steps of the optimizer on the answer, before the pass that is shown."""
    lr: Annotated[float, Meta(gt=0, le=1000)] | None = None
    """Learning rate of these steps; null: that of the run."""
    optimizer: Annotated[str, Meta(pattern=OPTIMIZER, description="adamw, adam, sgd or muon")] | None = None
    """Optimizer of these steps; null: that of the run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        settings = build(DecodeLimits, self.decode, "decode", "request")
        object.__setattr__(self, "decode", {name: getattr(settings, name) for name in self.decode})

    def without_edits(self) -> TraceRequest:
        """Return the request for the same text without edits."""
        return replace(self, edits=(), other_text=None)

    def of_other_text(self) -> TraceRequest:
        """Return the request for the second text, of the same weights."""
        return TraceRequest(
            self.other_text or "", decode=self.decode, checkpoint=self.checkpoint, member=self.member, label=self.label
        )

    def to_json(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults as JSON data."""
        values = asdict(self) | {"prefix": list(self.prefix), "decode": dict(self.decode), "edits": list(self.edits)}
        defaults = {f.name: f.default for f in fields(self)}
        return {k: v for k, v in values.items() if k == "text" or (v != defaults[k] and v not in ([], {}))}
