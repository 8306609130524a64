"""Generate the TypeScript of the page that follows from Python: JSON interfaces, and the fields of a request.

`make web` writes `web/src/types.ts`; `make web-check` and a test fail when it is out of date. An interface comes from a
class whose objects are sent: those of its fields that the page names, their types and docstrings.
An annotation may name its TypeScript type, `Annotated[str, "AxisName"]`, or the class of an object that is sent as
plain JSON, `Annotated[dict[str, Any], Stream]`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from msgspec import Meta

from glassformer.config import DecodeConfig, docstrings
from glassformer.explain.attribution.attribute import AttributeRequest, Attribution, Erased, EraseRequest
from glassformer.explain.capture.sites import AXES
from glassformer.explain.edits.contributions import Contributions
from glassformer.explain.edits.states import LayersSweep, StatesSweep
from glassformer.explain.edits.sweeps import CheckpointsSweep, KeysSweep, PartsSweep
from glassformer.explain.edits.what_if import WhatIf
from glassformer.explain.page.manifest import Manifest, RunInfo, SizedAxis
from glassformer.explain.page.responses import ApiError, ErrorDetail
from glassformer.explain.page.saved_page import SavedPageData
from glassformer.explain.page.service import ControlRequest, SavedPageFile, SweepRequest
from glassformer.explain.predictions import SCORING_FIELDS, LoggedHypothesis
from glassformer.explain.request import TraceRequest
from glassformer.explain.streams import StreamName
from glassformer.explain.watch.probes import ProbeAnswer, ProbeRequest, ProbeTexts
from glassformer.explain.watch.training import TrainingNow

SENT = (
    Manifest,
    RunInfo,
    AttributeRequest,
    Attribution,
    EraseRequest,
    Erased,
    SweepRequest,
    PartsSweep,
    KeysSweep,
    LayersSweep,
    Contributions,
    StatesSweep,
    CheckpointsSweep,
    SavedPageData,
    SavedPageFile,
    TrainingNow,
    ControlRequest,
    ProbeRequest,
    ProbeAnswer,
    ProbeTexts,
    ApiError,
)
"""The classes whose objects are requests or responses."""
RENAMED: dict[type, str] = {
    SizedAxis: "Axis",
    LoggedHypothesis: "Hypothesis",
    DecodeConfig: "DecodeSettings",
    ErrorDetail: "ApiProblem",
}
REQUESTS: dict[type, set[str]] = {
    TraceRequest: set(),
    AttributeRequest: {"trace", "method"},
    EraseRequest: {"trace"},
    SweepRequest: set(),
    ControlRequest: set(),
    ProbeRequest: set(),
}
"""Requests of the page: fields with a default are optional, except these, which the page always sends."""
NOT_SENT = {DecodeConfig: SCORING_FIELDS, WhatIf: ("records", "answer")}
PAGE = Path(__file__).parents[4] / "web" / "src"
GENERATED = ("types.ts", "terms.ts")
KINDS = {
    "string": "text",
    "number": "number",
    "boolean": "flag",
    "number[]": "numbers",
    "string[]": "words",
    "Partial<DecodeSettings>": "settings",
}
"""How an address holds a field, by its type in TypeScript."""


@cache
def words_of_page() -> frozenset[str]:
    """Return all words in what is written of the page: a type or a field that it does not name is left out."""
    written = [one for one in PAGE.rglob("*.ts*") if one.name not in GENERATED]
    return frozenset(word for one in written for word in re.findall(r"\w+", one.read_text(encoding="utf-8")))


def types_ts() -> str:
    """Return `types.ts`: the interfaces that the page names, and the kinds of the fields of a request."""
    lines = [
        "/** Made by `make web` from explain/page/typescript.py and the classes it names: change it there. */",
        '/** The stream of tokens an axis runs along. A classifier and a language model have "text" alone. */',
        f"export type StreamName = {_literal(get_args(StreamName))};",
        "",
        f"export type AxisName = {_literal(AXES)};",
        "",
        "/** An expression: a name, a number, or a word with its arguments. */",
        "export type Tree = string | number | [string, ...Tree[]];",
    ]
    for kind, name in INTERFACES.items():
        if name in words_of_page():
            lines += ["", f"/** {_comment(kind.__doc__)} */", f"export interface {name} {{"]
            comments = docstrings(kind)
            for field, member in _members(kind):
                lines += [f"  /** {_comment(comments[field])} */"] if field in comments else []
                lines.append(f"  {member};")
            lines.append("}")
    lines += ["", f"export type FieldKind = {_literal(KINDS.values())};"]
    for name, kind in (("REQUEST_FIELDS", TraceRequest), ("SETTING_FIELDS", DecodeConfig)):
        lines += ["", f"export const {name}: Record<keyof {INTERFACES[kind]}, FieldKind> = {{"]
        for field, member in _members(kind):
            written = member.partition(": ")[2].removesuffix(" | null")
            lines.append(f"  {field}: {json.dumps(KINDS[written])},")
        lines.append("};")
    return "\n".join([*lines, ""])


def _collect(hint: Any, names: dict[type, str]) -> None:
    """Add the classes that a type consists of to the names of interfaces."""
    if not (is_dataclass(hint) or is_typeddict(hint)):
        for argument in get_args(hint):
            _collect(argument, names)
    elif hint not in names:
        kind: Any = hint
        names[kind] = RENAMED.get(kind) or kind.__name__
        for part in get_type_hints(kind, include_extras=True).values():
            _collect(part, names)


def _members(kind: Any) -> Iterator[tuple[str, str]]:
    """Yield the fields of an interface that the page names, each with its declaration."""
    sent = REQUESTS.get(kind)
    defaults = set() if sent is None else {f.name for f in fields(kind) if _has_default(f)} - sent
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if (sent is not None or name in words_of_page()) and name not in NOT_SENT.get(kind, ()):
            optional = name in defaults or get_origin(hint) is NotRequired
            yield name, f"{name}{'?' * optional}: {type_ts(hint, optional)}"


def type_ts(hint: Any, optional: bool = False) -> str:
    """Return the TypeScript of a Python type; in an optional field, None means that it is absent."""
    match get_origin(hint), get_args(hint):
        case _ if hint == StreamName:
            return "StreamName"
        case origin, (inner, *_) if origin is NotRequired:
            return type_ts(inner)
        case origin, (limited, Meta()) if origin is Annotated:
            return type_ts(limited)
        case origin, (_, meant) if origin is Annotated:
            return meant if isinstance(meant, str) else type_ts(meant)
        case origin, kinds if origin in (Union, UnionType):
            return " | ".join(dict.fromkeys(type_ts(one) for one in kinds if not (optional and one is NoneType)))
        case origin, values if origin is Literal:
            return _literal(values)
        case origin, (inner, *rest) if origin in (list, Sequence) or (origin is tuple and ... in rest):
            item = type_ts(inner)
            return f"({item})[]" if " | " in item and item[0] != "{" else f"{item}[]"
        case origin, kinds if origin is tuple:
            return f"[{', '.join(map(type_ts, kinds))}]"
        case origin, (key, value) if origin in (dict, Mapping):
            return f"Record<{type_ts(key)}, {type_ts(value)}>"
    if hint not in INTERFACES:
        return _PLAIN[hint]
    name = INTERFACES[hint]  # where the page does not use it the fields stand in its place
    return name if name in words_of_page() else f"{{ {'; '.join(member for _, member in _members(hint))} }}"


INTERFACES: dict[type, str] = {}
"""The names of the interfaces, by class: of every class that a request or response consists of."""
for _kind in SENT:
    _collect(_kind, INTERFACES)
_PLAIN = {str: "string", int: "number", float: "number", bool: "boolean", NoneType: "null", Any: "Tree"}
"""Expressions are the only JSON of no fixed form."""


def _literal(values: Iterable[str]) -> str:
    return " | ".join(map(json.dumps, values))


def _has_default(field: Any) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING


def _comment(docstring: str | None) -> str:
    return " ".join((docstring or "").split()).replace("*/", "")


if __name__ == "__main__":
    sys.stdout.buffer.write(types_ts().encode("utf-8"))
