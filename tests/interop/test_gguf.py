"""Language models as GGUF files: the same numbers and answers in llama.cpp, where its package is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from tests.helpers.exports import printed_by_card, run_of

from glassformer.config import Config, ModelConfig, TextConfig
from glassformer.errors import UsageError
from glassformer.interop.choose import choose
from glassformer.interop.export import export
from glassformer.interop.exported import load_exported

BYTES = {"tokenizer": "byte-bpe", "vocab_size": 300, "max_len": 120}
WIDE = {"d_model": 64, "n_heads": 2, "d_ff": 96}
FORMS: list[tuple[str, dict[str, Any], float]] = [
    ("llama", {"norm": "rms", "activation": "swiglu", "positions": "rotary", "bias": False}, 2e-5),
    ("llama", {"norm": "rms", "activation": "swiglu", "positions": "rotary", "d_head": 64}, 2e-5),
    ("starcoder2", {"activation": "gelu", "positions": "rotary", "bias": False}, 5e-3),
    ("gpt2", {"activation": "gelu", "positions": "learned", "bias": False, "tie_embeddings": False}, 5e-3),
    ("gpt2", {"activation": "gelu", "positions": "sinusoidal", "embedding_init_std": 0.05}, 5e-3),
]


@pytest.mark.parametrize(("architecture", "form", "tolerance"), FORMS, ids=str)
def test_numbers_and_answers_are_those_of_the_run(
    architecture: str,
    form: dict[str, Any],
    tolerance: float,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("xllamacpp")
    run = run_of("lm", monkeypatch, BYTES, **WIDE, **form)
    result = export(run, "gguf", tmp_path / "out")
    assert result.facts.architecture == architecture and result.facts.check is not None, result.not_checked
    assert result.facts.check["largest_difference"] < tolerance
    assert any(note.startswith("approximate: ") for note in result.facts.notes) == (architecture != "llama")
    if architecture == "llama":
        assert result.facts.check["equal_answers"] == 1
        options: dict[str, Any] = {"temperature": 0.0, "max_new_tokens": 40}
        texts = ["refund", "", "the goods and more", "日本"]
        assert load_exported(tmp_path / "out").predict(texts, **options) == run.predict(texts, **options)
        assert printed_by_card(tmp_path / "out", monkeypatch, capsys)


@pytest.mark.parametrize(("architecture", "form"), [form[:2] for form in FORMS], ids=str)
def test_the_file_holds_every_parameter(
    architecture: str, form: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = run_of("lm", monkeypatch, BYTES, **WIDE, **form)
    monkeypatch.setattr("glassformer.interop.export.check_export", lambda *_: "not checked: by this test")
    before = {name: p.clone() for name, p in run.model.named_parameters()}
    export(run, "gguf", tmp_path / "out", quantization="float16")
    assert all(torch.equal(p, before[name]) for name, p in run.model.named_parameters())
    reader = gguf.GGUFReader(tmp_path / "out" / "model.gguf")
    tensors = {one.name: one for one in reader.tensors}
    assert reader.fields["general.architecture"].contents() == architecture
    assert tensors["token_embd.weight"].data.dtype == np.float16
    assert tensors["output_norm.weight"].data.dtype == np.float32
    assert reader.fields["tokenizer.ggml.tokens"].contents() == run.task.tokenizer.vocabulary()
    n_zeros = sum(one.n_elements for one in reader.tensors if one.name.endswith(".bias") and not one.data.any())
    n_positions = sum(one.n_elements for one in reader.tensors if one.name.startswith("position"))
    n_ours = sum(p.numel() for name, p in before.items() if "positions" not in name)
    assert sum(one.n_elements for one in reader.tensors) - n_zeros - n_positions == n_ours


@pytest.mark.parametrize(
    ("model", "text", "obstacle"),
    [
        ({"max_ngram": 5, "activation": "gelu", "positions": "rotary"}, {"tokenizer": "char"}, "model.max_ngram 5"),
        ({"activation": "gelu", "positions": "rotary"}, {"tokenizer": "char"}, "text.tokenizer char"),
        ({"activation": "gelu", "positions": "rotary"}, {"lowercase": True}, "text.lowercase true"),
        ({"activation": "relu", "positions": "rotary"}, {}, "activation relu"),
        ({"activation": "gelu", "positions": "rotary", "pre_norm": False}, {}, "pre_norm false"),
    ],
    ids=str,
)
def test_what_llama_cpp_cannot_hold_is_refused_by_name(
    model: dict[str, Any], text: dict[str, Any], obstacle: str
) -> None:
    config = Config(model=ModelConfig(**model), text=TextConfig(**({"tokenizer": "byte-bpe"} | text)))
    with pytest.raises(UsageError) as error:
        choose("language_model", config, 1, "gguf")
    assert obstacle in error.value.message and "--to onnx" in str(error.value.hint)
    with pytest.raises(UsageError, match="gguf holds no translator"):
        choose("translator", config, 1, "gguf")


@pytest.mark.parametrize("max_len", [2, 3, 32])
def test_texts_that_fill_the_context_are_compared_and_answered(
    max_len: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """llama.cpp takes no prompt of as many tokens as the context holds."""
    pytest.importorskip("xllamacpp")
    form = FORMS[0][1]
    run = run_of("lm", monkeypatch, BYTES | {"max_len": max_len}, **WIDE, **form)
    long = ["refund refunds 日本 goodness badly zebra " * n for n in (1, 2, 10)]
    monkeypatch.setattr("glassformer.interop.check.validation_texts", lambda *_: long)
    result = export(run, "gguf", tmp_path / "out")
    assert result.facts.check is not None and result.facts.check["largest_difference"] < 2e-5
    assert load_exported(tmp_path / "out").facts.context == max_len - 1
    assert len(load_exported(tmp_path / "out").predict(["a" * 500, ""], max_new_tokens=4)) == 2


def test_a_context_of_one_token_is_refused() -> None:
    form, text = {"norm": "rms", "activation": "swiglu", "positions": "rotary"}, {"tokenizer": "byte-bpe", "max_len": 1}
    with pytest.raises(UsageError, match="max_len 1"):
        choose("language_model", Config(model=ModelConfig(**form), text=TextConfig(**text)), 1, "gguf")
