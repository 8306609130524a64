"""Write a model as a folder of Hugging Face's transformers, which is not imported.

The classes are those of the library where one computes the same, or else those of `hf_class.py`; a folder holds no
code. The tokenizer is the run's, in the library's generic class: that of a translator adds [EOS] to both sides, and
that of words leaves out n-grams and bigrams, which are no tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.config import DecodeConfig
from glassformer.interop.bake import word_ngrams
from glassformer.interop.choose import HF_CLASSES
from glassformer.interop.hf_names import gpt2_names, llama_names, registered_names, seq2seq_names
from glassformer.interop.tokenizer_file import tokenizer_file
from glassformer.models import LanguageModel, MaskedLanguageModel, TextClassifier, Translator
from glassformer.models.build import d_ff_of, d_head_of
from glassformer.models.ensemble import members_of
from glassformer.models.text_encoder import TextEncoder
from glassformer.runs.folder import TOKENIZER
from glassformer.runs.tensor_file import tensor_chunks
from glassformer.text.tokenizer import BOS, EOS, MASK, PAD, UNK, Tokenizer

Json = dict[str, Any]


def write_hf(
    model: nn.Module, tokenizer: Tokenizer, decode: DecodeConfig, architecture: str, labels: Sequence[str] = ()
) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each file.

    Args:
        model: the model, or an ensemble of classifiers or masked language models.
        tokenizer: its tokenizer.
        decode: settings of decoding, for `generation_config.json`.
        architecture: the name of the class, as `choose` returned it.
        labels: the classes of a classifier, in the order of the logits.
    """
    first = members_of(model)[0]
    model_type = next((name for name, its in HF_CLASSES.items() if its == architecture), "glassformer")
    if model_type == "glassformer":
        has_ngrams = isinstance(first, TextEncoder) and first.ngrams is not None
        table = word_ngrams(tokenizer).to(torch.int32) if has_ngrams else None
        names, config = registered_names(model, table).items(), _registered_config(model, table, labels)
    elif isinstance(first, Translator):
        names, config = seq2seq_names(first), _seq2seq_config(first, model_type)
    else:
        assert isinstance(first, LanguageModel)
        names = gpt2_names(first) if model_type == "gpt2" else llama_names(first)
        config = _gpt2_config(first) if model_type == "gpt2" else _llama_config(first, model_type)
    is_lm = isinstance(first, LanguageModel)
    ids = {"pad_token_id": 0, "bos_token_id": 3 if is_lm else 2, "eos_token_id": 3}
    kind = {"model_type": model_type, "architectures": [architecture], "dtype": "float32"}
    # Of the registered classes only that of a translator has two names for one tensor.
    named_twice = model_type != "glassformer" or isinstance(first, Translator)
    tied = {"tie_word_embeddings": named_twice and getattr(first, "output", None) is None}
    cache = {"use_cache": model_type != "glassformer"}
    yield "config.json", _json(kind | config | ids | tied | {"vocab_size": tokenizer.vocab_size})
    if isinstance(first, Translator | LanguageModel):
        yield "generation_config.json", _json(ids | cache | _generation(first, decode))
    yield "model.safetensors", b"".join(tensor_chunks(dict(names), {"format": "pt"}))
    tokens_alone = tokenizer.without_ngrams() if tokenizer.ngrams or tokenizer.bigrams else tokenizer
    masks = isinstance(first, MaskedLanguageModel)
    yield TOKENIZER, tokenizer_file(tokens_alone, isinstance(first, Translator), masks)
    yield "tokenizer_config.json", _json(_tokenizer_config(first))


def _registered_config(model: nn.Module, table: Tensor | None, labels: Sequence[str]) -> Json:
    """Return the settings of a registered class; `table` are the n-grams of each token, (V, G)."""
    members = members_of(model)
    first: Any = members[0]
    config: Json = {"settings": asdict(first.config), "max_position_embeddings": first.max_len}
    config |= {"n_members": len(members)}
    if isinstance(first, TextEncoder):
        if table is not None and first.ngrams is not None:
            config |= {"n_ngrams": len(first.ngrams.weight), "n_word_ngrams": table.shape[1]}
        config |= {"n_bigrams": 0 if first.bigrams is None else len(first.bigrams.keys)}
    if isinstance(first, TextClassifier):
        config |= {"id2label": dict(enumerate(labels)), "label2id": {name: i for i, name in enumerate(labels)}}
        config |= {"problem_type": "single_label_classification"}
    if isinstance(first, Translator):
        config |= {"decoder_start_token_id": 2, "is_encoder_decoder": True}
    return config


def _llama_config(model: LanguageModel, model_type: str) -> Json:
    c = model.config
    config: Json = {
        "hidden_size": c.d_model,
        "intermediate_size": d_ff_of(c),
        "num_hidden_layers": len(model.decoder.layers),
        "num_attention_heads": c.n_heads,
        "num_key_value_heads": c.n_heads,
        "head_dim": d_head_of(c),
        "hidden_act": "silu" if c.activation == "swiglu" else c.activation,
        "max_position_embeddings": model.max_len,
        "rope_theta": 10_000.0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
    }
    if model_type == "starcoder2":
        dropout = dict.fromkeys(("residual_dropout", "embedding_dropout", "attention_dropout"), 0.0)
        return config | dropout | {"norm_epsilon": 1e-5, "use_bias": c.bias, "sliding_window": None}
    return config | {"rms_norm_eps": 1e-6, "attention_bias": c.bias, "mlp_bias": c.bias, "attention_dropout": 0.0}


def _gpt2_config(model: LanguageModel) -> Json:
    c = model.config
    dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    return dropout | {
        "n_embd": c.d_model,
        "n_inner": d_ff_of(c),
        "n_layer": len(model.decoder.layers),
        "n_head": c.n_heads,
        "n_positions": model.max_len,
        "activation_function": c.activation,  # its default is an approximation of GELU
        "layer_norm_epsilon": 1e-5,
    }


def _seq2seq_config(model: Translator, model_type: str) -> Json:
    c = model.config
    config: Json = {"d_model": c.d_model, "scale_embedding": model.tgt_embedding.scale != 1}
    for stack in ("encoder", "decoder"):
        config[f"{stack}_layers"] = len(getattr(model, stack).layers)
        config[f"{stack}_attention_heads"] = c.n_heads
        config[f"{stack}_ffn_dim"] = d_ff_of(c)
        config[f"{stack}_layerdrop"] = 0.0
    config |= {"activation_function": c.activation, "max_position_embeddings": model.max_len}
    config |= dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), 0.0)
    config |= {"decoder_start_token_id": 2, "forced_eos_token_id": None, "is_encoder_decoder": True}
    if model_type == "marian":
        config["share_encoder_decoder_embeddings"] = model.output is None
    return config


def _generation(model: Translator | LanguageModel, decode: DecodeConfig) -> Json:
    """Return the settings of generation: those of the run, and the tokens that it never generates."""
    if isinstance(model, LanguageModel):
        sampled = decode.temperature > 0
        settings: Json = {"do_sample": sampled, "suppress_tokens": [0, 1, 2, 4]}
        if sampled:
            settings |= {"temperature": decode.temperature, "top_k": decode.top_k, "top_p": decode.top_p}
        return settings | {"max_length": model.max_len}  # the prompt counted, as positions end there
    return {
        "num_beams": decode.beam_size,
        "length_penalty": decode.length_penalty,
        "max_length": min(decode.max_new_tokens, model.max_len),
        "decoder_start_token_id": 2,
        "forced_eos_token_id": None,
        "suppress_tokens": [0, 2],
    }


def _tokenizer_config(model: nn.Module) -> Json:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": PAD,
        "unk_token": UNK,
        "bos_token": EOS if isinstance(model, LanguageModel) else BOS,
        "eos_token": EOS,
        "mask_token": MASK,
        # "[PAD]" in a text is text, but [MASK] has to be found.
        "split_special_tokens": not isinstance(model, MaskedLanguageModel),
        "clean_up_tokenization_spaces": False,
        "model_max_length": getattr(model, "max_len", None),
        "padding_side": "left" if isinstance(model, LanguageModel) else "right",
    }


def _json(value: Any) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode("utf-8")
