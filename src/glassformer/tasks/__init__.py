"""The three tasks; one file each says everything in which it differs from the others."""

from __future__ import annotations

from glassformer.config import TaskName
from glassformer.tasks.base import Task
from glassformer.tasks.classify.task import Classify
from glassformer.tasks.lm.task import LanguageModelling
from glassformer.tasks.translate.task import Translate

TASKS: dict[TaskName, type[Task]] = {"classify": Classify, "translate": Translate, "lm": LanguageModelling}

__all__ = ["TASKS", "Classify", "LanguageModelling", "Task", "Translate"]
