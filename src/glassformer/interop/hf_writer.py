"""Write a model as a folder of Hugging Face's transformers, which is not imported.

Every function yields names and new tensors. Where a class has always a bias, a missing one is zeros; where it adds
positions to the embedding, missing ones are a table of zeros.

Two identities are used. Scaled embeddings: where a class has no factor √D, the table is multiplied by it, and for a
tied head the last norm is divided by it. Permuted features: some classes compute sinusoids with all sines first; since
nothing in a Transformer depends on the order of the features of its residual stream, all parameters that read or write
it are permuted in the same way.

The classes are those of the library where one computes the same, or else those of `hf_class.py`; a folder holds no
code. Those of encoders like BERT are in `hf_encoders.py`, and the tokenizer in `hf_tokenizer_writer.py`.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, cast

import torch
from torch import Tensor, nn

from glassformer.config import DecodeConfig
from glassformer.errors import UsageError
from glassformer.interop.choose import HF_CLASSES
from glassformer.interop.hf_encoder_classes import ENCODER_CLASSES
from glassformer.interop.hf_encoders import encoder_config, encoder_names, label_config, sentence_files
from glassformer.interop.hf_families import ACTIVATION_NAMES
from glassformer.interop.hf_tokenizer_writer import tokenizer_config, tokenizer_file
from glassformer.models import LanguageModel, MaskedLanguageModel, TextClassifier, Translator
from glassformer.models.build import d_ff_of, d_head_of
from glassformer.models.encoder_models import TextEmbedder, TextEncoder, TokenClassifier
from glassformer.models.ensemble import members_of
from glassformer.nn.ngram_embeddings import BigramEmbedding
from glassformer.runs.folder import TOKENIZER
from glassformer.runs.model_folder import tensor_chunks
from glassformer.text.decision import Decision
from glassformer.text.tokenizer import Tokenizer

Tensors = dict[str, Tensor]
Named = Iterator[tuple[str, Tensor]]


def parameters_of(model: LanguageModel | Translator) -> Tensors:
    """Return the parameters of a model by name, as copies in float32; of tied ones one name."""
    return {name: p.detach().cpu().float().clone() for name, p in model.named_parameters()}


def with_scale_folded(model: LanguageModel) -> Tensors:
    """Return the parameters of a pre-norm language model whose embedding is not scaled."""
    p, scale = parameters_of(model), model.embedding.scale
    if scale != 1 and "output.weight" not in p:
        for name in ("decoder.norm.weight", "decoder.norm.bias"):
            if name in p:
                p[name] = p[name] / scale
    p["embedding.weight"] = p["embedding.weight"] * scale
    return p


@torch.no_grad()
def in_units(model: nn.Module, decision: Decision) -> nn.Module:
    """Return a copy of a regressor, or of several, that gives numbers in the units of its data.

    Raises:
        UsageError: they are too large for float32.
    """
    model, (mean, sd) = copy.deepcopy(model), decision.scale
    for member in members_of(model):
        head = cast(nn.Linear, member.head)
        for p, shift in ((head.weight, 0.0), (head.bias, mean)):
            p.copy_(p.double() * sd + shift)
            if not p.isfinite().all():
                message = f"numbers of mean {mean:g} and standard deviation {sd:g} do not fit into float32"
                raise UsageError(message, "use --to onnx")
    return model


def word_ngrams(tokenizer: Tokenizer) -> torch.Tensor:
    """Return the n-grams of each token of a vocabulary, (V, G), zeros behind them."""
    assert tokenizer.ngrams is not None
    words = [f"<{word}>" for word in tokenizer.vocabulary()]
    rows = [tokenizer.ngrams.lookup(word) if i > tokenizer.mask_id else [] for i, word in enumerate(words)]
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])


def registered_names(model: nn.Module, word_ngrams: Tensor | None) -> dict[str, Tensor]:
    """Return the tensors of a registered class: parameters, keys of bigrams, n-grams of words (V, G) if any."""
    names = {f"model.{name}": p.detach().cpu().float() for name, p in model.named_parameters()}
    for name, part in model.named_modules():
        if isinstance(part, BigramEmbedding):
            names[f"model.{name}.keys"] = part.keys.cpu()
    return names | ({} if word_ngrams is None else {"word_ngrams": word_ngrams})


def llama_names(model: LanguageModel) -> Named:
    """Yield the tensors of `llama` and of classes with its names: `arcee`, `starcoder2`."""
    p, kind = with_scale_folded(model), model.config.activation
    yield "model.embed_tokens.weight", p["embedding.weight"]
    yield from with_suffixes("model.norm", p, "decoder.norm")
    inner = {"up_proj": "c_fc", "down_proj": "c_proj"}
    if model.config.norm == "rms":
        inner = {name: name for name in ("gate_proj", "up_proj", "down_proj")}
    for i in range(len(model.decoder.layers)):
        ours, theirs = f"decoder.layers.{i}", f"model.layers.{i}"
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            yield from with_suffixes(f"{theirs}.self_attn.{name}", p, f"{ours}.self_attention.{name}")
        for name, other in inner.items():
            if name != "gate_proj" or kind == "swiglu":
                yield from with_suffixes(f"{theirs}.mlp.{other}", p, f"{ours}.feed_forward.{name}")
        yield from with_suffixes(f"{theirs}.input_layernorm", p, f"{ours}.self_residual.norm")
        yield from with_suffixes(f"{theirs}.post_attention_layernorm", p, f"{ours}.feed_forward_residual.norm")
    if "output.weight" in p:
        yield "lm_head.weight", p["output.weight"]


def gpt2_names(model: LanguageModel) -> Named:
    """Yield the tensors of `gpt2`, whose linear layers are transposed, and queries, keys and values one of them."""
    p = with_scale_folded(model)
    yield "transformer.wte.weight", p["embedding.weight"]
    yield "transformer.wpe.weight", positions_of(model)
    yield from with_suffixes("transformer.ln_f", p, "decoder.norm")
    for i in range(len(model.decoder.layers)):
        ours, theirs = f"decoder.layers.{i}", f"transformer.h.{i}"
        parts = [f"{ours}.self_attention.{name}" for name in ("q_proj", "k_proj", "v_proj")]
        yield f"{theirs}.attn.c_attn.weight", torch.cat([p[f"{part}.weight"] for part in parts]).T.contiguous()
        yield f"{theirs}.attn.c_attn.bias", torch.cat([bias_of(p, part) for part in parts])
        for other, name in (
            ("attn.c_proj", "self_attention.o_proj"),
            ("mlp.c_fc", "feed_forward.up_proj"),
            ("mlp.c_proj", "feed_forward.down_proj"),
        ):
            yield f"{theirs}.{other}.weight", p[f"{ours}.{name}.weight"].T.contiguous()
            yield f"{theirs}.{other}.bias", bias_of(p, f"{ours}.{name}")
        yield from with_suffixes(f"{theirs}.ln_1", p, f"{ours}.self_residual.norm")
        yield from with_suffixes(f"{theirs}.ln_2", p, f"{ours}.feed_forward_residual.norm")
    if "output.weight" in p:
        yield "lm_head.weight", p["output.weight"]


def seq2seq_names(model: Translator) -> Named:
    """Yield the tensors of `pegasus` (pre-norm) and `marian` (post-norm), whose sinusoids have all sines first."""
    d_model, pre_norm = model.config.d_model, model.config.pre_norm
    order = sines_first(d_model)
    p = {name: permuted(name, tensor, order) for name, tensor in parameters_of(model).items()}
    tables = {"encoder": p.get("src_embedding.weight", p["tgt_embedding.weight"]), "decoder": p["tgt_embedding.weight"]}
    tied = "output.weight" not in p
    if tied:
        yield "model.shared.weight", tables["decoder"]
    else:
        yield "lm_head.weight", p["output.weight"]
        if pre_norm:
            yield "model.shared.weight", tables["decoder"].clone()
    for stack, table in tables.items():
        if not tied:
            yield f"model.{stack}.embed_tokens.weight", table
        if pre_norm:
            yield f"model.{stack}.embed_positions.weight", positions_of(model)[:, order].contiguous()
            yield from with_suffixes(f"model.{stack}.layer_norm", p, f"{stack}.norm")
        for i in range(len(getattr(model, stack).layers)):
            yield from _seq2seq_layer(f"model.{stack}.layers.{i}", p, f"{stack}.layers.{i}")
    yield "final_logits_bias", torch.zeros(1, tables["decoder"].shape[0])


def _seq2seq_layer(theirs: str, p: Tensors, ours: str) -> Named:
    blocks = {"self_attention": ("self_attn", "self_residual"), "cross_attention": ("encoder_attn", "cross_residual")}
    for block, (other, residual) in blocks.items():
        if f"{ours}.{block}.q_proj.weight" not in p:
            continue
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            part = f"{theirs}.{other}.{'out_proj' if name == 'o_proj' else name}"
            yield f"{part}.weight", p[f"{ours}.{block}.{name}.weight"]
            yield f"{part}.bias", bias_of(p, f"{ours}.{block}.{name}")
        yield from with_suffixes(f"{theirs}.{other}_layer_norm", p, f"{ours}.{residual}.norm")
    for name, other in (("up_proj", "fc1"), ("down_proj", "fc2")):
        yield f"{theirs}.{other}.weight", p[f"{ours}.feed_forward.{name}.weight"]
        yield f"{theirs}.{other}.bias", bias_of(p, f"{ours}.feed_forward.{name}")
    yield from with_suffixes(f"{theirs}.final_layer_norm", p, f"{ours}.feed_forward_residual.norm")


def with_suffixes(theirs: str, p: Tensors, ours: str) -> Named:
    """Yield a weight, and the bias if there is one."""
    for name in ("weight", "bias"):
        if f"{ours}.{name}" in p:
            yield f"{theirs}.{name}", p[f"{ours}.{name}"]


def bias_of(p: Tensors, name: str) -> Tensor:
    """Return the bias of a linear layer, or zeros."""
    return p.get(f"{name}.bias", torch.zeros(p[f"{name}.weight"].shape[0]))


def positions_of(model: LanguageModel | Translator) -> Tensor:
    """Return the positions that are added to the embedding, (P, D); zeros if there are none."""
    embedding = model.embedding if isinstance(model, LanguageModel) else model.tgt_embedding
    if embedding.positions is None:
        return torch.zeros(model.max_len, model.config.d_model)
    return embedding.positions(torch.arange(model.max_len)[None])[0].detach().float().clone()


def sines_first(d_model: int) -> Tensor:
    """Return the order of features in which the sines of our sinusoids come first, then the cosines."""
    return torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])


READS, WRITES = ("q_proj", "k_proj", "v_proj", "up_proj"), ("o_proj", "down_proj", "norm")
"""Parts with the features of the residual stream as columns of their weights, and as rows of weights and biases."""


def permuted(name: str, tensor: Tensor, order: Tensor) -> Tensor:
    """Return a parameter of a model whose residual stream has its features in another order."""
    *_, part, kind = name.split(".")
    if part in READS:
        return tensor[:, order] if kind == "weight" else tensor
    if part in WRITES:
        return tensor[order]
    return tensor[:, order]  # embeddings, and the output projection


Json = dict[str, Any]


def write_hf(
    model: nn.Module, tokenizer: Tokenizer, decode: DecodeConfig, architecture: str, labels: Sequence[str] = ()
) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each file.

    The model may be an ensemble of classifiers or masked language models; `labels` are in the order of the logits.
    """
    first = members_of(model)[0]
    of_encoders = {its: name for (name, _), its in ENCODER_CLASSES.items()}
    model_type = (of_encoders | {its: name for name, its in HF_CLASSES.items()}).get(architecture, "glassformer")
    if model_type == "glassformer":
        has_ngrams = isinstance(first, TextEncoder) and first.ngrams is not None
        table = word_ngrams(tokenizer).to(torch.int32) if has_ngrams else None
        names, config = registered_names(model, table).items(), _registered_config(model, table, labels)
    elif isinstance(first, TextEncoder):
        names, config = encoder_names(first, model_type), encoder_config(first, model_type)
        config |= label_config(labels, first.several) if isinstance(first, TextClassifier) else {}
    elif isinstance(first, Translator):
        names, config = seq2seq_names(first), _seq2seq_config(first, model_type)
    else:
        assert isinstance(first, LanguageModel)
        names = gpt2_names(first) if model_type == "gpt2" else llama_names(first)
        config = _gpt2_config(first) if model_type == "gpt2" else _llama_config(first, model_type)
    is_lm = isinstance(first, LanguageModel)
    ids = {"pad_token_id": 0, "bos_token_id": 3 if is_lm else 2, "eos_token_id": 3}
    if tokenizer.special is not None:
        ids = {"pad_token_id": tokenizer.pad_id}
        first_of = [i for i in (tokenizer.bos_id, tokenizer.eos_id) if i >= 0]
        ids |= {"bos_token_id": first_of[0], "eos_token_id": first_of[-1]} if is_lm and first_of else {}
    kind = {"model_type": model_type, "architectures": [architecture], "dtype": "float32"}
    # Of the registered classes only that of a translator has two names for one tensor.
    named_twice = model_type != "glassformer" or isinstance(first, Translator)
    tied = {"tie_word_embeddings": named_twice and getattr(first, "output", None) is None}
    cache = {"use_cache": model_type != "glassformer"}
    yield "config.json", _json(kind | config | ids | tied | {"vocab_size": tokenizer.vocab_size})
    if isinstance(first, Translator | LanguageModel):
        yield "generation_config.json", _json(ids | cache | _generation(first, decode, tokenizer))
    yield "model.safetensors", b"".join(tensor_chunks(dict(names), {"format": "pt"}))
    tokens_alone = tokenizer.without_ngrams() if tokenizer.ngrams or tokenizer.bigrams else tokenizer
    masks = isinstance(first, MaskedLanguageModel)
    yield TOKENIZER, tokenizer_file(tokens_alone, isinstance(first, Translator), masks)
    yield "tokenizer_config.json", _json(tokenizer_config(first, tokenizer))
    if isinstance(first, TextEmbedder):
        yield from sentence_files(first)


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
        config |= label_config(labels, first.several)
        if isinstance(first, TokenClassifier):
            del config["problem_type"]
        if first.n_classes == 1:
            config |= {"problem_type": "regression", "id2label": {0: "number"}, "label2id": {"number": 0}}
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
        "hidden_act": "silu" if c.activation == "swiglu" else ACTIVATION_NAMES[c.activation],
        "max_position_embeddings": model.max_len,
        "rope_theta": c.rope_base,
        "rope_parameters": {"rope_type": "default", "rope_theta": c.rope_base},
    }
    if model_type == "starcoder2":
        dropout = dict.fromkeys(("residual_dropout", "embedding_dropout", "attention_dropout"), 0.0)
        return config | dropout | {"norm_epsilon": c.norm_eps or 1e-5, "use_bias": c.bias, "sliding_window": None}
    return config | {
        "rms_norm_eps": c.norm_eps or 1e-6,
        "attention_bias": c.bias,
        "mlp_bias": c.bias,
        "attention_dropout": 0.0,
    }


def _gpt2_config(model: LanguageModel) -> Json:
    c = model.config
    dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    return dropout | {
        "n_embd": c.d_model,
        "n_inner": d_ff_of(c),
        "n_layer": len(model.decoder.layers),
        "n_head": c.n_heads,
        "n_positions": model.max_len,
        "activation_function": ACTIVATION_NAMES[c.activation],  # its default is an approximation of GELU
        "layer_norm_epsilon": c.norm_eps or 1e-5,
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


def _generation(model: Translator | LanguageModel, decode: DecodeConfig, tokenizer: Tokenizer) -> Json:
    """Return the settings of generation: those of the run, and the tokens that it never generates."""
    if isinstance(model, LanguageModel):
        sampled = decode.temperature > 0
        never = [i for i in tokenizer.without_text if i != tokenizer.eos_id]
        settings: Json = {"do_sample": sampled, "suppress_tokens": never or None}
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


def _json(value: Any) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode("utf-8")
