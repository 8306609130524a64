"""`glassformer learn`: the loss of an answer, its gradients, and what steps of the optimizer on it change."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from msgspec import Meta

from glassformer.cli import flags
from glassformer.cli.explain import PAGES, LookArguments, check_suffix, explain, loaded, write_page
from glassformer.errors import UsageError
from glassformer.utils import console
from glassformer.utils.formatting import shortened

logger = logging.getLogger(__name__)

N_MATRICES, MAX_CHARS = 12, 80
"""Parameters in the table, those with the largest gradients; and characters of an answer."""


@dataclass(frozen=True)
class LearnArguments(LookArguments):
    """Print the loss of an answer and its gradients, and what steps of the optimizer on it change.

    ANSWER is what the text should have: a class, a number, a translation, the next words, or the words at [MASK]. The
    steps are taken in a copy of the model.
    """

    usage: ClassVar = "learn RUN TEXT ANSWER"
    example: ClassVar = 'learn runs/imdb "I loved it" neg --steps 1'
    steps: Annotated[int, Meta(ge=0, le=100)] = 0
    """Steps of the optimizer."""
    lr: float | None = None
    """Learning rate of these steps; the run's when absent. That of Muon's matrices keeps its ratio to it."""
    optimizer: Literal["adamw", "adam", "sgd", "muon"] | None = None
    """Optimizer of these steps; the run's when absent."""
    keep: str | None = None
    """New folder for the model after these steps, with the run's settings, and without a log."""
    out: str | None = None
    """File to write the page to, .html (also -o)."""
    json: bool = False
    """Print one JSON object."""


def run_learn(given: flags.Given[LearnArguments]) -> None:
    """Run `glassformer learn`."""
    arguments, (word, text, answer) = given.arguments(), given.words
    check_suffix(arguments.out, PAGES)
    if arguments.keep is not None and not arguments.steps:
        raise UsageError("--keep writes the model after steps of learning", "add --steps 1")
    steps = {"learn_steps": arguments.steps, "lr": arguments.lr, "optimizer": arguments.optimizer}
    [explained] = explain(loaded(word, arguments), arguments, text, answer=answer, **steps)
    if arguments.keep is not None:
        logger.info(f"written: {explained.keep(arguments.keep)}")
    before, facts = explained.base or explained, explained.learning
    norms = gradient_norms(before)
    if arguments.json:
        about = {"text": explained.request.text, "warnings": explained.warnings, "gradients": norms}
        console.write_json({**about, **asdict(facts)})
    else:
        for line in lines_of(before, explained):
            console.write(line)
        if learned := facts.learned:
            console.write_rows([asdict(step) for step in learned.steps])
            console.write_rows([asdict(other) for other in learned.others])
        moved = {} if learned is None else learned.moved
        largest = sorted(norms, key=lambda name: -norms[name])[:N_MATRICES]
        rows = [{"parameter": name, "gradient norm": norms[name], "moved by": moved.get(name)} for name in largest]
        console.write_rows(rows)
    if arguments.out is not None:
        write_page(Path(arguments.out), explained)


def lines_of(before: Any, after: Any) -> Iterator[str]:
    """Yield the answers before and after the steps, and what training has besides."""
    from glassformer.explain.learn.learning import LEFT_OUT

    facts, learned = after.learning, after.learning.learned
    yield from after.warnings
    yield f"text      {after.request.text}"
    yield f"answer    {facts.answer}"
    yield f"before    loss {facts.loss:.4f}, {_answered(before)}"
    if learned is not None:
        yield f"after     loss {learned.loss:.4f}, {_answered(after)}{'' if learned.right else ', not yet learned'}"
    if facts.left_out:
        yield f"left out  {'; '.join(LEFT_OUT[name] for name in facts.left_out)}"


def _answered(explanation: Any) -> str:
    """Return what the model answers; of a text to write the probability of the given one, then its own."""
    from glassformer.explain.learn.learning import own_answer

    detail = explanation.answer["detail"]
    if explanation.decode.kind != "given":
        return f"{shortened(explanation.answer['headline'], MAX_CHARS)} ({detail})"
    own = shortened(own_answer(explanation)["headline"], MAX_CHARS) or "(nothing)"
    return f"{detail}; by itself the model writes {own}"


def gradient_norms(explanation: Any) -> dict[str, float]:
    """Return the norm of the gradient of each parameter."""
    records = explanation.records
    names = [name for name in records.params if f"{name}.grad" in records]
    return {name: float(np.linalg.norm(records.tensor(f"{name}.grad"))) for name in names}
