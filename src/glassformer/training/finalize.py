"""Finish a trained run: model folder, one evaluation on the test split, report; or one batch, learned by heart."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import nn

from glassformer.data.splits import Split, overlap_with_training
from glassformer.errors import CheckpointError, UsageError
from glassformer.models.bf16 import cast_for_inference
from glassformer.nn.dropout import Dropout
from glassformer.report.findings import of_scores
from glassformer.report.run_record import load_run_record
from glassformer.report.write import model_card, write_report
from glassformer.runs.folder import RunFolder
from glassformer.runs.model_folder import CARD, save_model
from glassformer.runs.records import IMPORT, Evaluation, StepMetrics, interval_key
from glassformer.tasks import Task
from glassformer.training.computing import computing_of
from glassformer.training.finetune import load_pretrained
from glassformer.training.loop import Progress, RunContext, TrainState, optimizer_step
from glassformer.training.preparation import initial_model
from glassformer.utils.atomic_io import atomic_write_text, remove_leftovers
from glassformer.utils.formatting import counted

logger = logging.getLogger(__name__)


MAX_STEPS = 500
MEMORISED_LOSS = 0.02
"""Nats per label at which a batch counts as memorised."""
MAX_EXAMPLES = 32


def overfit_batch(context: RunContext, on_step: Callable[[StepMetrics], None] | None = None) -> float:
    """Train on the first batch without dropout, word dropout, label smoothing and weight decay; save nothing.

    Returns:
        The last loss in nats per label; what it means is logged.
    """
    config = context.config.train
    off = ("label_smoothing", "word_mask_prob", "word_unknown_prob", "ema_decay", "adversarial", "weight_decay")
    config = replace(config, **dict.fromkeys(off, 0.0))
    context = context.with_config(replace(context.config, train=config))
    torch.manual_seed(config.seed)
    state = TrainState(context.task.build_model().to(context.device), context.task)
    for module in state.model.modules():
        if isinstance(module, Dropout):
            module.p = 0.0
    index = context.task.epoch_batches(context.train, 0)[0][:MAX_EXAMPLES]
    batch = context.task.make_batch(context.train, index).to(context.device)
    loss = float("inf")
    for step in range(1, MAX_STEPS + 1):
        lr = config.lr * min(1.0, step / 20)
        loss, norm = optimizer_step(state, context, [batch], lr)[:2]
        state.progress.step = step
        if on_step is not None:
            on_step(StepMetrics(step, 0.0, loss, lr, norm, 0.0, 0.0, 0.0, step / MAX_STEPS))
        if loss < MEMORISED_LOSS:
            logger.info(f"{len(index)} examples memorised after {step} steps (loss {loss:.3f}): the model can learn")
            return loss
    result = f"after {MAX_STEPS} steps on {len(index)} examples the loss is still {loss:.3f}"
    logger.warning(f"{result}: look for equal inputs with different answers, an unsuitable learning rate, or a bug")
    return loss


def model_metadata(task: Task) -> dict[str, Any]:
    """Return the content of `model/config.json`, enough to build, load and use the model without its data."""
    config, tokenizer = task.config, task.tokenizer
    return {
        "task": task.name,
        "recipe": config.recipe,
        "label_names": task.label_names,
        **({"decision": decision} if (decision := task.decision.to_json()) else {}),
        "vocab_size": tokenizer.vocab_size,
        "tokenizer_sha256": tokenizer.sha256,
        "text": asdict(config.text),
        "model": asdict(config.model),
        "decode": asdict(config.decode),
        "precision": computing_of(config.train).precision,
    }


def finish_run(context: RunContext, model: nn.Module, folder: RunFolder, progress: Progress) -> None:
    """Save the model, evaluate it once and write the report; what was finished before a resume is skipped.

    The model and a card without scores are saved before its evaluation begins, so that a kill costs no training.
    """
    record, answering = load_run_record(folder.path, context.config), cast_for_inference(model, context.precision)
    if not folder.finished:
        context = replace(context, task=context.task.decided(answering, context.valid))
    if not folder.trained:
        origin = record.data.base.get(IMPORT)  # of a run that began with imported weights: where they came from
        metadata = model_metadata(context.task) | ({} if origin is None else {IMPORT: origin})
        tokenizer = {folder.tokenizer.name: folder.tokenizer.read_bytes()}
        save_model(folder.model, metadata, dict(model.named_parameters()), tokenizer, model_card(record))
    if not folder.finished:
        record = replace(record, evaluation=evaluate_run(context, answering, folder, progress))
    atomic_write_text(folder.model / CARD, model_card(record))
    write_report(record)
    # Processes that died while writing leave temporary files; everything they began is complete by now.
    for directory in (folder.path, *folder.path.glob("*/")):
        remove_leftovers(directory)
    for finding in of_scores(record):
        logger.warning(str(finding))


def _score_probe(context: RunContext, split: Split, folder: RunFolder) -> dict[str, Any] | None:
    """Score what a fine-tuning began with, a head fitted to the vectors of the pretrained encoder as it was."""
    begin = context.config.train.init_from
    if begin is None or context.task.tokenizer.special is None or not context.task.pools:
        return None
    logger.info("comparing with the pretrained model as it was")
    try:
        pretrained = context.pretrained or load_pretrained(begin, folder.read_data().base.get("sha256", ""))
        model, fitted = initial_model(replace(context, pretrained=pretrained.for_task(context.task)), logs=False)
    except (CheckpointError, UsageError) as error:  # it was moved since, and the run is whole without it
        logger.warning(f"not compared with the pretrained model as it was: {error.message}")
        return None
    if not fitted:
        return None
    model = cast_for_inference(model, context.precision)
    scores = context.task.decided(model, context.valid).evaluate(model, split, context.config.decode)
    report = context.task.report
    settings = "the pretrained encoder as it was, and a linear model on its vectors of the training texts"
    wanted = report.headline, interval_key(report.headline), "macro_f1", "rmse", "r2", "pearson", "spearman"
    return {name: scores[name] for name in wanted if name in scores} | {"settings": settings}


def evaluate_run(context: RunContext, model: nn.Module, folder: RunFolder, progress: Progress) -> Evaluation:
    """Score the model as it answers on the test split, or without one on the validation split; write both."""
    data, config = context.data, context.config
    name, split = ("test", data.test) if data.test is not None else ("valid", data.valid)
    logger.info(f"evaluating on {split.source} ({counted(len(split), 'examples')})")
    scores = context.task.evaluate(model, split, config.decode, data.train)
    predictions = scores.pop("predictions")
    if progress.finished == "stopped":
        at = f"the training was stopped at step {progress.step:,}, before its budget was used"
        scores["notes"] = [*scores.get("notes", []), f"{at}; these are the best weights until then"]
    if probe := _score_probe(context, split, folder):
        scores["baselines"]["probe"] = probe
    overlap = overlap_with_training(split, data.train, len(context.train) == 1)
    scores["also_in_training"], scores["compared_with_training"] = overlap
    evaluation = Evaluation(context.task.name, name, {"precision": context.precision} | scores)
    return folder.write_evaluation(evaluation, predictions)
