"""Answers by how sure a model is: calibrated, none below a probability, the least sure first. No torch here."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassformer.config.validation import convert
from glassformer.errors import UsageError
from glassformer.text.decision import Decision

RULES: dict[str, tuple[Any, dict[str, str]]] = {
    "calibrated": (bool, {}),
    "min_probability": (float | None, {"interval": "[0, 1]"}),
    "token_probabilities": (bool, {}),
}
"""Options of `predict` that are not of decoding: the type of each, and its bounds."""
KINDS = ("classifier", "multilabel_classifier")
"""Kinds of models, `Task.explain_as`, whose answers have probabilities of labels."""


@dataclass(frozen=True)
class AnswerRule:
    """What a caller may request of the answers of a classifier or a translator; without it they pass unchanged.

    Attributes:
        kind: the kind of model, `Task.explain_as`.
        decision: what was chosen on the validation split.
        calibrated: whether probabilities are those at the temperature of the decision.
        min_probability: below this probability a text has no class, and a label is not answered.
        token_probabilities: whether translations have the probabilities of their tokens.
    """

    kind: str | None
    decision: Decision
    calibrated: bool = False
    min_probability: float | None = None
    token_probabilities: bool = False

    @classmethod
    def of(cls, kind: str | None, decision: Decision, options: Mapping[str, Any]) -> tuple[AnswerRule, dict[str, Any]]:
        """Return the rule that some of the options name, and the other options.

        Raises:
            UsageError: the model is of another kind, has no temperature, or a value is out of its interval.
        """
        given = {name: convert(options[name], *RULES[name], name, "options") for name in RULES if name in options}
        rule = cls(kind, decision, **given)
        if rule.token_probabilities and kind != "translator":
            raise UsageError("token_probabilities is for translators", "leave it out")
        if kind not in KINDS and (rule.calibrated or rule.min_probability is not None):
            option = "calibrated" if rule.calibrated else "min_probability"
            raise UsageError(f"{option} is for classifiers, whose answers have probabilities", "leave it out")
        if rule.calibrated and decision.temperature is None:
            hint = "train with 50 validation texts or more, and load one run; or leave out calibrated"
            raise UsageError("this model has no temperature that was fitted to its probabilities", hint)
        return rule, {name: value for name, value in options.items() if name not in RULES}

    @property
    def of_task(self) -> dict[str, bool]:
        """Return the arguments that the task's `predict` takes besides those of every task."""
        return {"token_probabilities": True} if self.token_probabilities else {}

    def apply(self, answers: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
        """Return the answers under this rule, one by one; as they came where it changes nothing."""
        return map(self._applied, answers) if self.calibrated or self.min_probability is not None else answers

    def _applied(self, answer: dict[str, Any]) -> dict[str, Any]:
        shares, least = answer["probabilities"], self.min_probability or 0.0
        if self.calibrated:
            found = self.decision.calibrated(np.array([*shares.values()]), several="labels" in answer)
            shares = dict(zip(shares, found.tolist(), strict=True))
        if "labels" in answer:
            kept = [label for label in answer["labels"] if shares[label] >= least]
            return answer | {"labels": kept, "probabilities": shares}
        # The class that was most probable stays it: a temperature keeps the order, but rounding may make two equal.
        best = shares[answer["label"]]
        label = answer["label"] if best >= least else None
        return answer | {"label": label, "probability": best, "probabilities": shares}

    def sureness(self, answer: dict[str, Any]) -> float:
        """Return how sure an answer under this rule is.

        Of classes, the probability of the best; of several labels, the smallest distance of a probability from its
        threshold; of a translation, the mean log-probability of its tokens.
        """
        if "labels" not in answer:
            return float(answer["mean_log_probability" if self.kind == "translator" else "probability"])
        thresholds = np.array(self.decision.thresholds_of([*answer["probabilities"]]))
        if self.calibrated:
            thresholds = self.decision.calibrated(thresholds, several=True)
        return float(np.abs(np.array([*answer["probabilities"].values()]) - thresholds).min())

    def least_sure(self, answers: Iterable[dict[str, Any]], n: int) -> list[dict[str, Any]]:
        """Return the n answers that are least sure, the least first and equal ones in order, with "row" from 1.

        Memory is that of n answers. The answers are those that `apply` returned.

        Raises:
            UsageError: n is none, or the model is no classifier and no translator.
        """
        if self.kind not in (*KINDS, "translator"):
            message = "most_uncertain is for classifiers and translators, whose answers have probabilities"
            raise UsageError(message, "leave it out")
        n = convert(n, int, {"interval": "[1, inf)"}, "most_uncertain", "options")
        ranked = ((self.sureness(answer), row, answer) for row, answer in enumerate(answers, start=1))
        return [{"row": row} | answer for _, row, answer in heapq.nsmallest(n, ranked)]
