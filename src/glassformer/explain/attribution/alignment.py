"""Align the words of a translation with source words, by cross-attention weights.

An alignment can be read from any decoder layer and from two steps, and which is right depends on the model. So each
reading is compared with erasing: a token should be aligned with the source word whose erasing costs it most. An
alignment is not an attribution; for that see `attribute.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from glassformer.errors import UsageError
from glassformer.explain.attribution.value_function import AttributeRequest, make_value_function
from glassformer.explain.capture.exact_inference import exact_forward, exact_no_grad
from glassformer.explain.explanation import Explanation
from glassformer.explain.record_store import weak_cache
from glassformer.utils.device import tuned

MAX_WORDS = 64
"""Maximum source words to erase, evenly spaced in a longer sentence, to take about a second."""
N_RANDOM = 500
"""Number of random permutations to estimate the agreement by chance."""
BATCH_POSITIONS = 1024
"""Maximum positions per batch, each with logits over the whole vocabulary."""


@dataclass(frozen=True)
class Reading:
    """A decoder layer and step to read an alignment from, and its agreement with erasing."""

    layer: int
    shifted: bool
    """True for the step at which the token is the decoder's input, false for the step that predicts it."""
    # Shifted is Shift-Att (Chen et al. 2020, arXiv 2004.14837), which suits deep decoders.
    agreement: float | None
    """Share of target tokens aligned with the word whose erasing costs them most; null: erasing costs nothing."""
    chance: float | None = field(default=None, compare=False)
    """Expected agreement of the best reading of this sentence if the costs were assigned to its tokens at random."""


@dataclass(frozen=True, eq=False)
class ErasureDrops:
    """The effect of erasing each source word on a translation.

    Attributes:
        word_of: the column of `drops` of each source token, or -1 where its word was not erased.
        drops: the drop of the log-probability, in nats, of target token t + 1 in row t, one column per word.
    """

    word_of: Int[np.ndarray, " S"]
    drops: Float[np.ndarray, "N W"]

    @property
    def affected(self) -> Bool[np.ndarray, " N"]:
        """Return which target tokens become less probable when some word is erased."""
        return self.drops.max(axis=1, initial=0) > 0


@weak_cache
def readings(explanation: Explanation) -> list[Reading]:
    """Return every reading, the one that agrees best with erasing first.

    Equal agreements are ordered by the mean weight on the words that cost most. Where erasing costs nothing, the first
    is the paper's choice: a layer of the lower half, shifted.
    """
    with tuned(explanation.subject.device):
        n_layers = _n_decoder_layers(explanation)
        drops = erasure_drops(explanation)
    keys = [(layer, shifted) for layer in range(n_layers) for shifted in (False, True)]
    if not drops.affected.any():
        keys.sort(key=lambda key: (not key[1], abs(key[0] - (n_layers - 1) // 2)))
        return [Reading(*key, None) for key in keys]
    weights = [_weights(explanation, *key) for key in keys]
    chance = chance_agreement(weights, drops)
    measured = [(key, *agreement(matrix, drops)) for key, matrix in zip(keys, weights, strict=True)]
    measured.sort(key=lambda one: (-one[1], -one[2]))
    return [Reading(*key, share, chance) for key, share, _ in measured]


class Alignments(TypedDict):
    """The readings of the alignment of a translation, the best first (GET /api/trace/{id}/alignment)."""

    best: Annotated[dict[str, Any], Reading]
    chance: float | None
    """Expected agreement by chance of the best of as many readings; null: erasing costs nothing."""
    readings: list[Annotated[dict[str, Any], Reading]]


def readings_json(readings: Sequence[Reading]) -> Alignments:
    """Return readings as JSON data."""
    found = [{name: value for name, value in vars(r).items() if name != "chance"} for r in readings]
    return {"best": found[0], "chance": readings[0].chance, "readings": found}


def agreement(weights: Float[np.ndarray, "N S"], drops: ErasureDrops) -> tuple[float, float]:
    """Return the agreement of an alignment with erasing, and the mean weight on the words that cost most.

    The agreement is the share of target tokens whose largest weight is on the word whose erasing costs them most. Some
    word must cost some token something.
    """
    affected = drops.affected
    costliest = drops.drops[affected].argmax(axis=1)
    is_costliest = drops.word_of == costliest[:, None]
    return (
        float((_aligned_words(weights, drops) == costliest).mean()),
        float(np.where(is_costliest, weights[affected], 0.0).sum(axis=1).mean()),
    )


def chance_agreement(weights: Sequence[Float[np.ndarray, "N S"]], drops: ErasureDrops) -> float:
    """Return the expected agreement of the best of several readings by chance.

    It is the mean, over random permutations of the costliest words, of the largest agreement: the best of many readings
    of a short sentence often agrees by chance.
    """
    # (R, N)
    aligned = np.array([_aligned_words(matrix, drops) for matrix in weights])
    costliest, rng = drops.drops[drops.affected].argmax(axis=1), np.random.default_rng(0)
    best = [(aligned == rng.permutation(costliest)).mean(axis=1).max() for _ in range(N_RANDOM)]
    return float(np.mean(best))


def _aligned_words(weights: Float[np.ndarray, "N S"], drops: ErasureDrops) -> Int[np.ndarray, " M"]:
    """Return the word with the largest weight, for each affected target token."""
    rows = np.where(drops.word_of < 0, -np.inf, weights[drops.affected])
    return drops.word_of[rows.argmax(axis=1)]


def erasure_drops(explanation: Explanation) -> ErasureDrops:
    """Erase each source word alone, and measure the log-probability of every token of the unchanged target at once."""
    target = explanation.streams[1]
    value_fn = make_value_function(explanation, AttributeRequest(prediction=len(explanation.predictions) - 1))
    word_of = value_fn.words["source"]
    n_words = int(word_of.max(initial=-1)) + 1
    chosen = np.unique(np.linspace(0, n_words - 1, min(n_words, MAX_WORDS)).round().astype(int))
    # The last row erases nothing.
    erased = np.zeros((len(chosen) + 1, value_fn.n_words), dtype=bool)
    erased[np.arange(len(chosen)), chosen] = True
    source, tgt_in = value_fn.erased_ids(value_fn.token_masks(erased))
    labels = tgt_in[:, 1:]
    log_probs: list[torch.Tensor] = []
    size = max(1, BATCH_POSITIONS // value_fn.n_tokens)
    with exact_no_grad(value_fn.model):
        for start in range(0, len(erased), size):
            batch = slice(start, start + size)
            mask = None if value_fn.mask is None else value_fn.mask.expand(len(source[batch]), -1)
            logits = exact_forward(value_fn.model, source[batch], tgt_in[batch], mask)[:, :-1]
            log_probs.append(logits.log_softmax(dim=-1).gather(-1, labels[batch, :, None])[..., 0].double())
    values = torch.cat(log_probs).cpu().numpy()
    drops = (values[-1:] - values[:-1]).T
    # [EOS] is aligned with no word.
    drops[np.array(target.special[1 : 1 + len(drops)], dtype=bool)] = 0
    column = np.full(n_words + 1, -1)
    column[chosen] = np.arange(len(chosen))
    return ErasureDrops(column[word_of], drops)


def _weights(explanation: Explanation, layer: int, shifted: bool) -> Float[np.ndarray, "N S"]:
    mean = explanation.records.tensor(f"decoder.{layer}.cross.weights").astype(np.float64).mean(axis=0)
    return mean[1:] if shifted else mean[:-1]


def _n_decoder_layers(explanation: Explanation) -> int:
    n_layers = sum(s.site == "weights" and s.block == "cross" for s in explanation.records.steps.values())
    if not n_layers:
        name = explanation.subject.task.name
        raise UsageError(f"a model trained to {name} has no cross attention to align by")
    return n_layers
