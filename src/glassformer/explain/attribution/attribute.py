"""Attribute a prediction to the input tokens: one signed score per token, with its error and faithfulness.

The two methods, and the test of both, are in `methods.py`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from jaxtyping import Bool, Float
from torch import Tensor

from glassformer.errors import UsageError
from glassformer.explain.attribution.methods import (
    SHARES,
    Completeness,
    Faithfulness,
    faithfulness,
    integrated_gradients,
    leave_one_out,
    n_single_word_shares,
    random_mean_drops,
)
from glassformer.explain.attribution.value_function import (
    AttributeRequest,
    Method,
    ValueFunction,
    make_value_function,
    number_prediction,
    uses_mask_token,
)
from glassformer.explain.edits.measure import Measure, prediction_index
from glassformer.explain.explanation import Explanation
from glassformer.explain.predictions import Candidate, Prediction, readable, top_predictions
from glassformer.explain.record_store import weak_cache
from glassformer.explain.streams import words_read
from glassformer.text.tokenizer import UNK
from glassformer.utils.device import tuned
from glassformer.utils.formatting import shortened

MIN_WORDS = 6
"""With fewer words, at least one random ranking in five erases the best word first."""


@dataclass(frozen=True, repr=False)
class Attribution:
    """The scores of an attribution, with their error and faithfulness."""

    method: Method
    quantity: str
    """"logit of pos minus logit of neg", "log p of 'Hunde'", "the number"."""
    target: Candidate
    foil: Candidate | None
    value: float
    """The quantity for the text itself."""
    baseline_value: float
    """The quantity with every word erased."""
    scores: Annotated[dict[str, list[float]], "Partial<Record<StreamName, number[]>>"]
    """Score of each token by stream, in the units of the quantity: logits for a difference, nats for a log-probability.
    Special tokens, which are never erased, and tokens after the explained position score 0."""
    word_texts: Annotated[dict[str, list[str]], "Partial<Record<StreamName, string[]>>"]
    """The words of each stream as far as the explained position reads them: of the answer only what is before it. The
    empty text for a word that it does not read."""
    completeness: Completeness | None
    """Only for integrated gradients."""
    comprehensiveness: Faithfulness
    """Drop of the quantity when the top-ranked words are erased: higher is better."""
    sufficiency: Faithfulness
    """Drop of the quantity when only they are kept: lower is better."""
    n_random: int
    """Number of random rankings it is compared with."""
    erased_with: str
    """"[MASK]" or "[UNK]"."""
    warnings: list[str]
    seconds: float
    prediction: int = 0
    """Index into `predictions` of the one that is explained; 0 for a classifier."""

    def __repr__(self) -> str:
        n_scores = ", ".join(f"{len(scores)} of {name}" for name, scores in self.scores.items())
        of = f"prediction {self.prediction}, {shortened(self.target.piece, 40)!r}"
        values = f"{shortened(self.quantity, 90)} = {self.value:.4g}, {self.baseline_value:.4g} with all words erased"
        return f"<Attribution ({self.method}) of {of}: {values}; scores of tokens: {n_scores}>"


@dataclass(frozen=True)
class Erased:
    """The prediction with some tokens erased."""

    prediction: Prediction
    value: float
    """The quantity of an attribution with the tokens erased."""
    original: float
    """The quantity for the text itself."""


def attribute(explanation: Explanation, request: AttributeRequest | None = None) -> Attribution:
    """Return the attribution of one prediction to the tokens."""
    started = time.perf_counter()
    request = request or AttributeRequest()
    value_fn = make_value_function(explanation, request)
    baseline, value = value_fn.baseline_and_value()
    completeness = None
    if request.method == "erase":
        scores = leave_one_out(value_fn)
    else:
        scores, completeness = integrated_gradients(value_fn)
    random = _random_mean_drops(explanation, value_fn)
    comprehensiveness, sufficiency = faithfulness(value_fn, value_fn.sum_over_words(scores), random)
    logits = value_fn.erased_logits(np.zeros((1, len(scores)), dtype=bool))[0]
    of = value_fn.by_stream(scores)
    measure = value_fn.measure
    target = _candidate(explanation, logits, measure.ids[0])
    foil = None if measure.foil is None else _candidate(explanation, logits, measure.foil)
    return Attribution(
        method=request.method,
        quantity=_quantity_name(target, foil, value_fn.position is None),
        target=target,
        foil=foil,
        value=value,
        baseline_value=baseline,
        scores={s.name: np.pad(of[s.name], (0, len(s) - len(of[s.name]))).tolist() for s in explanation.streams},
        word_texts={
            stream.name: words_read(stream, len(value_fn.words[stream.name])) for stream in explanation.streams
        },
        completeness=completeness,
        comprehensiveness=comprehensiveness,
        sufficiency=sufficiency,
        n_random=len(random),
        erased_with=explanation.subject.task.tokenizer.tokens([value_fn.erase_id])[0],
        warnings=_warnings(explanation, value_fn, completeness, comprehensiveness, sufficiency),
        seconds=time.perf_counter() - started,
        prediction=prediction_index(explanation, request.prediction),
    )


def attribute_fields(explanation: Explanation, **request: Any) -> Attribution:
    """Return `attribute` in performance mode, with the fields of an `AttributeRequest` as keyword arguments.

    Where no prediction is named, it is the token of the answer that the model is least certain of.
    """
    if request.get("prediction") is None and explanation.answered:
        request["prediction"] = min(explanation.answered, key=lambda i: _log_prob(explanation.predictions[i]))
    with tuned(explanation.subject.device):
        return attribute(explanation, AttributeRequest.from_dict(request))


def _log_prob(prediction: Prediction) -> float:
    """Return the log-probability of the token that follows; of a masked one, of the most probable."""
    return (prediction.actual or prediction.top[0]).log_prob


def erase(explanation: Explanation, request: AttributeRequest) -> Erased:
    """Return the prediction with these tokens erased together."""
    if request.erase is None:
        raise UsageError("erase names no tokens", "give their positions by stream: {'text': [2]}")
    return erase_each(explanation, request, [request.erase])[0]


def erase_each(
    explanation: Explanation, request: AttributeRequest, erasures: Sequence[Mapping[Any, Sequence[int]]]
) -> list[Erased]:
    """Return `erase` for each of these erasures instead of that of the request, all in one batch."""
    value_fn, n = make_value_function(explanation, request), len(erasures)
    erased = np.array([_erased_tokens(explanation, value_fn, positions) for positions in (*erasures, {})])
    logits = value_fn.erased_logits(erased)
    *values, original = value_fn.quantity(logits).tolist()
    if explanation.is_number:
        predictions = list(map(number_prediction, logits[:n, 0].tolist()))
    else:
        actual = explanation.predictions[prediction_index(explanation, request.prediction)].actual
        following = [None if actual is None else actual.id] * n
        predictions = top_predictions(explanation.subject.task, logits[:n], [value_fn.position] * n, following)
    return [Erased(prediction, value, original) for prediction, value in zip(predictions, values, strict=True)]


def erase_words(explanation: Explanation, prediction: int | None) -> list[tuple[dict[str, list[int]], Erased]]:
    """Return the positions of each word that a prediction depends on, by stream, and the prediction without it."""
    request = AttributeRequest(prediction=prediction)
    words = make_value_function(explanation, request).words
    places = [
        {name: np.flatnonzero(of == word).tolist()} for name, of in words.items() for word in np.unique(of[of >= 0])
    ]
    return list(zip(places, erase_each(explanation, request, places), strict=True)) if places else []


def _erased_tokens(
    explanation: Explanation, value_fn: ValueFunction, erased: Mapping[str, Sequence[int]]
) -> Bool[np.ndarray, " T"]:
    """Return which tokens are erased, given their positions by stream."""
    streams = {stream.name: stream for stream in explanation.streams}
    if unknown := [name for name in erased if name not in streams]:
        raise UsageError(f"erase.{unknown[0]}: this model has no such stream", f"there is {', '.join(streams)}")
    for name, positions in erased.items():
        stream = streams[name]
        for position in positions:
            if position >= len(stream.ids):
                raise UsageError(f"erase.{name}: there is no position {position} in {len(stream.ids)} tokens")
            if stream.special[position]:
                raise UsageError(f"erase.{name}: {stream.pieces[position]} is a special token, which cannot be erased")
    # The prediction does not depend on positions after those that the value function reads.
    return np.concatenate([np.isin(np.arange(len(of)), erased.get(name, ())) for name, of in value_fn.words.items()])


@weak_cache
def _random_of(explanation: Explanation) -> dict[Measure, Float[np.ndarray, "R 2"]]:
    """Return the `random_mean_drops` so far, which do not depend on the method, by value function."""
    return {}


def _random_mean_drops(explanation: Explanation, value_fn: ValueFunction) -> Float[np.ndarray, "R 2"]:
    known, key = _random_of(explanation), value_fn.measure
    if key not in known:
        known[key] = random_mean_drops(value_fn)
    return known[key]


def _candidate(explanation: Explanation, logits: Float[Tensor, " C"], i: int) -> Candidate:
    piece = readable(explanation.subject.task, i)
    return Candidate(i, piece, float(logits[i]), float(logits.double().log_softmax(dim=-1)[i]))


def _quantity_name(target: Candidate, foil: Candidate | None, classes: bool) -> str:
    """Return the name of the explained quantity."""
    if classes:
        return "the number" if foil is None else f"logit of {target.piece} minus logit of {foil.piece}"
    return " minus ".join(f"log p of '{candidate.piece}'" for candidate in (target, foil) if candidate is not None)


def _warnings(
    explanation: Explanation, value_fn: ValueFunction, completeness: Completeness | None, *tests: Faithfulness
) -> list[str]:
    """Return the caveats of the scores, one sentence each."""
    warnings = []
    if value_fn.n_words == 0:
        return ["there is no word to erase"]
    if not uses_mask_token(explanation.subject.task):
        warnings.append(
            f"the model was not trained with word masking: a text with {UNK} is unlike its training data, "
            "which is part of the effect of erasing"
        )
    elif len(explanation.streams) > 1:
        warnings.append("source words were masked in training, but target words never were")
    if completeness is not None and not completeness.ok:
        warnings.append(
            f"after {completeness.n_steps} steps the sum of the scores is off by {completeness.relative:.0%} of the "
            "range: rely only on the largest scores"
        )
    n_single = n_single_word_shares(value_fn.n_words)
    if completeness is None and n_single:
        warnings.append(
            f"{n_single} of the {len(SHARES)} parts of comprehensiveness erase a single word, as leave-one-out does: "
            "there this ranking is the best possible by construction"
        )
    if value_fn.n_words < MIN_WORDS:
        n = "only one word" if value_fn.n_words == 1 else f"only {value_fn.n_words} words"
        warnings.append(f"{n} can be erased, and random rankings of so few words are often as good as the best")
    elif not any(test.beats_random for test in tests):
        warnings.append("this ranking of words is no more faithful to the model than random rankings")
    return warnings
