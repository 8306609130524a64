"""Validation while training: when it is due, its scores, the best weights and early stopping."""

from __future__ import annotations

import logging
import math
import time
from dataclasses import replace
from functools import cached_property

from glassformer.data.corpus import EncodedCorpus
from glassformer.data.splits import Split
from glassformer.runs.model_folder import load_weights
from glassformer.runs.records import StepMetrics
from glassformer.training.state import RunContext, TrainState, copy_weights
from glassformer.utils.device import autocast
from glassformer.utils.formatting import counted

logger = logging.getLogger(__name__)


class Validation:
    """A callback that validates every `validate_every` epochs, `validate_min_steps` apart, and at the end.

    It keeps the weights that are the best so far, and ends a run that has lost patience.
    """

    def __init__(self, state: TrainState, context: RunContext) -> None:
        self.state, self.context, self.config = state, context, context.config.train

    def __call__(self, metrics: StepMetrics) -> StepMetrics:
        progress, config = self.state.progress, self.config
        too_soon = progress.step - progress.validated_step < config.validate_min_steps
        if not progress.finished and (metrics.epoch + 1e-9 < progress.next_validation or too_soon):
            return metrics
        began, data = time.perf_counter(), self.context.data
        if not progress.finished:
            every = config.validate_every
            progress.next_validation = every * (math.floor((metrics.epoch + 1e-9) / every) + 1)
        progress.validated_step = progress.step
        scores = validation_scores(self.context, self.state, self.context.valid, data.valid)
        if config.score_train:
            of_train = validation_scores(self.context, self.state, self.whole_train, data.train)
            scores |= {f"train_{name}": value for name, value in of_train.items()}
        self._keep_if_better(scores)
        if config.patience is not None and progress.validations_since_best >= config.patience and not progress.finished:
            progress.finished = "patience"
            if self.context.group.is_main:
                without = counted(config.patience, "validations")
                logger.info(f"ends at step {progress.step:,}: {without} without a better one")
        progress.seconds += time.perf_counter() - began
        return replace(metrics, valid=scores, best=progress.best_step == progress.step, seconds=progress.seconds)

    @cached_property
    def whole_train(self) -> EncodedCorpus:
        """Return the training split with one example per text: encoding for training may skip some."""
        context, split = self.context, self.context.data.train
        if context.task.schema.columns is None or len(context.train) == len(split):
            return context.train
        return context.task.encode(split, training=False)

    def _keep_if_better(self, scores: dict[str, float]) -> None:
        """Keep the weights if the metric is better, or equal, as early ones often are at 0, and the loss is lower."""
        progress, task = self.state.progress, self.context.task
        metric, loss, sign = scores[task.metric], scores["loss"], 1 if task.higher_is_better else -1
        if progress.best_metric is None or progress.best_loss is None:
            is_better = not math.isnan(metric)
        else:
            is_better = (sign * metric, -loss) > (sign * progress.best_metric, -progress.best_loss)
        if is_better:
            progress.keep(metric, loss)
            self.state.best = copy_weights(self.state.weights())
        else:
            progress.validations_since_best += 1


def validation_scores(context: RunContext, state: TrainState, corpus: EncodedCorpus, split: Split) -> dict[str, float]:
    """Return the task's scores of the weights to validate, those of the main process."""
    load_weights(state.eval_model, state.weights())
    with autocast(context.device, context.precision):
        scores = context.task.validate(state.eval_model, corpus, split, context.group)
    return dict(zip(scores, context.group.broadcast(*scores.values()), strict=True))
