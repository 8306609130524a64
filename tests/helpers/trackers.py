"""Stand-ins for the libraries of experiment trackers: they keep what they are given, and refuse other arguments."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


@dataclass
class Tracked:
    """One run in a tracker: its name, settings, the values of each step in the order sent, and how it ended."""

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    sent: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    ended: list[Any] = field(default_factory=list)

    def add(self, step: int, values: dict[str, float]) -> None:
        assert all(type(value) in (int, float) for value in values.values())
        self.sent.append((step, values))


@dataclass
class Server:
    """All runs of a tracker by id; `hook` is called before each call, and may raise or wait."""

    runs: dict[str, Tracked] = field(default_factory=dict)
    hook: Callable[[str], None] = lambda call: None


def install(tracker: str, patch: pytest.MonkeyPatch) -> Server:
    """Put a tracker's library in the place of the real one, installed or not."""
    server = Server()
    modules = {"tensorboard": _tensorboard, "trackio": _trackio, "wandb": _wandb, "mlflow": _mlflow}[tracker]
    for name, module in modules(server):
        patch.setitem(sys.modules, name, module)
    return server


def _module(name: str, **members: Any) -> Any:
    module = ModuleType(name)
    vars(module).update(members)
    return module


def _tensorboard(server: Server) -> Iterator[tuple[str, Any]]:
    class SummaryWriter:
        def __init__(self, log_dir: str, purge_step: int | None = None) -> None:
            server.hook("init")
            print("SummaryWriter")
            self.run = server.runs.setdefault(log_dir, Tracked(log_dir))
            if purge_step is not None:
                self.run.sent = [each for each in self.run.sent if each[0] < purge_step]

        def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
            server.hook("log")
            if not self.run.sent or self.run.sent[-1][0] != global_step:
                self.run.add(global_step, {})
            self.run.sent[-1][1][tag] = scalar_value

        def close(self) -> None:
            server.hook("close")
            self.run.ended.append(True)

    yield "tensorboard", _module("tensorboard")
    yield "torch.utils.tensorboard", _module("torch.utils.tensorboard", SummaryWriter=SummaryWriter)


@dataclass
class _LoggedRun:
    """A run of Trackio."""

    server: Server
    run: Tracked

    def log(self, data: dict[str, float], step: int) -> None:
        self.server.hook("log")
        self.run.add(step, data)

    def finish(self) -> None:
        self.server.hook("close")
        self.run.ended.append(True)


@dataclass
class _WandbRun:
    server: Server
    run: Tracked
    step: int

    def log(self, data: dict[str, float], step: int) -> None:
        self.server.hook("log")
        self.run.add(step, data)

    def finish(self, *, exit_code: int) -> None:
        self.server.hook("close")
        self.run.ended.append(exit_code == 0)


def _trackio(server: Server) -> Iterator[tuple[str, Any]]:
    def init(
        *, project: str, name: str, config: dict[str, Any], resume: str, embed: bool, **auto_log: bool
    ) -> _LoggedRun:
        server.hook("init")
        print("Trackio project initialized")
        assert (project, resume) == ("glassformer", "allow") and not embed
        assert auto_log == {"auto_log_gpu": False, "auto_log_cpu": False}
        assert not any(key.startswith("_") for key in config)
        return _LoggedRun(server, server.runs.setdefault(name, Tracked(name, config)))

    yield "trackio", _module("trackio", init=init)


def _wandb(server: Server) -> Iterator[tuple[str, Any]]:
    def init(
        *, project: str, name: str, id: str, config: dict[str, Any], resume: str, reinit: str, settings: Any
    ) -> _WandbRun:
        server.hook("init")
        assert (project, resume, reinit) == ("glassformer", "allow", "create_new")
        run = server.runs.setdefault(id, Tracked(name, config))
        return _WandbRun(server, run, 1 + run.sent[-1][0] if run.sent else 0)

    def settings(*, console: str, silent: bool) -> SimpleNamespace:
        assert console == "off" and silent
        return SimpleNamespace()

    def login(*, prompt: bool) -> bool:
        assert not prompt
        server.hook("login")
        return True

    setup = SimpleNamespace(settings=SimpleNamespace(mode="online"))
    yield "wandb", _module("wandb", init=init, Settings=settings, login=login, setup=lambda: setup)


def _mlflow(server: Server) -> Iterator[tuple[str, Any]]:
    class MlflowClient:
        def get_experiment_by_name(self, name: str) -> Any:
            assert name == "glassformer"
            return SimpleNamespace(experiment_id="7") if server.runs else None

        def create_experiment(self, name: str) -> str:
            return "7"

        def create_run(self, experiment_id: str, *, run_name: str) -> Any:
            server.hook("init")
            assert experiment_id == "7"
            run_id = f"run{len(server.runs)}"
            server.runs[run_id] = Tracked(run_name)
            return SimpleNamespace(info=SimpleNamespace(run_id=run_id))

        def update_run(self, run_id: str, *, status: str) -> None:
            server.hook("init")
            assert run_id in server.runs and status == "RUNNING"

        def get_metric_history(self, run_id: str, key: str) -> list[Any]:
            return [SimpleNamespace(step=step) for step, values in server.runs[run_id].sent if key in values]

        def log_batch(self, run_id: str, metrics: Any = (), params: Any = ()) -> None:
            server.hook("log" if metrics else "params")
            assert len(params) <= 100 and len(metrics) <= 1000
            server.runs[run_id].settings |= {each.key: each.value for each in params}
            if metrics:
                [step] = {each.step for each in metrics}
                assert all(each.timestamp > 10**12 for each in metrics)
                server.runs[run_id].add(step, {each.key: each.value for each in metrics})

        def set_terminated(self, run_id: str, status: str) -> None:
            server.hook("close")
            server.runs[run_id].ended.append({"FINISHED": True, "KILLED": False}[status])

    def metric(key: str, value: float, timestamp: int, step: int) -> SimpleNamespace:
        return SimpleNamespace(key=key, value=value, timestamp=timestamp, step=step)

    def param(key: str, value: str) -> SimpleNamespace:
        assert len(value) <= 500
        return SimpleNamespace(key=key, value=value)

    entities = SimpleNamespace(Metric=metric, Param=param)
    yield "mlflow", _module("mlflow", MlflowClient=MlflowClient, entities=entities)
