"""A real browser for the page: one Chromium for this folder, tiny models behind real servers, and a watch.

The watch fails a test on any request that leaves this machine and on any error in the page's console, unless
the test said that it expects one. Windows are opened once and handed from test to test, empty: a new one costs
Chromium more than most tests do.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright
from tests.browser.app import App, Watch
from tests.browser.models import MODELS, TEXTS, subject_of
from tests.helpers import leftovers
from tests.helpers.chromium import CHROMIUM, FLAGS, chromium

from glassformer.explain.explanation import Explanation
from glassformer.explain.page.saved_page import saved_page_html
from glassformer.explain.page.server import PageServer
from glassformer.explain.subject import Subject

DESKTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One for all tests here of a process; its event loop is hidden between them."""
    if (found := chromium()) is None:
        missing = f"none of {', '.join(CHROMIUM)} is installed: make browser"
        pytest.fail(missing) if os.environ.get("CI") == "true" else pytest.skip(missing)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        LOOPS.extend(filter(None, [asyncio._get_running_loop()]))
        asyncio._set_running_loop(None)
        yield browser
        asyncio._set_running_loop(LOOPS[-1])
        browser.close()
    asyncio._set_running_loop(None)


@pytest.fixture(scope="session")
def address() -> Iterator[Callable[[str | Subject], str]]:
    """Where the page of a model can be opened: one of `MODELS` by name, or any other."""
    with ExitStack() as stack:
        known: dict[str | int, PageServer] = {}
        kept: list[Subject] = []  # so that no other object is given the same id

        def serve(model: str | Subject) -> str:
            key = model if isinstance(model, str) else id(model)
            if key not in known:
                subject = subject_of(MODELS[model]) if isinstance(model, str) else model
                kept.append(subject)
                start, before = [{"text": TEXTS[subject.task.name]}], leftovers.living()
                known[key] = stack.enter_context(PageServer(subject, port=0, start=start))
                leftovers.SHARED.update(leftovers.opened_since(before))
            return known[key].address

        yield serve


LOOPS: list[asyncio.AbstractEventLoop] = []
"""The loop in which Playwright computes, once it has started."""


@contextmanager
def running(loop: asyncio.AbstractEventLoop | None) -> Iterator[None]:
    asyncio._set_running_loop(loop)
    yield
    asyncio._set_running_loop(None)


@pytest.fixture(autouse=True)
def _loop_of_playwright() -> Iterator[None]:
    """Between two tests of the page no loop runs: Playwright's would forbid other tests theirs (`asyncio.run`)."""
    with running(LOOPS[-1] if LOOPS else None):
        yield


@pytest.fixture
def watch() -> Iterator[Watch]:
    watch = Watch()
    yield watch
    assert not watch.problems, "\n".join(watch.problems)


@pytest.fixture
def context(browser: Browser, watch: Watch) -> Iterator[Callable[..., BrowserContext]]:
    """Makes watched browser contexts of the test's own: `context(viewport=PHONE, color_scheme="dark")`."""
    with ExitStack() as stack:

        def make(**options: Any) -> BrowserContext:
            made = new_context(browser, options)
            stack.callback(made.close)
            stack.enter_context(watch.over(made))
            return made

        yield make


@pytest.fixture(scope="session")
def windows(browser: Browser) -> Iterator[Windows]:
    windows = Windows(browser)
    yield windows
    with running(LOOPS[-1]):
        windows.close()


@pytest.fixture
def app(windows: Windows, watch: Watch, address: Callable[[str | Subject], str]) -> Iterator[Callable[..., App]]:
    """Opens the page of a model: `app("lm, pre-norm", "#/step", text="abc")`."""
    with ExitStack() as stack:

        def open_app(
            model: str | Subject | Path,
            screen: str = "flow",
            *,
            options: Any = None,
            init_script: str = "",
            **params: object,
        ) -> App:
            page = stack.enter_context(windows.open_page(watch, options or {}, init_script))
            base = model.as_uri() if isinstance(model, Path) else address(model)
            return stack.enter_context(App(page, base)).open(screen, **params)

        yield open_app


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., Path]:
    """Saves the page of an explanation: `saved(explanation, seconds=0)`; no clock decides what is in it."""

    def save(explanation: Explanation, *, seconds: float = 1000, **more: Any) -> Path:
        path = tmp_path / "saved.html"
        path.write_text(saved_page_html(explanation, seconds=seconds, **more)[0], encoding="utf-8")
        return path

    return save


def new_context(browser: Browser, options: dict[str, Any]) -> BrowserContext:
    context = browser.new_context(**({"viewport": DESKTOP, "reduced_motion": "reduce"} | options))
    context.set_default_timeout(60_000)  # a slow machine is no failure
    return context


class Windows:
    """Empty pages of a browser, by their options and initial script; each has its own context and so its own storage.

    An initial script stays in a page for good, so a page that has one is reused only for tests with the same script.
    """

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.free: dict[str, list[Page]] = {}

    @contextmanager
    def open_page(self, watch: Watch, options: dict[str, Any], init_script: str) -> Iterator[Page]:
        free = self.free.setdefault(repr([sorted(options.items()), init_script]), [])
        page = free.pop() if free else self._new_page(options, init_script)
        with watch.over(page.context):
            yield page
            page.unroute_all(behavior="ignoreErrors")
            page.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
            page.goto("about:blank")
            free.append(page)

    def _new_page(self, options: dict[str, Any], init_script: str) -> Page:
        page = new_context(self.browser, options).new_page()
        if init_script:
            page.add_init_script(init_script)
        return page

    def close(self) -> None:
        for page in [page for pages in self.free.values() for page in pages]:
            page.context.close()
