"""Muon against its definition: orthogonal updates for the matrices of the layers, AdamW for everything else."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.helpers.small import small

from glassformer.config import ModelConfig, MuonConfig, TrainConfig
from glassformer.models import LanguageModel
from glassformer.training.muon import Muon, orthogonalise
from glassformer.training.optimizer import load_optimizer_tensors, make_optimizer, optimizer_tensors

CONFIG = TrainConfig(optimizer="muon", lr=0.01, precision="fp32", muon=MuonConfig(matrix_lr=0.05, momentum=0.9))


def model() -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(ModelConfig(n_layers=2, d_model=16, n_heads=2, tie_embeddings=False), 20, 12)


def give_gradients(model: LanguageModel, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def is_matrix_of_a_layer(name: str) -> bool:
    return name.startswith("decoder.layers.") and name.endswith(("_proj.weight", "w_in.weight", "w_out.weight"))


@pytest.mark.parametrize("shape", [(32, 32), (64, 16), (16, 64)], ids=["square", "tall", "wide"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_singular_values_come_near_one_and_directions_stay(shape: tuple[int, int], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    u, _, v = torch.linalg.svd(torch.randn(shape), full_matrices=False)
    spread = torch.logspace(0, -1.5, min(shape))  # from 1 to .03: what a gradient has
    found = orthogonalise((u * spread @ v)[None], dtype)[0].float()
    values = torch.linalg.svdvals(found)
    assert values.min() > 0.5 and values.max() < 1.3
    inside = u.T @ found @ v.T  # diagonal where the directions are the same
    torch.testing.assert_close(inside - inside.diag().diag(), torch.zeros_like(inside), atol=0.05, rtol=0)


def test_it_is_the_iteration_of_torch() -> None:
    torch.manual_seed(0)
    ours, theirs = (torch.nn.Parameter(torch.randn(24, 8)) for _ in range(2))
    theirs.data.copy_(ours.data)
    group = {"params": [ours], "lr": 0.1, "momentum": 0.95, "weight_decay": 0.1}
    optimizers = Muon([group], torch.bfloat16), torch.optim.Muon([theirs], lr=0.1)
    for seed in range(4):
        gradient = torch.randn(24, 8, generator=torch.Generator().manual_seed(seed))
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(ours, theirs, atol=5e-3, rtol=0)  # products in bf16


def test_matrices_of_layers_turn_and_the_rest_is_adamw() -> None:
    before, after, rest = model(), model(), model()
    adamw = torch.optim.AdamW(rest.parameters(), 0.01, (0.9, 0.98), 1e-9, weight_decay=0.0)
    optimizer = make_optimizer(after, CONFIG)
    for each in (after, rest):
        give_gradients(each, 1)
    optimizer.step()
    adamw.step()
    expected, old = dict(rest.named_parameters()), dict(before.named_parameters())
    for name, parameter in after.named_parameters():
        if is_matrix_of_a_layer(name):
            assert parameter.grad is not None
            m, n = parameter.shape
            turned = orthogonalise(parameter.grad[None], torch.float32)[0] * max(1, m / n) ** 0.5
            torch.testing.assert_close(parameter, old[name] - 0.05 * turned, msg=name)
        else:
            torch.testing.assert_close(parameter, expected[name], msg=name)


def test_both_rates_follow_the_schedule() -> None:
    run = small("lm", optimizer="muon")
    state = run.new_state()
    rates = run.config.train.muon.matrix_lr, run.config.train.lr
    run.update(state, [run.batch(run.batches()[0])], rates[1] / 4)
    assert [group["lr"] for group in state.optimizer.param_groups] == pytest.approx([r / 4 for r in rates])


def test_only_the_matrices_decay() -> None:
    decaying = replace(CONFIG, muon=replace(CONFIG.muon, weight_decay=0.5))
    plain, decayed, old = model(), model(), dict(model().named_parameters())
    for each, config in ((plain, CONFIG), (decayed, decaying)):
        give_gradients(each, 1)
        make_optimizer(each, config).step()
    for (name, one), other in zip(plain.named_parameters(), decayed.parameters(), strict=True):
        shrunk = 0.05 * 0.5 * old[name] if is_matrix_of_a_layer(name) else torch.zeros(())
        torch.testing.assert_close(one - shrunk, other, msg=name)


def test_its_state_is_saved_and_goes_on_to_the_bit() -> None:
    one, other = model(), model()
    optimizer = make_optimizer(one, CONFIG)
    for seed in range(3):
        give_gradients(one, seed)
        optimizer.step()
    other.load_state_dict(one.state_dict())
    again = make_optimizer(other, CONFIG)
    load_optimizer_tensors(other, again, optimizer_tensors(one, optimizer))
    for each, its in ((one, optimizer), (other, again)):
        give_gradients(each, 9)
        its.step()
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_a_model_without_layers_is_left_to_adamw() -> None:
    linear = torch.nn.Linear(3, 2)
    optimizer = make_optimizer(linear, CONFIG)
    linear(torch.ones(1, 3)).sum().backward()
    before = linear.weight.detach().clone()
    optimizer.step()
    torch.testing.assert_close(linear.weight, before - 0.01)
