"""Every command the documents show is one the program takes: verbs, flags and recipes that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from glassformer.cli import flags
from glassformer.cli.main import COMMANDS, class_of
from glassformer.config.recipes import recipe_names
from glassformer.training import finetune

ROOT = Path(__file__).parents[2]


CLASSES = {name: class_of(name) for name in COMMANDS}
WRITTEN = [p for p in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")] if "_build" not in p.parts]
DOCUMENTS = sorted(p for p in WRITTEN if p.name != "CHANGELOG.md")


def commands(text: str) -> list[str]:
    """Lines and code spans of a document that call the program, without prompt, variables, redirections and remarks."""
    found = []
    for line in text.splitlines():
        match = re.match(r"\s*(?:\$ )?(?:[A-Z_]+=\S+ )*(glassformer [a-z].*)", line)
        shown = [match.group(1)] if match else re.findall(r"`(glassformer [a-z][^`]*)`", line)
        for command in shown:
            found += re.split(r"\s+[<>|#]|\s{2,}", command)[0].rstrip().split(" && ")
    return found


def test_commands_are_found() -> None:
    assert commands("`glassformer doctor a`, or `glassformer recipes`.") == [
        "glassformer doctor a",
        "glassformer recipes",
    ]
    text = (
        "    GLASSFORMER_DATA=d glassformer train imdb --out x   # remark\n"
        "$ glassformer predict r < a > b\nglassformer is && so"
    )
    assert commands(text) == ["glassformer train imdb --out x", "glassformer predict r", "glassformer is", "so"]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_documented_commands_exist(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finetune, "with_pretrained_settings", lambda config, _: config)  # of a run that is not there
    for command in commands(path.read_text(encoding="utf-8")):
        verb, *rest = shlex.split(command)[1:]
        assert verb in CLASSES, f"{path.name}: {command}"
        if not rest or {"…", "...", "--help"} & {*rest}:
            continue  # the command is named, not shown
        words, given, _ = flags.parse(CLASSES[verb], rest)
        if verb == "train" and words and words[0].islower() and "/" not in words[0]:
            assert words[0] in recipe_names(), f"{path.name}: {command}"
            read = flags.read(CLASSES[verb], rest)
            read.configured(read.base)
        elif verb not in ("data", "train"):
            for flag in flags.flags_of(CLASSES[verb]):
                if flag.field in given and "." not in flag.key:
                    flags.convert(given[flag.field], flag.kind, flag.name, "flags")


def test_make_targets_in_the_documents_exist() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert {"demo", "test", "test-all", "lint"} <= targets
    for path in DOCUMENTS:
        shown = set(re.findall(r"(?:^|`|    )make ([a-z0-9-]+)", path.read_text(encoding="utf-8"), re.MULTILINE))
        assert shown <= targets, path.name


def test_the_guide_to_imports_names_every_family() -> None:
    from glassformer.interop.hf_settings import TABLES

    guide = (ROOT / "docs" / "how-to" / "import.md").read_text(encoding="utf-8")
    table = guide.split("## What comes in")[1].split("\n## ")[0]
    assert [family for family in TABLES if f"`{family}" not in table] == []
