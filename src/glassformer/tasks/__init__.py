"""The tasks there are, by name; one file each says everything in which it differs from the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TypeVar

from glassformer.config.validation import TASK_NAMES, nearest
from glassformer.errors import UsageError
from glassformer.tasks.base import Task


class _Tasks(Mapping[str, type[Task]]):
    """The tasks by name. The file of one, which registers it, is imported when it is asked for."""

    def __init__(self) -> None:
        self.registered: dict[str, type[Task]] = {}

    def __getitem__(self, name: str) -> type[Task]:
        if name not in self.registered and name in TASK_NAMES:
            import_module(f"{__name__}.{name if name in ('translate', 'lm', 'pretrain') else 'encoder'}")
        return self.registered[name]

    def __iter__(self) -> Iterator[str]:
        return iter(TASK_NAMES)

    def __len__(self) -> int:
        return len(TASK_NAMES)


TASKS = _Tasks()
Kind = TypeVar("Kind", bound=type[Task])


def register(task: Kind) -> Kind:
    """Make a task known by its name, to recipes and run folders too; usable as a decorator."""
    TASKS.registered[task.name] = task
    if task.name not in TASK_NAMES:
        TASK_NAMES.append(task.name)
    return task


def task_class(name: str) -> type[Task]:
    """Return the task of that name.

    Raises:
        UsageError: there is none, with the nearest name.
    """
    if name not in TASKS:
        raise UsageError(f"there is no task {name!r}", f"{nearest(name, TASKS)}there are: {', '.join(TASKS)}")
    return TASKS[name]


__all__ = ["TASKS", "Task", "register", "task_class"]


def task_of_kind(kind: str) -> str:
    """Return the name of the task whose models are of a kind, such as "translator" (`Task.explain_as`)."""
    return next(name for name, task in TASKS.items() if task.explain_as == kind)
