"""Record every step of a forward pass with `trace`.

    with trace(model, only="decoder.*.cross.*") as t:
        model(src, tgt_in)
    t["decoder.1.cross.weights"]     # (H, T, S)

A tap receives the tensor of every step and returns the tensor to use instead (activation patching):

    with trace(model, tap=lambda id, x: x * 0 if id == "decoder.1.cross.out" else x) as t:
        model(src, tgt_in)

The model is not changed: hooks and evaluation mode end with the block.

Any model built from `glassformer.nn` can be traced. The ids of a translator, in order:

    src_embedding.ids, .rows, .scaled, .positions, .sum
    encoder.0.self.norm, .q_proj, .k_proj, .v_proj, .q_heads, .k_heads, .q, .k, .v,
        .products, .scores, .mask, .weights, .context, .concat, .out, .residual
    encoder.0.ff.norm, .w_gate, .w_in, .hidden, .out, .residual        encoder.norm
    tgt_embedding.*    decoder.0.self.*    decoder.0.cross.*    decoder.0.ff.*    decoder.norm    logits

There are q_heads and k_heads with rotary positions, mask where there is one, and w_gate with SwiGLU. In ff, w_gate,
w_in and out are the outputs of gate_proj, up_proj and down_proj; elsewhere out is that of o_proj. With post-norm a
block's norm follows its residual. A classifier ends in pooled, head, logits, a bare encoder in pooled. Before its
positions, an embedding with n-grams has .ngram_ids, .ngrams and .with_ngrams, one with bigrams .bigram_ids, .bigrams
and .with_bigrams, one with segments .segment_ids, .segments and .with_segments. Rows that are not scaled have no
.scaled; a norm after the embedding is .norm. A pooler is pooler, pooler_hidden, between pooled and the head. A masked
language model ends in mlm_transform, mlm_hidden, mlm_norm, logits. The ids of an ensemble begin with members.0,
members.1, … `sites.py` describes each step.
"""

from __future__ import annotations

import difflib
import re
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import cached_property
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.errors import UsageError
from glassformer.explain.capture.exact_inference import after_calls, exact_forward, exact_inference
from glassformer.explain.capture.sites import (
    SITES,
    Axis,
    Check,
    Step,
    UnknownRecord,
    reported_line,
    site_key,
    source_line,
    step_location,
)
from glassformer.explain.capture.slices import get_parameter, param_axes, sliced
from glassformer.models import LanguageModel, TextClassifier, Translator
from glassformer.models.encoder_models import Pooler
from glassformer.nn.attention import Tap
from glassformer.nn.embeddings import TokenEmbedding
from glassformer.nn.ngram_embeddings import NgramBatch
from glassformer.nn.operations import OPERATIONS, row_name
from glassformer.nn.steps import Input, id_of_path, is_reporting, report_to, step
from glassformer.utils.device import tuned

COPIED_AXES = ("vocab", "class")
"""Last axes of the model's output, which is copied, since its caller may change it in place."""
STREAMED = ("token", "key")
"""The axes of tokens."""
OWN = ("", "norm", "positions")
"""Steps that are the output of their module, whose path is their id."""
ROLES = ("weight", "bias")
"""The arguments of an operation that are parameters."""


class Trace(Mapping[str, Step]):
    """The steps of a forward pass by id, in order of computation, and the origin of every tensor.

    It can be read while the block is still open.

    Args:
        model: the model.
        only: wildcards of ids, or a predicate; other steps are neither kept nor copied.
        tap: called with the id and a copy of the tensor of each step of the pass; returns the tensor to use instead.

    Attributes:
        computed: the ids of all steps, kept or not, in order; each with the streams of its axes of tokens and keys.
        edited: the ids of the steps whose tensor the tap replaced, in order.
        call: the arguments of the last call of the model; None if it had a cache.
        output: the output of that call.
    """

    def __init__(self, model: nn.Module, only: Sequence[str] | Callable[[str], bool], tap: Tap | None = None) -> None:
        self.model = model
        self._steps: dict[str, Step] = {}
        self.computed: dict[str, dict[str, str]] = {}
        self.only = only
        self.tap = tap
        # A tap that names the steps it wants is not called for others, which would be copied and compared in vain.
        self._tapped: Collection[str] | None = getattr(tap, "ids", None)
        self.edited: list[str] = []
        self.call: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        self.output: Tensor | None = None
        modules = self._modules = list(model.named_modules(remove_duplicate=False))
        names: dict[str, str] = {}
        self._paths: dict[nn.Module, str] = {}
        for path, module in modules:
            self._paths.setdefault(module, path)
            if isinstance(module, TextClassifier) and not module.several and module.n_classes != 2:
                names[f"{path}.head".lstrip(".")] = f"{path}.logits".lstrip(".")
            elif isinstance(module, Pooler):
                names[f"{path}.dense"] = path
        self._names = tuple(names.items())
        embeddings = (path for path, module in modules if isinstance(module, TokenEmbedding))
        self._embeddings = {id_of_path(path, self._names) for path in embeddings}
        self._calls: dict[nn.Module, tuple[int, set[str]]] = {}
        self._copied: tuple[weakref.ref[Tensor], Tensor] | None = None
        self._origins: dict[tuple[int, int], tuple[weakref.ref[Any], str]] = {}

    def __getitem__(self, id: str) -> Step:
        if id in self._steps:
            return self._steps[id]
        if id in self.computed:
            raise UnknownRecord(f"{id!r} was computed, but `only` leaves it out", "add it to `only`")
        raise UnknownRecord(f"the trace holds no step called {id!r} among its {len(self)}", nearest(id, self.computed))

    def __iter__(self) -> Iterator[str]:
        return iter(self._steps)

    def __len__(self) -> int:
        return len(self._steps)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.values())) or "a trace without records"

    def tensor(self, id: str, slice: str = "") -> np.ndarray:
        """Return the values of a step or a parameter, or a slice of them: "head:3;token:0-50", see `take_slice`."""
        if (id := str(id)) in self._steps:
            return sliced(self[id].value, self[id].axes, slice)
        if id not in self.params:
            message = f"there is no tensor or parameter {id[:80]!r} in this trace"
            raise UnknownRecord(message, nearest(id, [*self, *self.params]))
        return sliced(get_parameter(self.model, id), self.params[id], slice)

    @cached_property
    def params(self) -> dict[str, tuple[Axis, ...]]:
        """Return the names of the parameters that the steps use, with their axes."""
        found: dict[str, tuple[Axis, ...]] = {}
        for reader in self.values():
            for role, name in reader.params.items():
                if name and name not in found:
                    found[name] = tuple(map(Axis, param_axes(reader, role), get_parameter(self.model, name).shape))
        return found

    @property
    def n_layers(self) -> dict[str, int]:
        """Return the number of layers of each stack, in order of computation."""
        return {one.stack: one.layer + 1 for one in self.values() if one.layer is not None}

    def add(self, steps: Mapping[str, Step]) -> None:
        """Add steps that follow those of the pass."""
        self._steps |= steps

    @cached_property
    def checks(self) -> list[Check]:
        """Return a comparison of the output with that of fused attention, for which the model is called once more.

        It is empty if the model was not called as a whole, or with a cache, or if a tap replaced a step.
        """
        if self.call is None or self.output is None or self.edited:
            return []
        args, kwargs = self.call
        with report_to(None), torch.no_grad():
            fused = exact_forward(self.model, *args, **kwargs)
        value = float((fused - self.output).abs().max()) if fused.numel() else 0.0
        unit = max(1e-4, 8 * torch.finfo(fused.dtype).eps)
        tolerance = unit * max(1.0, float(fused.abs().max()) if fused.numel() else 0.0)
        meaning = "The largest difference between the logits of attention step by step and of the fused kernel."
        return [Check("explicit against fused attention", value, tolerance, value <= tolerance, meaning)]

    def listen(
        self, module: nn.Module, name: str, x: Tensor, inputs: Sequence[Input], constants: dict[str, Any]
    ) -> Tensor:
        """Record a step as `step` reports it; return the tensor that the pass uses from there, perhaps by the tap."""
        if module not in self._paths:
            return x
        prefix, last = id_of_path(self._paths[module], self._names), name
        if name == "with":
            added = (self._origin(cast(Tensor, inputs[1])) or "").partition("@")[0].rpartition(".")[2]
            last = f"with_{added}" if f"with_{added}" in SITES else "with_ngrams"
        elif name in OWN:
            prefix, _, last = (prefix or name or "linear").rpartition(".")
        number, steps = self._calls.get(module, (1, set[str]()))
        if last in steps:  # in a second call ids end in "@2"
            number, steps = number + 1, set()
        self._calls[module] = number, steps | {last}
        suffix = f"@{number}" if number > 1 else ""

        def id_of(step: str) -> str:
            return f"{prefix}.{step}{suffix}" if prefix else f"{step}{suffix}"

        id = id_of(last)
        if name:
            variants = (constants.pop("op", "vocab"), *map(constants.get, ("kind", "how", "scheme")))
            key = site_key(name if name in OWN else last, *variants)
        else:  # a linear layer, by its axes
            shape = "token" if x.dim() > 2 else "class"
            key = site_key(last, shape)
            key = key if key in SITES and x.dim() - len(SITES[key].axes) in (0, 1) else f"linear:{shape}"
        key = f"embedding_{key}" if name == "norm" and prefix in self._embeddings else key
        op = SITES[key].op
        params = {role: constants.pop(role, module._parameters.get(role)) for role in ROLES}
        attrs = {constant: value for constant, value in constants.items() if value is not None}
        if op == "positions" and isinstance(inputs[0], Tensor) and inputs[0].any() and (first := int(inputs[0][0, 0])):
            attrs["first"] = first  # with a cache, earlier calls embedded the earlier positions
        row = OPERATIONS[row_name(op, attrs)]
        given = x
        if row.gives or op == "mask":
            x = self.apply_tap(id, x)
        wanted = [argument for argument in row.arguments if argument not in ROLES]
        read: list[str] = []
        for i, input in enumerate(inputs):
            found = id_of(input) if isinstance(input, str) else None if input is None else self._origin(input)
            if isinstance(input, Tensor) and found is None and i < len(wanted):
                found = self._add_unknown(id_of, last, wanted[i], input)
            read.append(found if found in self.computed else "")
        streams: dict[str, str] = {}
        for one in reversed(read):
            streams |= self.computed.get(one, {})
        if op == "dot":
            streams["key"] = self.computed[read[1]]["token"]
        params = {role: params[role] for role in ROLES if role in row.arguments}
        computed = [one for one in read[: len(wanted)] if one]
        self._add(id, key, x, computed, streams, params, attrs, editable=bool(row.gives))
        if x is not given and id not in self.edited:
            self._remember(given, id)  # pooling reads the mask of attention
        if last.startswith("with_"):  # what was added to an embedding, and its inputs, stand next to the later sum
            earlier = self._steps.get(read[1])
            for one in [*(earlier.inputs if earlier else ()), read[1], id]:
                self.computed[one] = self.computed.pop(one)
                if one in self._steps:
                    self._steps[one] = self._steps.pop(one)
        return x

    def end_call(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """Keep the arguments and the output of the model, to compute it a second time."""
        if not is_reporting():
            return
        self.call, self.output = None, None
        # Not with a cache, which a second call would find changed.
        if all(isinstance(value, Tensor | NgramBatch | bool | None) for value in (*args, *kwargs.values())):
            self.call = tuple(map(_copied, args)), {name: _copied(value) for name, value in kwargs.items()}
        if isinstance(output, Tensor):
            kept = self._copied
            self.output = kept[1] if kept and kept[0]() is output else output.detach().clone()

    def _remember(self, tensor: Tensor, id: str) -> None:
        self._origins[tensor.data_ptr(), tensor.numel()] = weakref.ref(tensor.untyped_storage()), id

    def _origin(self, tensor: Tensor) -> str | None:
        """Return the id of the step that a tensor came from, or that it is a reshaped view of."""
        storage, id = self._origins.get((tensor.data_ptr(), tensor.numel()), (None, None))
        return None if storage is None or storage() is None else id

    def _add_unknown(self, id_of: Callable[[str], str], reader: str, argument: str, x: Tensor) -> str:
        """Add a tensor that no recorded step computed as a step, given the step that reads it; return its id."""
        if argument == "mask":  # pooling reads the mask itself, not the edited one of attention
            return self._add(id_of("mask"), "mask:padding", x, attrs={"kind": "padding"})
        name = "memory" if reader in ("k_proj", "v_proj") else "input"
        if argument == "b":
            name = {"residual": "branch", "sum": "positions"}.get(reader, "added")
        return self._add(id_of(name), "input", x, streams={"token": "source"} if name == "memory" else {})

    def _add(
        self,
        id: str,
        key: str,
        x: Tensor,
        inputs: Sequence[str] = (),
        streams: Mapping[str, str] = MappingProxyType({}),
        params: Mapping[str, Tensor | None] = MappingProxyType({}),
        attrs: Mapping[str, Any] = MappingProxyType({}),
        editable: bool = False,
    ) -> str:
        """Keep a step if `only` selects it, and remember its tensor; return its id."""
        op, names, line = SITES[key].op, SITES[key].axes, SITES[key].line
        names = names if op != "input" else ("token", "feature")[-1 if x.dim() < 3 else 0 :]
        self.computed[id] = {name: streams.get(name) or _stream_of(id) for name in names if name in STREAMED}
        self._remember(x, id)
        if not self.wants(id):
            return id
        if id in self._steps:
            raise UsageError(f"two modules of the model would both record {id!r}", "rename one of them")
        kept = x.detach() if x.requires_grad else x
        if op == "mask":  # without a head axis where all heads have the same mask
            kept = kept[:, None] if kept.dim() < 3 else kept.squeeze(1) if kept.shape[1] == 1 else kept
            names = names if kept.dim() > 3 else names[1:]
        if op == "ids" or names[-1] in COPIED_AXES:
            kept = kept.clone()
            self._copied = weakref.ref(x), kept
        if kept.dim() > len(names):
            kept, names = (kept, ("batch", *names)) if kept.shape[0] > 1 else (kept.select(0, 0), names)
        if kept.dtype in (torch.bfloat16, torch.float16):
            kept = kept.float()
        stream = self.computed[id].get("token") if id.rpartition(".")[0] in self._embeddings else None
        stack, layer, block = step_location(id, stream)
        self._steps[id] = Step(
            id=id,
            site=key,
            op=op,
            inputs=tuple(inputs),
            params={role: self._parameters.get(p, "") for role, p in params.items() if p is not None},
            attrs=dict(attrs),
            axes=tuple(Axis(*each, self.computed[id].get(each[0])) for each in zip(names, kept.shape, strict=True)),
            value=kept,
            source=source_line(*line) if line else reported_line() if op != "input" else None,
            stack=stack,
            layer=layer,
            block=block,
            editable=editable,
        )
        return id

    def apply_tap(self, id: str, value: Tensor) -> Tensor:
        """Return the tensor to use for a step, as replaced by the tap."""
        if self.tap is None or (self._tapped is not None and id.partition("@")[0] not in self._tapped):
            return value
        # A copy, since the tensor may be a view of steps already recorded.
        replaced = self.tap(id, value.clone())
        was, now = map(_form_of, (value, replaced))
        if now != was:
            raise UsageError(f"the tap must return a tensor like {id!r}, {was}, got {now}")
        if not torch.equal(replaced, value):
            self.edited.append(id)
        return replaced

    def wants(self, id: str) -> bool:
        """Return whether a step with this id is kept."""
        if callable(self.only):
            return self.only(id)
        return any(fnmatchcase(id, pattern) for pattern in self.only)

    @cached_property
    def _parameters(self) -> dict[Tensor | None, str]:
        """Return the name of each parameter and buffer, ten times as fast as torch's two methods."""
        names: dict[Tensor | None, str] = {}
        for path, module in self._modules:
            prefix = f"{path}." if path else ""
            for name, tensor in [*module._parameters.items(), *module._buffers.items()]:
                names.setdefault(tensor, prefix + name)
        return names


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def _form_of(x: Any) -> str:
    return f"{tuple(x.shape)} {x.dtype} on {x.device}" if isinstance(x, Tensor) else type(x).__name__


def _stream_of(id: str) -> str:
    """Return the stream of an embedding by its id: "src_embedding" has the source, "tgt_embedding" the target."""
    found = re.search(r"(?:^|\.)(src|source|tgt|target)", id)
    return "text" if found is None else "source" if found[1][0] == "s" else "target"


def nearest(id: str, known: Collection[str]) -> str:
    """Return a hint with the most similar ids."""
    if not known:
        return "call the model inside `with trace(model)`"
    near = difflib.get_close_matches(id, known, n=3, cutoff=0.5)
    return f"the nearest are {', '.join(near)}" if near else f"the first is {next(iter(known))}"


@contextmanager
def trace(
    model: nn.Module, only: str | Sequence[str] | Callable[[str], bool] = "*", *, tap: Tap | None = None
) -> Iterator[Trace]:
    """Record all that `model` computes within the block, in this thread, in evaluation mode and full fp32.

    Args:
        model: a model of this package, or any module made of layers from `glassformer.nn`.
        only: wildcards of the ids to keep, "decoder.*.cross.*", or a predicate of an id; everything by default.
        tap: called with the id of every step of the forward pass, kept or not, and a copy of its tensor with the batch
            axis first; returns the tensor to record and use instead, of the same shape and type. Steps computed
            only for the record (`Site.editable` is False) are not passed. A mask is boolean and broadcasts to
            (B, H, Q, K). A cache keeps the keys and values from before the tap.

    Yields:
        The trace, a mapping from ids to records.

    Raises:
        UsageError: another trace is open in this thread; the tap returned no tensor of the same shape, type and device;
            or, at the end of the block, a wildcard matched none of the steps.
    """
    if is_reporting():
        raise UsageError("a trace is already open in this thread", "close it before opening another")
    # Without the wrapper of torch.compile.
    inner = getattr(model, "_orig_mod", model)
    recorded = Trace(inner, [only] if isinstance(only, str) else only, tap)
    reported = [one.output for one in inner.modules() if isinstance(one, LanguageModel | Translator)]  # as logits
    linear = [module for module in inner.modules() if isinstance(module, nn.Linear) and module not in reported]
    with (
        report_to(recorded.listen),
        after_calls(linear, lambda module, x, named, y: step(module, "", y, *x, *named.values())),
        after_calls([inner], recorded.end_call),
        exact_inference(inner),
    ):
        yield recorded
    for pattern in () if callable(recorded.only) or not recorded.computed else recorded.only:
        if not any(fnmatchcase(id, pattern) for id in recorded):
            raise UsageError(f"only={pattern!r} matches no step that was computed", nearest(pattern, recorded.computed))


def record(model: nn.Module, inputs: Mapping[str, Any], tap: Tap | None = None) -> Trace:
    """Return the trace of one forward pass, given the arguments of the model by name."""
    with tuned(next(iter(inputs.values())).device), torch.no_grad(), trace(model, tap=tap) as records:
        exact_forward(model, **inputs)
    return records
