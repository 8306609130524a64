"""Settings of models in `config.json` of transformers: one table for each family, read both ways, and every other key.

A row is `ours  theirs  [default]`: a field of `ModelConfig` (or `max_len`, the positions of the model), the key there,
and its value where the key is missing, which is an error without a default; `-` stands for no key. Others begin with

    =   values, a colon, and the keys that may have them alone, since others are computed otherwise
    +   a value that an export writes, a colon, and its keys; an import does without it
    >   a field that an export writes, a colon, and its keys; an import reads it off the tensors or by itself
    .   keys that no number of a model depends on

A key in none of them is refused by its name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from glassformer.config import DecodeConfig
from glassformer.config.recipes import build
from glassformer.errors import CheckpointError, UsageError

Settings = dict[str, Any]
"""Fields of `ModelConfig`."""
_STEMS = {"bert": "Bert", "distilbert": "DistilBert", "roberta": "Roberta", "xlm-roberta": "XLMRoberta"}
POOLERS = {"bert": "tanh", "roberta": "tanh", "xlm-roberta": "tanh", "distilbert": "relu"}
"""The activation between the pooler and the head of a classifier."""
_SUFFIXES = {
    "ForSequenceClassification": "classifier",
    "ForTokenClassification": "tagger",
    "ForMaskedLM": "masked_language_model",
    "ForPreTraining": "masked_language_model",
    "Model": "text_embedder",
}
CLASSES = {stem + form: (family, kind) for family, stem in _STEMS.items() for form, kind in _SUFFIXES.items()} | {
    "GPT2LMHeadModel": ("gpt2", "language_model"),
    "GPT2Model": ("gpt2", "language_model"),
    "LlamaForCausalLM": ("llama", "language_model"),
    "PegasusForConditionalGeneration": ("pegasus", "translator"),
    "MarianMTModel": ("marian", "translator"),
}
"""Family and kind of model (`Task.explain_as`) of the classes of transformers that are read, and written."""
_BERT = """
n_layers    num_hidden_layers
d_model     hidden_size
n_heads     num_attention_heads
d_ff        intermediate_size
activation  hidden_act              gelu
dropout     hidden_dropout_prob     0.1
norm_eps    layer_norm_eps          1e-12
max_len     max_position_embeddings 512
n_segments  type_vocab_size         2
+ 0.0 : attention_probs_dropout_prob
= absolute : position_embedding_type
= false : is_decoder is_encoder_decoder
"""
_ROTARY = """
rope_base   rope_theta
= default null : rope_type type
= 1 null : partial_rotary_factor
"""
_MARIAN = """
n_layers    encoder_layers
n_layers    decoder_layers
d_model     d_model
n_heads     encoder_attention_heads
n_heads     decoder_attention_heads
d_ff        encoder_ffn_dim
d_ff        decoder_ffn_dim
activation  activation_function     gelu
dropout     dropout                 0.1
max_len     max_position_embeddings
embedding_init_std scale_embedding  false
+ 0.0 : encoder_layerdrop decoder_layerdrop attention_dropout activation_dropout
+ true : is_encoder_decoder
= false : normalize_embedding add_bias_logits is_decoder
= true : static_position_embeddings
. num_hidden_layers num_key_value_heads decoder_vocab_size
"""
TABLES = {
    "bert": _BERT,
    "roberta": _BERT,
    "xlm-roberta": _BERT,
    "distilbert": """
n_layers    n_layers
d_model     dim
n_heads     n_heads
d_ff        hidden_dim
activation  activation              gelu
dropout     dropout                 0.1
norm_eps    -                       1e-12
max_len     max_position_embeddings 512
+ 0.0 : attention_dropout
+ false : sinusoidal_pos_embds
= false : is_decoder is_encoder_decoder
""",
    "gpt2": """
n_layers    n_layer
d_model     n_embd
n_heads     n_head
d_ff        n_inner                 null
activation  activation_function     gelu_new
dropout     resid_pdrop             0.1
norm_eps    layer_norm_epsilon      1e-5
max_len     n_positions
+ 0.0 : embd_pdrop attn_pdrop
= true : scale_attn_weights
= false : scale_attn_by_inverse_layer_idx is_encoder_decoder
= true false : is_decoder
""",
    "llama": """
n_layers    num_hidden_layers
d_model     hidden_size
n_heads     num_attention_heads
d_ff        intermediate_size
d_head      head_dim                null
max_len     max_position_embeddings
norm_eps    rms_norm_eps            1e-6
> n_heads : num_key_value_heads
> rope_base : rope_theta
> bias : attention_bias mlp_bias
+ 0.0 : attention_dropout
= false : use_sliding_window is_encoder_decoder
= true false : is_decoder
= null : sliding_window
= 1 null : partial_rotary_factor
= silu swish : hidden_act
+ silu : hidden_act
. rope_parameters rope_scaling
""",
    "marian": f"{_MARIAN}\n= false : normalize_before add_final_layer_norm\n= 0 : extra_pos_embeddings",
    "pegasus": f"{_MARIAN}\n= true : normalize_before add_final_layer_norm\n. extra_pos_embeddings",
}
GENERATION_CONFIG = "generation_config.json"
COMMON = """
= eager sdpa flash_attention_2 null : _attn_implementation attn_implementation
= 0 : chunk_size_feed_forward
= false : add_cross_attention
= null : cross_attention_hidden_size
= {} : pruned_heads
= null single_label_classification multi_label_classification : problem_type
. model_type architectures transformers_version torch_dtype dtype _name_or_path name_or_path tokenizer_class
. vocab_size pad_token_id bos_token_id eos_token_id sep_token_id cls_token_id mask_token_id unk_token_id prefix
. decoder_start_token_id tie_word_embeddings tie_encoder_decoder id2label label2id num_labels
. share_encoder_decoder_embeddings finetuning_task initializer_range init_std use_cache return_dict output_attentions
. output_hidden_states output_past gradient_checkpointing torchscript use_bfloat16 task_specific_params n_ctx
. tie_weights_ _attn_implementation_autoset _num_labels classifier_dropout classif_dropout qa_dropout
. seq_classif_dropout hidden_dropout directionality pretraining_tp pooler_fc_size pooler_num_attention_heads
. pooler_num_fc_layers pooler_size_per_head pooler_type reorder_and_upcast_attn summary_type summary_use_proj
. summary_activation summary_proj_to_labels summary_first_dropout n_special predict_special_tokens forced_eos_token_id
"""
GENERATION = """
beam_size      num_beams
length_penalty length_penalty
temperature    temperature
top_k          top_k
top_p          top_p
= 0 null : no_repeat_ngram_size encoder_no_repeat_ngram_size min_length
= 0.0 null : diversity_penalty epsilon_cutoff eta_cutoff
= 1.0 null : repetition_penalty encoder_repetition_penalty typical_p guidance_scale num_beam_groups num_return_sequences
= null : min_new_tokens min_p sequence_bias force_words_ids constraints forced_bos_token_id penalty_alpha dola_layers
= null : exponential_decay_length_penalty begin_suppress_tokens prompt_lookup_num_tokens
. do_sample max_length max_new_tokens max_time early_stopping suppress_tokens bad_words_ids forced_eos_token_id
. remove_invalid_values renormalize_logits return_dict_in_generate output_scores output_logits _from_model_config
. transformers_version bos_token_id eos_token_id pad_token_id decoder_start_token_id use_cache output_attentions
. output_hidden_states cache_implementation
"""
"""Settings of decoding, in `generation_config.json` or, of older versions, in `config.json`."""
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "silu": "silu", "swish": "silu"}
ACTIVATIONS |= {"gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh"}
"""Activations of transformers by our names."""
ACTIVATION_NAMES = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
"""The other way round."""
_ACTIVATIONS = ("gelu", "gelu-tanh", "relu", "silu")
_LAYER_NORM: dict[str, tuple[Any, ...]] = {"norm": ("layer",), "d_head": (None,)}
_ENCODER: dict[str, tuple[Any, ...]] = _LAYER_NORM | {
    "pre_norm": (False,),
    "positions": ("learned",),
    "embedding_norm": (True,),
    "bias": (True,),
    "activation": _ACTIVATIONS,
}
_DECODER: dict[str, tuple[Any, ...]] = {"pre_norm": (True,), "embedding_norm": (False,)}
_TRANSLATOR: dict[str, tuple[Any, ...]] = _LAYER_NORM | {
    "positions": ("sinusoidal",),
    "bias": (True, False),
    "activation": ("gelu", "relu"),
    "norm_eps": (None,),
    "embedding_norm": (False,),
    "output_bias": (False,),
}
FORMS: dict[str, dict[str, tuple[Any, ...]]] = {
    "distilbert": _ENCODER | {"n_segments": (0,), "norm_eps": (1e-12,)},
    "bert": _ENCODER,
    "roberta": _ENCODER,
    "xlm-roberta": _ENCODER,
    "llama": _DECODER | {"positions": ("rotary",), "norm": ("rms",), "activation": ("swiglu",)},
    "gpt2": {**_DECODER, **_LAYER_NORM, "positions": ("learned", "sinusoidal", "none"), "activation": _ACTIVATIONS},
    "pegasus": _TRANSLATOR | {"pre_norm": (True,)},
    "marian": _TRANSLATOR | {"pre_norm": (False,), "embedding_init_std": (None,)},
}
"""Of each family the values of settings that its classes have; others are free. The first is that of an import."""


def usual_eps(norm: str) -> float:
    """Return the epsilon of norms that our modules have without a setting."""
    return 1e-6 if norm == "rms" else 1e-5


def keys_of(table: str) -> Iterator[tuple[str, str, list[Any]]]:
    """Yield a mark or the name of a field, the key, and the values of each row, one key at a time."""
    for line in filter(None, table.splitlines()):
        first, *words = line.split()
        if first not in "=+>.":
            yield first, words[0], [*map(_literal, words[1:])]
            continue
        n_values = words.index(":") if first in "=+>" else 0
        values = words[:n_values] if first == ">" else [*map(_literal, words[:n_values])]
        yield from ((first, key, values) for key in words[n_values:] if key != ":")


def _literal(word: str) -> Any:
    try:
        return json.loads(word)
    except ValueError:
        return word


_KINDS = {
    "activation": ((str,), "a name"),
    "embedding_init_std": ((bool,), "true or false"),
    **dict.fromkeys(("max_len", "n_segments"), ((int,), "a whole number")),
}
"""Types of fields that are no numbers, or that no field of `ModelConfig` checks."""


def read_keys(table: str, config: Mapping[str, Any], where: str, others: str = "", optional: bool = False) -> Settings:
    """Return the fields that a table names, as they stand there; refuse what it does not hold.

    Args:
        table: the rows.
        config: keys and values of a file.
        where: its name.
        others: rows of keys that are read elsewhere.
        optional: leave out a field without a default whose key is missing.

    Raises:
        CheckpointError: a key without a default is missing, or has a value of another type.
        UsageError: a key is unknown, has a value that is computed otherwise, or differs from another of its field.
    """
    found, known = Settings(), {key for _, key, _ in keys_of(others)}
    for mark, key, values in keys_of(table):
        known.add(key)
        if mark == "=" and key in config and config[key] not in values:
            allowed = " or ".join(json.dumps(value) for value in values)
            raise UsageError(f"{where}: {key} is {json.dumps(config[key])[:60]}, and only {allowed} is read")
        if mark in "=+>." or (optional and key not in config):
            continue
        if key not in config and not values:
            raise CheckpointError(f"{where}: {key} is missing")
        value = config.get(key, *values)
        if found.setdefault(mark, value) != value:
            raise UsageError(f"{where}: encoder and decoder differ: {key} is {value!r}, not {found[mark]!r}")
        kinds, words = _KINDS.get(mark, ((int, float), "a number"))
        if (value is not None or not values) and type(value) not in kinds:
            raise CheckpointError(f"{where}: {key} should be {words}, not {str(value)[:60]!r}")
    if unknown := sorted(config.keys() - known):
        raise UsageError(f"{where} names {unknown[0][:80]!r}, which is not known here", "import another model")
    return found


def read_settings(family: str, config: Mapping[str, Any]) -> Settings:
    """Return the settings of a model, and `max_len` and `n_segments` as the file names them.

    Raises:
        UsageError, CheckpointError: of another kind than our modules; the key is named.
    """
    s = read_keys(TABLES[family] + COMMON, config, "config.json", GENERATION)
    if (name := s.get("activation", "gelu")) not in ACTIVATIONS:
        hint = f"there are {', '.join(ACTIVATIONS)}"
        raise UsageError(f"config.json: the activation {str(name)[:40]!r} is not known here", hint)
    if "activation" in s:
        s["activation"] = ACTIVATIONS[name]
    if "embedding_init_std" in s:
        s["embedding_init_std"] = None if s["embedding_init_std"] else 1.0
    # An embedding_init_std of 1 is one without the factor √d_model.
    s = Settings(embedding_init_std=1.0, dropout=0.0) | {name: values[0] for name, values in FORMS[family].items()} | s
    s["d_ff"] = s["d_ff"] or 4 * s["d_model"]  # null in GPT-2
    if s.get("norm_eps") == usual_eps(s["norm"]):
        s["norm_eps"] = None
    if s["positions"] == "rotary":
        base = {"rope_theta": config.get("rope_theta", 10_000.0)}
        for name in ("rope_scaling", "rope_parameters"):  # either may say that they are scaled
            if not isinstance(scaled := config.get(name) or {}, dict):
                raise CheckpointError(f"config.json: {name} should be a table")
            base["rope_theta"] = read_keys(_ROTARY, base | scaled, f"config.json: {name}")["rope_base"]
        s["rope_base"] = base["rope_theta"]
    if s.get("d_head") is not None and s["d_head"] * s["n_heads"] == s["d_model"]:
        s["d_head"] = None
    return s


def write_settings(family: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a model with these fields of `ModelConfig`, `max_len` and `n_segments`."""
    values = {**fields, "activation": ACTIVATION_NAMES.get(fields["activation"])}
    values["norm_eps"] = fields["norm_eps"] or usual_eps(fields["norm"])
    values["embedding_init_std"] = fields["embedding_init_std"] is None
    config = dict[str, Any]()
    for mark, key, there in keys_of(TABLES[family]):
        if mark in ("+", ">"):
            config[key] = there[0] if mark == "+" else values[there[0]]
        elif mark not in "=." and key != "-":
            config[key] = values[mark]
    return config


def read_decoding(
    config: Mapping[str, Any], generation: Mapping[str, Any], kind: str, never: frozenset[int]
) -> DecodeConfig:
    """Return the settings of decoding that a folder names; the usual ones of decoding otherwise.

    Args:
        config: `config.json`, where older versions have them.
        generation: `generation_config.json`.
        kind: of the model.
        never: ids that are never written here.

    Raises:
        UsageError: a key that changes what is written, and is not read.
    """
    keys = {key for _, key, _ in keys_of(GENERATION)}
    named = {key: value for key, value in config.items() if key in keys} | dict(generation)
    found = {
        name: value
        for name, value in read_keys(GENERATION, named, GENERATION_CONFIG, optional=True).items()
        if value is not None
    }
    if isinstance(named.get("eos_token_id"), list) and len(named["eos_token_id"]) > 1:
        raise UsageError(f"{GENERATION_CONFIG}: eos_token_id names several ends of a text, and one is read")
    for key in ("suppress_tokens", "bad_words_ids"):
        ids = named.get(key) or []
        ids = [i[0] if isinstance(i, list) and len(i) == 1 else i for i in (ids if isinstance(ids, list) else [ids])]
        if not all(type(i) is int and i in never for i in ids):
            raise UsageError(f"{GENERATION_CONFIG}: {key} names tokens that are written here")
    used = ("beam_size", "length_penalty")
    if kind == "language_model":
        used = ("temperature", "top_k", "top_p") if named.get("do_sample") is True else ()
        if found.get("beam_size", 1) != 1:
            raise UsageError(f"{GENERATION_CONFIG}: num_beams, a search for a language model's text, is not read")
    return build(DecodeConfig, {name: found[name] for name in used if name in found}, "decode", GENERATION_CONFIG)


def passed_on(family: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that numbers of a model depend on, of a `config.json` that `read_settings` has read."""
    others = "vocab_size decoder_vocab_size pad_token_id tie_word_embeddings share_encoder_decoder_embeddings".split()
    marks = [key for mark, key, _ in keys_of(TABLES[family]) if mark not in (".", "+")]
    return {key: config[key] for key in (*marks, *others) if key in config}
