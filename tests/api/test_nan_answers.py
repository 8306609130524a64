"""A model whose weights are finite and whose numbers are not: it raises an error instead of answering."""

from __future__ import annotations

import pytest
import torch
from tests.helpers.tiny_runs import Runs

import glassformer
from glassformer.errors import DivergedError
from glassformer.models.ensemble import members_of


@pytest.mark.parametrize("task", ["classify", "translate", "lm"])
def test_nan_is_no_answer(runs: Runs, task: str) -> None:
    run = glassformer.load(getattr(runs, task))
    with torch.no_grad():
        for member in members_of(run.model):
            for parameter in member.parameters():
                parameter.fill_(1e38)
    with pytest.raises(DivergedError, match="logits are NaN"):
        run.predict("a good film")
    with pytest.raises(DivergedError, match="logits are NaN"):
        list(run.predict_stream(iter(["a good film"])))
