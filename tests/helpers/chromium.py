"""Where a browser for the tests of the page is, and how it is started."""

import shutil

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


def chromium() -> str | None:
    """Return the path of a browser on this machine."""
    return next(filter(None, map(shutil.which, CHROMIUM)), None)
