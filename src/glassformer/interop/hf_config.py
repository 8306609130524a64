"""Settings of a model of transformers, from a `config.json` that somebody else may have made.

Transformers reads far more from that file than sizes: names of modules of Python code, of files elsewhere and of
kernels to download. Here every key and value is checked, and the library is given an object made of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from glassformer.config.recipes import config_from_dict
from glassformer.errors import CheckpointError, UsageError
from glassformer.interop.choose import HF_CLASSES, REGISTERED
from glassformer.interop.export_facts import MAX_LENGTH, ExportFacts
from glassformer.utils.safe_read import read_json_object

CONFIG = "config.json"
LANGUAGE_MODELS = ("llama", "arcee", "starcoder2", "gpt2")
"""Model types of `HF_CLASSES` that are language models; the others are translators."""
Shapes = Mapping[str, tuple[int, ...]]

_NOT_PASSED = ("model_type", "architectures", "transformers_version", "_name_or_path", "dtype", "id2label", "label2id")
"""Keys that are checked, or that change nothing."""
_SIZES = """vocab_size decoder_vocab_size hidden_size intermediate_size num_attention_heads num_key_value_heads head_dim
    d_model encoder_attention_heads decoder_attention_heads encoder_ffn_dim decoder_ffn_dim n_embd n_inner n_head
    n_ngrams n_word_ngrams n_bigrams pad_token_id bos_token_id eos_token_id
    decoder_start_token_id forced_eos_token_id""".split()
_LENGTHS = "max_position_embeddings n_positions chunk_size_feed_forward".split()
_COUNTS = "num_hidden_layers encoder_layers decoder_layers n_layer n_members".split()
"""Numbers of modules, each of which has a tensor at least."""
_NUMBERS = """rms_norm_eps layer_norm_epsilon norm_epsilon attention_dropout embedding_dropout residual_dropout
    activation_dropout dropout resid_pdrop embd_pdrop attn_pdrop encoder_layerdrop decoder_layerdrop initializer_range
    init_std rope_theta pretraining_tp summary_first_dropout""".split()
_SWITCHES = """attention_bias mlp_bias use_bias use_cache tie_word_embeddings scale_embedding is_encoder_decoder
    is_decoder share_encoder_decoder_embeddings return_dict output_attentions output_hidden_states scale_attn_weights
    scale_attn_by_inverse_layer_idx reorder_and_upcast_attn add_cross_attention summary_use_proj
    summary_proj_to_labels""".split()
_WORDS = {
    "hidden_act": ("relu", "gelu", "silu"),
    "activation_function": ("relu", "gelu"),
    "problem_type": ("single_label_classification", None),
    "dtype": ("float32",),
    "summary_type": ("cls_index",),
    "summary_activation": (None,),
    "sliding_window": (None,),
}
"""Values of settings that are not numbers."""


def read_config(folder: Path, facts: ExportFacts, shapes: Shapes) -> tuple[str, dict[str, Any]]:
    """Return the model type of an exported folder, and the settings of its configuration class.

    Args:
        folder: the folder.
        facts: its description.
        shapes: those of the tensors that are there, which bound all sizes.

    Raises:
        CheckpointError: a key is unknown, or a value none that an export writes.
    """
    path = folder / CONFIG
    values = read_json_object(path)
    model_type = _model_type(values, facts, path)
    n_weights = sum(map(_product, shapes.values()))
    for key, value in values.items():
        if not _is_valid(key, value, n_weights, len(shapes)):
            raise CheckpointError(f"{path}: {key[:80]} {str(value)[:80]!r} is in no export", "export the run again")
    if facts.kind == "classifier" and _labels(values) != facts.labels:
        raise CheckpointError(f"{path}: its labels are not those of the description", "export the run again")
    settings = {key: value for key, value in values.items() if key not in _NOT_PASSED}
    if model_type == "glassformer":
        try:
            made = config_from_dict({"task": facts.task, "model": values.get("settings")}, str(path)).model
        except UsageError as error:
            raise CheckpointError(error.message, error.hint) from error
        if made.n_layers > len(shapes):
            raise CheckpointError(f"{path}: {made.n_layers} layers, and {len(shapes)} tensors are there")
        settings |= {"settings": asdict(made)}
        settings |= {"num_labels": len(facts.labels)} if facts.labels else {}
    return model_type, settings


def _model_type(values: dict[str, Any], facts: ExportFacts, path: Path) -> str:
    """Return the model type, which has to be that of the description."""
    of_kind = {REGISTERED[facts.kind]: "glassformer"}
    if facts.kind in ("language_model", "translator"):
        is_lm = facts.kind == "language_model"
        of_kind |= {name: kind for kind, name in HF_CLASSES.items() if (kind in LANGUAGE_MODELS) == is_lm}
    expected = of_kind.get(facts.architecture)
    if expected is None:
        words = facts.kind.replace("_", " ")
        message = f"{path.parent} names the class {facts.architecture[:80]!r} for a {words}"
        raise CheckpointError(message, "export the run again")
    if values.get("model_type") != expected or values.get("architectures") != [facts.architecture]:
        raise CheckpointError(f"{path} is not the configuration of a {facts.architecture}", "export the run again")
    return expected


def _is_valid(key: str, value: Any, n_weights: int, n_tensors: int) -> bool:
    if key in ("model_type", "architectures", "transformers_version", "_name_or_path", "settings"):
        return True  # checked elsewhere, or dropped
    if key in ("id2label", "label2id"):
        return isinstance(value, dict)
    if key == "rope_parameters":
        known = isinstance(value, dict) and value.keys() <= {"rope_type", "rope_theta"}
        return known and value.get("rope_type") == "default" and _is_number(value.get("rope_theta"))
    if key in _SIZES:
        return value is None or (type(value) is int and 0 <= value <= n_weights)
    if key in _LENGTHS:
        return type(value) is int and 0 <= value <= MAX_LENGTH
    if key in _COUNTS:
        return type(value) is int and 0 <= value <= n_tensors
    if key in _NUMBERS:
        return _is_number(value)
    if key in _SWITCHES:
        return type(value) is bool
    return key in _WORDS and (value is None or isinstance(value, str)) and value in _WORDS[key]


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1e9


def _labels(values: dict[str, Any]) -> list[Any]:
    names = values.get("id2label") or {}
    return [names.get(str(i)) for i in range(len(names))]


def _product(shape: tuple[int, ...]) -> int:
    n = 1
    for size in shape:
        n *= size
    return n
