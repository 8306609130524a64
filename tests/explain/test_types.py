"""Compare every JSON object that is sent with the class that its TypeScript interface is made from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints

from msgspec import Meta
from tests.explain.test_report import Page
from tests.helpers.for_each import for_each
from tests.helpers.serving import TEXTS, tiny_run

from glassformer.explain.attribution import Attribution, Erased
from glassformer.explain.capture.sites import AXES, SITES
from glassformer.explain.explanation import explain
from glassformer.explain.page.manifest import Manifest, RunInfo
from glassformer.explain.page.saved_page import SavedPageData, saved_page_html
from glassformer.explain.page.service import Service
from glassformer.explain.page.typescript import INTERFACES, NOT_SENT, PAGE, REQUESTS, types_ts
from glassformer.explain.streams import Stream, StreamName

NAMES = {"AxisName": set(AXES), "StreamName": set(get_args(StreamName))}
PLAIN = {str: str, int: int, float: (int, float), bool: bool, NoneType: NoneType, Any: object}


def wrong(value: Any, hint: Any, path: str = "") -> Iterator[str]:
    """Yield the places where a JSON value does not match a type."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated and isinstance(args[1], str):
        if value not in NAMES.get(args[1], [value]):
            yield f"{path} is {value!r}, no {args[1]}"
    elif origin in (Annotated, NotRequired):
        yield from wrong(value, args[-1] if origin is Annotated and not isinstance(args[-1], Meta) else args[0], path)
    elif origin in (Union, UnionType):
        if all(any(wrong(value, kind)) for kind in args):
            yield f"{path} is {value!r:.60}, none of {args}"
    elif origin is Literal:
        if value not in args:
            yield f"{path} is {value!r:.60}, none of {args}"
    elif origin in (list, tuple):
        several = origin is list or ... in args
        if not isinstance(value, list) or not (several or len(value) == len(args)):
            yield f"{path} is {value!r:.60}, no list like {hint}"
        else:
            for i, item in enumerate(value):
                yield from wrong(item, args[0 if several else i], f"{path}[{i}]")
    elif origin in (dict, Mapping):
        for name, item in value.items():
            yield from wrong(item, args[1], f"{path}.{name}")
    elif hint in INTERFACES:
        yield from wrong_interface(value, hint, path)
    elif not isinstance(value, PLAIN[hint]) or (hint is not bool and isinstance(value, bool)):
        yield f"{path} is {value!r:.60}, no {hint}"


def wrong_interface(value: Any, kind: type, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path} is {value!r:.60}, no {INTERFACES[kind]}"
        return
    hints = get_type_hints(kind, include_extras=True)
    hints = {name: hint for name, hint in hints.items() if name not in NOT_SENT.get(kind, ())}
    needed = {name for name, hint in hints.items() if get_origin(hint) is not NotRequired}
    if kind in REQUESTS:
        defaults = {f.name for f in fields(kind)} - REQUESTS[kind] if is_dataclass(kind) else set[str]()
        needed -= defaults
    if not needed <= value.keys() <= hints.keys():
        yield f"{path} has {sorted(value)}, and {INTERFACES[kind]} has {sorted(hints)}"
    for name in hints.keys() & value.keys():
        yield from wrong(value[name], hints[name], f"{path}.{name}")


@for_each("name", TEXTS)
def test_json_matches_its_type(name: str) -> None:
    run = tiny_run(name)
    service = Service(run, [{"text": TEXTS[name]}])
    manifest = service.trace({"text": TEXTS[name], "decode": {"max_new_tokens": 4}})
    which = {"trace": manifest["id"]}
    first = manifest["streams"][0]
    position = first["special"].index(False)
    answers: list[tuple[Any, Any]] = [
        (manifest, Manifest),
        (service.run(), RunInfo),
        (service.erase({**which, "erase": {first["name"]: [position]}}), Erased),
        *((service.attribute({**which, "method": m}), Attribution) for m in ("erase", "integrated_gradients")),
        (Page(saved_page_html(explain(run, TEXTS[name]), seconds=0)[0]).data(), SavedPageData),
    ]
    for value, kind in answers:
        assert not list(wrong(json.loads(json.dumps(value, allow_nan=False)), kind, kind.__name__))


def test_the_types_of_the_page_are_those_of_python() -> None:
    assert (PAGE / "types.ts").read_text(encoding="utf-8") == types_ts(), "run: make web"
    assert {axis for site in SITES.values() for axis in site.axes} <= AXES.keys()


def test_wrong_reports_mismatches() -> None:
    """A missing field, an invalid name and a wrong type are found."""
    stream = {f.name: None for f in fields(Stream)}
    problems = list(wrong(stream | {"name": "sauce", "ids": [1, "2"]}, Stream, "s"))
    assert any("s.name" in p for p in problems) and any("s.ids[1]" in p for p in problems)
    assert any("Stream has" in p for p in wrong({"name": "text"}, Stream))
