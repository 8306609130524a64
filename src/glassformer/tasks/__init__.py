"""The tasks there are, by name; one module each says everything in which it differs from the others."""

from __future__ import annotations

from glassformer.config.recipes import TASK_NAMES, nearest
from glassformer.errors import UsageError
from glassformer.tasks.base import Task
from glassformer.tasks.classify import Classify
from glassformer.tasks.lm import LanguageModelling
from glassformer.tasks.pretrain import Pretrain
from glassformer.tasks.translate import Translate

TASKS: dict[str, type[Task]] = {task.name: task for task in (Classify, Translate, LanguageModelling, Pretrain)}


def register(task: type[Task]) -> type[Task]:
    """Make a task known by its name, to recipes and run folders too; usable as a decorator."""
    TASKS[task.name] = task
    if task.name not in TASK_NAMES:
        TASK_NAMES.append(task.name)
    return task


def task_class(name: str) -> type[Task]:
    """Return the task of that name.

    Raises:
        UsageError: there is none, with the nearest name.
    """
    if name not in TASKS:
        message = f"there is no task {name!r}" if name else "the configuration names no task"
        raise UsageError(message, f"{nearest(name, TASKS)}there are: {', '.join(TASKS)}")
    return TASKS[name]


__all__ = ["TASKS", "Task", "register", "task_class"]
