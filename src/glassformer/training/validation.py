"""When a run validates, what becomes of the result, and which weights are kept in the end."""

from __future__ import annotations

import time
from functools import cached_property

from torch import nn

from glassformer.data.corpus import EncodedCorpus
from glassformer.data.splits import Split
from glassformer.runs.tensor_file import load_weights
from glassformer.training.context import RunContext
from glassformer.training.state import TrainState, Weights, copy_weights, is_better
from glassformer.utils.device import autocast


class Validator:
    """Validates a run's state on the task's own metric and keeps its best weights."""

    def __init__(self, run: RunContext) -> None:
        self.run, self.config = run, run.config.train
        self.task = run.task.among(run.ranks)

    def is_due(self, state: TrainState, epoch: float) -> bool:
        """At every `validate_every` epochs (after `validate_min_steps` updates or more), and at the end."""
        at = state.progress
        if at.finished:
            return True
        too_soon = at.step - at.validated_step < self.config.validate_min_steps
        if epoch + 1e-9 < at.next_validation or too_soon:
            return False
        while at.next_validation <= epoch + 1e-9:
            at.next_validation += self.config.validate_every
        return True

    def __call__(self, state: TrainState) -> dict[str, float]:
        """Validate, remember the best weights, count patience, and account for the time."""
        began, at = time.perf_counter(), state.progress
        weights, run = state.weights(), self.run
        scores = self.score(state.eval_model, weights, run.valid, run.data.valid)
        if self.config.score_train:
            on_train = self.score(state.eval_model, weights, self.whole_train, run.data.train)
            scores |= {f"train_{name}": value for name, value in on_train.items()}
        at.n_validations += 1
        at.validated_step = at.step
        self._keep_if_better(state, weights, scores)
        patience = self.config.patience
        if patience is not None and at.validations_since_best >= patience and not at.finished:
            at.finished = "patience"
        took = time.perf_counter() - began
        at.seconds, at.seconds_validating = at.seconds + took, at.seconds_validating + took
        return scores

    @cached_property
    def whole_train(self) -> EncodedCorpus:
        """The training split with one example per text, as `Task.validate` expects: encoding for training may drop some."""
        train, split = self.run.train, self.run.data.train
        if self.task.schema.columns is None or len(train) == len(split):
            return train
        return self.task.encode(split, training=False)

    def score(self, model: nn.Module, weights: Weights, corpus: EncodedCorpus, split: Split) -> dict[str, float]:
        """The task's scores of a model that is given these weights."""
        load_weights(model, weights)
        with autocast(self.run.device, self.run.precision):
            scores = self.task.validate(model, corpus, split)
        return dict(zip(scores, self.run.ranks.of_first(*scores.values()), strict=True))

    def _keep_if_better(self, state: TrainState, weights: Weights, scores: dict[str, float]) -> None:
        """The metric decides; between equal ones the loss does, for a hard task begins with a metric of 0."""
        at, metric, loss = state.progress, scores[self.run.task.metric], scores["loss"]
        tied = metric == at.best_metric and is_better(loss, at.best_loss, higher_is_better=False)
        if tied or is_better(metric, at.best_metric, self.run.task.higher_is_better):
            at.best_metric, at.best_loss, at.best_step, at.validations_since_best = metric, loss, at.step, 0
            state.best = copy_weights(weights)
        else:
            at.validations_since_best += 1
