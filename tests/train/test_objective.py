"""What is minimised: cross-entropy, or R-Drop beside it, whatever the shape of the logits."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.small import config_of, data_of, small, small_run
from torch.nn import functional as F

from glassformer.nn.cross_entropy import IGNORE_INDEX
from glassformer.nn.dropout import Dropout
from glassformer.training.objective import objective_of, two_way_divergence

TASKS = ["classify", "translate", "lm", "pretrain"]


def test_the_divergence_is_torchs_in_both_directions() -> None:
    first, second = torch.randn(5, 7), torch.randn(5, 7)
    p, q = first.log_softmax(-1), second.log_softmax(-1)
    expected = F.kl_div(p, q, log_target=True, reduction="sum") + F.kl_div(
        q, p, log_target=True, reduction="sum"
    )
    assert two_way_divergence(first, second).item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("task", TASKS)
def test_without_dropout_two_passes_agree(task: str) -> None:
    """Then R-Drop is the cross-entropy, value and gradient."""
    run = small(task, r_drop=3.0, label_smoothing=0.1)
    state, batch = run.new_state(), run.batch(run.batches()[0])
    for module in state.model.modules():
        if isinstance(module, Dropout):
            module.p = 0.0
    minimised, loss = objective_of(run.config.train)(run.task, state.model, batch)
    plain = run.task.loss_sum(state.model, batch, 0.1)
    assert minimised.item() == pytest.approx(plain.item(), rel=1e-5) == pytest.approx(loss.item(), rel=1e-5)


@pytest.mark.parametrize("task", TASKS)
def test_with_dropout_disagreement_costs_and_padding_does_not(task: str) -> None:
    run = small(task, r_drop=2.0)
    state, batch = run.new_state(), run.batch(run.batches()[0])
    passes: list[torch.Tensor] = []
    logits = run.task.scored_logits
    run.task.scored_logits = lambda *a: passes.append(logits(*a)) or passes[-1]
    minimised, loss = objective_of(run.config.train)(run.task, state.model, batch)
    labels = batch.labels[batch.labels != IGNORE_INDEX]
    apart = two_way_divergence(*passes)
    assert len(passes) == 2 and apart > 0
    assert (minimised - loss).item() == pytest.approx(0.5 * apart.item(), rel=1e-3)
    ce = [F.cross_entropy(x, labels, reduction="sum").item() for x in passes]
    assert loss.item() == pytest.approx(sum(ce) / 2, rel=1e-5)


def test_members_of_an_ensemble_agree_with_themselves_not_with_each_other() -> None:
    config = config_of("classify", r_drop=2.0)
    run = small_run(replace(config, model=replace(config.model, dropout=0.0, members=2)), data_of("classify"))
    state, batch = run.new_state(), run.batch(run.batches()[0])
    minimised, loss = objective_of(run.config.train)(run.task, state.model, batch)
    assert minimised.item() == pytest.approx(loss.item(), rel=1e-6)
    assert loss.item() == pytest.approx(run.task.loss_sum(state.model, batch).item(), rel=1e-5)


def test_the_log_reports_the_cross_entropy_alone() -> None:
    run = small("classify", r_drop=50.0)
    loss, _ = run.update(run.new_state(), [run.batch(run.batches()[0])], 0.0)
    assert loss < 1.5
