"""One way to count over all screens: layers, heads, tokens and features from 0, as in edits.

Every mention in visible text and accessible names is collected, "head 3", "Layer 1", "a (token 6)", and compared with
what it is about: the edit that a switch makes, the step that a link opens, the address, and the tokens of the text.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import pytest
from tests.browser.app import Open
from tests.browser.models import CLASSIFIER, MODELS, TRANSLATOR, subject_of

from glassformer.explain.explanation import Explanation, explain

HEADS, LAYERS = 4, 3
TEXTS = {"classify": "a b good c a b", "translate": "abcdefa"}

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
    const label = (one) => `${one.ariaLabel} / ${one.title}`;
    const name = (one) => [one.getAttribute('aria-label'), one.title, one.innerText].filter(Boolean).join(' / ');
    const address = (one) => {
        const params = new URLSearchParams(one.getAttribute('href').split('?')[1]);
        return one.dataset.nav || !params.get('node') ? '' : `${params.get('node')}[head:${params.get('head') ?? ''}]`;
    };
    return [
        ...pairs('[data-edit]', one => one.dataset.edit, name),
        ...pairs('main a[href*="node="][aria-label], main a.flow-box', address, label),
        ...pairs('[data-head]', one => one.dataset.head.replace(/:(\\d+)$/, '[head:$1]'), name),
        ...pairs('tr[data-part]', one => one.dataset.part, one => one.querySelector('th').innerText),
        ...pairs('.edit-chips li:has(code)',
            one => one.querySelector('code').innerText, one => one.querySelector('span').firstChild.data),
        ...pairs('main select option', one => one.value, one => one.label),
    ].filter(([what]) => /^(encoder|decoder)\\./.test(what));
}"""
"""What has a name for people and one for Python: switches, links to steps, small heat maps, rows of sweeps, edits."""

MENTION = re.compile(r"\b(layer|head|token|row|position|feature|query|key|word) (\d+)\b", re.IGNORECASE)


def disagreements(python: str, words: str) -> list[str]:
    """Return the layers, heads and tokens in a name for people that are others than those in a step or an edit."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, index in re.findall(r"\b(head|token|key|hidden|feature|head_feature):(\d+)", python):
        found["feature" if "hidden" in name or "feature" in name else name].add(index)
    if layer := re.match(r"(?:encoder|decoder)\.(\d+)\.", python):
        found["layer"] = {layer[1]}
    found["query"] = found["token"]
    named = MENTION.findall(re.sub(r"\(\w+ \d+\)", "", words))
    wrong = [f"{kind} {n}" for kind, n in named if found[kind.lower()] and n not in found[kind.lower()]]
    tokens = found["token"] | found["key"]
    return wrong + [n for n in re.findall(r"\((?:token|row) (\d+)\)", words) if n not in tokens]


def visits(task: str, e: Explanation) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the screens with the last layer, head and token selected, whose numbers are the largest."""
    stack = "decoder" if task == "translate" else "encoder"
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


@pytest.mark.parametrize("name", [CLASSIFIER, TRANSLATOR])
def test_every_screen_counts_as_the_others(app: Open, name: str) -> None:
    """And numbers nothing above its last."""
    task, parts = MODELS[name]
    run = subject_of((task, parts | {"n_layers": LAYERS, "n_heads": HEADS}))
    e = explain(run, TEXTS[task])
    sizes = dict.fromkeys(("token", "row", "position", "query", "key"), max(map(len, e.streams)))
    sizes |= {"layer": LAYERS, "head": HEADS, "word": max(len(stream.word_texts) for stream in e.streams)}
    sizes["feature"] = max(step.shape[-1] for step in e.records.values() if step.shape)
    page, mentions, wrong, n_named = app(run, text=TEXTS[task]), defaultdict[str, set[int]](set), [], 0
    for screen, params in visits(task, e):
        page.go(screen, text=TEXTS[task], **params)
        page.wait("main h1, .compare")
        page.settle()
        for text in page.page.evaluate(TEXT):
            for kind, number in MENTION.findall(text):
                mentions[kind.lower()].add(int(number))
                wrong += [] if int(number) < sizes[kind.lower()] else [(screen, text)]
        for python, words in page.page.evaluate(NAMED):
            wrong += [(screen, python, words)] if disagreements(unquote(python), words) else []
            n_named += 1
        if pickers := page.texts("main [role=group][aria-label=Head] button"):
            pressed = page.text("main [role=group][aria-label=Head] [aria-pressed=true]")
            assert pickers == [str(head) for head in range(HEADS)] and pressed == str(params["head"]), (screen, params)
    assert not wrong, "\n".join(map(str, wrong))
    assert n_named > 100 and mentions["head"] == {0, 1, 2, 3} and mentions["layer"] == {0, 1, 2}
    assert {0, len(e.streams[0]) - 1} <= mentions["token"] and {"row", "feature"} <= mentions.keys()
