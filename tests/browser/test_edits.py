"""Edits on the page: made by keyboard and by switches, shown, undone, and never an old answer for a new edit.

Before, After and Difference on every screen: what does not change is 0, and no text claims what is not so.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.browser.app import App, Held, Open, Watch
from tests.browser.models import CLASSIFIER, MODELS, TEXTS, TRANSLATOR, WRITER, explained, subject_of

from glassformer.explain.page.server import PageServer

BLOCKED = "encoder.0.self.scores[head:1;key:0]=blocked"
NO_HEAD = "encoder.0.self.context[head:1]=0"
NO_BLOCK = "encoder.1.ff.out=0"
OWN = "gfedcba"
"""A text that the page does not open with."""
FALSE_IN_DIFFERENCE = re.compile(r"sums? to 1\b|of all weight|−\d+(\.\d+)?%|-\d+(\.\d+)?%|larger the weight", re.I)
PICTURES: list[tuple[str, dict[str, Any]]] = [
    ("flow", {}),
    ("step", {"node": "probabilities"}),
    ("step", {"node": "logits"}),
    ("attention", {}),
    ("decode", {}),
]


def effect(page: App) -> str:
    page.wait("[data-role=effect]")
    return page.text("[data-role=effect]")


def answer_to(page: App, text: str) -> str:
    page.trace(text)
    page.settle()
    return page.text("[data-role=answer]")


def test_the_edit_that_the_page_opens_with_ends_with_its_text(app: Open) -> None:
    """Back brings both again; an edit that the reader adds to it, or makes again, stays for other texts."""
    own, e = "b a good", explained(CLASSIFIER, "b a good")
    edits = ([], [NO_HEAD], [NO_BLOCK])
    answers = [e.what_if(*edit).answer if edit else e.answer for edit in edits]
    plain, edited, other = (" ".join(map(str, answer.values())) for answer in answers)
    assert len({plain, edited, other}) == 3, "so that the answer shows it"
    start = {"text": TEXTS["classify"], "edits": [NO_HEAD]}
    with PageServer(subject_of(MODELS[CLASSIFIER]), port=0, start=[start]) as server:
        page = app(server.address)
        effect(page)
        assert answer_to(page, own) == plain
        assert "edits" not in page.param and page.count("[data-role=effect]") == 0
        page.page.go_back()
        effect(page)
        page.click(f"[data-edit='{NO_BLOCK}']")
        page.until("() => document.querySelectorAll('.edit-chips li code').length === 2")
        assert page.param["edits"].split() == [NO_HEAD, NO_BLOCK]
        assert answer_to(page, own) == other
        assert page.param["edits"] == NO_BLOCK
        page.go("flow", text="a b", edits=NO_HEAD)
        assert answer_to(page, own) == edited and page.param["edits"] == NO_HEAD
        page.page.goto("about:blank")
        page.open(text=TEXTS["classify"], edits=NO_HEAD)  # a link with the same edit
        assert answer_to(page, own) == edited and page.param["edits"] == NO_HEAD
        page.page.goto("about:blank")


def test_keys_block_a_key_switch_a_head_off_and_take_it_back(app: Open) -> None:
    page = app(TRANSLATOR)
    page.press("3")
    page.ready("attention")
    page.press("k", ".", "b")
    assert str(explained(TRANSLATOR).what_if(BLOCKED).answer_after) in effect(page)
    assert page.param["edits"] == BLOCKED
    page.press("z")
    page.gone("[data-role=effect]")
    assert "edits" not in page.param
    page.press("x")
    effect(page)
    assert page.param["edits"] == NO_HEAD
    page.page.go_back()
    page.gone("[data-role=effect]")
    page.page.go_forward()
    effect(page)


def test_switches_of_the_flow_and_a_number_in_the_form_of_a_step_are_edits(app: Open) -> None:
    page = app(CLASSIFIER)
    edits = [NO_HEAD, NO_BLOCK, "encoder.1.state=skip"]
    for number, edit in enumerate(edits):
        switch = page.page.locator(f"[data-edit='{edit}']")
        assert switch.get_attribute("aria-checked") == "true"
        switch.focus()
        page.press("Space" if number else "Enter")
        page.wait(f"[data-edit='{edit}'][aria-checked=false]")
    effect(page)
    assert page.param["edits"].split() == edits
    page.settle()
    marks = dict(page.all("[data-mark]", "[one.dataset.nodeBox, one.dataset.mark]"))
    assert marks["encoder.0.self.norm"] == marks["encoder.0.self.weights"] == "same"
    assert marks["encoder.1.ff.out"] == "edited"

    page.agrees("encoder.0.ff.hidden", cell="2,3")
    assert page.page.get_attribute("form[aria-label=Edit] code", "title") == "feature 3"
    header = "one.closest('table').tHead.rows[0].cells[one.cellIndex].innerText"
    assert page.all("main td[aria-selected=true]", header) == ["3"] and page.texts(".matrix-ticks span")[0] == "0"
    page.page.get_by_label("Number", exact=True).fill("1.5")
    page.press("Enter")
    page.wait("[data-role=set-by-you]")
    assert page.param["edits"] == "encoder.0.ff.hidden[token:2;hidden:3]=1.5"
    assert page.check("encoder.0.ff.hidden") == "ok"
    page.wait("td[data-row='2'][data-col='3'][data-value='1.5']")


REFUSED: list[dict[str, object]] = [
    {"edits": f"{NO_HEAD} nonsense encoder.0.self.mask=0"},
    {"edits": f"{NO_HEAD} encoder.0.state=B", "other_text": "b"},
    {"member": 9, "edits": NO_HEAD},
    {"text": "a b", "prefix": "999999"},
    {"o.text": "a b", "o.member": 9},
]


def test_what_is_refused_leaves_the_page_as_it_was(app: Open, watch: Watch) -> None:
    """The message is shown, nothing is awaited, and of edits one of which is refused none is applied."""
    watch.expected = "status of 4"
    page = app(CLASSIFIER, text=TEXTS["classify"])
    for params in REFUSED:
        page.go("flow", **({"text": TEXTS["classify"]} | params))
        page.page.locator("[role=alert]").first.wait_for()
        page.settle()
        assert page.count("[role=alert]") == 1, params
        left = {name: value for name, value in page.param.items() if name != "other_text"}
        assert left == {"text": TEXTS["classify"]}, params
        assert page.count(".edit-chips li span, [data-role=effect], :text('Computing')") == 0, params
        page.go("flow", text=TEXTS["classify"], edits=NO_BLOCK)
        effect(page)
        assert page.count("[role=alert]") == 0, "until the next request"
        page.go("flow", text=TEXTS["classify"])
        page.settle()
    page.press("w")
    page.page.keyboard.type("encoder.0.self.head7=0")
    page.press("Enter")
    page.wait("[role=alert]")
    assert "head:7 is out of range" in page.text("[role=alert]").lower()  # a sentence of its own begins with a capital
    assert page.page.input_value("#edit") == "encoder.0.self.head7=0", "to be corrected"


def test_an_old_answer_is_never_shown_for_a_new_edit(app: Open) -> None:
    """Answers are held back, and come in another order than that of the edits."""
    page = app(CLASSIFIER, "attention", node="encoder.0.self.weights", head=0)
    page.wait("[role=switch]")
    held = Held(page, "**/api/trace")
    page.press("x")
    page.until("() => location.hash.includes('edits')")
    page.press(".", "x")
    while len(held.kept) < 2:
        page.page.wait_for_timeout(10)
    assert page.count("[data-role=effect]") == 0
    first, second = held.kept
    second.continue_()
    after = effect(page)
    first.continue_()
    page.page.wait_for_timeout(200)
    assert effect(page) == after and page.count("[data-edit][aria-checked=false]") == 1
    assert str(explained(CLASSIFIER).what_if("encoder.0.self.context[head:0]=0", NO_HEAD).answer_after) in after


def test_sweeps_measure_every_part_and_each_can_be_tried(app: Open) -> None:
    page = app(TRANSLATOR, "why", why="parts", text=TEXTS["translate"])
    page.wait("[data-part]")
    e = explained(TRANSLATOR)
    shown = page.all("[data-part]", "[one.dataset.part, +one.dataset.change]")
    expected = [(" ".join(row.edits), row.change) for row in e.sweep("parts").rows]
    assert [edit for edit, _ in shown] == [edit for edit, _ in expected]
    np.testing.assert_allclose([change for _, change in shown], [change for _, change in expected], atol=1e-4)
    page.page.locator("[data-part] button").first.click()
    effect(page)
    assert page.param["edits"] == expected[0][0]
    page.click("[data-why=keys]")
    page.wait("[data-part*=blocked]")
    page.click("[data-why=layers]")
    page.wait("[data-layer]")
    assert page.texts("[data-layer='decoder/2'] td") == [e.predictions[i].top[0].piece for i in e.generated]
    page.click("[data-why=contributions]")
    page.wait("[data-role=contributions]")
    largest = max(e.sweep("contributions").rows, key=lambda part: abs(part.direct))
    name, direct = page.all("[data-direct]", "[one.dataset.part, +one.dataset.direct]")[0]
    assert name == largest.name and direct == pytest.approx(largest.direct, abs=1e-4)
    page.click("[data-why=checkpoints]")
    page.wait("th:has-text('best')")
    page.go("why", why="states", text="abcdefg")
    page.page.get_by_label("Second text", exact=True).fill(OWN)
    page.press("Enter")
    page.wait("[data-role=states]")
    assert page.param["o.text"] == OWN
    figures = [f"{how}/{stream}" for stream in ("source", "target") for how in ("noising", "denoising")]
    assert page.all("main figure[data-node]", "one.dataset.node") == figures


def shares(page: App) -> list[float]:
    """The bars of the Flow screen's end and of the Decode screen."""
    return page.all("main .bars-signed [data-value]", "+one.dataset.value")


def settle(page: App) -> None:
    """Wait for all numbers, also those that are shown on demand; no text claims what no difference has."""
    page.wait("[data-role=effect]")
    page.settle()
    for button in page.page.get_by_role("button", name="Show numbers").all():
        button.click()
    page.settle()
    if page.param.get("show") == "difference":
        assert not FALSE_IN_DIFFERENCE.search(page.text("main")), page.page.url


def test_what_does_not_change_has_difference_0(app: Open) -> None:
    """Every step before an edit; and every screen where the edit changes nothing."""
    params = {"text": TEXTS["translate"], "edits": "decoder.1.ff.out=0", "show": "difference"}
    page = app(TRANSLATOR, "step", **params)
    for node in ("encoder.norm", "decoder.0.self.mask", "decoder.0.cross.weights", "logits"):
        page.go("step", **params, node=node)
        settle(page)
        assert page.cells().size and page.cells().any() == (node == "logits"), node
    params["edits"] = "logits*1"
    for screen, more in PICTURES:
        page.go(screen, **params, **more)
        settle(page)
        assert not page.cells().any() and not any(shares(page)), (screen, more)
        if screen == "attention":
            assert "does not change" in page.text(".attention-reading h3")
    for screen in ("why", "compare"):
        page.go(screen, **params)
        page.wait(":text('This view is without your edits.')")


def test_after_minus_before_is_the_difference_on_every_screen(app: Open) -> None:
    params = {"text": TEXTS["lm"], "edits": "embedding[token:1]*0.5"}
    page = app(WRITER, "attention", **params)
    for screen, node in [("step", "probabilities"), ("step", None), ("attention", None)]:
        found = {}
        page.go(screen, **params, node=node)
        for show in ("after", "difference", "before"):
            settle(page)
            assert page.param.get("show", "after") == show
            assert page.count("[data-check]") == (screen == "step" and show != "difference")
            cells = [(figure["node"], *cell) for figure in page.figures() for cell in figure["cells"]]
            found[show] = {(shown, row, column): float(value) for shown, row, column, value, _ in cells}
            page.press("v")
        assert any(found["difference"].values()) or node is None, (screen, node)
        for at, change in found["difference"].items() if node is None else []:  # candidates have another order in each
            assert change == pytest.approx(found["after"][at] - found["before"][at], abs=2e-6), (screen, at)
    page.go("decode", **params, show="difference")
    settle(page)
    assert any(shares(page)) and abs(sum(shares(page))) < 1e-6, "all candidates of a small vocabulary are listed"


def test_blocked_keys_are_hatched_and_not_offered_again(app: Open) -> None:
    page = app(TRANSLATOR, "attention")
    for head in (0, 1):
        params = {"text": TEXTS["translate"], "edits": BLOCKED, "node": "encoder.0.self.weights", "head": head}
        page.go("attention", **params, cell="2,0")
        settle(page)
        masked = {column for figure in page.figures() for _, column, _, text in figure["cells"] if text == "masked"}
        assert masked == ({0} if head == 1 else set())
        buttons = page.texts(".edit-tools button")
        assert any(one.startswith("Unblock the key" if head == 1 else "Block the key") for one in buttons), buttons
        page.go("step", **params)
        settle(page)
        assert (page.count("td.masked") > 0) == (head == 1)
    page.go("attention", **(params | {"edits": "encoder.0.self.scores[key:0]=blocked"}), cell="2,0")
    settle(page)
    assert page.page.get_by_text("Blocked: the key").is_disabled(), "by an edit of all heads"


def test_a_saved_page_holds_both_traces_and_their_difference(app: Open, saved: Callable[..., Path]) -> None:
    edited = explained(TRANSLATOR, edits=(BLOCKED,))
    page, given = app(saved(edited, seconds=0), "step", head=1), {"text": TEXTS["translate"], "edits": BLOCKED}
    live = app(TRANSLATOR, **given)
    assert edited.edited is not None and str(edited.edited.answer_after) in effect(page)
    nodes = ("encoder.0.self.scores", "encoder.0.self.weights", "encoder.0.self.norm", "decoder.0.cross.weights")
    page.agrees(*nodes, head=1)
    for screen, node in [("decode", None), ("step", "decoder.1.ff.residual"), ("step", "embedding")]:
        page.go(screen, show="difference", node=node)
        live.go(screen, **given, show="difference", node=node)
        settle(page)
        settle(live)
        shown, expected = ([*one.cells(), *shares(one)] for one in (page, live))
        np.testing.assert_allclose(shown, expected, atol=2e-2)
        assert any(expected) == (node != "embedding") and page.count("[data-check]") == 0
