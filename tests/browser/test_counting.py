"""One way to count over all screens: layers, heads, tokens and features from 0, as in edits.

Every mention in visible text and accessible names is collected, "head 3", "Layer 1", "a (token 6)", and compared with
what it is about: the edit that a switch makes, the step that a link opens, the address, and the tokens of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any
from urllib.parse import unquote

import pytest
from tests.browser.app import Open
from tests.browser.models import MODELS, subject_of

from glassformer.explain.explanation import Explanation, explain
from glassformer.run import Run

HEADS, LAYERS = 4, 3
TEXTS = {"classify": "a b good c a b", "translate": "abcdefa", "lm": "abc da"}

TEXT = """() => [
    ...document.body.innerText.split('\\n'),
    ...[...document.querySelectorAll('option')].map(one => one.label),
    ...['aria-label', 'title', 'aria-valuetext'].flatMap(
        name => [...document.querySelectorAll(`[${name}]`)].map(one => one.getAttribute(name))),
].map(one => one.replace(/\\s+/g, ' ').trim())"""
"""What is read on the page, line by line, and the accessible names."""

NAMED = """() => {
    const all = (selector) => [...document.querySelectorAll(selector)];
    const pairs = (selector, what, words) => all(selector).map(one => [what(one), words(one)]);
    const first = (one, selector) => one.querySelector(selector);
    const name = (one) => [one.getAttribute('aria-label'), one.title, one.innerText].filter(Boolean).join(' / ');
    const address = (one) => {
        const params = new URLSearchParams(one.getAttribute('href').split('?')[1]);
        return one.dataset.nav || !params.get('node') ? '' : `${params.get('node')}[head:${params.get('head') ?? ''}]`;
    };
    const label = (one) => (one.getAttribute('aria-label') ?? '') + ' / ' + one.title;
    return [
        ...pairs('[data-edit]', one => one.dataset.edit, name),
        ...pairs('main a[href*="node="][aria-label], main a.flow-box', address, label),
        ...pairs('[data-head]', one => one.dataset.head.replace(/:(\\d+)$/, '[head:$1]'), name),
        ...pairs('tr[data-part]', one => one.dataset.part, one => first(one, 'th').innerText),
        ...pairs(
            '.edit-chips li:has(code)',
            one => first(one, 'code').innerText, one => first(one, 'span').firstChild.data),
        ...pairs('main select option', one => one.value, one => one.label),
    ].filter(([what]) => /^(encoder|decoder)\\./.test(what));
}"""
"""What has a name for people and one for Python: switches, links to steps, small heat maps, rows of sweeps, edits."""

MENTION = re.compile(r"\b(layer|head|token|row|position|feature|query|key|word) (\d+)\b", re.IGNORECASE)


@dataclass
class Reading:
    """What a page says of a text.

    Attributes:
        e: the explanation of the text, as Python has it.
        mentions: the numbers of each kind of thing, with where they stand.
    """

    e: Explanation
    mentions: dict[str, set[int]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    @cached_property
    def sizes(self) -> dict[str, int]:
        longest = max(len(stream) for stream in self.e.streams)
        words = max(len(stream.word_texts) for stream in self.e.streams)
        d_ff = max(step.shape[-1] for step in self.e.records.values() if step.shape)
        tokens = dict.fromkeys(("token", "row", "position", "query", "key"), longest)
        return tokens | {"layer": LAYERS, "head": HEADS, "feature": d_ff, "word": words}

    def check(self, holds: bool, where: str, text: str) -> None:
        if not holds:
            self.wrong.append(f"{where}: {text}")

    def read(self, texts: list[str], where: str) -> None:
        """Collect what is mentioned; nothing is numbered above its last."""
        for text in texts:
            for kind, number in MENTION.findall(text):
                self.mentions.setdefault(kind.lower(), set()).add(int(number))
                self.check(int(number) < self.sizes[kind.lower()], f"{where}, {kind} {number}", text)

    def compare(self, python: str, words: str, where: str) -> None:
        """Compare the layer, the head and the token in a name for people with those in a step or an edit."""
        identity = identity_of(python)
        for kind, number in MENTION.findall(re.sub(r"\(\w+ \d+\)", "", words)):
            kind = "token" if kind.lower() == "query" else kind.lower()
            self.check(int(number) in identity.get(kind, {int(number)}), f"{where}, {python}", words)
        for number in re.findall(r"\((?:token|row) (\d+)\)", words):
            expected = identity.get("token", set()) | identity.get("key", set())
            self.check(int(number) in expected, f"{where}, {python}", words)


def identity_of(python: str) -> dict[str, set[int]]:
    """Return what a step or an edit is about: of "encoder.1.self.scores[head:2]=0" layer 1, head 2."""
    found: dict[str, set[int]] = {}
    if layer := re.match(r"(?:encoder|decoder)\.(\d+)\.", python):
        found["layer"] = {int(layer[1])}
    for name, index in re.findall(r"\b(head|token|key|hidden|feature|head_feature):(\d+)", python):
        name = "feature" if "hidden" in name or "feature" in name else name
        found.setdefault(name, set()).add(int(index))
    return found


@cache
def subject(name: str) -> Run:
    task, parts = MODELS[name]
    return subject_of((task, parts | {"n_layers": LAYERS, "n_heads": HEADS}))


def visits(name: str, e: Explanation) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the screens with the last layer, head and token selected, whose numbers are the largest."""
    task = MODELS[name][0]
    stack = "decoder" if task in ("translate", "lm") else "encoder"
    block = f"{stack}.{LAYERS - 1}." + ("cross" if task == "translate" else "self")
    last_row, last_key = len(e.streams[-1]) - 1, len(e.streams[0]) - 1
    at = {"node": f"{block}.weights", "head": HEADS - 1, "cell": f"{last_row},{last_key}"}
    edits = [
        f"{block}.context[head:{HEADS - 1}]=0",
        f"{block}.scores[head:1;key:{last_key}]=blocked",
        f"{block}.scores[head:0;token:{last_row};key:0]=blocked",
        f"{stack}.1.ff.hidden[token:1;hidden:2]=0",
    ]
    yield from [("flow", at), ("attention", at)]
    yield from [(screen, at | {"edits": " ".join(edits)}) for screen in ("step", "attention")]
    yield "attention", at | {"sort": "diagonal"}
    yield "step", at | {"node": f"{block}.concat", "cell": f"{last_row},5", "arithmetic": 1}
    yield "step", at | {"node": f"{stack}.1.ff.hidden", "cell": f"{last_row},2", "arithmetic": 1}
    yield "decode", {"position": last_row}
    yield "compare", at | {"o.text": TEXTS[task] + " c", "position": last_row}
    for view in ("words", "parts", "keys", "layers", "contributions"):
        yield "why", {"why": view, "position": last_row}


@pytest.mark.parametrize("name", ["classify, pre-norm", "translate, pre-norm"])
def test_every_screen_counts_as_the_others(app: Open, name: str) -> None:
    task = MODELS[name][0]
    reading = Reading(explain(subject(name), TEXTS[task]))
    page = app(subject(name), text=TEXTS[task])
    n_named = 0
    for screen, params in visits(name, reading.e):
        page.go(screen, text=TEXTS[task], **params)
        page.wait("main h1, .compare")
        page.settle()
        where = f"{screen} { ({k: v for k, v in params.items() if k != 'edits'}) }"
        reading.read(page.page.evaluate(TEXT), where)
        for python, words in page.page.evaluate(NAMED):
            reading.compare(unquote(python), words, where)
            n_named += 1
        if pickers := page.texts("main [role=group][aria-label=Head] button"):
            pressed = page.text("main [role=group][aria-label=Head] [aria-pressed=true]")
            assert pickers == [str(head) for head in range(HEADS)] and pressed == str(params["head"]), where
    assert not reading.wrong, "\n".join(reading.wrong)
    assert n_named > 100
    assert reading.mentions["head"] == {0, 1, 2, 3} and reading.mentions["layer"] == {0, 1, 2}
    assert {0, len(reading.e.streams[0]) - 1} <= reading.mentions["token"]
    assert {"row", "feature"} <= reading.mentions.keys()
