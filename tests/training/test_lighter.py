"""Compiled layers train faster on a GPU: the numbers stay those of the plain way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.distributed.test_process_group import near

COMPILED = """
import json, sys, torch
from tests.distributed.together import train
from glassformer.distributed import SINGLE_PROCESS
compile_ = torch.nn.Module.compile
torch.nn.Module.compile = lambda layer: compile_(layer, backend="aot_eager", fullgraph=True)
pairs = []
for task in ("classify", "translate", "lm"):
    torch._dynamo.reset()  # a training has a process of its own, and so its own number of shapes that are traced
    pairs.append([train(SINGLE_PROCESS, task, 4, 40, {"compile": way}) for way in (True, False)])
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
