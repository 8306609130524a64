"""The screen Training: a training watched from its first step to its stop, a finished run, and what may go wrong."""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page
from tests.browser.app import Watch
from tests.browser.conftest import window_of
from tests.helpers.forking import Command
from tests.helpers.small_runs import FLAGS, SMALL, command, write_table

from glassformer.api import Run, train
from glassformer.explain.page.saved_page import replay_html
from glassformer.explain.page.server import PageServer
from glassformer.explain.watch import Training
from glassformer.runs.folder import RunFolder

Show = Callable[..., Page]
PHONE = {"viewport": {"width": 360, "height": 780}, "color_scheme": "dark"}
STATE = "document.querySelector('[data-role=training-state]')?.dataset.state"
STEP = "+document.querySelector('[data-role=training-step]')?.dataset.step"
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/#/training\?access=\S+")
NEWEST = "[data-probe][data-snapshot=model]"


def until(page: Page, holds: str) -> None:
    """Wait until a JavaScript expression is true."""
    deadline = time.monotonic() + 60
    while not page.evaluate(holds):
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # it asks again at once
        assert time.monotonic() < deadline, f"in vain: {holds}; {page.inner_text('main')[:300]}"
        page.wait_for_timeout(8)


@pytest.fixture
def show(browser: Browser, watch: Watch) -> Iterator[Show]:
    """Opens the page of a followed run, of an address or a file; pages are left before their servers end."""
    with ExitStack() as stack:

        def open_page(what: Path | str, **options: object) -> Page:
            if isinstance(what, Path):
                what = stack.enter_context(PageServer(Training(what), port=0)).address
            page = stack.enter_context(window_of(browser, watch, **options))
            page.goto(what)
            page.wait_for_selector("main[data-screen=training] [data-role=training]")
            return page

        yield open_page


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("watched")
    settings = {"epochs": None, "steps": 40, "snapshots": True, "threads": 1, "validate_every": 2}
    return train("classify", out=folder / "run", train_file=str(write_table(folder)), **SMALL, **settings)


@contextmanager
def watched_training(folder: Path) -> Iterator[tuple[Command, str]]:
    """A training with --watch in a process, and the address that it prints."""
    flags = ["--steps", "1000000", "--epochs", "1000000", "--threads", "1", *FLAGS]
    table = ["--train-file", str(write_table(folder)), "--out", str(folder / "run")]
    process = command(folder / "output", "train", "classify", *table, "--watch", "--no-browser", *flags)
    try:
        process.until(lambda: ADDRESS.search(process.text()))
        yield process, ADDRESS.findall(process.text())[0]
    finally:
        process.process.kill()
        process.process.join()


@pytest.mark.skipif(sys.platform == "win32", reason="processes end by signals")
def test_a_training_is_watched_paused_stepped_and_stopped(show: Show, tmp_path: Path, watch: Watch) -> None:
    """By two watchers, a page and one in Python, of which each sees what the other asks for."""
    watch.expected = "Failed to load resource|ERR_"  # its server ends with the training
    run = tmp_path / "run"
    with watched_training(tmp_path) as (process, address):
        page = show(address)
        until(page, f"{STATE} === 'running' && {STEP} > 0")
        page.wait_for_selector("[data-probe][data-snapshot]")  # --watch keeps snapshots
        page.click("[data-control=pause]")
        until(page, f"{STATE} === 'paused'")
        other, began = Training(run, may_write=True), page.evaluate(STEP)
        for n, step in enumerate((lambda: page.click("[data-control=step]"), lambda: other.request("step")), start=1):
            step()
            until(page, f"{STATE} === 'paused' && {STEP} === {began + n}")
            now = other.now()
            assert (now["state"], now["step"]) == ("paused", began + n)
        assert page.inner_text("[data-role=training-said]").startswith("Training paused")
        other.request("continue")
        until(page, f"{STATE} === 'running' && {STEP} > {began + 2}")
        page.click("[data-control=ask-stop]")
        assert process.returncode is None, "a first click stops nothing"
        page.click("[data-control=stop]")
        code, output = process.wait(60)
        assert code == 0 and "before its budget was used" in output, output
        assert other.now()["state"] == "finished"
        until(page, "document.querySelector('[data-role=training-lost]') !== null")
        assert not (run / "control.json").exists()


def test_a_finished_run_is_shown_whole(show: Show, finished: Run) -> None:
    page = show(finished.path)
    until(page, f"{STATE} === 'finished' && {STEP} === 40")
    names = page.locator(".charts [data-chart]").evaluate_all("all => all.map(one => one.dataset.chart)")
    assert names == ["loss", "score", "grad_norm", "lr", "updates", "clipped"]
    assert page.get_attribute("[data-chart=loss]", "data-points") == "40"
    assert page.locator("[data-control]").count() == 0
    logged = RunFolder(finished.path).read_metrics()
    assert f"loss {logged[-1].loss:.3g}"[:9] in page.inner_text("[data-role=reading]")
    page.focus("main")
    page.keyboard.press("ArrowLeft")
    until(page, "document.querySelector('[data-role=reading]').textContent.startsWith('Step 39 ')")
    page.click("[data-by=seconds]")
    assert "by=seconds" in page.url
    page.select_option("[data-role=matrix]", index=1)
    chosen = page.input_value("[data-role=matrix]")
    page.wait_for_selector(f'[data-chart=updates] [data-line="{chosen}"].chart-main')
    page.wait_for_selector("[data-role=findings]")
    findings = page.locator("[data-role=findings] li").all_inner_texts()
    assert all(re.match(r"(STOP|LOOK|KNOW) +[^a-z]", one) for one in findings), findings
    page.click("[data-nav=flow]")
    page.wait_for_selector("main[data-screen=flow] [data-role=answer]")
    page.keyboard.press("8")
    page.wait_for_selector("main[data-screen=training] [data-role=training]")


def test_the_slider_shows_each_snapshot(show: Show, finished: Run) -> None:
    slide = "(it, i) => { it.value = i; it.dispatchEvent(new Event('input', {bubbles: true})) }"
    page = show(finished.path, **PHONE)
    page.wait_for_selector(NEWEST)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "on a phone nothing is cut"
    text = str(page.get_attribute("[data-probe]", "data-probe"))
    slider = page.locator("[data-role=snapshot]")
    for i, name in enumerate(["step-00000000", "step-00000016", "step-00000032"]):
        slider.evaluate(slide, i)
        page.wait_for_selector(f"[data-probe][data-snapshot={name}]")
        expected = " ".join(map(str, finished.explain(text, checkpoint=name).answer.values()))
        assert page.inner_text("[data-role=probe-answer] >> nth=0") == expected
    page.click("[data-probe] summary >> nth=0")
    page.wait_for_selector('figure[data-node="encoder.0.self.weights"]')
    page.fill("[data-role=probe-text]", "word5 is bad")
    page.click("[data-role=add-probe]")
    page.wait_for_selector('[data-probe="word5 is bad"][data-snapshot]')
    slider.evaluate(slide, 0)
    page.click("[data-role=play]")
    page.wait_for_selector(NEWEST)


def test_before_the_first_weights_and_when_the_folder_goes(
    show: Show, finished: Run, tmp_path: Path, watch: Watch
) -> None:
    watch.expected = "400|Failed to load resource"
    copy = tmp_path / "run"
    left_out = shutil.ignore_patterns("model", "snapshots", "checkpoints", "evaluation.json", "report*")
    shutil.copytree(finished.path, copy, ignore=left_out)
    page = show(copy)
    until(page, f"{STATE} === 'stopped' && {STEP} === 40")
    assert f"--resume {copy.name}" in page.inner_text("main")
    assert "No weights are saved yet" in page.inner_text("main")
    shutil.copytree(finished.path / "snapshots", copy / "snapshots")
    until(page, "document.querySelector('[data-probe][data-snapshot]') !== null")
    assert page.locator("[role=alert]").count() == 0, "what was missing is there"
    shutil.rmtree(copy)
    until(page, f"{STATE} === 'gone'")


def test_a_replay_needs_no_server(show: Show, finished: Run, tmp_path: Path) -> None:
    path, saved = tmp_path / "replay.html", tmp_path / "saved.html"
    path.write_text(replay_html(finished, Training(finished.path))[0], encoding="utf-8")
    page = show(path.as_uri())
    until(page, f"{STATE} === 'finished' && {STEP} === 40")
    page.wait_for_selector(NEWEST)
    assert page.locator("[data-role=add-probe], [data-control]").count() == 0
    live = show(finished.path)
    live.wait_for_selector(NEWEST)
    live.click(".top-tools >> text=Share")
    assert "the curves and answers of the training" in live.inner_text("dialog[open]")
    with live.expect_download() as downloaded:
        live.click("[data-role=save-page]")
    downloaded.value.save_as(saved)
    show(saved.as_uri()).wait_for_selector(NEWEST)
