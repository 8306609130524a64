"""Why the model said that: one signed number a token, with its error and its faithfulness beside it.

`attribute` and `erase` answer for an explanation that exists already; the two methods, and the test that both
must stand, are in the files this one brings together.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from glassformer.errors import UsageError
from glassformer.explain.attribution.asking import (
    AttributeRequest,
    EraseRequest,
    Explained,
    Method,
    ask,
    erased_with,
    index_of,
    masked_in_training,
)
from glassformer.explain.attribution.erasing import erase_one
from glassformer.explain.attribution.faithfulness import (
    SHARES,
    Faithfulness,
    faithfulness,
    random_falls,
    single_words,
)
from glassformer.explain.attribution.integrated_gradients import Completeness, integrated_gradients
from glassformer.explain.attribution.question import BATCH_TOKENS, Question
from glassformer.explain.capture.exactly import asking
from glassformer.explain.predictions import Candidate, Prediction, predict
from glassformer.text.tokenizer import UNK

__all__ = ["AttributeRequest", "Attribution", "EraseRequest", "Erased", "attribute", "erase", "erase_each"]

FEW_WORDS = 6
"""Of fewer words than these, one random ranking in five or more erases the best word first."""


@dataclass(frozen=True)
class Attribution:
    """Scores with what is needed to judge them; the mirror of `Attribution` in web/src/types.ts.

    A score is in the units of the quantity: logits of a difference, nats of a log-probability. Special
    tokens, which are never erased, score 0, and so does what follows the position asked about.
    """

    method: Method
    quantity: str
    target: Candidate
    foil: Candidate | None
    value: float
    baseline_value: float
    scores: dict[str, list[float]]
    completeness: Completeness | None
    comprehensiveness: Faithfulness
    sufficiency: Faithfulness
    n_random: int
    erased_with: str
    warnings: list[str]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """As in types.ts."""
        return asdict(self)


@dataclass(frozen=True)
class Erased:
    """What the model says with some tokens erased; the mirror of `Erased` in web/src/types.ts."""

    prediction: Prediction
    value: float
    original: float

    def to_json(self) -> dict[str, Any]:
        """As in types.ts."""
        return asdict(self)


def attribute(explanation: Explained, request: AttributeRequest | None = None) -> Attribution:
    """Scores of each token for one thing the model said.

    Args:
        explanation: of the text.
        request: what to explain and how; erasing, for what the model said, when absent.

    Raises:
        UsageError: the request names a prediction, class or token that is not there.
    """
    began = time.perf_counter()
    request = request or AttributeRequest()
    question = ask(explanation, request)
    erased, intact = question.ends()
    completeness = None
    if request.method == "erase":
        scores = erase_one(question)
    else:
        scores, completeness = integrated_gradients(question)
    random = _random_falls(explanation, question)
    comprehensiveness, sufficiency = faithfulness(question, question.per_word(scores), random)
    logits = _logits(question, [np.zeros((1, len(w.word_of)), dtype=bool) for w in question.words])[0]
    target = _candidate(explanation, logits, question.target)
    foil = None if question.foil is None else _candidate(explanation, logits, question.foil)
    return Attribution(
        method=request.method,
        quantity=_quantity(target, foil, question.position is None),
        target=target,
        foil=foil,
        value=intact,
        baseline_value=erased,
        scores=_over_streams(explanation, scores),
        completeness=completeness,
        comprehensiveness=comprehensiveness,
        sufficiency=sufficiency,
        n_random=len(random),
        erased_with=erased_with(explanation.subject.task),
        warnings=_warnings(explanation, question, completeness, comprehensiveness, sufficiency),
        seconds=time.perf_counter() - began,
    )


def erase(explanation: Explained, request: EraseRequest) -> Erased:
    """What the model says when these tokens are erased together.

    Raises:
        UsageError: a position that is not there or holds a special token, or as in `attribute`.
    """
    return erase_each(explanation, request, [request.erase])[0]


def erase_each(
    explanation: Explained, request: EraseRequest, erasures: Sequence[Mapping[str, Sequence[int]]]
) -> list[Erased]:
    """`erase` for each of these instead of the request's own, all in one batch.

    Raises:
        UsageError: as in `erase`.
    """
    question = ask(explanation, request)
    n = len(erasures)
    chosen = [np.zeros((n + 1, len(w.word_of)), dtype=bool) for w in question.words]  # the last row is intact
    for row, positions in enumerate(erasures):
        _mark(explanation, question, [stream[row] for stream in chosen], positions)
    logits = _logits(question, chosen)
    *values, original = question.quantity(logits).tolist()
    actual = explanation.predictions[index_of(explanation, request.prediction)].actual
    follows = None if actual is None else actual.id
    said = predict(explanation.subject.task, logits[:n], [question.position] * n, [follows] * n)
    return [Erased(one, value, original) for one, value in zip(said, values, strict=True)]


def _mark(
    explanation: Explained,
    question: Question,
    chosen: Sequence[np.ndarray],
    erased: Mapping[str, Sequence[int]],
) -> None:
    """Set what is erased in one row a stream of `chosen`."""
    streams = {stream.name: stream for stream in explanation.streams}
    names = [w.name for w in question.words]
    for name, positions in erased.items():
        if name not in names:
            raise UsageError(f"erase.{name}: this model has no such stream", f"there is {', '.join(names)}")
        stream, row = streams[name], chosen[names.index(name)]
        for position in positions:
            if position >= len(stream.ids):
                raise UsageError(
                    f"erase.{name}: position {position} of {len(stream.ids)} tokens is not there"
                )
            if stream.special[position]:
                raise UsageError(f"erase.{name}: {stream.pieces[position]} is a special token, which is kept")
            if position < len(row):  # later ones were not read when this prediction was made
                row[position] = True


_random: WeakKeyDictionary[Any, dict[tuple[int | None, int, int | None], np.ndarray]] = WeakKeyDictionary()
"""The falls of random rankings, which do not depend on the method, by explanation and question."""


def _random_falls(explanation: Explained, question: Question) -> Float[np.ndarray, "R 2"]:
    known = _random.setdefault(explanation, {})
    key = (question.position, question.target, question.foil)
    if key not in known:
        known[key] = random_falls(question)
    return known[key]


def _logits(question: Question, erased: Sequence[np.ndarray]) -> Float[Tensor, "N C"]:
    """Logits with these tokens erased, one (N, L) a stream."""
    size = max(1, BATCH_TOKENS // max(1, question.n_tokens))
    with asking(question.model):
        return torch.cat([
            question.logits_without([stream[start : start + size] for stream in erased])
            for start in range(0, len(erased[0]), size)
        ])  # fmt: skip


def _over_streams(explanation: Explained, scores: dict[str, list[float]]) -> dict[str, list[float]]:
    """Scores as long as the streams: what was not read scores 0."""
    return {
        s.name: [*scores[s.name], *[0.0] * (len(s.ids) - len(scores[s.name]))] for s in explanation.streams
    }


def _candidate(explanation: Explained, logits: Float[Tensor, " C"], i: int) -> Candidate:
    task = explanation.subject.task
    piece = task.label_names[i] if task.label_names else task.tokenizer.pieces([i])[0]
    return Candidate(i, piece, float(logits[i]), float(logits.double().log_softmax(dim=-1)[i]))


def _quantity(target: Candidate, foil: Candidate | None, classes: bool) -> str:
    """The number that is explained, in words."""
    if classes and foil is not None:
        return f"logit of {target.piece} minus logit of {foil.piece}"
    name = f"log p of '{target.piece}'"
    return name if foil is None else f"{name} minus log p of '{foil.piece}'"


def _warnings(
    explanation: Explained, question: Question, completeness: Completeness | None, *tests: Faithfulness
) -> list[str]:
    """What a reader must know before believing the scores."""
    task, found = explanation.subject.task, []
    if question.n_words == 0:
        return ["there is no word that could be erased"]
    if not masked_in_training(task):
        found.append(
            f"the model was not trained with word masking: a text with {UNK} in it is unlike those it knows, "
            "and part of what erasing changes is that"
        )
    elif task.name == "translate":
        found.append("words of the source were masked in training, but never those of the translation")
    if completeness is not None and not completeness.ok:
        found.append(
            f"the scores miss their sum by {completeness.relative:.0%} of the range after "
            f"{completeness.n_steps} steps: read only the largest of them"
        )
    alone = single_words(question.n_words)
    if completeness is None and alone:
        found.append(
            f"in {alone} of the {len(SHARES)} parts of comprehensiveness a single word is erased, and erasing "
            "single words made this ranking: there it is the best possible by construction"
        )
    if question.n_words < FEW_WORDS:
        n = "only one word" if question.n_words == 1 else f"only {question.n_words} words"
        found.append(f"{n} can be erased, and random rankings of so few are often as good as the best")
    elif not any(test.beats_random for test in tests):
        found.append("this ranking of the words is no more faithful to the model than random ones are")
    return found
