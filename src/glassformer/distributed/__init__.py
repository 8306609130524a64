"""The processes of one run, started by `torchrun`: their shares of a batch, collectives, and failing together.

A recipe names the global batch and the ranks divide it, so that a run is the same with any number of processes and a
checkpoint does not depend on that number. With a single process every method returns its argument unchanged: the
training loop needs no branch.
"""

from __future__ import annotations

import inspect
import os
import re
import signal
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from threading import Thread
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import PrefixStore  # pyright: ignore[reportPrivateImportUsage]
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from glassformer.errors import GlassformerError, ResourceError, UsageError, error_of
from glassformer.utils import console
from glassformer.utils.device import choose_device

TIMEOUT = timedelta(minutes=10)
"""How long a process waits for the others before it ends the run; encoding a large text takes as long."""
MEETING_LOST = "connectFullMesh|connection (was )?(likely )?(closed|reset)|broken pipe"
PEER_LOST = re.compile(f"gloo|nccl|{MEETING_LOST}", re.IGNORECASE)
"""Words of torch's errors when another process is gone, while they meet and later."""


@dataclass(frozen=True)
class ProcessGroup:
    """The processes of a run as one of them sees them; without arguments a single process.

    Args:
        rank: index of this process; rank 0, the main process, writes the run folder and logs.
        world_size: number of processes.
        local_rank: index of this process on its machine.
        nccl: group that averages gradients between GPUs; None on CPUs.
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    nccl: dist.ProcessGroup | None = None

    @property
    def is_main(self) -> bool:
        """Return True for the process that writes the run folder and logs."""
        return self.rank == 0

    # --- one step -------------------------------------------------------------------------------------------

    def wrap_ddp(self, module: nn.Module) -> nn.Module:
        """Return the module, in DistributedDataParallel where there are several processes, for their mean gradients."""
        if self.world_size == 1:
            return module
        # The parameter was renamed between torch 2.11 and 2.13, and a torch that has both warns of the older one.
        known = inspect.signature(DistributedDataParallel).parameters
        buffers: Any = {"forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers": False}
        return DistributedDataParallel(module, process_group=self.nccl, gradient_as_bucket_view=True, **buffers)

    def split_batches(self, batches: Sequence[np.ndarray]) -> list[tuple[np.ndarray, bool]]:
        """Return this rank's share of the batches of a step, each with whether its rows count.

        Every row is in exactly one part that counts. Rows are sorted by length, so strides give parts of similar
        width. All ranks get the same number of parts: a rank with fewer repeats a row that does not count.

        Args:
            batches: row indices of each batch of the step, the same on all ranks.
        """
        n_parts = -(-self.world_size // len(batches))
        parts = [batch[k::n_parts] for batch in batches for k in range(n_parts)]
        local = [(part, True) for part in parts[self.rank :: self.world_size] if len(part)]
        return local + [(batches[0][:1], False)] * (-(-len(parts) // self.world_size) - len(local))

    def sync_gradients(self, module: nn.Module, is_last: bool) -> AbstractContextManager[object]:
        """Return the context of a forward and backward pass: of a step only the last makes gradients the mean."""
        return module.no_sync() if isinstance(module, DistributedDataParallel) and not is_last else nullcontext()

    # --- collectives ----------------------------------------------------------------------------------------

    def all_reduce(self, *numbers: float) -> list[float]:
        """Return the sum over all ranks of each number, in float64 and with the same bits everywhere."""
        return self.all_reduce_tensor(torch.tensor(numbers, dtype=torch.float64)).tolist()

    def all_reduce_tensor(self, tensor: Tensor) -> Tensor:
        """Return the sum over all ranks of a tensor on the CPU, in place."""
        if self.world_size > 1:
            dist.all_reduce(tensor)
        return tensor

    def broadcast(self, *numbers: float) -> list[float]:
        """Return the main process's numbers, for what must be decided once: clocks, scores."""
        return self.all_reduce(*(number if self.is_main else 0.0 for number in numbers))

    def shard(self, items: Any) -> Any:
        """Return every world_size-th item, from this rank on."""
        return items[self.rank :: self.world_size]

    def all_gather_rows(self, rows: Sequence[Sequence[int]], n: int) -> list[list[int]]:
        """Return the rows of integers of all ranks in their order.

        Args:
            rows: this rank's `shard` of them.
            n: number of rows of all ranks.
        """
        width = torch.tensor(1 + max(map(len, rows), default=0))
        if self.world_size > 1:
            dist.all_reduce(width, dist.ReduceOp.MAX)
        table = torch.zeros(n, int(width), dtype=torch.int64)
        for line, row in zip(self.shard(table), rows, strict=True):
            line[: len(row) + 1] = torch.tensor([len(row), *row])
        return [line[1 : line[0] + 1] for line in self.all_reduce_tensor(table).tolist()]

    def assert_same(self, **facts: str) -> None:
        """Check that every fact is the same string on all ranks.

        Raises:
            UsageError: one differs; raised on all ranks.
        """
        ranks = self.all_gather_rows([[zlib.crc32(fact.encode()) for fact in facts.values()]], self.world_size)
        different = [name.replace("_", " ") for name, *values in zip(facts, *ranks, strict=True) if len({*values}) > 1]
        if different:
            message = f"the {self.world_size} processes of this run differ in: {', '.join(different)}"
            raise UsageError(message, "start the same command with the same files and versions everywhere")

    # --- failing together -----------------------------------------------------------------------------------

    @contextmanager
    def raise_together(self) -> Iterator[None]:
        """Raise on all ranks the error of the lowest rank that fails within the block; a barrier."""
        error, own = None, list[int]()
        try:
            yield
        except GlassformerError as raised:
            if self.world_size == 1:
                raise
            error, own = raised, [raised.exit_code, *f"{raised.message}\0{raised.hint}".encode()]
        for rank, row in enumerate(self.all_gather_rows([own], self.world_size)):
            if row:
                message, hint = bytes(row[1:]).decode().split("\0")
                raise error_of(row[0], f"process {rank}: {message}" if rank else message, hint) from error

    @contextmanager
    def local_main_first(self) -> Iterator[None]:
        """Run the block in local rank 0 of each machine first, then in the others; all raise the first error."""
        for turn in (True, False):
            with self.raise_together():
                if turn == (self.local_rank == 0):
                    yield

    @contextmanager
    def peer_failures(self, where: Callable[[], str], hint: str) -> Iterator[None]:
        """Turn torch's errors about a lost process within the block into one sentence and a hint.

        Args:
            where: returns how far the run is and what is saved.
            hint: how to resume.

        Raises:
            ResourceError: another process is gone, or has not answered for TIMEOUT.
        """
        try:
            yield
        except RuntimeError as error:
            if self.world_size == 1 or not (isinstance(error, dist.DistError) or PEER_LOST.search(str(error))):
                raise
            # torchrun terminates the processes that are left: the message must be printed before.
            if hasattr(signal, "pthread_sigmask"):
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            console.ignore_rank()
            waited = f"kept the others waiting for {TIMEOUT.total_seconds() / 60:g} minutes"
            raise ResourceError(f"another process of this run was lost, or {waited}, {where()}", hint) from error


SINGLE_PROCESS = ProcessGroup()
"""The group of a run in one process."""


@contextmanager
def init_distributed(device: str) -> Iterator[ProcessGroup]:
    """Yield the group of this run's processes within the block; one process alone joins nothing.

    Args:
        device: the setting `train.device`; each process takes the GPU of its local rank.

    Raises:
        UsageError: the processes cannot meet, or have different devices.
        ResourceError: one ended while they met.
    """
    n = int(os.environ.get("WORLD_SIZE", "1"))  # as torchrun or a scheduler started
    if n == 1:
        yield SINGLE_PROCESS
        return
    group = _rendezvous(n)
    try:
        with group.peer_failures(lambda: "before the first step or after the last", "give the same command again"):
            yield _on_device(group, device)
            # Without it the first process to leave closes the connections of the others.
            dist.barrier()
    finally:
        with suppress(RuntimeError):
            dist.destroy_process_group()


def _on_device(group: ProcessGroup, device: str) -> ProcessGroup:
    """Return the group with what averages gradients, after all processes chose the same kind of device."""
    with group.raise_together():
        chosen = choose_device(device)
        if chosen.type == "mps":
            raise UsageError("several processes cannot share this GPU", "use --device cpu, or one process")
        if chosen.type == "cuda" and group.local_rank >= (n := torch.cuda.device_count()):
            message = f"process {group.local_rank} of this machine has no GPU: there are {n}"
            raise UsageError(message, "start as many processes as GPUs: --nproc-per-node=gpu")
    group.assert_same(device=chosen.type)
    if chosen.type != "cuda":
        return group
    torch.cuda.set_device(group.local_rank)
    nccl: Any = dist.new_group(backend="nccl", timeout=TIMEOUT)
    return replace(group, nccl=nccl)


def _rendezvous(n: int) -> ProcessGroup:
    """Return the group of all n processes, connected by gloo.

    A thread meets them: handlers of signals do not run in the one that waits in C++, as for a process that was killed.
    """
    met = Future[ProcessGroup]()

    def meet() -> None:
        try:
            store, rank, world_size = next(rendezvous("env://", timeout=TIMEOUT))
            if os.environ.get("GROUP_WORLD_SIZE", "1") == "1":
                # After a restart the launcher's store still holds the addresses of dead processes.
                store = PrefixStore(f"restart-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
            dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=TIMEOUT)
            met.set_result(ProcessGroup(rank, world_size, int(os.environ.get("LOCAL_RANK", "0"))))
        except Exception as error:
            met.set_exception(error)

    Thread(target=meet, daemon=True).start()
    if error := met.exception():
        reason = " ".join(str(error).split())[:200]
        if re.search(MEETING_LOST, reason, re.IGNORECASE):
            message = f"one of the {n} processes of this run ended while they met: {reason}"
            raise ResourceError(message, "give the same command again") from error
        hint = "start it with torchrun and a --master-port that is free, the same line on every machine"
        raise UsageError(f"the {n} processes of this run cannot meet: {reason}", hint) from error
    return met.result()
