"""What `explain --learn` prints: the loss of an answer, its gradients, and what steps on it change."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from glassformer.errors import UsageError
from glassformer.utils import console
from glassformer.utils.formatting import counted, number, shortened

logger = logging.getLogger(__name__)

N_MATRICES, MAX_CHARS = 12, 80
"""Parameters in the table, those with the largest gradients; and characters of an answer."""


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
    from glassformer.explain.request import MAX_STEPS

    if of_learning["steps"] is not None and not 1 <= of_learning["steps"] <= MAX_STEPS:
        message = f"--steps takes 1 to {MAX_STEPS}, and {of_learning['steps']} came"
        raise UsageError(message, "continue from the model that --keep writes")
    if of_learning["keep"] is not None and not of_learning["steps"]:
        raise UsageError("--keep writes the model after steps of learning", "add --steps 1")


def show_learning(explanation: Any, as_json: bool) -> None:
    """Print the loss, the gradient of each parameter, and what the steps taken changed."""
    before, facts = explanation.base or explanation, explanation.learning
    norms = gradient_norms(before)
    if as_json:
        about = {"text": explanation.request.text, "warnings": explanation.warnings, "gradients": norms}
        console.write_json({**about, **asdict(facts)})
        return
    for warning in explanation.warnings:
        logger.warning(warning)
    console.write(f"text      {explanation.request.text}")
    console.write(f"answer    {facts.answer}")
    smoothing = f" with label smoothing {facts.smoothing:g}" if facts.smoothing else ""
    console.write(f"before    loss {facts.loss:.4f}{smoothing}, {_answered(before)}")
    learned = facts.learned
    if learned is not None:
        console.write(f"after     loss {learned.loss:.4f}{smoothing}, {_answered(explanation)}")
        n = counted(len(learned.steps), "steps")
        if facts.target is None:
            what = f"{'every' if learned.right else 'not every'} label is the most probable one"
        else:
            what = (
                f"the number is {'' if learned.right else 'not '}within 0.1 standard deviations of the training numbers"
            )
        console.write(f"right     {what} after {n}")
    _show_what_differs(before, explanation)
    if learned is not None:
        _show_steps(learned, "squared errors" if facts.target is not None else "loss is without label smoothing")
    largest = sorted(norms.items(), key=lambda one: -one[1])[:N_MATRICES]
    moved = {} if learned is None else learned.moved
    table = [(name, f"{norm:.3g}", f"{moved[name]:.2%}" if name in moved else "") for name, norm in largest]
    console.write_table(("parameter", "gradient norm", *(["moved by, of its norm"] if moved else [])), table)


def _show_what_differs(before: Any, after: Any) -> None:
    """Print which member of an ensemble learns and what all answer together, and what training has besides."""
    from glassformer.explain.learn.learning import LEFT_OUT

    if (member := before.together) is not None:
        console.write(f"member    {member.member} of {member.size} learns; together they answer:")
        console.write(f"          before: {_shown(member.answer)}")
        if after is not before:
            console.write(f"          after: {_shown(after.together.answer)}")
    if left_out := after.learning.left_out:
        console.write(f"left out  {'; '.join(LEFT_OUT[name] for name in left_out)}")


def _show_steps(learned: Any, how: str) -> None:
    """Print each step, and what the steps did to other texts; `how` says what their losses are."""
    rows = [
        (str(i), f"{step.loss:.4f}", f"{step.grad_norm:.3g}", f"{step.clipped:.3g}" if step.clipped < 1 else "not")
        for i, step in enumerate(learned.steps, start=1)
    ]
    rows.append(("after", f"{learned.loss:.4f}", "", ""))
    console.write_table(("step", "loss", "gradient norm", "clipped to"), rows)
    if not learned.others:
        console.write("other texts: none; the evaluation of this run holds no texts with their answers")
        return
    console.write(f"other texts, which were not learned; their {how}:")
    others = [
        (o.text, o.answer, number(o.loss_before), number(o.loss_after), _change(o.loss_after - o.loss_before))
        for o in learned.others
    ]
    console.write_table(("text", "answer", "loss before", "after", "change"), others)


def _change(difference: float) -> str:
    return f"{'−' if difference < 0 else '+'}{number(abs(difference))}" if difference else "0"


def _shown(answer: Any) -> str:
    return f"{shortened(answer['headline'], MAX_CHARS)} ({answer['detail']})"


def _answered(explanation: Any) -> str:
    """Return what the model answers; of a text to write the probability of the given one, then its own."""
    from glassformer.explain.learn.learning import own_answer

    if explanation.decode.kind != "given":
        return _shown(explanation.answer)
    detail = f"{explanation.answer['detail']}; by itself the model writes"
    return f"{detail} {shortened(own_answer(explanation)['headline'], MAX_CHARS) or '(nothing)'}"


def gradient_norms(explanation: Any) -> dict[str, float]:
    """Return the norm of the gradient of each parameter."""
    records = explanation.records
    names = [name for name in records.params if f"{name}.grad" in records]
    return {name: float(np.linalg.norm(records.tensor(f"{name}.grad"))) for name in names}
