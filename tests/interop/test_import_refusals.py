"""Folders of other libraries, and exports of ours, that are damaged, hostile, or of a kind that is not read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load
from tests.helpers.exports import CONTEXT, letters, random_model
from tests.helpers.for_each import for_each
from tests.helpers.pretrained import POSITIONS, WORDS, bert_folder
from tokenizers import Tokenizer, models, pre_tokenizers

import glassformer
from glassformer.config import DecodeConfig
from glassformer.errors import CheckpointError, UsageError
from glassformer.interop.hf_model import write_hf
from glassformer.interop.hf_settings import CLASSES
from glassformer.interop.sources import read_source
from glassformer.models import LanguageModel, Translator
from glassformer.runs.model_folder import tensor_chunks
from glassformer.text import tokenizer

pytestmark = pytest.mark.usefixtures("unchecked")

WEIGHTS = "model.safetensors"
FORMS: dict[str, tuple[Any, dict[str, Any]]] = {
    "llama": (LanguageModel, {"norm": "rms", "activation": "swiglu", "positions": "rotary"}),
    "marian": (Translator, {"pre_norm": False}),
    "pegasus": (Translator, {"tie_embeddings": False}),
}
Change = Callable[[dict[str, torch.Tensor], dict[str, Any]], object]


def folder_of(family: str, folder: Path, change: Change = lambda tensors, config: None) -> Path:
    """Write a folder of a family; `change` may change tensors and configuration before."""
    if family == "bert":
        return bert_folder(folder, change=change)
    kind, form = FORMS[family]
    architecture = next(name for name, (its, *_) in CLASSES.items() if its == family)
    files = dict(write_hf(random_model(kind, form), letters(), DecodeConfig(), architecture))
    tensors, config = load(files[WEIGHTS]), json.loads(files["config.json"])
    folder.mkdir(parents=True)
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *"abcdefghij"]  # characters, as another library has them
    backend = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, "<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    backend.save(str(folder / "tokenizer.json"))
    change(tensors, config)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / WEIGHTS).write_bytes(b"".join(tensor_chunks(tensors)))
    return folder


def put(name: str, value: Any) -> Change:
    """Set a key of the configuration (".name"), or a tensor; None takes a tensor away."""

    def change(tensors: dict[str, torch.Tensor], config: dict[str, Any]) -> None:
        if name.startswith("."):
            config[name[1:]] = value
        elif value is None:
            del tensors[name]
        else:
            tensors[name] = value

    return change


QUERY = "bert.encoder.layer.1.attention.self.query.weight"
FC = "model.decoder.layers.1.fc2.weight"
SHARED = "model.shared.weight"
REFUSED: list[tuple[str, Change, str]] = [
    ("bert", put("bert.adapter.weight", torch.zeros(3, 4)), "adapter.weight"),
    ("bert", put(QUERY, None), "encoder.layer.1.attention.self.query.weight"),
    ("bert", put(QUERY, torch.zeros(24, 23)), "q_proj.weight should have shape"),
    ("bert", put(QUERY, torch.full((24, 24), torch.nan)), "NaN or infinity in encoder.layers.1"),
    ("bert", put(QUERY, torch.zeros(24, 24, dtype=torch.int8)), "numbers of the type int8"),
    ("bert", put(".num_hidden_layers", 1), "encoder.layer.1"),
    ("bert", put(".num_hidden_layers", 900), "900 layers"),
    ("bert", put(".num_hidden_layers", 10**12), "n_layers must be a whole number in"),
    ("bert", put(".num_attention_heads", 5), "describes no model"),
    ("bert", put(".hidden_act", None), "'None'"),
    ("bert", put(".id2label", {"0": "x"}), "one output"),
    ("bert", put(".problem_type", "regression"), 'problem_type is "regression"'),
    ("bert", put(".num_labels", 10**9), "num_labels is 1000000000, and id2label names 3 classes"),
    ("llama", put("model.embed_tokens.weight", torch.zeros(50)), "embedding.weight"),
    ("llama", put(".rope_parameters", {"rope_type": "llama3", "rope_theta": 5e5}), "llama3"),
    ("llama", put(".rope_parameters", [1]), "should be a table"),
    ("llama", put(".rope_scaling", {"type": "linear", "factor": 2.0}), 'rope_scaling: type is "linear"'),
    ("llama", put(".num_key_value_heads", 3), "num_key_value_heads 3: 4 heads"),
    ("llama", put(".num_key_value_heads", 0), "num_key_value_heads 0: 4 heads"),
    ("llama", put(".num_key_value_heads", 2), "should have shape (8, 16)"),
    ("llama", put(".max_position_embeddings", 10**12), "1,000,000"),
    ("marian", put(FC, torch.zeros(16, 23)), "down_proj.weight should have shape"),
    ("marian", put(FC, torch.zeros(15, 24)), "should have 16 rows"),
    ("marian", put(SHARED, torch.zeros(50, 15)), "16 columns"),
    ("marian", put(SHARED, None), "lacks the tensor shared.weight"),
    ("marian", put("final_logits_bias", torch.zeros(1, 49)), "final_logits_bias should have shape"),
    ("marian", put(".encoder_layers", 1), "decoder_layers is 2, not 1"),
    ("pegasus", put("model.encoder.embed_positions.weight", torch.zeros(20, 16)), "not sinusoids"),
    ("pegasus", put("model.encoder.embed_positions.weight", torch.zeros(20)), "not sinusoids"),
    ("pegasus", put("lm_head.weight", None), "lm_head.weight"),
]
"""Also each key of a configuration is refused by its name: test_import_families.py."""


@for_each(("family", "change", "words"), REFUSED)
def test_what_no_part_here_has_is_refused_and_named(family: str, change: Change, words: str, fresh: Any) -> None:
    place = fresh()
    source = folder_of(family, place / "source", change)
    with pytest.raises((UsageError, CheckpointError)) as caught:
        glassformer.import_model(source, place / "run")
    assert words in caught.value.message
    assert [path.name for path in place.iterdir()] == ["source"], "something half written is left"


def index_of(source: Path, shard: str) -> None:
    """Let the weights have another name, and an index name `shard`."""
    (source / WEIGHTS).rename(source / "other.safetensors")
    (source / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": shard}}))


def header_of(source: Path, rows: int, there: int) -> None:
    """Write a file whose header describes a matrix of so many rows; so many bytes of it are there, on no disk."""
    header = json.dumps({"x": {"dtype": "F32", "shape": [rows, 24], "data_offsets": [0, 96 * rows]}}).encode()
    with open(source / WEIGHTS, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + there)


DAMAGE: list[tuple[Callable[[Path], object], str]] = [
    (lambda source: (source / WEIGHTS).write_bytes((source / WEIGHTS).read_bytes()[:-100]), "not a sound safetensors"),
    (lambda source: header_of(source, 10**12, 0), "not a sound safetensors file"),
    (lambda source: header_of(source, 10**9 // 3, 32 * 10**9), "should have at most 17,179,869,184 bytes"),
    (lambda source: (source / WEIGHTS).rename(source / "pytorch_model.bin"), "is a pickle"),
    (lambda source: (source / WEIGHTS).unlink(), "holds no model.safetensors"),
    (lambda source: (source / WEIGHTS).symlink_to((source / WEIGHTS).rename(source.parent / "elsewhere")), "is a link"),
    (lambda source: ((source / WEIGHTS).unlink(), os.mkfifo(source / WEIGHTS)), "should be a file, and is a pipe"),
    (lambda source: index_of(source, "../x.safetensors"), "no file of the same folder"),
    (lambda source: index_of(source, "a.safetensors"), "cannot be read"),
    (lambda source: (source / "tokenizer.json").unlink(), "holds no tokenizer.json"),
    (lambda source: (source / "config.json").write_text("{"), "not the JSON"),
    (lambda source: (source / "config.json").unlink(), "holds no config.json"),
]


@for_each(("damage", "words"), DAMAGE)
def test_a_hostile_or_damaged_folder_is_refused(damage: Callable[[Path], object], words: str, fresh: Any) -> None:
    place = fresh()
    damage(bert_folder(place / "source"))
    with pytest.raises(CheckpointError) as caught:
        glassformer.import_model(place / "source", place / "run")
    assert words in caught.value.message
    assert not (place / "run").exists() and not [*place.glob(".tmp*")]


GROWING = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 100}
TAMPERED: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda content: content["model"]["vocab"].update(zebra=10**6), "rows has none"),
    (lambda content: content["model"]["vocab"].update(zebra=7), "two tokens have one id"),
    (lambda content: content["model"].update(unk_token="zebra"), "unk_token"),
    (lambda content: content["model"].update(vocab={WORDS[i]: i for i in range(5)}), "special tokens alone"),
    (lambda content: content.update(post_processor={"type": "Evil"}), "PostProcessor"),
    (lambda content: content.update(normalizer={"type": "Prepend", "prepend": "a" * 6000}), "Prepend"),
    (lambda content: content.update(normalizer={"type": "Sequence", "normalizers": [GROWING] * 6}), "Replace"),
]


@for_each(("change", "words"), TAMPERED)
def test_a_tokenizer_that_does_not_fit_is_refused(
    change: Callable[[dict[str, Any]], object], words: str, fresh: Any
) -> None:
    """In a run folder, whose tokenizer somebody changed, the same of its ids."""
    place = fresh()
    source = bert_folder(place / "source")
    glassformer.import_model(source, place / "run")
    own = place / "run" / "model" / "tokenizer.json"
    for path in (source / "tokenizer.json", own):
        content = json.loads(path.read_text(encoding="utf-8"))
        change(content)
        path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(CheckpointError, match=words):
        glassformer.import_model(source, place / "other")
    if " has " in words or "one id" in words:
        with pytest.raises(CheckpointError, match=words):
            tokenizer.Tokenizer.load(own)


@for_each("family", ["bert", *FORMS])
def test_the_folder_as_it_is_can_be_read(family: str, fresh: Any) -> None:
    """So that what is refused above is refused for the change alone; `max_len` shortens it."""
    place = fresh()
    source = folder_of(family, place / "source")
    longest = POSITIONS if family == "bert" else CONTEXT - (FORMS[family][0] is Translator)
    assert glassformer.import_model(source, place / "run").config.text.max_len == longest
    short = glassformer.import_model(source, place / "short", max_len=7)
    assert short.config.text.max_len == 7 and (family != "bert" or short.predict("a film " * 20)["truncated"])
    with pytest.raises(UsageError, match=f"from 1 to {longest}"):
        glassformer.import_model(source, place / "long", max_len=longest + 1)
    for name in ("glassformer.json", "manifest.json"):
        (place / name).write_text("{}")
    with pytest.raises(UsageError, match="is an export to a form that is not read again"):
        read_source(place)
