"""Each optimizer applies its settings, and weight decay to matrices only."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.helpers.for_each import for_each
from tests.helpers.small import small
from torch import nn

from glassformer.config import ModelConfig, TrainConfig
from glassformer.models import LanguageModel
from glassformer.training.optimizer import Muon, lr_factor, make_optimizer, orthogonalise


def take_steps(config: TrainConfig, n: int = 1) -> tuple[nn.Sequential, nn.Sequential]:
    """Return a model before and after n steps with gradients of one."""
    torch.manual_seed(0)
    before, after = (nn.Sequential(nn.Embedding(4, 3), nn.Linear(3, 3)) for _ in range(2))
    after.load_state_dict(before.state_dict())
    take_steps_with(make_optimizer(after, config), after, n)
    return before, after


def take_steps_with(optimizer: torch.optim.Optimizer, model: nn.Module, n: int) -> None:
    for _ in range(n):
        optimizer.zero_grad()
        for parameter in model.parameters():
            assert parameter.grad is None
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()


@pytest.mark.parametrize("name", ["AdamW", "Adam", "SGD"])
def test_steps_are_those_of_torch(name: str) -> None:
    adam = {"betas": (0.8, 0.9), "eps": 1e-6, "weight_decay": 0.0}
    settings = {"momentum": 0.5} if name == "SGD" else adam
    shared = {"momentum": settings.get("momentum"), "beta1": 0.8, "beta2": 0.9, "eps": 1e-6, "weight_decay": 0.0}
    before, after = take_steps(TrainConfig(optimizer=name.lower(), lr=0.1, **shared), n=3)
    take_steps_with(getattr(torch.optim, name)(before.parameters(), 0.1, **settings), before, n=3)
    assert all(map(torch.equal, after.parameters(), before.parameters()))


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_weight_decay_applies_to_matrices_only(optimizer: str) -> None:
    before, after = take_steps(TrainConfig(optimizer=optimizer, lr=0.1, weight_decay=0.5))
    for (name, old), (_, new) in zip(before.named_parameters(), after.named_parameters(), strict=True):
        decayed = 0.05 * old if name == "1.weight" else torch.zeros(())
        torch.testing.assert_close(new, old - decayed - 0.1, msg=name)


CONFIG = TrainConfig(optimizer="muon", lr=0.01, precision="fp32", matrix_lr=0.05, momentum=0.9)


def model() -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(ModelConfig(n_layers=2, d_model=16, n_heads=2, tie_embeddings=False), 20, 12)


@pytest.mark.parametrize("shape", [(16, 16), (24, 8), (8, 24)], ids=["square", "tall", "wide"])
def test_muon_matches_torch(shape: tuple[int, int]) -> None:
    ours = nn.Parameter(torch.randn(shape))
    theirs = nn.Parameter(ours.detach().clone())
    group = {"params": [ours], "lr": 0.1, "momentum": 0.95, "weight_decay": 0.1}
    optimizers = Muon([group], torch.bfloat16), torch.optim.Muon([theirs], lr=0.1)
    for _ in range(4):
        ours.grad = theirs.grad = torch.randn(shape)
        for optimizer in optimizers:
            optimizer.step()
    # Products are in bf16.
    torch.testing.assert_close(ours, theirs, atol=5e-3, rtol=0)


def test_no_optimizer_imports_the_compiler() -> None:
    """It takes seconds of each start, and only `--compile` needs it."""
    steps = "for name in ('adamw', 'adam', 'sgd', 'muon'): take_steps(TrainConfig(optimizer=name))"
    script = f"import sys\nfrom {__name__} import *\n{steps}\nassert 'torch._dynamo' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parents[2])


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_muon_updates_and_decays_layer_matrices_and_adamw_the_rest(decay: float) -> None:
    before, after, rest = model(), model(), model()
    adamw = torch.optim.AdamW(rest.parameters(), 0.01, (0.9, 0.98), 1e-9, weight_decay=0.0)
    optimizer = make_optimizer(after, replace(CONFIG, weight_decay=decay))
    for ours, theirs in zip(after.parameters(), rest.parameters(), strict=True):
        ours.grad = theirs.grad = torch.randn(ours.shape)
    optimizer.step()
    adamw.step()
    expected, old = dict(rest.named_parameters()), dict(before.named_parameters())
    for name, parameter in after.named_parameters():
        if name.startswith("decoder.layers.") and name.endswith("_proj.weight"):
            assert parameter.grad is not None
            m, n = parameter.shape
            step = orthogonalise(parameter.grad[None], torch.float32)[0] * max(1, m / n) ** 0.5
            torch.testing.assert_close(parameter, old[name] * (1 - 0.05 * decay) - 0.05 * step, msg=name)
        else:
            torch.testing.assert_close(parameter, expected[name], msg=name)


def test_muon_and_adamw_follow_the_schedule() -> None:
    run = small("lm", optimizer="muon")
    state = run.new_state()
    rates = run.config.train.matrix_lr, run.config.train.lr
    run.update(state, [run.batch(run.batches()[0])], rates[1] / 4)
    assert [group["lr"] for group in state.optimizer.param_groups] == pytest.approx([r / 4 for r in rates])


def test_inverse_sqrt_matches_the_paper() -> None:
    """d^-0.5 · min(step^-0.5, step · warmup^-1.5) (paper, 5.3, equation 3), scaled to a peak of 1."""
    warmup = 4000
    peak = min(warmup**-0.5, warmup * warmup**-1.5)
    for step in (1, 10, 3999, 4000, 4001, 100_000):
        formula = min(step**-0.5, step * warmup**-1.5) / peak
        assert lr_factor("inverse-sqrt", warmup, step, 0.5) == pytest.approx(formula)


@for_each("name", ["linear", "cosine"])
@for_each(("warmup", "n_steps"), [(100, 200), (1, 10), (50, 60), (99, 100), (2.5, 10)])
def test_decay_begins_where_a_warmup_in_steps_ends(name: str, warmup: float, n_steps: int) -> None:
    """The peak is the full rate, and the decay is that of a run of n_steps - warmup without warmup."""
    factors = [lr_factor(name, warmup, step, (step - 1) / n_steps) for step in range(1, n_steps + 1)]
    assert max(factors) == pytest.approx(1.0)
    for step, factor in enumerate(factors, start=1):
        after = step - 1 - warmup
        share = after / (n_steps - warmup)
        decay = 1 - share if name == "linear" else 0.5 * (1 + math.cos(math.pi * share))
        assert factor == pytest.approx(min(1.0, step / warmup) if after <= 0 else decay, abs=1e-9)


def test_a_warmup_in_steps_is_that_of_a_share_and_may_be_longer_than_the_run() -> None:
    for name, step in itertools.product(("linear", "cosine"), range(42, 401)):
        in_steps, as_share = (lr_factor(name, w, step, (step - 1) / 400) for w in (40, 0.1))
        assert in_steps == pytest.approx(as_share), step
    for warmup in (10, 11, 1000):
        factors = [lr_factor("cosine", warmup, step, (step - 1) / 10) for step in range(1, 11)]
        assert factors == pytest.approx([step / warmup for step in range(1, 11)])


def test_the_rate_at_chosen_steps() -> None:
    for name, warmup, step, progress, expected in (
        ("cosine", 0.0, 1, 0.5, 0.5),
        ("cosine", 0.0, 9, 1.0, 0.0),
        ("inverse-sqrt", 0.2, 9, 0.1, 0.5),
        ("inverse-sqrt", 0.2, 9, 0.8, 0.5),
        ("constant", 0.2, 9, 0.05, 0.25),
        ("constant", 0.2, 9, 0.3, 1.0),
        ("constant", 4, 3, 0.0, 0.75),
        ("constant", 0.1, 1, 0.0, 1e-3),  # never 0
    ):
        assert lr_factor(name, warmup, step, progress) == pytest.approx(expected, abs=1e-6), (name, warmup, step)


def test_muon_leaves_a_model_without_layers_to_adamw() -> None:
    before, after = take_steps(CONFIG)
    torch.testing.assert_close(after[1].weight, before[1].weight - 0.01)
