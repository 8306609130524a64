"""The tasks there are, by name; those of an encoder are data in `heads.py`, each other one has a module of its own."""

from __future__ import annotations

from glassformer.config.recipes import nearest
from glassformer.errors import UsageError
from glassformer.tasks import encoder as encoder
from glassformer.tasks import lm as lm
from glassformer.tasks import pretrain as pretrain
from glassformer.tasks import translate as translate
from glassformer.tasks.base import TASKS, Task, register

__all__ = ["TASKS", "Task", "register", "task_class"]


def task_class(name: str) -> type[Task]:
    """Return the task of that name.

    Raises:
        UsageError: there is none, with the nearest name.
    """
    if name not in TASKS:
        raise UsageError(f"there is no task {name!r}", f"{nearest(name, TASKS)}there are: {', '.join(TASKS)}")
    return TASKS[name]


def task_of_kind(kind: str) -> str:
    """Return the name of the task whose models are of a kind, such as "translator" (`Task.explain_as`)."""
    return next(name for name, task in TASKS.items() if task.explain_as == kind)
