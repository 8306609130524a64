"""What an export wrote is imported again: the same weights, answers and tokenizer, and it can be exported again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.helpers.exports import CONTEXT, KINDS, TEXTS, V, forms, letters, random_model
from tests.helpers.for_each import for_each

import glassformer
from glassformer.config import DecodeConfig
from glassformer.errors import CheckpointError
from glassformer.interop import transfer
from glassformer.interop.export_facts import FACTS, RUN_TOKENIZER, ExportFacts
from glassformer.interop.exported import load_exported
from glassformer.interop.hf_model import write_hf
from glassformer.interop.imported import restore_imported
from glassformer.interop.sources import read_source
from glassformer.interop.transfer import export
from glassformer.text.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("unchecked")
TASKS = {"language_model": "lm", "translator": "translate"}


def written(model: Any, kind: str, name: str, tokenizer: Tokenizer, folder: Path) -> Path:
    folder.mkdir()
    facts = ExportFacts("hf", name, TASKS[kind], kind, "run", CONTEXT - 1, CONTEXT, "float32", {})
    own = RUN_TOKENIZER, tokenizer.to_json().encode()
    files = [*write_hf(model, tokenizer, DecodeConfig(), name), (FACTS, facts.to_json()), own]
    for file, data in files:
        (folder / file).write_bytes(data)
    return folder


@for_each(("kind", "name", "form"), [*forms(6)])
def test_every_class_comes_back_to_the_bit(kind: str, name: str, form: dict[str, Any], fresh: Any) -> None:
    """Exported again, a folder has the same tensors; where nothing is folded, the weights are those of the model."""
    place, tokenizer = fresh(), letters()
    model = random_model(KINDS[kind], form)
    first = written(model, kind, name, tokenizer, place / "first")
    imported = read_source(first)
    task, again = restore_imported(imported)
    assert task.name == TASKS[kind] and task.tokenizer.sha256 == tokenizer.sha256
    assert again.max_len == CONTEXT
    second = written(again, kind, name, tokenizer, place / "second")
    before, after = (load_file(folder / "model.safetensors") for folder in (first, second))
    assert before.keys() == after.keys()
    assert all(torch.equal(tensor, after[key]) for key, tensor in before.items())
    configs = [(folder / "config.json").read_text(encoding="utf-8") for folder in (first, second)]
    assert configs[0] == configs[1]
    ours, theirs = dict(model.named_parameters()), dict(again.named_parameters())
    if kind == "translator" or form["embedding_init_std"] is not None:  # no factor is folded
        assert all(torch.equal(tensor, theirs[key]) for key, tensor in ours.items())
        rest = [theirs[key] for key in theirs.keys() - ours.keys() if not key.endswith("positions.weight")]
        assert not any(tensor.any() for tensor in rest)  # biases that the class always has
    ids = torch.randint(5, V, (2, 9), generator=torch.Generator().manual_seed(0))
    rows = (ids,) if kind == "language_model" else (ids, ids[:, :7])
    with torch.no_grad():
        torch.testing.assert_close(again(*rows), model(*rows), atol=2e-5, rtol=1e-5)


PIECES, BYTES = ({"tokenizer": kind, "vocab_size": 300} for kind in ("bpe", "byte-bpe"))
RUNS: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("translate", {}, {}, "hf"),
    ("translate", {"pre_norm": False, "d_ff": 20}, PIECES, "hf"),
    ("translate", {}, PIECES, "ctranslate2"),
    ("lm", {"activation": "swiglu", "positions": "rotary", "norm": "rms"}, BYTES, "hf"),
    ("lm", {"activation": "gelu"}, {}, "hf"),
    ("lm", {"positions": "learned"}, {}, "hf"),
    ("lm", {"norm": "rms"}, {}, "ctranslate2"),
]


@pytest.mark.parametrize(("task", "form", "text", "target"), RUNS, ids=str)
def test_a_run_comes_back_with_its_answers_and_is_exported_again(
    task: str,
    form: dict[str, Any],
    text: dict[str, Any],
    target: Any,
    make: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    printed: Any,
) -> None:
    run = make(task, text, **form)
    first = export(run, target, tmp_path / "first")
    options: dict[str, Any] = {"temperature": 0.0, "max_new_tokens": 30} if task == "lm" else {}
    assert first.facts.check is not None and first.facts.check["largest_difference"] < 1e-4, first.not_checked
    if target == "hf":  # the searches of CTranslate2 end by another rule
        assert first.facts.check["equal_answers"] == 1
        assert load_exported(first.out).predict(TEXTS, **options) == run.predict(TEXTS, **options)
        assert printed(first.out)
        assert not [*first.out.glob("*.py")] and b"auto_map" not in (first.out / "config.json").read_bytes()
    monkeypatch.setattr(transfer, "check_export", lambda *_: "left out")
    glassformer.import_model(tmp_path / "first", tmp_path / "run")
    again = glassformer.load(tmp_path / "run", precision="fp32")
    assert again.task.name == task and again.task.label_names == run.task.label_names
    assert again.task.tokenizer.kind == run.task.tokenizer.kind
    assert again.task.tokenizer.sha256 == run.task.tokenizer.sha256
    assert again.config.decode == run.config.decode and again.config.text.truncate == run.config.text.truncate
    assert again.config.text.max_len == run.config.text.max_len
    texts = [*TEXTS, "<0x41> ▁ 😀", "a good [MASK] and c"]
    for ours, theirs in zip(run.predict(texts, **options), again.predict(texts, **options), strict=True):
        assert [*ours] == [*theirs]
        assert all(close(ours[key], theirs[key]) for key in ours)
    second = export(again, target, tmp_path / "second")
    assert second.facts.architecture == first.facts.architecture
    for name in ("model.safetensors", "model.bin", "tokenizer.json", "config.json"):
        if (tmp_path / "first" / name).exists():
            assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes(), name


def close(ours: Any, theirs: Any) -> bool:
    """Return whether two answers are equal, numbers in them up to rounding."""
    if isinstance(ours, dict):
        return [*ours] == [*theirs] and all(close(value, theirs[key]) for key, value in ours.items())
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(close, ours, theirs))
    return ours == (pytest.approx(theirs, abs=1e-5) if isinstance(ours, float) else theirs)


def test_a_description_of_another_export_is_refused(make: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(transfer, "check_export", lambda *_: "left out")
    for target in ("hf", "ctranslate2"):
        export(make("lm"), target, tmp_path / target)  # pyright: ignore[reportArgumentType]
    (tmp_path / "hf" / FACTS).write_bytes((tmp_path / "ctranslate2" / FACTS).read_bytes())
    with pytest.raises(CheckpointError, match="language_model for ctranslate2"):
        glassformer.import_model(tmp_path / "hf", tmp_path / "run")
    assert not (tmp_path / "run").exists()
