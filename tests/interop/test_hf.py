"""Models as folders of Hugging Face's transformers: the same numbers and answers, read back by that library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.exports import SOME, TEXTS, printed_by_card, random_model, run_of

from glassformer.config import DecodeConfig
from glassformer.errors import UsageError
from glassformer.interop.export import export
from glassformer.interop.exported import load_exported
from glassformer.interop.hf_settings import CLASSES
from glassformer.interop.hf_writer import write_hf
from glassformer.models import LanguageModel, Translator
from glassformer.text.tokenizer import Tokenizer

RUNS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("translate", {}, {}),
    ("lm", {"activation": "gelu"}, {}),
    (
        "lm",
        {"activation": "swiglu", "positions": "rotary", "norm": "rms"},
        {"tokenizer": "byte-bpe", "vocab_size": 300},
    ),
]


@pytest.mark.parametrize(("task", "form", "text"), RUNS, ids=str)
def test_it_answers_as_its_run(
    task: str,
    form: dict[str, Any],
    text: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = run_of(task, monkeypatch, text, **form)
    result = export(run, "hf", tmp_path / "out")
    assert result.facts.check is not None, result.not_checked
    model = load_exported(tmp_path / "out")
    options: dict[str, Any] = {"temperature": 0.0, "max_new_tokens": 30} if task == "lm" else {}
    for ours, theirs in zip(run.predict(TEXTS, **options), model.predict(TEXTS, **options), strict=True):
        assert ours == theirs  # read by us it is the model itself
    assert result.facts.check["equal_answers"] == 1 and result.facts.check["largest_difference"] < 1e-4
    assert printed_by_card(tmp_path / "out", monkeypatch, capsys)
    assert not [*(tmp_path / "out").glob("*.py")] and b"auto_map" not in (tmp_path / "out/config.json").read_bytes()


def test_the_tokenizer_of_a_translator_ends_texts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import transformers

    run = run_of("translate", monkeypatch)
    export(run, "hf", tmp_path / "out")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer("abc")["input_ids"] == [*run.task.tokenizer.encode("abc"), 3]
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out")
    ids = model.generate(**tokenizer("abc", return_tensors="pt"), num_beams=1, max_new_tokens=8, max_length=None)
    ours = run.predict("abc", beam_size=1, max_new_tokens=8)
    assert tokenizer.decode(ids[0], skip_special_tokens=True) == ours["translation"]


def test_a_setting_in_the_way_is_named_and_nothing_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = run_of("translate", monkeypatch, positions="rotary")
    with pytest.raises(UsageError, match=r"model\.positions rotary") as error:
        export(run, "hf", tmp_path / "out")
    assert str(error.value.hint) == "use --to ctranslate2"
    assert not (tmp_path / "out").exists()


HOSTILE = [*TEXTS, "[PAD] [MASK]", "▁a ▁", "😀 é e\u0301", "a\r\nb\tc", " two  spaces ", "x" * 10_000, "<0x41> [EOS]"]


@pytest.mark.parametrize("kind", ["word", "char", "bpe", "byte-bpe"])
@pytest.mark.parametrize("ends", [False, True])
def test_a_tokenizer_is_the_same_under_every_model_type(kind: str, ends: bool, tmp_path: Path) -> None:
    """Transformers replaces the tokenizer of some model types by one of its own, which gives other ids."""
    import transformers

    from glassformer.config import TextConfig

    texts = ["the cat sat on the mat, and the dog ran away. é 好 " * 4] * 3
    ours = Tokenizer.train(texts, TextConfig(tokenizer=kind, vocab_size=300))
    model = random_model(Translator if ends else LanguageModel, SOME[0])
    for model_type in ["pegasus", "marian"] if ends else ["llama", "gpt2"]:
        folder = tmp_path / model_type
        folder.mkdir()
        architecture = next(n for n, its in CLASSES.items() if its[0] == model_type)
        for name, data in write_hf(model, ours, DecodeConfig(), architecture):
            if "tokenizer" in name:
                (folder / name).write_bytes(data)
        (folder / "config.json").write_text(json.dumps({"model_type": model_type}), encoding="utf-8")
        theirs = transformers.AutoTokenizer.from_pretrained(folder)
        assert len(theirs) == ours.vocab_size
        theirs.save_pretrained(folder / "again")
        for one in (theirs, transformers.AutoTokenizer.from_pretrained(folder / "again")):
            for text in HOSTILE:
                ids = ours.encode(text)
                assert one(text)["input_ids"] == ([*ids, 3] if ends else ids)
                assert one.decode(ids, skip_special_tokens=True) == ours.decode(ids)
