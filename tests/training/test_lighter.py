"""Ways to train in less memory or faster on a GPU: the numbers stay those of the plain way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.distributed.test_process_group import near
from tests.helpers.small import small
from tests.helpers.together import together, train

from glassformer.distributed.process_group import SINGLE_PROCESS


def test_layers_computed_again_give_the_same_run_to_the_byte() -> None:
    """With dropout: what is drawn again is what was drawn."""
    for task in ("classify", "translate", "lm"):
        plain, again = (trained(task, recompute) for recompute in (False, True))
        assert plain[0] == again[0] and plain[1].keys() == again[1].keys()
        assert all(torch.equal(t, again[1][name]) for name, t in plain[1].items())


def trained(task: str, recompute: bool) -> tuple[list[float], dict[str, torch.Tensor]]:
    run = small(task, activation_checkpointing=recompute, epochs=1)
    state = run.new_state()
    return [report.loss for report in run.run(state)], state.tensors()


def test_layers_are_computed_again_and_remember_less() -> None:
    run = small("lm", activation_checkpointing=True)
    state, held = run.new_state(), list[int]()
    batch = run.batch(run.batches()[0])
    for model in (state.model, run.task.build_model()):
        sizes: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, s=sizes: (s.append(t.numel()), t)[1], lambda t: t):
            run.task.loss_sum(model, batch)
        held.append(sum(sizes))
    assert held[0] < held[1] / 2


COMPILED = """
import json, sys, torch
from tests.helpers.together import train
from glassformer.distributed.process_group import SINGLE_PROCESS
compile_ = torch.nn.Module.compile
torch.nn.Module.compile = lambda layer: compile_(layer, backend="aot_eager", fullgraph=True)
tasks = ("classify", "translate", "lm")
pairs = [[train(SINGLE_PROCESS, task, 4, 40, {"compile": way}) for way in (True, False)] for task in tasks]
json.dump(pairs, sys.stdout)
"""
"""Layers are traced whole, and here not turned into machine code, which takes a minute."""


@pytest.mark.slow
def test_compiled_layers_give_the_same_curve() -> None:
    """In a process of its own, for here the shapes of all arguments are checked, which cannot be traced."""
    root = Path(__file__).parents[2]
    paths = {"PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}
    message = subprocess.run(
        [sys.executable, "-c", COMPILED], capture_output=True, text=True, cwd=root, env=os.environ | paths, check=False
    )
    assert message.returncode == 0, message.stderr
    for compiled, plain in json.loads(message.stdout):
        near(compiled, plain)


@pytest.mark.slow
def test_all_of_it_goes_together_in_several_processes() -> None:
    settings = {"activation_checkpointing": True, "accumulate": 2}
    alone = train(SINGLE_PROCESS, "lm", 12, 60, {"accumulate": 2})
    found = together(2, train, "lm", 12, 60, settings)
    assert found[0] == found[1]
    near(found[0], alone)
