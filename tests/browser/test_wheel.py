"""The built wheel holds the whole package: each file of the sources, and with them the built page."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD = "from setuptools.build_meta import build_wheel; build_wheel('..')"


def test_the_wheel_holds_every_file_of_the_package(tmp_path: Path) -> None:
    sources = tmp_path / "sources"
    shutil.copytree(ROOT / "src", sources / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    wanted = {str(path.relative_to(sources / "src")) for path in (sources / "src").rglob("*") if path.is_file()}
    assert "glassformer/explain/page/static/whole.js" in wanted
    built = subprocess.run([sys.executable, "-c", BUILD], cwd=sources, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert wanted <= set(zipfile.ZipFile(wheel).namelist())
