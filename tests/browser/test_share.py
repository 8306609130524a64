"""Share: a link that opens what is shown, and a saved page with its edits, its second text and its screen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page
from tests.browser.app import App, Watch
from tests.browser.models import MODELS, TEXTS, subject_of
from tests.explain.test_report import Page as SavedPage

from glassformer.explain.explanation import explain
from glassformer.explain.page import service
from glassformer.explain.page.saved_page import saved_page_html

CLASSIFIER = "classify, pre-norm"
EDIT = "encoder.0.self.scores[head:0;key:1]=blocked"
CLIPBOARD = {"permissions": ["clipboard-read", "clipboard-write"]}


def open_share(page: Page) -> str:
    page.click(".top-tools >> text=Share")
    return page.inner_text("dialog[open]")


def save(page: App, folder: Path) -> Path:
    """Save the page from the dialog; return where the browser put it."""
    with page.page.expect_download() as downloaded:
        page.page.click("[data-role=save-page]")
    path = folder / downloaded.value.suggested_filename
    downloaded.value.save_as(path)
    return path


def test_what_is_shown_is_saved(app: Callable[..., App], tmp_path: Path) -> None:
    """The text, its edits, the second text and the screen; without a network, under the file's own policy."""
    text, node = TEXTS["classify"], "encoder.1.self.weights"
    page = app(CLASSIFIER, "step", text=text, edits=EDIT, node=node, head=1, **{"o.text": "b c"})
    answer = page.page.inner_text("[data-role=answer]")
    offered = open_share(page.page)
    assert "this text, its edit and the second text of Compare" in offered
    path = save(page, tmp_path)
    assert path.suffix == ".html" and path.stat().st_size < 2_000_000
    page.until("() => /MB/.test(document.querySelector('[data-role=saved]').innerText)")

    saved = app(path, "step", node=node, head=1)  # as a link into the file
    assert saved.page.inner_text("[data-role=answer]") == answer
    saved.page.goto(path.as_uri())  # and the file alone, which begins where it was saved
    saved.ready("step")
    assert saved.page.inner_text("[data-role=answer]") == answer
    saved.page.wait_for_selector(f'figure[data-node="{node}"]')
    traces = SavedPage(path.read_text(encoding="utf-8")).data()["traces"]
    assert [one["request"]["text"] for one in traces] == [text, text, "b c"]
    assert [one["request"].get("edits", []) for one in traces] == [[], [EDIT], []]


@pytest.mark.parametrize("name", ["translate, pre-norm", "lm, pre-norm"])
def test_every_task_is_saved_as_the_command_saves_it(
    app: Callable[..., App], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(service, "SAVE_SECONDS", 0.0)  # so that no clock decides which attributions are in the file
    page = app(name)
    open_share(page.page)
    path = save(page, tmp_path)
    subject = subject_of(MODELS[name])
    page_html, _ = saved_page_html(explain(subject, TEXTS[subject.task.name]), seconds=0)
    page.page.click("[data-role=lacks] summary")
    assert "the weights of words" in page.page.inner_text("[data-role=lacks]"), "what is left out is said"
    assert abs(path.stat().st_size - len(page_html.encode())) < 2_000, "but for the address and the ids"
    saved = app(path)
    assert saved.page.inner_text("[data-role=answer]") == page.page.inner_text("[data-role=answer]")


def test_a_link_is_copied_and_opens_the_view(app: Callable[..., App]) -> None:
    page = app(CLASSIFIER, "why", options=CLIPBOARD, text="b a")
    assert "in this browser" in open_share(page.page)
    page.page.click("[data-role=copy-link]")
    page.until("() => document.querySelector('[data-role=copied]').innerText === 'Copied.'")
    link = page.page.evaluate("navigator.clipboard.readText()")
    assert link == page.page.url == page.page.input_value("dialog input")
    page.press("Escape")
    page.page.wait_for_selector("dialog", state="detached")
    page.page.goto("about:blank")
    page.page.goto(link)
    page.ready("why")
    assert page.param["text"] == "b a"


def test_without_a_clipboard_the_link_is_selected(app: Callable[..., App]) -> None:
    hidden = "Object.defineProperty(navigator, 'clipboard', {value: undefined})"
    page = app(CLASSIFIER, init_script=hidden)
    open_share(page.page)
    page.page.click("[data-role=copy-link]")
    page.until("() => /selected/.test(document.querySelector('[data-role=copied]').innerText)")
    assert page.page.evaluate("getSelection().toString()") == page.page.url


def test_a_saved_page_offers_what_it_can_do(app: Callable[..., App], tmp_path: Path) -> None:
    """A link, which holds where the file lies; no file of itself; in a frame, which has no address, neither."""
    path = tmp_path / "page.html"
    html, _ = saved_page_html(explain(subject_of(MODELS[CLASSIFIER]), TEXTS["classify"]), seconds=0)
    path.write_text(html, encoding="utf-8")
    page = app(path)
    assert "while the file lies where it is now" in open_share(page.page)
    assert page.page.locator("[data-role=save-page]").count() == 0
    assert page.page.locator("[data-role=copy-link]").count() == 1
    outer = tmp_path / "outer.html"
    outer.write_text('<iframe src="page.html" width="900" height="600"></iframe>', encoding="utf-8")
    page.page.goto(outer.as_uri())
    frame = page.page.frame_locator("iframe")
    frame.locator("[data-role=answer]").wait_for()
    assert frame.locator(".top-tools >> text=Keys").count() == 1
    assert frame.locator(".top-tools >> text=Share").count() == 0


def test_a_refused_file_is_said(app: Callable[..., App], watch: Watch) -> None:
    watch.expected = "507|Failed to load"
    page = app(CLASSIFIER)
    error = '{"error": {"kind": "ResourceError", "message": "memory ran out", "hint": "try a shorter text"}}'
    page.page.route("**/api/save", lambda route: route.fulfill(status=507, body=error))
    open_share(page.page)
    page.page.click("[data-role=save-page]")
    page.until("() => /memory ran out/.test(document.querySelector('[data-role=saved]').innerText)")
    assert page.page.is_enabled("[data-role=save-page]")


def test_why_says_which_token_it_opens_with(app: Callable[..., App]) -> None:
    """Only where no token was chosen, and never for a classifier, which has one prediction."""
    page = app("translate, pre-norm", "why")
    page.page.wait_for_selector("[data-role=rule]")
    assert "lowest probability" in page.page.inner_text("[data-role=rule]")
    page.go("why", position=1)
    page.page.wait_for_selector("[data-role=rule]", state="detached")
    assert app(CLASSIFIER, "why").page.locator("[data-role=rule]").count() == 0
