"""Before, After and Difference on every screen: what does not change is 0, and no text claims what is not so."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.browser.app import App, address
from tests.browser.models import MODELS, TEXTS, subject_of

from glassformer.explain.explanation import TraceRequest, explain
from glassformer.explain.page.saved_page import saved_page_html

FAMILIES = ("classify, pre-norm", "translate, pre-norm", "lm, pre-norm", "pretrain, pre-norm")
LATE = {
    "classify": "encoder.1.ff.out=0",
    "translate": "decoder.1.ff.out=0",
    "lm": "decoder.1.ff.out=0",
    "pretrain": "encoder.1.ff.out=0",
}
"""An edit of the last layer: all before it stays."""
EARLY = {
    "classify": ("embedding.ids", "embedding.sum", "encoder.0.self.weights", "encoder.1.ff.norm"),
    "translate": ("src_embedding.ids", "encoder.norm", "decoder.0.self.mask", "decoder.0.cross.weights"),
    "lm": ("embedding.ids", "decoder.0.self.mask", "decoder.0.self.weights", "decoder.1.self.residual"),
    "pretrain": ("embedding.ids", "encoder.0.self.weights", "encoder.1.self.residual"),
}
FALSE_IN_DIFFERENCE = re.compile(r"sums? to 1\b|of all weight|−\d+(\.\d+)?%|-\d+(\.\d+)?%|larger the weight", re.I)
SCREENS: list[tuple[str, dict[str, Any]]] = [
    ("flow", {}),
    ("step", {"node": "probabilities"}),
    ("step", {"node": "logits"}),
    ("attention", {}),
    ("decode", {}),
    ("why", {}),
    ("compare", {}),
]


def cells(page: App) -> np.ndarray:
    """The numbers of every table of numbers on the screen."""
    return np.array([float(value) for figure in page.figures() for _, _, value, _ in figure["cells"]])


def shares(page: App) -> list[float]:
    """The bars of the Flow screen's end and of the Decode screen."""
    found = page.page.locator("main [data-share], main .bars-signed [data-value]")
    return found.evaluate_all("all => all.map(one => +(one.dataset.share ?? one.dataset.value))")


def open_numbers(page: App) -> None:
    for button in page.page.get_by_role("button", name="Show numbers").all():
        button.click()


@pytest.mark.parametrize("name", FAMILIES)
def test_steps_before_an_edit_have_difference_0(app: Callable[..., App], name: str) -> None:
    task = MODELS[name][0]
    page = app(name, "step", text=TEXTS[task])
    known = set(explain(subject_of(MODELS[name]), TEXTS[task]).records)
    assert known.issuperset(EARLY[task])
    for node in EARLY[task]:
        page.go("step", text=TEXTS[task], edits=LATE[task], show="difference", node=node)
        page.settle()
        numbers = cells(page)
        assert numbers.size and not numbers.any(), node
        assert not FALSE_IN_DIFFERENCE.search(page.page.inner_text("main")), node
    page.go("step", text=TEXTS[task], edits=LATE[task], show="difference", node="logits")
    page.settle()
    assert cells(page).any()


@pytest.mark.parametrize("name", FAMILIES)
def test_an_edit_that_changes_nothing_has_no_difference_on_any_screen(app: Callable[..., App], name: str) -> None:
    task = MODELS[name][0]
    params = {"text": TEXTS[task], "edits": "logits*1", "show": "difference"}
    page = app(name, **params)
    page.page.wait_for_selector("[data-role=effect]")
    for screen, more in SCREENS:
        page.go(screen, **params, **more)
        page.page.wait_for_selector("main h1")
        page.settle()
        if screen in ("why", "compare"):
            assert "This view is without your edits." in page.page.inner_text("main")
            continue
        open_numbers(page)
        page.settle()
        assert not cells(page).any(), (screen, more)
        assert not any(shares(page)), (screen, more)
        assert not FALSE_IN_DIFFERENCE.search(page.page.inner_text("main")), (screen, more)
        if screen == "attention":
            assert "does not change" in page.page.inner_text(".attention-reading h3")


@pytest.mark.parametrize("name", FAMILIES)
def test_after_minus_before_is_the_difference_on_every_screen(app: Callable[..., App], name: str) -> None:
    task = MODELS[name][0]
    params = {"text": TEXTS[task], "edits": "embedding[token:1]*0.5"}
    if task == "translate":
        params["edits"] = "source[token:1]*0.5"
    page = app(name, "attention", **params)
    page.page.wait_for_selector("[data-role=effect]")
    for screen, more in SCREENS[1:4]:
        found = {}
        for show in ("before", "after", "difference"):
            page.go(screen, **params, **more, show=show)
            page.settle()
            open_numbers(page)
            page.settle()
            found[show] = {
                (figure["node"], row, column): float(value)
                for figure in page.figures()
                for row, column, value, _ in figure["cells"]
            }
            false = FALSE_IN_DIFFERENCE.search(page.page.inner_text("main"))
            assert not (show == "difference" and false), (screen, more, false)
        if more.get("node") in ("probabilities", "logits"):
            assert any(found["difference"].values()), "candidates are in another order in each"
            continue
        assert found["difference"] and any(found["difference"].values()), (screen, more)
        for at, change in found["difference"].items():
            assert change == pytest.approx(found["after"][at] - found["before"][at], abs=2e-6), (screen, at)
    page.go("decode", **params, show="difference")
    page.settle()
    assert any(shares(page)) and abs(sum(shares(page))) < 1e-6, "all candidates of a small vocabulary are listed"


@pytest.mark.parametrize(("edit", "head", "blocked"), [("[head:1;key:0]", 1, True), ("[head:1;key:0]", 0, False)])
def test_blocked_keys_are_hatched_and_not_offered_again(
    app: Callable[..., App], edit: str, head: int, blocked: bool
) -> None:
    blocking = f"encoder.0.self.scores{edit}=blocked"
    params = {"text": TEXTS["translate"], "edits": blocking, "node": "encoder.0.self.weights", "head": head}
    page = app("translate, pre-norm", "attention", **params, cell="2,0")
    page.page.wait_for_selector("[data-role=effect]")
    open_numbers(page)
    page.settle()
    texts = {(row, column): text for figure in page.figures() for row, column, _, text in figure["cells"]}
    assert {column for (_, column), text in texts.items() if text == "masked"} == ({0} if blocked else set())
    buttons = page.page.locator(".edit-tools button").all_inner_texts()
    assert any(one.startswith("Unblock the key" if blocked else "Block the key") for one in buttons), buttons
    page.go("step", **params)
    page.settle()
    masked = page.page.locator("td.masked")
    assert (masked.count() > 0) == blocked
    if blocked:
        page.go("attention", **(params | {"edits": "encoder.0.self.scores[key:0]=blocked"}), cell="2,0")
        page.page.wait_for_selector("[data-role=effect]")
        page.settle()
        assert page.page.get_by_text("Blocked: the key").is_disabled(), "by an edit of all heads"


def test_rows_that_compute_the_next_token_are_named_by_both(app: Callable[..., App]) -> None:
    name = "translate, pre-norm"
    explained = explain(subject_of(MODELS[name]), TEXTS["translate"])
    last = explained.predictions[-1]
    pieces = [*explained.streams[-1].pieces, (last.actual or last.top[0]).piece]
    expected = [f"{read} → {predicted}" for read, predicted in itertools.pairwise(pieces)]
    page = app(name, "attention", text=TEXTS["translate"], node="decoder.0.cross.weights")
    page.settle()
    rows = page.page.locator(".matrix-rows span")
    assert rows.all_inner_texts() == expected
    assert page.page.locator(".arcs-query button").all_inner_texts() == expected
    page.go("step", text=TEXTS["translate"], node="decoder.0.ff.hidden")
    page.settle()
    assert rows.all_inner_texts() == expected
    page.go("step", text=TEXTS["translate"], node="encoder.0.ff.hidden")
    page.settle()
    assert rows.all_inner_texts() == [*TEXTS["translate"], "[EOS]"]


def test_a_saved_page_shows_the_same_difference(app: Callable[..., App], tmp_path: Path) -> None:
    name, edit = "translate, pre-norm", LATE["translate"]
    subject = subject_of(MODELS[name])
    base = explain(subject, TEXTS["translate"])
    edited = explain(subject, TraceRequest(TEXTS["translate"], edits=(edit,)), trace_id="t2")
    file = tmp_path / "edited.html"
    file.write_text(saved_page_html(base, edited=edited, seconds=1)[0], encoding="utf-8")
    params = {"text": TEXTS["translate"], "edits": edit, "show": "difference"}
    pages = {"live": app(name, **params), "saved": app(file)}
    for screen, more in [
        ("flow", {}),
        ("decode", {}),
        ("step", {"node": "decoder.1.ff.residual"}),
        ("step", {"node": "encoder.norm"}),
    ]:
        shown = {}
        for kind, page in pages.items():
            page.go(screen, **(params if kind == "live" else {"show": "difference"}), **more)
            page.page.wait_for_selector("[data-role=effect]")
            page.settle()
            shown[kind] = [*cells(page), *shares(page)]
        np.testing.assert_allclose(shown["saved"], shown["live"], atol=2e-2)
        assert any(shown["live"]) == (more.get("node") != "encoder.norm")


PHONE_WIDTH, WIDTHS = 360, (1920, 1440, 1366, 1280)
CUT = """async ([addresses, widths]) => {
    const frame = () => new Promise(then => requestAnimationFrame(then));
    const cut = [], app = document.getElementById("app");
    for (const [title, address] of addresses) {
        location.hash = address;
        await frame(); await frame();
        for (const width of widths) {
            app.style.maxWidth = `${width}px`;
            const formula = document.querySelector(".formula");
            const right = (formula?.getBoundingClientRect().right ?? 0) + 1;
            const pieces = [...document.querySelectorAll(".formula math")];
            const beyond = pieces.some(one => one.getBoundingClientRect().right > right);
            if (!pieces.length || beyond) cut.push(`${title}, ${width}: formula`);
            const boxes = ".formula, .code pre, .code pre > *, .step-how, .step-from";
            for (const box of document.querySelectorAll(boxes)) {
                if (box.scrollWidth > box.clientWidth + 1) cut.push(`${title}, ${width}: ${box.className}`);
            }
        }
    }
    app.style.maxWidth = "";
    return cut;
}"""
"""Opens each step, and returns those of which a formula or a source line is not whole at a width of the page."""


def kinds_of_steps(names: list[str]) -> dict[str, list[str]]:
    """The steps of each model whose formula or source line no model before it has."""
    known, found = set(), {}
    for name in names:
        task = MODELS[name][0]
        for record in explain(subject_of(MODELS[name]), TEXTS[task]).records.values():
            line = record.source and (record.source.file, record.source.mark)
            kind = (record.site, record.op, record.block, bool(record.params.get("bias")), line)
            if kind not in known:
                known.add(kind)
                found.setdefault(name, []).append(record.id)
    return found


@pytest.mark.parametrize(
    "names",
    [["lm, pre-norm"], pytest.param(list(MODELS), marks=pytest.mark.slow)],
    ids=["steps of one model", "every step of every model"],
)
def test_formulas_and_source_lines_are_whole(app: Callable[..., App], names: list[str]) -> None:
    seen = 0
    for name, nodes in kinds_of_steps(names).items():
        text = TEXTS[MODELS[name][0]]
        page = app(name, "step", text=text, options={"viewport": {"width": WIDTHS[0], "height": 900}})
        steps = [(node, address("step", {"text": text, "node": node})) for node in [*nodes, "probabilities"]]
        assert page.page.evaluate(CUT, [steps, WIDTHS]) == [], name
        page.page.set_viewport_size({"width": PHONE_WIDTH, "height": 900})
        assert page.page.evaluate(CUT, [steps, [PHONE_WIDTH]]) == [], name
        page.page.set_viewport_size({"width": WIDTHS[0], "height": 900})
        seen += len(nodes)
    assert seen > 20
