"""Laws of the source code, read from its syntax trees: which way imports flow, and what never appears."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from graphlib import TopologicalSorter
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


def imported_modules(tree: ast.Module, known: set[str]) -> set[str]:
    """The modules of ours that a source names in its imports, wherever in it they stand.

    An import inside a function, or under TYPE_CHECKING, is still something a reader must know to understand the file.
    A package counts where it is named itself; that Python runs its `__init__.py` on the way to a module does not, and
    neither do modules named by strings.
    """
    found: set[str] = set()
    for node in ast.walk(tree):
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
    tree = tree_of(path)
    if module_name(path) in METHODS_OF:
        tree = ast.Module([node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)], [])
    return imported_modules(tree, known)


def test_no_module_imports_itself_through_others() -> None:
    known = {module_name(path) for path in SOURCES}
    TopologicalSorter({module_name(path): imports_of(path, known) for path in SOURCES}).prepare()


def test_nn_sees_no_configuration() -> None:
    for path in (PACKAGE / "nn").rglob("*.py"):
        assert {name for _, name in imports(path)} <= {"nn", "errors"}, path


def test_libraries_log_and_text_is_utf8() -> None:
    for path in SOURCES:
        may_write = path.parent.name == "cli" or path.name in ("console.py", "typescript.py")
        for node in (node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call)):
            called, place = ast.unparse(node.func), f"{path}:{node.lineno}"
            writes = called.startswith(("sys.stdout.", "sys.stderr.", "console.write"))
            assert called != "print" and (may_write or not writes), f"{place} writes to a stream; log instead"
            if called.endswith((".read_text", ".write_text")) and not called.startswith("atomic_io."):
                assert "encoding" in {k.arg for k in node.keywords}, f"{place} has no encoding"


def test_files_say_what_they_hold_and_functions_take_few_parameters() -> None:
    for path in SOURCES:
        tree = tree_of(path)
        assert ast.get_docstring(tree), f"{path} has no docstring"
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
                n_given = len([name for name in given if name not in ("self", "cls")])
                assert n_given <= 8, f"{path}:{node.lineno} {node.name} has {n_given} parameters"


def test_the_paper_fits_in_a_few_hundred_lines_and_equation_1_on_a_slide() -> None:
    """The n-gram embeddings, which are not in the paper, and the table of what the layers compute, left out."""
    files = [p for p in (PACKAGE / "nn").glob("*.py") if p.stem not in ("ngram_embeddings", "operations")]
    assert sum(path.read_text(encoding="utf-8").count("\n") for path in files) <= 910
    tree = tree_of(PACKAGE / "nn" / "attention.py")
    *_, function = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "attention")
    assert (function.end_lineno or 0) - (function.body[0].end_lineno or 0) + 2 <= 16  # its docstring left out


def test_the_repository_names_no_machine() -> None:
    """No path of one machine: what is written must hold anywhere."""
    home = "/" + "home/", "/" + "work/", "/" + "Users/"
    for path in (p for folder in ("src", "tests", ".ci") for p in (ROOT / folder).rglob("*")):
        if path.suffix in (".py", ".toml", ".txt", "") and path.is_file() and "__pycache__" not in path.parts:
            text = path.read_text(encoding="utf-8", errors="replace")
            assert not any(h in text for h in home), path
