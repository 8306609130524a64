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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from msgspec import Meta

from glassformer.config import DecodeConfig, docstrings
from glassformer.explain.attribution import AttributeRequest, Attribution, Erased
from glassformer.explain.capture.sites import AXES, Step
from glassformer.explain.edits.effects import Sweep, WhatIf
from glassformer.explain.inputs import LoggedHypothesis
from glassformer.explain.page.manifest import Manifest, RunInfo
from glassformer.explain.page.saved_page import SavedPageData
from glassformer.explain.page.service import Service
from glassformer.explain.request import TraceRequest
from glassformer.explain.streams import StreamName
from glassformer.explain.watch import ProbeAnswer, TrainingNow

QUESTIONS: list[type] = [one.__annotations__["request"] for one in (Service.sweep, Service.control, Service.probe)]
"""Questions, as classes that the arguments of their methods make."""
SENT = (
    Manifest,
    RunInfo,
    AttributeRequest,
    Attribution,
    Erased,
    Sweep,
    SavedPageData,
    TrainingNow,
    ProbeAnswer,
    *QUESTIONS,
)
"""The classes whose objects are requests or responses."""
RENAMED: dict[type, str] = {Step: "TraceNode", LoggedHypothesis: "Hypothesis", DecodeConfig: "DecodeSettings"}
REQUESTS: dict[type, set[str]] = {
    TraceRequest: set(),
    AttributeRequest: {"trace"},
    **{kind: set() for kind in QUESTIONS},
}
"""Requests of the page: fields with a default are optional, except these, which the page always sends."""
NOT_SENT = {WhatIf: ("trace", "answer")}
PAGE = Path(__file__).parents[4] / "web" / "src"
GENERATED = ("types.ts", "terms.ts")
FIELD_KINDS = {"boolean": "flag", "number": "number", "string": "text", "number[]": "numbers", "string[]": "words"}
"""How an address holds a field, by its type."""


@cache
def words_of_page() -> frozenset[str]:
    """Return all words in the code of the page: a type or a field that it does not name is left out."""
    written = [one.read_text(encoding="utf-8") for one in PAGE.rglob("*.ts*") if one.name not in GENERATED]
    lines = (line.lstrip() for text in written for line in text.splitlines())
    code = (line for line in lines if not line.startswith(("/**", "*", "//")))
    return frozenset(word for line in code for word in re.findall(r"\w+", line))


def types_ts() -> str:
    """Return `types.ts`: the interfaces that the page names, and the kinds of the fields of a request."""
    lines = [
        "/** Made by `make web` from explain/page/typescript.py and the classes it names: change it there. */",
        '/** The stream of tokens an axis runs along. A classifier and a language model have "text" alone. */',
        f"export type StreamName = {_literal(StreamName)};",
        f"export type AxisName = {' | '.join(map(json.dumps, AXES))};",
        "",
        "/** An expression: a name, a number, or a word with its arguments. */",
        "export type Tree = string | number | [string, ...Tree[]];",
    ]
    for kind, name in INTERFACES.items():
        if name in words_of_page():
            base = next((f" extends {INTERFACES[base]}" for base in kind.__bases__ if base in INTERFACES), "")
            lines += ["", f"/** {_comment(kind.__doc__)} */", f"export interface {name}{base} {{", *_fields(kind), "}"]
    lines += ["", 'export type FieldKind = "text" | "number" | "flag" | "numbers" | "words";']
    for name, kind in (("REQUEST_FIELDS", TraceRequest), ("SETTING_FIELDS", DecodeConfig)):
        kinds: dict[str, list[str]] = {}
        for field, hint, _ in _sent_fields(kind):
            if kind_of := FIELD_KINDS.get(type_ts(hint, optional=True)):
                kinds.setdefault(kind_of, []).append(field)
        lines += ["", f"export const {name}: Partial<Record<FieldKind, string[]>> = {{"]
        lines += [*(f"  {one}: {json.dumps(fields)}," for one, fields in kinds.items()), "};"]
    return "\n".join([*lines, ""])


def _collect(hint: Any, names: dict[type, str]) -> None:
    """Add the classes that a type consists of to the names of interfaces."""
    if not (is_dataclass(hint) or is_typeddict(hint)):
        for argument in get_args(hint):
            _collect(argument, names)
    elif hint not in names:
        kind: Any = hint
        names[kind] = RENAMED.get(kind) or kind.__name__
        for part in (*kind.__bases__, *get_type_hints(kind, include_extras=True).values()):
            _collect(part, names)


def _sent_fields(kind: Any) -> Iterator[tuple[str, Any, bool]]:
    """Yield the fields of an interface that the page names, with their types, and whether they may be missing."""
    sent = REQUESTS.get(kind)
    defaults = set() if sent is None else {f.name for f in fields(kind) if _has_default(f)} - sent
    inherited = {name for base in kind.__bases__ if base in INTERFACES for name in get_type_hints(base)}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        named = sent is not None or name in words_of_page()
        if named and name not in inherited and name not in NOT_SENT.get(kind, ()):
            yield name, hint, name in defaults or get_origin(hint) is NotRequired


def _fields(kind: Any, described: bool = True) -> Iterator[str]:
    """Yield the fields of an interface, with their comments where they are described."""
    comments = docstrings(kind) if described and kind not in QUESTIONS else {}
    for name, hint, optional in _sent_fields(kind):
        if name in comments:
            yield f"  /** {_comment(comments[name])} */"
        yield f"  {name}{'?' * optional}: {type_ts(hint, optional)};"


def _object(kind: Any) -> str:
    """Return the type of an object: its name where the page uses that, else its fields."""
    if INTERFACES[kind] in words_of_page():
        return INTERFACES[kind]
    base = next((f"{INTERFACES[base]} & " for base in kind.__bases__ if base in INTERFACES), "")
    return f"{base}{{ {' '.join(map(str.strip, _fields(kind, described=False))).removesuffix(';')} }}"


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
            kept = [kind for kind in kinds if not (optional and kind is NoneType)]
            return " | ".join(dict.fromkeys(map(type_ts, kept)))
        case origin, _ if origin is Literal:
            return _literal(hint)
        case origin, (inner, *rest) if origin in (list, Sequence) or (origin is tuple and ... in rest):
            item = type_ts(inner)
            return f"({item})[]" if (" | " in item and item[0] != "{") or " & " in item else f"{item}[]"
        case origin, kinds if origin is tuple:
            return f"[{', '.join(map(type_ts, kinds))}]"
        case origin, (key, value) if origin in (dict, Mapping):
            return f"Record<{type_ts(key)}, {type_ts(value)}>"
    return _object(hint) if hint in INTERFACES else _PLAIN[hint]


INTERFACES: dict[type, str] = {}
"""The names of the interfaces, by class: of every class that a request or response consists of."""
for _kind in SENT:
    _collect(_kind, INTERFACES)
_PLAIN = {str: "string", int: "number", float: "number", bool: "boolean", NoneType: "null", Any: "Tree"}
"""Expressions are the only JSON of no fixed form."""


def _literal(hint: Any) -> str:
    return " | ".join(map(json.dumps, get_args(hint)))


def _has_default(field: Any) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING


def _comment(docstring: str | None) -> str:
    return " ".join((docstring or "").split()).replace("*/", "")


if __name__ == "__main__":
    sys.stdout.buffer.write(types_ts().encode("utf-8"))
