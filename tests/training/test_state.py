"""What a training state holds: the random number generators of every device there is."""

from __future__ import annotations

import pytest
import torch
from tests.helpers.for_each import for_each
from tests.helpers.small import small
from torch import Tensor


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_random_states_of_accelerators_are_saved_and_restored(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device is pretended, with one generator that counts how often it was drawn from."""
    drawn = torch.tensor([3], dtype=torch.uint8)

    def restore(state: Tensor) -> None:
        drawn.copy_(state)

    module, here = {"cuda": (torch.cuda, torch.cuda), "mps": (torch.mps, torch.backends.mps)}[device]
    run = small("classify")
    state = run.new_state()
    monkeypatch.setattr(here, "is_available", lambda: True)
    monkeypatch.setattr(module, "get_rng_state", lambda: drawn.clone())
    monkeypatch.setattr(module, "set_rng_state", restore)
    torch.manual_seed(7)
    tensors, progress = state.tensors(), state.progress
    assert tensors[f"rng:{device}"].tolist() == [3]
    expected = torch.rand(4)
    drawn.fill_(9)
    state.load(tensors, progress)
    assert drawn.tolist() == [3]
    assert torch.equal(torch.rand(4), expected)
    drawn.fill_(5)
    state.load({name: t for name, t in tensors.items() if name != f"rng:{device}"}, progress)  # a machine had none
    assert drawn.tolist() == [5]


@for_each("ema_decay", [0.0, 0.9])
def test_a_state_holds_each_set_of_weights_once(ema_decay: float) -> None:
    run = small("classify", ema_decay=ema_decay)
    state = run.new_state()
    run.run(state)
    weights = {name for name, _ in state.model.named_parameters()}
    expected = {f"{group}:{name}" for group in ("model", "best") for name in weights}
    expected |= {f"ema:{name}" for name in weights if ema_decay}
    adam = ("step", "exp_avg", "exp_avg_sq")
    expected |= {f"optimizer:{name}/{key}" for name in weights for key in adam}
    here = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    expected |= {f"rng:{name}" for name, available in here.items() if available}
    assert state.tensors().keys() == expected
