"""What `explain --learn` prints: the loss of an answer, its gradients, and what steps on it change."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from glassformer.errors import UsageError
from glassformer.utils import console

logger = logging.getLogger(__name__)

N_MATRICES = 12
"""Parameters in the table, those with the largest gradients."""


def check_learning(
    learn: str | None, of_learning: Mapping[str, Any], others: Mapping[str, Any], has_text: bool
) -> None:
    """Refuse flags that do not go with --learn, or need it.

    Args:
        learn: the answer to learn.
        of_learning: the flags that belong to it, by name, with their values.
        others: the flags that do not go with it.
        has_text: whether a text was given.
    """
    if learn is None:
        for name, value in of_learning.items():
            if value is not None:
                raise UsageError(f"--{name} belongs to --learn", 'as in: explain RUN "I loved it" --learn neg')
        return
    if not has_text:
        raise UsageError("--learn needs a text", 'as in: explain RUN "I loved it" --learn neg')
    for name, value in others.items():
        if value is not None:
            raise UsageError(f"--{name} does not go with --learn", f"leave out --{name}")
    if of_learning["keep"] is not None and not of_learning["steps"]:
        raise UsageError("--keep writes the model after steps of learning", "add --steps 1")


def show_learning(explanation: Any, as_json: bool) -> None:
    """Print the loss, the gradient of each parameter, and what the steps taken changed."""
    before, facts = explanation.base or explanation, explanation.learning
    norms = gradient_norms(before)
    if as_json:
        console.write_json({"text": explanation.request.text, "gradients": norms, **asdict(facts)})
        return
    console.write(f"text      {explanation.request.text}")
    console.write(f"answer    {facts.answer}")
    console.write(f"before    loss {facts.loss:.4f}, {_answered(before)}")
    if (learned := facts.learned) is not None:
        console.write(f"after     loss {learned.loss:.4f}, {_answered(explanation)}")
        rows = [
            (str(number), f"{step.loss:.4f}", f"{step.grad_norm:.3g}", f"{step.clipped:.3g}")
            for number, step in enumerate(learned.steps, start=1)
        ]
        rows.append(("after", f"{learned.loss:.4f}", "", ""))
        console.write_table(("step", "loss", "gradient norm", "clipped to"), rows)
        if learned.others:
            console.write("other texts, which were not learned:")
            others = [(o.text, o.answer, f"{o.loss_before:.3f}", f"{o.loss_after:.3f}") for o in learned.others]
            console.write_table(("text", "answer", "loss before", "after"), others)
    largest = sorted(norms.items(), key=lambda one: -one[1])[:N_MATRICES]
    moved = {} if learned is None else learned.moved
    table = [(name, f"{norm:.3g}", f"{moved[name]:.2%}" if name in moved else "") for name, norm in largest]
    console.write_table(("parameter", "gradient norm", "moved by"), table)


def _answered(explanation: Any) -> str:
    """Return what the model answers; of a text that was given, which it would not write itself, its probability."""
    headline, detail = explanation.answer["headline"], explanation.answer["detail"]
    predicts = explanation.is_classifier or explanation.generation.masked is not None
    return f"{headline} ({detail})" if predicts else detail


def gradient_norms(explanation: Any) -> dict[str, float]:
    """Return the norm of the gradient of each parameter."""
    records = explanation.records
    names = [name for name in records.params if f"{name}.grad" in records]
    return {name: float(np.linalg.norm(records.tensor(f"{name}.grad"))) for name in names}
