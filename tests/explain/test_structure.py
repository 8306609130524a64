"""Tests of the structure of `explain/`: frozen data, then functions of it, which are its methods too."""

from __future__ import annotations

import ast
import re

from tests.project.test_imports import PACKAGE, imports_of, module_name, tree_of

SOURCES = sorted((PACKAGE / "explain").rglob("*.py"))
KNOWN = {module_name(path) for path in SOURCES}

ORDER = [
    {"capture", "trace"},  # one forward pass, recorded
    {"subject", "request", "streams"},
    {"inputs", "one_label"},
    {"explanation"},  # all of it together, and frozen; its methods are functions of the groups below
    {"edits"},  # a tap: what becomes of numbers
    {"attribution"},
    {"learn"},  # the gradients of an answer, and the optimizer's steps on it
    {"watch"},  # a training as its folder shows it
    {"figures"},
    {"page"},
]
"""From the bottom up: a module imports from its own group and those before it, never from those after."""


def part_of(module: str) -> str:
    """Return the part of `explain/` of a dotted name; "" for the package itself."""
    return (module.split(".") + ["", ""])[2]


def rank(part: str) -> int:
    return next(i for i, group in enumerate(ORDER) if part in group)


def test_modules_are_listed_in_order() -> None:
    assert {part_of(name) for name in KNOWN} - {""} == set().union(*ORDER)


def test_modules_import_only_earlier_groups() -> None:
    graph = {module_name(path): imports_of(path) & KNOWN for path in SOURCES}
    pairs = [(name, other) for name, others in graph.items() for other in others if part_of(name) and part_of(other)]
    assert not [f"{name} imports {other}" for name, other in pairs if rank(part_of(other)) > rank(part_of(name))]


def files_that_call(function: str) -> set[str]:
    """Return the files of `explain/` with a call whose last name matches a pattern."""
    calls = {path: [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call)] for path in SOURCES}
    return {p.name for p in SOURCES if any(re.search(rf"(^|\W){function}$", ast.unparse(c.func)) for c in calls[p])}


def test_models_are_called_in_one_module() -> None:
    """Models are called and hooks are registered in one module each."""
    assert files_that_call("_?model") == {"exact_inference.py"}
    assert files_that_call(r"register_forward\w*") == {"exact_inference.py"}
