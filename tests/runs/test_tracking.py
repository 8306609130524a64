"""What follows a training does not change it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests.helpers.small_runs import SMALL, write_table

import glassformer

STEPS = SMALL | {"steps": 9, "save_every": 4, "validate_every": 100, "threads": 1}


def test_who_follows_a_training_draws_random_numbers_of_its_own(tmp_path: Path) -> None:
    settings = STEPS | {"train_file": write_table(tmp_path), "dropout": 0.5}

    def follow(report: Any) -> None:
        torch.manual_seed(report.step)
        random.seed(0)
        np.random.seed(0)
        torch.rand(7)

    weights = []
    for name, on_step in (("alone", None), ("followed", follow)):
        glassformer.train("classify", out=tmp_path / name, on_step=on_step, **settings)
        weights.append((tmp_path / name / "model" / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]
