"""Change the package in one place at a time and see whether a test notices: `make mutants SEED=1`.

A mutant is one changed operator, constant or bound, two swapped arguments or a removed call, in a line that the tests
execute; it is noticed if one of the tests that execute the line fails (DeMillo, Lipton and Sayward, 1978). Mutants are
chosen once by a seed and kept in a file, so that the same ones are tried before and after a change of the tests: a line
is found again by its text, in its function first. One that no longer stands in the package is gone.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import subprocess
import sys
import venv
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypedDict

from coverage import CoverageData

ROOT = Path(__file__).parents[1]
PACKAGE = "src/glassformer"
SECONDS = 240
"""How long the tests of one mutant may take in all; a test that hangs for half of it fails."""
OPERATORS = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "in": "not in", "not in": "in",
    "is": "is not", "is not": "is", "+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "%": "*", "@": "*", "|": "&",
    "and": "or", "or": "and",
}  # fmt: skip

UNREAD = {"annotation", "returns", "decorator_list", "type_params"}


class Mutant(TypedDict):
    file: str
    function: str
    line: str
    "The line's text without indentation; `before` begins at `column` of it and becomes `after`."
    column: int
    before: str
    after: str


def mutants_of(source: str, file: str) -> Iterator[tuple[int, bool, Mutant]]:
    """Yield each mutant of a file with its line's number, and whether the line stands in a function."""
    lines = source.splitlines()

    def visit(node: ast.AST, function: str, called: bool) -> Iterator[tuple[int, bool, Mutant]]:
        for line, start, end, after in changes(node):
            text = lines[line - 1].encode()[start:end].decode()
            indent = len(lines[line - 1]) - len(lines[line - 1].lstrip())
            column = len(lines[line - 1].encode()[:start].decode()) - indent
            at = Mutant(
                file=file, function=function, line=lines[line - 1].strip(), column=column, before=text, after=""
            )
            yield line, called, {**at, "after": after or OPERATORS[text.strip()].join(text.split(text.strip()))}
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            function, called = f"{function}.{node.name}".lstrip("."), called or isinstance(node, ast.FunctionDef)
        for name, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                # zip(…, strict=False) changes nothing where the program is right.
                strict = isinstance(child, ast.keyword) and child.arg == "strict"
                if isinstance(child, ast.AST) and name not in UNREAD and not strict:
                    yield from visit(child, function, called)

    def between(left: ast.expr, right: ast.expr) -> Iterator[tuple[int, int, int, str]]:
        if left.end_lineno == right.lineno and left.end_col_offset is not None:
            text = lines[right.lineno - 1].encode()[left.end_col_offset : right.col_offset].decode()
            if text.strip() in OPERATORS:
                yield right.lineno, left.end_col_offset, right.col_offset, ""

    def changes(node: ast.AST) -> Iterator[tuple[int, int, int, str]]:
        match node:
            case ast.Compare(left=left, comparators=[right]) | ast.BinOp(left=left, right=right):
                yield from between(left, right)
            case ast.BoolOp(values=[left, right, *_]):
                yield from between(left, right)
            case ast.Constant(value=bool() | int() | float() as value, end_col_offset=int() as end):
                after = repr(not value) if isinstance(value, bool) else repr(value + 1)
                yield node.lineno, node.col_offset, end, after
            case ast.UnaryOp(op=ast.Not(), operand=operand) if node.lineno == operand.lineno:
                yield node.lineno, node.col_offset, operand.col_offset, " "
            case ast.Call(args=[first, second, *_]) if first.lineno == second.end_lineno:
                row = lines[first.lineno - 1].encode()
                one, two = row[first.col_offset : first.end_col_offset], row[second.col_offset : second.end_col_offset]
                if one != two and second.end_col_offset is not None:
                    yield first.lineno, first.col_offset, second.end_col_offset, (two + b", " + one).decode()
            case ast.Expr(value=ast.Call(), end_col_offset=int() as end) if node.lineno == node.end_lineno:
                yield node.lineno, node.col_offset, end, "..."

    yield from visit(ast.parse(source), "", False)


def executed(data: Path) -> dict[str, dict[int, list[str]]]:
    """Return the tests that execute each line of each file of the package; line 0: those that execute any."""
    coverage, found = CoverageData(str(data)), dict[str, dict[int, list[str]]]()
    coverage.read()
    for file in coverage.measured_files():
        by_line = coverage.contexts_by_lineno(file)
        tests = {n: sorted({c.rpartition("|")[0] for c in contexts if c}) for n, contexts in by_line.items()}
        name = file[file.index(PACKAGE) :]
        found[name] = {**tests, 0: sorted({test for names in tests.values() for test in names})}
    return found


def choose(lines: dict[str, dict[int, list[str]]], seed: int, count: int) -> list[Mutant]:
    """Choose mutants of as many lines, each of which a test executes; one outside functions counts with its file."""
    found = defaultdict[tuple[str, int], list[Mutant]](list)
    for file, tests in sorted(lines.items()):
        for line, called, mutant in mutants_of((ROOT / file).read_text(encoding="utf-8"), file):
            if tests.get(line if called else 0):
                found[file, line].append(mutant)
    rng = random.Random(seed)
    return [rng.choice(found[place]) for place in rng.sample(sorted(found), count)]


def place_of(mutant: Mutant, root: Path) -> tuple[Path, int, bool] | None:
    """Return the file, line and whether in a function, of a mutant in a package that may have changed; None: gone."""
    found = []
    for path in sorted((root / PACKAGE).rglob("*.py")):
        file = path.relative_to(root).as_posix()
        for line, called, other in mutants_of(path.read_text(encoding="utf-8"), file):
            if all(other[key] == mutant[key] for key in ("line", "column", "before", "after")):
                found.append((file != mutant["file"], other["function"] != mutant["function"], path, line, called))
    return min(found)[2:] if found else None


def attempt(mutant: Mutant, lines: dict[str, dict[int, list[str]]], tree: Path) -> str:
    """Return what became of a mutant: the test that noticed it, or why none did."""
    place = place_of(mutant, tree)
    if place is None:
        return "gone"
    path, line, called = place
    covered = lines.get(path.relative_to(tree).as_posix(), {})
    size = Counter(test for tests in lines.values() for names in tests.values() for test in names)
    by_file = defaultdict[str, list[str]](list)
    for test in covered.get(line if called else 0, []):
        by_file[test.split("::")[0]].append(test)
    # What executes little first: it is quick, and most often what was written for the line.
    order = sorted(by_file, key=lambda file: min(size[test] for test in by_file[file]))
    names = tree / "build" / "tests.txt"
    names.parent.mkdir(exist_ok=True)
    names.write_text("".join(f"{test}\n" for file in order for test in by_file[file]), encoding="utf-8")
    if not order:
        return "no test executes the line"
    source = path.read_text(encoding="utf-8")
    rows = source.splitlines(keepends=True)
    row = rows[line - 1]
    at = len(row) - len(row.lstrip()) + mutant["column"]
    rows[line - 1] = row[:at] + mutant["after"] + row[at + len(mutant["before"]) :]
    options = "-x -q --tb=no -p no:randomly -o faulthandler_exit_on_timeout=true".split()
    hang = ["-o", f"faulthandler_timeout={SECONDS // 2}"]
    command = [tree / ".venv/bin/python", "-m", "pytest", *options, *hang, f"@{names}"]
    try:
        path.write_text("".join(rows), encoding="utf-8")
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"not noticed in {SECONDS} s"
    finally:
        path.write_text(source, encoding="utf-8")
    if done.returncode == 0:
        return f"not noticed by {sum(map(len, by_file.values()))} tests"
    failed = [row for row in done.stdout.splitlines() if row.startswith(("FAILED", "ERROR"))]
    return f"noticed: {failed[0].split(' - ')[0] if failed else 'the tests did not end'}"


def make_tree(folder: Path) -> Path:
    """Return a checkout of HEAD with an environment whose `glassformer` it is, and all else that of this one."""
    subprocess.run(["git", "worktree", "remove", "--force", folder], cwd=ROOT, stderr=subprocess.DEVNULL)
    subprocess.run(["git", "worktree", "add", "--quiet", "--detach", folder, "HEAD"], cwd=ROOT, check=True)
    venv.create(folder / ".venv")
    packages = next((folder / ".venv").glob("lib/*/site-packages"))
    (packages / "own.pth").write_text(f"import sys; sys.path.insert(0, {str(folder / 'src')!r})\n", encoding="utf-8")
    (packages / "shared.pth").write_text("".join(f"{p}\n" for p in sys.path if "site-packages" in p), encoding="utf-8")
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description="Mutants that the tests notice, as a table.")
    parser.add_argument("file", type=Path, help="the chosen mutants, chosen now if there is no such file")
    parser.add_argument("--executed", type=Path, required=True, help="what pytest --cov --cov-context=test wrote")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    options = parser.parse_args()
    lines = executed(options.executed)
    if not options.file.exists():
        options.file.write_text(json.dumps(choose(lines, options.seed, options.count), indent=1), encoding="utf-8")
    mutants: list[Mutant] = json.loads(options.file.read_text(encoding="utf-8"))
    trees = [make_tree(ROOT / "build" / f"mutants-{i}") for i in range(2)]
    collect = [trees[0] / ".venv/bin/python", "-m", "pytest", "--collect-only", "-q", "tests"]
    collected = set(subprocess.run(collect, cwd=trees[0], capture_output=True, text=True).stdout.splitlines())
    tests = {test for by_line in lines.values() for test in by_line[0]}
    if len(tests - collected) > len(tests) / 100:
        sys.exit(f"{options.executed} was measured on other tests, such as {min(tests - collected)}: remove it")
    for by_line in lines.values():
        for line, names in by_line.items():
            by_line[line] = [test for test in names if test in collected]
    with ThreadPoolExecutor(len(trees)) as pool:

        def one(mutant: Mutant) -> str:
            tree = trees.pop()
            try:
                return attempt(mutant, lines, tree)
            finally:
                trees.append(tree)

        results = []
        for mutant, result in zip(mutants, pool.map(one, mutants), strict=True):
            results.append(result)
            changed = f"{mutant['before']} → {mutant['after']}"
            print(f"{mutant['file']}: {mutant['line'][:70]}: {changed}: {result}", flush=True)
    for i in range(2):
        subprocess.run(["git", "worktree", "remove", "--force", ROOT / "build" / f"mutants-{i}"], cwd=ROOT, check=True)
    gone = results.count("gone")
    noticed = sum(result.startswith("noticed") for result in results)
    print(f"{noticed} of {len(results) - gone} noticed ({noticed / max(1, len(results) - gone):.0%}), {gone} gone")


if __name__ == "__main__":
    main()
