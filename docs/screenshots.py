"""Take the pictures in docs/images: all eight screens of the page for three runs, on a desk and on a phone.

    python docs/screenshots.py runs/imdb runs/ende runs/bard runs/demo

The runs are those of the recipes imdb, multi30k-en-de, shakespeare and dates; of the last, only a head that forms.
`make screenshots` trains them first. It needs Chromium and the test extras.
"""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

import glassformer
from glassformer.explain.page.server import PageServer

IMAGES = Path(__file__).parent / "images"
SIZES = {"desk": (1440, 900), "phone": (390, 844)}
TEXTS = {
    "classify": "This film was a complete waste of time, but the music was wonderful.",
    "translate": "Two dogs are playing in the snow.",
    "lm": "ROMEO:\n",
}
OTHER = {
    "classify": "This film was a complete waste of time, and the music was terrible.",
    "translate": "Two cats are playing in the snow.",
    "lm": "JULIET:\n",
}
STEP = {"classify": "encoder.0.self.weights", "translate": "decoder.1.cross.weights", "lm": "decoder.1.self.weights"}
ANSWERS = {
    "classify": "pos",
    "translate": "Zwei kleine Hunde spielen im Schnee.",
    "lm": "But, soft! what light through yonder window breaks?",
}
"""What each run learns of its text, in `STEPS` steps."""
STEPS = 5
NO_TOUR = "localStorage.setItem('glassformer-tour', '1')"
"""The pictures are without the offer of the tour, which is answered here."""
SCREENS = ("flow", "step", "attention", "decode", "why", "compare", "learn", "training")
DONE = {
    "learn": "document.querySelector('[data-role=mean-after]') && document.querySelector('[data-check-line]')",
    "training": """document.querySelector('[data-probe]') && !document.querySelector('[aria-busy=true]')
        && [...document.querySelectorAll('.spark')].every(one => /at ([0-9]+) of \\1 /.test(one.ariaLabel))""",
}
"""What holds once the slower screens show all: steps are taken, and each snapshot has answered each text."""


def shots(browser: Browser, run: Any, name: str) -> None:
    """Take every screen of one run in both sizes."""
    task = run.task.name
    with PageServer(run, start=[{"text": TEXTS[task]}, {"text": OTHER[task]}]) as server:
        for size, (width, height) in SIZES.items():
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme="light")
            page.add_init_script(NO_TOUR)
            page.goto(server.address())
            page.wait_for_selector("[data-role=answer]")
            for screen in SCREENS:
                page.evaluate("where => { location.hash = where }", address_of(screen, task))
                page.wait_for_selector(f"main[data-screen={screen}]")
                wait_for(page, DONE.get(screen, "true"))
                settle(page)
                save(page.screenshot(), IMAGES / f"{name}-{screen}-{size}.png")
            page.close()


def address_of(screen: str, task: str) -> str:
    """Return the address of a screen, with what it shows besides the text."""
    more: dict[str, Any] = {}
    if screen == "step":
        more = {"node": STEP[task], "cell": "2,2"}
    elif screen == "learn":
        more = {"text": TEXTS[task], "answer": ANSWERS[task], "learn_steps": STEPS}
    return f"#/{screen}?{urlencode(more)}" if more else f"#/{screen}"


def head_forming(browser: Browser, run: Any) -> None:
    """Take one cross-attention head through training, by the snapshots of a run."""
    with PageServer(run, start=[{"text": "[fr_FR] lundi 3 mars 2031"}]) as server:
        page = browser.new_page(viewport={"width": 1440, "height": 900}, color_scheme="light")
        page.add_init_script(NO_TOUR)
        page.goto(server.address())
        page.wait_for_selector("[data-role=answer]")
        page.click("a[data-nav=compare]")
        page.get_by_text("Two checkpoints").first.click()
        settle(page)
        save(page.screenshot(), IMAGES / "demo-checkpoints-desk.png")
        page.close()


def wait_for(page: Page, holds: str) -> None:
    """Wait up to ten minutes until an expression holds; the page's policy refuses Playwright's `wait_for_function`."""
    for _ in range(3000):
        if page.evaluate(holds):
            return
        page.wait_for_timeout(200)
    sys.exit(f"{page.url} never shows all: {page.inner_text('main')[:500]}")


def settle(page: Page) -> None:
    """Wait until nothing is being fetched or computed any more."""
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(1500)
    page.wait_for_load_state("networkidle")


def save(data: bytes, path: Path) -> None:
    """Write a PNG of 256 colours, a third of the size.

    The colours are chosen so that none is far from its own: others would turn the darkest cells, of which there are
    few, into those of another scale.
    """
    picture = Image.open(io.BytesIO(data)).convert("RGB")
    picture.quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, optimize=True)
    print(path)


def main(folders: list[str]) -> None:
    """Take the pictures of runs in the order imdb, translation, Shakespeare, dates."""
    IMAGES.mkdir(exist_ok=True)
    names = ("chromium", "chromium-headless-shell", "google-chrome")
    chromium = next(filter(None, map(shutil.which, names)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for folder, name in zip(folders[:3], ("imdb", "ende", "bard"), strict=True):
            shots(browser, glassformer.load(folder), name)
        head_forming(browser, glassformer.load(folders[3]))
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
