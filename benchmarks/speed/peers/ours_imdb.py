"""Glassformer's IMDB recipe until it knows the test set as well as asked; what its seconds are is said in `imdb.py`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch
from benchmarks.speed.peers.serving import answer, own_stdout

from glassformer.config.recipes import load_recipe, override
from glassformer.training.computing import computing
from glassformer.training.loop import train_steps
from glassformer.training.preparation import prepare
from glassformer.training.state import TrainState
from glassformer.training.validation import Validator

SOME = 1000
"""Test reviews that are asked at every look; all of them, which takes minutes, where these come near to what is
wanted."""
NEAR = 0.01


class NeverDue(Validator):
    """No validation in between: the test set is asked, and the clock stands still meanwhile."""

    def is_due(self, state: TrainState, epoch: float) -> bool:
        return False


def main() -> None:
    """Train until the wanted accuracy, looking at the test set every `every` seconds of training."""
    answers = own_stdout()
    spec = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    config = override(load_recipe("imdb"), {"seed": spec["seed"], "epochs": spec["epochs"], "snapshots": False})
    began = time.perf_counter()
    with computing(prepare(config)) as run:
        preparing = time.perf_counter() - began
        test = run.data.test
        assert test is not None
        some = test.take(range(0, len(test), max(1, len(test) // SOME)))
        corpus, of_some = (run.task.encode(split, training=False) for split in (test, some))
        torch.manual_seed(config.train.seed)
        model = run.task.build_model()
        state = TrainState.start(model, run.task)
        steps, seconds, next_look = train_steps(state, run, NeverDue(run)), 0.0, spec["every"]
        accuracy, n_steps, finished = 0.0, 0, False
        while accuracy < spec["accuracy"] and not finished:
            began = time.perf_counter()
            report = next(steps, None)
            seconds += time.perf_counter() - began
            finished, n_steps = report is None, n_steps + (report is not None)
            if seconds >= next_look or finished:
                accuracy = run.task.validate(model, of_some, some)["accuracy"]
                if finished or accuracy >= spec["accuracy"] - NEAR:
                    accuracy = run.task.validate(model, corpus, test)["accuracy"]
                next_look = seconds + spec["every"]
    measured = {"preparing": preparing, "seconds": seconds, "accuracy": accuracy, "steps": n_steps}
    answer(answers, measured | {"reached": accuracy >= spec["accuracy"]})


if __name__ == "__main__":
    main()
