"""Why the model said that: one signed number a token, with its error and its faithfulness beside it.

`attribute` and `erase` answer for a text that was read already; the two methods, and the test that both
must stand, are in the files this one brings together.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from glassformer.errors import UsageError
from glassformer.explain.attribution.faithfulness import (
    SHARES,
    Faithfulness,
    faithfulness,
    random_falls,
    single_words,
)
from glassformer.explain.attribution.integrated_gradients import Completeness, integrated_gradients
from glassformer.explain.attribution.leave_one_out import leave_one_out
from glassformer.explain.attribution.requests import (
    AttributeRequest,
    EraseRequest,
    Method,
    erased_with,
    index_of,
    masked_in_training,
    value_function,
)
from glassformer.explain.attribution.value_function import BATCH_TOKENS, ValueFunction
from glassformer.explain.capture.exactly import asking
from glassformer.explain.explanation_data import Inference
from glassformer.explain.predictions import Candidate, Prediction, predict
from glassformer.runtime import tuned
from glassformer.text.tokenizer import UNK

__all__ = [
    "AttributeRequest",
    "Attribution",
    "EraseRequest",
    "Erased",
    "attribute",
    "erase",
    "erase_each",
    "weigh",
]

FEW_WORDS = 6
"""Of fewer words than these, one random ranking in five or more erases the best word first."""


@dataclass(frozen=True)
class Attribution:
    """Scores with what is needed to judge them."""

    method: Method
    quantity: str
    """"logit of pos minus logit of neg", "log p of 'Hunde'"."""
    target: Candidate
    foil: Candidate | None
    value: float
    """The quantity, of the text as it is."""
    baseline_value: float
    """With everything erased."""
    scores: Annotated[dict[str, list[float]], "Partial<Record<StreamName, number[]>>"]
    """One number a token of each stream, in the units of the quantity: logits of a difference, nats of a log-probability.
    Special tokens, which are never erased, score 0, and so does what follows the position asked about."""
    completeness: Completeness | None
    """Of integrated gradients."""
    comprehensiveness: Faithfulness
    """Fall of the quantity when the best-ranked words are erased: more is better."""
    sufficiency: Faithfulness
    """Fall when only they are kept: less is better."""
    n_random: int
    """Random rankings beside which this one is judged."""
    erased_with: str
    """"[MASK]" or "[UNK]"."""
    warnings: list[str]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Erased:
    """What the model says with some tokens erased."""

    prediction: Prediction
    value: float
    """The quantity of an attribution, with the tokens erased."""
    original: float
    """The same of the text as it is."""

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


def attribute(inference: Inference, request: AttributeRequest | None = None) -> Attribution:
    """Scores of each token for one thing the model said.

    Args:
        said: what the model said of the text.
        request: what to explain and how; erasing, for what the model said, when absent.

    Raises:
        UsageError: the request names a prediction, class or token that is not there.
    """
    began = time.perf_counter()
    request = request or AttributeRequest()
    question = value_function(inference, request)
    erased, intact = question.ends()
    completeness = None
    if request.method == "erase":
        scores = leave_one_out(question)
    else:
        scores, completeness = integrated_gradients(question)
    random = _random_falls(inference, question)
    comprehensiveness, sufficiency = faithfulness(question, question.per_word(scores), random)
    logits = _logits(question, [np.zeros((1, len(w.word_of)), dtype=bool) for w in question.words])[0]
    target = _candidate(inference, logits, question.target)
    foil = None if question.foil is None else _candidate(inference, logits, question.foil)
    return Attribution(
        method=request.method,
        quantity=_quantity(target, foil, question.position is None),
        target=target,
        foil=foil,
        value=intact,
        baseline_value=erased,
        scores=_over_streams(inference, scores),
        completeness=completeness,
        comprehensiveness=comprehensiveness,
        sufficiency=sufficiency,
        n_random=len(random),
        erased_with=erased_with(inference.subject.task),
        warnings=_warnings(inference, question, completeness, comprehensiveness, sufficiency),
        seconds=time.perf_counter() - began,
    )


def weigh(inference: Inference, **request: Any) -> Attribution:
    """`attribute`, as quick as the machine is: what is asked comes as fields of `AttributeRequest`.

    Raises:
        UsageError: as in `attribute`, or a field is unknown or unusable.
    """
    with tuned(inference.subject.device):
        return attribute(inference, AttributeRequest.from_dict(request))


def erase(inference: Inference, request: EraseRequest) -> Erased:
    """What the model says when these tokens are erased together.

    Raises:
        UsageError: a position that is not there or holds a special token, or as in `attribute`.
    """
    return erase_each(inference, request, [request.erase])[0]


def erase_each(
    inference: Inference, request: EraseRequest, erasures: Sequence[Mapping[str, Sequence[int]]]
) -> list[Erased]:
    """`erase` for each of these instead of the request's own, all in one batch.

    Raises:
        UsageError: as in `erase`.
    """
    question = value_function(inference, request)
    n = len(erasures)
    chosen = [np.zeros((n + 1, len(w.word_of)), dtype=bool) for w in question.words]  # the last row is intact
    for row, positions in enumerate(erasures):
        _mark(inference, question, [stream[row] for stream in chosen], positions)
    logits = _logits(question, chosen)
    *values, original = question.quantity(logits).tolist()
    actual = inference.predictions[index_of(inference, request.prediction)].actual
    follows = None if actual is None else actual.id
    again = predict(inference.subject.task, logits[:n], [question.position] * n, [follows] * n)
    return [Erased(one, value, original) for one, value in zip(again, values, strict=True)]


def _mark(
    inference: Inference,
    question: ValueFunction,
    chosen: Sequence[np.ndarray],
    erased: Mapping[str, Sequence[int]],
) -> None:
    """Set what is erased in one row a stream of `chosen`."""
    streams = {stream.name: stream for stream in inference.streams}
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


def _random_falls(inference: Inference, question: ValueFunction) -> Float[np.ndarray, "R 2"]:
    known = _random.setdefault(inference, {})
    key = (question.position, question.target, question.foil)
    if key not in known:
        known[key] = random_falls(question)
    return known[key]


def _logits(question: ValueFunction, erased: Sequence[np.ndarray]) -> Float[Tensor, "N C"]:
    """Logits with these tokens erased, one (N, L) a stream."""
    size = max(1, BATCH_TOKENS // max(1, question.n_tokens))
    with asking(question.model):
        return torch.cat([
            question.logits_without([stream[start : start + size] for stream in erased])
            for start in range(0, len(erased[0]), size)
        ])  # fmt: skip


def _over_streams(inference: Inference, scores: dict[str, list[float]]) -> dict[str, list[float]]:
    """Scores as long as the streams: what was not read scores 0."""
    return {s.name: [*scores[s.name], *[0.0] * (len(s.ids) - len(scores[s.name]))] for s in inference.streams}


def _candidate(inference: Inference, logits: Float[Tensor, " C"], i: int) -> Candidate:
    task = inference.subject.task
    piece = task.label_names[i] if task.label_names else task.tokenizer.pieces([i])[0]
    return Candidate(i, piece, float(logits[i]), float(logits.double().log_softmax(dim=-1)[i]))


def _quantity(target: Candidate, foil: Candidate | None, classes: bool) -> str:
    """The number that is explained, in words."""
    if classes and foil is not None:
        return f"logit of {target.piece} minus logit of {foil.piece}"
    name = f"log p of '{target.piece}'"
    return name if foil is None else f"{name} minus log p of '{foil.piece}'"


def _warnings(
    inference: Inference, question: ValueFunction, completeness: Completeness | None, *tests: Faithfulness
) -> list[str]:
    """What a reader must know before believing the scores."""
    task, found = inference.subject.task, []
    if question.n_words == 0:
        return ["there is no word that could be erased"]
    if not masked_in_training(task):
        found.append(
            f"the model was not trained with word masking: a text with {UNK} in it is unlike those it knows, "
            "and part of what erasing changes is that"
        )
    elif len(inference.streams) > 1:
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
