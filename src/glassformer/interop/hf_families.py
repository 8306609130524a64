"""The tensors of BERT, DistilBERT, RoBERTa and GPT-2 in transformers, by our names.

Each reader takes every tensor once; `SourceTensors.finish` refuses what is left. What a form of the model has no use
for is left out by name, and the notes say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glassformer.errors import CheckpointError, UsageError
from glassformer.interop.ctranslate2_positions import find_positions
from glassformer.interop.source_folder import SourceTensors

Settings = dict[str, Any]
"""Fields of `ModelConfig`."""


@dataclass(frozen=True)
class EncoderNames:
    """Names of an encoder's tensors; those of a layer follow `layer`."""

    prefix: str
    layer: str
    attention: Mapping[str, str]
    norms: tuple[str, str]
    up: str
    down: str
    keys: Mapping[str, str]
    """Keys of the settings in `config.json`."""


_KEYS = {
    "n_layers": "num_hidden_layers",
    "d_model": "hidden_size",
    "n_heads": "num_attention_heads",
    "d_ff": "intermediate_size",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
}
BERT = EncoderNames(
    "bert.",
    "encoder.layer.{}.",
    {
        "q_proj": "attention.self.query",
        "k_proj": "attention.self.key",
        "v_proj": "attention.self.value",
        "o_proj": "attention.output.dense",
    },
    ("attention.output.LayerNorm", "output.LayerNorm"),
    "intermediate.dense",
    "output.dense",
    _KEYS,
)
ENCODERS = {
    "bert": BERT,
    "roberta": EncoderNames("roberta.", BERT.layer, BERT.attention, BERT.norms, BERT.up, BERT.down, _KEYS),
    "distilbert": EncoderNames(
        "distilbert.",
        "transformer.layer.{}.",
        {
            "q_proj": "attention.q_lin",
            "k_proj": "attention.k_lin",
            "v_proj": "attention.v_lin",
            "o_proj": "attention.out_lin",
        },
        ("sa_layer_norm", "output_layer_norm"),
        "ffn.lin1",
        "ffn.lin2",
        {
            "n_layers": "n_layers",
            "d_model": "dim",
            "n_heads": "n_heads",
            "d_ff": "hidden_dim",
            "activation": "activation",
            "dropout": "dropout",
        },
    ),
}
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "silu": "silu",
    "swish": "silu",
}
"""Activations of transformers by our names."""
ACTIVATION_NAMES = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
"""The other way round."""
POSITION_IDS = "embeddings.position_ids"
"""A buffer that older versions saved: 0, 1, 2, …"""


ROBERTAS = ("roberta", "xlm-roberta")
"""Families with the names and the positions of RoBERTa; they differ in their tokenizer."""
ENCODERS["xlm-roberta"] = ENCODERS["roberta"]


def number(config: Mapping[str, Any], key: str, default: Any = None, kind: type = int) -> Any:
    """Return a number of a `config.json`; raise CheckpointError where it is none."""
    value = config.get(key, default)
    if type(value) not in ((int,) if kind is int else (int, float)):
        raise CheckpointError(f"config.json: {key} should be a number, not {str(value)[:60]!r}")
    return kind(value)


def norm_eps(config: Mapping[str, Any], key: str, default: float, usual: float = 1e-5) -> float | None:
    """Return the epsilon of the norms; None where it is the usual one, which our modules have without a setting."""
    eps = number(config, key, default, float)
    return None if eps == usual else eps


def activation_of(config: Mapping[str, Any], key: str, default: str) -> str:
    """Return the activation by our name.

    Raises:
        UsageError: there is none like it here.
    """
    name = config.get(key, default)
    if name not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise UsageError(f"the activation {str(name)[:40]!r} ({key}) is none that is known here", f"there are {known}")
    return ACTIVATIONS[name]


def encoder_settings(family: str, config: Mapping[str, Any]) -> Settings:
    """Return the settings of a post-norm encoder with learned positions and a norm of the embedding.

    Raises:
        UsageError: it is of another kind.
    """
    keys = ENCODERS[family].keys
    kind = config.get("position_embedding_type", "absolute")
    if kind != "absolute":
        raise UsageError(f"positions of the type {str(kind)[:40]!r} are not read, only absolute ones")
    for name in ("is_decoder", "add_cross_attention"):
        if config.get(name):
            raise UsageError(f"an encoder with {name} is a decoder, which is not read")
    return {
        **{name: number(config, keys[name]) for name in ("n_layers", "d_model", "n_heads", "d_ff")},
        "dropout": number(config, keys["dropout"], 0.1, float),
        "norm_eps": 1e-12 if family == "distilbert" else number(config, "layer_norm_eps", 1e-12, float),
        "activation": activation_of(config, keys["activation"], "gelu"),
        "pre_norm": False,
        "positions": "learned",
        "embedding_norm": True,
        "embedding_init_std": 1.0,  # without the factor √d_model
    }


def encoder_state(
    family: str, settings: Settings, tensors: SourceTensors, first_position: int, max_len: int | None
) -> tuple[dict[str, Tensor], list[str]]:
    """Return the weights of an encoder with its embedding, and notes.

    Args:
        family: a key of `ENCODERS`.
        settings: `n_segments` is added.
        tensors: those of the source, without the prefix of the family.
        first_position: the row of the position table that the first token reads.
        max_len: rows to keep; all if None.
    """
    names, notes = ENCODERS[family], list[str]()
    tensors.leave_out(POSITION_IDS)
    d_model = settings["d_model"]
    state = {"embedding.weight": tensors.take("embeddings.word_embeddings.weight")}
    positions = tensors.take("embeddings.position_embeddings.weight")
    n_rows = max(0, len(positions) - first_position) if positions.dim() == 2 else 0
    kept = n_rows if max_len is None else max_len
    if not 1 <= kept <= n_rows:
        raise UsageError(f"max_len should be from 1 to {n_rows:,}, the positions of the model, not {kept:,}")
    state["embedding.positions.weight"] = positions[first_position : first_position + kept].clone()
    if first_position:
        notes.append(f"left out: the first {first_position} positions, which no token of a text has")
    if kept < n_rows:
        notes.append(f"left out: the positions from {kept:,} on, the longest text")
    if "embeddings.token_type_embeddings.weight" in tensors:
        segments = tensors.take("embeddings.token_type_embeddings.weight")
        settings["n_segments"], state["segments.weight"] = len(segments), segments
    state |= _norm(tensors, "embeddings.LayerNorm", "embedding.norm", d_model)
    for i in range(settings["n_layers"]):
        theirs, ours = names.layer.format(i), f"encoder.layers.{i}."
        for name, source in names.attention.items():
            state |= _linear(tensors, theirs + source, f"{ours}self_attention.{name}")
        state |= _norm(tensors, theirs + names.norms[0], f"{ours}self_residual.norm", d_model)
        state |= _linear(tensors, theirs + names.up, f"{ours}feed_forward.up_proj")
        state |= _linear(tensors, theirs + names.down, f"{ours}feed_forward.down_proj")
        state |= _norm(tensors, theirs + names.norms[1], f"{ours}feed_forward_residual.norm", d_model)
    return state, notes


def _linear(tensors: SourceTensors, source: str, target: str) -> dict[str, Tensor]:
    return {f"{target}.{part}": tensors.take(f"{source}.{part}") for part in ("weight", "bias")}


def _norm(tensors: SourceTensors, source: str, target: str, d_model: int) -> dict[str, Tensor]:
    return {f"{target}.{part}": tensors.take(f"{source}.{part}", (d_model,)) for part in ("weight", "bias")}


POOLERS: dict[str, tuple[str, str, str]] = {
    "bert": ("pooler.dense", "classifier", "tanh"),
    "roberta": ("classifier.dense", "classifier.out_proj", "tanh"),
    "distilbert": ("pre_classifier", "classifier", "relu"),
}
"""By family: the layer before the head of a classifier, the head, and the activation between them."""
MASKED_HEADS: dict[str, tuple[str, str, str, str]] = {
    "bert": ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions", "decoder"),
    "roberta": ("lm_head.dense", "lm_head.layer_norm", "lm_head", "decoder"),
    "distilbert": ("vocab_transform", "vocab_layer_norm", "vocab_projector", ""),
}
"""By family: the linear layer, the norm, and the projection of the head of a masked language model."""

POOLERS["xlm-roberta"], MASKED_HEADS["xlm-roberta"] = POOLERS["roberta"], MASKED_HEADS["roberta"]


def masked_head(
    family: str, settings: Settings, tensors: SourceTensors, embedding: Tensor
) -> tuple[dict[str, Tensor], list[str]]:
    """Return the weights of the head of a masked language model, and notes."""
    dense, norm, projection, decoder = MASKED_HEADS[family]
    if settings["activation"] != "gelu":
        raise UsageError(f"the head of a masked language model has GELU here, and this one {settings['activation']}")
    state = _linear(tensors, dense, "mlm_transform") | _norm(tensors, norm, "mlm_norm", settings["d_model"])
    inner = f"{projection}.{decoder}" if decoder else projection
    biases = [name for name in dict.fromkeys((f"{projection}.bias", f"{inner}.bias")) if name in tensors]
    if not biases:
        raise CheckpointError(f"the tensor {projection}.bias is missing")
    state["output_bias"], *others = [tensors.take(name) for name in biases]
    if any(not torch.equal(other, state["output_bias"]) for other in others):
        raise CheckpointError(f"the tensors {' and '.join(biases)} should be equal")
    settings["tie_embeddings"] = True
    if f"{inner}.weight" in tensors:
        weight = tensors.take(f"{inner}.weight")
        if not torch.equal(weight, embedding):
            settings["tie_embeddings"], state["output.weight"] = False, weight
    return state, []


def classifier_head(
    family: str, tensors: SourceTensors, n_labels: int, several: bool = False
) -> tuple[dict[str, Tensor], list[str]]:
    """Return the weights of the head of a classifier with its pooler, and notes.

    Two classes share one logit, unless a text may have `several`.
    """
    pooler, head, _ = POOLERS[family]
    state = _linear(tensors, pooler, "pooler.dense")
    weight, bias = tensors.take(f"{head}.weight"), tensors.take(f"{head}.bias", (n_labels,))
    if several or n_labels != 2:
        return {**state, "head.weight": weight, "head.bias": bias}, []
    note = "folded: two classes share one logit, the difference of the two; probabilities are the same"
    return {**state, "head.weight": weight[1:] - weight[:1], "head.bias": bias[1:] - bias[:1]}, [note]


def gpt2_settings(config: Mapping[str, Any]) -> Settings:
    """Return the settings of a pre-norm decoder with learned positions.

    Raises:
        UsageError: it is of another kind.
    """
    for name, expected in (
        ("scale_attn_weights", True),
        ("scale_attn_by_inverse_layer_idx", False),
        ("add_cross_attention", False),
    ):
        if config.get(name, expected) is not expected:
            raise UsageError(f"a GPT-2 with {name} {str(config[name]).lower()} is not read")
    d_model = number(config, "n_embd")
    return {
        "n_layers": number(config, "n_layer"),
        "d_model": d_model,
        "n_heads": number(config, "n_head"),
        "d_ff": 4 * d_model if config.get("n_inner") is None else number(config, "n_inner"),
        "dropout": number(config, "resid_pdrop", 0.1, float),
        "norm_eps": norm_eps(config, "layer_norm_epsilon", 1e-5),
        "activation": activation_of(config, "activation_function", "gelu_new"),
        "positions": "learned",
        "embedding_init_std": 1.0,  # without the factor √d_model
    }


def gpt2_state(
    settings: Settings, tensors: SourceTensors, max_len: int | None
) -> tuple[dict[str, Tensor], list[str], int]:
    """Return the weights of a GPT-2, notes, and its context; what the tensors decide is added to the settings.

    A table of zeros, or of the paper's sinusoids, is none of learned positions: an export of ours has one.
    """
    d_model = settings["d_model"]
    tensors.leave_out(*(f"h.{i}.attn.{name}" for i in range(settings["n_layers"]) for name in ("bias", "masked_bias")))
    state = {"embedding.weight": tensors.take("wte.weight")}
    positions = tensors.take("wpe.weight")
    if positions.dim() != 2 or positions.shape[1] != d_model:
        raise CheckpointError(f"the positions wpe.weight should have {d_model:,} columns")
    kept = len(positions) if max_len is None else max_len
    if not 1 <= kept <= len(positions):
        raise UsageError(f"max_len should be from 1 to {len(positions):,}, the positions of the model, not {kept:,}")
    found = find_positions([positions.numpy()], d_model, kept, any_amplitude=True)
    settings["positions"], notes = found.kind, found.notes
    if found.kind == "learned":
        state["embedding.positions.weight"] = positions[:kept].clone()
    elif found.kind == "sinusoidal":
        settings["embedding_init_std"] = found.amplitude
    for i in range(settings["n_layers"]):
        theirs, ours = f"h.{i}.", f"decoder.layers.{i}."
        state |= _norm(tensors, f"{theirs}ln_1", f"{ours}self_residual.norm", d_model)
        weight = tensors.take(f"{theirs}attn.c_attn.weight", (d_model, 3 * d_model)).T
        bias = tensors.take(f"{theirs}attn.c_attn.bias", (3 * d_model,))
        for letter, rows, part in zip("qkv", weight.chunk(3), bias.chunk(3), strict=True):
            name = f"{ours}self_attention.{letter}_proj"
            state |= {f"{name}.weight": rows.contiguous(), f"{name}.bias": part.clone()}
        state |= _transposed(tensors, f"{theirs}attn.c_proj", f"{ours}self_attention.o_proj")
        state |= _norm(tensors, f"{theirs}ln_2", f"{ours}feed_forward_residual.norm", d_model)
        state |= _transposed(tensors, f"{theirs}mlp.c_fc", f"{ours}feed_forward.up_proj")
        state |= _transposed(tensors, f"{theirs}mlp.c_proj", f"{ours}feed_forward.down_proj")
    state |= _norm(tensors, "ln_f", "decoder.norm", d_model)
    settings["tie_embeddings"] = True
    if "lm_head.weight" in tensors:
        head = tensors.take("lm_head.weight")
        if not torch.equal(head, state["embedding.weight"]):
            settings["tie_embeddings"], state["output.weight"] = False, head
    return state, notes, kept


def _transposed(tensors: SourceTensors, source: str, target: str) -> dict[str, Tensor]:
    """Return a linear layer whose weight is stored as (in, out)."""
    weight = tensors.take(f"{source}.weight")
    return {f"{target}.weight": weight.T.contiguous(), f"{target}.bias": tensors.take(f"{source}.bias")}
