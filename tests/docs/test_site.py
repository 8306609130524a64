"""The pages of the documentation: all are in the contents, all links lead somewhere, the reference is generated."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import reference_pages
from tests.helpers.for_each import for_each

from glassformer.cli.flags import flags_of
from glassformer.cli.main import COMMANDS
from glassformer.cli.train import Train
from glassformer.config import TextConfig
from glassformer.config.recipes import recipe_names
from glassformer.explain.capture.sites import SITES
from glassformer.interop.card import example_of
from glassformer.interop.export_facts import ExportFacts
from glassformer.nn.operations import OPERATIONS
from glassformer.text.tokenizer import Tokenizer

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if not {"_build", "front", "generated"} & set(path.parts))
GENERATED = ("command-line", "recipes", "steps", "errata")


def test_every_page_is_in_the_contents() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    listed = {line for block in re.findall(r"```{toctree}\n(.*?)```", index, re.DOTALL) for line in block.split("\n")}
    names = {path.relative_to(DOCS).with_suffix("").as_posix() for path in PAGES} - {"index"}
    names |= {f"reference/generated/{name}" for name in GENERATED}
    assert names == {line for line in listed if line and not line.startswith(":")}


@pytest.mark.parametrize("path", [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda p: p.name)
def test_links_lead_to_files_and_headings(path: Path) -> None:
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?:|mailto:", target):
            continue
        name, _, heading = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if file.parent == DOCS / "reference" / "generated":
            assert file.stem in GENERATED, target
            continue
        assert file.exists(), f"{path.name}: {target}"
        if heading:
            headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings}
            assert heading in slugs, f"{path.name}: {target}"


def test_the_reference_has_every_command_flag_recipe_and_step(tmp_path: Path) -> None:
    paths = reference_pages.write_pages(tmp_path)
    text = {path.stem: path.read_text(encoding="utf-8") for path in paths}
    assert tuple(text) == GENERATED
    assert all(f"\n## {name}\n\n```text\n" in text["command-line"] for name in COMMANDS)
    train = text["command-line"].partition("\n## train\n")[2].partition("\n## ")[0]
    assert {flag.name for flag in flags_of(Train) if flag.help} <= set(re.findall(r"--[\w.-]+", train))
    assert all(flag.help for flag in flags_of(Train))
    assert all(f"\n## {name}\n" in text["recipes"] for name in recipe_names())
    assert all(f"| `{name}` |" in text["steps"] for name in [*SITES, *OPERATIONS])
    first = [path.stat().st_mtime_ns for path in paths]
    assert [path.stat().st_mtime_ns for path in reference_pages.write_pages(tmp_path)] == first, "not written again"
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120, "README is one page"


@for_each(
    ("page", "target", "kind"),
    [
        ("ctranslate2", "ctranslate2", "translator"),
        ("ctranslate2", "ctranslate2", "language_model"),
        ("transformers", "hf", "classifier"),
        ("transformers", "hf", "masked_language_model"),
        ("transformers", "hf", "language_model"),
        ("transformers", "hf", "translator"),
        ("onnx", "onnx", "classifier"),
        ("onnx", "onnx", "masked_language_model"),
    ],
)
def test_the_lines_of_a_page_of_exports_are_those_of_the_cards(page: str, target: Any, kind: str) -> None:
    """Tests in tests/interop run the lines of the cards."""
    facts = ExportFacts(target, "", "", kind, "", 512, 512, "float32", {})
    tokenizer = Tokenizer.train(["a text"], TextConfig(tokenizer="word", vocab_size=9))
    text = (ROOT / "docs" / "how-to" / "export" / f"{page}.md").read_text(encoding="utf-8")
    assert f"```python\n{example_of(facts, tokenizer).rstrip()}\n```" in text
