"""No regular expression of the sources backtracks: not in Python, nor in the page's TypeScript. Nothing is timed.

An expression becomes an automaton over a few characters that separate its classes. If some text leads from a state to
itself, from it to another state, and from that to itself, then its repetition can be divided in many ways, and a text
that does not match afterwards makes `re` try all of them (Weber and Seidl 1991, "On the degree of ambiguity of finite
automata"). Where nothing can fail afterwards, it does not matter.
"""

import ast
import importlib
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from re import _compiler, _parser  # pyright: ignore[reportAttributeAccessIssue]
from re import _constants as c  # pyright: ignore[reportMissingModuleSource, reportAttributeAccessIssue]
from typing import Any

from glassformer.config.recipes import limited_kinds, limits_of
from glassformer.explain.request import TraceRequest

ALPHABET = [chr(i) for i in range(128)] + list("é日\u2028\ue000\U00020000")
MANY = 3
"""Repetitions of a bounded repeat that are kept; more are taken as unbounded from BOUND on."""
BOUND = 64


Part = tuple[bool, set[int], set[int]]
"""Whether a part of an expression can be empty, and its first and last places."""
EMPTY = {c.AT, c.ASSERT, c.ASSERT_NOT, c.GROUPREF}
"""Taken as empty: more texts match, so no ambiguity is lost."""


class Automaton:
    """The places of an expression, each of a set of characters, and which follow which (Glushkov 1961); 0 begins.

    Args:
        pattern: the expression.
        flags: its flags.
    """

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self.flags, self.characters, self.next = flags, [frozenset[str]()], [set[int]()]
        empty, self.next[0], self.ends = self._sequence(_parser.parse(pattern, flags))
        self.ends |= {0} if empty else set()

    def _sequence(self, items: Any) -> Part:
        found: Part = (True, set(), set())
        for op, argument in items:
            found = self._joined(found, self._one(op, argument))
        return found

    def _joined(self, one: Part, two: Part) -> Part:
        for place in one[2]:
            self.next[place] |= two[1]
        return one[0] and two[0], one[1] | (two[1] if one[0] else set()), two[2] | (one[2] if two[0] else set())

    def _one(self, op: Any, argument: Any) -> Part:
        if op in EMPTY:
            return True, set(), set()
        if op in (c.SUBPATTERN, c.ATOMIC_GROUP):
            return self._sequence(argument[3] if op is c.SUBPATTERN else argument)
        if op is c.BRANCH:
            empty, first, last = zip(*map(self._sequence, argument[1]), strict=True)
            return any(empty), set().union(*first), set().union(*last)
        if op in (c.MAX_REPEAT, c.MIN_REPEAT, c.POSSESSIVE_REPEAT):
            return self._repeat(*argument)
        state, flags = _parser.State(), self.flags & (re.IGNORECASE | re.DOTALL | re.ASCII)
        state.str, state.flags = "", flags or re.UNICODE
        one = _compiler.compile(_parser.SubPattern(state, [(op, argument)]), flags)
        self.characters.append(frozenset(character for character in ALPHABET if one.fullmatch(character)))
        self.next.append(set())
        return False, {len(self.next) - 1}, {len(self.next) - 1}

    def _repeat(self, low: int, high: int, items: Any) -> Part:
        low, unbounded = min(low, MANY), high is c.MAXREPEAT or high > BOUND
        found: Part = (True, set(), set())
        for i in reversed(range(low + (1 if unbounded else min(high - low, MANY)))):
            part = self._sequence(items)
            if unbounded and not found[1]:  # the last
                self._joined(part, part)
            empty, first, last = self._joined(part, found)
            found = (empty or i >= low, first, last)
        return found


def backtracks(pattern: str, *, whole: bool, anywhere: bool, flags: int = 0) -> bool:
    """Return whether an expression backtracks more than in proportion to a text.

    Args:
        pattern: the expression.
        whole: what follows the match can fail: `fullmatch`, or an expression that ends in `$`.
        anywhere: a match may begin at each character, as in `search`, `sub`, `findall`.
        flags: its flags.
    """
    a = Automaton(pattern, flags)
    steps = [{(a.characters[to], to) for to in targets if a.characters[to]} for targets in a.next]
    if anywhere:
        steps[0].add((frozenset(ALPHABET), 0))
    loops = [p for p in range(len(steps)) if (p,) in _reach(steps, {(p,)})]
    unsafe = [p for p in loops if whole or p not in a.ends]
    if any((p, q, q) in _reach(steps, {(p, p, q)}) for p in loops for q in unsafe if p != q):
        return True  # one text leads from p to p, from p to q, and from q to q
    for p in unsafe:  # one text leads from p to p in two ways
        apart = {(q, r) for q, r in _reach(steps, {(p, p)}) if q != r}
        if any((p, p) in _reach(steps, {states}) for states in apart):
            return True
    return False


def _reach(steps: Any, starts: set[Any]) -> set[Any]:
    """Return the tuples of n states that are reached from others by the same characters, one or more."""
    found, todo = set(), list(starts)
    while todo:
        states = todo.pop()
        for moves in itertools.product(*(steps[s] for s in states)):
            if frozenset.intersection(*(chars for chars, _ in moves)):
                after = tuple(to for _, to in moves)
                if after not in found:
                    found.add(after)
                    todo.append(after)
    return found


ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "glassformer").rglob("*.py"))
PAGE = sorted(path for end in ("ts", "tsx") for path in (ROOT / "web" / "src").rglob(f"*.{end}"))
ANYWHERE = {"search", "sub", "subn", "findall", "finditer", "split"}
USES = {"compile", "match", "fullmatch", *ANYWHERE}
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
        tree = ast.parse(path.read_text("utf-8"))
        calls = [
            (node, node.func.attr, node.func.value.id)
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            if isinstance(node.func.value, ast.Name)
        ]
        named = {
            ast.unparse(node.value): ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value
        }
        for call, function, of in calls:
            if of != "re" or function not in USES:
                continue
            place = f"{path.relative_to(ROOT / 'src' / 'glassformer').as_posix()}: {ast.unparse(call.args[0])}"
            if place in BUILT:
                continue
            uses, flags = {function}, [k.value for k in call.keywords if k.arg == "flags"]
            if function == "compile":  # what the module calls of it; all, where it is passed on
                flags += call.args[1:]
                name = named.get(ast.unparse(call), "pattern")
                uses = {use for _, use, other in calls if other == name} & USES or {"fullmatch", "search"}
            yield place, _value(path, call.args[0]), uses, sum(int(_value(path, one)) for one in flags)


def _value(path: Path, node: ast.expr) -> Any:
    """Return the value of an expression of a module: a literal, or made of its names."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        return eval(ast.unparse(node), vars(importlib.import_module(module)))


def problems(place: str, pattern: str, uses: set[str], flags: int = 0) -> list[str]:
    """Return the place of an expression that backtracks in one of its uses."""
    whole = "fullmatch" in uses or pattern.endswith("$")
    return [place] if backtracks(pattern, whole=whole, anywhere=bool(uses & ANYWHERE), flags=flags) else []


def test_no_expression_in_python_backtracks():
    found = list(python_patterns())
    assert len(found) > 30
    assert [place for one in found for place in problems(*one)] == []
    for kind in limited_kinds(TraceRequest).values():
        assert not backtracks(limits_of(kind).pattern or "", whole=True, anywhere=False)


def test_no_expression_of_the_page_backtracks():
    found = []
    for path in PAGE:
        for match in LITERAL.finditer(text := path.read_text("utf-8")):
            if "${" in match[1]:
                continue  # a division in a template
            before = text[: match.start()]
            split = re.sub(r"\\u[0-9a-fA-F]{4}|\\u\{\w+\}|\\[pP]\{\w+\}", "x", match[1])
            flags = re.IGNORECASE if "i" in match[2] else 0
            use = "match" if _parser.parse(split)[0] == (c.AT, c.AT_BEGINNING) else "sub"
            place = f"{path.name}:{before.count(chr(10)) + 1}: {match[1]}"
            found.append((place, split.replace("[^]", "."), {use}, flags))
    assert len(found) > 20
    assert [place for one in found for place in problems(*one)] == []


def test_the_check_finds_what_backtracks_and_passes_what_does_not():
    for pattern in (r"[+-]?(?:\d+\.?\d*|\.\d+)x", r"(a+)+$", r"(a|aa)*b", r"\s*,\s*\s*;", r"(\w+\s?)*:", r"(?:x+x+)+y"):
        assert backtracks(pattern, whole=True, anywhere=False), pattern
    for pattern in (r"\d+(?:\.\d*)?x", r"a+b", r"(?:ab)*c", r"[a-z]+=[0-9]+", r"(a|b)*c", r"\s+x"):
        assert not backtracks(pattern, whole=True, anywhere=False), pattern
