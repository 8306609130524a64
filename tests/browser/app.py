"""The page as a test drives it: opened at an address, waited for, and read back.

What is looked for are the page's `data-` attributes, which are a promise of the page; class names are not.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import numpy as np
from playwright.sync_api import BrowserContext, ConsoleMessage, Page, Request, Route, WebError

CELLS = """figures => figures.map(figure => ({
    node: figure.dataset.node, slice: figure.dataset.slice,
    cells: [...figure.querySelectorAll('table[role=grid] td[data-row]')].map(
        td => [+td.dataset.row, +td.dataset.col, td.dataset.value, td.textContent]),
}))"""


class Watch:
    """Collects what should not happen: requests to other machines, errors in the console."""

    def __init__(self) -> None:
        self.problems, self.requests = list[str](), list[str]()
        self.waiting = set[Request]()
        self.expected: str | None = None
        """A regular expression; console errors that match it are no problem."""

    @contextmanager
    def over(self, context: BrowserContext) -> Iterator[None]:
        """Looks at what a browser context does until it is left."""
        seen = {"request": self.request, "console": self.console, "weberror": self.error}
        seen |= {"requestfinished": self.answered, "requestfailed": self.answered}
        for event, look in seen.items():
            context.on(event, look)  # type: ignore[call-overload]
        try:
            yield
        finally:
            for event, look in seen.items():
                context.remove_listener(event, look)

    def add(self, problem: str) -> None:
        if self.expected is None or not re.search(self.expected, problem):
            self.problems.append(problem)

    def request(self, request: Request) -> None:
        self.requests.append(request.url)
        self.waiting.add(request)
        if not request.url.startswith(("http://127.0.0.1:", "data:", "blob:", "file:")):
            self.add(f"left this machine: {request.url}")

    def answered(self, request: Request) -> None:
        self.waiting.discard(request)

    def console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.add(f"console: {message.text} ({message.location.get('url', '')})")

    def error(self, error: WebError) -> None:
        self.add(f"uncaught: {error.error}")


class App:
    """One open page.

    Args:
        page: of a browser. base: its address, with the token of a server. watch: knows what the page waits for.
    """

    def __init__(self, page: Page, base: str, watch: Watch) -> None:
        self.page, (self.base, _, access), self.waiting = page, base.partition("#/flow?access="), watch.waiting
        self.access = {"access": access} if access else {}

    def open(self, screen: str = "flow", **params: object) -> App:
        """Load the page at a screen; parameters stand in the address as the page itself writes them."""
        self.page.goto(f"{self.base}{address(screen, params | self.access)}")
        self.ready(screen)
        self.access = {}  # the browser keeps it
        return self

    def go(self, screen: str, **params: object) -> App:
        """Go there without loading again, as a link inside the page would."""
        self.page.evaluate("hash => { location.hash = hash }", address(screen, params))
        self.ready(screen)
        return self

    def reload(self) -> None:
        self.page.reload()
        self.ready(self.screen or "")

    def ready(self, screen: str) -> None:
        """Wait until the screen stands and nothing is being traced."""
        self.page.wait_for_selector(f'main[data-screen="{screen}"][aria-busy="false"] [data-role="answer"]')

    @property
    def screen(self) -> str | None:
        return self.page.get_attribute("main", "data-screen")

    @property
    def param(self) -> dict[str, str]:
        """The parameters in the address."""
        return self.page.evaluate("Object.fromEntries(new URLSearchParams(location.hash.split('?')[1] ?? ''))")

    def until(self, holds: str, arg: object = None) -> None:
        """Wait until a JavaScript function of `arg` returns something true. Playwright's own way of waiting
        for a function evaluates a string, which the page's policy rightly forbids.
        """
        for began in itertools.repeat(time.monotonic()):
            if self.page.evaluate(holds, arg):
                return
            assert time.monotonic() - began < 60, f"in vain: {holds}"
            self.page.wait_for_timeout(8)

    def settle(self) -> None:
        """Wait until everything that was asked for has come, and nothing more is asked for thereupon."""
        quiet, began = 0, time.monotonic()
        while quiet < 6:  # the page begins to ask for some numbers only 30 ms after it shows them
            self.page.wait_for_timeout(8)
            busy = self.page.locator("[aria-busy=true], [data-state=pending]").count()
            quiet = 0 if busy or self.waiting else quiet + 1
            assert time.monotonic() - began < 60, f"still waiting for {[r.url for r in self.waiting]}"

    def check(self, node: str) -> str | None:
        """Open a step and wait for its check: ok, bad or unavailable."""
        found = self.page.wait_for_selector(f'[data-check="{node}"]:not([data-state="pending"])')
        return found.get_attribute("data-state") if found else None

    def agrees(self, *nodes: str, **params: object) -> None:
        """Go to steps; the page computes each as the model did."""
        for node in nodes:
            self.go("step", node=node, **params)
            assert self.check(node) == "ok", node

    def figures(self) -> list[dict[str, Any]]:
        """Every matrix on the screen, with the cells of its table: [row, column, full precision, text]."""
        return self.page.locator("main figure[data-node]").evaluate_all(CELLS)

    def cells(self) -> np.ndarray:
        """Every number of the tables of numbers on the screen."""
        return np.array([float(value) for figure in self.figures() for _, _, value, _ in figure["cells"]])

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def click(self, selector: str) -> None:
        self.page.click(selector)

    def wait(self, selector: str, **how: Any) -> None:
        self.page.wait_for_selector(selector, **how)

    def gone(self, selector: str) -> None:
        """Wait until nothing is found."""
        self.page.wait_for_selector(selector, state="detached")

    def count(self, selector: str) -> int:
        return self.page.locator(selector).count()

    def text(self, selector: str) -> str:
        return self.page.inner_text(selector)

    def texts(self, selector: str) -> list[str]:
        return self.page.locator(selector).all_inner_texts()

    def all(self, selector: str, of: str) -> list[Any]:
        """A JavaScript expression of `one` for each element that is found."""
        return self.page.locator(selector).evaluate_all(f"all => all.map(one => {of})")

    def value(self, selector: str) -> float:
        """The number that an element marks as what it shows."""
        self.wait(selector)
        return float(self.page.locator(selector).first.get_attribute("data-value") or "nan")

    def trace(self, text: str) -> None:
        """Type a text and trace it."""
        self.page.fill("[data-role=text]", text)
        self.click("[data-role=trace]")
        self.until("text => new URLSearchParams(location.hash.split('?')[1]).get('text') === text", text)
        self.ready(self.screen or "")

    def forge(self, node: str, change: Callable[[np.ndarray], None]) -> None:
        """From now on let the server's numbers of a tensor come changed."""

        def forged(route: Route) -> None:
            answer = route.fetch()
            assert answer.headers["x-dtype"] == "f32"
            values = np.frombuffer(answer.body(), "<f4").copy()
            change(values)
            route.fulfill(response=answer, body=values.tobytes())

        self.page.route(re.compile(rf"/t/{re.escape(node)}(\?|$)"), forged)


Open = Callable[..., App]
"""Opens the page of a model: `app("lm, pre-norm", "step", text="abc")`."""


class Held:
    """Keeps back the answers to some requests of a page until they are let go."""

    def __init__(self, app: App, *patterns: str) -> None:
        self.app, self.kept = app, list[Route]()
        for pattern in patterns:
            app.page.route(pattern, lambda route: self.kept.append(route))

    def wait(self) -> None:
        """Until something was asked for, and nothing more is."""
        known = -1
        for _ in range(60):
            if self.kept and known == len(self.kept):
                return
            known = len(self.kept)
            self.app.page.wait_for_timeout(150)
        raise AssertionError(f"after 9 seconds {len(self.kept)} requests were kept back")

    def let_go(self) -> None:
        for route in self.kept:  # also what comes meanwhile
            route.continue_()
        self.app.page.unroute_all()
        self.app.settle()


def address(screen: str, params: dict[str, object]) -> str:
    """#/screen?… as the page writes it."""
    query = urlencode({name: str(value) for name, value in params.items() if value is not None})
    return f"#/{screen}" + (f"?{query}" if query else "")
