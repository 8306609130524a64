"""A real browser for the page: one Chromium for this folder, tiny models behind real servers, and a watch.

The watch fails a test on any request that leaves this machine and on any error in the page's console, unless
the test said that it expects one. Windows are opened once and handed from test to test, empty: a new one costs
Chromium more than most tests do.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright
from tests.browser.app import App, Watch
from tests.browser.models import MODELS, TEXTS, subject_of

from glassformer.explain.page.server import PageServer
from glassformer.explain.subject import Subject

CHROMIUM = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
"""The build without windows first: it takes a fifth less processor time."""
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-sync",
    "--disable-component-update",
    "--disable-features=BackForwardCache,PaintHolding,Translate",  # no pages kept that were left
    "--disable-site-isolation-trials",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
DESKTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Of this folder only: Playwright keeps an event loop running, which other tests could trip over."""
    found = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if found is None:
        missing = f"none of {', '.join(CHROMIUM)} is installed: make browser"
        pytest.fail(missing) if os.environ.get("CI") == "true" else pytest.skip(missing)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def address() -> Iterator[Callable[[str | Subject], str]]:
    """Where the page of a model can be opened, once: one of `MODELS` by name, or any other."""
    with ExitStack() as stack:
        known: dict[str | int, PageServer] = {}
        kept: list[Subject] = []  # so that no other object is given the same id

        def serve(model: str | Subject) -> str:
            key = model if isinstance(model, str) else id(model)
            if key not in known:
                subject = subject_of(MODELS[model]) if isinstance(model, str) else model
                kept.append(subject)
                start = [{"text": TEXTS[subject.task.name]}]
                known[key] = stack.enter_context(PageServer(subject, port=0, start=start))
            return known[key].address()

        yield serve


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


@pytest.fixture(scope="package")
def windows(browser: Browser) -> Iterator[Windows]:
    windows = Windows(browser)
    yield windows
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
