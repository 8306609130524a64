"""Attribute a prediction to the input tokens: one signed score per token, with its error and faithfulness.

A value function (the term of Shapley values) is the quantity that is explained, as a function of the words that are
erased: it knows which tokens form a word, what replaces an erased one, and how to evaluate many variants in a batch.

Its values become scores by leave-one-out or by integrated gradients (Sundararajan et al. 2017). The path of these is
the straight line from the text with every word erased to the text itself; special tokens do not change. The embedding
of a word includes its n-grams, if the model has them.

Comprehensiveness and sufficiency (DeYoung et al. 2020, "ERASER", section 4.2) compared with those of random rankings.
They are in the units of the value function, not in probabilities as in the paper, since those saturate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from msgspec import Meta
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.errors import UsageError
from glassformer.explain.capture.exact_inference import after_calls, exact_forward, exact_inference, exact_no_grad
from glassformer.explain.edits.effects import (
    BATCH_TOKENS,
    Measure,
    measure_of_answer,
    measure_of_difference,
    prediction_index,
    repeated,
)
from glassformer.explain.explanation import Explanation
from glassformer.explain.inputs import Candidate, Prediction, output_of, readable, top_predictions
from glassformer.explain.request import MAX_PREFIX, Id, Request, ShortText
from glassformer.explain.streams import StreamName, words_read
from glassformer.nn.embeddings import TokenEmbedding
from glassformer.tasks import Task
from glassformer.text.tokenizer import UNK
from glassformer.utils.console import announced
from glassformer.utils.formatting import counted, shortened

MAX_LOGITS = 1 << 26
"""Maximum logits per batch, a quarter of a gigabyte."""


@dataclass(frozen=True, eq=False)
class ValueFunction:
    """The model's preference of a class or token (over another), or its number, as a function of the erased words.

    A difference of two logits is also that of their log-probabilities. What is erased is a row of flags for each
    variant, over words, or over the T tokens of all streams.

    Attributes:
        model: the model.
        inputs: its arguments by name, a batch of one; of a decoder the tokens up to the explained position.
        words: for each token of a stream the number of its word among the words of all streams, or -1: special tokens,
            padding, and what follows the explained position are never erased. By stream, in order.
        position: None for a classifier; else the position that is explained, of a decoder the last.
        measure: the quantity, of logits with one row.
        erase_id: the id that replaces an erased token.
    """

    model: nn.Module
    inputs: dict[str, Any]
    words: dict[StreamName, Int[np.ndarray, " L"]]
    position: int | None
    measure: Measure
    erase_id: int

    @property
    def word_of(self) -> Int[np.ndarray, " T"]:
        """Return `words` of all streams together."""
        return np.concatenate([*self.words.values()])

    @property
    def n_words(self) -> int:
        """Return the number of words of all streams."""
        return int(self.word_of.max(initial=-1)) + 1

    @property
    def embeddings(self) -> list[TokenEmbedding]:
        """Return the embedding of each stream; one module may embed both."""
        names = ["embedding"] if len(self.words) == 1 else ["src_embedding", "tgt_embedding"]
        return [cast(TokenEmbedding, getattr(self.model, name)) for name in names]

    def by_stream(self, x: np.ndarray) -> dict[StreamName, np.ndarray]:
        """Return the part of each stream of an array whose last axis is all tokens."""
        ends = np.cumsum([len(words) for words in self.words.values()])
        return dict(zip(self.words, np.split(x, ends[:-1], axis=-1), strict=True))

    def tokens_of(self, words: Bool[np.ndarray, "N W"]) -> Bool[np.ndarray, "N T"]:
        """Return the erased tokens, given the erased words."""
        return np.pad(words, ((0, 0), (0, 1)))[:, self.word_of]  # a last column of False, for the tokens of word -1

    def sum_over_words(self, scores: Float[np.ndarray, " T"]) -> Float[np.ndarray, " W"]:
        """Return the scores of words, given those of tokens: the sum over the word's tokens."""
        return np.bincount(self.word_of + 1, scores, self.n_words + 1)[1:]

    def quantity(self, logits: Float[Tensor, "N C"]) -> Float[Tensor, " N"]:
        """Return the explained quantity from the logits of N variants."""
        return self.measure.of(logits[:, None])[:, 0]

    def repeated(self, n: int) -> dict[str, Any]:
        """Return the arguments of the model for n variants."""
        return {name: repeated(value, n) for name, value in self.inputs.items()}

    def erased(self, tokens: Bool[np.ndarray, "N T"]) -> dict[str, Any]:
        """Return the arguments of the model for N variants: an erased token loses its n-grams, as one in training."""
        inputs = self.repeated(len(tokens))
        for name, part in self.by_stream(tokens).items():
            mask = torch.from_numpy(np.ascontiguousarray(part)).to(inputs[INPUTS[name]].device)
            inputs[INPUTS[name]] = inputs[INPUTS[name]].masked_fill(mask, self.erase_id)
            if (ngrams := inputs.get("ngram_batch")) is not None:
                inputs["ngram_batch"] = replace(ngrams, index=ngrams.index.masked_fill(mask, 0))
        return inputs

    def logits(self, inputs: Mapping[str, Any], vectors: Sequence[Tensor] = ()) -> Float[Tensor, "N C"]:
        """Return the logits at the explained position of N variants.

        Args:
            inputs: arguments of the model.
            vectors: (N, L, D) per stream: embeddings to use instead of those of the ids, with their n-grams, before
                positions are added.
        """
        remaining = iter(vectors)

        def replaced(module: nn.Module, args: tuple[Any, ...], _: Any, output: Tensor) -> Tensor:
            embedding, x = cast(TokenEmbedding, module), next(remaining)
            x = x if embedding.positions is None else x + embedding.positions(args[1])
            return x if embedding.norm is None else embedding.norm(x)

        with after_calls(self.embeddings if vectors else (), replaced):
            logits = exact_forward(self.model, **inputs)
        return logits if logits.dim() < 3 else logits[:, -1]

    def erased_logits(
        self, tokens: Bool[np.ndarray, "N T"], of: Callable[[Tensor], Tensor] = lambda logits: logits
    ) -> Tensor:
        """Return the logits (N, C) at the explained position of N variants, or a function of them, in batches."""
        n_logits = 1 if self.position is None else self.embeddings[-1].weight.shape[0]
        size = max(1, min(BATCH_TOKENS, MAX_LOGITS // n_logits) // tokens.shape[1])
        # Equal variants are evaluated once: a kernel may round two rows of a batch differently.
        rows, row_of = np.unique(tokens, axis=0, return_inverse=True)
        starts, found = range(0, len(rows), size), list[Tensor]()
        with exact_no_grad(self.model):
            for start in announced(starts, len(starts), "weighed the words in"):
                found.append(of(self.logits(self.erased(rows[start : start + size]))))
        return torch.cat(found)[torch.from_numpy(row_of.reshape(-1))]

    def embedded(self, tokens: Bool[np.ndarray, "N T"]) -> list[Float[Tensor, "N _ D"]]:
        """Return the embeddings of N variants by stream before positions, with n-grams and all else that is added."""
        found: list[Tensor] = []

        def keep(module: nn.Module, args: tuple[Any, ...], *_: Any) -> None:
            embedding = cast(TokenEmbedding, module)
            found.append(sum(args[2:], start=F.embedding(args[0], embedding.weight) * embedding.scale))

        with exact_no_grad(self.model), after_calls(self.embeddings, keep):
            self.logits(self.erased(tokens))
        return found

    def values(self, words: Bool[np.ndarray, "N W"]) -> Float[np.ndarray, " N"]:
        """Return the quantity of N variants, given the erased words."""
        return self.erased_logits(self.tokens_of(words), self.quantity).double().cpu().numpy()

    def baseline_and_value(self) -> tuple[float, float]:
        """Return the quantity with every word erased, and with none."""
        baseline, value = self.values(np.array([[True], [False]]).repeat(self.n_words, axis=1))
        return float(baseline), float(value)


Method = Literal["erase", "integrated_gradients"]
METHODS: dict[Method, str] = {"erase": "leave-one-out", "integrated_gradients": "integrated gradients"}
Positions = Annotated[list[Id], Meta(max_length=MAX_PREFIX)]
INPUTS = {"text": "ids", "source": "src", "target": "tgt_in"}
"""The argument of the model that holds each stream."""


@dataclass(frozen=True)
class AttributeRequest(Request):
    """The prediction to explain, and the method; or the tokens to erase, and the prediction to repeat without them."""

    trace: ShortText = ""
    method: Method = "erase"
    prediction: Id | None = None
    """Index into `predictions`; default: the first generated token."""
    target: Id | None = None
    """Class or token id; default: the predicted class, or the token that follows."""
    foil: Id | None = None
    """Class or token id to contrast with; default: the second most probable class, or none for tokens."""
    erase: Annotated[dict[StreamName, Positions], "Partial<Record<StreamName, number[]>>"] = field(default_factory=dict)
    """Positions of the tokens to erase, by stream."""


def make_value_function(explanation: Explanation, request: AttributeRequest) -> ValueFunction:
    """Return the value function of a request."""
    if explanation.edited is not None:
        raise UsageError("words are weighed without edits only", "take the explanation without edits")
    measure = _measure_of(explanation, request, prediction_index(explanation, request.prediction))
    [position] = measure.positions
    # Cloned, so that inference tensors can take part in autograd.
    inputs = {n: x.clone() if isinstance(x, Tensor) else x for n, x in explanation.model_inputs.items()}
    if explanation.decode.masked is not None:
        inputs["selected"] = torch.arange(inputs["ids"].shape[1], device=inputs["ids"].device)[None] == position
    elif position is not None:  # what a decoder's prediction depends on
        last = INPUTS[explanation.streams[-1].name]
        inputs[last] = inputs[last][:, : position + 1]
    words, numbers = dict[StreamName, np.ndarray](), dict[tuple[str, int], int]()
    for stream in explanation.streams:
        of = zip(stream.words[: inputs[INPUTS[stream.name]].shape[1]], stream.special, strict=False)
        keys = [None if word < 0 or special else (stream.name, word) for word, special in of]
        found = [-1 if key is None else numbers.setdefault(key, len(numbers)) for key in keys]
        words[stream.name] = np.array(found, dtype=np.int64)
    return ValueFunction(
        model=explanation.subject.model,
        inputs=inputs,
        words=words,
        position=position,
        measure=replace(measure, rows=(0,)),
        erase_id=erase_id(explanation.subject.task),
    )


def _measure_of(explanation: Explanation, request: AttributeRequest, row: int) -> Measure:
    """Return the quantity: of a class a difference, of a token its log-probability where the request has no foil."""
    classes, n_ids = explanation.is_classifier, output_of(explanation.records).shape[-1]
    for name, value in (("target", request.target), ("foil", request.foil)):
        if value is not None and value >= n_ids:
            kind = "class" if classes else "token"
            raise UsageError(f"{name} {value} is no {kind}", f"ids run from 0 to {n_ids - 1}")
    if explanation.is_number:
        return measure_of_answer(explanation)
    difference = measure_of_difference(explanation, row, request.target, request.foil)
    if request.foil is not None and difference.ids == (request.foil,):
        message = f"target and foil are both {request.foil}"
        raise UsageError(message, "choose another class or token to contrast with")
    return difference if classes or request.foil is not None else replace(difference, foil=None)


def uses_mask_token(task: Task) -> bool:
    """Return True if the model was trained with words replaced by [MASK]; a pretrained encoder was."""
    t = task.tokenizer
    if t.special is not None:
        return t.mask_id >= 0
    return task.explain_as == "masked_language_model" or task.config.train.word_mask_prob > 0


def erase_id(task: Task) -> int:
    """Return the id of the token that replaces an erased one; without [MASK] and [UNK] that of padding."""
    t = task.tokenizer
    return t.mask_id if uses_mask_token(task) else t.unk_id if t.unk_id >= 0 else t.pad_id


def leave_one_out(value_fn: ValueFunction) -> Float[np.ndarray, " T"]:
    """Return the score of each token: its share of the drop when its word is erased.

    All tokens of a word are erased together and share the drop equally, so the scores of a word's tokens sum to it.
    Scores of different words need not sum to anything: of two words with one meaning, erasing either changes little.
    """
    n, word_of = value_fn.n_words, value_fn.word_of
    values = value_fn.values(np.concatenate([np.zeros((1, n), dtype=bool), np.eye(n, dtype=bool)]))
    shares = (values[0] - values[1:]) / np.maximum(value_fn.sum_over_words(np.ones(len(word_of))), 1)
    return np.append(shares, 0.0)[word_of]  # a last 0, for the tokens of word -1


PANEL = 8
"""Points of a panel, a part of the path that is integrated and checked by itself."""
MIN_STEPS, MAX_STEPS = 16, 1024
TOLERANCE = 0.02
"""Maximum error, relative to |f(x) − f(x')|."""
MIN_RANGE = 1e-6
"""Minimum |f(x) − f(x')| to divide an error by."""


@dataclass(frozen=True)
class Completeness:
    """The difference of the sum of the scores from f(x) − f(x'), to which it must be equal (section 3 of the paper)."""

    relative: float
    """|sum of scores − (f(x) − f(x'))|, divided by |f(x) − f(x')|."""
    n_steps: int
    """Number of points of the path at which a gradient was computed."""
    ok: bool
    """The relative error is at most 2%."""
    token_error: float
    """Estimate of the largest error of a token's score, as errors can cancel in the sum: the difference from a second
    quadrature rule with one more point in each panel."""


def integrated_gradients(
    value_fn: ValueFunction, min_steps: int = MIN_STEPS, max_steps: int = MAX_STEPS, tolerance: float = TOLERANCE
) -> tuple[Float[np.ndarray, " T"], Completeness]:
    """Return the score of each token, and the error of their sum.

    It uses Gauss–Legendre quadrature in panels of 8 points. No fixed number of steps suffices for every text, as
    gradients can change abruptly anywhere on the path; so a panel whose scores do not sum to the change of f between
    its ends is halved, which doubles the steps there only.

    Args:
        value_fn: f.
        min_steps: the number of points to start with.
        max_steps: the number of points after which an error above the tolerance is accepted and reported.
        tolerance: the maximum sum of the panels' errors, relative to |f(x) − f(x')|. It bounds the error of the
            sum and is stricter, since errors of opposite sign do not cancel in it.
    """
    along, n_panels = path(value_fn), max(1, min_steps // PANEL)
    edges = np.arange(n_panels + 1) / n_panels
    parts = np.stack([edges[:-1], edges[1:]], axis=1)
    change, scores = _integrals(along, parts)
    f_range = float(change.sum())
    allowed = tolerance * max(abs(f_range), MIN_RANGE)
    n_steps = PANEL * n_panels
    while (errors := np.abs(scores.sum(axis=1) - change)).sum() > allowed:
        bad = np.flatnonzero(errors > allowed * (parts[:, 1] - parts[:, 0]))
        bad = bad[np.argsort(-errors[bad], kind="stable")][: (max_steps - n_steps) // (2 * PANEL)]
        if not len(bad):
            break
        (start, end), middle = parts[bad].T, parts[bad].mean(axis=1)
        halves = np.concatenate([np.stack([start, middle], axis=1), np.stack([middle, end], axis=1)])
        changes, more = _integrals(along, halves)
        parts = np.concatenate([np.delete(parts, bad, axis=0), halves])
        change = np.concatenate([np.delete(change, bad), changes])
        scores = np.concatenate([np.delete(scores, bad, axis=0), more])
        n_steps += PANEL * len(halves)
    total = scores.sum(axis=0)
    relative = abs(float(total.sum()) - f_range) / max(abs(f_range), MIN_RANGE)
    second = _integrals(along, parts, PANEL + 1)[1].sum(axis=0)
    token_error = float(np.abs(second - total).max(initial=0.0))
    complete = relative <= tolerance or value_fn.n_words == 0
    return total, Completeness(relative, n_steps, complete, token_error)


Along = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""A function that returns f at N points of the path (N,), and its derivative along the path by token, (N, T)."""


def _integrals(along: Along, parts: Float[np.ndarray, "P 2"], n_points: int = PANEL) -> tuple[np.ndarray, np.ndarray]:
    """Return the change of f over parts of the path (P,), and what each token contributes to it, (P, T)."""
    x, w = np.polynomial.legendre.leggauss(n_points)
    within = np.array([0.0, *(x + 1) / 2, 1.0])  # with both ends, for the values of f there
    start, end = parts.T[:, :, None]
    values, slopes = along((start + (end - start) * within).ravel())
    values = values.reshape(len(parts), n_points + 2)
    slopes = slopes.reshape(len(parts), n_points + 2, -1)[:, 1:-1]
    return values[:, -1] - values[:, 0], (slopes * (w / 2)[:, None]).sum(axis=1) * (end - start)


def path(value_fn: ValueFunction) -> Along:
    """Return f along the straight line from the erased text (0) to the text (1)."""
    starts, ends = (
        value_fn.embedded(value_fn.tokens_of(np.full((1, value_fn.n_words), erased))) for erased in (True, False)
    )
    differences = [end - start for end, start in zip(ends, starts, strict=True)]  # (1, L, D) each
    size = max(1, BATCH_TOKENS // len(value_fn.word_of))

    def along(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, slopes = [], []
        with exact_inference(value_fn.model), torch.inference_mode(False), torch.enable_grad():
            for alpha in torch.from_numpy(points).to(differences[0]).split(size):
                vectors = [
                    (s + alpha[:, None, None] * d).requires_grad_() for s, d in zip(starts, differences, strict=True)
                ]
                value = value_fn.quantity(value_fn.logits(value_fn.repeated(len(alpha)), vectors))
                gradients = torch.autograd.grad(value.sum(), vectors)
                each = [(g * d).sum(dim=-1) for g, d in zip(gradients, differences, strict=True)]
                values.append(value.detach())
                slopes.append(torch.cat(each, dim=1))
        return torch.cat(values).double().cpu().numpy(), torch.cat(slopes).double().cpu().numpy()

    return along


SHARES = (0.1, 0.2, 0.5)
"""Shares of the words that are erased or kept; the drops are averaged."""
MAX_RANDOM, MIN_RANDOM = 200, 100
RANDOM_TOKENS = 160_000
"""Maximum tokens evaluated for random rankings: texts of more than 130 tokens get fewer, but at least 100."""
SEED = 0


@dataclass(frozen=True)
class Faithfulness:
    """A mean drop, compared with that of random rankings."""

    value: float
    random_mean: float
    random_low: float
    """2.5th percentile of random rankings."""
    random_high: float
    """97.5th percentile of random rankings."""
    beats_random: bool
    """The value is better than that interval."""


def mean_drops(value_fn: ValueFunction, rankings: Int[np.ndarray, "R W"]) -> Float[np.ndarray, "R 2"]:
    """Return comprehensiveness and sufficiency of each ranking (word numbers, best first).

    Comprehensiveness is the mean drop when the top 10%, 20% and 50% of the words are erased (a good ranking: large);
    sufficiency is the mean drop when only they are kept (a good ranking: small). At least one word is erased or kept.
    """
    n_rankings, n = rankings.shape
    if n == 0:
        return np.zeros((n_rankings, 2))
    # (R, W): the rank of each word.
    rank = np.argsort(rankings, axis=1)
    top = [rank < n_top for n_top in _share_sizes(n)]
    erased = np.concatenate([np.zeros((1, n), dtype=bool), *top, *(~t for t in top)])
    values = value_fn.values(erased)
    return (values[0] - values[1:].reshape(2, len(SHARES), n_rankings)).mean(axis=1).T


def _share_sizes(n_words: int) -> list[int]:
    """Return the number of words of each share, at least one."""
    # Less 1e-9, as 10% of 30 is 3.0000000000000004.
    return [max(1, math.ceil(share * n_words - 1e-9)) for share in SHARES]


def random_mean_drops(value_fn: ValueFunction) -> Float[np.ndarray, "R 2"]:
    """Return `mean_drops` of random rankings from a fixed seed: of 200, or down to 100 for a long text."""
    affordable = RANDOM_TOKENS // (2 * len(SHARES) * len(value_fn.word_of))
    n_rankings = min(MAX_RANDOM, max(MIN_RANDOM, affordable))
    rng = np.random.default_rng(SEED)
    rankings = [rng.permutation(value_fn.n_words) for _ in range(n_rankings)]
    return mean_drops(value_fn, np.array(rankings, dtype=np.int64).reshape(n_rankings, value_fn.n_words))


def faithfulness(
    value_fn: ValueFunction, scores: Float[np.ndarray, " W"], random: Float[np.ndarray, "R 2"]
) -> tuple[Faithfulness, Faithfulness]:
    """Return comprehensiveness and sufficiency of the ranking by these scores, largest first."""
    value = mean_drops(value_fn, np.argsort(-scores, kind="stable")[None])[0]
    low, high = np.percentile(random, [2.5, 97.5], axis=0)
    beats = [bool(value[0] > high[0]), bool(value[1] < low[1])]
    rows = np.stack([value, random.mean(axis=0), low, high], axis=1).tolist()
    first, second = (Faithfulness(*row, beats_random=better) for row, better in zip(rows, beats, strict=True))
    return first, second


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
    request, known = request or AttributeRequest(), explanation.random_drops
    value_fn = make_value_function(explanation, request)
    measure = value_fn.measure
    baseline, value = value_fn.baseline_and_value()
    if request.method == "erase":
        scores, completeness = leave_one_out(value_fn), None
    else:
        scores, completeness = integrated_gradients(value_fn)
    if measure not in known:
        known[measure] = random_mean_drops(value_fn)
    tests = faithfulness(value_fn, value_fn.sum_over_words(scores), known[measure])
    logits = value_fn.erased_logits(np.zeros((1, len(scores)), dtype=bool))[0]
    of = value_fn.by_stream(scores)
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
        word_texts={s.name: words_read(s, len(of[s.name])) for s in explanation.streams},
        completeness=completeness,
        comprehensiveness=tests[0],
        sufficiency=tests[1],
        n_random=len(known[measure]),
        erased_with=explanation.subject.task.tokenizer.tokens([value_fn.erase_id])[0],
        warnings=_warnings(explanation, value_fn, completeness, *tests),
        prediction=prediction_index(explanation, request.prediction),
    )


def erase(explanation: Explanation, request: AttributeRequest) -> Erased:
    """Return the prediction with the tokens of the request erased together."""
    return _erase_each(explanation, make_value_function(explanation, request), request, [request.erase])[0]


def erase_words(explanation: Explanation, prediction: int | None) -> list[tuple[dict[str, list[int]], Erased]]:
    """Return the positions of each word that a prediction depends on, by stream, and the prediction without it."""
    request = AttributeRequest(prediction=prediction)
    value_fn = make_value_function(explanation, request)
    by_stream = value_fn.words.items()
    places = [{name: np.flatnonzero(of == i).tolist()} for name, of in by_stream for i in np.unique(of[of >= 0])]
    return list(zip(places, _erase_each(explanation, value_fn, request, places), strict=True))


def _erase_each(
    explanation: Explanation,
    value_fn: ValueFunction,
    request: AttributeRequest,
    erasures: Sequence[Mapping[Any, Sequence[int]]],
) -> list[Erased]:
    """Return the prediction without the tokens of each of these erasures, all in one batch."""
    n, streams = len(erasures), {stream.name: stream for stream in explanation.streams}
    for name, position in ((name, i) for erasure in erasures for name, positions in erasure.items() for i in positions):
        if name not in streams or position >= len(streams[name]) or streams[name].special[position]:
            hint = f"this model reads {', '.join(streams)}, and special tokens are not erased"
            raise UsageError(f"erase.{name}: there is no token to erase at position {position}", hint)
    # The prediction does not depend on positions after those that the value function reads.
    by_stream = value_fn.words.items()
    erased = [np.isin(np.arange(len(of)), each.get(name, ())) for each in (*erasures, {}) for name, of in by_stream]
    logits = value_fn.erased_logits(np.concatenate(erased).reshape(n + 1, -1))
    *values, original = value_fn.quantity(logits).tolist()
    # A number is no choice: as a prediction it has the probability 1, and none follows.
    row = prediction_index(explanation, request.prediction)
    actual = None if explanation.is_number else explanation.predictions[row].actual
    following = [None if actual is None else actual.id] * n
    predictions = top_predictions(explanation.subject.task, logits[:n], [value_fn.position] * n, following)
    return [Erased(prediction, value, original) for prediction, value in zip(predictions, values, strict=True)]


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
    n, several = value_fn.n_words, len(explanation.streams) > 1
    if n == 0:
        return ["there is no word to erase"]
    masks, single = uses_mask_token(explanation.subject.task), _share_sizes(n).count(1)
    sentences = {
        f"the model was not trained with word masking: a text with {UNK} is unlike its training data, "
        "which is part of the effect of erasing": not masks,
        "source words were masked in training, but target words never were": masks and several,
        "the sum of the scores is off by more than 2% of the range: rely only on the largest scores": (
            completeness is not None and not completeness.ok
        ),
        f"{single} of the {len(SHARES)} parts of comprehensiveness erase a single word, as leave-one-out does: "
        "there this ranking is the best possible by construction": completeness is None and single > 0,
        f"only {counted(n, 'words')} can be erased, and random rankings of so few words are often as good as the "
        "best": n < MIN_WORDS,
        "this ranking of words is no more faithful to the model than random rankings": (
            n >= MIN_WORDS and not any(test.beats_random for test in tests)
        ),
    }
    return [sentence for sentence, holds in sentences.items() if holds]
