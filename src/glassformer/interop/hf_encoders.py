"""Write encoders of texts as classes of transformers: BERT and DistilBERT (`hf_encoder_classes.py`).

The names are those that `hf_families.py` reads. Two classes share one logit here: the other's weights are zeros there.
A bare encoder is also a folder of sentence-transformers, which pools as the run does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from glassformer.errors import UsageError
from glassformer.interop.hf_encoder_classes import POOLING_MODES
from glassformer.interop.hf_families import ACTIVATION_NAMES, ENCODERS, MASKED_HEADS, POOLERS
from glassformer.models import MaskedLanguageModel, TextClassifier
from glassformer.models.build import d_ff_of
from glassformer.models.encoder_models import TextEmbedder, TextEncoder

Named = Iterator[tuple[str, Tensor]]


def encoder_names(model: TextEncoder, family: str) -> Named:
    """Yield the tensors of a class of a family."""
    names = ENCODERS[family]
    p = {name: tensor.detach().cpu().float().clone() for name, tensor in model.named_parameters()}
    prefix = "" if isinstance(model, TextEmbedder) else names.prefix
    d_model = model.config.d_model
    yield f"{prefix}embeddings.word_embeddings.weight", p["embedding.weight"]
    yield f"{prefix}embeddings.position_embeddings.weight", p["embedding.positions.weight"]
    if family == "bert":
        yield f"{prefix}embeddings.token_type_embeddings.weight", p.get("segments.weight", torch.zeros(1, d_model))
    yield from _pair(p, f"{prefix}embeddings.LayerNorm", "embedding.norm")
    for i in range(len(model.encoder.layers)):
        theirs, ours = prefix + names.layer.format(i), f"encoder.layers.{i}."
        for name, source in names.attention.items():
            yield from _pair(p, theirs + source, f"{ours}self_attention.{name}")
        yield from _pair(p, theirs + names.norms[0], f"{ours}self_residual.norm")
        yield from _pair(p, theirs + names.up, f"{ours}feed_forward.up_proj")
        yield from _pair(p, theirs + names.down, f"{ours}feed_forward.down_proj")
        yield from _pair(p, theirs + names.norms[1], f"{ours}feed_forward_residual.norm")
    if isinstance(model, TextClassifier):
        yield from _classifier(model, p, family)
    elif isinstance(model, MaskedLanguageModel):
        yield from _masked(p, family)
    elif family == "bert":
        yield "pooler.dense.weight", torch.zeros(d_model, d_model)
        yield "pooler.dense.bias", torch.zeros(d_model)


def _pair(p: dict[str, Tensor], theirs: str, ours: str) -> Named:
    for part in ("weight", "bias"):
        yield f"{theirs}.{part}", p[f"{ours}.{part}"]


def _classifier(model: TextClassifier, p: dict[str, Tensor], family: str) -> Named:
    pooler, head, _ = POOLERS[family]
    yield from _pair(p, f"bert.{pooler}" if family == "bert" else pooler, "pooler.dense")
    for part in ("weight", "bias"):
        rows = p[f"head.{part}"]
        if model.n_classes == 2 and not model.several:
            rows = torch.cat([torch.zeros_like(rows), rows])
        yield f"{head}.{part}", rows


def _masked(p: dict[str, Tensor], family: str) -> Named:
    dense, norm, projection, decoder = MASKED_HEADS[family]
    yield from _pair(p, dense, "mlm_transform")
    yield from _pair(p, norm, "mlm_norm")
    yield f"{projection}.bias", p["output_bias"]
    if "output.weight" in p:
        yield f"{projection}.{decoder}.weight" if decoder else f"{projection}.weight", p["output.weight"]


def encoder_config(model: TextEncoder, family: str) -> dict[str, Any]:
    """Return the settings of the encoder in `config.json`."""
    c = model.config
    values = {
        "n_layers": len(model.encoder.layers),
        "d_model": c.d_model,
        "n_heads": c.n_heads,
        "d_ff": d_ff_of(c),
        "activation": ACTIVATION_NAMES[c.activation],
        "dropout": c.dropout,
    }
    config: dict[str, Any] = {ENCODERS[family].keys[name]: value for name, value in values.items()}
    config["max_position_embeddings"] = model.max_len
    if family == "distilbert":
        return config | {"attention_dropout": 0.0, "sinusoidal_pos_embds": False}
    eps = 1e-5 if c.norm_eps is None else c.norm_eps
    config |= {"layer_norm_eps": eps, "type_vocab_size": max(1, c.n_segments)}
    return config | {"attention_probs_dropout_prob": 0.0}


def label_config(labels: Sequence[str], several: bool) -> dict[str, Any]:
    """Return the classes, and whether a text may have several, in `config.json`."""
    ids = {name: i for i, name in enumerate(labels)}
    problem = f"{'multi' if several else 'single'}_label_classification"
    return {"id2label": dict(enumerate(labels)), "label2id": ids, "problem_type": problem}


def sentence_files(model: TextEmbedder) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of the files that sentence-transformers reads beside an encoder.

    Raises:
        UsageError: it has no such pooling.
    """
    pooling = model.config.pooling
    if pooling not in POOLING_MODES:
        raise UsageError(f"sentence-transformers pools in no such way: model.pooling {pooling}", "use --to onnx")
    kinds = (("", "Transformer"), ("1_Pooling", "Pooling"))
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(kinds)
    ]
    modes = {f"pooling_mode_{name}": name == POOLING_MODES[pooling] for name in POOLING_MODES.values()}
    yield "modules.json", _json(modules)
    yield "1_Pooling/config.json", _json({"word_embedding_dimension": model.config.d_model, **modes})
    yield "sentence_bert_config.json", _json({"max_seq_length": model.max_len, "do_lower_case": False})


def _json(value: Any) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode("utf-8")
