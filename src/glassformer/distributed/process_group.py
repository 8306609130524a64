"""One run in several processes, started by `torchrun`: what each has of an update, and what all must agree on.

The recipe names the whole batch and the processes ("ranks") divide it, so a run is the same on any number of them,
and a checkpoint knows nothing of that number. A process alone joins nobody: every method gives back what it was
given, and costs nothing. The loop asks here and has no branch of its own.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import os
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import PrefixStore, Store  # pyright: ignore[reportPrivateImportUsage]
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from glassformer.errors import GlassformerError, ResourceError, UsageError, error_of
from glassformer.utils import console
from glassformer.utils.device import choose_device

PATIENCE = timedelta(minutes=10)
"""How long a process waits for the others before it gives the run up; encoding a large text takes as long."""
CLOSED = re.compile(r"connection (was )?(likely )?(closed|reset)|broken pipe", re.IGNORECASE)
LOST = re.compile(f"gloo|nccl|{CLOSED.pattern}", re.IGNORECASE)
"""What torch says in its own words when another process is gone."""


class Passes(nn.Module):
    """A forward pass that is any function of a model and a batch, so that DDP sees where one begins and ends.

    What is minimised may call the model twice, or its members one by one; DDP alone knows only `model(…)`.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, objective: Callable[..., Any], task: Any, batch: Any) -> Any:
        """What the objective says of the batch."""
        return objective(task, self.model, batch)


@dataclass(frozen=True)
class Ranks:
    """The processes of a run, as one of them sees them; without arguments the only one.

    Args:
        rank: which one this is; the first, 0, writes the run folder and talks.
        size: how many there are.
        local: which one it is on its machine.
        store: where they met. gpus: how gradients travel between GPUs; None on CPUs.
    """

    rank: int = 0
    size: int = 1
    local: int = 0
    store: Store | None = None
    gpus: dist.ProcessGroup | None = None

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and talks."""
        return self.rank == 0

    # --- an update ------------------------------------------------------------------------------------------

    def wrap(self, model: nn.Module) -> nn.Module:
        """The module that computes losses (`Passes`), its gradients averaged over the ranks where there are several."""
        passes = Passes(model)
        if self.size == 1:
            return passes
        known = inspect.signature(DistributedDataParallel).parameters  # renamed between torch 2.11 and 2.13
        buffers = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
        settings: dict[str, Any] = {
            buffers: False,
            "gradient_as_bucket_view": True,
            "process_group": self.gpus,
        }
        return DistributedDataParallel(passes, device_ids=[self.local] if self.gpus else None, **settings)

    def pieces(self, entries: Sequence[np.ndarray]) -> list[tuple[np.ndarray, bool]]:
        """This rank's share of the batches of an update, and whether each piece counts.

        Every row is in exactly one piece that counts, of one rank. Entries are sorted by length, so strides make
        pieces of like width. All ranks have equally many: who is short repeats a row that does not count.
        """
        parts = math.ceil(self.size / len(entries))
        pieces = [entry[k::parts] for entry in entries for k in range(parts)]
        own = [(piece, True) for piece in pieces[self.rank :: self.size] if len(piece)]
        most = math.ceil(len(pieces) / self.size)
        return own + [(entries[0][:1], False)] * (most - len(own))

    def sync(self, parallel: nn.Module, last: bool) -> AbstractContextManager[object]:
        """Around the forward and backward pass of a piece: gradients travel with the last one only."""
        if isinstance(parallel, DistributedDataParallel) and not last:
            return parallel.no_sync()
        return nullcontext()

    def reseed(self, seed: int, step: int) -> None:
        """Let every rank hide other things, the same again when the run is resumed; one alone goes on as it was."""
        if self.size > 1:
            torch.manual_seed(int(np.random.SeedSequence([seed, step, self.rank]).generate_state(1)[0]))

    # --- what all know --------------------------------------------------------------------------------------

    def sum(self, *numbers: float) -> list[float]:
        """The sum over all ranks of each number, in float64 and with the same bits everywhere."""
        if self.size == 1:
            return list(numbers)
        return self.sum_tensor(torch.tensor(numbers, dtype=torch.float64)).tolist()

    def sum_tensor(self, table: Tensor) -> Tensor:
        """The sum over all ranks of a table on the CPU; where each row is one rank's and zero elsewhere, exact."""
        if self.size > 1:
            dist.all_reduce(table)
        return table

    def of_first(self, *numbers: float) -> list[float]:
        """What the first rank found, for what must not be decided twice: clocks, scores."""
        return self.sum(*(number if self.first else 0.0 for number in numbers))

    def mine(self, things: Sequence[Any]) -> Sequence[Any]:
        """This rank's share of things that are scored one by one."""
        return things[self.rank :: self.size]

    def gathered(self, rows: Sequence[Sequence[int]], n: int) -> list[list[int]]:
        """The rows of ids of all ranks, each its share (`mine`) of `n`, in their order."""
        if self.size == 1:
            return [list(row) for row in rows]
        lengths = torch.zeros(n, dtype=torch.int64)
        lengths[self.rank :: self.size] = torch.tensor([len(row) for row in rows], dtype=torch.int64)
        width = int(self.sum_tensor(lengths).max(dim=0).values) if n else 0
        table = torch.zeros(n, width, dtype=torch.int64)
        for i, row in zip(range(self.rank, n, self.size), rows, strict=True):
            table[i, : len(row)] = torch.tensor(row, dtype=torch.int64)
        filled = self.sum_tensor(table).tolist()
        return [row[:length] for row, length in zip(filled, lengths.tolist(), strict=True)]

    def same(self, **facts: str) -> None:
        """Refuse a run whose ranks differ in what they were given.

        Raises:
            UsageError: in what they do; on all ranks.
        """
        if self.size == 1:
            return
        prints = [int.from_bytes(hashlib.sha256(fact.encode()).digest()[:6]) for fact in facts.values()]
        largest = torch.tensor([prints, [-number for number in prints]])
        dist.all_reduce(largest, dist.ReduceOp.MAX)  # the largest and, negative, the smallest
        odd = [name.replace("_", " ") for name, total in zip(facts, largest.sum(dim=0), strict=True) if total]
        if odd:
            told = f"the {self.size} processes of this run differ in: {', '.join(odd)}"
            raise UsageError(told, "start the same command with the same files and versions everywhere")

    # --- failing together -----------------------------------------------------------------------------------

    @contextmanager
    def agreed(self) -> Iterator[None]:
        """A block that all ranks pass, or else all raise what the first of them to fail raised; a meeting point."""
        error = None
        try:
            yield
        except GlassformerError as raised:
            if self.size == 1:
                raise
            error = raised
        codes = torch.zeros(self.size, dtype=torch.int64)
        codes[self.rank] = error.exit_code if error else 0
        failed = self.sum_tensor(codes).nonzero().flatten().tolist()
        if not failed:
            return
        told = [*error.message.encode(), 0, *error.hint.encode()] if error and self.rank == failed[0] else []
        texts = self.gathered([told], self.size)
        message, hint = bytes(texts[failed[0]]).split(b"\0")
        where = f"process {failed[0]}: " if failed[0] else ""
        raise error_of(int(codes[failed[0]]), f"{where}{message.decode()}", hint.decode()) from error

    @contextmanager
    def watched(self, where: Callable[[], str], hint: str) -> Iterator[None]:
        """A block in which another process may die: what torch then says becomes a sentence and the way on.

        Args:
            where: how far the run was, and what stands. hint: how to go on.

        Raises:
            ResourceError: another process is gone, or has not answered for PATIENCE.
        """
        try:
            yield
        except RuntimeError as error:
            if self.size == 1 or not (isinstance(error, dist.DistError) or LOST.search(str(error))):
                raise
            console.take_floor(self._is_first_to_tell())
            if hasattr(
                signal, "pthread_sigmask"
            ):  # torchrun ends those that are left: the sentence shall be out before
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            minutes = PATIENCE.total_seconds() / 60
            told = f"another process of this run was lost, or kept the others waiting for {minutes:g} minutes"
            raise ResourceError(f"{told}, {where()}", hint) from error

    def _is_first_to_tell(self) -> bool:
        """Of those that are left one tells what happened: the first to ask where they met, while that place stands."""
        try:
            return self.store is None or self.store.add("told", 1) == 1
        except RuntimeError:
            return self.rank <= 1  # the first process kept the place, and is gone


ALONE = Ranks()
"""A run of one process."""


def launched() -> int:
    """How many processes `torchrun`, or a scheduler in its way, says that it started."""
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def joined(device: str) -> Iterator[Ranks]:
    """The processes of this run, together within the block; without `torchrun`, or of one, this one alone.

    Args:
        device: the setting of that name; on GPUs each process takes the one of its number on the machine.

    Raises:
        UsageError: they cannot meet, or have not the same device.
        ResourceError: one ended while they met.
    """
    if launched() == 1:
        yield ALONE
        return
    ranks = _meet()
    try:
        with ranks.agreed():
            chosen = choose_device(device)
            if chosen.type == "mps":
                raise UsageError("several processes cannot share this GPU", "use --device cpu, or one process")
            if chosen.type == "cuda" and ranks.local >= (n := torch.cuda.device_count()):
                told = f"process {ranks.local} of this machine has no GPU: there are {n}"
                raise UsageError(told, "start as many processes as GPUs: --nproc-per-node=gpu")
        ranks.same(device=chosen.type)
        if chosen.type == "cuda":
            torch.cuda.set_device(ranks.local)
            gpus: Any = dist.new_group(backend="nccl", timeout=PATIENCE)
            ranks = Ranks(ranks.rank, ranks.size, ranks.local, ranks.store, gpus)
        with ranks.watched(lambda: "before the first update or after the last", "give the same command again"):
            yield ranks
            dist.barrier()  # else who leaves first takes the connections of the others with it
    finally:
        with suppress(RuntimeError):
            dist.destroy_process_group()


def _meet() -> Ranks:
    """All processes in one group that talks over gloo."""
    try:
        store, rank, size = next(rendezvous("env://", timeout=PATIENCE))
        if os.environ.get("GROUP_WORLD_SIZE", "1") == "1":
            # After a restart the launcher's store still holds the addresses of processes that are dead.
            store = PrefixStore(f"restart-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:  # what gloo cannot connect to is a plain RuntimeError
        told = " ".join(str(error).split())[:200]
        if CLOSED.search(told):
            lost = f"one of the {launched()} processes of this run ended while they met: {told}"
            raise ResourceError(lost, "give the same command again") from error
        hint = "start it with torchrun and a --master-port that is free, the same line on every machine"
        raise UsageError(f"the {launched()} processes of this run cannot meet: {told}", hint) from error
    return Ranks(rank, size, int(os.environ.get("LOCAL_RANK", "0")), store)
