"""Generate the TypeScript of the page that follows from Python: operations, JSON interfaces, fields of a request.

`make web` writes `sites.ts`, `types.ts` and `fields.ts`; `make web-check` and a test fail when they are out of date.
Operations come from `nn/operations.py`, steps from `capture/sites.py`; an interface comes from a class
whose objects are sent: its fields, their types and docstrings.
An annotation may name its TypeScript type, `Annotated[str, "AxisName"]`, or the class of an object that is sent as
plain JSON, `Annotated[dict[str, Any], Stream]`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from msgspec import Meta

from glassformer.config import DecodeConfig, docstrings
from glassformer.explain.attribution.attribute import AttributeRequest, Attribution, Erased, EraseRequest
from glassformer.explain.capture.sites import AXES, SITES
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
from glassformer.nn.operations import OPERATIONS, Row, row_of

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
HEADER = "/** Made by `make web` from explain/{}: change it there. */"


def sites_ts() -> str:
    """Return `sites.ts`: the table of operations and gradients as data, and the steps."""
    ops = [op for name, row in OPERATIONS.items() for op in (name, *(f"{name}.{to}" for to in row.gradients))]
    steps = [
        f"  {json.dumps(key)}: {json.dumps([site.op, *site.axes])},"
        for key, site in SITES.items()
        if site.op != "input"
    ]
    return "\n".join(
        [
            HEADER.format("capture/sites.py and nn/operations.py, where steps and operations are described"),
            "",
            "/** A name, a number, or a word with its arguments. */",
            "export type Tree = string | number | [string, ...Tree[]];",
            "",
            "/** What an operation or a gradient takes (some may be missing), what it defines, and what it gives. */",
            "export interface Row {",
            "  takes: string[];",
            "  optional: string[];",
            "  where: Record<string, Tree>;",
            "  gives: Tree | null;",
            "}",
            "",
            "/** Every operation, and the gradient of each of its arguments. */",
            "export const OPERATIONS: Record<string, Row> = {",
            *(f"  {json.dumps(op)}: {json.dumps(_row(row_of(op)))}," for op in ops),
            "};",
            "",
            "/** Operation and axes of every step, by its name with its kind where there are several. */",
            "export const SITES: Record<string, [string, ...string[]]> = {",
            *steps,
            "};",
            "",
        ]
    )


def _row(row: Row) -> dict[str, Any]:
    return {"takes": row.arguments, "optional": row.optional, "where": row.where, "gives": row.gives}


def types_ts() -> str:
    """Return `types.ts`: every interface, and the names of streams and axes."""
    axes = [f'  | "{name}"' + (f" // {what}" if what else "") for name, what in AXES.items()]
    axes[-1] = axes[-1].replace(" //", "; //", 1) if " //" in axes[-1] else f"{axes[-1]};"
    return "\n".join(
        [
            HEADER.format("page/typescript.py and the classes it names"),
            '/** The stream of tokens an axis runs along. A classifier and a language model have "text" alone. */',
            f"export type StreamName = {_literal(StreamName)};",
            "",
            "export type AxisName =",
            *axes,
            *(line for kind in INTERFACES for line in ("", *_interface(kind))),
            "",
        ]
    )


def fields_ts() -> str:
    """Return `fields.ts`: the fields of a trace request with their kinds, by which the page's address holds them."""
    return "\n".join(
        [
            HEADER.format("request.py: the fields of `TraceRequest` and of `DecodeConfig`"),
            'import type { DecodeSettings, TraceRequest } from "./types";',
            "",
            'export type FieldKind = "text" | "number" | "flag" | "numbers" | "words" | "settings";',
            "",
            "export const REQUEST_FIELDS: Record<keyof TraceRequest, FieldKind> = {",
            *(f"  {name}: {json.dumps(_field_kind(hint))}," for name, hint in get_type_hints(TraceRequest).items()),
            "};",
            "",
            "export const SETTING_FIELDS: Record<keyof DecodeSettings, FieldKind> = {",
            *(
                f"  {name}: {json.dumps(_field_kind(hint))},"
                for name, hint in get_type_hints(DecodeConfig).items()
                if name not in SCORING_FIELDS
            ),
            "};",
            "",
        ]
    )


def _field_kind(hint: Any) -> str:
    """Return how an address holds a field of this type."""
    kinds: dict[Any, str] = {bool: "flag", int: "number", float: "number", str: "text"}
    match get_origin(hint), get_args(hint):
        case origin, kinds_of if origin in (Union, UnionType):
            return _field_kind(next(kind for kind in kinds_of if kind is not NoneType))
        case origin, (inner, *_) if origin is tuple:
            return "numbers" if inner is int else "words"
        case origin, _ if origin is Mapping:
            return "settings"
    return kinds[hint]


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


def _interface(kind: type) -> list[str]:
    """Return the lines of one interface."""
    hints, comments = get_type_hints(kind, include_extras=True), docstrings(kind)
    base = next((base for base in kind.__bases__ if base in INTERFACES), None)
    inherited = get_type_hints(base) if base else {}
    sent = REQUESTS.get(kind)
    defaults = set() if sent is None else {f.name for f in fields(kind) if _has_default(f)} - sent
    lines = [
        f"/** {_comment(kind.__doc__)} */",
        f"export interface {INTERFACES[kind]}{f' extends {INTERFACES[base]}' if base else ''} {{",
    ]
    for name, hint in hints.items():
        if name in inherited or name in NOT_SENT.get(kind, ()):
            continue
        optional = name in defaults or get_origin(hint) is NotRequired
        lines += [f"  /** {_comment(comments[name])} */"] if name in comments else []
        lines.append(f"  {name}{'?' * optional}: {type_ts(hint, optional)};")
    return [*lines, "}"]


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
            return meant if isinstance(meant, str) else INTERFACES[meant]
        case origin, kinds if origin in (Union, UnionType):
            kept = [kind for kind in kinds if not (optional and kind is NoneType)]
            return " | ".join(dict.fromkeys(type_ts(kind) for kind in kept))
        case origin, _ if origin is Literal:
            return _literal(hint)
        case origin, (inner, *rest) if origin in (list, Sequence) or (origin is tuple and ... in rest):
            item = type_ts(inner)
            return f"({item})[]" if " | " in item else f"{item}[]"
        case origin, kinds if origin is tuple:
            return f"[{', '.join(map(type_ts, kinds))}]"
        case origin, (key, value) if origin in (dict, Mapping):
            return f"Record<{type_ts(key)}, {type_ts(value)}>"
    return INTERFACES[hint] if hint in INTERFACES else _PLAIN[hint]


INTERFACES: dict[type, str] = {}
"""The names of the interfaces, by class: of every class that a request or response consists of."""
for _kind in SENT:
    _collect(_kind, INTERFACES)
_PLAIN = {str: "string", int: "number", float: "number", bool: "boolean", NoneType: "null"}


def _literal(hint: Any) -> str:
    return " | ".join(map(json.dumps, get_args(hint)))


def _has_default(field: Any) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING


def _comment(docstring: str | None) -> str:
    return " ".join((docstring or "").split()).replace("*/", "")


FILES = {"sites": sites_ts, "types": types_ts, "fields": fields_ts}

if __name__ == "__main__":
    sys.stdout.buffer.write(FILES[sys.argv[1]]().encode("utf-8"))
