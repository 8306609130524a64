"""The tensors of encoder–decoders of transformers, by our names: Marian (post-norm) and Pegasus (pre-norm).

Their sinusoids have all sines first, and ours have sine and cosine side by side. Nothing else in a Transformer depends
on the order of the features of its residual stream, so all weights that read or write it are permuted, as an export
permutes them (`hf_writer.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from glassformer.errors import CheckpointError, UsageError
from glassformer.interop.hf_decoders import biases_or_zeros, head_of
from glassformer.interop.hf_families import Settings, activation_of, number
from glassformer.interop.hf_writer import READS, WRITES, permuted, sines_first
from glassformer.interop.source_folder import SourceTensors
from glassformer.nn.embeddings import sinusoidal

SEQ2SEQ = ("marian", "pegasus")
STACKS = ("encoder", "decoder")
NEVER_WRITTEN = -1e4
"""Bias of the padding token of a Marian model, whose row is zeros: Marian has no such token in its softmax."""
_EXPECTED: dict[str, dict[str, Any]] = {
    "marian": {
        "normalize_before": False,
        "normalize_embedding": False,
        "add_final_layer_norm": False,
        "add_bias_logits": False,
        "static_position_embeddings": True,
        "extra_pos_embeddings": 0,
    },
    "pegasus": {
        "normalize_before": True,
        "normalize_embedding": False,
        "add_final_layer_norm": True,
        "add_bias_logits": False,
        "static_position_embeddings": True,
        "extra_pos_embeddings": 0,
    },
}
"""Settings of older versions, which had one class for several families."""


def seq2seq_settings(family: str, config: Mapping[str, Any]) -> Settings:
    """Return the settings of a translator with sinusoidal positions.

    Raises:
        UsageError: it is of another kind.
    """
    for name, expected in _EXPECTED[family].items():
        # Pegasus has the position of an old shift in some files, which no number depends on.
        if name in config and config[name] != expected and not (family == "pegasus" and name == "extra_pos_embeddings"):
            raise UsageError(f"a {family} model with {name} {str(config[name])[:40]} is not read")
    sizes = {}
    keys = {"n_layers": "layers", "n_heads": "attention_heads", "d_ff": "ffn_dim"}
    for ours, theirs in keys.items():
        first, second = (number(config, f"{stack}_{theirs}") for stack in STACKS)
        if first != second:
            raise UsageError(f"encoder and decoder should be alike here, and {theirs} is {first:,} and {second:,}")
        sizes[ours] = first
    scaled = config.get("scale_embedding", False)
    return sizes | {
        "d_model": number(config, "d_model"),
        "dropout": number(config, "dropout", 0.1, float),
        "activation": activation_of(config, "activation_function", "gelu"),
        "positions": "sinusoidal",
        "pre_norm": family == "pegasus",
        **({} if scaled is True else {"embedding_init_std": 1.0}),
    }


def seq2seq_state(
    family: str, settings: Settings, tensors: SourceTensors, config: Mapping[str, Any]
) -> tuple[dict[str, Tensor], list[str]]:
    """Return the weights of a translator and notes; settings that the tensors decide are added."""
    d_model, notes = (
        settings["d_model"],
        ["permuted: the features, so that sine and cosine of a position are neighbours"],
    )
    state, tables = dict[str, Tensor](), dict[str, Tensor]()
    shared = tensors.take("model.shared.weight") if "model.shared.weight" in tensors else None
    for stack in STACKS:
        name = f"model.{stack}.embed_tokens.weight"
        found = tensors.take(name) if name in tensors else shared
        if found is None:
            raise CheckpointError(f"the tensor model.shared.weight is missing, and so is {name}")
        tables[stack] = found
        _check_positions(settings, tensors, f"model.{stack}.embed_positions.weight")
        if settings["pre_norm"]:
            state |= _norm(tensors, f"model.{stack}.layer_norm", f"{stack}.norm", d_model)
        for i in range(settings["n_layers"]):
            state |= _layer(tensors, f"model.{stack}.layers.{i}.", f"{stack}.layers.{i}.", d_model)
    state["tgt_embedding.weight"] = tables["decoder"]
    same = torch.equal(tables["encoder"], tables["decoder"])
    tied = config.get("tie_word_embeddings", True) is not False
    head = head_of(settings, tensors, tables["decoder"], tied)
    if head or not same:  # one matrix for all three, or three
        settings["tie_embeddings"] = False
        state["src_embedding.weight"] = tables["encoder"].clone()
        state |= head or {"output.weight": tables["decoder"].clone()}
    state |= _output_bias(family, settings, tensors, config, tables["decoder"], notes)
    settings["bias"] = True
    state |= biases_or_zeros(settings, state, notes)
    return {name: _in_our_order(name, tensor, d_model) for name, tensor in state.items()}, notes


def _in_our_order(name: str, tensor: Tensor, d_model: int) -> Tensor:
    """Return a weight whose features of the residual stream are in our order."""
    *_, part, kind = ["", *name.split(".")]
    if name == "output_bias" or (kind == "bias" and part in READS):
        return tensor
    axis = 0 if part in WRITES else 1
    if tensor.dim() <= axis or tensor.shape[axis] != d_model:
        raise CheckpointError(f"the weight {name} should have {d_model:,} {'columns' if axis else 'rows'}")
    return permuted(name, tensor, sines_first(d_model).argsort()).contiguous()


def _check_positions(settings: Settings, tensors: SourceTensors, name: str) -> None:
    """Take a table of positions, where the file has one: sinusoids, whose amplitude becomes a setting."""
    if name not in tensors:
        return
    table, d_model = tensors.take(name), settings["d_model"]
    if table.dim() == 2 and table.shape[1] == d_model and len(table) and d_model > 1:
        amplitude = float(str(table[0, -1].numpy()))  # cos(0), as the shortest decimal that is this number
        ours = sinusoidal(*table.shape)[:, sines_first(d_model)]
        free = "embedding_init_std" in settings
        if amplitude > 0 and (free or amplitude == 1) and torch.allclose(table, ours * amplitude, rtol=0, atol=1e-6):
            if free:
                settings["embedding_init_std"] = amplitude
            return
    raise UsageError(f"the positions {name} are not sinusoids, and no others are read of this family")


def _layer(tensors: SourceTensors, theirs: str, ours: str, d_model: int) -> dict[str, Tensor]:
    """Return the weights of a layer of the encoder or the decoder."""
    blocks = {"self_attn": ("self_attention", "self_residual")}
    if ours.startswith("decoder."):
        blocks["encoder_attn"] = ("cross_attention", "cross_residual")
    linears, state = {"fc1": "feed_forward.up_proj", "fc2": "feed_forward.down_proj"}, dict[str, Tensor]()
    for other, (block, residual) in blocks.items():
        for name in ("q_proj", "k_proj", "v_proj"):
            linears[f"{other}.{name}"] = f"{block}.{name}"
        linears[f"{other}.out_proj"] = f"{block}.o_proj"
        state |= _norm(tensors, f"{theirs}{other}_layer_norm", f"{ours}{residual}.norm", d_model)
    state |= _norm(tensors, f"{theirs}final_layer_norm", f"{ours}feed_forward_residual.norm", d_model)
    for other, name in linears.items():
        state[f"{ours}{name}.weight"] = tensors.take(f"{theirs}{other}.weight")
        state[f"{ours}{name}.bias"] = tensors.take(f"{theirs}{other}.bias")
    return state


def _norm(tensors: SourceTensors, source: str, target: str, d_model: int) -> dict[str, Tensor]:
    return {f"{target}.{part}": tensors.take(f"{source}.{part}", (d_model,)) for part in ("weight", "bias")}


def _output_bias(
    family: str,
    settings: Settings,
    tensors: SourceTensors,
    config: Mapping[str, Any],
    embedding: Tensor,
    notes: list[str],
) -> dict[str, Tensor]:
    """Return the bias of the logits, where it is not zeros; of a Marian model the padding token is never written."""
    n_ids = len(embedding)
    bias = tensors.take("final_logits_bias", (1, n_ids))[0] if "final_logits_bias" in tensors else torch.zeros(n_ids)
    pad = config.get("pad_token_id")
    if family == "marian" and type(pad) is int and 0 <= pad < n_ids and not embedding[pad].any():
        bias = bias.index_fill(0, torch.tensor([pad]), NEVER_WRITTEN)
        note = "folded: the padding token, whose row is zeros, has a probability of 0, as in Marian itself"
        notes.append(f"{note} ({NEVER_WRITTEN:g} in the output bias)")
    if not bias.any():
        return {}
    settings["output_bias"] = True
    return {"output_bias": bias.clone()}
