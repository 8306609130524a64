"""The size of the project is a budget that only falls: whoever removes something lowers the numbers here.

Code lines hold a token that is neither comment nor docstring. Tokens are those of Python's tokenizer without comments,
docstrings, newlines and indentation; a string that is an expression counts as what it holds, so that code does not
hide in strings. `python -m tests.project.test_size` prints the table of now.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "glassformer"
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
WRITTEN = (".py", ".pyi", ".j2", ".tmpl", ".md", ".html", ".css", ".sql", ".txt")
"""The files of the package that a person writes, settings of recipes apart."""
BUDGET = {
    "config": (348, 3_984),
    "data": (2_250, 26_812),
    "decode": (413, 5_423),
    "distributed": (152, 1_511),
    "docs and benchmarks": (4_428, 52_240),
    "evaluate": (784, 11_325),
    "interface": (1_753, 18_182),
    "interop": (3_180, 33_844),
    "nn, models and explain": (6_537, 75_271),
    "package": (21_088, 241_291),
    "report": (513, 6_105),
    "runs": (648, 6_475),
    "tasks": (1_480, 18_734),
    "tests": (22_966, 305_314),
    "text": (932, 11_480),
    "training": (1_488, 16_642),
    "utils": (610, 5_503),
    "web": (10_050, 995),
}
OUTSIDE = {"web/src": "web", "tests": "tests", "docs": "docs and benchmarks", "benchmarks": "docs and benchmarks"}
"""The parts outside the package."""
TOGETHER = {
    "(top)": "interface",
    "cli": "interface",
    "training/examine.py": "interface",
    "nn": "nn, models and explain",
    "models": "nn, models and explain",
    "explain": "nn, models and explain",
}
"""Counted as one part: Python's interface and the commands, which share its options, with what a command looked into;
layers, models and explain, since layers report the steps that explain rebuilt before, and hold the table of them."""


def measure(source: str) -> tuple[int, int]:
    """Return the code lines and the tokens of Python source, the same under every version of Python."""
    lines, tokens, docstrings, nested = set[int](), 0, set[int](), 0
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings.update(range(node.lineno, (node.end_lineno or 0) + 1))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in NO_CODE or (token.type == tokenize.STRING and token.start[0] in docstrings):
            continue
        lines.update(range(token.start[0], token.end[0] + 1))
        kind = tokenize.tok_name[token.type]  # from Python 3.12 on an f-string comes in parts: here it is one token
        tokens += of_string(token.string) if kind == "STRING" else nested == 0
        nested += (kind == "FSTRING_START") - (kind == "FSTRING_END")
    return len(lines), tokens


def of_string(literal: str) -> int:
    """Return the tokens of a string that is an expression of Python; 1 for any other."""
    try:
        text = ast.literal_eval(literal)
        if not isinstance(text, str) or not isinstance(ast.parse(text.strip(), mode="eval"), ast.Expression):
            return 1
        found = tokenize.generate_tokens(io.StringIO(text.strip()).readline)
        return max(1, sum(token.type not in NO_CODE for token in found))
    except (SyntaxError, ValueError, tokenize.TokenError):
        return 1


def written_lines(path: Path) -> int:
    """Return the lines of a template, a style sheet or a script, without blank ones and comments."""
    lines = map(str.strip, path.read_text(encoding="utf-8").splitlines())
    return sum(bool(line) and not line.startswith(("//", "*", "/*", "#")) for line in lines)


def sizes() -> dict[str, tuple[int, int]]:
    """Return the code lines and tokens of each package, and of all else that is written."""
    lines, tokens = Counter[str](), Counter[str]()

    def add(part: str, path: Path) -> None:
        python = path.suffix in (".py", ".pyi")
        more = measure(path.read_text(encoding="utf-8")) if python else (written_lines(path), 0)
        lines[part] += more[0]
        tokens[part] += more[1]

    for path in PACKAGE.rglob("*"):
        name = path.relative_to(PACKAGE).as_posix()
        folder = name.partition("/")[0]
        if path.suffix in WRITTEN and "static" not in path.parts:  # that is built from web/
            add(TOGETHER.get(name) or TOGETHER.get(folder if folder != path.name else "(top)") or folder, path)
    for folder, part in OUTSIDE.items():
        kinds = (".ts", ".tsx", ".css") if part == "web" else (".py",)
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in kinds and "_build" not in path.parts:
                add(part, path)
    for path in (ROOT / "web").glob("*.py"):
        add("web", path)
    within = [part for part in lines if part not in OUTSIDE.values()]
    lines["package"], tokens["package"] = sum(lines[part] for part in within), sum(tokens[part] for part in within)
    return {part: (lines[part], tokens[part]) for part in sorted(lines)}


def test_no_part_is_larger_than_before() -> None:
    found = sizes()
    larger = {part: size for part, size in found.items() if size[0] > BUDGET.get(part, (0, 0))[0]}
    assert not larger, f"code lines and tokens: {larger}; allowed: { {part: BUDGET.get(part) for part in larger} }"
    denser = {part: size for part, size in found.items() if size[1] > BUDGET[part][1]}
    assert not denser, f"code lines and tokens: {denser}; allowed: { {part: BUDGET[part] for part in denser} }"


def test_the_count_is_of_what_is_executed() -> None:
    assert measure('"""Text."""\n\n# nothing\nx = 1  # one\n') == (1, 3)
    assert measure('x = [\n    "a b, of words",\n    "softmax(q @ k)",\n]\n') == (4, 6 + 1 + 6)
    assert measure('x = f"{a} and {b!r:>{width}}"\n') == (1, 3)


if __name__ == "__main__":
    for part, (n_lines, n_tokens) in sizes().items():
        print(f'    "{part}": ({n_lines:_}, {n_tokens:_}),')
