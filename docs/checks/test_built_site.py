"""The built site in a real browser, from disk: `make docs-check` runs these tests after `make docs`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, sync_playwright
from tests.browser.app import Watch
from tests.helpers.chromium import FLAGS, chromium

SITE = Path(__file__).parents[1] / "_build" / "html"
PAGES = sorted(path for path in SITE.rglob("*.html") if path.parent.name != "_modules")
LOOKS = {
    "light, wide": {"color_scheme": "light", "viewport": {"width": 1200, "height": 900}},
    "dark, narrow": {"color_scheme": "dark", "viewport": {"width": 390, "height": 844}},
}
AXE = {"resultTypes": ["violations"], "preload": False, "iframes": False}
"""Its preloading reads style sheets by XMLHttpRequest, which pages from disk may not. Frames are looked at alone."""
MOST_BYTES = 300_000
"""The most bytes of a chapter with its styles and scripts, without pictures."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = chromium()
    assert found, "no Chromium: make browser"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


def test_the_site_is_built() -> None:
    assert len(PAGES) > 30


@pytest.mark.parametrize("look", LOOKS)
def test_every_page_is_sound(browser: Browser, look: str) -> None:
    """No request leaves the disk, no error, nothing serious by axe, no sideways scrolling, no chapter too heavy.

    In the dark axe looks at the chapters, which have every kind of box there is.
    """
    context, watch, problems = browser.new_context(**LOOKS[look]), Watch(), []
    page = context.new_page()
    with watch.over(context):
        for path in PAGES:
            watch.requests.clear()
            page.goto(path.as_uri())
            page.wait_for_load_state("load")
            name = path.relative_to(SITE).as_posix()
            if (width := page.evaluate("document.documentElement.scrollWidth - innerWidth")) > 0:
                problems.append(f"{name}: {width} pixels too wide")
            looked_at = look == "light, wide" or path.parent.name == "book" or path.name == "index.html"
            for finding in Axe().run(page, options=AXE).response["violations"] if looked_at else []:
                if finding["impact"] in ("serious", "critical"):
                    where = [node["target"] for node in finding["nodes"]][:3]
                    problems.append(f"{name}: {finding['id']}: {where}")
            if name.startswith("book/") and (weight := weight_of(watch.requests)) > MOST_BYTES:
                problems.append(f"{name}: {weight:,} bytes")
    context.close()
    assert not watch.problems and not problems, "\n".join([*watch.problems, *problems])


def weight_of(requests: list[str]) -> int:
    """Return the bytes of what a page has read from disk, without pictures and frames."""
    paths = {Path(unquote(urlparse(url).path)) for url in requests if url.startswith("file:")}
    apart = [path for path in paths if path.suffix in (".png", ".svg") or path.parent.name in ("frames", "glassformer")]
    return sum(path.stat().st_size for path in paths.difference(apart))


def test_every_frame_s_check_is_green(browser: Browser) -> None:
    """Each framed step is computed again in the browser, fills its frame, and takes the theme of its page.

    Where an answer was learned there are two losses, and the numbers that the optimizer keeps.
    """
    page, found = browser.new_page(viewport={"width": 1200, "height": 900}, color_scheme="dark"), 0
    for path in sorted((SITE / "book").glob("*.html")):
        page.goto(path.as_uri())
        for frame in page.locator("iframe.step-frame").all():
            frame.scroll_into_view_if_needed()
            inside = frame.content_frame
            inside.locator("[data-state=ok], [data-state=bad], [data-state=unavailable]").first.wait_for()
            learned = inside.locator(".learn").count()
            if learned:
                inside.locator("[data-check-line]").first.wait_for()
            n_checks = 5 if learned else 1
            assert inside.locator("[data-state=ok]").count() == n_checks, f"{path.name}: {frame.get_attribute('title')}"
            # The theme comes as a message, which may be later than the numbers.
            inside.locator("html[data-theme=dark]").wait_for(state="attached")
            box, content = frame.bounding_box(), inside.locator("#app").bounding_box()
            assert box is not None and content is not None and box["height"] >= content["height"]
            found += 1
    page.close()
    assert found >= 10


def test_frames_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in (SITE / "book" / "frames").glob("*.html")}
    assert sizes and max(sizes.values()) <= 150_000, sizes


def test_every_chapter_is_offered_as_a_notebook_without_its_solution() -> None:
    notebooks = sorted((SITE / "book").glob("*.ipynb"))
    assert len(notebooks) >= 15
    for path in notebooks:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        text = "\n".join("".join(cell["source"]) for cell in cells)
        assert "<summary>Solution" not in text and "literalinclude" not in text and ".md)" not in text, path.name
        assert any(cell.get("outputs") for cell in cells), path.name
        assert f'href="{path.name}"' in path.with_suffix(".html").read_text(encoding="utf-8")


def test_search_finds_a_word(browser: Browser) -> None:
    page = browser.new_page()
    page.goto(f"{(SITE / 'search.html').as_uri()}?q=softmax")
    page.wait_for_selector("ul.search li a")
    assert page.locator("ul.search li a").count() >= 3
    page.close()


def test_links_lead_to_pages_and_headings() -> None:
    text = {path: path.read_text(encoding="utf-8") for path in PAGES}
    broken = []
    for path, page in text.items():
        for href in re.findall(r'<a [^>]*href="([^"]+)"', page):
            name, _, heading = unquote(href).partition("#")
            if re.match(r"https?:|mailto:", href):
                continue
            target = (path.parent / name).resolve() if name else path
            if not target.exists() or (heading and target in text and f'id="{heading}"' not in text[target]):
                broken.append(f"{path.relative_to(SITE)}: {href}")
    assert not broken, "\n".join(broken)


def test_cells_have_their_output() -> None:
    text = (SITE / "book" / "attention.html").read_text(encoding="utf-8")
    assert "the same numbers" in text and "currentColor" in text and "<math" in text
    assert "not yet: the function raises NotImplementedError" in text
