"""Validation while training: when it is due, its scores, the best weights and early stopping."""

from __future__ import annotations

import logging
import math
import time
from functools import cached_property

from torch import nn

from glassformer.data.corpus import EncodedCorpus
from glassformer.data.splits import Split
from glassformer.runs.model_folder import load_weights
from glassformer.training.state import RunContext, TrainState, Weights, copy_weights, is_better
from glassformer.utils.device import autocast
from glassformer.utils.formatting import counted

logger = logging.getLogger(__name__)


class Validator:
    """Validation of a run's state on the task's metric; keeps the best weights and counts patience."""

    def __init__(self, context: RunContext) -> None:
        self.context, self.config = context, context.config.train
        self.task = context.task

    def is_due(self, state: TrainState, epoch: float) -> bool:
        """Return whether to validate: every `validate_every` epochs, `validate_min_steps` apart, and at the end."""
        progress = state.progress
        too_soon = progress.step - progress.validated_step < self.config.validate_min_steps
        return bool(progress.finished) or (epoch + 1e-9 >= progress.next_validation and not too_soon)

    def __call__(self, state: TrainState, epoch: float) -> dict[str, float]:
        """Validate, keep the weights if they are the best, count patience and time; return the scores."""
        began, progress, context = time.perf_counter(), state.progress, self.context
        if not progress.finished:
            every = max(self.config.validate_every, 1e-9)
            progress.next_validation = every * (math.floor((epoch + 1e-9) / every) + 1)
        weights = state.weights()
        scores = self.score(state.eval_model, weights, context.valid, context.data.valid)
        if self.config.score_train:
            train_scores = self.score(state.eval_model, weights, self.whole_train, context.data.train)
            scores |= {f"train_{name}": value for name, value in train_scores.items()}
        progress.n_validations += 1
        progress.validated_step = progress.step
        self._keep_if_better(state, weights, scores)
        patience = self.config.patience
        if patience is not None and progress.validations_since_best >= patience and not progress.finished:
            progress.finished = "patience"
            if context.group.is_main:
                logger.info(f"ends at step {progress.step:,}: {counted(patience, 'validations')} without a better one")
        seconds = time.perf_counter() - began
        progress.seconds += seconds
        progress.seconds_validating += seconds
        return scores

    @cached_property
    def whole_train(self) -> EncodedCorpus:
        """Return the training split with one example per text: encoding for training may skip some."""
        train, split = self.context.train, self.context.data.train
        if self.task.schema.columns is None or len(train) == len(split):
            return train
        return self.task.encode(split, training=False)

    def score(self, model: nn.Module, weights: Weights, corpus: EncodedCorpus, split: Split) -> dict[str, float]:
        """Return the task's scores of a model with these weights; those of the main process."""
        load_weights(model, weights)
        with autocast(self.context.device, self.context.precision):
            scores = self.task.validate(model, corpus, split, self.context.group)
        return dict(zip(scores, self.context.group.broadcast(*scores.values()), strict=True))

    def _keep_if_better(self, state: TrainState, weights: Weights, scores: dict[str, float]) -> None:
        """Keep the weights if the metric is better.

        Between equal metrics the loss decides, as early ones are often 0.
        """
        progress, task = state.progress, self.context.task
        metric, loss = scores[task.metric], scores["loss"]
        is_tie = metric == progress.best_metric and is_better(loss, progress.best_loss, higher_is_better=False)
        if is_tie or is_better(metric, progress.best_metric, task.higher_is_better):
            progress.best_metric, progress.best_loss = metric, loss
            progress.best_step, progress.validations_since_best = progress.step, 0
            state.best = copy_weights(weights)
        else:
            progress.validations_since_best += 1
