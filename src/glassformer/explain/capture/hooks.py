"""Record the steps of module calls by forward hooks that see one thread's calls, and of attention by a tap.

`attach.py` attaches them; the blocks whose hooks need more than a function are here: attention and embeddings.

A callback that returns a tensor replaces the one it received. No other module registers hooks.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from threading import get_ident
from typing import Any, cast

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from glassformer.explain.capture.sites import SITES
from glassformer.explain.capture.tape import Axis, Tape
from glassformer.nn.attention import Mask, MultiHeadAttention, Tap, fused_attention
from glassformer.nn.embeddings import LearnedPositions, Rotation, SinusoidalPositions, TokenEmbedding
from glassformer.nn.layers import LayerNorm, RMSNorm

Params = nn.Module | Mapping[str, Tensor | None] | None


class CallRecorder:
    """Records the steps of a module, call by call.

    Attributes:
        streams: the stream of each token axis, by the axis' name in `SITES`.
        inputs: ids of inputs from outside this call, by their name in `SITES`; None where there is none.
        recorded: names of the steps recorded so far. An input that is neither of these is omitted, like the key
            projection when keys come from a cache.
    """

    def __init__(self, tape: Tape, name: str) -> None:
        self.tape = tape
        self._prefix, self._suffix, self._n_calls = (f"{name}." if name else ""), "", 0
        self.streams: dict[str, str] = {}
        self.inputs: dict[str, str | None] = {}
        self.recorded: set[str] = set()

    def begin(self) -> None:
        """Begin the record of a call."""
        self._n_calls += 1
        self._suffix = f"@{self._n_calls}" if self._n_calls > 1 else ""
        self.streams, self.inputs, self.recorded = {}, {}, set()

    def id(self, step: str) -> str:
        """Return the id of a step: "decoder.1.cross.q", in the second call "decoder.1.cross.q@2"."""
        return f"{self._prefix}{step}{self._suffix}"

    def take(self, name: str, x: Tensor, step: str, stream: str = "text") -> str:
        """Take a tensor from outside as an input; return its stream.

        A tensor that no recorded step computed becomes the step of this name, of this stream.
        """
        origin = self.tape.origin(x, self.id(step), stream)
        self.inputs[name] = origin.id
        return origin.stream

    def record(
        self,
        key: str,
        value: Tensor,
        *,
        name: str | None = None,
        params: Params = None,
        attrs: Mapping[str, Any] | None = None,
        tap: bool = True,
    ) -> Tensor:
        """Record a step by its key in `SITES`; return the tensor that the pass uses from there, perhaps by a tap."""
        site, id = SITES[key], self.id(name or key.partition(":")[0])
        used = value = self.tape.apply_tap(id, value) if tap and site.editable else value
        inputs = [self.inputs.get(name) or (self.id(name) if name in self.recorded else None) for name in site.inputs]
        axes = [Axis("token" if axis == "memory" else axis, self.streams.get(axis)) for axis in site.axes]
        if site.op == "mask":
            value = value.squeeze(1) if value.dim() > 3 and value.shape[1] == 1 else value
            # Without a head axis where all heads have the same mask.
            axes = axes if value.dim() > 3 else axes[1:]
        self.recorded.add(key.partition(":")[0])
        self.tape.add(id, key, [input for input in inputs if input], value, axes, params=params, attrs=attrs)
        return used


Arguments = dict[str, Any]


@cache
def _parameters(kind: type[nn.Module]) -> tuple[list[str], str | None]:
    """Return the names of the positional parameters of `forward`, and of the one that takes the rest."""
    _, *parameters = inspect.signature(kind.forward).parameters.values()
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return positional, next((p.name for p in parameters if p.kind == p.VAR_POSITIONAL), None)


def named_arguments(module: nn.Module, args: tuple[Any, ...], kwargs: Arguments) -> Arguments:
    """Return the arguments of a call by name, in the order of the parameters."""
    names, rest = _parameters(type(module))
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    named = {name: given[name] for name in names if name in given} | given
    return named if rest is None else named | {rest: args[len(names) :]}


class ModuleHooks:
    """The hooks of one trace, which ignore calls from threads other than the one that created them."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.thread = get_ident()
        self._handles: list[RemovableHandle] = []

    def _add(self, register: Callable[..., RemovableHandle], hook: Callable[..., Any], **options: bool) -> None:
        # *args: while hooks are added and removed, another thread may call this one without the arguments by name.
        def in_this_thread(*args: Any) -> Any:
            return hook(*args) if get_ident() == self.thread else None

        self._handles.append(register(in_this_thread, **options))

    def recorder(self, module: nn.Module, name: str) -> CallRecorder:
        """Return a recorder that starts again at each call of a module."""
        recorder = CallRecorder(self.tape, name)
        self._add(module.register_forward_pre_hook, lambda *_: recorder.begin())
        return recorder

    def before(self, module: nn.Module, callback: Callable[[tuple[Any, ...], Arguments], Any]) -> None:
        """Call back with the arguments of each call, positional ones and others, which it may replace."""
        self._add(module.register_forward_pre_hook, lambda _, *both: callback(*both), with_kwargs=True)

    def on_call(self, module: nn.Module, callback: Callable[[Arguments], None]) -> None:
        """Call back with the arguments of each call, by the names that `forward` gives them."""
        self.before(module, lambda args, kwargs: callback(named_arguments(module, args, kwargs)))

    def set_tap(self, module: nn.Module, make_tap: Callable[[Arguments], Tap]) -> None:
        """Pass each call of an attention the tap that `make_tap` makes of its arguments, after its present tap.

        The tap is an argument of the call, since threads may share a module.
        """

        def with_tap(args: tuple[Any, ...], kwargs: Arguments) -> Any:
            tap, present = make_tap(named_arguments(module, args, kwargs)), kwargs.get("tap")
            return args, {**kwargs, "tap": tap if present is None else lambda site, x: tap(site, present(site, x))}

        self.before(module, with_tap)

    def on_input(self, module: nn.Module, callback: Callable[[Tensor], Tensor | None]) -> None:
        """Call back with the first positional argument of each call."""

        def hook(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
            used = callback(args[0])
            return None if used is None or used is args[0] else (used, *args[1:])

        self._add(module.register_forward_pre_hook, hook)

    def on_output(self, module: nn.Module, callback: Callable[[Tensor], Tensor | None]) -> None:
        """Call back with the output of each call."""
        self._add(module.register_forward_hook, lambda _, __, output: callback(output))

    def record_output(self, recorder: CallRecorder, key: str, module: nn.Module) -> None:
        """Record the output of each call of a module, which its parameters compute."""
        self.on_output(module, lambda output: recorder.record(key, output, params=module))

    def remove(self) -> None:
        """Remove all hooks."""
        for handle in self._handles:
            handle.remove()


@contextmanager
def replace_outputs(
    modules: Iterable[nn.Module], replace: Callable[[nn.Module, tuple[Any, ...], Tensor], Tensor | None]
) -> Iterator[None]:
    """Replace the outputs of modules within the block, in this thread; None keeps an output."""
    thread = get_ident()

    def hook(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor | None:
        return replace(module, args, output) if get_ident() == thread else None

    handles = [module.register_forward_hook(hook) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def observed_factor(before: Tensor, after: Tensor, expected: float) -> float:
    """Return the factor between two tensors: `expected` where it is exact, else the quotient of one element."""
    row = before.detach().flatten()[: before.shape[-1]] if before.numel() else before
    if not bool(row.any()):
        row = before.detach().flatten()
    if not bool(row.any()):
        # All zeros: any factor fits.
        return expected
    index = row.abs().argmax()
    value, scaled = row[index], after.detach().flatten()[index]
    return expected if bool(value * expected == scaled) else float(scaled.double() / value.double())


def fused_context(args: Arguments) -> Tap:
    """Return a tap that replaces the context by that of the fused kernel for the same queries, keys and values."""
    tensors: dict[str, Tensor] = {}

    def tap(site: str, tensor: Tensor) -> Tensor:
        tensors[site] = tensor
        if site != "context":
            return tensor
        return fused_attention(tensors["q"], tensors["k"], tensors["v"], args.get("mask"), kernel=True)

    return tap


class AttentionHooks:
    """Hooks of one attention.

    With rotary positions, rotate gives q and k and split_heads is a step of its own; else split_heads gives them.
    """

    def __init__(self, hooks: ModuleHooks, module: MultiHeadAttention, name: str) -> None:
        self.hooks, self.module = hooks, module
        self.recorder = recorder = hooks.recorder(module, name)
        hooks.set_tap(module, self.start_call)
        for letter in "qkv":
            self._hook_projection(letter, getattr(module, f"{letter}_proj"))
        hooks.on_input(module.o_proj, lambda x: recorder.record("concat", x))
        hooks.record_output(recorder, "out", module.o_proj)

    def start_call(self, args: Arguments) -> Tap:
        """Start the record of a call; return the tap for its steps."""
        recorder = self.recorder
        self.mask: Mask | None = args.get("mask")
        self.rotation: Rotation | None = args.get("rotation")
        queries = recorder.take("x", args["x"], "input")
        if (memory := args.get("memory")) is None:
            keys = recorder.take("memory", args["x"], "input")
        else:  # one of unknown origin is taken for the source
            keys = recorder.take("memory", memory, "memory", "source")
        recorder.streams = {"token": queries, "memory": keys, "key": keys}
        return self.tap

    def _hook_projection(self, letter: str, linear: nn.Linear) -> None:
        def record(output: Tensor) -> Tensor:
            value = self.recorder.record(f"{letter}_proj", output, params=linear)
            if letter != "v" and self.rotation is not None:
                self.recorder.record(f"{letter}_heads", self.module._split_heads(value))
            return value

        self.hooks.on_output(linear, record)

    def tap(self, step: str, value: Tensor) -> Tensor:
        """Record one step of `attention`; return the tensor to use from there."""
        match step:
            case "q" | "k" if self.rotation is not None:
                return self.recorder.record(f"{step}:rotate", value, attrs={"base": self.rotation.base})
            case "products":
                self.products: Tensor | None = self.recorder.record(step, value)
                return self.products
            case "scores":
                assert self.products is not None
                factor = observed_factor(self.products, value, self.module.d_head**-0.5)
                # Free a large tensor that may not be kept.
                self.products = None
                return self.recorder.record(step, value, attrs={"factor": factor})
            case "mask":
                return self._record_mask(value)
            case _:
                return self.recorder.record(step, value)

    def _record_mask(self, mask: Tensor) -> Tensor:
        """Record a mask (Q, K), or (1, K) if all queries share it, with batch and head axes where they differ."""
        causal = self.mask is not None and self.mask.is_causal
        kind = "causal" if causal else "given" if mask.shape[-2] > 1 else "padding"
        if kind == "padding":
            self.hooks.tape.padding = self.recorder.id("mask")
        return self.recorder.record(f"mask:{kind}", mask, attrs={"kind": kind})


def stream_of(name: str) -> str:
    """Return the stream of an embedding by its name: "src_embedding" has the source, "tgt_embedding" the target."""
    last = name.rsplit(".", 1)[-1]
    if last.startswith(("src", "source")):
        return "source"
    return "target" if last.startswith(("tgt", "target")) else "text"


class EmbeddingHooks:
    """Hooks of a token embedding.

    Its steps are ids, rows, scaled (unless the factor is 1), with_ngrams and with_bigrams (where these are added),
    positions and sum (where there are positions), and norm (where there is one).
    """

    def __init__(self, hooks: ModuleHooks, module: TokenEmbedding, name: str) -> None:
        self.tape, self.module, self.stream = hooks.tape, module, stream_of(name)
        self.recorder = hooks.recorder(module, name)
        hooks.on_call(module, self.start_call)
        if module.positions is not None:
            hooks.on_input(module.positions, self.keep_first_position)
            hooks.on_output(module.positions, self.keep_positions)
        hooks.on_input(module.dropout if module.norm is None else module.norm, self.record)
        if module.norm is not None:
            hooks.on_output(module.norm, self.record_norm)

    def start_call(self, args: Arguments) -> None:
        self.recorder.streams["token"] = self.stream
        self.ids: Tensor = args["ids"]
        self.added: tuple[Tensor, ...] = args["more"]

    def keep_first_position(self, positions: Tensor) -> None:
        self.first = int(positions[0, 0]) if positions.numel() else 0

    def keep_positions(self, output: Tensor) -> Tensor:
        # Recorded later, after the rows.
        self.positions = self.tape.apply_tap(self.recorder.id("positions"), output)
        return self.positions

    def record(self, total: Tensor) -> Tensor:
        """Record all steps of a call, given the input of dropout, which is the value of the last one."""
        tape, recorder, id, module = self.tape, self.recorder, self.recorder.id, self.module
        origins = {tape.origin(added, id("added")).id: added for added in self.added}
        names = {other: f"with_{other.rpartition('.')[2]}" for other in origins}
        sums = {other: name if name in SITES else "with_ngrams" for other, name in names.items()}
        present = {
            "scaled": module.scale != 1,
            **dict.fromkeys(sums.values(), True),
            "sum": module.positions is not None,
        }
        last = next((step for step in reversed(present) if present[step]), "rows")

        def record(step: str, x: Tensor, **more: Any) -> None:
            nonlocal total
            if step == last:
                total = recorder.record(f"{step}:last", total, **more)
            else:
                recorder.record(step, x, **more)
            recorder.inputs["before"] = id(step)

        recorder.record("ids", self.ids)
        recompute = any(tape.wants(id(step)) for step in ("rows", "scaled", *sums.values()))
        x = module.weight.detach()[self.ids] if recompute else total
        record("rows", x, params={"weight": module.weight})
        if present["scaled"]:
            x = x * module.scale
            record("scaled", x, attrs={"factor": module.scale})
        for other, added in origins.items():
            tape.move_to_end(other)
            x, recorder.inputs["added"] = x + added, other
            record(sums[other], x)
        if module.positions is not None:
            self._record_positions(module.positions)
            total = recorder.record("sum", total)
            recorder.inputs["before"] = id("sum")
        return total

    def record_norm(self, output: Tensor) -> Tensor:
        """Record the norm of the sum."""
        norm = cast(LayerNorm | RMSNorm, self.module.norm)
        kind = "layer_norm" if isinstance(norm, LayerNorm) else "rms_norm"
        attrs = {"eps": norm.eps}
        return self.recorder.record(f"embedding_norm:{kind}", output, name="norm", params=norm, attrs=attrs)

    def _record_positions(self, module: nn.Module) -> None:
        kind = "other"
        attrs: dict[str, Any] = {"scheme": type(module).__name__}
        params: dict[str, Tensor | None] = {}
        match module:
            case SinusoidalPositions():
                kind = "sinusoidal" if module.amplitude == 1 else "amplitude"
                attrs = {"scheme": "sinusoidal", "amplitude": module.amplitude}
            case LearnedPositions():
                kind = attrs["scheme"] = "learned"
                params["weight"] = module.weight
        if self.first:
            # With a cache, earlier calls embedded the earlier positions.
            attrs["first"] = self.first
        self.recorder.record(f"positions:{kind}", self.positions, params=params, attrs=attrs, tap=False)
