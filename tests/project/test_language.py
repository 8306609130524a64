"""Tests of the words in names and docstrings: private words stay out, and a function's docstring begins with a verb."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = [path for folder in ("src", "benchmarks", "tests") for path in sorted((ROOT / folder).rglob("*.py"))]

BANNED = {"anew", "ask", "asked", "beside", "lent", "mine", "said", "say", "told", "twin", "yardstick"}
"""Names that do not say what they stand for: a message, an output, a request, a local value."""

NO_VERB = {
    "a", "all", "an", "any", "as", "both", "each", "every", "everything", "for", "four", "from", "her", "his", "how",
    "ids", "if", "in", "indices", "it", "its", "lines", "logits", "names", "nothing", "on", "one", "our", "part",
    "rows", "same", "several", "so", "sizes", "that", "the", "their", "there", "they", "this", "tokens", "two",
    "what", "when", "where", "whether", "which", "who", "why", "with", "without", "words",
}  # fmt: skip
"""Words with which no imperative begins."""


def names_in(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield every name that a module binds or uses, with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
                yield name, node.lineno
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno


def banned_names(source: str) -> list[tuple[str, int]]:
    found = names_in(ast.parse(source))
    # The name of a test is a sentence, of which no word is a name.
    words = ((name, line, {name} if name.startswith("test_") else set(name.lower().split("_"))) for name, line in found)
    return [(name, line) for name, line, parts in words if BANNED & parts]


def docstrings_without_verb(source: str) -> list[str]:
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    docstrings = [docstring for node in functions if (docstring := ast.get_docstring(node))]
    first_words = ((docstring.split()[0].strip(".,:;"), docstring) for docstring in docstrings)
    return [docstring for word, docstring in first_words if not word.isalpha() or word.lower() in NO_VERB]


def test_names_are_no_private_words() -> None:
    found = {path.relative_to(ROOT): banned_names(path.read_text(encoding="utf-8")) for path in FILES}
    assert {path: names for path, names in found.items() if names} == {}


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    files = [path for path in FILES if "tests" not in path.relative_to(ROOT).parts]
    found = {path.relative_to(ROOT): docstrings_without_verb(path.read_text(encoding="utf-8")) for path in files}
    assert {path: docstrings for path, docstrings in found.items() if docstrings} == {}


def test_checks_find_what_they_look_for() -> None:
    source = 'def f(told: int) -> int:\n    """The sum."""\n    return told\n'
    assert banned_names(source) == [("told", 1), ("told", 3)]
    assert docstrings_without_verb(source) == ["The sum."]
