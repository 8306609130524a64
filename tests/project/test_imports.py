"""Laws of the source code, read from its syntax trees: which way imports flow, and what never appears."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "glassformer"
SOURCES = sorted(PACKAGE.rglob("*.py"))

LAYERS = [
    {"errors"},
    {"config", "utils", "nn"},
    {"distributed", "models", "text"},
    {"data", "runs"},
    {"decode", "evaluate"},
    {"tasks"},
    {"report"},
    {"training"},
    {"explain"},
    {"interop"},
    {"run"},
    {"api"},
    {"cli"},
    {"__init__", "__main__"},
]
"""From the bottom up: a module imports from its own layer and those before it, never from those after."""

EXCEPTIONS = {
    ("cli/main.py", "__init__"): "the version, and the module of errors",
    ("cli/use.py", "__init__"): "the command uses the public API, as anyone does",
    ("cli/explain.py", "__init__"): "likewise",
}


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def area(module: str) -> str:
    """The part of the package a dotted name belongs to."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and area of everything of ours a file imports, inside functions too."""
    areas = set().union(*LAYERS)
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, area(a.name)) for a in node.names if a.name.split(".")[0] == "glassformer")
        elif isinstance(node, ast.ImportFrom) and node.module == "glassformer":
            yield from ((node.lineno, a.name if a.name in areas else "__init__") for a in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("glassformer."):
            yield node.lineno, area(str(node.module))


def level(name: str) -> int:
    return next(i for i, layer in enumerate(LAYERS) if name in layer)


def test_imports_flow_one_way() -> None:
    for path in SOURCES:
        relative = path.relative_to(PACKAGE).as_posix()
        own = relative.split("/")[0].removesuffix(".py")
        if own == "__init__":
            continue  # the public API names everything
        for line, name in imports(path):
            if (relative, name) not in EXCEPTIONS:
                assert level(name) <= level(own), f"{relative}:{line} imports {name}, which is above {own}"


def test_contributing_shows_these_layers() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    shown = text.split("tests assert both:\n\n")[1].split("\n\n")[0]
    assert [set(layer.strip().split(", ")) for layer in shown.split("←")] == LAYERS[:-1]


def test_every_exception_is_still_one() -> None:
    used = {(p.relative_to(PACKAGE).as_posix(), name) for p in SOURCES for _, name in imports(p)}
    assert used >= EXCEPTIONS.keys()


def test_every_folder_of_modules_is_a_package() -> None:
    """Without its `__init__.py` a folder still imports from a checkout, and is left out of what is installed."""
    for folder in {path.parent for path in SOURCES}:
        assert (folder / "__init__.py").is_file(), folder


def module_name(path: Path) -> str:
    """The dotted name of a source file; a package is called as its folder."""
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


def imported_modules(source: str, known: set[str]) -> set[str]:
    """The modules of ours that a source names in its imports, wherever in it they stand.

    What counts: an import inside a function, or under TYPE_CHECKING, is still something a reader must know to
    understand the file, so it counts. A package counts where it is named itself (`from glassformer.nn import
    …`); that Python runs `glassformer/__init__.py` on the way to every module below it does not. Modules named
    by strings (`import_module`) do not either: the public API and the commands are loaded late by them.
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= modules if modules <= known else {*modules, str(node.module)}
    return found & known


METHODS_OF = {
    "glassformer.explain.explanation": "what is computed from an explanation is a function elsewhere, and its method"
}
"""Modules that import what their methods call when they are called: of these only the imports at the top count."""


def imports_of(path: Path, known: set[str]) -> set[str]:
    """The modules of ours that a file imports, as `imported_modules` counts them."""
    source = path.read_text(encoding="utf-8")
    if module_name(path) in METHODS_OF:
        tree = ast.parse(source)
        source = "\n".join(ast.unparse(node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom))
    return imported_modules(source, known)


def circles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """The largest sets of modules in which each reaches each of the others."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            new = graph[waiting.pop()] - seen
            seen |= new
            waiting += new
        return seen

    reaches = {name: reached(name) for name in graph}
    return {
        frozenset(other for other in beyond if name in reaches[other])
        for name, beyond in reaches.items()
        if name in beyond
    }


def test_no_module_imports_itself_through_others() -> None:
    known = {module_name(path) for path in SOURCES}
    graph = {module_name(path): imports_of(path, known) for path in SOURCES}
    assert circles(graph) == set()


def test_the_search_for_circles_finds_them() -> None:
    graph = {"a": {"b"}, "b": {"c", "leaf"}, "c": {"a"}, "user": {"a", "c"}, "leaf": set[str]()}
    assert circles(graph) == {frozenset({"a", "b", "c"})}
    source = (
        "from glassformer.a import x\nimport glassformer.b\nif TYPE_CHECKING:\n    from glassformer import c\n"
        "def f():\n    from glassformer.d.e import g\n"
    )
    names = {"glassformer", "glassformer.d", *(f"glassformer.{m}" for m in ("a", "b", "c", "d.e", "f"))}
    assert imported_modules(source, names) == {f"glassformer.{m}" for m in ("a", "b", "c", "d.e")}


def test_nn_sees_no_configuration() -> None:
    for path in (PACKAGE / "nn").rglob("*.py"):
        assert {name for _, name in imports(path)} <= {"nn", "errors"}, path


def test_libraries_log_and_text_is_utf8() -> None:
    for path in SOURCES:
        for node in ast.walk(tree_of(path)):
            if not isinstance(node, ast.Call):
                continue
            called, given = ast.unparse(node.func), {k.arg for k in node.keywords}
            assert called != "print", f"{path}:{node.lineno} prints; log instead"
            writes = called.startswith(("sys.stdout.", "sys.stderr.", "console.write"))
            may_write = path.parent.name == "cli" or path.name in ("console.py", "typescript.py")
            assert may_write or not writes, f"{path}:{node.lineno} writes to a stream; log instead"
            if called.endswith((".read_text", ".write_text")) and not called.startswith("atomic_io."):
                assert "encoding" in given, f"{path}:{node.lineno} reads or writes text without an encoding"


def test_files_say_what_they_hold_and_functions_take_few_parameters() -> None:
    for path in SOURCES:
        tree = tree_of(path)
        assert ast.get_docstring(tree), f"{path} has no docstring"
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
                n_given = len([name for name in given if name not in ("self", "cls")])
                assert n_given <= 8, f"{path}:{node.lineno} {node.name} has {n_given} parameters"


def test_the_paper_fits_in_a_few_hundred_lines() -> None:
    """The n-gram embeddings, which are not in the paper, and the table of what the layers compute, left out."""
    files = set((PACKAGE / "nn").glob("*.py")) - {
        PACKAGE / "nn" / f"{n}.py" for n in ("ngram_embeddings", "operations")
    }
    n_lines = sum(path.read_text(encoding="utf-8").count("\n") for path in files)
    assert n_lines <= 910, f"nn/ has {n_lines} lines"


def test_equation_1_fits_on_a_slide() -> None:
    """Signature included, docstring left out."""
    tree = ast.parse((PACKAGE / "nn" / "attention.py").read_text(encoding="utf-8"))
    *_, function = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "attention")
    docstring = function.body[0]
    n_lines = (function.end_lineno or 0) - function.lineno + 1
    n_lines -= (docstring.end_lineno or 0) - docstring.lineno + 1
    assert n_lines <= 16, f"attention has {n_lines} lines"


def test_the_repository_names_no_machine() -> None:
    """No path of one machine: what is written must hold anywhere."""
    tracked = [
        p
        for folder in ("src", "tests", ".ci")
        for p in (ROOT / folder).rglob("*")
        if p.suffix in (".py", ".toml", ".txt", "")
    ]
    home = "/" + "home/", "/" + "work/", "/" + "Users/"
    for path in [p for p in tracked if p.is_file() and "__pycache__" not in p.parts]:
        text = path.read_text(encoding="utf-8", errors="replace")
        assert not any(h in text for h in home), path
