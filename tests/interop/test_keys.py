"""Every key of the files beside the weights is read, known to change nothing, or refused by its name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.helpers.for_each import for_each
from tests.helpers.pretrained import bert_folder, put_keys, sentence_encoder
from tests.interop.test_import_families import BERT, CASES, GPT2, SMOLLM2, TAGS, gpt2, saved, wordpiece

import glassformer
from glassformer.errors import CheckpointError, UsageError
from glassformer.interop.check import check_import
from glassformer.interop.hf_model import SEQ2SEQ
from glassformer.interop.hf_settings import CLASSES, COMMON, GENERATION, TABLES, keys_of
from glassformer.interop.imported import restore_imported
from glassformer.interop.transfer import import_folder, read_source


@pytest.mark.parametrize("family", TABLES)
def test_each_key_with_an_unsupported_value_is_refused_by_name(family: str, tmp_path: Path) -> None:
    name, settings, write, _ = next(case for case in CASES if CLASSES[case[0]][0] == family)
    saved(name, settings, write, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    keys = [key for mark, key, _ in keys_of(TABLES[family] + COMMON) if mark not in ".+" and key != "-"]
    keys += ["rope_parameters", "rope_scaling"] if family == "llama" else []
    keys += ["num_hidden_layers"] if family in SEQ2SEQ else []
    keys += ["id2label", "num_labels"] if name.endswith("ForSequenceClassification") else []
    rules = [key for mark, key, _ in keys_of(GENERATION) if mark == "="]
    for key in [*keys, *rules, "unheard_of", "architectures", "model_type", "vocab_size"]:
        put_keys(tmp_path / "config.json", **config | {key: {"odd": 1}})
        with pytest.raises((UsageError, CheckpointError)) as error:
            read_source(tmp_path)
        named = "model type" if key == "model_type" else key
        assert named in error.value.message, (key, error.value.message)
        (tmp_path / "config.json").unlink()
    put_keys(tmp_path / "config.json", **config)
    for key in rules:
        put_keys(tmp_path / "generation_config.json", **{key: 7})
        with pytest.raises(UsageError, match=key):
            read_source(tmp_path)
        (tmp_path / "generation_config.json").unlink()


def test_sampling_of_a_source_is_that_of_the_run(tmp_path: Path) -> None:
    saved("GPT2LMHeadModel", GPT2, gpt2, tmp_path)
    put_keys(tmp_path / "generation_config.json", do_sample=True, temperature=0.5, top_k=3)
    assert (read_source(tmp_path).decode.temperature, read_source(tmp_path).decode.top_k) == (0.5, 3)


@for_each(
    ("file", "values", "message"),
    [
        ("tokenizer_config.json", {"do_lower_case": False}, "do_lower_case is False"),
        ("tokenizer_config.json", {"strip_accents": True}, "strip_accents is True"),
        ("tokenizer_config.json", {"tokenize_chinese_chars": False}, "tokenize_chinese_chars is False"),
        ("tokenizer_config.json", {"add_bos_token": False}, "add_bos_token is False"),
        ("tokenizer_config.json", {"do_basic_tokenize": False}, "is false, and only true is read"),
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": "evil.T"}}, "auto_map"),
        ("sentence_bert_config.json", {"do_lower_case": True}, "do_lower_case is true"),
        ("config_sentence_transformers.json", {"default_prompt_name": "query"}, "default_prompt_name"),
        ("1_Pooling/config.json", {"odd": 1}, "odd"),
        ("1_Pooling/config.json", {"pooling_mode_weightedmean_tokens": True}, "pools in a way that is not read"),
    ],
)
def test_what_a_file_beside_the_config_says_is_applied_or_refused(
    file: str, values: dict[str, Any], message: str, fresh: Any
) -> None:
    folder = fresh() / "source"
    sentence_encoder(bert_folder(folder, "bare"), {"pooling_mode_cls_token": True})
    usual = folder / "tokenizer_config.json"
    put_keys(usual, do_basic_tokenize=True, never_split=None, keep_accents=False)
    assert read_source(folder).model.pooling == "first"
    usual.unlink()
    put_keys(folder / file, **values)
    with pytest.raises((UsageError, CheckpointError), match=message):
        read_source(folder)


def test_modules_of_a_sentence_encoder_are_followed(tmp_path: Path) -> None:
    folder = sentence_encoder(bert_folder(tmp_path / "a", "bare"), {"pooling_mode_cls_token": True}, "Normalize")
    (folder / "1_Pooling").rename(folder / "my_pooling")
    text = (folder / "modules.json").read_text(encoding="utf-8")
    (folder / "modules.json").write_text(text.replace("1_Pooling", "my_pooling"), encoding="utf-8")
    imported = read_source(folder)
    assert imported.model.pooling == "first" and any("Normalize" in note for note in imported.notes)
    with pytest.raises(UsageError, match="the module Dense"):
        read_source(sentence_encoder(bert_folder(tmp_path / "b", "bare"), {"pooling_mode": "cls"}, "Dense"))
    inner = tmp_path / "c" / "0_Transformer"
    bert_folder(inner, "bare")
    with pytest.raises(CheckpointError) as error:
        read_source(inner.parent)
    assert error.value.hint == f"give {inner}"


def test_a_pooler_of_a_token_classifier_is_left_out(tmp_path: Path) -> None:
    """Files of older versions hold one."""
    saved("BertForTokenClassification", BERT | {"id2label": TAGS}, wordpiece, tmp_path / "source")
    weights = tmp_path / "source/model.safetensors"
    pooler = {"bert.pooler.dense.weight": torch.ones(24, 24), "bert.pooler.dense.bias": torch.ones(24)}
    save_file(load_file(weights) | pooler, weights, {"format": "pt"})
    done = import_folder(tmp_path / "source", tmp_path / "run")
    assert (done.model.task, done.model.labels) == ("tag", [*TAGS.values()]) and done.check is not None
    assert done.check.equal_answers == 1 and done.check.largest_difference < 1e-5


@for_each(
    ("name", "old", "new"),
    [
        ("GPT2LMHeadModel", "transformer.wte.weight", "lm_head.weight"),
        ("LlamaForCausalLM", "model.embed_tokens.weight", "lm_head.weight"),
        ("BertForMaskedLM", "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"),
    ],
)
def test_tied_weights_are_read_under_their_other_name(name: str, old: str, new: str, fresh: Any) -> None:
    folder = fresh()
    settings: dict[str, Any] = {"GPT2LMHeadModel": GPT2, "LlamaForCausalLM": SMOLLM2}.get(name, BERT)
    saved(name, settings, wordpiece if name[0] == "B" else gpt2, folder)
    before, tensors = read_source(folder), load_file(folder / "model.safetensors")
    tensors[new] = tensors.pop(old)
    save_file({f"module.{key}": tensor for key, tensor in tensors.items()}, folder / "model.safetensors")
    after = read_source(folder)
    assert all(torch.equal(tensor, after.state[key]) for key, tensor in before.state.items())
    assert after.model == before.model
    check = check_import(after, *restore_imported(after), folder)
    assert check is not None and check.largest_difference < 1e-4


@pytest.mark.usefixtures("unchecked")
def test_what_learned_after_an_import_is_compared_too(tmp_path: Path) -> None:
    run = glassformer.import_model(bert_folder(tmp_path / "source"), tmp_path / "run")
    run.learn("the film was good", "class 1", steps=1).keep(tmp_path / "kept")
    done = glassformer.load(tmp_path / "kept").export("hf", tmp_path / "out")
    assert done.facts.check is not None and done.facts.check["texts"] == "sample"
