"""How the outputs of a trained classifier or regressor become answers; stored with its weights.

No torch is imported here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from glassformer.errors import CheckpointError
from glassformer.utils.safe_read import dataclass_from_json

THRESHOLD = 0.5
"""From this probability on a label is answered where no threshold was chosen."""
COLDEST, HOTTEST = 0.1, 10.0
"""Bounds of a temperature."""
LEAST = 1e-16
"""What stands for a probability of 0, which has no logarithm: half of the spacing of floats below 1."""


@dataclass(frozen=True)
class Decision:
    """What is chosen on the validation split and applied to the probabilities; or the scale of numbers.

    Attributes:
        thresholds: of several labels the probability of each from which it is answered; None for classes, of which the
            most probable is answered.
        temperature: what logits are divided by where calibrated probabilities are requested (Guo et al. 2017, 4.2);
            None where none was fitted.
        mean, sd: mean and standard deviation of the training numbers, in units of which a regressor computes; None for
            classes.
    """

    thresholds: list[float] | None = None
    temperature: float | None = None
    mean: float | None = None
    sd: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the fields that are set."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, value: Any, labels: Sequence[str] | None, where: Path | str) -> Decision:
        """Read what `to_json` returned; raise CheckpointError for anything else."""
        decision = dataclass_from_json(cls, value or {}, where)
        found = decision.thresholds
        if found is not None and (len(found) != len(labels or ()) or not all(0 <= t <= 1 for t in found)):
            raise CheckpointError(f"{where}: expected a threshold from 0 to 1 for each of {len(labels or ())} labels")
        if decision.temperature is not None and not COLDEST <= decision.temperature <= HOTTEST:
            raise CheckpointError(f"{where}: expected a temperature from {COLDEST} to {HOTTEST}")
        mean, sd = decision.scale
        if (decision.mean is None) != (decision.sd is None) or not (math.isfinite(mean) and 0 < sd < math.inf):
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

    def calibrated(self, probabilities: Float[np.ndarray, "... C"], several: bool) -> Float[np.ndarray, "... C"]:
        """Return probabilities at the temperature: of classes, or of several labels, each for itself."""
        if self.temperature is None:
            return probabilities
        if several:
            return at_temperature(yes_and_no(probabilities), self.temperature)[..., 1]
        return at_temperature(probabilities, self.temperature)


def yes_and_no(probabilities: Float[np.ndarray, "..."]) -> Float[np.ndarray, "... 2"]:
    """Return probabilities of labels as those of two classes: a text does not have the label, or has it."""
    return np.stack([1 - probabilities, probabilities], axis=-1)


def at_temperature(probabilities: Float[np.ndarray, "... C"], temperature: float) -> Float[np.ndarray, "... C"]:
    """Return the softmax of the logarithms of probabilities divided by a temperature.

    Those of an ensemble are the mean of its members', so that it is the ensemble that is calibrated.
    """
    z = np.log(np.maximum(probabilities, LEAST)) / temperature
    p = np.exp(z - z.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


DIGITS, EXACT = 6, 15
"""Significant digits of a number in a line; one whose whole part has as many, up to 15, has two behind the point."""


def number_text(value: float) -> str:
    """Write a number for a line or a page, to `DIGITS` significant digits, and never less than its whole part."""
    whole = len(f"{abs(value):.0f}") if math.isfinite(value) else 0
    return f"{value:.{whole + 2 if DIGITS <= whole <= EXACT else DIGITS}g}"


def written_number(value: float) -> str:
    """Write a number as `number_text` does, with a minus sign in the place of a hyphen, as an explanation has it."""
    return number_text(value).replace("-", "−")
