"""Which source words the words of a translation go with, read from cross attention.

There are several places to read it, every decoder layer at two steps, and which is right depends on the model;
so each is measured against erasing: the word a token is aligned with should be the one it misses most. Why a
model chose a word is not asked here; `attribute.py` does that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypedDict

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from glassformer.errors import UsageError
from glassformer.explain.attribution.requests import AttributeRequest, value_function
from glassformer.explain.capture.exactly import answer, asking
from glassformer.explain.explanation_data import ExplanationData, Inference
from glassformer.explain.tensor_values import tensor
from glassformer.explain.weak_cache import weak_cache
from glassformer.runtime import tuned

MOST_WORDS = 64
"""Source words that are erased, of a longer sentence evenly spread ones: the time stays about a second."""
N_RANDOM = 500
"""Random orders by which the agreement by chance is found."""
BATCH_POSITIONS = 1024
"""Positions whose logits of the whole vocabulary are held at once."""


@dataclass(frozen=True)
class Reading:
    """A place to read an alignment at.

    Attributes:
        layer: of the decoder, from 0.
        shifted: at the step where the token is the decoder's input (Shift-Att, Chen et al. 2020, arXiv
            2004.14837), not at the step that wrote it, when it was not known yet. That suits deep decoders;
            a shallow one may look at a word only to write it.
        agreement: share of the written tokens whose aligned word is the one they miss most; NaN where no
            token misses any.
        chance: what the best of all readings of this sentence would agree by chance: with the same aligned
            words, dealt to the tokens at random.
    """

    layer: int
    shifted: bool
    agreement: float
    chance: float = field(default=math.nan, compare=False)


@dataclass(frozen=True, eq=False)
class Missed:
    """What erasing source words does to a translation.

    Attributes:
        word_of: word of each source token, or -1 where it was not erased.
        falls: of the log-probability of token t + 1 of the target in row t, in nats; a column a word.
    """

    word_of: Int[np.ndarray, " S"]
    falls: Float[np.ndarray, "N W"]

    @property
    def counted(self) -> Bool[np.ndarray, " N"]:
        """Which tokens miss any word: the others agree with nothing."""
        return self.falls.max(axis=1, initial=0) > 0


def alignment(
    explanation: ExplanationData, layer: int | None = None, *, shifted: bool | None = None
) -> Float[np.ndarray, "N S"]:
    """Which source tokens each written token goes with: row t for token t + 1 of the target stream, after [BOS].

    Args:
        explained: of a translation.
        layer: decoder layer, from 0. shifted: at which step it is read, see `Reading`. What is absent is
            chosen so that the alignment agrees best with erasing.

    Raises:
        UsageError: the model is no translator, has no such layer, or the text is too long.
    """
    n_layers = _decoder_layers(explanation)
    if layer is not None and not 0 <= layer < n_layers:
        raise UsageError(f"layer {layer} is not there", f"decoder layers run from 0 to {n_layers - 1}")
    if layer is None or shifted is None:
        chosen = best_reading(explanation, layer, shifted)
        layer, shifted = chosen.layer, chosen.shifted
    return _read(explanation, layer, shifted)


def best_reading(
    explanation: ExplanationData, layer: int | None = None, shifted: bool | None = None
) -> Reading:
    """The reading that agrees best with erasing, among those of a layer or a step if one is named."""
    fits = (r for r in readings(explanation) if layer in (None, r.layer) and shifted in (None, r.shifted))
    return next(fits)


@weak_cache
def readings(explanation: ExplanationData) -> list[Reading]:
    """`measure_readings`, measured once.

    Raises:
        UsageError: as it does.
    """
    with tuned(explanation.subject.device):
        return measure_readings(explanation)


def measure_readings(explanation: ExplanationData) -> list[Reading]:
    """Every reading there is, the one that agrees best with erasing first.

    Of equals the one comes first whose weights lie more on the missed words. Where nothing can be measured,
    the paper's choice does: a layer of the lower half, shifted.

    Raises:
        UsageError: the model is no translator, or only a window of the text is kept.
    """
    n_layers = _decoder_layers(explanation)
    missed = words_missed(explanation)
    places = [(layer, shifted) for layer in range(n_layers) for shifted in (False, True)]
    weights = [_read(explanation, *place) for place in places]
    chance = agreement_by_chance(weights, missed)
    measured: list[tuple[Reading, float]] = []
    for place, read in zip(places, weights, strict=True):
        agrees, weight = agreement(read, missed)
        measured.append((Reading(*place, agrees, chance), weight))
    if missed.counted.any():
        measured.sort(key=lambda one: (-one[0].agreement, -one[1]))
    else:
        measured.sort(key=lambda one: (not one[0].shifted, abs(one[0].layer - (n_layers - 1) // 2)))
    return [reading for reading, _ in measured]


class ReadingPosition(TypedDict):
    """Where an alignment can be read."""

    layer: int
    shifted: bool
    """Where the token is the decoder's input, not where it is predicted."""


class ReadingScore(TypedDict):
    """A place, and how well what is read there agrees with erasing."""

    layer: int
    shifted: bool
    agreement: float | None
    """Share of the written tokens whose aligned word is the one whose erasing costs them most; null: none is missed."""


class Alignments(TypedDict):
    """Where the alignment of a translation can be read, the best place first (GET /api/trace/{id}/alignment)."""

    best: ReadingPosition
    chance: float | None
    """What the best of as many readings of this sentence would agree by chance; null: no token misses a word."""
    readings: list[ReadingScore]


def readings_json(readings: Sequence[Reading]) -> Alignments:
    """Readings, ready for JSON."""
    told: list[ReadingScore] = [
        {
            "layer": r.layer,
            "shifted": r.shifted,
            "agreement": None if math.isnan(r.agreement) else r.agreement,
        }
        for r in readings
    ]
    best, chance = readings[0], readings[0].chance
    return {
        "best": {"layer": best.layer, "shifted": best.shifted},
        "chance": None if math.isnan(chance) else chance,
        "readings": told,
    }


def agreement(weights: Float[np.ndarray, "N S"], missed: Missed) -> tuple[float, float]:
    """How well an alignment agrees with erasing: how often the word with the largest weight is the one missed
    most, and the mean weight on that one; NaN where no token misses any word."""
    counted = missed.counted
    if not counted.any():
        return math.nan, math.nan
    most_missed = missed.falls[counted].argmax(axis=1)
    on_it = missed.word_of == most_missed[:, None]
    return (
        float((_aligned_words(weights, missed) == most_missed).mean()),
        float(np.where(on_it, weights[counted], 0.0).sum(axis=1).mean()),
    )


def agreement_by_chance(weights: Sequence[Float[np.ndarray, "N S"]], missed: Missed) -> float:
    """What the best of these readings would agree if the words that are missed were dealt to the tokens at
    random: the mean of the largest agreement over random orders. The best of many readings of a short sentence
    agrees often without meaning anything; NaN where no token misses any word."""
    if not missed.counted.any():
        return math.nan
    aligned = np.array([_aligned_words(read, missed) for read in weights])  # (R, N)
    most_missed, rng = missed.falls[missed.counted].argmax(axis=1), np.random.default_rng(0)
    best = [(aligned == rng.permutation(most_missed)).mean(axis=1).max() for _ in range(N_RANDOM)]
    return float(np.mean(best))


def _aligned_words(weights: Float[np.ndarray, "N S"], missed: Missed) -> Int[np.ndarray, " M"]:
    """The word with the largest weight, of each token that misses any word."""
    rows = np.where(missed.word_of < 0, -np.inf, weights[missed.counted])
    return missed.word_of[rows.argmax(axis=1)]


def words_missed(inference: Inference) -> Missed:
    """Erase each source word alone and read the whole translation again, as it was written.

    Erasing in the source leaves the target alone, so that one pass tells of all its tokens at once.
    """
    target = inference.streams[1]
    question = value_function(inference, AttributeRequest(prediction=len(inference.predictions) - 1))
    n_words = int(question.words[0].word_of.max(initial=-1)) + 1
    chosen = np.unique(np.linspace(0, n_words - 1, min(n_words, MOST_WORDS)).round().astype(int))
    erased = np.zeros((len(chosen) + 1, question.n_words), dtype=bool)
    erased[np.arange(len(chosen)), chosen] = True  # and the last row erases nothing
    source, tgt_in = question.variants(question.tokens_of(erased))
    written = tgt_in[:, 1:]
    log_probs: list[torch.Tensor] = []
    size = max(1, BATCH_POSITIONS // question.n_tokens)
    with asking(question.model):
        for start in range(0, len(erased), size):
            part = slice(start, start + size)
            mask = None if question.mask is None else question.mask.expand(len(source[part]), -1)
            logits = answer(question.model, source[part], tgt_in[part], mask)[:, :-1]
            log_probs.append(logits.log_softmax(dim=-1).gather(-1, written[part, :, None])[..., 0].double())
    values = torch.cat(log_probs).cpu().numpy()
    falls = (values[-1:] - values[:-1]).T
    falls[np.array(target.special[1 : 1 + len(falls)], dtype=bool)] = 0  # [EOS] goes with no word
    place = np.full(n_words + 1, -1)
    place[chosen] = np.arange(len(chosen))
    return Missed(place[question.words[0].word_of], falls)


def _read(explanation: ExplanationData, layer: int, shifted: bool) -> Float[np.ndarray, "N S"]:
    mean = tensor(explanation, f"decoder.{layer}.cross.weights").astype(np.float64).mean(axis=0)
    return mean[1:] if shifted else mean[:-1]


def _decoder_layers(explanation: ExplanationData) -> int:
    n_layers = sum(id.endswith(".cross.weights") for id in explanation.records)
    if not n_layers:
        name = explanation.subject.task.name
        raise UsageError(f"a model trained to {name} has no cross attention to align by")
    if explanation.window is not None:
        raise UsageError("only a window of this text is kept, and its words cannot be aligned")
    return n_layers
