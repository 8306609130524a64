"""Log how a text is decoded: the candidates of each step of a beam search, and the hypotheses they become.

The search is that of `decode/search.py` and sampling that of `decode/sampling.py`, as `predict` uses them, run here for
one text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch

from glassformer.config import DecodeConfig
from glassformer.config.limits import length_limit
from glassformer.decode import Hypothesis, Special, beam_search, lm_decoder, sample, translate_ids, translation_decoder
from glassformer.decode.search_log import SearchStep
from glassformer.errors import UsageError
from glassformer.explain.capture.exact_inference import exact_no_grad
from glassformer.models import LanguageModel, Translator
from glassformer.models.ensemble import Ensemble
from glassformer.text.tokenizer import Tokenizer

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

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON data."""
        data: dict[str, Any] = asdict(self) | {"settings": settings_json(self.settings)}
        for hypothesis in data["hypotheses"]:
            hypothesis["end"] = None if hypothesis["end"] is None else list(hypothesis["end"])
        return data


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
            results = translate_ids(model, [source], config, Special(pad, bos, eos), prefixes=forced)[0]
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
        decoder = translation_decoder(model, src)
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
        limits = [config.max_new_tokens]
        result = sample(
            lm_decoder(model), [prompt], config, limits=limits, rows=[0], eos=t.eos_id, suppress_tokens=suppress_tokens
        )[0]
    return DecodeLog("sample", config, [LoggedHypothesis.from_hypothesis(result, t)]), result
