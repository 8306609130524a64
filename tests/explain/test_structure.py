"""Tests of the structure of `explain/`: frozen data, then functions of it, which are its methods too."""

from __future__ import annotations

import ast
from collections.abc import Callable

from tests.project.test_imports import PACKAGE, imports_of, module_name

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


def graph() -> dict[str, set[str]]:
    """Return the imports of each module, as `imports_of` counts them."""
    return {module_name(path): imports_of(path, KNOWN) for path in SOURCES}


def test_modules_are_listed_in_order() -> None:
    assert {part_of(name) for name in KNOWN} - {""} == set().union(*ORDER)


def test_modules_import_only_earlier_groups() -> None:
    backwards = {
        (part_of(name), part_of(other)): f"{name} imports {other}"
        for name, others in graph().items()
        for other in others
        if part_of(name) and part_of(other) and rank(part_of(other)) > rank(part_of(name))
    }
    assert not backwards


def files_with(condition: Callable[[ast.AST], bool]) -> set[str]:
    """Return the files of `explain/` with such a node."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES}
    return {path.name for path, tree in trees.items() if any(map(condition, ast.walk(tree)))}


def called(node: ast.AST) -> str:
    """Return the last name of the called function; "" for another node."""
    return ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""


def test_models_are_called_in_one_module() -> None:
    """Models are called and hooks are registered in one module each."""
    assert files_with(lambda node: called(node) in ("model", "_model")) == {"exact_inference.py"}
    assert files_with(lambda node: called(node).startswith("register_forward")) == {"exact_inference.py"}
