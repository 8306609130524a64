"""One table of all operations of a forward pass, its loss and its backward pass, as expressions that are executed.

A row says what an operation takes, the expression of its result, and for each argument that has a gradient the
expression of that gradient, given the gradient g of the result y. torch executes an expression here; the page of
`explain` executes the same tree in the browser (`web/src/tensors/walk.ts`), and shows it as the formula of a step and
as the arithmetic of a number. The layers of `nn` are the fast equivalent; tests hold each row against them, against
autograd and against the page.

An expression has names, numbers, + - * / @ (the matrix product) and the functions in `WORDS`. Names are

    arguments of the row: the inputs of a step in order, then its parameters by role; one that ends in "?" may be
    missing: then it is 0, or 1 where a mask is missing
    constants of the step: `factor`, `eps`, `base`, `first` (the position of the first row, not 0 with a cache) …
    H, R, C: heads, rows and columns of the result; y and g in gradients
    what `where` defines

Shapes are without a batch: (R, C), or (H, R, C) by head. `sum` and `mean` are over columns and keep the axis, `down`
is over rows.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from glassformer.nn.embeddings import Rotation, sinusoidal


@dataclass(frozen=True)
class Operation:
    """A row of the table.

    Attributes:
        takes: the arguments, inputs of a step before parameters.
        gives: the expression of the result; empty where no expression gives it: ids, masks, targets, `one`, and
            `sum`, which takes any number of inputs.
        gradients: the expression of the gradient of each argument that has one.
        where: expressions that the others use by name, in order.
    """

    takes: str = ""
    gives: str = ""
    gradients: Mapping[str, str] = field(default_factory=dict)
    where: Mapping[str, str] = field(default_factory=dict)

    @property
    def arguments(self) -> list[str]:
        """Return the names of the arguments."""
        return self.takes.replace("?", "").split()


ACTIVATED = {"s": "sigmoid(gate)"}
NORMALISED = {
    "variance": "mean(sq(x - mean(x)))",
    "x_hat": "(x - mean(x)) * rsqrt(variance + eps)",
    "g_hat": "g * weight",
}
POOLED = {
    "real": "column(mask, x)",
    "share": "real / row(atleast1(down(real)))",
    "peak": "down_max(x, real)",
    "largest": "real * equal(x, peak)",
}
SOURCE = Operation()

OPERATIONS: dict[str, Operation] = {
    "ids": SOURCE,
    "ngram_ids": SOURCE,  # of each token (L, G), padded with 0
    "bigram_ids": SOURCE,  # the row of the word bigram that ends at each token; 0 for none
    "segment_ids": SOURCE,  # 1 after the separator of a pair, else 0
    "mask": SOURCE,  # (Q, K) or (1, K), true = may attend
    "targets": SOURCE,  # 1 - smoothing for the label and smoothing / V for each; zeros without a label
    "one": SOURCE,  # the gradient of the loss with respect to itself
    "sum": SOURCE,  # of all that the uses of a step pass back
    "lookup": Operation("ids weight", "gather(weight, ids)", {"weight": "scatter(ids, g, R)"}),
    "padded_lookup": Operation("ids weight", "gather(weight, ids)", {"weight": "scatter(ids, used(ids) * g, R)"}),
    "embedding_bag:mean": Operation(
        "ids weight",
        "down(share * gather(weight, ids))",
        {"weight": "scatter(ids, share * row(g), R)"},
        {"share": "used(ids) / row(atleast1(down(used(ids))))"},
    ),
    "embedding_bag:sum": Operation(
        "ids weight", "down(used(ids) * gather(weight, ids))", {"weight": "scatter(ids, used(ids) * row(g), R)"}
    ),
    "positions:sinusoidal": Operation("", "amplitude * waves(first, R, C)"),  # paper, 3.5
    "positions:learned": Operation("weight", "rows_from(weight, first, R)", {"weight": "placed(g, first, R)"}),
    "scale": Operation("x", "x * factor", {"x": "g * factor"}),
    "add": Operation("a b", "a + b", {"a": "g", "b": "g"}),
    "layer_norm": Operation(
        "x weight bias",
        "x_hat * weight + bias",
        {
            "x": "rsqrt(variance + eps) * (g_hat - mean(g_hat) - x_hat * mean(g_hat * x_hat))",
            "weight": "over_rows(g * x_hat)",
            "bias": "over_rows(g)",
        },
        NORMALISED,
    ),
    "rms_norm": Operation(
        "x weight",
        "x_hat * weight",
        {"x": "rsqrt(variance + eps) * (g_hat - x_hat * mean(g_hat * x_hat))", "weight": "over_rows(g * x_hat)"},
        NORMALISED | {"variance": "mean(sq(x))", "x_hat": "x * rsqrt(variance + eps)"},
    ),
    "linear": Operation(
        "x weight bias?",
        "x @ T(weight) + bias",
        {"x": "g @ weight", "weight": "T(flat(g)) @ flat(x)", "bias": "over_rows(g)"},
    ),
    "split_heads": Operation("x", "split(x, H)", {"x": "join(g)"}),  # feature h·E + e goes to head h
    "concat_heads": Operation("x", "join(x)", {"x": "split(g, H)"}),
    "rotate": Operation(
        "x",
        "x * cosines(base, first, R, C) + turned(x) * sines(base, first, R, C)",
        {"x": "g * cosines(base, first, R, C) - turned(g) * sines(base, first, R, C)"},
    ),
    "dot": Operation("q k", "q @ T(k)", {"q": "g @ k", "k": "T(g) @ q"}),
    "softmax": Operation(
        "scores mask?",
        "e / nonzero(sum(e))",
        {"scores": "y * (g - sum(g * y))"},
        {"seen": "unmasked(scores, mask)", "e": "exp(seen - peak_of(seen))"},
    ),
    "mix": Operation("weights v", "weights @ v", {"weights": "g @ T(v)", "v": "T(weights) @ g"}),
    "relu": Operation("x", "max0(x)", {"x": "g * positive(x)"}),
    "gelu": Operation("x", "x * Phi(x)", {"x": "g * (Phi(x) + x * phi(x))"}),
    "gelu_tanh": Operation(
        "x",
        "x / 2 * (1 + t)",
        {"x": "g * ((1 + t) / 2 + x / 2 * (1 - sq(t)) * 0.7978845608 * (1 + 0.134145 * sq(x)))"},
        {"t": "tanh(0.7978845608 * (x + 0.044715 * x * sq(x)))"},
    ),
    "silu": Operation("x", "x * s", {"x": "g * s * (1 + x * (1 - s))"}, {"s": "sigmoid(x)"}),
    "tanh": Operation("x", "tanh(x)", {"x": "g * (1 - sq(y))"}),
    "swiglu": Operation(
        "gate x", "gate * s * x", {"gate": "g * x * s * (1 + gate * (1 - s))", "x": "g * gate * s"}, ACTIVATED
    ),
    "pool:mean": Operation("x mask?", "down(share * x)", {"x": "share * g"}, POOLED),
    "pool:max": Operation("x mask?", "peak", {"x": "largest * g / atleast1(down(largest))"}, POOLED),
    "pool:mean+max": Operation(
        "x mask?",
        "beside(down(share * x), peak)",
        {"x": "share * left(g) + largest * right(g) / atleast1(down(largest))"},
        POOLED,
    ),
    "pool:first": Operation("x mask?", "down(at_first(x) * real * x)", {"x": "at_first(x) * real * g"}, POOLED),
    "pin_zero": Operation("x", "after_zero(x)", {"x": "without_first(g)"}),  # two classes share one logit
    "cross_entropy": Operation(
        "logits targets",
        "by_row(sum(targets * surprisal))",
        {"logits": "(p - targets) * column_of(g, logits)"},
        {"surprisal": "minus_log_softmax(logits)", "p": "softmax(logits)"},
    ),
    "mean_loss": Operation("x", "total(x * shares(labels))", {"x": "g * shares(labels)"}),
    "error": Operation("output", "output - number", {"output": "g"}),  # in standard deviations of training numbers
    "square": Operation("x", "x * x", {"x": "g * 2 * x"}),
}
"""Each operation by its name, with what its constant `how` or `scheme` is where that decides the expression."""

Tree = Any  # a name, a number, or a list of a word and its arguments


@cache
def tree_of(expression: str) -> Tree:
    """Return an expression as nested lists, ["+", ["@", "x", ["T", "weight"]], "bias"], which are JSON."""
    signs = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.MatMult: "@"}

    def walk(node: ast.expr) -> Tree:
        match node:
            case ast.BinOp(left, sign, right):
                return [signs[type(sign)], walk(left), walk(right)]
            case ast.Call(ast.Name(word), arguments):
                return [word, *map(walk, arguments)]
            case ast.Name(name):
                return name
            case ast.Constant(number):
                return number
        raise ValueError(f"{ast.dump(node)} is no expression of this table")

    return walk(ast.parse(expression, mode="eval").body)


def names_in(tree: Tree) -> set[str]:
    """Return the names that a tree uses, without the words that it calls."""
    if isinstance(tree, list):
        return set().union(*map(names_in, tree[1:]))
    return {tree} if isinstance(tree, str) else set()


@dataclass(frozen=True)
class Row:
    """An operation or a gradient, ready to be executed: its arguments, definitions and expression as trees.

    `optional` are the arguments that a step may lack.
    """

    arguments: tuple[str, ...]
    optional: tuple[str, ...]
    where: Mapping[str, Tree]
    gives: Tree


@cache
def row_of(op: str) -> Row:
    """Return the row of an operation, or of the gradient of one of its arguments: "linear", "linear.weight"."""
    name, _, argument = op.partition(".")
    operation = OPERATIONS[name]
    gives = operation.gradients[argument] if argument else operation.gives
    tree = tree_of(gives) if gives else None
    used, where = names_in(tree), {}
    for defined, expression in reversed([*operation.where.items()]):
        if defined in used:
            where = {defined: tree_of(expression)} | where
            used |= names_in(where[defined])
    arguments = operation.arguments if not argument else [*operation.arguments, "y", "g"]
    taken = tuple(one for one in arguments if not argument or one in used)
    optional = tuple(one for one in taken if f"{one}?" in operation.takes.split())
    return Row(taken, optional, where, tree)


def row_name(op: str, attrs: Mapping[str, Any]) -> str:
    """Return the key of `OPERATIONS` of a step: "pool" with the constant how="mean" is "pool:mean"."""
    return next((key for kind in ("how", "scheme") if (key := f"{op}:{attrs.get(kind)}") in OPERATIONS), op)


def _flat(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1])


def _unmasked(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Return the scores, -∞ where the mask is false; that of each text (B, Q, K) applies to all heads (B, 1, Q, K)."""
    if mask is None:
        return scores
    return scores.masked_fill(~(mask[:, None] if mask.dim() == 3 and scores.dim() == 4 else mask), -torch.inf)


def _down_max(x: Tensor, real: Tensor) -> Tensor:
    """Return the largest of each column among the rows that take part; 0 where none does."""
    return x.masked_fill(real == 0, torch.finfo(x.dtype).min).amax(dim=-2) * (real.sum(dim=-2) > 0)


def _rotation(base: float, first: int, rows: int, columns: int) -> Rotation:
    return Rotation.at(torch.arange(first, first + rows)[None], columns, base)


def _shares(labels: list[int | None]) -> Tensor:
    there = torch.tensor([label is not None for label in labels]).double()
    return there / there.sum()


WORDS: dict[str, Callable[..., Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "@": lambda a, b: a @ b,
    "T": lambda x: x.mT,
    "sum": lambda x: x.sum(dim=-1, keepdim=True),
    "mean": lambda x: x.mean(dim=-1, keepdim=True),
    "down": lambda x: x.sum(dim=-2),
    "total": lambda x: x.sum().reshape(1),
    "over_rows": lambda x: _flat(x).sum(dim=0),  # of all heads, too
    "flat": _flat,  # (1, C) of a vector
    "exp": torch.exp,
    "softmax": lambda x: x.softmax(dim=-1),
    "minus_log_softmax": lambda x: -x.log_softmax(dim=-1),
    "sq": torch.square,
    "rsqrt": torch.rsqrt,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "Phi": lambda x: (1 + torch.erf(x / math.sqrt(2))) / 2,  # the standard normal distribution
    "phi": lambda x: (-x.square() / 2).exp() / math.sqrt(2 * math.pi),  # its density
    "max0": lambda x: x.clamp(min=0),
    "positive": lambda x: (x > 0).to(x.dtype),
    "atleast1": lambda x: x.clamp(min=1),
    "nonzero": lambda x: torch.where(x == 0, 1, x),
    "equal": lambda a, b: (a == b).to(a.dtype),
    "used": lambda ids: (ids > 0)[..., None].float(),  # row 0 of a table stands for none
    "gather": lambda table, ids: table[ids],
    # a table of so many rows, to each of which the g of its ids is added
    "scatter": lambda ids, g, rows: g.new_zeros(rows, g.shape[-1]).index_add_(0, ids.flatten(), _flat(g)),
    "rows_from": lambda table, first, rows: table[first : first + rows],
    # g as rows of a table of zeros, from `first` on
    "placed": lambda g, first, rows: F.pad(g, (0, 0, first, rows - first - g.shape[-2])),
    "row": lambda x: x[..., None, :],
    "split": lambda x, heads: x.unflatten(-1, (heads, -1)).transpose(-2, -3),
    "join": lambda x: x.transpose(-2, -3).flatten(-2),
    "turned": lambda x: torch.cat([-x.chunk(2, dim=-1)[1], x.chunk(2, dim=-1)[0]], dim=-1),  # (-x₂, x₁) of its halves
    "cosines": lambda *angle: _rotation(*angle).cos[0],
    "sines": lambda *angle: _rotation(*angle).sin[0],
    "waves": lambda first, rows, columns: sinusoidal(first + rows, columns)[first:],
    "unmasked": _unmasked,
    "peak_of": lambda x: x.amax(dim=-1, keepdim=True).clamp(min=torch.finfo(x.dtype).min),  # finite, also of -∞
    # 1 for each row of x that takes part and 0 for others, (R, 1), of a mask (1, R)
    "column": lambda mask, x: torch.ones_like(x[..., :1]) if mask is None else mask.to(x.dtype).mT,
    "down_max": _down_max,
    "at_first": lambda x: torch.arange(x.shape[-2], device=x.device)[:, None].eq(0).to(x.dtype),  # 1 in the first row
    "beside": lambda a, b: torch.cat([a, b], dim=-1),
    "left": lambda x: x.chunk(2, dim=-1)[0],
    "right": lambda x: x.chunk(2, dim=-1)[1],
    "after_zero": lambda x: torch.cat([torch.zeros_like(x), x], dim=-1),
    "without_first": lambda x: x[..., 1:],
    "by_row": lambda x: x.squeeze(-1) if x.dim() > 1 else x,
    "column_of": lambda g, x: g.reshape(*x.shape[:-1], 1),
    "shares": _shares,  # 1/n at each of the n positions with a label
}
"""The words of an expression as torch computes them."""


def walk(tree: Tree, names: Mapping[str, Any]) -> Any:
    """Execute a tree."""
    if isinstance(tree, list):
        return WORDS[tree[0]](*(walk(part, names) for part in tree[1:]))
    return names[tree] if isinstance(tree, str) else tree


def run(op: str, arguments: Mapping[str, Any], attrs: Mapping[str, Any], shape: tuple[int, ...]) -> Tensor:
    """Return what an operation or a gradient gives.

    Args:
        op: as for `row_of`.
        arguments: tensors by name; an optional one may be missing.
        attrs: constants of the step by name.
        shape: of the result.
    """
    row, sizes = row_of(op), dict(zip("CRH", reversed(shape), strict=False))
    missing = {name: None if name == "mask" else 0.0 for name in row.optional}
    names: dict[str, Any] = {"first": 0, **sizes, **attrs, **missing, **arguments}
    for name, tree in row.where.items():
        names[name] = walk(tree, names)
    value: Tensor = walk(row.gives, names)
    return value.reshape(shape).to(next((x.dtype for x in arguments.values() if x.is_floating_point()), value.dtype))


def named(op: str, inputs: Sequence[Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """Return a step's inputs and parameters by the names of the arguments that they are.

    Inputs stand in the order of the arguments; where there are fewer, an optional one is missing.
    """
    row = row_of(op)
    names = [name for name in row.arguments if name not in params and (name not in row.optional or name == "mask")]
    if len(inputs) < len(names):
        names = [name for name in names if name not in row.optional]
    return dict(zip(names, inputs, strict=True)) | {name: params[name] for name in row.arguments if name in params}
