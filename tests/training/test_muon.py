"""Muon against its definition: orthogonalised steps for the matrices of the layers, AdamW for everything else."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.helpers.small import small

from glassformer.config import ModelConfig, MuonConfig, TrainConfig
from glassformer.models import LanguageModel
from glassformer.training.optimizer import (
    Muon,
    load_optimizer_tensors,
    make_optimizer,
    optimizer_tensors,
    orthogonalise,
)

CONFIG = TrainConfig(optimizer="muon", lr=0.01, precision="fp32", muon=MuonConfig(matrix_lr=0.05, momentum=0.9))


def model() -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(ModelConfig(n_layers=2, d_model=16, n_heads=2, tie_embeddings=False), 20, 12)


def set_random_gradients(model: LanguageModel, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def is_layer_matrix(name: str) -> bool:
    return name.startswith("decoder.layers.") and name.endswith("_proj.weight")


@pytest.mark.parametrize("shape", [(32, 32), (64, 16), (16, 64)], ids=["square", "tall", "wide"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_orthogonalise_moves_singular_values_to_one_and_keeps_directions(
    shape: tuple[int, int], dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    u, _, v = torch.linalg.svd(torch.randn(shape), full_matrices=False)
    # Singular values from 1 to 0.03, as gradients have them.
    singular = torch.logspace(0, -1.5, min(shape))
    result = orthogonalise((u * singular @ v)[None], dtype)[0].float()
    values = torch.linalg.svdvals(result)
    assert values.min() > 0.5 and values.max() < 1.3
    # Diagonal if the directions are unchanged.
    rotated = u.T @ result @ v.T
    torch.testing.assert_close(rotated - rotated.diag().diag(), torch.zeros_like(rotated), atol=0.05, rtol=0)


def test_muon_matches_torch() -> None:
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
    # Products are in bf16.
    torch.testing.assert_close(ours, theirs, atol=5e-3, rtol=0)


def test_muon_updates_layer_matrices_and_adamw_the_rest() -> None:
    before, after, rest = model(), model(), model()
    adamw = torch.optim.AdamW(rest.parameters(), 0.01, (0.9, 0.98), 1e-9, weight_decay=0.0)
    optimizer = make_optimizer(after, CONFIG)
    for each in (after, rest):
        set_random_gradients(each, 1)
    optimizer.step()
    adamw.step()
    expected, old = dict(rest.named_parameters()), dict(before.named_parameters())
    for name, parameter in after.named_parameters():
        if is_layer_matrix(name):
            assert parameter.grad is not None
            m, n = parameter.shape
            expected_step = orthogonalise(parameter.grad[None], torch.float32)[0] * max(1, m / n) ** 0.5
            torch.testing.assert_close(parameter, old[name] - 0.05 * expected_step, msg=name)
        else:
            torch.testing.assert_close(parameter, expected[name], msg=name)


def test_muon_and_adamw_follow_the_schedule() -> None:
    run = small("lm", optimizer="muon")
    state = run.new_state()
    rates = run.config.train.muon.matrix_lr, run.config.train.lr
    run.update(state, [run.batch(run.batches()[0])], rates[1] / 4)
    assert [group["lr"] for group in state.optimizer.param_groups] == pytest.approx([r / 4 for r in rates])


def test_muon_decays_layer_matrices_only() -> None:
    decaying = replace(CONFIG, muon=replace(CONFIG.muon, weight_decay=0.5))
    plain, decayed, old = model(), model(), dict(model().named_parameters())
    for each, config in ((plain, CONFIG), (decayed, decaying)):
        set_random_gradients(each, 1)
        make_optimizer(each, config).step()
    for (name, one), other in zip(plain.named_parameters(), decayed.parameters(), strict=True):
        shrunk = 0.05 * 0.5 * old[name] if is_layer_matrix(name) else torch.zeros(())
        torch.testing.assert_close(one - shrunk, other, msg=name)


def test_muon_state_restores_bit_for_bit() -> None:
    saved, restored = model(), model()
    optimizer = make_optimizer(saved, CONFIG)
    for seed in range(3):
        set_random_gradients(saved, seed)
        optimizer.step()
    restored.load_state_dict(saved.state_dict())
    restored_optimizer = make_optimizer(restored, CONFIG)
    load_optimizer_tensors(restored, restored_optimizer, optimizer_tensors(saved, optimizer))
    for each, its_optimizer in ((saved, optimizer), (restored, restored_optimizer)):
        set_random_gradients(each, 9)
        its_optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(saved.parameters(), restored.parameters(), strict=True))


def test_muon_leaves_a_model_without_layers_to_adamw() -> None:
    linear = torch.nn.Linear(3, 2)
    optimizer = make_optimizer(linear, CONFIG)
    linear(torch.ones(1, 3)).sum().backward()
    before = linear.weight.detach().clone()
    optimizer.step()
    torch.testing.assert_close(linear.weight, before - 0.01)
