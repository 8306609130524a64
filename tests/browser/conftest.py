"""A real browser for the page: one Chromium for this folder, tiny models behind real servers, and a watch.

The watch fails a test on any request that leaves this machine and on any error in the page's console, unless
the test said that it expects one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, sync_playwright
from tests.browser.app import App, Watch
from tests.browser.models import MODELS, TEXTS, subject_of

from glassformer.explain.checkpoints import Subject
from glassformer.explain.page.server import PageServer

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync",
    "--disable-component-update", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]  # fmt: skip
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
    """Where the page of a model is served: one of `MODELS` by name, or any other."""
    with ExitStack() as stack:
        known: dict[str | int, str] = {}
        kept: list[Subject] = []  # so that no other object is given the same id

        def serve(model: str | Subject) -> str:
            key = model if isinstance(model, str) else id(model)
            if key not in known:
                subject = subject_of(MODELS[model]) if isinstance(model, str) else model
                kept.append(subject)
                start = [{"text": TEXTS[subject.task.name]}]
                server = stack.enter_context(PageServer(subject, port=0, start=start))
                known[key] = server.address
            return known[key]

        yield serve


@pytest.fixture
def watch() -> Iterator[Watch]:
    watch = Watch()
    yield watch
    assert not watch.problems, "\n".join(watch.problems)


@pytest.fixture
def context(browser: Browser, watch: Watch) -> Iterator[Callable[..., BrowserContext]]:
    """Makes watched browser contexts: `context(viewport=PHONE, color_scheme="dark")`."""
    with ExitStack() as stack:

        def make(**options: Any) -> BrowserContext:
            made = browser.new_context(**({"viewport": DESKTOP, "reduced_motion": "reduce"} | options))
            stack.callback(made.close)
            made.set_default_timeout(10_000)
            made.on("request", watch.request)
            made.on("console", watch.console)
            made.on("weberror", lambda error: watch.add(f"uncaught: {error.error}"))
            return made

        yield make


@pytest.fixture
def app(
    context: Callable[..., BrowserContext], address: Callable[[str | Subject], str]
) -> Callable[..., App]:
    """Opens the page of a model: `app("lm, pre-norm", "#/step", text="abc")`."""

    def open_app(
        model: str | Subject | Path, screen: str = "flow", *, options: Any = None, **params: object
    ) -> App:
        page = context(**(options or {})).new_page()
        base = model.as_uri() if isinstance(model, Path) else address(model)
        return App(page, base).open(screen, **params)

    return open_app
