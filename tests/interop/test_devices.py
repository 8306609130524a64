"""A run on another device than the CPU is exported: inputs follow the model, and libraries get numbers of the CPU.

There is no GPU here: models on torch's "meta" device show where tensors would be.
"""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch
from tests.helpers.exports import ensemble_of, run_of
from torch import nn

from glassformer.interop import check as checking
from glassformer.interop.transfer import _on_cpu
from glassformer.models.ensemble import members_of


class Elsewhere(nn.Module):
    """A model on another device, which notes the device of its inputs and gives numbers of the CPU."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, device="meta"))
        self.model, self.seen = (model,), set[str]()

    def forward(self, *ids: torch.Tensor) -> torch.Tensor:
        self.seen |= {one.device.type for one in ids}
        shape = [torch.ones(one.shape, dtype=torch.int64) for one in ids]
        return self.model[0](*shape)


class Echo:
    """An engine of which every number is 0."""

    def __init__(self, n: int) -> None:
        self.n, self.longest = n, 0

    def outputs(self, ids: list[int]) -> np.ndarray:
        self.longest = max(self.longest, len(ids))
        return np.zeros((1, self.n), np.float32)

    def log_probs(self, source: list[int], target: list[int]) -> np.ndarray:
        return np.zeros(len(target) + 1, np.float32)


@pytest.mark.parametrize("task", ["lm", "translate"])
def test_the_comparison_asks_the_model_where_it_is(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(task, monkeypatch)
    model, engine = Elsewhere(run.model), Echo(run.task.tokenizer.vocab_size)
    for text in ("abc", "abc" * 40, ""):
        checking._log_probs(run.task, model, engine, text, "cba")  # pyright: ignore[reportArgumentType]
    assert task != "lm" or engine.longest == run.config.text.max_len  # no more than the library takes
    assert model.seen == {"meta"}


@pytest.mark.parametrize("task", ["classify", "translate", "lm", "pretrain"])
def test_libraries_are_given_numbers_of_the_cpu(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(task, monkeypatch)
    run = ensemble_of(run) if task == "classify" else run
    assert _on_cpu(run.model) is run.model  # nothing is copied that need not be
    elsewhere, moved = deepcopy(run.model).to("meta"), list[nn.Module]()
    monkeypatch.setattr(nn.Module, "cpu", lambda self: moved.append(self) or run.model)
    assert _on_cpu(elsewhere) is run.model and len(moved) == 1 and moved[0] is not elsewhere
    assert members_of(elsewhere)[0] is not members_of(moved[0])[0]
