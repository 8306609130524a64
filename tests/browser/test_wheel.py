"""The built wheel holds the whole page: unpacked where there is no Node, its command serves it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext
from tests.browser.app import App
from tests.browser.models import MODELS, subject_of

from glassformer.runs.model_folder import save_model
from glassformer.training.finalize import model_metadata

ROOT = Path(__file__).parents[2]
BUILD = "from setuptools.build_meta import build_wheel; build_wheel('..')"
COMMAND = "import sys; sys.path.insert(0, sys.argv.pop(1)); from glassformer.cli.main import main; sys.exit(main())"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel of these sources installs."""
    folder = tmp_path_factory.mktemp("wheel")
    sources = folder / "sources"
    shutil.copytree(ROOT / "src", sources / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    built = subprocess.run([sys.executable, "-c", BUILD], cwd=sources, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            archive.extract(name, folder / "site")
    return folder / "site"


@pytest.fixture
def address(site: Path, tmp_path: Path) -> Iterator[str]:
    """Where the wheel's own command serves a run, with no other program to be found."""
    run = subject_of(MODELS["classify, pre-norm"])
    folder = tmp_path / "tiny"
    run.task.tokenizer.save(tmp_path / "tokenizer.json")
    tokenizer = (tmp_path / "tokenizer.json").read_bytes()
    weights = {name: p.detach().contiguous() for name, p in run.model.named_parameters()}
    save_model(folder / "model", model_metadata(run.task), weights, {"tokenizer.json": tokenizer}, "A tiny model.")
    words = ["explain", str(folder), "a b good", "--no-browser", "--port", "0"]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"PATH": str(tmp_path)}
    assert shutil.which("node", path=environment["PATH"]) is None
    server = subprocess.Popen(
        [sys.executable, "-P", "-c", COMMAND, str(site), *words],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with server:
        assert server.stdout is not None and server.stderr is not None
        address = server.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:"), server.stderr.read()
        yield address
        server.terminate()
        server.communicate(timeout=20)


def test_the_wheel_serves_the_page_without_node(
    context: Callable[..., BrowserContext], address: str, site: Path
) -> None:
    page = App(context().new_page(), address).open("step", node="encoder.0.self.weights")
    assert page.check("encoder.0.self.weights") == "ok"
    assert page.page.input_value("[data-role=text]") == "a b good"
    script = page.page.evaluate("async () => (await fetch('app.js')).text()")
    assert script == (site / "glassformer" / "explain" / "page" / "static" / "app.js").read_text(encoding="utf-8")
    source = page.page.inner_text("[data-role=code]")
    assert "nn/attention.py" in source, "the sources are in the wheel, and are shown"
