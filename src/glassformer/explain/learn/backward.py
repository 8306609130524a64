"""The backward pass over the recorded steps of a forward pass: reverse-mode differentiation, step by step.

A forward pass is a list of steps, each computed from earlier ones. From the last to the first, the gradient of a step's
value is the sum of what the steps that use it pass back (the chain rule):

    x.grad = Σ over the uses y = f(x, …) of  (∂y/∂x)ᵀ y.grad

`RULES` says what an operation passes back to each of its inputs and parameters, `FUNCTIONS` computes it. The result is
recorded as steps again, "encoder.0.self.weights.grad", so that whatever shows a step of the forward pass shows these.

Autograd computes the same gradients and is what training uses; `learning.py` compares the two.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.explain.capture.sites import SourceLine, source_line
from glassformer.explain.capture.tape import Axis, Step, step_location
from glassformer.explain.learn.operations import GRADIENT
from glassformer.nn.embeddings import Rotation


@dataclass(frozen=True)
class Rule:
    """What an operation passes back to one of its inputs or parameters.

    Attributes:
        to: index of the input, or role of the parameter.
        op: the operation that computes it, a key of `FUNCTIONS`.
        reads: what it is computed from: "g", the gradient of the operation's result; "y", that result; "x0", "x1" …,
            its inputs, of which those that the step lacks are omitted; or another step by its id.
        params: roles of the parameters that it is computed from.
    """

    to: int | str
    op: str
    reads: str
    params: tuple[str, ...] = ()


RULES: dict[str, tuple[Rule, ...]] = {
    "lookup": (Rule("weight", "lookup_backward", "x0 g"),),
    "embedding_bag": (Rule("weight", "embedding_bag_backward", "x0 g"),),
    "positions": (Rule("weight", "positions_backward", "g"),),
    "scale": (Rule(0, "scale", "g"),),
    "add": (Rule(0, "sum", "g"), Rule(1, "sum", "g")),
    "layer_norm": (
        Rule(0, "layer_norm_backward", "x0 g", ("weight",)),
        Rule("weight", "layer_norm_weight_backward", "x0 g"),
        Rule("bias", "bias_backward", "g"),
    ),
    "rms_norm": (Rule(0, "rms_norm_backward", "x0 g", ("weight",)), Rule("weight", "rms_norm_weight_backward", "x0 g")),
    "linear": (
        Rule(0, "linear_backward", "g", ("weight",)),
        Rule("weight", "linear_weight_backward", "x0 g"),
        Rule("bias", "bias_backward", "g"),
    ),
    "split_heads": (Rule(0, "concat_heads", "g"),),
    "concat_heads": (Rule(0, "split_heads", "g"),),
    "rotate": (Rule(0, "rotate_backward", "g"),),
    "dot": (Rule(0, "mix", "g x1"), Rule(1, "transposed_mix", "g x0")),
    "softmax": (Rule(0, "softmax_backward", "y g"),),
    "mix": (Rule(0, "dot", "g x1"), Rule(1, "transposed_mix", "x0 g")),
    **{name: (Rule(0, f"{name}_backward", "x0 g"),) for name in ("relu", "gelu", "gelu_tanh", "silu", "tanh")},
    "swiglu": (Rule(0, "swiglu_gate_backward", "x0 x1 g"), Rule(1, "swiglu_backward", "x0 g")),
    "pool": (Rule(0, "pool_backward", "x0 g x1"),),
    "pin_zero": (Rule(0, "pin_zero_backward", "g"),),
    "cross_entropy": (Rule(0, "cross_entropy_backward", "loss.probabilities x1 g"),),
    "mean_loss": (Rule(0, "mean_loss_backward", "g"),),
    "error": (Rule(0, "sum", "g"),),
    "square": (Rule(0, "square_backward", "x0 g"),),
}
"""What each operation passes back. Ids, masks and sinusoids have no gradient: they are not computed from weights."""

# g is the gradient of the result, x the input, w the weight, L the number of tokens; `like` is the tensor whose
# gradient is computed, where its shape matters.


def sum_of(*gradients: Tensor) -> Tensor:
    """Add what all uses pass back; a sum a + b passes its gradient back to both unchanged."""
    return torch.stack(gradients).sum(dim=0)


def lookup_backward(ids: Tensor, g: Tensor, like: Tensor, without_row_0: bool = False) -> Tensor:
    """Add the gradient of each token (L, D) to the row of its id (V, D); a row that was read twice gets two."""
    rows = torch.zeros_like(like).index_add_(0, ids.flatten(), g.reshape(-1, g.shape[-1]))
    if without_row_0:  # of n-grams and bigrams, which stays zero
        rows[0] = 0
    return rows


def embedding_bag_backward(ids: Tensor, g: Tensor, like: Tensor, how: str = "mean") -> Tensor:
    """Add to the row of each of a token's n-grams (L, G) the token's gradient, of a mean divided by their number."""
    n = (ids > 0).sum(dim=-1, keepdim=True).clamp(min=1) if how == "mean" else 1
    each = (g / n)[:, None].expand(*ids.shape, -1)  # (L, G, D)
    return lookup_backward(ids, each, like, without_row_0=True)


def positions_backward(g: Tensor, like: Tensor) -> Tensor:
    """Place the gradients of the L tokens in the first L rows of the position table."""
    rows = torch.zeros_like(like)
    rows[: g.shape[0]] = g
    return rows


def normalised(x: Tensor, eps: float, centred: bool) -> tuple[Tensor, Tensor]:
    """Return x̂, the input of a norm with mean 0 (if centred) and mean square 1, and 1/σ."""
    x = x - x.mean(dim=-1, keepdim=True) if centred else x
    scale = torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps)
    return x * scale, scale


def layer_norm_backward(x: Tensor, g: Tensor, w: Tensor, eps: float) -> Tensor:
    """Return (ĝ - mean ĝ - x̂ · mean(ĝ x̂)) / σ with ĝ = g · w: what changes mean or length of x is lost."""
    x_hat, scale = normalised(x, eps, centred=True)
    g = g * w
    return scale * (g - g.mean(dim=-1, keepdim=True) - x_hat * (g * x_hat).mean(dim=-1, keepdim=True))


def layer_norm_weight_backward(x: Tensor, g: Tensor, eps: float) -> Tensor:
    """Return Σ over tokens of g · x̂."""
    return (g * normalised(x, eps, centred=True)[0]).reshape(-1, g.shape[-1]).sum(dim=0)


def rms_norm_backward(x: Tensor, g: Tensor, w: Tensor, eps: float) -> Tensor:
    """Return (ĝ - x̂ · mean(ĝ x̂)) / σ with ĝ = g · w."""
    x_hat, scale = normalised(x, eps, centred=False)
    g = g * w
    return scale * (g - x_hat * (g * x_hat).mean(dim=-1, keepdim=True))


def rms_norm_weight_backward(x: Tensor, g: Tensor, eps: float) -> Tensor:
    """Return Σ over tokens of g · x̂."""
    return (g * normalised(x, eps, centred=False)[0]).reshape(-1, g.shape[-1]).sum(dim=0)


def linear_backward(g: Tensor, w: Tensor) -> Tensor:
    """Return g W: input i gets Σ over outputs of g(o) · W(o, i)."""
    return g @ w


def linear_weight_backward(x: Tensor, g: Tensor) -> Tensor:
    """Return gᵀ x: W(o, i) gets Σ over tokens of g(t, o) · x(t, i)."""
    return g.reshape(-1, g.shape[-1]).T @ x.reshape(-1, x.shape[-1])


def bias_backward(g: Tensor) -> Tensor:
    """Return Σ over tokens of g, since a bias is added to each."""
    return g.reshape(-1, g.shape[-1]).sum(dim=0)


def rotate_backward(g: Tensor, base: float) -> Tensor:
    """Rotate back by the same angles: the transpose of a rotation is its inverse."""
    rotation = Rotation.at(torch.arange(g.shape[-2], device=g.device)[None], g.shape[-1], base)
    return Rotation(rotation.cos, -rotation.sin, base).rotate(g[None])[0]


def transposed_mix(weights: Tensor, x: Tensor) -> Tensor:
    """Return weightsᵀ x of each head: key k gets Σ over queries of weights(q, k) · x(q)."""
    return weights.transpose(-2, -1) @ x


def softmax_backward(y: Tensor, g: Tensor) -> Tensor:
    """Return y · (g - Σ g y): a score matters as far as its gradient differs from the mean that y weighs."""
    return y * (g - (g * y).sum(dim=-1, keepdim=True))


def relu_backward(x: Tensor, g: Tensor) -> Tensor:
    """Return g where x > 0, else 0."""
    return g * (x > 0)


def gelu_backward(x: Tensor, g: Tensor) -> Tensor:
    """Return g · (Φ(x) + x φ(x)), φ being the density of the standard normal distribution Φ."""
    density = (-x.square() / 2).exp() / math.sqrt(2 * math.pi)
    return g * ((1 + torch.erf(x / math.sqrt(2))) / 2 + x * density)


def gelu_tanh_backward(x: Tensor, g: Tensor) -> Tensor:
    """Return g · ((1 + t) / 2 + x/2 · (1 - t²) u′), with u = √(2/π) (x + 0.044715 x³) and t = tanh u."""
    c = math.sqrt(2 / math.pi)
    t = (c * (x + 0.044715 * x**3)).tanh()
    return g * ((1 + t) / 2 + x / 2 * (1 - t.square()) * c * (1 + 3 * 0.044715 * x.square()))


def silu_backward(x: Tensor, g: Tensor) -> Tensor:
    """Return g · s (1 + x (1 - s)), s being the sigmoid of x."""
    s = x.sigmoid()
    return g * s * (1 + x * (1 - s))


def tanh_backward(x: Tensor, g: Tensor) -> Tensor:
    """Return g · (1 - tanh² x)."""
    return g * (1 - x.tanh().square())


def swiglu_gate_backward(gate: Tensor, x: Tensor, g: Tensor) -> Tensor:
    """Return g · x · s (1 + gate (1 - s)), s being the sigmoid of the gate."""
    return silu_backward(gate, g * x)


def swiglu_backward(gate: Tensor, g: Tensor) -> Tensor:
    """Return g · silu(gate)."""
    return g * nn.functional.silu(gate)


def pool_backward(x: Tensor, g: Tensor, mask: Tensor | None, how: str) -> Tensor:
    """Return what each token (L, D) gets: its share of a mean, or all where it is the largest; equal ones share."""
    real = torch.ones(x.shape[0], dtype=torch.bool, device=x.device) if mask is None else mask.flatten()
    total = torch.zeros_like(x)
    if not bool(real.any()):
        return total
    for name, part in zip(how.split("+"), g.split(x.shape[-1]), strict=True):
        if name == "mean":
            total[real] += part / real.sum()
        elif name == "max":
            largest = (x == x[real].amax(dim=0)) & real[:, None]
            total += largest * part / largest.sum(dim=0)
        else:
            total[0] += part * real[0]
    return total


def pin_zero_backward(g: Tensor) -> Tensor:
    """Return the gradient of the second class: the first one's logit is no number of the model, but 0."""
    return g[1:]


def cross_entropy_backward(p: Tensor, q: Tensor, g: Tensor) -> Tensor:
    """Return (p - q) · g of each position: the probabilities minus the targets."""
    return (p - q) * g[:, None] if p.dim() > 1 else (p - q) * g


def square_backward(x: Tensor, g: Tensor) -> Tensor:
    """Return g · 2x: the further off an output is, the larger its gradient."""
    return g * 2 * x


def mean_loss_backward(g: Tensor, like: Tensor, labels: list[int | None]) -> Tensor:
    """Return g / n at each of the n positions with a label, else 0."""
    scored = torch.tensor([label is not None for label in labels], device=g.device)
    return torch.where(scored, g / scored.sum(), torch.zeros_like(like))


FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "sum": sum_of,
    "scale": lambda g, factor: g * factor,
    "concat_heads": lambda g: g.transpose(0, 1).flatten(-2),
    "split_heads": lambda g, like: g.unflatten(-1, (like.shape[0], -1)).transpose(0, 1),
    "mix": lambda weights, x: weights @ x,
    "dot": lambda g, x: g @ x.transpose(-2, -1),
    **{
        f.__name__: f
        for f in (lookup_backward, embedding_bag_backward, positions_backward)
        + (layer_norm_backward, layer_norm_weight_backward, rms_norm_backward, rms_norm_weight_backward)
        + (linear_backward, linear_weight_backward, bias_backward, rotate_backward, transposed_mix, softmax_backward)
        + (relu_backward, gelu_backward, gelu_tanh_backward, silu_backward, tanh_backward)
        + (swiglu_gate_backward, swiglu_backward, pool_backward, pin_zero_backward)
        + (cross_entropy_backward, square_backward, mean_loss_backward)
    },
}
"""The operations of a backward pass. Some are operations of a forward pass: the gradient of q kᵀ for q is g k."""


class BackwardPass:
    """The gradients of all steps and parameters of a forward pass, by id: "encoder.0.self.weights.grad".

    Args:
        steps: the steps of the forward pass in order, the last of which is the loss.
        parameter: returns a parameter by name.
        axes: the axes of each parameter by name.
    """

    def __init__(
        self, steps: Mapping[str, Step], parameter: Callable[[str], Tensor], axes: Mapping[str, tuple[str, ...]]
    ) -> None:
        self.forward, self.parameter, self.axes = steps, parameter, axes
        self.steps: dict[str, Step] = {}
        self._passed: dict[str, list[Step]] = {}
        """What the uses of a step or parameter have passed back so far."""
        backwards = [*steps.values()][::-1]
        self._keep(backwards[0].id, torch.ones_like(backwards[0].value), "one", (), {}, {})
        for step in backwards:
            if step.id in self._passed:
                self._add_up(step.id)
                for rule in RULES.get(step.op, ()):
                    self._pass_back(step, rule)
        for name in axes:
            if name in self._passed:
                self._add_up(name)

    def _pass_back(self, step: Step, rule: Rule) -> None:
        """Compute what a step passes back to one of its inputs or parameters."""
        to = step.params.get(rule.to) if isinstance(rule.to, str) else dict(enumerate(step.inputs)).get(rule.to)
        if not to or not self._of(to).is_floating_point():
            return
        reads = {"g": f"{step.id}{GRADIENT}", "y": step.id, **{f"x{i}": id for i, id in enumerate(step.inputs)}}
        named_inputs = (reads.get(name, name) for name in rule.reads.split())
        inputs = tuple(id for id in named_inputs if id in self.forward or id in self.steps)
        params = {role: step.params[role] for role in rule.params}
        attrs = _attrs(rule.op, step)
        function = FUNCTIONS[rule.op]
        arguments = [self._of(id) for id in inputs] + [self.parameter(name) for name in params.values()]
        if rule.op == "pool_backward" and len(inputs) < 3:
            arguments.append(None)  # pyright: ignore
        named = dict(attrs)
        if "like" in inspect.signature(function).parameters:
            named["like"] = self._of(to)
        self._keep(to, function(*arguments, **named), rule.op, inputs, params, attrs, step.id)

    def _keep(
        self,
        to: str,
        value: Tensor,
        op: str,
        inputs: tuple[str, ...],
        params: dict[str, str],
        attrs: dict[str, Any],
        by: str = "",
    ) -> None:
        """Keep what a use passes back; it becomes a step when it is added up."""
        prefix = to.rpartition(".")[0] + "."
        id = f"{to}{GRADIENT}.{by.removeprefix(prefix)}"
        self._passed.setdefault(to, []).append(self._step(id, to, value, op, inputs, params, attrs))

    def _add_up(self, id: str) -> None:
        """Record the gradient of a step or parameter: what its only use passes back, or the sum over all uses."""
        parts = self._passed.pop(id)
        name = f"{id}{GRADIENT}"
        if len(parts) == 1:
            (part,) = parts
            self.steps[name] = self._step(name, id, part.value, part.op, part.inputs, part.params, part.attrs)
            return
        # What an addition passes back is its own gradient, which needs no step of its own.
        names = [part.inputs[0] if part.op == "sum" else part.id for part in parts]
        self.steps |= {part.id: part for part in parts if part.op != "sum"}
        self.steps[name] = self._step(name, id, sum_of(*(part.value for part in parts)), "sum", tuple(names), {}, {})

    def _step(
        self,
        id: str,
        of: str,
        value: Tensor,
        op: str,
        inputs: tuple[str, ...],
        params: dict[str, str],
        attrs: dict[str, Any],
    ) -> Step:
        known = self.forward.get(of)
        axes = tuple(map(Axis, self.axes[of])) if known is None else known.axes
        stack, layer, block = step_location(of) if known is None else (known.stack, known.layer, known.block)
        return Step(
            id=id,
            site=op,
            op=op,
            inputs=inputs,
            params=params,
            attrs=attrs,
            axes=axes,
            value=value,
            source=source_of_gradient(op),
            stack=stack,
            layer=layer,
            block=block,
        )

    def of_parameters(self) -> dict[str, Tensor]:
        """Return the gradient of each parameter that has one, by name."""
        named = {name: self.steps.get(f"{name}{GRADIENT}") for name in self.axes}
        return {name: step.value for name, step in named.items() if step is not None}

    def _of(self, id: str) -> Tensor:
        """Return the value of a step or gradient, or a parameter."""
        step = self.forward.get(id) or self.steps.get(id)
        return self.parameter(id) if step is None else step.value


def _attrs(op: str, step: Step) -> dict[str, Any]:
    """Return the constants of a backward operation: those of the forward operation that it depends on."""
    if op == "lookup_backward":
        return {"without_row_0": step.site == "bigrams"}
    wanted = inspect.signature(FUNCTIONS[op]).parameters
    return {name: value for name, value in step.attrs.items() if name in wanted}


def source_of_gradient(op: str) -> SourceLine | None:
    """Return the line of this file that computes an operation of the backward pass."""
    function = FUNCTIONS.get(op)
    return None if function is None else source_line(function, "return ")
