"""A process that is forked after its parent predicted predicts too, although the parent's threads are not there."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.helpers.tiny_runs import Runs

SCRIPT = """
import multiprocessing, sys, torch, glassformer
torch.set_num_threads(2)
run = glassformer.load(sys.argv[1])
texts = [f"a good film, number {i}" for i in range(64)]
before = run.predict(texts)
def child(queue):
    queue.put([answer["label"] for answer in run.predict(texts)])
context = multiprocessing.get_context("fork")
queue = context.Queue()
process = context.Process(target=child, args=(queue,))
process.start()
assert queue.get(timeout=100) == [answer["label"] for answer in before]
process.join()
print("answered")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_predicts(runs: Runs) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "TOKENIZERS_PARALLELISM": "true"}
    command = [sys.executable, "-c", SCRIPT, str(runs.classify)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert "answered" in done.stdout, done.stderr
