"""Edits on the page: made by keyboard and by switches, shown, undone, and never an old answer for a new edit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import BrowserContext, Route
from tests.browser.app import App, Watch
from tests.browser.conftest import DESKTOP
from tests.browser.models import MODELS, TEXTS, subject_of

from glassformer.explain.explanation import TraceRequest, explain
from glassformer.explain.page.saved_page import saved_page_html
from glassformer.explain.page.server import PageServer

BLOCKED = "encoder.0.self.scores[head:1;key:0]=blocked"
NO_HEAD = "encoder.0.self.context[head:1]=0"
NO_BLOCK = "encoder.1.ff.out=0"
OWN = "gfedcba"
"""A text that the page does not open with."""


def effect(page: App) -> str:
    return str(page.page.locator("[data-role=effect]").inner_text())


@pytest.fixture
def finding(context: Callable[..., BrowserContext]) -> Iterator[Callable[..., App]]:
    """Opens the page of a run that begins with an edit, as often as it is called."""
    start = {"text": TEXTS["translate"], "edits": [NO_HEAD]}
    subject = subject_of(MODELS["translate, pre-norm"])
    with PageServer(subject, port=0, start=[start]) as server, ExitStack() as stack:

        def show(**params: object) -> App:
            page = context().new_page()
            stack.callback(page.close)
            return stack.enter_context(App(page, server.address)).open("flow", **params)

        yield show


def type_text(page: App, text: str) -> str:
    """Type a text and trace it; return the model's answer."""
    page.page.fill("[data-role=text]", text)
    page.page.click("[data-role=trace]")
    page.until("text => new URLSearchParams(location.hash.split('?')[1]).get('text') === text", text)
    page.ready("flow")
    page.settle()
    return str(page.page.inner_text("[data-role=answer] strong"))


def test_the_edit_that_the_page_opens_with_ends_with_its_text(finding: Callable[..., App]) -> None:
    """Back brings both again; an edit that the reader adds to it stays for other texts."""
    of_own = explain(subject_of(MODELS["translate, pre-norm"]), OWN)
    answer, edited = of_own.answer["headline"], of_own.what_if(NO_HEAD).answer_after
    assert answer != edited, "so that the answer tells"
    page = finding()
    page.page.wait_for_selector("[data-role=effect]")
    assert type_text(page, OWN) == answer
    assert "edits" not in page.param and page.page.locator("[data-role=effect]").count() == 0
    page.page.go_back()
    page.page.wait_for_selector("[data-role=effect]")
    page.page.click(f"[data-edit='{NO_BLOCK}']")
    page.until("() => document.querySelectorAll('.edit-chips li code').length === 2")
    assert page.param["edits"].split() == [NO_HEAD, NO_BLOCK]
    assert type_text(page, OWN) == of_own.what_if(NO_BLOCK).answer_after
    assert page.param["edits"] == NO_BLOCK


def test_the_same_edit_in_a_link_or_made_again_stays(finding: Callable[..., App]) -> None:
    edited = explain(subject_of(MODELS["translate, pre-norm"]), OWN).what_if(NO_HEAD).answer_after
    page = finding(text=TEXTS["translate"], edits=NO_HEAD)
    assert type_text(page, OWN) == edited and page.param["edits"] == NO_HEAD
    page = finding()
    type_text(page, "abc")
    page.go("flow", text="abc", edits=NO_HEAD)
    assert type_text(page, OWN) == edited and page.param["edits"] == NO_HEAD


def test_a_key_is_blocked_in_five_keys(app: Callable[..., App]) -> None:
    page = app("translate, pre-norm")
    page.press("3")
    page.ready("attention")
    for key in ("k", "."):
        page.press(key)
    page.press("b")
    page.page.wait_for_selector("[data-role=effect]")
    assert page.param["edits"] == BLOCKED
    expected = explain(subject_of(MODELS["translate, pre-norm"]), TEXTS["translate"]).what_if(BLOCKED)
    assert str(expected.answer_after) in effect(page)
    page.press("z")
    page.page.wait_for_selector("[data-role=effect]", state="detached")
    assert "edits" not in page.param


def test_x_switches_a_head_off_and_back_restores_it(app: Callable[..., App]) -> None:
    page = app("classify, pre-norm", "attention", node="encoder.0.self.weights", head=1)
    page.page.wait_for_selector("[role=switch]")
    page.press("x")
    page.page.wait_for_selector("[data-role=effect]")
    assert page.param["edits"] == NO_HEAD
    page.page.go_back()
    page.page.wait_for_selector("[data-role=effect]", state="detached")
    page.page.go_forward()
    page.page.wait_for_selector("[data-role=effect]")


def test_switches_of_the_flow_are_edits(app: Callable[..., App]) -> None:
    page = app("translate, pre-norm")
    edits = [NO_HEAD, "encoder.1.ff.out=0", "decoder.1.state=skip"]
    for number, edit in enumerate(edits):
        switch = page.page.locator(f"[data-edit='{edit}']")
        assert switch.get_attribute("aria-checked") == "true"
        switch.focus()
        page.press("Space" if number else "Enter")
        page.page.wait_for_selector(f"[data-edit='{edit}'][aria-checked=false]")
    page.page.wait_for_selector("[data-role=effect]")
    assert page.param["edits"].split() == edits
    page.settle()
    marks = page.page.locator("[data-mark]").evaluate_all(
        "all => all.map(one => [one.dataset.nodeBox, one.dataset.mark])"
    )
    assert ["encoder.0.self.norm", "same"] in marks and ["encoder.0.self.weights", "same"] in marks
    assert ["encoder.1.ff.out", "edited"] in marks


def test_pictures_show_before_after_and_the_difference(app: Callable[..., App]) -> None:
    page = app("classify, pre-norm", "step", node="encoder.1.self.q_proj", edits=NO_HEAD)
    page.page.wait_for_selector("[data-role=effect]")
    shown = {}
    for name in ("after", "difference", "before"):
        page.page.locator(f"[data-shown={name}][aria-pressed=true]").wait_for()
        page.settle()
        shown[name] = np.array([[float(v) for _, _, v, _ in page.figures()[0]["cells"]]])
        assert page.page.locator("[data-check]").count() == (name != "difference")
        page.press("v")
    np.testing.assert_allclose(shown["difference"], shown["after"] - shown["before"], atol=1e-6)
    assert abs(shown["difference"]).max() > 0.01


def test_a_form_on_the_step_sets_a_number(app: Callable[..., App]) -> None:
    page = app("classify, pre-norm", "step", node="encoder.0.ff.hidden", cell="2,3")
    page.page.get_by_label("Number", exact=True).fill("1.5")
    page.press("Enter")
    page.page.wait_for_selector("[data-role=set-by-you]")
    assert page.param["edits"] == "encoder.0.ff.hidden[token:2;hidden:3]=1.5"
    assert page.check("encoder.0.ff.hidden") == "ok"
    page.page.locator("td[data-row='2'][data-col='3'][data-value='1.5']").wait_for()


def test_edits_by_hand_and_what_is_wrong_with_them(app: Callable[..., App], watch: Watch) -> None:
    watch.expected = "status of 400"
    page = app("classify, pre-norm")
    page.press("w")
    page.page.keyboard.type("encoder.0.self.head7=0")
    page.press("Enter")
    alert = page.page.locator("[role=alert]")
    alert.wait_for()
    assert "head:7 is out of range" in alert.inner_text().lower()  # a sentence of its own begins with a capital
    assert page.page.locator("[data-role=effect]").count() == 0
    assert page.page.locator(".edit-chips li").count() == 0 and "edits" not in page.param
    assert page.page.get_by_text("Computing").count() == 0
    assert page.page.get_by_label("Edit", exact=True).input_value() == "encoder.0.self.head7=0", "to be corrected"


@pytest.mark.parametrize(
    ("params", "kept"),
    [
        ({"edits": f"encoder.9.self.out=0 {NO_HEAD}"}, {}),
        ({"edits": f"{NO_HEAD} nonsense encoder.0.self.mask=0"}, {}),
        ({"edits": "nonsense"}, {}),
        ({"edits": "a=" + "1" * 300}, {}),
        ({"edits": f"{NO_HEAD} encoder.0.state=B", "other_text": "b"}, {}),
        ({"member": 9, "edits": NO_HEAD}, {}),
        ({"checkpoint": "step-99999999"}, {}),
        ({"text": "a b", "prefix": "999999"}, {}),
        ({"o.text": "a b", "o.member": 9}, {}),
    ],
    ids=lambda one: str(one)[:60],
)
def test_what_is_refused_leaves_the_page_as_it_was(
    app: Callable[..., App], watch: Watch, params: dict[str, object], kept: dict[str, str]
) -> None:
    """The message is shown, nothing is awaited, and of edits one of which is refused none is applied."""
    watch.expected = "status of 4"
    page = app("classify, pre-norm", text=TEXTS["classify"])
    page.go("flow", **({"text": TEXTS["classify"]} | params))
    page.page.locator("[role=alert]").first.wait_for()
    page.settle()
    assert page.page.locator("[role=alert]").count() == 1
    assert {name: value for name, value in page.param.items() if name != "other_text"} == (
        {"text": TEXTS["classify"]} | kept
    )
    assert page.page.locator(".edit-chips li span").count() == len(kept)
    assert page.page.locator("[data-role=effect]").count() == len(kept)
    assert page.page.get_by_text("Computing").count() == 0
    page.go("flow", text=TEXTS["classify"], edits="encoder.1.ff.out=0")
    page.page.wait_for_selector("[data-role=effect]")
    assert page.page.locator("[role=alert]").count() == 0, "until the next request"


def test_a_forged_edited_number_turns_the_check_red(app: Callable[..., App]) -> None:
    node = "encoder.0.self.context"
    page = app("classify, pre-norm", "step", node=node, head=1, edits=NO_HEAD)
    assert page.check(node) == "ok" and page.page.locator("[data-role=set-by-you]").count() == 1

    def perturb(route: Route) -> None:
        answer = route.fetch()
        values = np.frombuffer(answer.body(), "<f4").copy()
        values[-1] += 0.01  # of the head that was set to 0
        route.fulfill(response=answer, body=values.tobytes())

    page.page.route(re.compile(rf"/t/{re.escape(node)}(\?|$)"), perturb)
    page.page.reload()
    page.ready("step")
    assert page.check(node) == "bad"


def test_an_old_answer_is_never_shown_for_a_new_edit(app: Callable[..., App]) -> None:
    """Answers are held back, and come in another order than that of the edits."""
    page = app("classify, pre-norm", "attention", node="encoder.0.self.weights", head=0)
    held: list[Route] = []
    page.page.route(re.compile("/api/trace$"), lambda route: held.append(route))
    page.page.wait_for_selector("[role=switch]")
    page.press("x")
    page.until("() => location.hash.includes('edits')")
    page.press(".", "x")
    while len(held) < 2:
        page.page.wait_for_timeout(10)
    assert page.page.locator("[data-role=effect]").count() == 0
    first, second = held
    second.continue_()
    page.page.wait_for_selector("[data-role=effect]")
    after = effect(page)
    first.continue_()
    page.page.wait_for_timeout(200)
    assert effect(page) == after and page.page.locator("[data-edit][aria-checked=false]").count() == 1
    two = explain(subject_of(MODELS["classify, pre-norm"]), TEXTS["classify"]).what_if(
        "encoder.0.self.context[head:0]=0", NO_HEAD
    )
    assert str(two.answer_after) in after


def test_a_saved_page_holds_both_traces(app: Callable[..., App], tmp_path: Path) -> None:
    subject = subject_of(MODELS["translate, pre-norm"])
    base = explain(subject, TEXTS["translate"])
    edited = explain(subject, TraceRequest(TEXTS["translate"], edits=(BLOCKED,)), trace_id="t2")
    file = tmp_path / "edited.html"
    file.write_text(saved_page_html(base, edited=edited, seconds=1)[0], encoding="utf-8")
    page = app(file, "step", node="encoder.0.self.scores", head=1)
    page.page.wait_for_selector("[data-role=effect]")
    assert edited.edited is not None and str(edited.edited.answer_after) in effect(page)
    for node in ("encoder.0.self.scores", "encoder.0.self.weights", "encoder.0.self.norm", "decoder.0.cross.weights"):
        page.go("step", node=node, head=1)
        assert page.check(node) == "ok"
    page.press("v")
    page.settle()
    assert page.page.locator("[data-check]").count() == 0


def test_sweeps_measure_every_part_and_each_can_be_tried(app: Callable[..., App]) -> None:
    name = "translate, pre-norm"
    page = app(name, "why", why="parts", text=TEXTS["translate"])
    page.page.wait_for_selector("[data-part]")
    e = explain(subject_of(MODELS[name]), TEXTS["translate"])
    shown = page.page.locator("[data-part]").evaluate_all(
        "all => all.map(one => [one.dataset.part, +one.dataset.change])"
    )
    expected = [(" ".join(row.edits), row.change) for row in e.sweep("parts").rows]
    assert [edit for edit, _ in shown] == [edit for edit, _ in expected]
    np.testing.assert_allclose([change for _, change in shown], [change for _, change in expected], atol=1e-4)
    page.page.locator("[data-part] button").first.click()
    page.page.wait_for_selector("[data-role=effect]")
    assert page.param["edits"] == expected[0][0]
    page.page.locator("[data-why=keys]").click()
    page.page.wait_for_selector("[data-part*=blocked]")
    page.page.locator("[data-why=layers]").click()
    page.page.wait_for_selector("[data-layer]")
    last = page.page.locator("[data-layer='decoder/2'] td").all_inner_texts()
    assert last == [e.predictions[i].top[0].piece for i in e.generated]
    page.page.locator("[data-why=contributions]").click()
    page.page.wait_for_selector("[data-role=contributions]")
    largest = max(e.sweep("contributions").rows, key=lambda part: abs(part.direct))
    first = page.page.locator("[data-direct]").first
    assert first.get_attribute("data-part") == largest.name
    np.testing.assert_allclose(float(first.get_attribute("data-direct") or "nan"), largest.direct, atol=1e-4)
    page.page.locator("[data-why=checkpoints]").click()
    page.page.locator("th:has-text('best')").wait_for()


def test_a_second_text_is_compared_state_by_state(app: Callable[..., App]) -> None:
    page = app("translate, pre-norm", "why", why="states", text="abcdefg")
    page.page.get_by_label("Second text", exact=True).fill("gfedcba")
    page.press("Enter")
    page.page.wait_for_selector("[data-role=states]")
    assert page.param["o.text"] == "gfedcba"
    figures = page.page.locator("main figure[data-node]")
    assert figures.evaluate_all("all => all.map(one => one.dataset.node)") == [
        "noising/source",
        "denoising/source",
        "noising/target",
        "denoising/target",
    ]


@pytest.mark.parametrize("heads", [2, 4, 8])
def test_no_block_of_two_columns_wraps(app: Callable[..., App], heads: int) -> None:
    """Nor does one of the single column that narrower windows show."""
    run = subject_of(("translate", {"n_layers": 1, "d_model": 32, "n_heads": heads, "d_ff": 2048, "pre_norm": True}))
    page = app(run)
    for width in (1150, 1221, 1260, 1280, 1300, 1359, 1366, 1400, 1440, 1920):
        page.page.set_viewport_size({"width": width, "height": 900})
        page.page.evaluate("() => new Promise(then => requestAnimationFrame(() => requestAnimationFrame(then)))")
        rows = page.page.locator(".flow-branch > .flow-boxes").evaluate_all(
            "all => all.map(one => [...one.children].map(child => child.getBoundingClientRect().left))"
        )
        assert rows and all(row == sorted(row) for row in rows), width
    page.page.set_viewport_size(DESKTOP)
