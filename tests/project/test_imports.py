"""Laws of the source code, read from its syntax trees: which way imports flow, what never appears, and its words."""

import ast
import functools
import re
import runpy
import sys
import tomllib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
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
    return ast.parse(path.read_text("utf-8"))


def module_name(path: Path) -> str:
    """The dotted name of a source file; a package is called as its folder."""
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


KNOWN = {module_name(path) for path in SOURCES}


def imports_in(tree: ast.AST) -> Iterator[tuple[str, list[str]]]:
    """The module that each import names, wherever it stands, and what is imported from it; of `import a.b` nothing."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "", [alias.name for alias in node.names]


def imported_modules(tree: ast.Module) -> set[str]:
    """The modules of ours that a source names in its imports, wherever in it they stand.

    An import inside a function, or under TYPE_CHECKING, is still something a reader must know to understand the file.
    A package counts where it is named itself; that Python runs its `__init__.py` on the way to a module does not, and
    neither do modules named by strings.
    """
    found: set[str] = set()
    for module, names in imports_in(tree):
        modules = {f"{module}.{name}" for name in names} or {module}
        found |= modules if modules <= KNOWN else {*modules, module}
    return found & KNOWN


def areas(path: Path) -> set[str]:
    """The parts of the package that a file imports from."""
    return {[*name.split("."), "__init__"][1] for name in imported_modules(tree_of(path))}


def level(name: str) -> int:
    return next(i for i, layer in enumerate(LAYERS) if name in layer)


def test_imports_flow_one_way():
    for path in SOURCES:
        relative = path.relative_to(PACKAGE).as_posix()
        own = relative.split("/")[0].removesuffix(".py")
        if own == "__init__":
            continue  # the public API names everything
        for name in areas(path):
            if (relative, name) not in EXCEPTIONS:
                assert level(name) <= level(own), f"{relative} imports {name}, which is above {own}"


def test_contributing_shows_these_layers():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    shown = text.split("tests assert both:\n\n")[1].split("\n\n")[0]
    assert [set(layer.strip().split(", ")) for layer in shown.split("←")] == LAYERS[:-1]


def test_every_exception_is_still_one():
    used = {(p.relative_to(PACKAGE).as_posix(), name) for p in SOURCES for name in areas(p)}
    assert used >= EXCEPTIONS.keys()


def test_every_folder_of_modules_is_a_package():
    """Without its `__init__.py` a folder still imports from a checkout, and is left out of what is installed."""
    for folder in {path.parent for path in SOURCES}:
        assert (folder / "__init__.py").is_file(), folder


METHODS_OF = {"glassformer.explain.explanation": "what is computed of it is a function elsewhere, and its method"}
"""Modules that import what their methods call when they are called: of these only the imports at the top count."""


def imports_of(path: Path) -> set[str]:
    """The modules of ours that a file imports, as `imported_modules` counts them."""
    tree = tree_of(path)
    if module_name(path) in METHODS_OF:
        tree = ast.Module([node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)], [])
    return imported_modules(tree)


def test_no_module_imports_itself_through_others():
    TopologicalSorter({module_name(path): imports_of(path) for path in SOURCES}).prepare()


def test_nn_sees_no_configuration():
    for path in (PACKAGE / "nn").rglob("*.py"):
        assert areas(path) <= {"nn", "errors"}, path


def test_libraries_log_and_text_is_utf8():
    for path in SOURCES:
        may_write = path.parent.name == "cli" or path.name in ("console.py", "typescript.py")
        for node in (node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call)):
            called, place = ast.unparse(node.func), f"{path}:{node.lineno}"
            writes = called.startswith(("sys.stdout.", "sys.stderr.", "console.write"))
            assert called != "print" and (may_write or not writes), f"{place} writes to a stream; log instead"
            if called.endswith((".read_text", ".write_text")) and not called.startswith("atomic_io."):
                assert "encoding" in {k.arg for k in node.keywords}, f"{place} has no encoding"


def test_files_say_what_they_hold_and_functions_take_few_parameters():
    for path in SOURCES:
        tree = tree_of(path)
        assert ast.get_docstring(tree), f"{path} has no docstring"
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
                n_given = len([name for name in given if name not in ("self", "cls")])
                assert n_given <= 8, f"{path}:{node.lineno} {node.name} has {n_given} parameters"


def test_the_paper_fits_in_a_few_hundred_lines_and_equation_1_on_a_slide():
    """The n-gram embeddings, which are not in the paper, and the table of what the layers compute, left out."""
    files = [p for p in (PACKAGE / "nn").glob("*.py") if p.stem not in ("ngram_embeddings", "operations")]
    assert sum(path.read_text("utf-8").count("\n") for path in files) <= 910
    tree = tree_of(PACKAGE / "nn" / "attention.py")
    *_, function = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "attention")
    assert (function.end_lineno or 0) - (function.body[0].end_lineno or 0) + 2 <= 16  # its docstring left out


def test_the_repository_names_no_machine():
    """No path of one machine: what is written must hold anywhere."""
    home = "/" + "home/", "/" + "work/", "/" + "Users/"
    for path in (p for folder in ("src", "tests", ".ci") for p in (ROOT / folder).rglob("*")):
        if path.suffix in (".py", ".toml", ".txt", "") and path.is_file() and "__pycache__" not in path.parts:
            text = path.read_text(encoding="utf-8", errors="replace")
            assert not any(h in text for h in home), path


# Nothing that the library reads can run code: pickle and what stands on it are not in the source

PICKLES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
CALLS = {"torch.load", "torch.save", "torch.jit.load", "numpy.fromfile", "eval", "exec"}
METHODS = {"extractall"}
COLLECTIVES = re.compile(r"^(all_gather|gather)_object$|_object_list$")
"""torch.distributed's, which pickle what they send."""
PICKLING = {"torch.multiprocessing", "torch.distributed.checkpoint"}
"""Of torch: the former pickles what it hands over, the latter the table of a checkpoint."""


def faults(tree: ast.AST) -> list[str]:
    """What in this source could run code it reads."""
    named = [f"{module}.{name}" for module, names in imports_in(tree) for name in names]
    found = [name for name in named if name in CALLS]
    for module, _ in imports_in(tree):
        if module.split(".")[0] in PICKLES or any(module == p or module.startswith(f"{p}.") for p in PICKLING):
            found.append(module)
    for node in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        call = ast.unparse(node.func)
        last = call.rpartition(".")[2]
        if call in CALLS or last in METHODS or COLLECTIVES.search(last):
            found.append(call)
        found += [k.arg for k in node.keywords if k.arg == "allow_pickle" and ast.unparse(k.value) != "False"]
    return found


def test_no_source_file_can_run_what_it_reads():
    found = {path.as_posix(): faults(tree_of(path)) for path in SOURCES}
    assert {path: named for path, named in found.items() if named} == {}


def test_the_lint_finds_what_it_looks_for():
    for code in (
        "import pickle",
        "from pickle import loads",
        "import a, joblib",
        "import torch\ntorch.load('x')",
        "from torch import load",
        "tar.extractall()",
        "dist.all_gather_object(a, b)",
        "broadcast_object_list(a)",
        "import torch.multiprocessing",
        "from torch.distributed.checkpoint import save",
        "np.load(p, allow_pickle=True)",
        "eval('1')",
    ):
        assert len(faults(ast.parse(code))) == 1, code


# Every package that the source imports is declared: none only comes with another


def test_every_import_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *(line for name in extras for line in extras[name])]
    declared = {re.split(r"[\[><=; ]", line)[0].lower().replace("_", "-") for line in lines}
    distributions = packages_distributions()
    imported = {module.partition(".")[0] for path in SOURCES for module, _ in imports_in(tree_of(path))}
    missing = {
        name
        for name in imported - {"", "glassformer", *sys.stdlib_module_names}
        if not {each.lower().replace("_", "-") for each in distributions.get(name, [name])} & declared
    }
    assert not missing


# Words: no private ones in names, a verb first in docstrings, no file that is not there, terms of the glossary


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


def test_names_are_no_private_words():
    found = {path.relative_to(ROOT): banned_names(path.read_text("utf-8")) for path in FILES}
    assert {path: names for path, names in found.items() if names} == {}


def test_docstrings_of_functions_begin_with_a_verb():
    files = [path for path in FILES if "tests" not in path.relative_to(ROOT).parts]
    found = {path.relative_to(ROOT): docstrings_without_verb(path.read_text("utf-8")) for path in files}
    assert {path: docstrings for path, docstrings in found.items() if docstrings} == {}


def test_checks_find_what_they_look_for():
    source = 'def f(told: int) -> int:\n    """The sum."""\n    return told\n'
    assert banned_names(source) == [("told", 1), ("told", 3)]
    assert docstrings_without_verb(source) == ["The sum."]


# Files that documentation, docstrings and comments name are there

OF_OTHERS = {"specs/model_spec.py", "specs/transformer_spec.py"}
"""Files of other projects."""
NAME = re.compile(r"(?<![\w/.\"'*{<-])((?:\.\./)?[a-z_][\w-]*(?:/[\w-]+)*\.(?:py|tsx?))(?![\w\"'])")


def texts() -> list[Path]:
    """All Python sources, and the pages that people write; those of how-to/extend add files."""
    pages = [path for path in (ROOT / "docs").rglob("*.md") if not {"_build", "extend"} & {*path.parts}]
    return [*(ROOT / "src").rglob("*.py"), *pages, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


def known_names() -> set[str]:
    """The ends of the paths of all files: "loop.py", "training/loop.py"."""
    folders = ("src", "tests", "benchmarks", "docs", "web/src", "web")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.*") if "node_modules" not in path.parts]
    ends = [path.relative_to(ROOT).parts for path in paths]
    return {"/".join(parts[i:]) for parts in ends for i in range(len(parts))}


def test_files_that_are_named_exist():
    known, missing = known_names(), []
    for path in texts():
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
            found = (name.removeprefix("../") for name in NAME.findall(line))
            missing += [f"{path.relative_to(ROOT)}:{number} {name}" for name in found if name not in known | OF_OTHERS]
    assert missing == []


# The terms that the page explains are those of the glossary, as plain text

SCRIPT = runpy.run_path(str(ROOT / "web" / "terms.py"))


def test_the_definitions_of_the_page_are_those_of_the_glossary():
    assert (ROOT / "web" / "src" / "terms.ts").read_text("utf-8") == SCRIPT["terms_ts"](), "run: make web"


def test_a_definition_is_plain_text():
    text = "one\n: A [mean](https://a.b) of `x`\n  and y ([Name](https://a.b), section 3). More.\n\nb, c\n: Else.\n"
    assert SCRIPT["definitions"](text) == {"one": "A mean of x and y. More.", "b, c": "Else."}
