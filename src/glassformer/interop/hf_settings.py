"""Settings of models in `config.json` of transformers: one table for each family, read both ways, and every other key.

A row is `ours  theirs  [default]`: a field of `ModelConfig` (or `max_len`, the positions of the model), the key there,
and its value where the key is missing, which is an error without a default; `-` stands for no key. Others begin with

    =   the key, and the values that it may have, since other ones are computed otherwise
    +   the key, and what an export writes; an import does without it
    >   a field that an export writes, and an import reads off the tensors or by itself
    .   keys that no number of a model depends on

A key in none of them is refused by its name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from glassformer.config import DecodeConfig
from glassformer.config.validation import build
from glassformer.errors import CheckpointError, UsageError

Settings = dict[str, Any]
"""Fields of `ModelConfig`."""
_STEMS = {"bert": "Bert", "distilbert": "DistilBert", "roberta": "Roberta", "xlm-roberta": "XLMRoberta"}
ENCODERS = tuple(_STEMS)
"""Families of encoders of texts."""
_FORMS = {
    "ForSequenceClassification": "classifier",
    "ForTokenClassification": "tagger",
    "ForMaskedLM": "masked_language_model",
    "ForPreTraining": "masked_language_model",
    "Model": "text_embedder",
}
CLASSES = {stem + form: (family, kind) for family, stem in _STEMS.items() for form, kind in _FORMS.items()} | {
    "GPT2LMHeadModel": ("gpt2", "language_model"),
    "GPT2Model": ("gpt2", "language_model"),
    "LlamaForCausalLM": ("llama", "language_model"),
    "ArceeForCausalLM": ("arcee", "language_model"),
    "Starcoder2ForCausalLM": ("starcoder2", "language_model"),
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
+ attention_probs_dropout_prob 0.0
= position_embedding_type absolute
= is_decoder false
= add_cross_attention false
= cross_attention_hidden_size null
= is_encoder_decoder false
= pruned_heads {}
. classifier_dropout pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type
. directionality gradient_checkpointing hidden_dropout
"""
_LLAMA = """
n_layers    num_hidden_layers
d_model     hidden_size
n_heads     num_attention_heads
d_ff        intermediate_size
d_head      head_dim                null
max_len     max_position_embeddings
> n_heads num_key_value_heads
> rope_base rope_theta
+ attention_dropout 0.0
= use_sliding_window false
= is_decoder true false
= add_cross_attention false
= is_encoder_decoder false
. pretraining_tp rope_parameters rope_scaling partial_rotary_factor
"""
_RMS = """
> bias attention_bias
> bias mlp_bias
= sliding_window null
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
+ encoder_layerdrop 0.0
+ decoder_layerdrop 0.0
+ attention_dropout 0.0
+ activation_dropout 0.0
+ is_encoder_decoder true
= normalize_embedding false
= add_bias_logits false
= static_position_embeddings true
= is_decoder false
= add_cross_attention false
. num_hidden_layers classif_dropout classifier_dropout share_encoder_decoder_embeddings gradient_checkpointing
. num_key_value_heads decoder_vocab_size init_std forced_eos_token_id decoder_start_token_id
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
+ attention_dropout 0.0
+ sinusoidal_pos_embds false
= is_decoder false
= add_cross_attention false
= is_encoder_decoder false
= pruned_heads {}
. qa_dropout seq_classif_dropout tie_weights_ output_past
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
+ embd_pdrop 0.0
+ attn_pdrop 0.0
= scale_attn_weights true
= scale_attn_by_inverse_layer_idx false
= add_cross_attention false
= is_encoder_decoder false
= is_decoder true false
= pruned_heads {}
. n_ctx reorder_and_upcast_attn summary_type summary_use_proj summary_activation summary_proj_to_labels
. summary_first_dropout n_special predict_special_tokens
""",
    "llama": f"{_LLAMA}{_RMS}\nactivation hidden_act silu\nnorm_eps rms_norm_eps 1e-6",
    "arcee": f"{_LLAMA}{_RMS}\nactivation hidden_act relu2\nnorm_eps rms_norm_eps 1e-5",
    "starcoder2": f"""{_LLAMA}
activation  hidden_act              gelu_pytorch_tanh
norm_eps    norm_epsilon            1e-5
dropout     residual_dropout        0.0
> bias use_bias
+ embedding_dropout 0.0
+ sliding_window null
= sliding_window null
""",
    "glassformer": """
> - n_members
> - n_ngrams
> - n_word_ngrams
> - n_bigrams
> - max_position_embeddings
> - is_encoder_decoder
. settings
""",
    "marian": f"{_MARIAN}\n= normalize_before false\n= add_final_layer_norm false\n= extra_pos_embeddings 0",
    "pegasus": f"{_MARIAN}\n= normalize_before true\n= add_final_layer_norm true\n. extra_pos_embeddings",
}

GENERATION_CONFIG = "generation_config.json"
COMMON = """
. model_type architectures auto_map transformers_version torch_dtype dtype _name_or_path name_or_path tokenizer_class
. vocab_size pad_token_id bos_token_id eos_token_id sep_token_id cls_token_id mask_token_id unk_token_id prefix
. decoder_start_token_id tie_word_embeddings tie_encoder_decoder id2label label2id num_labels problem_type
. finetuning_task initializer_range use_cache return_dict output_attentions output_hidden_states output_past
. gradient_checkpointing torchscript use_bfloat16 task_specific_params _attn_implementation_autoset _num_labels
= _attn_implementation eager sdpa flash_attention_2 null
= attn_implementation eager sdpa flash_attention_2 null
= chunk_size_feed_forward 0
"""
GENERATION = """
beam_size      num_beams
length_penalty length_penalty
temperature    temperature
top_k          top_k
top_p          top_p
= repetition_penalty 1.0 null
= no_repeat_ngram_size 0 null
= encoder_no_repeat_ngram_size 0 null
= encoder_repetition_penalty 1.0 null
= num_beam_groups 1 null
= diversity_penalty 0.0 null
= min_length 0 null
= min_new_tokens null
= typical_p 1.0 null
= epsilon_cutoff 0.0 null
= eta_cutoff 0.0 null
= min_p null
= sequence_bias null
= force_words_ids null
= constraints null
= forced_bos_token_id null
= exponential_decay_length_penalty null
= begin_suppress_tokens null
= penalty_alpha null
= guidance_scale 1.0 null
= dola_layers null
= prompt_lookup_num_tokens null
= num_return_sequences 1 null
. do_sample max_length max_new_tokens max_time early_stopping suppress_tokens bad_words_ids forced_eos_token_id
. remove_invalid_values renormalize_logits return_dict_in_generate output_scores output_logits _from_model_config
. transformers_version bos_token_id eos_token_id pad_token_id decoder_start_token_id use_cache output_attentions
. output_hidden_states cache_implementation
"""
"""Settings of decoding, in `generation_config.json` or, of older versions, in `config.json`."""
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "silu": "silu",
    "swish": "silu",
}
"""Activations of transformers by our names."""
ACTIVATION_NAMES = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())} | {"swiglu": "silu"}
"""The other way round; of a gated block that of its gate."""
FIXED: dict[str, Settings] = {
    "encoder": {"pre_norm": False, "positions": "learned", "embedding_norm": True, "embedding_init_std": 1.0},
    "gpt2": {"positions": "learned", "embedding_init_std": 1.0},
    "llama": {"norm": "rms", "positions": "rotary", "embedding_init_std": 1.0, "dropout": 0.0},
    "starcoder2": {"norm": "layer", "positions": "rotary", "embedding_init_std": 1.0},
    "marian": {"positions": "sinusoidal", "pre_norm": False, "bias": True},
    "pegasus": {"positions": "sinusoidal", "pre_norm": True, "bias": True},
}
"""What every model of a family has here; an embedding_init_std of 1 is one without the factor √d_model."""
FIXED["arcee"] = FIXED["llama"]
FIXED |= dict.fromkeys(("bert", "roberta", "xlm-roberta", "distilbert"), FIXED.pop("encoder"))


def usual_eps(norm: str) -> float:
    """Return the epsilon of norms that our modules have without a setting."""
    return 1e-6 if norm == "rms" else 1e-5


def _rows(table: str) -> Iterator[tuple[str, str, list[Any]]]:
    """Yield a mark or the name of a field, the key, and the values of each row; keys of numbers without a meaning."""
    for first, *words in filter(None, map(str.split, table.splitlines())):
        if first == ".":
            yield from ((first, key, []) for key in words)
        elif first == ">":
            yield first, words[1], [words[0]]
        else:
            yield first, words[0], [_literal(word) for word in words[1:]]


def _literal(word: str) -> Any:
    try:
        return json.loads(word)
    except ValueError:
        return word


def read_keys(table: str, config: Mapping[str, Any], where: str, others: str = "", optional: bool = False) -> Settings:
    """Return the fields that a table names, as they stand there; refuse what it does not hold.

    Raises:
        CheckpointError: a key without a default is missing, or two keys of one field differ.
        UsageError: a key is unknown, or has a value that is computed otherwise.
    """
    found, known = Settings(), {key for _, key, _ in _rows(others)}
    for mark, key, values in _rows(table):
        known.add(key)
        if mark == "=" and key in config and config[key] not in values:
            allowed = " or ".join(json.dumps(value) for value in values)
            raise UsageError(f"{where}: {key} is {json.dumps(config[key])[:60]}, and only {allowed} is read")
        if mark in ("=", "+", ".", ">"):
            continue
        if key not in config and not values:
            if optional:
                continue
            raise CheckpointError(f"{where}: {key} is missing")
        value = config[key] if key in config else values[0]
        if found.get(mark, value) != value:
            raise UsageError(
                f"{where}: encoder and decoder should be alike here, and {key} is {value!r}, not {found[mark]!r}"
            )
        found[mark] = _typed(mark, value, f"{where}: {key}")
    if unknown := sorted(config.keys() - known):
        raise UsageError(f"{where} names {unknown[0][:80]!r}, which is not known here", "import another model")
    return found


def _typed(field: str, value: Any, where: str) -> Any:
    """Return a value of a type that its field can have."""
    if field == "activation":
        if value not in [*ACTIVATIONS]:
            raise UsageError(
                f"{where} {str(value)[:40]!r} is no activation that is known here",
                f"there are {', '.join(ACTIVATIONS)}",
            )
        return ACTIVATIONS[value]
    if field == "embedding_init_std":
        if type(value) is not bool:
            raise CheckpointError(f"{where} should be true or false, not {str(value)[:60]!r}")
        return None if value else 1.0
    whole = field in ("n_layers", "d_model", "n_heads", "d_ff", "d_head", "max_len", "n_segments", "beam_size", "top_k")
    if value is not None and type(value) not in ((int,) if whole else (int, float)):
        raise CheckpointError(f"{where} should be a number, not {str(value)[:60]!r}")
    return value


def read_settings(family: str, config: Mapping[str, Any]) -> Settings:
    """Return the settings of a model, and `max_len` and `n_segments` as the file names them.

    Raises:
        UsageError, CheckpointError: of another kind than our modules; the key is named.
    """
    s = read_keys(TABLES[family] + COMMON, config, "config.json", GENERATION) | FIXED[family]
    if family == "gpt2":
        s["d_ff"] = s["d_ff"] or 4 * s["d_model"]
    if family == "llama":
        if s["activation"] != "silu":
            raise UsageError(
                f"config.json: the activation of a gated feed-forward block is silu here, not {config['hidden_act']}"
            )
        s["activation"] = "swiglu"
    if s.get("norm_eps") == usual_eps(s.get("norm", "layer")):
        s["norm_eps"] = None
    if s["positions"] == "rotary":
        s["rope_base"] = _rope_base(config)
    if s.get("d_head") is not None and s["d_head"] * s["n_heads"] == s["d_model"]:
        s["d_head"] = None
    return s


def _rope_base(config: Mapping[str, Any]) -> float:
    """Return the base of the wavelengths of rotary positions; refuse positions that are scaled, in either place."""
    base = config.get("rope_theta", 10_000.0)
    for name in ("rope_scaling", "rope_parameters"):
        scaled = config.get(name) or {}
        if not isinstance(scaled, dict):
            raise CheckpointError(f"config.json: {name} should be a table")
        kind = scaled.get("rope_type", scaled.get("type", "default"))
        if kind != "default":
            raise UsageError(f"config.json: {name} of the type {str(kind)[:40]!r} is not read, only unscaled positions")
        if unknown := sorted(scaled.keys() - {"rope_type", "type", "rope_theta", "partial_rotary_factor"}):
            raise UsageError(f"config.json: {name} names {unknown[0][:80]!r}, which is not known here")
        base = scaled.get("rope_theta", base)
        if scaled.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0)) not in (1, None):
            raise UsageError("config.json: partial_rotary_factor, positions of a part of each head, is not read")
    return _typed("rope_base", base, "config.json: rope_theta")


def write_settings(family: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a model with these fields of `ModelConfig`, `max_len` and `n_segments`."""
    values = {**fields, "activation": ACTIVATION_NAMES[fields["activation"]]}
    values["norm_eps"] = fields["norm_eps"] or usual_eps(fields["norm"])
    values["embedding_init_std"] = fields["embedding_init_std"] is None
    config = dict[str, Any]()
    for mark, key, there in _rows(TABLES[family]):
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
    keys = {key for _, key, _ in _rows(GENERATION)}
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
    marks = [key for mark, key, _ in _rows(TABLES[family]) if mark not in (".", "+")]
    return {key: config[key] for key in (*marks, *others) if key in config}
