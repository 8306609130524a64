"""No regular expression of the sources backtracks: not in Python, nor in the page's TypeScript. Nothing is timed."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from re import _constants as c  # pyright: ignore[reportMissingModuleSource, reportAttributeAccessIssue]
from re import _parser  # pyright: ignore[reportAttributeAccessIssue]
from typing import Any

from tests.helpers.backtracking import backtracks
from tests.helpers.for_each import for_each

from glassformer.config.recipes import limited_kinds, limits_of
from glassformer.explain.request import TraceRequest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "glassformer").rglob("*.py"))
PAGE = sorted(path for end in ("ts", "tsx") for path in (ROOT / "web" / "src").rglob(f"*.{end}"))
ANYWHERE = {"search", "sub", "subn", "findall", "finditer", "split"}
USES = {"match", "fullmatch", *ANYWHERE}
BUILT = {
    "config/recipes.py: pattern": "the `form` of a field, below",
    "explain/page/saved_page.py: pattern": "literals of the same module, on the built page alone",
    "text/backends.py: '|'.join(map(re.escape, extra_tokens))": "literals apart by |",
    "evaluate/translation.py: ''": "",
    "utils/safe_read.py: TOML_STRING": "nothing can fail after its first character",
    "cli/flags.py: '|'.join(map(re.escape, keys))": "literals apart by |",
    "text/backends.py: '|'.join((f'{run}{{{n},}}' for run in runs))": "disjoint classes",
}
"""Expressions made of what is only known at run time or not seen to be safe, and why they do not backtrack."""
LITERAL = re.compile(
    r"(?<![\w)\]<*/])/(?![/*\s=>])((?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+)/([dgimsuvy]*)(?=[.,;) ])"
)


def python_patterns() -> Iterator[tuple[str, str, set[str], int]]:
    """Yield the place of each expression, the expression, the functions that use it, and its flags."""
    for path in SOURCES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        named = {}
        for node in ast.walk(tree):
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            if isinstance(target, ast.Name) and (call := _re_call(getattr(node, "value", None))):
                named[id(call)] = target.id
        for node in ast.walk(tree):
            if not (call := _re_call(node)):
                continue
            place = f"{path.relative_to(ROOT / 'src' / 'glassformer').as_posix()}: {ast.unparse(call.args[0])}"
            if place in BUILT:
                continue
            names = [k.value for k in call.keywords if k.arg == "flags"] + call.args[
                1 if _name(call) == "compile" else 9 :
            ]
            pattern, flags = _value(path, call.args[0]), sum(int(_value(path, one)) for one in names)
            uses = {_name(call)} if _name(call) != "compile" else _uses(tree, named.get(id(call)))
            yield place, pattern, uses, flags


def _re_call(node: Any) -> ast.Call | None:
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args
    if is_call and isinstance(node.func.value, ast.Name) and node.func.value.id == "re":
        return node if node.func.attr in USES | {"compile"} else None
    return None


def _name(call: ast.Call) -> str:
    assert isinstance(call.func, ast.Attribute)
    return call.func.attr


def _value(path: Path, node: ast.expr) -> Any:
    """Return the value of an expression of a module: a literal, or made of its names."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        return eval(ast.unparse(node), vars(importlib.import_module(module)))


def _uses(tree: ast.Module, name: str | None) -> set[str]:
    """Return the functions of a compiled expression that a module calls; all, where it is passed on."""
    found = {
        node.func.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if isinstance(node.func.value, ast.Name) and node.func.value.id in (name, name or "pattern")
    }
    return found & USES or {"fullmatch", "search"}


def problems(place: str, pattern: str, uses: set[str], flags: int = 0) -> list[str]:
    """Return the place of an expression that backtracks in one of its uses."""
    whole = "fullmatch" in uses or pattern.endswith("$")
    return [place] if backtracks(pattern, whole=whole, anywhere=bool(uses & ANYWHERE), flags=flags) else []


def test_no_expression_in_python_backtracks() -> None:
    found = list(python_patterns())
    assert len(found) > 30
    assert [place for one in found for place in problems(*one)] == []
    for kind in limited_kinds(TraceRequest).values():
        assert not backtracks(limits_of(kind).pattern or "", whole=True, anywhere=False)


def begins_at_start(pattern: str) -> bool:
    """Return whether a match can begin at the first character alone."""
    op, argument = _parser.parse(pattern)[0]
    return op is c.AT and argument is c.AT_BEGINNING


def test_no_expression_of_the_page_backtracks() -> None:
    found = []
    for path in PAGE:
        for match in LITERAL.finditer(path.read_text(encoding="utf-8")):
            if "${" in match[1]:
                continue  # a division in a template
            before = path.read_text(encoding="utf-8")[: match.start()]
            split = re.sub(r"\\u[0-9a-fA-F]{4}|\\p\{\w+\}", "x", match[1])
            flags = re.IGNORECASE if "i" in match[2] else 0
            use = "match" if begins_at_start(split) else "sub"
            found.append(
                (f"{path.name}:{before.count(chr(10)) + 1}: {match[1]}", split.replace("[^]", "."), {use}, flags)
            )
    assert len(found) > 20
    assert [place for one in found for place in problems(*one)] == []


@for_each(
    "pattern",
    [r"[+-]?(?:\d+\.?\d*|\.\d+)x", r"(a+)+$", r"(a|aa)*b", r"\s*,\s*\s*;", r"(\w+\s?)*:", r"a*a*b", r"(?:x+x+)+y"],
)
def test_the_check_finds_what_backtracks(pattern: str) -> None:
    assert backtracks(pattern, whole=True, anywhere=False)


@for_each("pattern", [r"\d+(?:\.\d*)?x", r"a+b", r"(?:ab)*c", r"[a-z]+=[0-9]+", r"(a|b)*c", r"\s+x"])
def test_the_check_passes_what_does_not(pattern: str) -> None:
    assert not backtracks(pattern, whole=True, anywhere=False)
