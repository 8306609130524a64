"""How the outputs of a trained model become answers: what is stored with its weights, and what a caller requests.

No torch is imported here.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from jaxtyping import Bool, Float
from msgspec import Meta

from glassformer.config.recipes import convert, limited_kinds
from glassformer.errors import CheckpointError, UsageError
from glassformer.utils.safe_read import from_json

THRESHOLD = 0.5
"""From this probability on a label is answered where no threshold was chosen."""
COLDEST, HOTTEST = 0.1, 10.0
"""Bounds of a temperature."""
LARGEST = sys.float_info.max
LEAST = 1e-16
"""What stands for a probability of 0, which has no logarithm: half of the spacing of floats below 1."""


@dataclass(frozen=True)
class Decision:
    """What is chosen on the validation split and applied to the probabilities; or the scale of numbers.

    Attributes:
        thresholds: of several labels the probability of each from which it is answered; None for classes, of which the
            most probable is answered.
        temperature: what the logits of classes are divided by where calibrated probabilities are requested (Guo et al.
            2017, 4.2); None where none was fitted.
        mean, sd: mean and standard deviation of the training numbers, in units of which a regressor computes; None for
            classes.
    """

    thresholds: list[Annotated[float, Meta(ge=0, le=1)]] | None = None
    temperature: Annotated[float, Meta(ge=COLDEST, le=HOTTEST)] | None = None
    mean: Annotated[float, Meta(ge=-LARGEST, le=LARGEST)] | None = None
    sd: Annotated[float, Meta(gt=0, le=LARGEST)] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the fields that are set."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, value: Any, labels: Sequence[str] | None, where: Path | str) -> Decision:
        """Read what `to_json` returned; raise CheckpointError for anything else."""
        decision = from_json(cls, value or {}, where)
        if decision.thresholds is not None and len(decision.thresholds) != len(labels or ()):
            raise CheckpointError(f"{where}: expected a threshold from 0 to 1 for each of {len(labels or ())} labels")
        if (decision.mean is None) != (decision.sd is None):
            raise CheckpointError(f"{where}: expected a mean, and a standard deviation above 0, of the numbers")
        return decision

    @property
    def scale(self) -> tuple[float, float]:
        """Return mean and standard deviation of the training numbers; 0 and 1 where there are none."""
        return (0.0 if self.mean is None else self.mean), (1.0 if self.sd is None else self.sd)

    def numbers(self, outputs: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """Return the outputs of a regressor in the units of its training numbers."""
        return self.scale[0] + self.scale[1] * np.asarray(outputs, np.float64)

    def standardised(self, numbers: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """Return what a regressor should output for numbers: their distance from the mean in standard deviations."""
        return (np.asarray(numbers, np.float64) - self.scale[0]) / self.scale[1]

    def thresholds_of(self, labels: Sequence[str]) -> list[float]:
        """Return the threshold of each of several labels."""
        return [THRESHOLD] * len(labels) if self.thresholds is None else self.thresholds

    def answered(self, probabilities: Float[np.ndarray, "... L"]) -> Bool[np.ndarray, "... L"]:
        """Return which of several labels are answered, by their probabilities."""
        return probabilities >= np.array(THRESHOLD if self.thresholds is None else self.thresholds)

    def calibrated(self, probabilities: Float[np.ndarray, "... C"]) -> Float[np.ndarray, "... C"]:
        """Return probabilities of classes at the temperature."""
        return probabilities if self.temperature is None else at_temperature(probabilities, self.temperature)


def at_temperature(probabilities: Float[np.ndarray, "... C"], temperature: float) -> Float[np.ndarray, "... C"]:
    """Return the softmax of the logarithms of probabilities divided by a temperature.

    Those of an ensemble are the mean of its members', so that it is the ensemble that is calibrated.
    """
    z = np.log(np.maximum(probabilities, LEAST)) / temperature
    p = np.exp(z - z.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


KINDS = ("classifier", "multilabel_classifier")
"""Kinds of models, as a task names its own, whose answers have probabilities of labels."""
RULES = ("calibrated", "min_probability")
"""Options of `predict` for them, which are not of decoding."""


@dataclass(frozen=True)
class AnswerRule:
    """What a caller may request of the answers of a classifier; without it they pass unchanged.

    Attributes:
        decision: what was chosen on the validation split.
        calibrated: whether probabilities are those at the temperature of the decision.
        min_probability: below this probability a text has no class, and a label is not answered.
    """

    decision: Decision
    calibrated: bool = False
    min_probability: Annotated[float, Meta(ge=0, le=1)] | None = None

    @classmethod
    def of(cls, kind: str | None, decision: Decision, options: Mapping[str, Any]) -> tuple[AnswerRule, dict[str, Any]]:
        """Return the rule that some of the options name, of a model of some kind, and the other options.

        Raises:
            UsageError: the model is of another kind, has no temperature, or a value is out of its interval.
        """
        types = limited_kinds(cls)
        given = {name: convert(options[name], types[name], name, "options") for name in RULES if name in options}
        if kind not in KINDS and (name := next((name for name, value in given.items() if value), None)):
            raise UsageError(f"{name} is for classifiers, whose answers have probabilities", "leave it out")
        if given.get("calibrated") and decision.temperature is None:
            hint = "" if kind == KINDS[1] else "train with 50 validation texts or more, and load one run; or "
            message = "this model has no temperature that was fitted to its probabilities"
            raise UsageError(message, f"{hint}leave out --calibrated")
        return cls(decision, **given), {name: value for name, value in options.items() if name not in RULES}

    def apply(self, answers: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
        """Return the answers under this rule, one by one; as they came where it changes nothing."""
        return map(self._applied, answers) if self.calibrated or self.min_probability is not None else answers

    def _applied(self, answer: dict[str, Any]) -> dict[str, Any]:
        shares, least = answer["probabilities"], self.min_probability or 0.0
        if self.calibrated:
            found = self.decision.calibrated(np.array([*shares.values()]))
            shares = dict(zip(shares, found.tolist(), strict=True))
        if (label := answer.get("label")) is None:
            kept = [label for label in answer["labels"] if shares[label] >= least]
            return answer | {"labels": kept, "probabilities": shares}
        # The class that was most probable stays it: a temperature keeps the order, but rounding may make two equal.
        kept = label if shares[label] >= least else None
        return answer | {"label": kept, "probability": shares[label], "probabilities": shares}


DIGITS, EXACT = 6, 15
"""Significant digits of a number in a line; one whose whole part has as many, up to 15, has two behind the point."""


def number_text(value: float) -> str:
    """Write a number for a line or a page, to `DIGITS` significant digits, and never less than its whole part."""
    whole = len(f"{abs(value):.0f}") if math.isfinite(value) else 0
    return f"{value:.{whole + 2 if DIGITS <= whole <= EXACT else DIGITS}g}"


def written_number(value: float) -> str:
    """Write a number as `number_text` does, with a minus sign in the place of a hyphen, as an explanation has it."""
    return number_text(value).replace("-", "−")
