"""Every screen, for every family, light and dark, wide and narrow: nothing wrong by axe, nothing cut off, and an
address that says all that is shown; everything by keyboard alone; and terms with their definition.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect
from tests.browser.app import App, Open, Watch, address
from tests.browser.conftest import DESKTOP, PHONE
from tests.browser.models import ANSWERS, CLASSIFIER, MASKED, SCREENS, TEXTS, TRANSLATOR, WRITER, explained, subject_of

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


STRAY = """() => [...document.querySelectorAll('.flow-arrow')].filter(arrow => {
    const [before, at, after] = [arrow.previousElementSibling, arrow, arrow.nextElementSibling].map(
        one => (one ?? arrow).getBoundingClientRect());
    return !(before.bottom <= at.bottom && at.top <= after.top && at.left < before.right && at.left < after.right);
}).map(arrow => arrow.parentElement.className)"""
"""On a phone each arrow of Flow stands between what it joins; these do not."""


@pytest.mark.parametrize(
    ("name", "look", "visited"),
    [
        (CLASSIFIER, LIGHT, visits("classify")),
        (TRANSLATOR, DARK, visits("translate")),
        (MASKED, DARK, [visits("pretrain")[i] for i in (0, 3, 6)]),
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
        if look is DARK and screen == "flow":
            assert page.count(".flow-arrow") > 10 and page.page.evaluate(STRAY) == []
    assert not found, "\n".join(found)


def test_a_reload_shows_the_same(app: Open) -> None:
    page = app(WRITER)
    for screen, params in [
        ("step", {"node": "decoder.0.self.weights", "head": 1, "cell": "2,1", "arithmetic": 1}),
        ("attention", {"layer": 0, "head": 1}),
        ("decode", {}),
        ("why", {"method": "integrated_gradients"}),
    ]:
        page.go(screen, text=TEXTS["lm"], **params)
        page.settle()
        before = page.page.url, page.text("main")
        page.reload()
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


@pytest.mark.parametrize("name", [WRITER, TRANSLATOR])
def test_formulas_and_source_lines_are_whole(app: Open, name: str) -> None:
    known = dict[object, str]()
    for record in explained(name).records.values():
        line = record.source and (record.source.file, record.source.mark)
        known.setdefault((record.site, record.op, record.block, bool(record.params.get("bias")), line), record.id)
    steps = [(node, address("step", {"node": node})) for node in [*known.values(), "probabilities"]]
    assert len(steps) > 20
    page = app(name, "step", options={"viewport": {"width": WIDTHS[0], "height": 900}})
    assert page.page.evaluate(CUT, [steps, WIDTHS]) == []
    page.page.set_viewport_size(PHONE)
    assert page.page.evaluate(CUT, [steps, [NARROW["width"]]]) == []
    page.page.set_viewport_size({"width": WIDTHS[0], "height": 900})


FOCUS = "document.activeElement"


def test_numbers_open_the_screens_and_the_first_tab_skips_to_the_content(app: Open) -> None:
    """Help opens and closes, and typing is left alone."""
    page = app(CLASSIFIER)
    page.press("Tab")
    assert "Skip" in page.page.evaluate(f"{FOCUS}.textContent")
    page.press("Enter")
    assert page.page.evaluate(f"{FOCUS}.id") == "main"
    for key, screen in [("6", "compare"), *((str(i + 1), name) for i, name in enumerate(SCREENS[:6]))]:
        page.press(key)
        page.ready(screen)
        assert page.page.get_attribute(f'a[data-nav="{screen}"]', "aria-current") == "page"
    page.press("1", "?")
    page.wait("dialog[open]")
    page.press("Escape")
    page.gone("dialog[open]")
    page.page.focus("[data-role=text]")
    page.press("End", "2", "?")
    assert page.screen == "flow" and page.page.input_value("[data-role=text]").endswith("2?")


def test_keys_walk_through_steps_layers_heads_and_cells(app: Open) -> None:
    """A grid has one stop in the tab order, and Enter opens the arithmetic of a cell."""
    page = app(CLASSIFIER, "step")
    seen = [page.param.get("node")]
    for _ in range(60):
        page.press(" ")
        node = page.param.get("node")
        if node == seen[-1]:
            break
        seen.append(node)
    assert seen[1] == "embedding.rows" and seen[-1] == "probabilities"
    assert len(set(seen)) == len(seen) > 30
    page.press("Shift+Space")
    assert page.param["node"] == "logits"

    page.agrees("encoder.0.self.weights", head=0)
    for key, layer, head in [("]", 1, "0"), (".", 1, "1"), (".", 1, "1"), ("[", 0, "1"), (",", 0, "0"), ("[", 0, "0")]:
        page.press(key)
        node = f"encoder.{layer}.self.weights"
        assert (page.param["node"], page.param.get("head", "0")) == (node, head), key
        page.wait(f'figure[data-node="{node}"][data-slice="head:{head}"] td[data-row]')

    assert page.count("main td[tabindex='0']") == 1
    page.press("Enter")
    page.wait("[data-role=arithmetic]")
    page.press("Enter")
    page.gone("[data-role=arithmetic]")
    page.page.focus("main td[tabindex='0']")
    keys = "ArrowDown ArrowRight End ArrowRight Home ArrowUp ArrowUp PageDown".split()
    cells = [(1, 0), (1, 1), (1, 4), (1, 4), (1, 0), (0, 0), (0, 0), (4, 0)]
    for key, cell in zip(keys, cells, strict=True):
        page.press(key)
        at = page.page.evaluate(f"[+{FOCUS}.dataset.row, +{FOCUS}.dataset.col, {FOCUS}.getAttribute('aria-selected')]")
        assert (at[0], at[1]) == cell and at[2] == "true", key
    assert page.param["cell"] == "4,0"


@pytest.mark.parametrize("screen", SCREENS[:6])
def test_every_control_can_be_reached_and_is_seen_when_it_is(app: Open, screen: str) -> None:
    """Tab visits every control that is not one of a group, and each shows that it has the focus."""
    page = app(TRANSLATOR, screen)
    page.settle()
    wanted = page.page.evaluate(
        """() => [...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex="0"]')]
            .filter((e) => e.checkVisibility({visibilityProperty: true}) && !e.disabled && e.tabIndex >= 0
                && !(e.type === 'radio' && !e.checked) && !e.closest('dialog:not([open])'))
            .map((e, i) => { e.dataset.stop = i; return i; }).length"""
    )
    seen: set[str] = set()
    for _ in range(wanted + 10):
        page.press("Tab")
        stop, ring = page.page.evaluate(
            f"""() => {{ const e = {FOCUS}, s = getComputedStyle(e);
                const drawn = e.matches('svg *') && getComputedStyle(e.querySelector('rect'));
                return [e.dataset.stop, s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) > 0
                    || s.boxShadow !== 'none' || drawn && parseFloat(drawn.strokeWidth) > 2]; }}"""
        )
        if stop is not None:
            assert ring, f"the focus is not seen on {page.page.evaluate(f'{FOCUS}.outerHTML.slice(0, 200)')}"
            seen.add(stop)
    assert len(seen) == wanted


STEP = {"node": "encoder.0.self.products"}
OPEN = ".term-box:popover-open"


def shown(page: Page) -> list[str]:
    return page.locator(OPEN).all_inner_texts()


def term(page: Page, word: str) -> Locator:
    return page.locator("main .term-name", has_text=word).first


def test_pointing_or_the_focus_shows_the_definition_and_leaving_or_escape_hides_it(app: Open) -> None:
    """Its button is described by the definition also while that is hidden, and space is no step there.

    Axe finds nothing while it is open.
    """
    opened = app(CLASSIFIER, "step", **STEP)
    page = opened.page
    box, name = page.locator(OPEN), term(page, "query")
    assert page.locator(f"[id='{name.get_attribute('aria-describedby')}']").text_content() and shown(page) == []
    name.hover()
    assert shown(page)[0].startswith("query, key, value\nThree projections of token vectors.")
    box.hover()  # the box stays while the pointer is on it
    assert box.count() == 1
    page.keyboard.press("Escape")
    assert box.count() == 0
    name.hover()
    page.mouse.move(2, 2)
    expect(box).to_have_count(0)
    name.focus()
    assert len(shown(page)) == 1
    opened.press(" ", "Enter")
    assert len(shown(page)) == 1 and opened.param["node"] == STEP["node"]
    opened.press("Tab")
    assert all("Three projections" not in one for one in shown(page))
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # pyright: ignore[reportArgumentType]
        page.reload()
        term(page, "query").focus()
        assert len(shown(page)) == 1
        found = Axe().run(page).response["violations"]
        assert not found, [(scheme, one["id"], one["nodes"][0]["html"]) for one in found]
    page.emulate_media(color_scheme="null")


@pytest.mark.parametrize(
    ("model", "screen", "params", "terms"),
    [
        (TRANSLATOR, "step", {"node": "decoder.0.self.mask"}, {"token", "causal mask"}),
        (TRANSLATOR, "attention", {}, {"token"}),
        (CLASSIFIER, "step", {"node": "logits"}, {"Logits"}),
        (CLASSIFIER, "why", {}, {"quantity", "Comprehensiveness", "Sufficiency"}),
        (CLASSIFIER, "why", {"why": "parts"}, {"head", "feed-forward block", "log-probability"}),
    ],
)
def test_every_screen_has_its_terms(app: Open, model: str, screen: str, params: dict, terms: set) -> None:
    page = app(model, screen, **params)
    page.settle()
    found = page.texts("main .term-name")
    assert terms <= set(found), found
    if params.get("node") == "logits":
        assert "head" not in {one.lower() for one in page.texts("#step-title .term-name")}, "of attention"


def test_a_saved_page_has_them_and_a_phone_shows_them_whole(app: Open, saved: Callable[..., Path]) -> None:
    page = app(saved(explained(CLASSIFIER)), "step", options={"viewport": PHONE, "has_touch": True}, **STEP).page
    term(page, "query").tap()
    box = page.locator(OPEN).bounding_box()
    assert box and box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"]
    assert box["y"] >= 0 and box["y"] + box["height"] <= PHONE["height"]
    page.touchscreen.tap(5, PHONE["height"] - 5)
    assert shown(page) == []


def test_escape_closes_the_definition_before_the_tour(app: Open) -> None:
    page = app(TRANSLATOR).page
    page.keyboard.press("?")
    page.click("dialog [data-role=tour]")
    page.locator("aside .term-name").first.focus()
    for terms, tours in ((1, 1), (0, 1), (0, 0)):
        assert (len(shown(page)), page.locator("aside.tour").count()) == (terms, tours)
        page.keyboard.press("Escape")
