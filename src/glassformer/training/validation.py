"""When a run validates, what becomes of the result, and which weights are kept in the end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from glassformer.config import TrainConfig
from glassformer.data.corpus import EncodedCorpus
from glassformer.data.splits import Split
from glassformer.runtime import Precision, autocast
from glassformer.tasks.base import Task
from glassformer.training.state import TrainState, Weights, average, copy_weights, is_better, load_weights

MOST_OF_A_BUDGET = 0.15
"""Under a wall-clock budget, validations beyond this share of the time are put off."""


class Validator:
    """Validates a state on the task's own metric and keeps its best weights.

    Args:
        task: the task, whose `validate` gives {"loss": nats per label, metric: value}.
        corpus, split: the encoded validation split, and its texts.
        config: what says how often, and how patient.
        device, precision: as in training.
        training: the training split likewise, where the configuration wants it scored too.
    """

    def __init__(
        self, task: Task, corpus: EncodedCorpus, split: Split, config: TrainConfig,
        device: torch.device, precision: Precision, training: tuple[EncodedCorpus, Split] | None = None,
    ) -> None:  # fmt: skip
        self.task, self.corpus, self.split, self.config = task, corpus, split, config
        self.device, self.training = device, training if config.score_train else None
        self.precision: Precision = precision

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
        too_dear = at.seconds_validating > MOST_OF_A_BUDGET * at.seconds
        return not (self.config.minutes is not None and too_dear)

    def __call__(self, state: TrainState) -> dict[str, float]:
        """Validate, remember the best weights, count patience, and account for the time."""
        began, at = time.perf_counter(), state.progress
        weights = state.weights()
        scores = self.score(state.model, weights, self.corpus, self.split)
        if self.training is not None:
            on_train = self.score(state.model, weights, *self.training)
            scores |= {f"train_{name}": value for name, value in on_train.items()}
        state.recent.append(copy_weights(weights))
        at.n_validations += 1
        at.validated_step = at.step
        self._keep_if_better(state, weights, scores)
        if at.finished and len(state.recent) > 1:
            mean = average(list(state.recent))
            averaged = self.score(state.model, mean, self.corpus, self.split)
            scores |= {f"averaged_{name}": value for name, value in averaged.items()}
            self._keep_if_better(state, mean, averaged)
        patience = self.config.patience
        if patience is not None and at.validations_since_best >= patience and not at.finished:
            at.finished = "patience"
        took = time.perf_counter() - began
        at.seconds += took
        at.seconds_validating += took
        at.longest_validation = max(at.longest_validation, took)
        return scores

    def score(
        self, model: nn.Module, weights: Weights, corpus: EncodedCorpus, split: Split
    ) -> dict[str, float]:
        """The task's scores with these weights in place of the model's."""
        with borrowed(model, weights), torch.inference_mode(), autocast(self.device, self.precision):
            return self.task.validate(model, corpus, split, self.device)

    def _keep_if_better(self, state: TrainState, weights: Weights, scores: dict[str, float]) -> None:
        """The metric decides; between equal ones the loss does, for a hard task begins with a metric of 0."""
        at, metric, loss = state.progress, scores[self.task.metric], scores["loss"]
        tied = metric == at.best_metric and is_better(loss, at.best_loss, higher_is_better=False)
        if tied or is_better(metric, at.best_metric, self.task.higher_is_better):
            at.best_metric, at.best_loss, at.best_step, at.validations_since_best = metric, loss, at.step, 0
            state.best = copy_weights(weights)
        else:
            at.validations_since_best += 1


@contextmanager
def borrowed(model: nn.Module, weights: Weights) -> Iterator[None]:
    """The model in evaluation mode with other weights, its own put back afterwards."""
    own = copy_weights(dict(model.named_parameters()))
    was_training = model.training
    try:
        load_weights(model, weights)
        model.eval()
        yield
    finally:
        load_weights(model, own)
        model.train(was_training)
