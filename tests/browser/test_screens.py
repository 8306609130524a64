"""Every screen, for every family, light and dark, wide and narrow: nothing wrong by axe, nothing cut off, and an
address that says all that is shown.
"""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from tests.browser.app import App, Open, Watch, address
from tests.browser.conftest import DESKTOP, PHONE
from tests.browser.models import ANSWERS, MODELS, TEXTS, subject_of

from glassformer.explain.explanation import explain

SCREENS = ("flow", "step", "attention", "decode", "why", "compare", "learn")
CLASSIFIER, TRANSLATOR = "classify, pre-norm", "translate, pre-norm"
NARROW = {"width": 360, "height": 740}
LIGHT, DARK = {"color_scheme": "light", "viewport": DESKTOP}, {"color_scheme": "dark", "viewport": NARROW}
Visits = list[tuple[str, dict[str, Any]]]


def problems(page: App, screen: str) -> list[str]:
    """Return what axe finds on a screen, and whether it is too wide."""
    found = [
        f"{screen}: {finding['id']}: {finding['help']}: {[node['target'] for node in finding['nodes']][:3]}"
        for finding in Axe().run(page.page).response["violations"]
        if finding["impact"] in ("serious", "critical")
    ]
    width = page.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return found if width <= 0 else [*found, f"{screen} is {width} pixels too wide"]


def visits(task: str) -> Visits:
    """The screens of a text, and what is learned and gone back through on three of them."""
    text = {"text": TEXTS[task]}
    learned = text | {"answer": ANSWERS[task], "learn_steps": 2, "numbers": "gradients"}
    step = text | {"node": "encoder.0.self.weights", "arithmetic": 1}
    plain = [(screen, step if screen == "step" else text) for screen in SCREENS]
    return [*plain, ("learn", learned), ("flow", learned), ("step", learned | {"node": "encoder.0.ff.w_in.grad"})]


EDITED = {"text": TEXTS["translate"], "edits": "encoder.0.self.context[head:1]=0 decoder.1.ff.out=0"}
EDITS: Visits = [
    *[(screen, EDITED) for screen in ("flow", "decode", "compare")],
    ("attention", EDITED | {"show": "difference"}),
    ("step", EDITED | {"node": "encoder.0.self.context", "head": 1}),
]
SWEEPS: Visits = [
    ("why", {"text": TEXTS["translate"], "why": view})
    for view in ("parts", "keys", "layers", "contributions", "checkpoints")
]
SWEEPS += [("why", {"text": TEXTS["translate"], "why": "states", "o.text": "gfedcba"})]


@pytest.mark.parametrize(
    ("name", "look", "visited"),
    [
        (CLASSIFIER, LIGHT, visits("classify")),
        (TRANSLATOR, DARK, visits("translate")),
        ("pretrain, pre-norm", DARK, [visits("pretrain")[i] for i in (0, 3, 6)]),
        (TRANSLATOR, DARK, EDITS),
        (TRANSLATOR, DARK, SWEEPS),
    ],
    ids=["classifier", "translator", "masked", "edits", "sweeps"],
)
def test_no_serious_findings_and_no_sideways_scrolling(app: Open, name: str, look: Any, visited: Visits) -> None:
    page = app(name, options=look)
    found: list[str] = []
    for screen, params in visited:
        page.go(screen, **params)
        page.settle()
        page.wait("main h1")
        found += problems(page, f"{screen} {params}")
    assert not found, "\n".join(found)


def test_a_reload_shows_the_same(app: Open) -> None:
    page = app("lm, pre-norm")
    for screen, params in [
        ("step", {"node": "decoder.0.self.weights", "head": 1, "cell": "2,1", "arithmetic": 1}),
        ("attention", {"layer": 0, "head": 1}),
        ("decode", {}),
        ("why", {"method": "integrated_gradients"}),
    ]:
        page.go(screen, text=TEXTS["lm"], **params)
        page.settle()
        before = page.page.url, page.text("main")
        page.page.reload()
        page.ready(screen)
        page.settle()
        assert (page.page.url, page.text("main")) == before


def test_boxes_open_their_steps_and_back_goes_back(app: Open) -> None:
    page = app(TRANSLATOR)
    names = page.all("main [data-node-box]", "one.dataset.nodeBox")
    assert len(set(names)) > 10
    for part in ("encoder.0.self", "encoder.0.ff", "decoder.0.self", "decoder.1.cross", "logits"):
        assert any(name.startswith(part) for name in names), part
    page.page.locator('[data-node-box^="decoder.1.cross"]').first.click()
    page.ready("step")
    assert page.param["node"].startswith("decoder.1.cross")
    page.press(" ", " ")
    node = page.param["node"]
    page.click('a[data-nav="attention"]')
    page.ready("attention")
    page.page.go_back()
    page.ready("step")
    assert page.param["node"] == node
    page.page.go_back()
    page.until("node => !location.hash.includes(node)", node)
    assert page.screen == "step"
    page.trace("gab")
    page.page.go_back()
    page.until("text => document.querySelector('[data-role=text]').value === text", TEXTS["translate"])


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
def test_an_address_that_makes_no_sense_breaks_nothing(app: Open, watch: Watch, params: dict[str, Any]) -> None:
    watch.expected = "400.*/api/(attribute|erase)" if "class" in params else None  # asked, and refused
    page = app(CLASSIFIER, "step", **params)
    for screen in SCREENS:
        page.go(screen, **params)
        page.settle()
        assert page.count("main h1") == 1


def test_the_other_screens_are_fetched_when_one_is_opened(app: Open, watch: Watch) -> None:
    page = app(CLASSIFIER)
    page.click("[data-role=no-tour]")
    page.settle()
    fetched = "performance.getEntriesByType('resource').filter(one => /later/.test(one.name))"
    began = page.page.evaluate(f"() => {fetched}.map(one => one.startTime)")
    assert all(time >= 2000 for time in began), "fetched with what the first view needs"
    page.go("decode")
    page.go("why")
    page.settle()
    assert len([url for url in watch.requests if "later.js" in url]) == 1
    assert page.text("main h1") == "Why"


STRAY = """() => [...document.querySelectorAll('.flow-arrow')].filter(arrow => {
    const [before, at, after] = [arrow.previousElementSibling, arrow, arrow.nextElementSibling].map(
        one => (one ?? arrow).getBoundingClientRect());
    return !(before.bottom <= at.bottom && at.top <= after.top && at.left < before.right && at.left < after.right);
}).map(arrow => arrow.parentElement.className)"""


def test_on_a_phone_each_arrow_of_flow_stands_between_what_it_joins(app: Open) -> None:
    page = app(TRANSLATOR, options={"viewport": NARROW})
    page.settle()
    assert page.count(".flow-arrow") > 10
    assert page.page.evaluate(STRAY) == []


@pytest.mark.parametrize("heads", [2, 8])
def test_no_block_of_two_columns_wraps(app: Open, heads: int) -> None:
    """Nor does one of the single column that narrower windows show."""
    run = subject_of(("translate", {"n_layers": 1, "d_model": 32, "n_heads": heads, "d_ff": 2048, "pre_norm": True}))
    page = app(run)
    for width in (1150, 1221, 1260, 1280, 1300, 1359, 1366, 1400, 1440, 1920):
        page.page.set_viewport_size({"width": width, "height": 900})
        page.page.evaluate("() => new Promise(then => requestAnimationFrame(() => requestAnimationFrame(then)))")
        left = "[...one.children].map(child => child.getBoundingClientRect().left)"
        rows = page.all(".flow-branch > .flow-boxes", left)
        assert rows and all(row == sorted(row) for row in rows), width
    page.page.set_viewport_size(DESKTOP)


WIDTHS = (1920, 1440, 1366, 1280)
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
            for (const box of document.querySelectorAll(".formula, .code pre, .code pre > *, .step-how, .step-from")) {
                if (box.scrollWidth > box.clientWidth + 1) cut.push(`${title}, ${width}: ${box.className}`);
            }
        }
    }
    app.style.maxWidth = "";
    return cut;
}"""
"""Opens each step, and returns those of which a formula or a source line is not whole at a width of the page."""


@pytest.mark.parametrize("name", ["lm, pre-norm", TRANSLATOR])
def test_formulas_and_source_lines_are_whole(app: Open, name: str) -> None:
    text, known = TEXTS[MODELS[name][0]], dict[object, str]()
    for record in explain(subject_of(MODELS[name]), text).records.values():
        line = record.source and (record.source.file, record.source.mark)
        known.setdefault((record.site, record.op, record.block, bool(record.params.get("bias")), line), record.id)
    steps = [(node, address("step", {"text": text, "node": node})) for node in [*known.values(), "probabilities"]]
    assert len(steps) > 20
    page = app(name, "step", text=text, options={"viewport": {"width": WIDTHS[0], "height": 900}})
    assert page.page.evaluate(CUT, [steps, WIDTHS]) == []
    page.page.set_viewport_size(PHONE)
    assert page.page.evaluate(CUT, [steps, [NARROW["width"]]]) == []
    page.page.set_viewport_size({"width": WIDTHS[0], "height": 900})
