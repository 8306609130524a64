"""Turn the variables of a CTranslate2 model into settings and weights of ours: the inverse of `ctranslate2_writer.py`.

What our modules lack is refused by name, in one sentence. Every variable is used, or known to mean nothing here; one
that is neither is refused, too. Names and defaults are those of CTranslate2's `specs/transformer_spec.py` and
`layers/transformer.cc`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from glassformer.errors import UsageError
from glassformer.interop.ctranslate2_binary import Variables
from glassformer.interop.names import rows, to_ours
from glassformer.interop.source_folder import SourceTensors

Kind = Literal["translator", "language_model"]
SPECS: dict[str, tuple[Kind, int, int]] = {
    "TransformerBase": ("translator", 2, 8),
    "TransformerBig": ("translator", 2, 16),
    "TransformerSpec": ("translator", 7, 8),
    "TransformerDecoderSpec": ("language_model", 8, 8),
}
"""Of each specification the kind of model, the last revision that is known, and the heads where no number is given."""
DEFAULT_POSITIONS = 512
"""Positions of a model whose file has no table of them."""
NAMES = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
FLAGS = {"with_source_bos": 0, "with_source_eos": 0, "with_target_bos": 1, "user_decoder_start_tokens": 0}
"""Settings of a file before version 6, which are variables, and their defaults."""
_OFF = {"alibi", "scale_alibi", "sliding_window", "start_from_zero_embedding", "layer_norm_use_residual"}
"""Numbers that have to be 0, for what they turn on is not here."""
_NUMBERS = {"num_heads", "pre_norm", "activation", "scale_embeddings", "multiply_by_sqrt_depth", "head_dim", *_OFF}
_NUMBERS |= {"alignment_layer", "alignment_heads", "alibi_use_positive_positions", "embeddings_merge"}
_NUMBERS |= {"multi_query_attention", *NAMES, *FLAGS}
"""Numbers and texts that are read, or that mean nothing for what is imported."""
_ACTIVATIONS = {0: "relu", 1: "gelu-tanh", 2: "silu", 3: "gelu"}
_WEIGHTS = ("/weight", "/bias", "/gamma", "/beta", "/encodings")
_LAYER = re.compile(r"(encoder|decoder)/layer_([0-9]{1,6})/")


@dataclass
class TransformerWeights:
    """A model in our terms.

    Attributes:
        kind: a translator or a language model.
        settings: fields of `ModelConfig`, without those that keep their defaults.
        weights: by the names of our parameters; one name of those that are tied.
        n_positions: longest text, in tokens, of the encoder and of the decoder.
        notes: what was made, folded or cut, a sentence each.
    """

    kind: Kind
    settings: dict[str, Any] = field(default_factory=dict)
    weights: dict[str, Tensor] = field(default_factory=dict)
    n_positions: int = 0
    notes: list[str] = field(default_factory=list)


def read_weights(v: Variables, config: Mapping[str, Any], max_positions: int | None = None) -> TransformerWeights:
    """Return the settings and the weights of a file.

    Args:
        v: variables of an open file; all are taken.
        config: `config.json`, empty for files before version 6.
        max_positions: rows of a table of positions to keep, or to make where there is none.

    Raises:
        UsageError: our modules cannot compute what the model computes.
        CheckpointError: a variable is missing, of another shape, not finite, or unknown.
    """
    if v.spec not in SPECS:
        what = f"{v.path} is a {v.spec}, which is neither a translator nor a language model"
        raise UsageError(what, "import a TransformerSpec or a TransformerDecoderSpec")
    kind, last, default_heads = SPECS[v.spec]
    if not (2 if kind == "translator" else 1) <= v.revision <= last:
        raise UsageError(f"{v.path} has revision {v.revision} of {v.spec}, and {last} is known")
    scopes = ["encoder", "decoder"] if kind == "translator" else ["decoder"]
    s = _settings(v, config, scopes, default_heads)
    out, n_layers = TransformerWeights(kind, s), s["n_layers"]
    factors = {_factor(v, scope, s["d_model"]) for scope in scopes}
    table = rows("ctranslate2-gated" if s["activation"] == "swiglu" else "ctranslate2", n_layers)
    table = [row for row in table if (not row.kinds or kind in row.kinds) and row.theirs[0].split("/")[0] in scopes]
    _check_names(v, {name for row in table for name in row.theirs})
    tensors = {name: torch.from_numpy(np.array(v.take(name))) for name in v.names() if name.endswith(_WEIGHTS)}
    tables = [_positions(tensors, scope, s["d_model"], max_positions, out.notes) for scope in scopes]
    n = out.n_positions = min(map(len, tables))
    taken = SourceTensors(tensors, v.path)
    w, _ = to_ours(table, kind, taken)
    taken.finish()
    ours = ["src_embedding", "tgt_embedding"] if kind == "translator" else ["embedding"]
    for name, its in zip(ours, tables, strict=True):
        w[f"{name}.positions.weight"] = its[:n].clone()
    if factors != {math.sqrt(s["d_model"])}:
        s["embedding_init_std"] = 1.0
        if factors != {1.0}:
            out.notes.append("the factors of the token embeddings were multiplied into them")
            for scope, name in zip(scopes, ours, strict=True):
                w[f"{name}.weight"] = w[f"{name}.weight"] * _factor(v, scope, s["d_model"])
    _tie(w, ours, s, out.notes)
    if (bias := w.pop("output.bias", None)) is not None:
        if kind == "language_model":
            raise _lacks(v, "a bias of the output projection", "decoder/projection/bias")
        w["output_bias"], s["output_bias"] = bias, True
    out.weights = w
    return out


def _check_names(v: Variables, weights: set[str]) -> None:
    """Refuse what our modules lack, before any weight is read: a variable that is no weight and no known number."""
    for name in v.names():
        *_, last = name.split("/")
        is_known = name in weights or last == "encodings" or last in _NUMBERS or last.endswith("_scale")
        if not is_known or (last in _OFF and v.number(name) != 0):
            raise _lacks(v, "a part", name)


def _lacks(v: Variables, what: str, name: str) -> UsageError:
    return UsageError(f"{v.path} has {what} ({name}), which Glassformer does not", "import another model")


def _settings(v: Variables, config: Mapping[str, Any], scopes: list[str], default_heads: int) -> dict[str, Any]:
    """Return the fields of `ModelConfig`, each of which is the same in all parts of a model."""

    def same(name: str, values: list[Any]) -> Any:
        if len(set(values)) > 1:
            raise _lacks(v, f"different {name} in its parts ({', '.join(map(str, dict.fromkeys(values)))})", name)
        return values[0]

    def number(name: str, default: float) -> int:
        """Return a whole number of the stacks, which older files have once, without a scope."""
        found = same(name, [v.number(f"{scope}/{name}", v.number(name, default)) for scope in scopes])
        if found != int(found):
            raise v.error(f"{name} is {found}")
        return int(found)

    layers = [{int(m[2]) for name in v.names() if (m := _LAYER.match(name)) and m[1] == scope} for scope in scopes]
    if not all(found and found == {*range(len(found))} for found in layers):
        raise v.error("the layers of a stack are not numbered from 0")
    n_layers, d_model = same("numbers of layers", [*map(len, layers)]), v.shape("decoder/embeddings/weight")[-1]
    blocks = [f"{scope}/layer_{i}" for scope in scopes for i in range(n_layers)]
    n_heads, activation = number("num_heads", default_heads), number("activation", 0)
    if n_heads < 1 or d_model % n_heads:
        raise v.error(f"{n_heads} heads do not divide a width of {d_model}")
    if odd := [x for x in v.names() if x.endswith("/head_dim") and v.number(x) != d_model // n_heads]:
        raise _lacks(v, "heads of another width than d_model / n_heads", odd[0])
    gated = same("feed-forward blocks", [f"{block}/ffn/linear_0_noact/weight" in v for block in blocks])
    name = _ACTIVATIONS.get(activation)
    if name is None or (gated and name != "silu"):
        raise _lacks(v, f"the activation {activation}{' in a gated block' if gated else ''}", "activation")
    norm = "layer" if any(name.endswith("layer_norm/beta") for name in v.names()) else "rms"
    epsilon = config.get("layer_norm_epsilon")
    return {
        "n_layers": n_layers,
        "d_model": d_model,
        "n_heads": n_heads,
        "d_ff": same("widths of feed-forward blocks", [v.shape(f"{block}/ffn/linear_0/weight")[0] for block in blocks]),
        "pre_norm": bool(number("pre_norm", 1)),
        "activation": "swiglu" if gated else name,
        "norm": norm,
        "norm_eps": None if epsilon in (None, 1e-5 if norm == "layer" else 1e-6) else float(epsilon),
        "bias": any(name.endswith("/bias") and "/layer_" in name for name in v.names()),
        "embedding_norm": same("embeddings", [f"{scope}/layernorm_embedding/gamma" in v for scope in scopes]),
        "positions": "learned",
    }


def _factor(v: Variables, scope: str, d_model: int) -> float:
    """Return the factor of a token embedding: a number, or whether it is √d_model."""
    first = next(name for name in (f"{scope}/embeddings", f"{scope}/embeddings_0") if f"{name}/weight" in v)
    name = f"{scope}/scale_embeddings"
    scale = v.number(name, v.number(f"{first}/multiply_by_sqrt_depth", 1))
    is_flag = name not in v or v.is_whole(name)
    return (math.sqrt(d_model) if scale else 1.0) if is_flag else scale


def _positions(tensors: dict[str, Tensor], scope: str, d_model: int, most: int | None, notes: list[str]) -> Tensor:
    """Take the table of positions (P, D) of a stack, or make the one that CTranslate2 computes where there is none.

    Its sines fill the first half of the features and its cosines the second; positions count from 1; and the
    frequencies are a geometric series whose last is 1/10000, where the paper's ends before it.
    """
    table = tensors.pop(f"{scope}/position_encodings/encodings", None)
    if table is None:
        half = d_model // 2
        step = np.float32(math.log(10_000)) / np.float32(max(half - 1, 1))
        frequency = np.exp(-step * np.arange(half, dtype=np.float32))
        angle = np.arange(1, (most or DEFAULT_POSITIONS) + 1, dtype=np.float32)[:, None] * frequency
        table = torch.from_numpy(np.concatenate([np.sin(angle), np.cos(angle)], axis=1))
        note = "the sinusoids of CTranslate2, which are not the paper's, became learned positions"
    else:
        note = f"{len(table) - (most or 0):,} positions after the first {most or 0:,} were left out"
        note = note if most is not None and len(table) > most else ""
    notes += [note] if note and note not in notes else []
    return table[:most]


def _tie(w: dict[str, Tensor], ours: list[str], s: dict[str, Any], notes: list[str]) -> None:
    """Make equal matrices one, in place: those that are tied here share their positions and norms, too."""
    output, embeddings = w["output.weight"], [w[f"{name}.weight"] for name in ours]
    equal = [torch.equal(output, weight) for weight in embeddings]
    shared = torch.equal(w[f"{ours[0]}.positions.weight"], w[f"{ours[-1]}.positions.weight"])
    s["tie_embeddings"] = all(equal) and shared and (len(ours) == 1 or not s["embedding_norm"])
    if s["tie_embeddings"]:
        for name in ["output.weight", *(name for name in w if name.startswith("src_embedding."))]:
            del w[name]
    elif any(equal):
        notes.append("embeddings and output projection that are one matrix there can differ here after training")
