"""Every screen, for every family, light and dark, wide and narrow: nothing wrong by axe, nothing cut off, and an
address that says all that is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from tests.browser.app import App, Watch
from tests.browser.conftest import DESKTOP, PHONE
from tests.browser.models import MODELS, TEXTS

SCREENS = ("flow", "step", "attention", "decode", "why", "compare", "learn")
FAMILIES = ("classify, pre-norm", "translate, pre-norm", "lm, pre-norm", "pretrain, pre-norm")
LOOKS = {
    "light, wide": {"color_scheme": "light", "viewport": DESKTOP},
    "dark, narrow": {"color_scheme": "dark", "viewport": PHONE},
}
STEPS = {
    "classify": "encoder.0.self.weights",
    "translate": "decoder.0.cross.weights",
    "lm": "decoder.0.self.weights",
    "pretrain": "mlm_hidden",
}
EDITED = {"text": TEXTS["translate"], "edits": "encoder.0.self.context[head:1]=0 decoder.1.ff.out=0"}
CHANGED = [
    *[(screen, EDITED) for screen in ("flow", "attention", "decode", "compare")],
    ("attention", EDITED | {"show": "difference"}),
    ("step", EDITED | {"node": "encoder.0.self.context", "head": 1}),
    *[
        ("why", {"text": TEXTS["translate"], "why": view})
        for view in ("parts", "keys", "layers", "contributions", "checkpoints")
    ],
    ("why", {"text": TEXTS["translate"], "why": "states", "o.text": "gfedcba"}),
]
"""Screens of a changed model, with the parameters of their address."""


def problems(page: App, screen: str) -> list[str]:
    """Return what axe finds on a screen, and whether it is too wide."""
    found = [
        f"{screen}: {finding['id']}: {finding['help']}: {[node['target'] for node in finding['nodes']][:3]}"
        for finding in Axe().run(page.page).response["violations"]
        if finding["impact"] in ("serious", "critical")
    ]
    width = page.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return found if width <= 0 else [*found, f"{screen} is {width} pixels too wide"]


@pytest.mark.parametrize("look", list(LOOKS))
@pytest.mark.parametrize("name", FAMILIES)
def test_no_serious_findings_and_no_sideways_scrolling(app: Callable[..., App], name: str, look: str) -> None:
    task = MODELS[name][0]
    page = app(name, options=LOOKS[look])
    found: list[str] = []
    for screen in SCREENS:
        page.go(screen, text=TEXTS[task], **({"node": STEPS[task], "arithmetic": 1} if screen == "step" else {}))
        page.settle()
        found += problems(page, screen)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("look", [pytest.param(n, marks=pytest.mark.slow) if "light" in n else n for n in LOOKS])
def test_no_serious_findings_with_edits_and_in_sweeps(app: Callable[..., App], look: str) -> None:
    page = app("translate, pre-norm", options=LOOKS[look])
    found: list[str] = []
    for screen, params in CHANGED:
        page.go(screen, **params)
        page.settle()
        page.page.wait_for_selector("main h1")
        found += problems(page, f"{screen} {params}")
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_reload_shows_the_same(app: Callable[..., App], name: str) -> None:
    task = MODELS[name][0]
    page = app(name)
    for screen, params in [
        ("step", {"node": STEPS[task], "head": 1, "cell": "2,1", "arithmetic": 1}),
        ("attention", {"layer": 0, "head": 1}),
        ("decode", {}),
        ("why", {"method": "integrated_gradients"}),
    ]:
        page.go(screen, text=TEXTS[task], **params)
        page.settle()
        before = page.page.inner_text("main")
        address = page.page.url
        page.page.reload()
        page.ready(screen)
        page.settle()
        assert page.page.url == address
        assert page.page.inner_text("main") == before, screen


def test_back_goes_back(app: Callable[..., App]) -> None:
    page = app("classify, pre-norm")
    page.page.click('a[data-nav="step"]')
    page.ready("step")
    page.press(" ", " ")
    node = page.param["node"]
    page.page.click('a[data-nav="attention"]')
    page.ready("attention")
    page.page.go_back()
    page.ready("step")
    assert page.param["node"] == node
    page.page.go_back()
    page.until("node => !location.hash.includes(node)", node)
    assert page.screen == "step"


def test_a_text_that_is_typed_is_traced(app: Callable[..., App]) -> None:
    page = app("classify, pre-norm")
    page.page.fill("[data-role=text]", "good good good")
    page.page.click("[data-role=trace]")
    page.until("() => document.querySelectorAll('[data-stream=text] [data-token=\"2\"]').length > 0")
    page.ready("flow")
    assert page.param["text"] == "good good good"
    page.page.go_back()
    page.page.wait_for_selector("[data-stream=text] [data-token='4']")
    assert page.page.input_value("[data-role=text]") == TEXTS["classify"]


def test_boxes_of_the_flow_open_their_steps(app: Callable[..., App]) -> None:
    page = app("translate, pre-norm")
    boxes = page.page.locator("main [data-node-box]")
    boxes.first.wait_for()
    names = boxes.evaluate_all("boxes => boxes.map(b => b.dataset.nodeBox)")
    assert len(set(names)) > 10
    for part in ("encoder.0.self", "encoder.0.ff", "decoder.0.self", "decoder.1.cross", "logits"):
        assert any(name.startswith(part) for name in names), part
    box = next(name for name in names if name.startswith("decoder.1.cross"))
    page.page.locator(f'[data-node-box="{box}"]').first.click()
    page.ready("step")
    assert page.param["node"].startswith("decoder.1.cross")


@pytest.mark.parametrize(
    "params",
    [
        {"node": "nothing.at.all", "head": 99, "cell": "99,99"},
        {"node": "encoder.0.self.weights", "head": 99, "cell": "-1,x", "arithmetic": 1},
        {"node": "encoder.1.ff.hidden", "cell": "99,9999", "arithmetic": 1},
        {"node": "probabilities", "position": 99, "cell": "7,7", "arithmetic": 1},
        {"layer": "x", "position": "-3", "erased": "text.99", "method": "magic", "foil": "x", "class": 77},
    ],
    ids=str,
)
def test_an_address_that_makes_no_sense_breaks_nothing(
    app: Callable[..., App], watch: Watch, params: dict[str, Any]
) -> None:
    watch.expected = "400.*/api/(attribute|erase)" if "class" in params else None  # asked, and told no
    page = app("classify, pre-norm", "step", **params)
    for screen in SCREENS:
        page.go(screen, **params)
        page.settle()
        assert page.page.locator("main h1").count() == 1


def test_the_other_screens_are_fetched_when_one_is_opened(app: Callable[..., App], watch: Watch) -> None:
    page = app("classify, pre-norm")
    page.settle()
    assert not [url for url in watch.requests if "later.js" in url]
    page.go("decode")
    page.go("why")
    page.settle()
    assert len([url for url in watch.requests if "later.js" in url]) == 1
    assert page.page.inner_text("main h1") == "Why"


def test_what_the_server_refuses_is_said(app: Callable[..., App], watch: Watch) -> None:
    watch.expected = "400"
    page = app("translate, pre-norm", text="abc")
    page.page.evaluate("location.hash = '#/flow?text=abc&prefix=99999'")
    message = page.page.wait_for_selector("[role=alert]")
    assert message is not None and "prefix" in message.inner_text()
    page.page.fill("[data-role=text]", "cab")
    page.page.click("[data-role=trace]")
    page.page.wait_for_selector("[role=alert]", state="detached")


STRAY = """() => [...document.querySelectorAll('.flow-arrow')].filter(arrow => {
    const [before, at, after] = [arrow.previousElementSibling, arrow, arrow.nextElementSibling].map(
        one => (one ?? arrow).getBoundingClientRect());
    return !(before.bottom <= at.bottom && at.top <= after.top && at.left < before.right && at.left < after.right);
}).map(arrow => arrow.parentElement.className)"""


@pytest.mark.parametrize("model", ["classify, pre-norm", "translate, pre-norm", "lm, pre-norm"])
def test_on_a_phone_each_arrow_of_flow_stands_between_what_it_joins(app: Callable[..., App], model: str) -> None:
    page = app(model, options={"viewport": {"width": 360, "height": 740}})
    page.settle()
    assert page.page.locator(".flow-arrow").count() > 10
    assert page.page.evaluate(STRAY) == []
