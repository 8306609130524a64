"""What the guides to extending show works: their edits, read from the pages, are applied to a copy of the sources."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "how-to" / "extend"
SECTIONS = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md"))}
SHOWN_ELSEWHERE = {"task"}
"""Recipes without edits: the fourth task of another test is in one file, and goes through every command."""
NEW_FILE = re.compile(r"(?:#|//) ((?:src|web)/\S+\.(?:py|tsx))\n")


def blocks(section: str) -> list[tuple[str, str]]:
    """(language, text) of every fenced block."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", section, flags=re.MULTILINE | re.DOTALL)


def apply_edit(edit: str, root: Path) -> None:
    """Change one file as a diff without line numbers says: each place must be found, and once."""
    header, *places = re.split(r"^@@\n", edit, flags=re.MULTILINE)
    [path] = root.glob(header.removeprefix("--- ").strip())
    text = path.read_text(encoding="utf-8")
    for place in places:
        lines = [line or " " for line in place.splitlines()]
        assert {line[0] for line in lines} <= set(" +-"), f"{path}: not a diff: {place}"
        old, new = ("".join(line[1:] + "\n" for line in lines if line[0] in signs) for signs in (" -", " +"))
        assert text.count(old) == 1, f"{path}: this place is there {text.count(old)} times:\n{old}"
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")


def follow(section: str, root: Path) -> str:
    """Do to a copy of the sources what a recipe says; returns the last block, which shows that it works."""
    others = shutil.ignore_patterns("__pycache__", "node_modules")
    for folder in ("src/glassformer", "web"):
        shutil.copytree(ROOT / folder, root / folder, ignore=others)
    script = ""
    for language, text in blocks(section):
        new_file = NEW_FILE.match(text)
        if language == "diff":
            apply_edit(text, root)
        elif new_file:
            (root / new_file[1]).parent.mkdir(exist_ok=True)
            (root / new_file[1]).write_text(text[new_file.end() :], encoding="utf-8")
        else:
            script = text
    return script


def test_every_recipe_is_run_or_shown_elsewhere() -> None:
    assert set(SECTIONS) == {
        *("layer", "operation", "edit", "screen", "norm", "model", "dataset", "optimizer", "metric", "task")
    }
    assert {name for name, section in SECTIONS.items() if not blocks(section)} == SHOWN_ELSEWHERE


def run(root: Path, *command: str, at: str = ".") -> str:
    """What a command prints that sees the copy at `root`."""
    done = subprocess.run(
        command,
        cwd=root / at,
        env=os.environ | {"PYTHONPATH": str(root / "src"), "GLASSFORMER_CACHE": str(root / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="scripts run in forked processes")
def test_each_recipe_applied_to_a_copy_of_its_own_works(tmp_path: Path) -> None:
    """One test, as importing torch once for all is most of its time saved."""
    folders = [tmp_path / name for name in sorted(set(SECTIONS) - SHOWN_ELSEWHERE)]
    for folder in folders:
        (folder / "script.py").write_text(follow(SECTIONS[folder.name], folder), encoding="utf-8")
    output = run(ROOT, sys.executable, "-m", "tests.helpers.forked_scripts", *map(str, folders))
    assert output.endswith("failed:\n")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="scripts run in forked processes")
def test_a_script_that_fails_is_named(tmp_path: Path) -> None:
    for name, script in {"good": "import os", "bad": "1 / 0"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "script.py").write_text(script, encoding="utf-8")
    with pytest.raises(AssertionError, match=r"(?s)ZeroDivisionError.*failed: \S+bad\n"):
        run(ROOT, sys.executable, "-m", "tests.helpers.forked_scripts", str(tmp_path / "good"), str(tmp_path / "bad"))


MODULES = ROOT / "web/node_modules"


@pytest.mark.skipif(not (MODULES / ".bin/tsc").exists(), reason="the page's type checker comes with `make web`")
@pytest.mark.parametrize(
    ("recipe", "left_out"), [("operation", ""), ("edit", ""), ("screen", ""), ("screen", "later.ts")]
)
def test_the_page_of_a_recipe_is_compiled(recipe: str, left_out: str, tmp_path: Path) -> None:
    """With all of its changes to the page; without one that is needed, the type checker says so."""
    section = SECTIONS[recipe]
    if left_out:
        [edit] = [text for _, text in blocks(section) if left_out in text.split("\n", 1)[0]]
        section = section.replace(f"```diff\n{edit}```\n", "")
    follow(section, tmp_path)
    made = run(tmp_path, sys.executable, "-m", "glassformer.explain.page.typescript")
    (tmp_path / "web/src/types.ts").write_text(made, encoding="utf-8")
    (tmp_path / "web/node_modules").symlink_to(MODULES.resolve())
    if left_out:
        with pytest.raises(AssertionError, match="sizes"):
            run(tmp_path, "node_modules/.bin/tsc", "--noEmit", at="web")
    else:
        run(tmp_path, "node_modules/.bin/tsc", "--noEmit", at="web")


def test_an_edit_must_find_its_place(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n\ny = 2\ny = 2\n", encoding="utf-8")
    apply_edit("--- a.py\n@@\n-x = 1\n+x = 3\n\n", tmp_path)
    assert (tmp_path / "a.py").read_text(encoding="utf-8") == "x = 3\n\ny = 2\ny = 2\n"
    for missing in ("-x = 1\n", " y = 2\n+y = 3\n"):
        with pytest.raises(AssertionError, match=r"this place is there [02] times"):
            apply_edit("--- a.py\n@@\n" + missing, tmp_path)
