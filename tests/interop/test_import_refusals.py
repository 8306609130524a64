"""Llama, Marian and Pegasus folders, and exports of ours, that are damaged, hostile, or of a kind that is not read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.helpers.exports import CONTEXT, random_model
from tests.helpers.for_each import for_each
from tests.interop.test_import import DAMAGE, damage

import glassformer
from glassformer.config import Config, DecodeConfig, ModelConfig, TextConfig
from glassformer.errors import CheckpointError, UsageError
from glassformer.interop import read
from glassformer.interop.choose import choose
from glassformer.interop.hf_writer import write_hf
from glassformer.models import LanguageModel, Translator
from glassformer.runs.model_folder import tensor_chunks
from glassformer.text.tokenizer import Tokenizer

FORMS: dict[str, tuple[Any, dict[str, Any]]] = {
    "llama": (LanguageModel, {"norm": "rms", "activation": "swiglu", "positions": "rotary"}),
    "marian": (Translator, {"pre_norm": False}),
    "pegasus": (Translator, {"tie_embeddings": False}),
}
Change = Callable[[dict[str, torch.Tensor], dict[str, Any]], object]


@pytest.fixture(autouse=True)
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the comparison with transformers, which takes seconds to import."""
    monkeypatch.setattr(read, "check_import", lambda *_: None)


def folder_of(family: str, folder: Path, change: Change = lambda tensors, config: None) -> Path:
    """Write a folder of a family; `change` may change tensors and configuration before."""
    kind, form = FORMS[family]
    letters = "".join(chr(ord("A") + i) for i in range(45))
    model, folder_config = random_model(kind, form), Config(model=ModelConfig(**form))
    name = "language_model" if kind is LanguageModel else "translator"
    architecture = choose(name, folder_config, 1, "hf").architecture
    folder.mkdir(parents=True)
    tokenizer = Tokenizer.train([letters], TextConfig(tokenizer="char", vocab_size=50))
    for file, data in write_hf(model, tokenizer, DecodeConfig(), architecture):
        (folder / file).write_bytes(data)
    for name in ("tokenizer_config.json", "generation_config.json"):
        (folder / name).unlink()
    characters_of(folder)
    tensors = dict(load_file(folder / "model.safetensors"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config["model_type"] == family
    change(tensors, config)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "model.safetensors").write_bytes(b"".join(tensor_chunks(tensors)))
    return folder


def characters_of(folder: Path) -> None:
    """Write a tokenizer of characters as another library has it, with five special tokens."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *"abcdefghij"]
    backend = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, "<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    backend.save(str(folder / "tokenizer.json"))


def put(name: str, value: Any) -> Change:
    """Set a key of the configuration (".name"), or a tensor; None takes it away."""

    def change(tensors: dict[str, torch.Tensor], config: dict[str, Any]) -> None:
        place: Any = config if name.startswith(".") else tensors
        if value is None:
            del place[name.removeprefix(".")]
        else:
            place[name.removeprefix(".")] = value

    return change


K = "model.layers.1.self_attn.k_proj.weight"
FC = "model.decoder.layers.1.fc2.weight"
SHARED = "model.shared.weight"
REFUSED: list[tuple[str, Change, str]] = [
    ("llama", put("model.layers.1.adapter.weight", torch.zeros(3, 4)), "adapter.weight"),
    ("llama", put(K, None), "k_proj.weight"),
    ("llama", put(K, torch.zeros(8, 16)), "k_proj.weight should have shape"),
    ("llama", put(K, torch.full((16, 16), torch.nan)), "NaN or infinity"),
    ("llama", put(K, torch.zeros(16, 16, dtype=torch.int8)), "numbers of the type int8"),
    ("llama", put("model.embed_tokens.weight", torch.zeros(50)), "embedding.weight"),
    ("llama", put(".rope_parameters", {"rope_type": "llama3", "rope_theta": 5e5}), "llama3"),
    ("llama", put(".rope_parameters", [1]), "should be a table"),
    ("llama", put(".partial_rotary_factor", 0.5), "partial_rotary_factor"),
    ("llama", put(".hidden_act", "gelu"), "hidden_act"),
    ("llama", put(".num_key_value_heads", 3), "num_key_value_heads 3: 4 heads"),
    ("llama", put(".num_key_value_heads", 0), "num_key_value_heads 0: 4 heads"),
    ("llama", put(".num_key_value_heads", 2), "should have shape (8, 16)"),
    ("llama", put(".sliding_window", 8), "sliding_window"),
    ("llama", put(".max_position_embeddings", 10**12), "1,000,000"),
    ("llama", put(".max_position_embeddings", "20"), "should be a whole number"),
    ("llama", put(".num_hidden_layers", 10**12), "n_layers must be a whole number in"),
    ("llama", put(".num_hidden_layers", 900), "900 layers"),
    ("llama", put(".num_hidden_layers", 1), "layers.1"),
    ("llama", put(".head_dim", 10**6), "d_head must be a whole number in"),
    ("llama", put(".rope_parameters", {"rope_theta": 0}), "rope_base"),
    ("llama", put(".quantization_config", {}), "quantization_config"),
    ("marian", put("model.adapter.weight", torch.zeros(3, 4)), "adapter.weight"),
    ("marian", put(FC, None), "fc2.weight"),
    ("marian", put(FC, torch.zeros(16, 23)), "down_proj.weight should have shape"),
    ("marian", put(FC, torch.zeros(15, 24)), "should have 16 rows"),
    ("marian", put(SHARED, torch.full((50, 16), torch.inf)), "NaN or infinity"),
    ("marian", put(SHARED, torch.zeros(50, 15)), "16 columns"),
    ("marian", put(SHARED, None), "lacks the tensor shared.weight"),
    ("marian", put("final_logits_bias", torch.zeros(1, 49)), "final_logits_bias should have shape"),
    ("marian", put(".encoder_layers", 1), "decoder_layers is 2, not 1"),
    ("marian", put(".normalize_embedding", True), "normalize_embedding"),
    ("marian", put(".max_position_embeddings", 10**12), "1,000,000"),
    ("marian", put(".activation_function", "mish"), "'mish'"),
    ("pegasus", put("model.encoder.embed_positions.weight", torch.zeros(20, 16)), "not sinusoids"),
    ("pegasus", put("model.encoder.embed_positions.weight", torch.zeros(20)), "not sinusoids"),
    ("pegasus", put("lm_head.weight", None), "lm_head.weight"),
]


@for_each(("family", "change", "words"), REFUSED)
def test_what_no_part_here_has_is_refused_and_named(
    family: str, change: Change, words: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("refused")
    source = folder_of(family, place / "source", change)
    with pytest.raises((UsageError, CheckpointError)) as caught:
        glassformer.import_model(source, place / "run")
    assert words in caught.value.message
    assert [path.name for path in place.iterdir()] == ["source"], "something half written is left"


@for_each(("what", "words"), DAMAGE)
@for_each("family", FORMS)
def test_a_hostile_or_damaged_folder_is_refused(
    family: str, what: str, words: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("hostile")
    damage(folder_of(family, place / "source"), what)
    with pytest.raises(CheckpointError) as caught:
        glassformer.import_model(place / "source", place / "run")
    # Of what is lacking, a family without a tokenizer.json may name files of its own.
    assert ("tokenizer.json" if what == "no tokenizer" else words) in caught.value.message
    assert not (place / "run").exists() and not [*place.glob(".tmp*")]


@for_each("family", FORMS)
def test_the_folder_as_it_is_can_be_read(family: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """So that what is refused above is refused for the change alone; `max_len` shortens it."""
    place = tmp_path_factory.mktemp("sound")
    source = folder_of(family, place / "source")
    longest = CONTEXT - (FORMS[family][0] is Translator)
    assert glassformer.import_model(source, place / "run").config.text.max_len == longest
    assert glassformer.import_model(source, place / "short", max_len=7).config.text.max_len == 7
    with pytest.raises(UsageError, match=f"from 1 to {longest}"):
        glassformer.import_model(source, place / "long", max_len=longest + 1)
