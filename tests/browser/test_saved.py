"""The saved page, from a disk, by "Share" and in a frame: it shows what the live page shows, and asks nobody."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page
from step_frame import LEARN_ADDRESS, learn_frame_html, step_address, step_frame_html
from tests.browser.app import App, Open, Watch
from tests.browser.models import ANSWERS, CLASSIFIER, MODELS, SCREENS, TEXTS, WRITER, explained
from tests.explain.test_report import Page as SavedPage

from glassformer.explain.attribution import AttributeRequest, erase
from glassformer.explain.page import service
from glassformer.explain.page.saved_page import WHOLE, asset

EDIT = "encoder.0.self.scores[head:0;key:1]=blocked"
OUTER = """<!doctype html><title>outer</title><body><iframe src="frame.html{}"></iframe><script>
addEventListener("message", ({{ data, source }}) => {{
  document.body.dataset.height = data.glassformer.height;
  source.postMessage({{ glassformer: {{ theme: "dark" }} }}, "*");
}});
</script></body>"""


@pytest.mark.parametrize("name", [CLASSIFIER, "translate, post-norm"])
def test_a_saved_page_matches_the_live_one(app: Open, watch: Watch, saved: Callable[..., Path], name: str) -> None:
    text, short = TEXTS[MODELS[name][0]][:13], {"max_new_tokens": 3}
    explanation = explained(name, text, decode=short)
    file = saved(explanation)
    live, page = app(name, "step", text=text, **short), app(file, "step")
    n_live = len(watch.requests)
    assert page.page.input_value("[data-role=text]") == text
    assert page.text("[data-role=answer]") == live.text("[data-role=answer]")
    for node in [id for id in explanation.records if not id.endswith("logits")][::5]:
        for one, params in ((live, {"text": text} | short), (page, {})):
            one.agrees(node, **params)
            one.wait(f'figure[data-node="{node}"] td[data-row]')
        [shown], [expected] = page.figures(), live.figures()
        assert shown["slice"] == expected["slice"]
        assert [cell[:2] for cell in shown["cells"]] == [cell[:2] for cell in expected["cells"]]
        assert page.cells() == pytest.approx(live.cells(), rel=1e-3, abs=1e-4), node
    for screen in SCREENS[:6]:
        page.go(screen)
        page.settle()
    after = [url for url in watch.requests[n_live:] if not url.startswith(("http://127.0.0.1", "data:", "blob:"))]
    assert {url.split("#")[0] for url in after} <= {file.as_uri()}


def test_a_saved_page_offers_what_it_can_do(app: Open, saved: Callable[..., Path], tmp_path: Path) -> None:
    """A word alone is erased, but no two; a link holds where the file lies; in a frame, which has no address, none."""
    e = explained(CLASSIFIER, "a good b")
    page = app(saved(e), "why")
    assert page.count("[data-role=trace]") == 0, "no button that could not work"
    page.click("[data-word='1']")  # every word erased alone is in the file
    page.until("() => document.querySelector('[data-role=probability]').textContent.includes('was')")
    erased = erase(e, AttributeRequest(erase={"text": [1]})).prediction.top
    expected = next(c.log_prob for c in erased if c.id == e.predictions[0].top[0].id)
    assert page.value("[data-role=probability]") == pytest.approx(math.exp(expected))
    page.click("[data-word='0']")  # two words together are not
    page.wait("[role=alert]")
    assert "while the file lies where it is now" in open_share(page.page)
    assert page.count("[data-role=save-page]") == 0 and page.count("[data-role=copy-link]") == 1
    outer = tmp_path / "outer.html"
    outer.write_text('<iframe src="saved.html" width="900" height="600"></iframe>', encoding="utf-8")
    page.page.goto(outer.as_uri())
    frame = page.page.frame_locator("iframe")
    frame.locator("[data-role=answer]").wait_for()
    assert frame.locator(".top-tools >> text=Keys").count() == 1
    assert frame.locator(".top-tools >> text=Share").count() == 0


def open_share(page: Page) -> str:
    page.click(".top-tools >> text=Share")
    return page.inner_text("dialog[open]")


def save(page: App, folder: Path) -> Path:
    """Save the page from the dialog; return where the browser put it."""
    with page.page.expect_download() as downloaded:
        page.click("[data-role=save-page]")
    path = folder / downloaded.value.suggested_filename
    downloaded.value.save_as(path)
    return path


def test_what_is_shown_is_saved(app: Open, tmp_path: Path) -> None:
    """The text, its edits, the second text and the screen; without a network, under the file's own policy."""
    text, node = TEXTS["classify"], "encoder.1.self.weights"
    page = app(CLASSIFIER, "step", text=text, edits=EDIT, node=node, head=1, **{"o.text": "b c"})
    answer = page.text("[data-role=answer]")
    assert "this text, its edit and the second text of Compare" in open_share(page.page)
    path = save(page, tmp_path)
    assert path.suffix == ".html" and path.stat().st_size < 2_000_000
    page.until("() => /MB/.test(document.querySelector('[data-role=saved]').innerText)")

    kept = app(path, "step", node=node, head=1)  # as a link into the file
    assert kept.text("[data-role=answer]") == answer
    kept.page.goto(path.as_uri())  # and the file alone, which begins where it was saved
    kept.ready("step")
    assert kept.text("[data-role=answer]") == answer
    kept.wait(f'figure[data-node="{node}"]')
    requests = [one["request"] for one in SavedPage(path.read_text(encoding="utf-8")).data()["traces"]]
    assert [(one["text"], one.get("edits", [])) for one in requests] == [(text, []), (text, [EDIT]), ("b c", [])]


def test_what_a_file_lacks_is_written_and_a_refused_one_too(
    app: Open, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "SAVE_SECONDS", 0.0)  # so that no clock decides which attributions are in the file
    page = app(WRITER)
    open_share(page.page)
    page.click("[data-role=save-page]")
    page.click("[data-role=lacks] summary")
    assert "the weights of words" in page.text("[data-role=lacks]")
    watch.expected = "507|Failed to load"
    error = '{"error": {"kind": "ResourceError", "message": "memory ran out", "hint": "try a shorter text"}}'
    page.page.route("**/api/save", lambda route: route.fulfill(status=507, body=error))
    page.click("[data-role=save-page]")
    page.until("() => /memory ran out/.test(document.querySelector('[data-role=saved]').innerText)")
    assert page.page.is_enabled("[data-role=save-page]")


def test_a_link_is_copied_and_opens_the_view(app: Open) -> None:
    page = app(CLASSIFIER, "why", options={"permissions": ["clipboard-read", "clipboard-write"]}, text="b a")
    assert "in this browser" in open_share(page.page)
    page.click("[data-role=copy-link]")
    page.until("() => document.querySelector('[data-role=copied]').innerText === 'Copied.'")
    link = page.page.evaluate("navigator.clipboard.readText()")
    assert link == page.page.url == page.page.input_value("dialog input") and "token" not in link
    page.press("Escape")
    page.gone("dialog")
    page.page.goto("about:blank")
    page.page.goto(link)
    page.ready("why")
    assert page.param["text"] == "b a"
    # Without a clipboard it is selected.
    page = app(CLASSIFIER, options={"init_script": "Object.defineProperty(navigator, 'clipboard', {value: undefined})"})
    open_share(page.page)
    page.click("[data-role=copy-link]")
    page.until("() => /selected/.test(document.querySelector('[data-role=copied]').innerText)")
    assert page.page.evaluate("getSelection().toString()") == page.page.url


def framed(window: Callable[..., Page], folder: Path, html: str) -> Page:
    """A window, and a folder with a page for a frame and what that loads."""
    (folder / "frame.html").write_text(html, encoding="utf-8")
    for name in (WHOLE, "app.css"):
        (folder / name).write_text(asset(name), encoding="utf-8")
    return window()


def test_a_framed_step_is_alone_checked_and_sends_its_height(window: Callable[..., Page], tmp_path: Path) -> None:
    ids = ["encoder.0.self.scores", "encoder.0.self.weights"]
    html = step_frame_html(explained(CLASSIFIER), ids, ".")
    page = framed(window, tmp_path, html)
    outer = tmp_path / "outer.html"
    outer.write_text(OUTER.format(step_address(ids[1], head=1)), encoding="utf-8")
    page.goto(outer.as_uri())
    inside = page.frame_locator("iframe")
    inside.locator(f"[data-check='{ids[1]}'][data-state=ok]").wait_for()
    assert inside.locator("header, form, nav, [data-role=answer], .step-list").count() == 0
    inside.locator("html[data-theme=dark]").wait_for()
    assert float(page.get_attribute("body", "data-height") or 0) > 100
    inside.locator("body").press("1")  # no other screen
    assert inside.locator("main").get_attribute("data-screen") == "step"
    inside.get_by_role("button", name="Previous").click()
    inside.locator(f"[data-check='{ids[0]}'][data-state=ok]").wait_for()


def test_a_frame_of_what_was_learned_recomputes_its_loss_and_its_update(
    window: Callable[..., Page], tmp_path: Path
) -> None:
    e = explained(CLASSIFIER, answer=ANSWERS["classify"], learn_steps=2)
    html = learn_frame_html(e, ["head.weight"], ".")
    page = framed(window, tmp_path, html)
    page.goto(f"{(tmp_path / 'frame.html').as_uri()}{LEARN_ADDRESS}")
    losses = [f"[data-role=mean-{when}] [data-check=loss]" for when in ("before", "after")]
    for found in [*losses, "[data-check-line='θ after']"]:
        page.locator(f"{found}[data-state=ok]").wait_for()
    assert page.locator("[data-state=bad], header, form, nav, [data-role=answer]").count() == 0
    assert page.locator("main :is(a, button.link)").filter(visible=True).count() == 0, "none leads to what is not there"
    page.locator("body").press("2")  # no other screen
    assert page.locator("main").get_attribute("data-screen") == "learn"
    page.locator("[data-role=update] input").last.fill("3")
    page.locator("[data-role=update-lines][data-state=ready]").wait_for()
    page.locator("[data-check-line='θ after'][data-state=ok]").wait_for()
    assert page.locator("[data-state=bad]").count() == 0
