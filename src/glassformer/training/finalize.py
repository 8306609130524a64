"""What follows training: the model folder, the one evaluation on the test split, and the report."""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import Any

from torch import nn

from glassformer.report.model_card import model_card
from glassformer.report.run_record import load_run_record
from glassformer.report.sentences import caveats
from glassformer.report.write import write_report
from glassformer.runs.folder import RunFolder
from glassformer.runs.model_folder import replace_card, save_model
from glassformer.runs.records import Evaluation
from glassformer.runs.tensor_file import Weights
from glassformer.tasks import Task
from glassformer.training.context import RunContext
from glassformer.utils.atomic_io import remove_leftovers
from glassformer.utils.formatting import counted

logger = logging.getLogger(__name__)


def model_facts(task: Task) -> dict[str, Any]:
    """What `model/config.json` says: enough to build, load and use the model without its data."""
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
    """Write `model/`: configuration, weights, tokenizer and a card without a score."""
    weights: Weights = dict(model.named_parameters())
    facts = model_facts(task)
    tokenizer = {folder.tokenizer.name: folder.tokenizer.read_bytes()}
    save_model(folder.model, facts, weights, tokenizer, model_card(folder.path, facts))


def finish_run(p: RunContext, model: nn.Module, folder: RunFolder) -> None:
    """Save the model, evaluate it once, tell the result; what an earlier sitting did of these stands.

    The model is on the disk before its evaluation begins, so that a kill there costs no training; afterwards
    its card alone is written again, with the result.
    """
    if not folder.trained:
        save_task_model(p.task, model, folder)
    if not folder.finished:
        evaluate_run(p, model, folder)
    replace_card(folder.model, model_card(folder.path, model_facts(p.task)))
    write_report(folder.path)
    for place in (folder.path, folder.plots):
        remove_leftovers(place)  # of processes that died while they wrote; all that they began is whole by now
    for caveat in caveats(load_run_record(folder.path)):
        logger.warning(caveat)


def evaluate_run(p: RunContext, model: nn.Module, folder: RunFolder) -> Evaluation:
    """Score the test split, where there is one, or the validation split, with full precision; keep all of it."""
    name, split = ("test", p.data.test) if p.data.test is not None else ("valid", p.data.valid)
    logger.info(f"evaluating on {split.source} ({counted(len(split), 'examples')})")
    scores = p.task.evaluate(model, split, p.config.decode, p.data.train)
    predictions = scores.pop("predictions")
    if p.config.data.use_test_as_validation:
        scores["warning"] = "the test split was also used to choose the epoch; this is no clean test result"
    evaluation = Evaluation(p.task.name, name, {"precision": "fp32"} | scores)
    folder.write_evaluation(evaluation, predictions)
    return evaluation
