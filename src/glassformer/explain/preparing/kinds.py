"""The kinds of models that can be looked into, and all in which they differ here; a task says which its models are.

What is the same for all goes by the data: which streams there are, whether a prediction has a position. A new
kind is a row of `KINDS` and a file beside this one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from glassformer.config import DecodeConfig
from glassformer.errors import UsageError
from glassformer.explain.preparing import deciding, translating, writing
from glassformer.explain.preparing.prepared import Prepared
from glassformer.explain.request import TraceRequest
from glassformer.explain.subject import Subject
from glassformer.tasks import Task
from glassformer.text.tokenizer import Tokenizer

Family = Literal["encoder", "encoder-decoder", "decoder"]


@dataclass(frozen=True)
class Kind:
    """How models of a kind are looked into.

    Attributes:
        family: the stacks there are.
        decides: they decide for a class, once for a whole text; others write tokens, each with its prediction.
        means: fields of a request that mean something to them and not to all.
        prepare: encodes and decodes a text as prediction would.
        settings: from how they write elsewhere to how they write for an explanation.
    """

    family: Family
    decides: bool
    means: frozenset[str]
    prepare: Callable[[Subject, TraceRequest, DecodeConfig], Prepared]
    settings: Callable[[DecodeConfig], DecodeConfig] = lambda config: config


KINDS: dict[str, Kind] = {
    "decider": Kind("encoder", True, frozenset(), deciding.prepare),
    "translator": Kind("encoder-decoder", False, frozenset({"target", "prefix"}), translating.prepare),
    "writer": Kind("decoder", False, frozenset({"prefix"}), writing.prepare, writing.own_settings),
}
"""By a task's `explain_as`."""


def kind_of(task: Task) -> Kind:
    """The kind that a task's models are of.

    Raises:
        UsageError: they cannot be looked into.
    """
    if task.explain_as is None:
        raise UsageError(f"a model trained to {task.name} cannot be looked into yet")
    return KINDS[task.explain_as]


def prepare(subject: Subject, request: TraceRequest) -> Prepared:
    """Encode and decode a text just as prediction would.

    Raises:
        UsageError: the request asks what this task, vocabulary or context cannot give.
    """
    kind = kind_of(subject.task)
    for name in ("target", "prefix"):
        if getattr(request, name) and name not in kind.means:
            raise UsageError(f"{name} means nothing to a model that was trained to {subject.task.name}")
    if request.prefix and request.target is not None:
        raise UsageError("a request has a target or a prefix, not both")
    _check_prefix(request.prefix, subject.task.tokenizer)
    return kind.prepare(subject, request, decode_settings(subject, dict(request.decode)))


def decode_settings(subject: Subject, changes: dict[str, Any]) -> DecodeConfig:
    """The settings that an explanation writes with, some of them changed.

    Raises:
        UsageError: there is no setting of a name.
    """
    unknown = sorted(changes.keys() - {f.name for f in fields(DecodeConfig)})
    if unknown:
        raise UsageError(f"decode has no field {unknown[0]!r}")
    return replace(kind_of(subject.task).settings(subject.task.config.decode), **changes)


def _check_prefix(prefix: Sequence[int], t: Tokenizer) -> None:
    for place, token in enumerate(prefix):
        if not 0 <= token < t.vocab_size:
            raise UsageError(f"prefix[{place}] is {token}, and the vocabulary has ids 0 to {t.vocab_size - 1}")
        if token in (t.pad_id, t.bos_id, t.eos_id):
            raise UsageError(
                f"prefix[{place}] is {t.pieces([token])[0]}, after which nothing can be written",
                "a prefix is ordinary tokens",
            )
