"""Texts that are long or try to be something else, as markup: they are text everywhere, and Flow folds them.

Of texts of more tokens than edits are made on nothing is offered that would be refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.browser.app import App, Open, Watch
from tests.browser.models import CLASSIFIER, MASKED, MODELS, SCREENS, TEXTS, TRANSLATOR, WRITER, Parts, subject_of
from tests.browser.test_screens import problems

from glassformer.data.splits import Split, TextData
from glassformer.explain.explanation import TraceRequest, explain
from glassformer.run import Run

N = 150
LETTERS = "abcdefg" * 21
LONG: dict[str, dict[str, Any]] = {
    CLASSIFIER: {"text": "a b good c a " * 30},
    TRANSLATOR: {"text": LETTERS, "target": LETTERS},
    WRITER: {"text": "abc d" * 28},
}
EDITING = ["[data-edit]", "#edit", "form[aria-label=Edit]", "[aria-label='Edits of this head']", "[data-why]"]
"""A switch, the field for edits, the form of a step, blocking of keys, the views of Why."""


@cache
def subject(name: str) -> Run:
    return subject_of(MODELS[name], max_len=200)


def shown(page: App, stream: str) -> list[int]:
    """Return the tokens of a stream that Flow shows."""
    return page.all(f"main ol[data-stream={stream}] [data-token]", "+one.dataset.token")


def offers(page: App) -> set[str]:
    return {selector for selector in EDITING if page.count(selector)}


def test_the_middle_is_folded_and_opens_by_keyboard(app: Open) -> None:
    page = app(subject(TRANSLATOR), **LONG[TRANSLATOR])
    for stream in ("source", "target"):
        fold = f"main ol[data-stream={stream}] [aria-expanded]"
        [(words, is_open)] = page.all(fold, "[one.innerText, one.ariaExpanded]")
        ends = shown(page, stream)
        n = int(words.split()[1]) + len(ends)
        assert 140 < n <= 200 and is_open == "false"
        assert ends == [*range(16), *range(n - 16, n)]
        page.page.focus(fold)
        page.press("Enter")
        assert shown(page, stream) == [*range(n)]
        assert page.all(fold, "[one.ariaExpanded, one === document.activeElement]") == [["true", True]]
    page.reload()
    for stream in ("source", "target"):
        assert len(shown(page, stream)) > 140, "the link says what is open"
        page.page.focus(f"main ol[data-stream={stream}] [aria-expanded]")
        page.press("Space")
        assert len(shown(page, stream)) == 32
    assert "unfold" not in page.param


def test_the_selected_token_is_never_folded(app: Open) -> None:
    """A row of a step, the row and the column of attention weights, and the position of a prediction."""
    page = app(subject(WRITER), "step", node="embedding.sum", **LONG[WRITER])
    n = len(explain(subject(WRITER), LONG[WRITER]["text"]).streams[0])
    selections = [({"node": "embedding.rows", "cell": f"{at},3"}, {at}) for at in (0, 16, n - 1)] + [
        ({"node": "embedding.ids", "cell": "0,75"}, {75}),
        ({"node": "decoder.1.self.weights", "cell": "131,75"}, {131, 75}),
        ({"cell": "20,10"}, {20, 10}),
        ({"position": 75}, {75}),
    ]
    for params, wanted in selections:
        page.go("flow", **LONG[WRITER], **params)
        chips = page.all("main ol[data-stream=text] [aria-pressed=true]", "+one.dataset.token")
        assert set(chips) == wanted, params
        around = {i for one in wanted for i in range(max(0, one - 4), min(n, one + 5))}
        assert around <= set(shown(page, "text")), params
        assert len(shown(page, "text")) < 55


def test_a_cell_of_cross_attention_selects_in_both_streams(app: Open) -> None:
    options = {"color_scheme": "light", "viewport": {"width": 360, "height": 900}}
    page = app(subject(TRANSLATOR), options=options, node="decoder.0.cross.weights", cell="60,90", **LONG[TRANSLATOR])
    assert {60, 90} & set(shown(page, "target")) == {60} and {60, 90} & set(shown(page, "source")) == {90}
    page.settle()
    assert not problems(page, "flow")


def test_a_token_opens_its_step_and_stays_in_view(app: Open) -> None:
    page = app(subject(CLASSIFIER), unfold="text", **LONG[CLASSIFIER])
    page.click("main [data-token='70']")
    page.ready("step")
    page.click("[data-nav=flow]")
    page.click("main [aria-expanded=true]")
    assert set(range(66, 75)) <= set(shown(page, "text"))
    assert page.texts("main ol[data-stream=text] [aria-expanded]") == ["… 50 tokens", "… 59 tokens"]
    page.trace("a b c")
    assert shown(page, "text") == [0, 1, 2] and not {"unfold", "cell"} & page.param.keys()
    offered = set[str]()
    page.go("flow", text=TEXTS["classify"], cell="1,0")
    assert page.count("main ol[data-stream] [aria-expanded], main ol [aria-pressed=true]") == 0
    for screen in SCREENS:
        page.go(screen, text=TEXTS["classify"], node="encoder.0.self.scores")
        offered |= offers(page)
    assert offered == set(EDITING), "a short text is whole and offers all"


def test_nothing_is_offered_that_is_refused(app: Open, watch: Watch, saved: Callable[..., Path]) -> None:
    """No control for edits on any screen, nor keys; where they were, the reason as Python says it."""
    reason = "Edits need a text of at most 128 tokens"
    page = app(subject(WRITER), **LONG[WRITER])
    for screen in SCREENS[:6]:
        page.go(screen, node="decoder.0.self.scores", why="parts", **LONG[WRITER])
        page.wait("main h1, .compare")
        assert not offers(page), screen
        assert page.text("[aria-label=Edits]").startswith(reason)
        page.press("x", "b", "w", "z")
        assert "edits" not in page.param and not page.count("[role=alert]")
    watch.expected = "status of 400"
    page.go("flow", edits="decoder.0.self.context=0", **LONG[WRITER])  # a link with edits
    assert reason[6:] in page.text("[role=alert]")
    assert "edits" not in page.param and not offers(page)
    page = app(saved(explain(subject(CLASSIFIER), LONG[CLASSIFIER]["text"]), seconds=2))
    assert len(shown(page, "text")) == 32
    page.click("main [aria-expanded=false]")
    assert len(shown(page, "text")) == N and page.param["unfold"] == "text"
    for screen in SCREENS[:6]:
        page.go(screen, why="parts")
        assert not offers(page) and not page.count("[role=alert]")


def test_contributions_are_not_offered_where_a_logit_is_no_sum(app: Open) -> None:
    views = {}
    for name in (MASKED, WRITER):
        page = app(name, "why", text=TEXTS[MODELS[name][0]], why="contributions")
        page.wait("[data-why]")
        views[name] = page.all("[data-why]", "one.dataset.why")
        assert page.count("[data-why][aria-pressed=true]") == 1
    assert "contributions" in views[WRITER]
    assert views[MASKED] == [one for one in views[WRITER] if one != "contributions"]


def test_a_text_that_is_too_long_is_cut_with_a_note(app: Open) -> None:
    """A source of 560 characters is cut to 512, and every step of what is left can be checked."""
    requested = {"text": "abcdefg" * 80, "target": "abc"}
    page = app(subject_of(("translate", {"n_layers": 1}), max_len=600), "step", node="src_embedding.ids", **requested)
    assert "512" in page.text(".notes")
    nodes = ("src_embedding.ids", "tgt_embedding.positions", "encoder.0.self.weights", "decoder.0.self.weights")
    page.agrees(*nodes, **requested)


HOSTILE = [
    "</script><script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=1>",
    "<!--",
    "]]>",
    "'\"`",
    "__proto__",
    "\U0001f469\u200d\U0001f680",  # an emoji of three characters
    "\U0001f600",
    "שלום",
    "مرحبا",
    "漢字かな",
    "\u202eright\u202c",
    "e\u0301\u0323",
    "\x1b[31m",
    "\ufffe\x7f",
    "🏳️‍🌈",
    "%3Cb%3E",
    "{{7*7}}",
]
TEXT = " ".join(HOSTILE)
FAMILIES: dict[str, Parts] = {"bpe": ("translate", {"n_layers": 1}), "word": ("classify", {"n_layers": 1})}


def hostile_run(kind: str) -> Run:
    """A model that learned its tokenizer from hostile texts, and whose classes have hostile names."""
    task = FAMILIES[kind][0]
    answers = {"classify": ["</script><b>no</b>", "<i>yes"] * 15, "translate": [TEXT] * 30}.get(task)
    split = Split([TEXT] * 30, answers, "train")
    data = TextData(split, split, split)
    return subject_of(FAMILIES[kind], data, 500, tokenizer=kind, vocab_size=600)


@pytest.mark.parametrize("kind", FAMILIES)
def test_hostile_texts_are_text_on_every_screen(app: Open, saved: Callable[..., Path], kind: str) -> None:
    run = hostile_run(kind)
    decode = {"max_new_tokens": 5} if kind != "word" else {}
    explanation = explain(run, TraceRequest(TEXT, decode=decode))
    for page in (app(run, "flow", text=TEXT, **decode), app(saved(explanation, seconds=0), "flow")):
        scripts = page.count("script")
        for screen in SCREENS[:6]:
            page.go(screen, **({"text": TEXT} | decode if page.base.startswith("http") else {}))
            page.settle()
            assert page.page.evaluate("window.pwned") is None
            assert page.count("script") == scripts and page.count("img, iframe, object, embed") == 0
            width = page.page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert width <= 0, f"{screen} is {width} pixels too wide"
        answer = page.text("[data-role=answer]")
        if kind == "word":
            assert explanation.answer["headline"] in answer and "<" in answer
        assert page.page.input_value("[data-role=text]") == TEXT
    if kind == "word":  # and tokens are written as they are
        page = app(run, "flow", text=TEXT, unfold="text")
        pieces, shown = explanation.streams[0].pieces, page.all("[data-stream=text] [data-token]", "one.textContent")
        assert all(piece in text for piece, text in zip(pieces, shown, strict=True) if piece.isprintable())
