"""Glassformer in one of several processes that share every batch, as `torchrun` starts them."""

from __future__ import annotations

import glassformer  # noqa: F401  before torch, so that it can say how torch's threads wait

# isort: split
from dataclasses import replace
from typing import Any

from benchmarks.speed.peers.ours import OurTrainer
from benchmarks.speed.peers.serving import ArrayBatch, Spec, serve
from benchmarks.speed.peers.training import WARM_UP_UPDATES

from glassformer.distributed.process_group import init_distributed
from glassformer.training.loop import local_batches, optimizer_step
from glassformer.training.state import TrainState


class RankTrainer(OurTrainer):
    """`OurTrainer` among others; started alone it is the same."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        group = self.entered.enter_context(init_distributed("cpu"))
        self.run = replace(self.run, group=group)
        self.state = TrainState.start(self.state.model, self.run.task, group)

    def prepare(self, batch: ArrayBatch) -> Any:
        """Return this process's share of the rows."""
        return local_batches(self.run, [self.index_of(batch)])

    def update(self, prepared: Any) -> float:
        """Run one step of all processes together."""
        lr = self.w.lr * min(1.0, (self.state.progress.step + 1) / WARM_UP_UPDATES)
        loss, _ = optimizer_step(self.state, self.run, prepared, lr)
        self.state.progress.step += 1
        return loss


if __name__ == "__main__":
    serve(RankTrainer)
