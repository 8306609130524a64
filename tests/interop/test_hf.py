"""Models as folders of Hugging Face's transformers: the same numbers and answers, read back by that library."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.helpers.exports import SOME, TEXTS, random_model

from glassformer.config import DecodeConfig
from glassformer.interop.hf_model import write_hf
from glassformer.interop.hf_settings import CLASSES
from glassformer.models import LanguageModel, Translator
from glassformer.text.tokenizer import Tokenizer

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
