"""Files that documentation, docstrings and comments name are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
OF_OTHERS = {"specs/model_spec.py", "specs/transformer_spec.py"}
"""Files of other projects."""
NAME = re.compile(r"(?<![\w/.\"'*{<-])((?:\.\./)?[a-z_][\w-]*(?:/[\w-]+)*\.(?:py|tsx?))(?![\w\"'])")


def texts() -> list[Path]:
    """All Python sources, and the pages that people write; those of how-to/extend add files."""
    pages = [path for path in (ROOT / "docs").rglob("*.md") if not {"_build", "extend"} & {*path.parts}]
    return [*(ROOT / "src").rglob("*.py"), *pages, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


def known_names() -> set[str]:
    """The ends of the paths of all files: "loop.py", "training/loop.py"."""
    folders = ("src", "tests", "benchmarks", "docs", "web/src", "web")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.*") if "node_modules" not in path.parts]
    ends = [path.relative_to(ROOT).parts for path in paths]
    return {"/".join(parts[i:]) for parts in ends for i in range(len(parts))}


def test_files_that_are_named_exist() -> None:
    known, missing = known_names(), []
    for path in texts():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            found = (name.removeprefix("../") for name in NAME.findall(line))
            missing += [f"{path.relative_to(ROOT)}:{number} {name}" for name in found if name not in known | OF_OTHERS]
    assert missing == []
