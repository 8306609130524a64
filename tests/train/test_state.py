"""What a training state holds: the random number generators of every device there is."""

from __future__ import annotations

from dataclasses import asdict

import pytest
import torch
from tests.small import small
from torch import Tensor


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_random_states_of_accelerators_are_saved_and_restored(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    tensors, progress = state.tensors(), asdict(state.progress)
    assert tensors[f"rng:{device}"].tolist() == [3]
    expected = torch.rand(4)
    drawn.fill_(9)
    state.load(tensors, progress)
    assert drawn.tolist() == [3]
    assert torch.equal(torch.rand(4), expected)
    drawn.fill_(5)
    state.load(
        {name: t for name, t in tensors.items() if name != f"rng:{device}"}, progress
    )  # of an older run
    assert drawn.tolist() == [5]
