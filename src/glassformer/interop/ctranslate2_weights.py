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
from glassformer.interop.ctranslate2_positions import DEFAULT_POSITIONS, find_positions
from glassformer.interop.names import Row, rows

Kind = Literal["translator", "language_model"]
SPECS: dict[str, tuple[Kind, int, int]] = {
    "TransformerBase": ("translator", 2, 8),
    "TransformerBig": ("translator", 2, 16),
    "TransformerSpec": ("translator", 7, 8),
    "TransformerDecoderSpec": ("language_model", 8, 8),
}
"""Of each specification the kind of model, the last revision that is known, and the heads where no number is given."""
_LACKING = {
    "relative_position_keys": "relative positions",
    "relative_position_values": "relative positions",
    "relative_asymmetric_position_keys": "relative positions",
    "relative_attention_bias": "biases of attention by distance",
    "q_norm": "norms of queries and keys",
    "k_norm": "norms of queries and keys",
    "v_norm": "norms of values",
    "shared_layer_norm": "attention and feed-forward side by side",
    "input_layer_norm": "attention and feed-forward side by side, or norms on both sides of them",
    "pre_feedforward_layer_norm": "norms on both sides of a sublayer",
    "external_pre_encoder_attention_layer_norm": "norms on both sides of a sublayer",
    "layer_scalar": "factors of layers",
    "memory_kv": "attention to both texts at once",
    "merged_encoder_attention": "attention to both texts at once",
    "project_in": "embeddings of another width than the layers",
    "project_out": "embeddings of another width than the layers",
    "rotary_scaling_type": "scaled rotary positions",
    "weight_zero": "weights of four bits",
    "embeddings_1": "several vocabularies of one text",
    "queries_scale": "another scale of scores than 1/√d_head",
    "final_logit_softcapping": "capped logits",
    "scale_outputs": "scaled logits",
}
"""What our modules lack, by a part of the name of a variable."""
_OFF = {
    "alibi": "biases of attention by distance",
    "sliding_window": "attention to a window",
    "start_from_zero_embedding": "a start token without an embedding",
    "layer_norm_use_residual": "norms that add 1 to their weights",
    "scale_alibi": "biases of attention by distance",
}
"""The same for numbers that have to be 0."""
_UNUSED = {"alignment_layer", "alignment_heads", "alibi_use_positive_positions", "embeddings_merge"}
_UNUSED |= {"multi_query_attention"}  # says what num_heads_kv says
"""Numbers without a meaning for what is imported."""
_ACTIVATIONS = {0: "relu", 1: "gelu-tanh", 2: "silu", 3: "gelu"}


_LAYER = re.compile(r"(encoder|decoder)/layer_([0-9]{1,6})/")


@dataclass
class TransformerWeights:
    """A model in our terms.

    Attributes:
        kind: a translator or a language model.
        settings: fields of `ModelConfig`, without those that keep their defaults.
        weights: by the names of our parameters; one name of those that are tied.
        n_positions: longest text, in tokens, of the encoder and of the decoder.
        notes: what was repeated, permuted, folded or cut, a sentence each.
    """

    kind: Kind
    settings: dict[str, Any] = field(default_factory=dict)
    weights: dict[str, Tensor] = field(default_factory=dict)
    n_positions: int = 0
    notes: list[str] = field(default_factory=list)


def read_weights(
    variables: Variables, config: Mapping[str, Any], max_positions: int | None = None
) -> TransformerWeights:
    """Return the settings and the weights of a file.

    Args:
        variables: of an open file; all are taken.
        config: `config.json`, empty for files before version 6.
        max_positions: rows of a table of positions to keep, or to make where there is none.

    Raises:
        UsageError: our modules cannot compute what the model computes.
        CheckpointError: a variable is missing, of another shape, not finite, or unknown.
    """
    return _Reader(variables, config, max_positions).read()


class _Reader:
    """Reads one file; `read` does all of it."""

    def __init__(self, variables: Variables, config: Mapping[str, Any], max_positions: int | None) -> None:
        self.v, self.config, self.max_positions = variables, config, max_positions
        if variables.spec not in SPECS:
            message = f"{variables.path} is a {variables.spec}, which is neither a translator nor a language model"
            raise UsageError(message, "import a TransformerSpec or a TransformerDecoderSpec")
        kind, last, self.default_heads = SPECS[variables.spec]
        if not (2 if kind == "translator" else 1) <= variables.revision <= last:
            message = f"{variables.path} has revision {variables.revision} of {variables.spec}, and {last} is known"
            raise UsageError(message, "convert the model again")
        self.out = TransformerWeights(kind)
        self.scopes = ["encoder", "decoder"] if kind == "translator" else ["decoder"]
        # Older files have the numbers of both stacks once, without a scope.
        self.shared = variables.revision < (5 if kind == "translator" else 2)

    def read(self) -> TransformerWeights:
        self._refuse_lacking()
        out, s = self.out, self.out.settings
        s["d_model"] = self.v.shape("decoder/embeddings/weight")[-1]
        self._read_settings()
        stacks = {scope: self._embedding(scope) for scope in self.scopes}
        self._place_embeddings(stacks)
        table = rows("ctranslate2-gated" if s["activation"] == "swiglu" else "ctranslate2", s["n_layers"])
        for row in table:
            of_stack = row.ours[0].startswith(tuple(f"{scope}.layers." for scope in self.scopes))
            if (
                of_stack or (s["pre_norm"] and ".norm." in row.ours[0] and row.ours[0].split(".")[0] in self.scopes)
            ) and (not row.kinds or out.kind in row.kinds):
                self._row(row)
        if left := [name for name in self.v.left() if name.rpartition("/")[2] not in _UNUSED]:
            message = f"{self.v.path} holds {left[0]} (of {len(left)} such), which is in no model that is imported"
            raise UsageError(message, "convert a model of another architecture")
        return out

    # What it is

    def _refuse_lacking(self) -> None:
        """Refuse what our modules lack, before any weight is read."""
        for name in self.v.names():
            parts = name.split("/")
            for part in parts:
                if part in _LACKING:
                    raise self._lacks(_LACKING[part], name)
            if parts[-1] in _OFF and self.v.number(name) != 0:
                raise self._lacks(_OFF[parts[-1]], name)

    def _lacks(self, what: str, name: str) -> UsageError:
        return UsageError(f"{self.v.path} has {what} ({name}), which Glassformer does not", "import another model")

    def _number(self, scope: str, name: str, default: float) -> int:
        """Return a whole number of a stack, which older files have without its scope."""
        if self.shared and f"{scope}/{name}" not in self.v:
            value = self.v.number(name, default)
        else:
            value = self.v.number(f"{scope}/{name}", default)
        if value != int(value):
            raise self.v.error(f"{scope}/{name} is {value}")
        return int(value)

    def _same(self, name: str, values: list[Any]) -> Any:
        """Return the one value that all parts of a model have; our models have no more."""
        if len(set(values)) > 1:
            raise self._lacks(f"different {name} in its parts ({', '.join(map(str, dict.fromkeys(values)))})", name)
        return values[0]

    def _read_settings(self) -> None:
        v, s, scopes = self.v, self.out.settings, self.scopes
        layers = {scope: self._n_layers(scope) for scope in scopes}
        s["n_layers"] = self._same("numbers of layers", list(layers.values()))
        heads = [self._number(scope, "num_heads", self.default_heads) for scope in scopes]
        s["n_heads"] = self._same("numbers of heads", heads)
        s["pre_norm"] = bool(self._same("places of norms", [self._number(x, "pre_norm", 1) for x in scopes]))
        blocks = [f"{scope}/layer_{i}" for scope in scopes for i in range(s["n_layers"])]
        s["activation"] = self._activation(blocks)
        widths = [v.shape(f"{block}/ffn/linear_0/weight")[0] for block in blocks]
        s["d_ff"] = self._same("widths of feed-forward blocks", widths)
        s["bias"] = any(name.endswith("/bias") and "/layer_" in name for name in v.names())
        has_beta = any(name.endswith("layer_norm/beta") for name in v.names())
        s["norm"] = "layer" if has_beta else "rms"
        epsilon = self.config.get("layer_norm_epsilon")
        if epsilon is not None and epsilon != (1e-5 if has_beta else 1e-6):
            s["norm_eps"] = float(epsilon)
        of_embedding = self._same("embeddings", [f"{scope}/layernorm_embedding/gamma" in v for scope in scopes])
        if of_embedding:
            s["embedding_norm"] = True
        self._read_heads(blocks)

    def _n_layers(self, scope: str) -> int:
        matches = [match for name in self.v.names() if (match := _LAYER.match(name)) and match[1] == scope]
        found = {int(match[2]) for match in matches}
        if not found or found != set(range(len(found))):
            raise self.v.error(f"the layers of its {scope} are not numbered from 0")
        return len(found)

    def _activation(self, blocks: list[str]) -> str:
        number = self._same("activations", [self._number(scope, "activation", 0) for scope in self.scopes])
        name = _ACTIVATIONS.get(number)
        gated = self._same("feed-forward blocks", [f"{block}/ffn/linear_0_noact/weight" in self.v for block in blocks])
        if gated:
            name = "swiglu" if name == "silu" else None
        if name is None:
            raise self._lacks(f"the activation {number}{' in a gated block' if gated else ''}", "activation")
        return name

    def _read_heads(self, blocks: list[str]) -> None:
        """Read the width of a head, the number of heads of keys, and rotary positions; equal in all layers."""
        v, s = self.v, self.out.settings
        d_model, heads = s["d_model"], s["n_heads"]
        attentions = [f"{block}/self_attention" for block in blocks]
        attentions += [f"{block}/attention" for block in blocks if f"{block}/attention/linear_0/weight" in v]
        if heads < 1:
            raise v.error(f"it has {heads} heads")
        widths = [v.number(f"{a}/head_dim", d_model // heads) for a in attentions]
        self.d_head = int(self._same("widths of heads", widths))
        if self.d_head < 1 or (self.d_head * heads != d_model and not all(f"{a}/head_dim" in v for a in attentions)):
            raise v.error(f"{heads} heads do not divide a width of {d_model}")
        if self.d_head * heads != d_model:
            s["d_head"] = self.d_head
        of_keys = [
            1 if v.number(f"{a}/multi_query", 0) else int(v.number(f"{a}/num_heads_kv", heads)) for a in attentions
        ]
        self.key_heads = self._same("numbers of heads of keys", of_keys)
        if self.key_heads < 1 or heads % self.key_heads:
            raise v.error(f"it has {self.key_heads} heads of keys for {heads} of queries")
        if self.key_heads < heads:
            self.out.notes.append(f"the {self.key_heads} heads of keys and values were repeated to {heads}")
        rotations = [self._rotation(f"{block}/self_attention") for block in blocks]
        self.rotation = self._same("rotary positions", rotations)
        if self.rotation is not None:
            s["positions"] = "rotary"
            interleaved, base = self.rotation
            if base != 10_000:
                s["rope_base"] = base
            if interleaved:
                self._note("rows of queries and keys were permuted: rotary positions pair the halves of a head here")

    def _rotation(self, attention: str) -> tuple[bool, float] | None:
        """Return whether neighbours are paired, and the base; None without rotary positions."""
        v = self.v
        n_rotated = v.number(f"{attention}/rotary_dim", -1)
        interleaved, base = v.number(f"{attention}/rotary_interleave", 1), v.number(f"{attention}/rotary_base", 10_000)
        if n_rotated < 0:
            return None
        if n_rotated not in (0, self.d_head):
            raise self._lacks("rotary positions of a part of a head", f"{attention}/rotary_dim")
        return bool(interleaved), base

    # Embeddings and positions

    def _embedding(self, scope: str) -> tuple[np.ndarray, float, np.ndarray | None]:
        """Return the rows of a token embedding, their factor, and a table of positions or None."""
        v, d_model = self.v, self.out.settings["d_model"]
        name = f"{scope}/embeddings"
        if f"{name}/weight" not in v:
            name = f"{scope}/embeddings_0"
        scale = v.number(f"{scope}/scale_embeddings", v.number(f"{name}/multiply_by_sqrt_depth", 1))
        if f"{scope}/scale_embeddings" not in v or v.is_whole(f"{scope}/scale_embeddings"):
            scale = math.sqrt(d_model) if scale else 1.0
        weight = self._take(f"{name}/weight", (None, d_model))
        table = f"{scope}/position_encodings/encodings"
        if self.rotation is not None:
            return weight, scale, None
        return weight, scale, self._take(table, (None, d_model)) if table in v else None

    def _place_embeddings(self, stacks: dict[str, tuple[np.ndarray, float, np.ndarray | None]]) -> None:
        """Place embeddings, positions and the output projection; equal matrices are one matrix here."""
        s, d_model = self.out.settings, self.out.settings["d_model"]
        scales = {np.float32(scale) for _, scale, _ in stacks.values()}
        has_no_factor = scales != {np.float32(math.sqrt(d_model))}
        tables = self._find_positions([table for *_, table in stacks.values()], has_no_factor)
        embeddings = {scope: weight for scope, (weight, _, _) in stacks.items()}
        if has_no_factor and scales != {np.float32(1)}:
            embeddings = {scope: weight * np.float32(scale) for scope, (weight, scale, _) in stacks.items()}
            self.out.notes.append("the factors of the token embeddings were multiplied into them")
        name = "decoder/projection"
        output = self._take(f"{name}/weight", (len(embeddings["decoder"]), d_model))
        one_matrix = all(np.array_equal(output, weight) for weight in embeddings.values())
        # Those that are tied here share their positions and norms, too.
        shared = all(np.array_equal(tables["decoder"], table) for table in tables.values())
        shared = shared and (len(self.scopes) == 1 or "embedding_norm" not in s)
        s["tie_embeddings"] = one_matrix and shared
        if not s["tie_embeddings"] and any(np.array_equal(output, weight) for weight in embeddings.values()):
            self._note("embeddings and output projection that are one matrix there can differ here after training")
        ours = {"encoder": "src_embedding", "decoder": "tgt_embedding"}
        if self.out.kind == "language_model":
            ours = {"decoder": "embedding"}
        for scope in ["decoder"] if s["tie_embeddings"] else self.scopes:
            self._put(f"{ours[scope]}.weight", embeddings[scope])
            if s["positions"] == "learned":
                self._put(f"{ours[scope]}.positions.weight", tables[scope])
            if s.get("embedding_norm"):
                self._norm(f"{scope}/layernorm_embedding", f"{ours[scope]}.norm")
        if not s["tie_embeddings"]:
            self._put("output.weight", output)
        if f"{name}/bias" in self.v:
            if self.out.kind == "language_model":
                raise self._lacks("a bias of the output projection", f"{name}/bias")
            s["output_bias"] = True
            self._put("output_bias", self._take(f"{name}/bias", (len(output),)))

    def _find_positions(self, given: list[np.ndarray | None], has_no_factor: bool) -> dict[str, np.ndarray]:
        """Set what the positions are, and return the table of each stack; rotary positions have none."""
        s, out, d_model = self.out.settings, self.out, self.out.settings["d_model"]
        if has_no_factor:
            s["embedding_init_std"] = 1.0
        if self.rotation is not None:
            out.n_positions = self.max_positions or DEFAULT_POSITIONS
            return {}
        if d_model % 2 and any(table is None for table in given):
            raise self.v.error(f"it has sinusoids, and an odd width of {d_model}")
        found = find_positions(given, d_model, self.max_positions, has_no_factor)
        s["positions"], out.n_positions = found.kind, found.n
        out.notes += found.notes
        if found.amplitude is not None and has_no_factor:
            s["embedding_init_std"] = found.amplitude
        return dict(zip(self.scopes, found.tables, strict=True))

    # Layers

    def _row(self, row: Row) -> None:
        """Read one variable as the parameters that it holds, each with its number of rows."""
        s, d_model, name = self.out.settings, self.out.settings["d_model"], row.theirs[0]
        parts, is_bias = [ours.split(".")[-2] for ours in row.ours], row.ours[0].endswith(".bias")
        wide, narrow = (n_heads * self.d_head for n_heads in (s["n_heads"], self.key_heads))
        n_rows = {"q_proj": wide, "k_proj": narrow, "v_proj": narrow, "gate_proj": s["d_ff"], "up_proj": s["d_ff"]}
        sizes = [n_rows.get(part, d_model) for part in parts]
        if is_bias and not (s["norm"] == "layer" if parts[0] == "norm" else s["bias"]):
            return
        if is_bias and parts[0] != "norm" and name not in self.v:
            values = np.zeros(sum(sizes), np.float32)
            self._note("linear layers without a bias got one of zeros")
        elif is_bias or parts[0] == "norm":
            values = self._take(name, (sum(sizes),))
        else:
            values = self._take(name, (sum(sizes), {"o_proj": wide, "down_proj": s["d_ff"]}.get(parts[0], d_model)))
        for ours, its_rows in zip(row.ours, np.split(values, np.cumsum(sizes)[:-1]), strict=True):
            self._put(ours, self._arranged(ours.rpartition(".")[0], its_rows))

    def _arranged(self, name: str, rows: np.ndarray) -> np.ndarray:
        """Return rows of queries, keys or values with heads repeated, and features paired, as ours are."""
        part, heads = name.rpartition(".")[2], self.out.settings["n_heads"]
        if part not in ("q_proj", "k_proj", "v_proj"):
            return rows
        by_head = rows.reshape(-1, self.d_head, *rows.shape[1:])
        if self.rotation is not None and self.rotation[0] and part != "v_proj" and "self_attention" in name:
            by_head = np.concatenate([by_head[:, 0::2], by_head[:, 1::2]], axis=1)
        if part != "q_proj" and self.key_heads < heads:
            by_head = by_head.repeat(heads // self.key_heads, axis=0)
        return by_head.reshape(-1, *rows.shape[1:])

    def _norm(self, theirs: str, ours: str) -> None:
        shape = (self.out.settings["d_model"],)
        self._put(f"{ours}.weight", self._take(f"{theirs}/gamma", shape))
        if self.out.settings["norm"] == "layer":
            self._put(f"{ours}.bias", self._take(f"{theirs}/beta", shape))

    # Numbers

    def _take(self, name: str, shape: tuple[int | None, ...]) -> np.ndarray:
        found = self.v.shape(name)
        if len(found) != len(shape) or any(n not in (None, m) for n, m in zip(shape, found, strict=True)):
            wanted = ", ".join("any" if n is None else str(n) for n in shape)
            raise self.v.error(f"{name} has the shape {list(found)}, where [{wanted}] is expected")
        return self.v.take(name)

    def _put(self, name: str, values: np.ndarray) -> None:
        self.out.weights[name] = torch.from_numpy(np.array(values, np.float32, order="C"))

    def _note(self, text: str) -> None:
        if text not in self.out.notes:
            self.out.notes.append(text)
