"""Several processes of one run, as `torchrun` starts them, forked so that they begin at once; and what they do."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tests.helpers.forking import forking
from tests.helpers.small import config_of, data_of, small_run, state_sha256, steps_of

from glassformer import distributed
from glassformer.distributed import ProcessGroup, init_distributed
from glassformer.errors import DataError, DivergedError, GlassformerError, Interrupted
from glassformer.runs.folder import RunFolder
from glassformer.runs.records import StepMetrics
from glassformer.training import preparation
from glassformer.training.loop import RunContext, TrainState, local_batches, optimizer_step, validation_scores
from glassformer.training.preparation import measure_pace
from glassformer.training.trainer import StopRequest, Trainer


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment_of(rank: int, size: int, port: int) -> dict[str, str]:
    """What `torchrun` gives a process."""
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_PORT": port}
    return {name: str(value) for name, value in names.items()} | {"MASTER_ADDR": "127.0.0.1"}


def together(size: int, work: Callable[..., Any], *args: Any, seconds: float = 120) -> list[Any]:
    """What `work(ranks, *args)` returns in each of `size` processes, which have joined; by way of JSON."""
    with tempfile.TemporaryDirectory() as name:
        port, folder = free_port(), Path(name)
        started = [
            forking().Process(target=_work, args=(rank, size, port, folder, work, args), daemon=True)
            for rank in range(size)
        ]
        for process in started:
            process.start()
        deadline = time.monotonic() + seconds
        try:
            for process in started:
                process.join(max(0.0, deadline - time.monotonic()))
                assert process.exitcode == 0, f"a process ended with {process.exitcode}"
        finally:
            for process in started:
                process.kill()
        return [json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(size)]


def _work(rank: int, size: int, port: int, folder: Path, work: Callable[..., Any], args: tuple) -> None:
    os.environ.update(environment_of(rank, size, port))
    torch.set_num_threads(1)
    if work is mixed_devices:  # it looks at how they meet
        found = work(rank, size)
    else:
        with init_distributed("cpu") as ranks:
            found = work(ranks, *args)
    (folder / f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")


# What they do. Each is called as `work(ranks, …)` and returns what JSON holds.


def train(ranks: ProcessGroup, task: str, most: int, n: int, settings: dict[str, Any]) -> dict[str, Any]:
    """`most` updates of a small task without dropout: losses, norms, scores, and a hash of all that is kept."""
    run, state = begin(ranks, task, n, settings)
    reports = steps_of(state, run, most)
    return {
        "loss": [r.loss for r in reports],
        "norm": [r.grad_norm for r in reports],
        "valid": [r.valid for r in reports if r.valid],
        # Generators of random numbers apart.
        "kept": state_sha256({name: t for name, t in state.tensors().items() if not name.startswith("rng")}, {}),
        "position": [state.progress.epoch, state.progress.position],
        "clipped": [r.clipped for r in reports if r.clipped is not None],
        "moved": [r.update_ratios for r in reports if r.update_ratios is not None],
    }


def begin(ranks: ProcessGroup, task: str, n: int, settings: dict[str, Any]) -> tuple[RunContext, TrainState]:
    """A small run without dropout, before its first update."""
    config = config_of(task, **settings)
    config = replace(config, model=replace(config.model, dropout=0.0))
    run = replace(small_run(config, data_of(task, n)).context, group=ranks)
    torch.manual_seed(config.train.seed)
    return run, TrainState(run.task.build_model(), run.task, ranks)


def validate(ranks: ProcessGroup, task: str, sizes: list[int]) -> list[dict[str, Any]]:
    """The scores of the first so many examples by an untrained model, and which of them this process looked at."""
    data, found = data_of(task, 120), []
    for n in sizes:
        valid = data.valid
        some = replace(valid, text=valid.text[:n], answer=valid.answer and valid.answer[:n])
        run = small_run(config_of(task), replace(data, valid=some)).context
        shared = replace(run, group=ranks)
        torch.manual_seed(0)
        state = TrainState(run.task.build_model(), run.task)
        scores = validation_scores(shared, state, run.valid, run.data.valid)
        seen = [int(i) for batch in run.task.batches(state.eval_model, run.valid, ranks) for i in batch.index]
        found.append({"scores": scores, "seen": seen})
    return found


def diverge(ranks: ProcessGroup) -> list[Any]:
    """What is said, and whether anything was updated, when the loss of the last process alone is no number."""
    run, state = begin(ranks, "classify", 60, {})
    before = {name: p.detach().clone() for name, p in state.model.named_parameters()}
    batches = local_batches(run, run.task.epoch_batches(run.train, 0)[:1])
    if ranks.rank == ranks.world_size - 1:
        own = run.task.loss_sum
        run.task.loss_sum = lambda model, batch, label_smoothing=0.0: own(model, batch, label_smoothing) * math.nan
    try:
        optimizer_step(state, run, batches, 0.1)
    except DivergedError as error:
        same = all(torch.equal(before[name], p) for name, p in state.model.named_parameters())
        return [error.message, same, [int(i) for batch in batches for i in batch.index[:5]]]
    return []


def stop_during_validation(ranks: ProcessGroup) -> list[list[Any]]:
    """(validated, stop) of each update up to the one to stop after; the last gets the signal while it validates."""
    run, state = begin(ranks, "classify", 60, {})
    request, validate = StopRequest(), run.task.validate

    def output(*args: Any) -> dict[str, float]:
        if ranks.rank == ranks.world_size - 1:
            request.signal = signal.SIGTERM
        return validate(*args)

    run.task.validate, seen = output, []
    trainer = Trainer(run, state, "", RunFolder("none"), request)

    def act(report: StepMetrics) -> None:
        trainer.look(report.step)
        seen.append([report.valid is not None, trainer.signal])
        if trainer.signal is not None:
            state.progress.finished = "stopped"

    steps_of(state, run, act=act)
    return seen


def pace(ranks: ProcessGroup) -> list[float]:
    """What is measured, in processes of which all but the first are slow."""
    run, state = begin(ranks, "classify", 60, {"minutes": 0.01})
    if not ranks.is_main:
        make = run.task.make_batch
        run.task.make_batch = lambda corpus, index: (time.sleep(0.01), make(corpus, index))[1]
    return list(vars(measure_pace(run, state)).values())


def message_of(work: Callable[[], object]) -> list[Any]:
    """What the error says that some work ends in."""
    try:
        work()
    except GlassformerError as error:
        return [type(error).__name__, error.message, error.hint, error.exit_code]
    return []


def raising(ranks: ProcessGroup, error: GlassformerError) -> None:
    """Raise an error in the second process alone."""
    with ranks.raise_together():
        if ranks.rank == 1:
            raise error


def differ(ranks: ProcessGroup) -> list[list[Any]]:
    """What processes that differ in one of two facts get, and those of which the second fails."""
    ranks.assert_same(configuration="a", data="b")
    return [
        message_of(lambda: ranks.assert_same(configuration="a", data=str(ranks.rank))),
        message_of(lambda: raising(ranks, DataError("no such file: ä", "look"))),
        message_of(lambda: raising(ranks, Interrupted("stopped", "resume it", 143))),  # by SIGTERM
    ]


def other_versions(ranks: ProcessGroup) -> list[Any]:
    """What is said where the last process has other packages than the rest."""
    if ranks.rank == ranks.world_size - 1:
        preparation.version = lambda name: "0.0"
    data = data_of("classify")
    preparation.load_text_data = lambda schema, config: data
    return message_of(lambda: preparation.prepare(config_of("classify"), group=ranks))


def mixed_devices(rank: int, size: int) -> list[Any]:
    """What is said where one process would compute on a GPU and the other on its CPU."""
    if rank:
        torch.cuda.device_count = lambda: size
        distributed.choose_device = lambda name: torch.device("cuda")
    return message_of(init_distributed("auto").__enter__)
