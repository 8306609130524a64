"""What a field of a section may say of itself: its interval, and what chooses whether a section counts."""

from __future__ import annotations

from dataclasses import field, fields
from typing import Any


def number(default: Any, interval: str) -> Any:
    """A field for a number in an interval, written as in mathematics; a None that is allowed is exempt."""
    return field(default=default, metadata={"interval": interval})


BY_DATASET, BY_OPTIMIZER = {"chooser": "dataset"}, {"chooser": "optimizer"}
"""What marks a section that counts only while the field named here, beside it, says its name."""


def idle(section: Any) -> list[str]:
    """Names of the sections inside this one that do not count, since something else is chosen."""
    own = [f for f in fields(section) if "chooser" in f.metadata]
    return [f.name for f in own if getattr(section, f.metadata["chooser"]) != f.name]
