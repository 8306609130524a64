"""Every operation of a trace computed once more in float64 from the recorded inputs and the model's parameters.

It is written from the list of operations alone (`web/src/types.ts` has it too) and shares no code with the
package, so a record that names a wrong input, parameter or constant does not come out right.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from glassformer.explain import Step, Trace
from glassformer.explain.explanation import Explanation


def recompute(t: Trace, model: nn.Module, record: Step) -> Tensor | None:
    """Return the value of a record by the definition of its operation; None for ids, masks and inputs."""
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    p = {role: named[name].detach() for role, name in record.params.items()}
    p = {role: value.double() for role, value in p.items()}
    x = [t[name].value for name in record.inputs]
    x = [value.double() if value.is_floating_point() else value for value in x]
    attrs, kinds = record.attrs, [t[name].op for name in record.inputs]
    match record.op:
        case "ids" | "mask" | "input" | "ngram_ids" | "bigram_ids" | "segment_ids":
            return None
        case "lookup":
            return p["weight"][x[0]]
        case "scale":
            return x[0] * attrs["factor"]
        case "embedding_bag":
            there = (x[0] > 0)[..., None]
            total = (p["weight"][x[0]] * there).sum(-2)
            return total / there.sum(-2).clamp(min=1) if attrs["how"] == "mean" else total
        case "positions":
            n, d = record.shape[-2:]
            return p["weight"][:n] if attrs["scheme"] == "learned" else sinusoids(n, d) * attrs["amplitude"]
        case "add":
            return x[0] + x[1]
        case "layer_norm":
            centred = x[0] - x[0].mean(-1, keepdim=True)
            return centred / (centred.square().mean(-1, keepdim=True) + attrs["eps"]).sqrt() * p["weight"] + p["bias"]
        case "rms_norm":
            return x[0] / (x[0].square().mean(-1, keepdim=True) + attrs["eps"]).sqrt() * p["weight"]
        case "linear":
            return x[0] @ p["weight"].mT + p.get("bias", 0.0)
        case "split_heads":
            heads, _, e = record.shape[-3:]
            return torch.stack([x[0][..., h * e : (h + 1) * e] for h in range(heads)], dim=-3)
        case "concat_heads":
            return torch.cat(x[0].unbind(-3), dim=-1)
        case "rotate":
            return rotated(x[0], attrs["base"])
        case "dot":
            return torch.einsum("...qe,...ke->...qk", *x)
        case "softmax":
            return masked_softmax(x[0], x[1] if "mask" in kinds else None)
        case "mix":
            return torch.einsum("...qk,...ke->...qe", *x)
        case "relu":
            return x[0].clamp(min=0)
        case "gelu":
            return x[0] * (1 + torch.erf(x[0] / 2**0.5)) / 2
        case "gelu_tanh":
            return x[0] * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x[0] + 0.044715 * x[0] ** 3))) / 2
        case "silu":
            return x[0] * torch.sigmoid(x[0])
        case "tanh":
            return x[0].tanh()
        case "swiglu":
            return x[0] * torch.sigmoid(x[0]) * x[1]
        case "pool":
            return pooled(x[0], x[1] if "mask" in kinds else None, attrs["how"])
        case "pin_zero":
            return torch.cat([torch.zeros_like(x[0]), x[0]], dim=-1)
    raise AssertionError(f"{record.op} is not an operation")


def check_every_record(e: Explanation, model: nn.Module) -> None:
    """Assert that every record of an explanation has a source line and equals its recomputation."""
    assert e.trace is not None
    for record in e.records.values():
        again = recompute(e.trace, model, record)
        assert record.source is not None, record.id
        if again is not None:
            torch.testing.assert_close(record.value.double(), again, atol=1e-5, rtol=1e-5)


def sinusoids(n: int, d: int) -> Tensor:
    angles = [[pos / 10000 ** (2 * (j // 2) / d) for j in range(d)] for pos in range(n)]
    table = torch.tensor(angles, dtype=torch.float64)
    return torch.where(torch.arange(d) % 2 == 0, table.sin(), table.cos())


def rotated(x: Tensor, base: float) -> Tensor:
    n, e = x.shape[-2:]
    j = torch.arange(e // 2, dtype=torch.float64)
    angle = torch.arange(n, dtype=torch.float64)[:, None] * base ** (-2 * j / e)
    turned = torch.complex(x[..., : e // 2], x[..., e // 2 :]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([turned.real, turned.imag], dim=-1)


def masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    if mask is not None:
        # A mask of each text (B, 1, K) lies under the scores of all heads (B, H, Q, K).
        mask = mask[:, None] if mask.dim() == 3 and scores.dim() == 4 else mask
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(dim=-1).nan_to_num(0.0)


def pooled(x: Tensor, mask: Tensor | None, how: str) -> Tensor:
    texts = x if x.dim() == 3 else x[None]
    real = torch.ones(texts.shape[:2], dtype=torch.bool) if mask is None else mask.reshape(texts.shape[:2])
    rows = []
    for vectors, keep in zip(texts, real, strict=True):
        seen = vectors[keep]
        parts = {"mean": seen.mean(0), "max": seen.amax(0), "first": vectors[0]}
        rows.append(torch.cat([parts[name] for name in how.split("+")]))
    return torch.stack(rows) if x.dim() == 3 else rows[0]
