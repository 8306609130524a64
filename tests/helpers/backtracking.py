"""Find regular expressions that backtrack: those that can match one text in more and more ways as it grows.

An expression becomes an automaton over a few characters that separate its classes. If some text leads from a state to
itself, from it to another state, and from that to itself, then its repetition can be divided in many ways, and a text
that does not match afterwards makes `re` try all of them (Weber and Seidl 1991, "On the degree of ambiguity of finite
automata"). Where nothing can fail afterwards, it does not matter. Nothing is timed.
"""

from __future__ import annotations

import itertools
import re
from re import _constants as c  # pyright: ignore[reportMissingModuleSource, reportAttributeAccessIssue]
from re import _parser  # pyright: ignore[reportAttributeAccessIssue]
from typing import Any

ALPHABET = [chr(i) for i in range(128)] + list("é日\u2028\ue000\U00020000")
MANY = 3
"""Repetitions of a bounded repeat that are kept; more are taken as unbounded from BOUND on."""
BOUND = 64


class Automaton:
    """States with transitions by sets of characters, and empty ones.

    Args:
        pattern: the expression.
        flags: its flags.
    """

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self.moves: list[list[tuple[frozenset[str], int]]] = []
        self.empty: list[list[int]] = []
        self.flags = flags
        self.start = self._state()
        self.end = self._sequence(_parser.parse(pattern, flags), self.start)

    def _state(self) -> int:
        self.moves.append([])
        self.empty.append([])
        return len(self.moves) - 1

    def _sequence(self, items: Any, at: int) -> int:
        for op, argument in items:
            at = self._one(op, argument, at)
        return at

    def _one(self, op: Any, argument: Any, at: int) -> int:
        if op in (c.AT, c.ASSERT, c.ASSERT_NOT, c.GROUPREF):
            return at  # taken as empty: more texts match, so no ambiguity is lost
        if op is c.SUBPATTERN:
            return self._sequence(argument[3], at)
        if op is c.ATOMIC_GROUP:
            return self._sequence(argument, at)
        if op is c.BRANCH:
            end = self._state()
            for branch in argument[1]:
                begin = self._state()
                self.empty[at].append(begin)
                self.empty[self._sequence(branch, begin)].append(end)
            return end
        if op in (c.MAX_REPEAT, c.MIN_REPEAT, c.POSSESSIVE_REPEAT):
            return self._repeat(*argument, at)
        end = self._state()
        self.moves[at].append((self._characters(op, argument), end))
        return end

    def _repeat(self, low: int, high: int, items: Any, at: int) -> int:
        for _ in range(min(low, MANY)):
            at = self._sequence(items, at)
        end = self._state()
        self.empty[at].append(end)
        if high is c.MAXREPEAT or high > BOUND:
            begin = self._state()
            self.empty[at].append(begin)
            after = self._sequence(items, begin)
            self.empty[after] += [begin, end]
        else:
            for _ in range(min(high - low, MANY)):
                at = self._sequence(items, at)
                self.empty[at].append(end)
        return end

    def _characters(self, op: Any, argument: Any) -> frozenset[str]:
        one = re.compile(_written(op, argument), self.flags & (re.IGNORECASE | re.DOTALL | re.ASCII))
        return frozenset(character for character in ALPHABET if one.fullmatch(character))

    def closure(self, state: int) -> set[int]:
        """Return the states that are reached without a character."""
        found, todo = {state}, [state]
        while todo:
            for other in self.empty[todo.pop()]:
                if other not in found:
                    found.add(other)
                    todo.append(other)
        return found


def _written(op: Any, argument: Any) -> str:
    """Return a class of one character as an expression."""
    if op is c.ANY:
        return "."
    if op is c.LITERAL:
        return re.escape(chr(argument))
    if op is c.NOT_LITERAL:
        return f"[^{re.escape(chr(argument))}]"
    if op is c.IN:
        return "[" + "".join(map(_in_class, argument)) + "]"
    raise NotImplementedError(op)


CATEGORIES = {c.CATEGORY_DIGIT: r"\d", c.CATEGORY_NOT_DIGIT: r"\D", c.CATEGORY_SPACE: r"\s"}
CATEGORIES |= {c.CATEGORY_NOT_SPACE: r"\S", c.CATEGORY_WORD: r"\w", c.CATEGORY_NOT_WORD: r"\W"}


def _in_class(item: tuple[Any, Any]) -> str:
    op, argument = item
    if op is c.NEGATE:
        return "^"
    if op is c.RANGE:
        return f"{re.escape(chr(argument[0]))}-{re.escape(chr(argument[1]))}"
    return CATEGORIES[argument] if op is c.CATEGORY else re.escape(chr(argument))


def backtracks(pattern: str, *, whole: bool, anywhere: bool, flags: int = 0) -> bool:
    """Return whether an expression backtracks more than in proportion to a text.

    Args:
        pattern: the expression.
        whole: what follows the match can fail: `fullmatch`, or an expression that ends in `$`.
        anywhere: a match may begin at each character, as in `search`, `sub`, `findall`.
        flags: its flags.
    """
    a = Automaton(pattern, flags)
    if anywhere:
        a.moves[a.start].append((frozenset(ALPHABET), a.start))
    steps = [
        {(chars, to) for state in a.closure(s) for chars, to in a.moves[state] if chars} for s in range(len(a.moves))
    ]
    safe = set() if whole else {s for s in range(len(a.moves)) if a.end in a.closure(s)}
    targets = {a.start} | {to for found in steps for _, to in found}
    loops = [p for p in targets if (p,) in _reach(steps, {(p,)})]
    if any(_divides(steps, p, q) for p, q in itertools.permutations(loops, 2) if q not in safe):
        return True
    return any(_twice(steps, p) for p in loops if p not in safe)


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


def _divides(steps: Any, p: int, q: int) -> bool:
    """Return whether one text leads from p to p, from p to q, and from q to q."""
    return (p, q, q) in _reach(steps, {(p, p, q)})


def _twice(steps: Any, p: int) -> bool:
    """Return whether one text leads from p to p in two ways."""
    apart = {states for states in _reach(steps, {(p, p)}) if states[0] != states[1]}
    return any((p, p) in _reach(steps, {states}) for states in apart)
