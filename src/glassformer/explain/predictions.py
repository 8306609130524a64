"""What a model predicts for a text: the answer in one line, candidates of each step, and how it was decoded.

Of an ensemble one model is explained; the answer of all of them goes with it.

The search is that of `decode/search.py` and sampling that of `decode/sampling.py`, as `predict` uses them, run here for
one text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypedDict

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from glassformer.config import DecodeConfig
from glassformer.decode.incremental import ModelDecoder, TranslationDecoder
from glassformer.decode.jobs import translate_ids
from glassformer.decode.sampling import sample
from glassformer.decode.search import Hypothesis, SearchStep, beam_search
from glassformer.errors import DivergedError, UsageError
from glassformer.explain.capture.exact_inference import exact_no_grad
from glassformer.explain.capture.sites import Step
from glassformer.models import LanguageModel, Translator
from glassformer.models.ensemble import Ensemble
from glassformer.tasks import Task
from glassformer.text.answers import Decision, number_text, written_number
from glassformer.text.long_text import length_limit
from glassformer.text.tokenizer import Tokenizer
from glassformer.utils.formatting import shortened


class Answer(TypedDict):
    """The model's output in one line, with its probability."""

    headline: str
    """A class, a number, a translation, a continuation; of a bare encoder the first numbers of its vector."""
    detail: str
    """Its probability in percent, or its log-probability; of a vector its length; of a number mean + sd × output."""


@dataclass(frozen=True)
class EnsembleMember:
    """The model of an ensemble that is traced."""

    size: int
    """Number of models in the ensemble."""
    member: int
    """Which of them is traced, counted from 0."""
    answer: Answer
    """Answer of all models together; the answer of an explanation is that of this member."""

    def warning(self, own: Answer) -> str:
        """Return the answer of all models and that of the one that is explained."""
        all_of = f"{shortened(self.answer['headline'], 80)} ({self.answer['detail']})"
        one = f"{shortened(own['headline'], 80)} ({own['detail']})"
        return f"all {self.size} models together answer {all_of}; member {self.member}, shown here, answers {one}"


SHOWN = 4
"""Numbers of a vector in a headline."""


def vector_answer(vector: Tensor, before: Tensor | None = None) -> Answer:
    """Return the answer of a bare encoder: the first numbers of its vector (P,), and its length.

    Of an edited pass in place of the length the cosine with the vector `before` the edits.
    """
    numbers = " ".join(f"{x:.4f}" for x in vector[:SHOWN].tolist()).replace("-", "−")
    detail = f"length {vector.norm().item():.3f}"
    if before is not None:
        detail = (
            f"cosine {nn.functional.cosine_similarity(vector, before, dim=0).item():.4f} with the vector without edits"
        )
    more = " …" if len(vector) > SHOWN else ""
    return {"headline": f"{numbers}{more} ({len(vector)} numbers)", "detail": detail}


NUMBER = "number"
"""What the only output of a regressor is called."""


def number_answer(decision: Decision, output: Tensor, before: Tensor | None = None) -> Answer:
    """Return the answer of a regressor: the number of its output (1,), and how it is computed from that.

    Of an edited pass in place of that the change from the output `before` the edits.
    """
    number, (mean, sd) = float(decision.numbers(output.cpu().numpy()).item()), decision.scale
    detail = f"{number_text(mean)} + {number_text(sd)} × {output.item():.4f}"
    if before is not None:
        was = float(decision.numbers(before.cpu().numpy()).item())
        detail = f"{number - was:+.4g} from {number_text(was)} without edits"
    return {"headline": written_number(number), "detail": detail.replace("-", "−")}


def class_answer(prediction: Prediction) -> Answer:
    """Return the answer of a classifier: its most probable class."""
    best = prediction.top[0]
    p = math.exp(best.log_prob)
    return {"headline": best.piece, "detail": ">99.9%" if p > 0.999 else f"{100 * p:.1f}%"}


def text_answer(text: str, decode: DecodeLog) -> Answer:
    """Return the answer of a translator or language model: its best text, with the log-probability of that."""
    best = decode.hypotheses[0]
    log_prob = f"{best.log_prob:.3g}".replace("-", "−")
    n = len(best.ids) + best.finished
    tokens = "1 token" if n == 1 else f"{n} tokens"
    truncated = "" if best.finished or decode.kind == "given" else ", truncated before its end"
    return {"headline": text, "detail": f"log-probability {log_prob} over {tokens}{truncated}"}


MAX_CANDIDATES = 50
"""Maximum candidates of a prediction."""


@dataclass(frozen=True)
class Candidate:
    """A class or token with its logit and log-probability (nats)."""

    id: int
    piece: str
    """The class, or the token in readable form."""
    logit: float
    log_prob: float


@dataclass(frozen=True)
class NextToken(Candidate):
    """The token that actually follows."""

    rank: int
    """Number of tokens with a larger logit."""


@dataclass(frozen=True)
class Prediction:
    """The prediction at one position, or for a whole text."""

    position: int | None
    """null: for the whole text, by a classifier."""
    logsumexp: float
    top: list[Candidate]
    """At most 50, best first; all classes, for a classifier."""
    actual: NextToken | None
    """The token that actually follows."""


def top_predictions(
    task: Task, logits: Float[Tensor, "N C"], positions: Sequence[int | None], following: Sequence[int | None]
) -> list[Prediction]:
    """Return the predictions at N positions.

    Args:
        task: the task, with its classes or tokenizer.
        logits: the logits at each position.
        positions: the index of each position in its stream; None for a classifier.
        following: the token after each position, None where nothing follows.
    """
    if not positions:  # of a bare encoder, or a regressor
        return []
    values = logits.detach().cpu().numpy()
    if not np.isfinite(values).all():
        raise DivergedError(
            "the model's logits are NaN or infinite, so there is nothing to explain",
            hint="the model diverged in training: use an earlier checkpoint",
        )
    n_top = min(MAX_CANDIDATES, values.shape[1])
    best = np.argpartition(-values, n_top - 1, axis=1)[:, :n_top]
    # By logit, then by id: of equal logits a greedy search takes the first.
    order = np.lexsort((best, -np.take_along_axis(values, best, axis=1)), axis=1)
    best = np.take_along_axis(best, order, axis=1)
    wide = values.astype(np.float64)
    peak = wide.max(axis=1)
    norms = peak + np.log(np.exp(wide - peak[:, None]).sum(axis=1))
    texts: dict[int, str] = {}

    def candidate(row: int, i: int) -> dict[str, Any]:
        if i not in texts:
            texts[i] = readable(task, i)
        logit = values[row, i]
        log_prob = round(float(logit) - float(norms[row]), 7)
        return {"id": i, "piece": texts[i], "logit": shortest_float(logit), "log_prob": log_prob}

    predictions: list[Prediction] = []
    for row, (position, token) in enumerate(zip(positions, following, strict=True)):
        top = [Candidate(**candidate(row, i)) for i in best[row].tolist()]
        actual = None
        if token is not None:
            rank = int((values[row] > values[row, token]).sum())
            actual = NextToken(**candidate(row, token), rank=rank)
        predictions.append(Prediction(position, float(norms[row]), top, actual))
    return predictions


def finite(output: Tensor) -> Tensor:
    """Return the output of a model; raise DivergedError for NaN or infinity."""
    if not output.isfinite().all():
        message = "the model's output is NaN or infinite, so there is nothing to explain"
        raise DivergedError(message, "the model diverged in training: use an earlier checkpoint")
    return output


def rows_of(logits: Float[Tensor, "*P C"]) -> Float[Tensor, "N C"]:
    """Return logits with a row per prediction: a classifier has one, of the whole text."""
    return logits.reshape(-1, logits.shape[-1])


def output_of(records: Mapping[str, Step]) -> Tensor:
    """Return the output of a model: its logits, or the vector (P,) of a bare encoder."""
    return records["logits" if "logits" in records else "pooled"].value


def readable(task: Task, id: int) -> str:
    """Return the class, or the token in readable form."""
    if task.explain_as == "regressor":
        return NUMBER
    return task.label_names[id] if task.label_names else task.tokenizer.tokens([id])[0]


def shortest_float(x: np.floating[Any]) -> float:
    """Return a float32 as the shortest decimal that rounds to it: as exact, and half as long in JSON."""
    return float(str(np.float32(x)))


SCORING_FIELDS = frozenset({"bleu_tokenize"})
"""Fields of `DecodeConfig` about how translations are scored, not how they are decoded."""


@dataclass(frozen=True)
class BeamCandidate:
    """One extension of one hypothesis."""

    parent: int
    """Row among the live hypotheses of the previous step; 0 in the first step."""
    id: int
    piece: str
    log_prob: float
    """Log-probability of this token."""
    total: float
    """Sum of log-probabilities so far."""
    score: float
    """total / length ** length_penalty."""
    row: int | None
    """Row among the live hypotheses after this step; null: pruned or finished."""
    finished: bool


@dataclass(frozen=True)
class LoggedHypothesis:
    """One decoded text."""

    ids: list[int]
    pieces: list[str]
    text: str
    score: float
    log_prob: float
    finished: bool
    end: tuple[int, int] | None
    """Step, and index among the candidates of that step, of its last candidate."""

    @staticmethod
    def from_hypothesis(h: Hypothesis, tokenizer: Tokenizer, end: tuple[int, int] | None = None) -> LoggedHypothesis:
        """Return a hypothesis with its tokens and text."""
        text = tokenizer.decode(h.ids)
        return LoggedHypothesis(h.ids, tokenizer.tokens(h.ids), text, h.score, h.log_prob, h.finished, end)


@dataclass(frozen=True)
class DecodeLog:
    """How the target was decoded."""

    kind: Literal["beam", "sample", "given", "none"]
    """given: the target was part of the request; none: a classifier."""
    settings: DecodeConfig
    """Settings of decoding."""
    hypotheses: list[LoggedHypothesis] = field(default_factory=list)
    """Best first: the `n_best` results, then the other finished hypotheses of a beam search."""
    steps: list[list[BeamCandidate]] = field(default_factory=list)
    """The candidates of each step of a beam search, best first."""
    prefix: list[int] = field(default_factory=list)
    """Ids of the forced prefix."""


def settings_json(settings: DecodeConfig) -> dict[str, Any]:
    """Return the settings of decoding, without those of scoring, as JSON data."""
    return {name: value for name, value in asdict(settings).items() if name not in SCORING_FIELDS}


class SearchRecorder:
    """A `SearchLog` for one sentence that keeps the candidates of each step and the tokens of each live hypothesis."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.steps: list[list[BeamCandidate]] = []
        self.finished: list[tuple[Hypothesis, tuple[int, int]]] = []
        self.live: dict[int, tuple[list[int], tuple[int, int] | None]] = {0: ([], None)}  # row: ids, end
        self._tokenizer = tokenizer

    def __call__(self, step: SearchStep) -> None:
        tensors = (step.parent, step.token, step.log_prob, step.total, step.score, step.row, step.finished)
        rows = zip(*(tensor[0].tolist() for tensor in tensors), strict=True)
        alive: dict[int, tuple[list[int], tuple[int, int] | None]] = {}
        candidates: list[BeamCandidate] = []
        for parent, token, log_prob, total, score, row, finished in rows:
            if total == float("-inf"):
                continue
            ids, end = self.live[parent][0], (len(self.steps), len(candidates))
            if finished:
                self.finished.append((Hypothesis(ids, score, total, True), end))
            if row >= 0:
                alive[row] = ([*ids, token], end)
            text = self._tokenizer.tokens([token])[0]
            live_row = row if row >= 0 else None
            candidates.append(BeamCandidate(parent, token, text, log_prob, total, score, live_row, finished))
        self.steps.append(candidates)
        self.live = alive

    def hypotheses(self, results: Sequence[Hypothesis]) -> list[LoggedHypothesis]:
        """Return the results of the search, then the other finished hypotheses, each with its last candidate."""
        ends = {(tuple(h.ids), True): end for h, end in self.finished}
        ends |= {(tuple(ids), False): end for ids, end in self.live.values() if end is not None}
        returned = {tuple(h.ids) for h in results if h.finished}
        others = sorted((h for h, _ in self.finished if tuple(h.ids) not in returned), key=lambda h: -h.score)
        return [
            LoggedHypothesis.from_hypothesis(h, self._tokenizer, ends.get((tuple(h.ids), h.finished)))
            for h in (*results, *others)
        ]


def translate(
    model: Translator | Ensemble, tokenizer: Tokenizer, source: Sequence[int], config: DecodeConfig, prefix: list[int]
) -> DecodeLog:
    """Translate one source (EOS included) as `Translate.predict` does, and return the log."""
    t = tokenizer
    bos, eos, pad = t.bos_id, t.eos_id, t.pad_id
    if config.sample:
        forced = [prefix] if prefix else None
        with exact_no_grad(model):
            results = translate_ids(model, [source], config, (pad, bos, eos), prefixes=forced)[0]
        return DecodeLog("sample", config, [LoggedHypothesis.from_hypothesis(h, t) for h in results], prefix=prefix)
    limit = length_limit(len(source), model.max_len, config.max_new_tokens)
    if len(prefix) >= limit:
        raise UsageError(
            f"a prefix of {len(prefix)} tokens leaves nothing to generate of the {limit} tokens allowed",
            "shorten the prefix or raise max_new_tokens",
        )
    recorder = SearchRecorder(t)
    with exact_no_grad(model):
        src = torch.tensor([list(source)], device=next(model.parameters()).device)
        decoder = TranslationDecoder(model, src)
        results = beam_search(decoder, [limit], config, bos=bos, eos=eos, pad=pad, prefixes=[prefix], log=recorder)[0]
    return DecodeLog("beam", config, recorder.hypotheses(results), recorder.steps, prefix)


def generate(
    model: LanguageModel | Ensemble,
    tokenizer: Tokenizer,
    prompt: Sequence[int],
    config: DecodeConfig,
    suppress_tokens: Sequence[int],
) -> tuple[DecodeLog, Hypothesis]:
    """Continue one prompt as `LanguageModelling.predict` does; return the log and the continuation."""
    t = tokenizer
    with exact_no_grad(model):
        decoder, limits = ModelDecoder(model), [config.max_new_tokens]
        found = sample(
            decoder, [prompt], config, limits=limits, rows=[0], eos=t.eos_id, suppress_tokens=suppress_tokens
        )
    return DecodeLog("sample", config, [LoggedHypothesis.from_hypothesis(found[0], t)]), found[0]
