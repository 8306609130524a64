"""Glassformer for part i: a recipe with a shorter schedule, scored as its own validation scores it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
from benchmarks.speed.peers.curve import serve_curve

from glassformer.config.recipes import load_recipe, override
from glassformer.training.computing import computing
from glassformer.training.loop import train_steps
from glassformer.training.preparation import prepare
from glassformer.training.state import TrainState
from glassformer.training.validation import Validator


class NeverDue(Validator):
    """No validation in between: the harness asks for scores, and the clock stands still meanwhile."""

    def is_due(self, state: TrainState, epoch: float) -> bool:
        return False


class OurCurve:
    """The steps of `glassformer train RECIPE --steps N`.

    Args:
        spec: "recipe", "steps", "seed", and the "metric" of its validation that is the score.
    """

    def __init__(self, spec: dict[str, Any]) -> None:
        config = override(
            load_recipe(spec["recipe"]), {"seed": spec["seed"], "steps": spec["steps"], "snapshots": False}
        )
        self.entered = ExitStack()
        self.context, self.metric = self.entered.enter_context(computing(prepare(config))), spec["metric"]
        torch.manual_seed(config.train.seed)
        self.state = TrainState.start(self.context.task.build_model(), self.context.task)
        self.validator = Validator(self.context)
        self.steps = train_steps(self.state, self.context, NeverDue(self.context))

    def step(self, seconds: float) -> bool:
        """Run the next step, if there is one."""
        return next(self.steps, None) is not None

    def score(self) -> dict[str, float]:
        """Return the score of the averaged weights."""
        context = self.context
        scores = self.validator.score(self.state.eval_model, self.state.weights(), context.valid, context.data.valid)
        return {"score": scores[self.metric]}


if __name__ == "__main__":
    serve_curve(OurCurve)
