"""Numbers for the page's tests of optimizers: two steps of each on random matrices, by the code that trains.

python web/updates.py > web/test/updates.json
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.training.optimizer import Muon

SHAPES = (4, 6), (6, 4), (5,)
AVERAGES = ("exp_avg", "exp_avg_sq", "momentum_buffer")
ADAM = {"lr": 0.01, "beta1": 0.9, "beta2": 0.98, "eps": 1e-9}
SGD: dict[str, Any] = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}
PLAIN: dict[str, Any] = {"lr": 0.1, "momentum": 0.0, "weight_decay": 0.0}
MUON = {"lr": 0.02, "momentum": 0.95, "weight_decay": 0.1}
OPTIMIZERS: dict[str, Any] = {
    "adamw": (lambda p: torch.optim.AdamW([p], 0.01, (0.9, 0.98), 1e-9, 0.1), ADAM | {"weight_decay": 0.1}),
    "adam": (lambda p: torch.optim.Adam([p], 0.01, (0.9, 0.98), 1e-9), ADAM | {"weight_decay": 0.0}),
    "sgd": (lambda p: torch.optim.SGD([p], **SGD), SGD),
    "sgd without momentum": (lambda p: torch.optim.SGD([p], **PLAIN), PLAIN),
    "muon": (lambda p: Muon([{"params": [p], **MUON}], torch.float32), MUON),
    "muon in bfloat16": (lambda p: Muon([{"params": [p], **MUON}], torch.bfloat16), MUON),
}
"""An optimizer of each kind with the constants of its formula."""


def averages(optimizer: torch.optim.Optimizer, p: nn.Parameter) -> dict[str, Tensor]:
    """Return what an optimizer keeps of a parameter."""
    kept = optimizer.state.get(p, {}).items()
    return {key: value.clone() for key, value in kept if key in AVERAGES and value is not None}


def cases() -> list[dict[str, Any]]:
    """Return the second step of each optimizer on each shape, and the first one of AdamW."""
    found = []
    for shape in SHAPES:
        for name, (make, constants) in OPTIMIZERS.items():
            if name.startswith("muon") and len(shape) != 2:
                continue
            random = torch.Generator().manual_seed(len(found) + 1)
            p = nn.Parameter(torch.randn(shape, generator=random))
            optimizer = make(p)
            for step in (1, 2):
                p.grad = torch.randn(shape, generator=random)
                before = p.detach().clone()
                state = averages(optimizer, p)
                optimizer.step()
                after = averages(optimizer, p)
                values: dict[str, Tensor] = {"before": before, "clipped_grad": p.grad, "after": p.detach()}
                values |= after | {f"{key}_before": state.get(key, torch.zeros(shape)) for key in after}
                tensors = {key: value.flatten().tolist() for key, value in values.items()}
                optimizer_name, dtype = name.split()[0], "bfloat16" if "bfloat16" in name else "float32"
                found.append(
                    {"optimizer": optimizer_name, "dtype": dtype, "constants": constants, "step": step, "shape": shape}
                    | tensors
                )
    return found


if __name__ == "__main__":
    sys.stdout.write("[\n" + ",\n".join(json.dumps(one) for one in cases()) + "\n]\n")
