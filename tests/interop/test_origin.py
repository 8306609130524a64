"""Licence, base model and source of an import stay with the weights: through fine-tuning, seeds and exports."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.pretrained import bert_folder

import glassformer
from glassformer.errors import CheckpointError
from glassformer.interop.source_folder import SourceFolder
from glassformer.runs.model_folder import read_origin
from glassformer.runs.records import Origin

pytestmark = pytest.mark.usefixtures("unchecked")

CARD = "---\nlicense: apache-2.0\nbase_model:\n- lab/first-model\ntags: [x]\n---\n\n# A model\n"


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    rows = [
        f"{text}{' .' * i},{label}" for text, label in (("a good film", "pos"), ("not good", "neg")) for i in range(20)
    ]
    (tmp_path / "data.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    return {"train_file": str(tmp_path / "data.csv"), "steps": 2, "lr": 1e-3, "threads": 1}


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    source = bert_folder(tmp_path / "tiny-bert", "bare")
    (source / "README.md").write_text(CARD, encoding="utf-8")
    glassformer.import_model(source, tmp_path / "begun")
    shutil.rmtree(source)
    return tmp_path / "begun"


def card_of(run: Path) -> str:
    return (run / "model" / "README.md").read_text(encoding="utf-8")


def says_where_from(card: str) -> None:
    """Assert that a card names licence, base model and source, once each in its metadata."""
    front, _, rest = card.removeprefix("---\n").partition("\n---\n")
    assert front.split("\n").count("license: apache-2.0") == 1
    assert front.split("\n").count("base_model: lab/first-model") == 1
    assert "`tiny-bert` (bert in the format of transformers)" in rest
    assert "a bare encoder: a text is the pooling of its vectors" in rest
    assert "`model.safetensors`: SHA-256 " in rest and "Licence of the source: apache-2.0." in rest


def test_the_record_stays_with_a_run_fine_tuned_twice(begun: Path, settings: dict[str, Any], tmp_path: Path) -> None:
    says_where_from(card_of(begun))
    record = json.loads((begun / "import.json").read_text(encoding="utf-8"))
    first = read_origin(begun / "model")
    assert first is not None and asdict(first) == record
    for number, source in ((1, begun), (2, tmp_path / "tuned-1")):
        out = tmp_path / f"tuned-{number}"
        glassformer.train("classify", out=out, init_from=str(source), **settings)
        says_where_from(card_of(out))
        assert "fine-tuned with Glassformer" in card_of(out) and "from scratch" not in card_of(out)
        assert read_origin(out / "model") == first
    data = json.loads((tmp_path / "tuned-2" / "data.json").read_text(encoding="utf-8"))
    assert data["base"]["path"].endswith("tuned-1")  # the run before, and what that one began from
    assert data["base"]["import"] == record


@pytest.mark.parametrize(("task", "target", "license"), [("translate", "ctranslate2", None), ("lm", "hf", "mit")])
def test_an_export_has_it(task: str, target: Any, license: str | None, tmp_path: Path, make: Any) -> None:
    first = make(task).export("ctranslate2", tmp_path / "first").out
    (first / "README.md").write_text(CARD, encoding="utf-8")
    run = glassformer.import_model(first, tmp_path / "run")
    out = run.export(target, tmp_path / "out", license=license).out
    card = (out / "README.md").read_text(encoding="utf-8")
    assert f"\nlicense: {license or 'apache-2.0'}\nbase_model: lab/first-model\n" in card
    assert "imported with Glassformer" in card and "from scratch" not in card
    assert "in the format of ctranslate2" in card and "Licence of the source: apache-2.0." in card
    if target != "ctranslate2":
        return
    again = glassformer.import_model(out, tmp_path / "again")
    assert "\nlicense: apache-2.0\nbase_model: lab/first-model\n" in card_of(again.path)


def test_a_record_of_a_stranger_puts_nothing_into_the_metadata(tmp_path: Path) -> None:
    odd = Origin("transformers", "bert", "x", license="mit\nevil: true", base_model="a/b\nc", notes=["<b>\n# Head"])
    assert odd.front_matter() == []
    assert "<b>" not in odd.source()[1] and "\n" not in odd.source()[1]  # what was changed
    assert Origin("transformers", "bert", "org/name", base_model="lab/x").front_matter() == ["base_model: lab/x"]
    with pytest.raises(CheckpointError, match="import"):
        Origin.from_json({"library": 1, "family": "bert", "name": "x"}, tmp_path)


FACTS: list[tuple[str, dict[str, str]]] = [
    ("---\nlicense: mit\n---\n", {"license": "mit"}),
    ("---\r\nlicense: 'mit'\r\nbase_model: a/b\r\n---\r\n", {"license": "mit", "base_model": "a/b"}),
    ("---\nbase_model:\n  - a/b\n  - c/d\n---\n", {"base_model": "a/b"}),
    ("# No metadata\nlicense: mit\n", {}),
    ("---\nlicense: two words\n---\nlicense: mit\n", {}),
]


@pytest.mark.parametrize(("text", "facts"), FACTS)
def test_the_metadata_of_a_card_is_read(text: str, facts: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "README.md").write_bytes(text.encode())
    assert SourceFolder(tmp_path).card_facts() == facts
