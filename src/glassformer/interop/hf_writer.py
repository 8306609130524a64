"""Write a model as a folder of Hugging Face's transformers, which is not imported.

Where a class adds positions to the embedding, missing ones are a table of zeros.

Two identities are used. Scaled embeddings: where a class has no factor √D, the table is multiplied by it, and for a
tied head the last norm is divided by it. Permuted features: some classes compute sinusoids with all sines first; since
nothing in a Transformer depends on the order of the features of its residual stream, all parameters that read or write
it are permuted in the same way.

A folder holds no code. Names are those of `names.py`, keys of `config.json` those of `hf_settings.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from glassformer.config import DecodeConfig
from glassformer.interop.hf_reader import residual_axes, sines_first
from glassformer.interop.hf_settings import CLASSES, GENERATION_CONFIG, write_settings
from glassformer.interop.hf_tokenizer import json_bytes, tokenizer_config, tokenizer_file
from glassformer.interop.names import PREFIXES, rows, to_theirs
from glassformer.models import LanguageModel, MaskedLanguageModel, TextClassifier, Translator
from glassformer.models.build import d_ff_of, d_head_of
from glassformer.models.encoder_models import TextEncoder
from glassformer.nn.embeddings import TokenEmbedding
from glassformer.runs.folder import TOKENIZER
from glassformer.runs.model_folder import tensor_chunks
from glassformer.text.tokenizer import Tokenizer

Json = dict[str, Any]
Tensors = dict[str, Tensor]


def tensors_of(model: TextEncoder | LanguageModel | Translator, family: str, kind: str) -> Tensors:
    """Return the tensors of a model under the names of a family."""
    p = {name: x.detach().cpu().float().clone() for name, x in model.named_parameters()}  # of tied ones one name
    prefix = PREFIXES.get(family, "model.")
    if isinstance(model, LanguageModel):
        _fold_scale(p, model.embedding.scale)
        if family == "gpt2":
            p["embedding.positions.weight"] = positions_of(model.embedding, model.max_len)
    if isinstance(model, Translator):
        return _of_translator(p, model, family)
    if isinstance(model, TextClassifier) and model.n_classes == 2 and not model.several:
        p |= {name: torch.cat([torch.zeros_like(p[name]), p[name]]) for name in ("head.weight", "head.bias")}
    if family == "bert":
        p.setdefault("segments.weight", torch.zeros(1, model.config.d_model))
    return to_theirs(rows(family, model.config.n_layers, prefix), kind, p)


def _fold_scale(p: Tensors, scale: float) -> None:
    """Multiply an embedding by its factor, in place, and divide the last norm by it where the head is tied."""
    if scale != 1 and "output.weight" not in p:
        for name in ("decoder.norm.weight", "decoder.norm.bias"):
            if name in p:
                p[name] = p[name] / scale
    p["embedding.weight"] = p["embedding.weight"] * scale


def _of_translator(p: Tensors, model: Translator, family: str) -> Tensors:
    """Return the tensors of a Marian or a Pegasus; where three matrices are not one, each has its own name."""
    order = sines_first(model.config.d_model)
    p = {name: x[(*[slice(None)] * axis, order)] for name, x in p.items() for axis in residual_axes(name)} | {
        name: x for name, x in p.items() if not residual_axes(name)
    }
    found = to_theirs(rows(family, model.config.n_layers, "model."), "translator", p)
    if model.output is not None:
        target = found["model.shared.weight"] if family == "pegasus" else found.pop("model.shared.weight")
        found["model.decoder.embed_tokens.weight"] = target.clone()
        found.setdefault("model.encoder.embed_tokens.weight", target.clone())
    for stack in ("encoder", "decoder"):
        if family == "pegasus":
            positions = positions_of(model.tgt_embedding, model.max_len)[:, order]
            found[f"model.{stack}.embed_positions.weight"] = positions.contiguous()
    return found | {"final_logits_bias": torch.zeros(1, len(p["tgt_embedding.weight"]))}


def positions_of(embedding: TokenEmbedding, n: int) -> Tensor:
    """Return the n positions that are added to an embedding, (n, D); zeros if there are none."""
    if embedding.positions is None:
        return torch.zeros(n, embedding.weight.shape[1])
    return embedding.positions(torch.arange(n)[None])[0].detach().float().clone()


def write_hf(
    model: TextEncoder | LanguageModel | Translator,
    tokenizer: Tokenizer,
    decode: DecodeConfig,
    architecture: str,
    labels: Sequence[str] = (),
) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each file; `labels` are in the order of the logits."""
    (family, kind), c = CLASSES[architecture], model.config
    names = tensors_of(model, family, kind)
    sizes = {"d_ff": d_ff_of(c), "d_head": d_head_of(c), "max_len": model.max_len, "n_segments": max(1, c.n_segments)}
    config = {"model_type": family, "architectures": [architecture], "dtype": "float32"}
    config |= write_settings(family, asdict(c) | sizes)
    if isinstance(model, TextClassifier):
        config["problem_type"] = f"{'multi' if model.several else 'single'}_label_classification"
        config |= {"id2label": dict(enumerate(labels)), "label2id": {name: i for i, name in enumerate(labels)}}
    if "rope_theta" in config:
        config["rope_parameters"] = {"rope_type": "default", "rope_theta": config["rope_theta"]}
    is_lm, is_tied = isinstance(model, LanguageModel), getattr(model, "output", None) is None
    ids: Json = {"pad_token_id": 0, "bos_token_id": 3 if is_lm else 2, "eos_token_id": 3}
    if tokenizer.special is not None:
        first_of = [i for i in (tokenizer.bos_id, tokenizer.eos_id) if i >= 0] if is_lm else []
        ids = {"pad_token_id": tokenizer.pad_id}
        ids |= {"bos_token_id": first_of[0], "eos_token_id": first_of[-1]} if first_of else {}
    if isinstance(model, Translator):
        ids |= {"decoder_start_token_id": 2, "forced_eos_token_id": None}
        config |= {"share_encoder_decoder_embeddings": is_tied} if family == "marian" else {}
    yield "config.json", json_bytes(config | ids | {"tie_word_embeddings": is_tied, "vocab_size": tokenizer.vocab_size})
    if isinstance(model, Translator | LanguageModel):
        yield GENERATION_CONFIG, json_bytes(ids | {"use_cache": True} | _generation(model, decode, tokenizer))
    yield "model.safetensors", b"".join(tensor_chunks(names, {"format": "pt"}))
    masks = isinstance(model, MaskedLanguageModel)
    yield TOKENIZER, tokenizer_file(tokenizer, isinstance(model, Translator), masks)
    yield "tokenizer_config.json", json_bytes(tokenizer_config(model, tokenizer))


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
        "suppress_tokens": [0, 2],
    }
