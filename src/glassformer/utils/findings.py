"""What stands out in the data or the training of a run, as data: from where it is found to where it is shown."""

from __future__ import annotations

from dataclasses import dataclass, field

FEW_EXAMPLES = "few examples"
"""The place of a finding about too few training examples."""


@dataclass(frozen=True)
class Finding:
    """What is the matter, and what to do about it.

    Attributes:
        matter: a sentence without a full stop. remedy: likewise; empty where nothing is known to help.
        place: what it is about, such as "few examples" or "validation loss".
        numbers: what it rests on, by name.
    """

    matter: str
    remedy: str = ""
    place: str = ""
    numbers: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.matter}; {self.remedy}" if self.remedy else self.matter
