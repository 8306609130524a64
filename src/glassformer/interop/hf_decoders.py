"""The tensors of pre-norm decoders with rotary positions in transformers, by our names: Llama, Arcee, StarCoder2.

Grouped keys and values, which several query heads share, are repeated for each of them: the numbers are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glassformer.errors import CheckpointError, UsageError
from glassformer.interop.hf_families import Settings, activation_of, norm_eps, number
from glassformer.interop.source_folder import SourceTensors


@dataclass(frozen=True)
class DecoderNames:
    """What differs between the families.

    Attributes:
        norm: a value of `ModelConfig.norm`.
        eps: the key of the norms' epsilon, and its value where it is missing.
        activation: the value of `hidden_act` where it is missing.
        gated: whether the feed-forward block has a gate.
        inner: by our names, the linear layers of the feed-forward block.
    """

    norm: str
    eps: tuple[str, float]
    activation: str
    gated: bool
    inner: Mapping[str, str]


_INNER = {name: name for name in ("up_proj", "down_proj")}
_GATED = {"gate_proj": "gate_proj", **_INNER}
DECODERS = {
    "llama": DecoderNames("rms", ("rms_norm_eps", 1e-6), "silu", True, _GATED),
    "arcee": DecoderNames("rms", ("rms_norm_eps", 1e-5), "relu2", False, _INNER),
    "starcoder2": DecoderNames(
        "layer", ("norm_epsilon", 1e-5), "gelu_pytorch_tanh", False, {"up_proj": "c_fc", "down_proj": "c_proj"}
    ),
}
BUFFERS = ("rotary_emb.inv_freq", "self_attn.rotary_emb.inv_freq")
"""Frequencies of the rotation, which older versions saved."""


def decoder_settings(family: str, config: Mapping[str, Any]) -> Settings:
    """Return the settings of a pre-norm decoder with rotary positions.

    Raises:
        UsageError: it is of another kind.
    """
    names = DECODERS[family]
    if config.get("sliding_window") is not None:
        raise UsageError("a model whose tokens see only a window of the text (sliding_window) is not read")
    d_model, n_heads = number(config, "hidden_size"), number(config, "num_attention_heads")
    settings: Settings = {
        "n_layers": number(config, "num_hidden_layers"),
        "d_model": d_model,
        "n_heads": n_heads,
        "d_ff": number(config, "intermediate_size"),
        "dropout": number(config, "residual_dropout", 0.0, float),
        "norm": names.norm,
        "norm_eps": norm_eps(config, *names.eps, usual=1e-6 if names.norm == "rms" else 1e-5),
        "positions": "rotary",
        "rope_base": _rope_base(config),
        "embedding_init_std": 1.0,  # without the factor √d_model
    }
    if config.get("head_dim") is not None and (d_head := number(config, "head_dim")) * n_heads != d_model:
        settings["d_head"] = d_head
    activation = activation_of(config, "hidden_act", names.activation)
    if names.gated and activation != "silu":
        raise UsageError(f"the activation of a gated feed-forward block is silu here, not {config['hidden_act']}")
    return settings | {"activation": "swiglu" if names.gated else activation}


def _rope_base(config: Mapping[str, Any]) -> float:
    """Return the base of the wavelengths of rotary positions; refuse positions that are scaled."""
    scaled = config.get("rope_parameters", config.get("rope_scaling"))
    if scaled is None:
        scaled = {}
    if not isinstance(scaled, dict):
        raise CheckpointError("config.json: rope_parameters should be a table")
    kind = scaled.get("rope_type", scaled.get("type", "default"))
    if kind != "default":
        raise UsageError(f"rotary positions of the type {str(kind)[:40]!r} are not read, only unscaled ones")
    for place in (config, scaled):
        if place.get("partial_rotary_factor", 1.0) not in (1, None):
            raise UsageError("rotary positions of a part of each head (partial_rotary_factor) are not read")
    return number(scaled if "rope_theta" in scaled else config, "rope_theta", 10_000.0, float)


def decoder_state(
    family: str, settings: Settings, tensors: SourceTensors, config: Mapping[str, Any]
) -> tuple[dict[str, Tensor], list[str]]:
    """Return the weights of a decoder and notes; `bias` and `tie_embeddings` are added to the settings."""
    n_layers, d_model, n_heads = settings["n_layers"], settings["d_model"], settings["n_heads"]
    d_head = settings.get("d_head") or max(1, d_model // n_heads)
    n_groups = n_heads if config.get("num_key_value_heads") is None else number(config, "num_key_value_heads")
    if not 1 <= n_groups <= n_heads or n_heads % n_groups:
        raise CheckpointError(f"config.json: {n_heads} heads cannot share {n_groups} heads of keys and values")
    tensors.leave_out(*BUFFERS, *(f"layers.{i}.self_attn.rotary_emb.inv_freq" for i in range(n_layers)))
    linears = {f"self_attention.{name}": f"self_attn.{name}" for name in ("q_proj", "k_proj", "v_proj", "o_proj")}
    linears |= {f"feed_forward.{ours}": f"mlp.{theirs}" for ours, theirs in DECODERS[family].inner.items()}
    norms = {"self_residual.norm": "input_layernorm", "feed_forward_residual.norm": "post_attention_layernorm"}
    parts = ("weight", "bias") if settings["norm"] == "layer" else ("weight",)
    state = {"embedding.weight": tensors.take("embed_tokens.weight")}
    state |= {f"decoder.norm.{part}": tensors.take(f"norm.{part}", (d_model,)) for part in parts}
    for i in range(n_layers):
        ours, theirs = f"decoder.layers.{i}.", f"layers.{i}."
        for name, source in norms.items():
            state |= {f"{ours}{name}.{part}": tensors.take(f"{theirs}{source}.{part}", (d_model,)) for part in parts}
        for name, source in linears.items():
            shape = (n_groups * d_head, d_model) if name.endswith(("k_proj", "v_proj")) else None
            state[f"{ours}{name}.weight"] = tensors.take(f"{theirs}{source}.weight", shape)
            if f"{theirs}{source}.bias" in tensors:
                state[f"{ours}{name}.bias"] = tensors.take(f"{theirs}{source}.bias", shape and shape[:1])
    notes = list[str]()
    if n_groups < n_heads:
        for name in [name for name in state if ".k_proj." in name or ".v_proj." in name]:
            state[name] = _repeated(state[name], n_groups, n_heads // n_groups)
        notes.append(f"repeated: the {n_groups} heads of keys and values, which {n_heads} heads of queries shared")
    state |= biases_or_zeros(settings, state, notes)
    return state | head_of(settings, tensors, state["embedding.weight"], bool(config.get("tie_word_embeddings"))), notes


def _repeated(tensor: Tensor, n_groups: int, times: int) -> Tensor:
    """Return the rows of each group of keys or values as often as query heads share it."""
    groups = tensor.unflatten(0, (n_groups, -1))  # (G, E, D), or (G, E) of a bias
    return groups.repeat_interleave(times, dim=0).flatten(0, 1)


def biases_or_zeros(settings: Settings, state: Mapping[str, Tensor], notes: list[str]) -> dict[str, Tensor]:
    """Return zeros for the biases that are missing where other linear layers have one; set `bias`."""
    linear = [name.removesuffix(".weight") for name in state if name.endswith("_proj.weight")]
    missing = [name for name in linear if f"{name}.bias" not in state]
    settings["bias"] = len(missing) < len(linear)
    if not settings["bias"] or not missing:
        return {}
    notes.append(f"zeros: the biases of {len(missing)} of {len(linear)} linear layers, which have none there")
    return {f"{name}.bias": torch.zeros(len(state[f"{name}.weight"])) for name in missing}


def head_of(settings: Settings, tensors: SourceTensors, embedding: Tensor, tied: bool) -> dict[str, Tensor]:
    """Return the output projection where it is not the embedding; set `tie_embeddings`.

    Raises:
        CheckpointError: it is missing where it is not tied.
    """
    settings["tie_embeddings"] = True
    if tied and "lm_head.weight" not in tensors:
        return {}
    head = tensors.take("lm_head.weight")
    if torch.equal(head, embedding):
        return {}
    settings["tie_embeddings"] = False
    return {"output.weight": head}
