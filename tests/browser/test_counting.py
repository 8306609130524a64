"""One way to count over all screens: layers, heads, tokens and features from 0, as in edits.

Every mention in visible text and accessible names is collected, "head 3", "Layer 1", "a (token 6)", and compared with
what it is about: the edit that a switch makes, the step that a link opens, the address, and the tokens of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any
from urllib.parse import unquote

import pytest
from tests.browser.app import App
from tests.browser.models import MODELS, subject_of
from tests.browser.test_tour import focused_heading

from glassformer.explain.explanation import Explanation, explain
from glassformer.run import Run

HEADS, LAYERS = 4, 3
TEXTS = {"classify": "a b good c a b", "translate": "abcdefa", "lm": "abc da", "pretrain": "a b [MASK] c a b"}
KINDS = ["classify, pre-norm", "translate, pre-norm", "lm, pre-norm", "pretrain, pre-norm"]

TEXT = """() => {
    const python = 'code, pre, math, style, textarea, svg';
    const seen = (one) => one.checkVisibility() && !one.closest(python);
    const inline = (one) => /^inline$|contents/.test(getComputedStyle(one).display);
    const block = (one) => inline(one) ? block(one.parentElement) : one;
    const found = new Map();
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const node = walker.currentNode;
        if (!seen(node.parentElement)) continue;
        const key = node.parentElement.closest('option') ?? block(node.parentElement);
        found.set(key, (found.get(key) ?? '') + node.data);
    }
    for (const option of document.querySelectorAll('option')) found.set(option, option.label);
    const names = ['aria-label', 'title', 'aria-valuetext'].flatMap(
        name => [...document.querySelectorAll(`[${name}]`)].map(one => one.getAttribute(name)));
    return [...found.values(), ...names].map(one => one.replace(/\\s+/g, ' ').trim()).filter(Boolean);
}"""
"""What is read on the page, block by block, and the accessible names. Code and formulas count as Python does."""

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
        run: the run. e: the explanation of the text, as Python has it.
        mentions: the numbers of each kind of thing, with where they stand.
    """

    run: Run
    e: Explanation
    mentions: dict[str, set[int]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    @cached_property
    def sizes(self) -> dict[str, int]:
        longest = max(len(stream) for stream in self.e.streams)
        words = max(len(stream.word_texts) for stream in self.e.streams)
        d_ff = max(step.shape[-1] for step in self.e.records.steps.values() if step.shape)
        tokens = dict.fromkeys(("token", "row", "position", "query", "key"), longest)
        return tokens | {"layer": LAYERS, "head": HEADS, "feature": d_ff, "word": words}

    def check(self, holds: bool, where: str, text: str) -> None:
        if not holds:
            self.wrong.append(f"{where}: {text}")

    def read(self, texts: list[str], where: str) -> None:
        """Collect what is mentioned; nothing is numbered above its last, and a token has its number's text."""
        for text in texts:
            for kind, number in MENTION.findall(text):
                self.mentions.setdefault(kind.lower(), set()).add(int(number))
                self.check(int(number) < self.sizes[kind.lower()], f"{where}, {kind} {number}", text)
            for piece, number in re.findall(r"“?([^\s“”]+?)”? \(token (\d+)\)", text):
                self.check(piece in self.pieces(int(number)), f"{where}, token {number}", text)
            for piece, number in re.findall(r"(\S+) → \S+ \(row (\d+)\)", text):
                self.check(piece in self.pieces(int(number)), f"{where}, row {number}", text)
            for number, piece in re.findall(r"^(\d+)\. (\S+)$", text):  # of a list of tokens to choose from
                self.check(piece in self.pieces(int(number)), f"{where}, {number}", text)
            for piece, number in re.findall(r"^(\S+) · (\d+)$", text):  # of tokens that a text has twice
                self.check(piece in self.pieces(int(number)), f"{where}, {number}", text)
            for number, piece in re.findall(r"\bRow (\d+), (\S+?)(?: →|,)", text):
                self.check(piece in self.pieces(int(number)), f"{where}, row {number}", text)
            for word, number in re.findall(r"(\S+) \(word (\d+)[,)]", text):
                texts_of = [stream.word_texts[int(number) : int(number) + 1] for stream in self.e.streams]
                self.check([word] in texts_of, f"{where}, word {number}", text)

    def pieces(self, number: int) -> set[str]:
        """Return what stands at a number, as the page spells it, in any stream."""
        found = {stream.pieces[number] for stream in self.e.streams if number < len(stream)}
        return {piece.replace(" ", "␣") for piece in found}

    def compare(self, python: str, words: str, where: str) -> None:
        """Compare the layer, the head and the token in a name for people with those in a step or an edit."""
        identity = identity_of(python)
        for kind, number in MENTION.findall(re.sub(r"\(\w+ \d+\)", "", words)):
            kind = {"query": "token"}.get(kind.lower(), kind.lower())
            if kind in identity:
                self.check(int(number) in identity[kind], f"{where}, {python}", words)
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


def stack_of(name: str) -> str:
    return "decoder" if MODELS[name][0] in ("translate", "lm") else "encoder"


def visits(name: str, e: Explanation) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the screens with the last layer, head and token selected, whose numbers are the largest."""
    task, stack = MODELS[name][0], stack_of(name)
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
    yield "step", at | {"node": f"{block}.q", "cell": f"{last_row},1", "arithmetic": 1}
    yield "step", at | {"node": f"{stack}.1.ff.hidden", "cell": f"{last_row},2", "arithmetic": 1}
    yield "decode", {"position": last_row}
    yield "compare", at | {"o.text": TEXTS[task] + " c", "position": last_row}
    for view in ("words", "parts", "keys", "layers", "contributions"):
        yield "why", {"why": view, "position": last_row}


def selected(reading: Reading, page: App, screen: str, params: dict[str, Any]) -> None:
    """Compare headings, pickers and sliders with the address."""
    row = int(str(params.get("cell", "0,0")).split(",")[0])
    if screen in ("attention", "step") and "node" in params:
        headings = ".step-place" if screen == "step" else "main h2, main h3"
        for heading in page.page.locator(headings).all_inner_texts():
            reading.compare(f"{params['node']}[head:{params['head']};row:{row}]", heading, screen)
            for number in re.findall(r"^Row (\d+)", heading):
                reading.check(int(number) == row, f"{screen}, cell {params['cell']}", heading)
    pickers = page.page.locator("main [role=group][aria-label=Head] button")
    if pickers.count():
        texts = pickers.all_inner_texts()
        reading.check(texts == [str(head) for head in range(HEADS)], screen, f"heads {texts}")
        pressed = page.page.inner_text("main [role=group][aria-label=Head] [aria-pressed=true]")
        reading.check(pressed == str(params["head"]), screen, f"head {pressed} of {params}")
    for slider in page.page.locator("main label:has-text('Position') input").all():
        spoken = slider.get_attribute("aria-valuetext")
        label = page.page.inner_text("main label:has-text('Position')")
        reading.check(f"Position {spoken}" in label, screen, f"{label}: a slider says {spoken}")
    if screen == "decode" and params:
        head = page.page.locator("h2:has-text('oken'), .note:has-text('step'), span:has-text('step')").all_inner_texts()
        found = {int(number) for text in head for number in re.findall(r"(?:token|step) (\d+) of", text.lower())}
        reading.check(found <= {params["position"], params["position"] + 1}, screen, f"{params}: {head}")


@pytest.mark.parametrize("name", KINDS)
def test_every_screen_counts_as_the_others(app: Callable[..., App], name: str) -> None:
    task = MODELS[name][0]
    reading = Reading(subject(name), explain(subject(name), TEXTS[task]))
    page = app(subject(name), text=TEXTS[task])
    n_named = 0
    for screen, params in visits(name, reading.e):
        page.go(screen, text=TEXTS[task], **params)
        page.page.wait_for_selector("main h1, .compare")
        page.settle()
        where = f"{screen} { ({k: v for k, v in params.items() if k != 'edits'}) }"
        reading.read(page.page.evaluate(TEXT), where)
        for python, words in page.page.evaluate(NAMED):
            reading.compare(unquote(python), words, where)
            n_named += 1
        selected(reading, page, screen, params)
    assert not reading.wrong, "\n".join(reading.wrong)
    assert n_named > 100
    assert reading.mentions["head"] == {0, 1, 2, 3} and reading.mentions["layer"] == {0, 1, 2}
    assert {0, len(reading.e.streams[0]) - 1} <= reading.mentions["token"]
    assert {"row", "feature"} <= reading.mentions.keys()


def test_axes_without_names_count_from_0(app: Callable[..., App]) -> None:
    """Features stand above a heat map and its numbers as in the title of an edit."""
    page = app(subject(KINDS[0]), "step", text=TEXTS["classify"], node="encoder.0.ff.hidden", cell="2,6")
    page.page.wait_for_selector("main td[aria-selected=true]")
    column = page.page.locator("main td[aria-selected=true]").evaluate(
        "one => one.closest('table').tHead.rows[0].cells[one.cellIndex].innerText"
    )
    ticks = [int(text) for text in page.page.locator(".matrix-ticks span").all_inner_texts()]
    assert column == "6" and page.page.get_attribute("form[aria-label=Edit] code", "title") == "feature 6"
    assert ticks[0] == 0 and max(ticks) < 24 and "hidden:6" in page.page.inner_text("form[aria-label=Edit] code")


@pytest.mark.parametrize("name", KINDS)
def test_the_tour_counts_as_the_screens(app: Callable[..., App], name: str) -> None:
    """What a card calls a head, a row or a token is what the address and the edits then say."""
    task = MODELS[name][0]
    reading = Reading(subject(name), explain(subject(name), TEXTS[task]))
    page = app(subject(name), text=TEXTS[task])
    page.page.click(".offer [data-role=tour]")
    focused_heading(page)
    compared = 0
    while page.page.locator(".tour").count():
        cards = [page.page.inner_text(".tour")]
        page.page.click("[data-option='0']")
        focused_heading(page, but=cards[-1])
        cards.append(page.page.inner_text(".tour"))
        page.page.click("[data-role=do-it]")
        focused_heading(page, but=cards[-1])
        cards.append(page.page.inner_text(".tour"))
        reading.read(cards, "tour")
        params = page.param
        row = params.get("cell", "").split(",")[0]
        python = params.get("edits") or (f"{params['node']}[head:{params.get('head', '')}]" if "node" in params else "")
        for card in cards[:2]:
            body = card.partition("\n")[2]
            compared += len(re.findall(r"\b(?:head|layer) \d", body, re.IGNORECASE)) if python else 0
            reading.compare(python, re.sub(r"\((token|row) ", "(at ", body), "tour")
            for number in re.findall(r"\brow (\d+)", body):
                reading.check(number == (row or "0"), f"tour, {params} {page.page.url}", body)
        button = page.page.locator("[data-role=tour-next]")
        last = button.inner_text() == "Finish"
        text = page.page.inner_text(".tour")
        button.click()
        page.page.wait_for_selector(".tour", state="detached") if last else focused_heading(page, but=text)
    assert not reading.wrong, "\n".join(reading.wrong)
    assert compared >= 2
