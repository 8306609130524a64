"""A real browser for the page: one Chromium for this folder, tiny models behind real servers, and a watch.

The watch fails a test on any request that leaves this machine and on any error in the page's console, unless
the test said that it expects one. Windows are opened once and handed from test to test, empty: a new one costs
Chromium more than most tests do.
"""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
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
        known = dict[str | Subject, PageServer]()

        def serve(model: str | Subject) -> str:
            if isinstance(model, str) and model not in MODELS:
                return model
            if model not in known:
                subject = subject_of(MODELS[model]) if isinstance(model, str) else model
                start, before = [{"text": TEXTS[subject.task.name]}], leftovers.living()
                known[model] = stack.enter_context(PageServer(subject, port=0, start=start))
                leftovers.SHARED.update(leftovers.opened_since(before))
            return known[model].address

        yield serve
        for page in known.values():
            page.stop()  # all at once, as each waits for its connections


LOOPS: list[asyncio.AbstractEventLoop] = []
"""The loop in which Playwright computes, once it has started."""


@pytest.fixture(autouse=True)
def _loop_of_playwright() -> Iterator[None]:
    """Between two tests of the page no loop runs: Playwright's would forbid other tests theirs (`asyncio.run`)."""
    asyncio._set_running_loop(LOOPS[-1] if LOOPS else None)
    yield
    asyncio._set_running_loop(None)


@pytest.fixture
def watch() -> Iterator[Watch]:
    watch = Watch()
    yield watch
    assert not watch.problems, "\n".join(watch.problems)


FREE = defaultdict[str, list[Page]](list)
"""Empty pages by their options and initial script, which stays in a page for good; each has its own storage."""


@contextmanager
def window_of(browser: Browser, watch: Watch, init_script: str = "", **options: Any) -> Iterator[Page]:
    """An empty page that is watched until it is given back."""
    free = FREE[repr([sorted(options.items()), init_script])]
    if not free:
        context = browser.new_context(**({"viewport": DESKTOP, "reduced_motion": "reduce"} | options))
        context.set_default_timeout(60_000)  # a slow machine is no failure
        context.add_init_script(init_script or " ")
        free.append(context.new_page())
    page = free.pop()
    with watch.over(page.context):
        yield page
        page.unroute_all(behavior="ignoreErrors")
        page.evaluate("() => { try { localStorage.clear(); sessionStorage.clear(); } catch {} }")
        page.goto("about:blank")
        free.append(page)


@pytest.fixture
def window(browser: Browser, watch: Watch) -> Iterator[Callable[..., Page]]:
    """Opens an empty page: `window(viewport=PHONE, color_scheme="dark")`."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(window_of(browser, watch, **options))


@pytest.fixture
def app(window: Callable[..., Page], watch: Watch, address: Callable[[str | Subject], str]) -> Callable[..., App]:
    """Opens the page of a model: `app("lm, pre-norm", "step", text="abc")`, of a file or at an address."""

    def open_app(model: str | Subject | Path, screen: str = "flow", *, options: Any = None, **params: object) -> App:
        base = model.as_uri() if isinstance(model, Path) else address(model)
        return App(window(**(options or {})), base, watch).open(screen, **params)

    return open_app


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., Path]:
    """Saves the page of an explanation: `saved(explanation, seconds=0)`; no clock decides what is in it."""

    def save(explanation: Explanation, *, seconds: float = 1000) -> Path:
        path = tmp_path / "saved.html"
        path.write_text(saved_page_html(explanation, seconds=seconds)[0], encoding="utf-8")
        return path

    return save
