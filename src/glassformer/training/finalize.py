"""Finish a trained run: model folder, one evaluation on the test split, report."""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import Any

from torch import nn

from glassformer.data.overlap import overlap_with_training
from glassformer.report.model_card import model_card
from glassformer.report.run_record import load_run_record
from glassformer.report.sentences import caveats
from glassformer.report.write import write_report
from glassformer.runs.folder import RunFolder
from glassformer.runs.model_folder import replace_card, save_model
from glassformer.runs.records import Evaluation
from glassformer.tasks import Task
from glassformer.training.context import RunContext
from glassformer.utils.atomic_io import remove_leftovers
from glassformer.utils.formatting import counted

logger = logging.getLogger(__name__)


def model_metadata(task: Task) -> dict[str, Any]:
    """Return the content of `model/config.json`, enough to build, load and use the model without its data."""
    config, tokenizer = task.config, task.tokenizer
    return {
        "task": task.name,
        "recipe": config.recipe,
        "label_names": task.label_names,
        "vocab_size": tokenizer.vocab_size,
        "tokenizer_sha256": tokenizer.sha256,
        "text": asdict(config.text),
        "model": asdict(config.model),
        "decode": asdict(config.decode),
        "precision": config.train.precision,
    }


def save_task_model(task: Task, model: nn.Module, folder: RunFolder) -> None:
    """Write `model/`: configuration, weights and tokenizer; its card needs the scores."""
    tokenizer = {folder.tokenizer.name: folder.tokenizer.read_bytes()}
    save_model(folder.model, model_metadata(task), dict(model.named_parameters()), tokenizer)


def finish_run(context: RunContext, model: nn.Module, folder: RunFolder) -> None:
    """Save the model, evaluate it once and write the report; steps that were finished before a resume are skipped.

    The model is saved before its evaluation begins, so that a kill costs no training; its card follows.
    """
    if not folder.trained:
        save_task_model(context.task, model, folder)
    if not folder.finished:
        evaluate_run(context, model, folder)
    record = load_run_record(folder.path)
    replace_card(folder.model, model_card(record))
    write_report(record)
    # Processes that died while writing leave temporary files; everything they began is complete by now.
    for directory in (folder.path, folder.plots):
        remove_leftovers(directory)
    for caveat in caveats(record):
        logger.warning(caveat)


def evaluate_run(context: RunContext, model: nn.Module, folder: RunFolder) -> Evaluation:
    """Score the test split, or without one the validation split, in fp32; write scores and predictions."""
    data, config = context.data, context.config
    name, split = ("test", data.test) if data.test is not None else ("valid", data.valid)
    logger.info(f"evaluating on {split.source} ({counted(len(split), 'examples')})")
    scores = context.task.evaluate(model, split, config.decode, data.train)
    predictions = scores.pop("predictions")
    if config.data.use_test_as_validation:
        scores["warning"] = "the test split was also used to choose the epoch; this is no clean test result"
    if (overlap := overlap_with_training(split, data.train, context.task.running_text)) is not None:
        scores["also_in_training"], scores["compared_with_training"] = overlap
    evaluation = Evaluation(context.task.name, name, {"precision": "fp32"} | scores)
    folder.write_evaluation(evaluation, predictions)
    return evaluation
