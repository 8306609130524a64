"""How an answer was written, told step by step: the candidates of a beam search and the hypotheses they became.

The search itself is `decode/search.py`, sampling `decode/sampling.py`: the very functions that predict, run
here for one text. Nothing of the model's inside is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch

from glassformer.config import DecodeConfig
from glassformer.decode import (
    Hypothesis,
    Special,
    beam_search,
    sample,
    translate_ids,
    translating,
    writing,
)
from glassformer.decode.search_log import SearchStep
from glassformer.decode.translate import length_limit
from glassformer.errors import UsageError
from glassformer.explain.capture.exactly import asking
from glassformer.models import LanguageModel, Translator
from glassformer.models.ensemble import Ensemble
from glassformer.text.tokenizer import Tokenizer

OF_SCORING = frozenset({"bleu_tokenize"})
"""Settings of decoding that say how translations are scored."""


@dataclass(frozen=True)
class BeamCandidate:
    """One extension of one hypothesis."""

    parent: int
    """Row among the live hypotheses of the step before; of the first step always 0."""
    id: int
    piece: str
    log_prob: float
    """Of this token."""
    total: float
    """Sum of log-probabilities so far."""
    score: float
    """total / length ** length_penalty."""
    row: int | None
    """Row among the live hypotheses after this step; null: pruned, or finished."""
    finished: bool


@dataclass(frozen=True)
class LoggedHypothesis:
    """One text the model wrote."""

    ids: list[int]
    pieces: list[str]
    text: str
    score: float
    log_prob: float
    finished: bool
    end: tuple[int, int] | None
    """Step, and index in that step's candidates, of the one it ended with."""

    @staticmethod
    def of(h: Hypothesis, tokenizer: Tokenizer, end: tuple[int, int] | None = None) -> LoggedHypothesis:
        """A hypothesis as it is told to people."""
        text = tokenizer.decode(h.ids)
        return LoggedHypothesis(h.ids, tokenizer.pieces(h.ids), text, h.score, h.log_prob, h.finished, end)


@dataclass(frozen=True)
class DecodeLog:
    """How the target came about."""

    kind: Literal["beam", "sample", "given", "none"]
    """given: the user named the target; none: a classifier."""
    settings: DecodeConfig
    """What it was decoded with."""
    hypotheses: list[LoggedHypothesis] = field(default_factory=list)
    """Best first: the `n_best` answers, then whatever else a beam finished on its way."""
    steps: list[list[BeamCandidate]] = field(default_factory=list)
    """Of a beam search: the candidates looked at in each step, best first."""
    prefix: list[int] = field(default_factory=list)
    """Ids that were forced."""

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON."""
        told = asdict(self)
        told["settings"] = settings_json(self.settings)
        for hypothesis in told["hypotheses"]:
            hypothesis["end"] = None if hypothesis["end"] is None else list(hypothesis["end"])
        return told


def settings_json(settings: DecodeConfig) -> dict[str, Any]:
    """How a text is written, ready for JSON; how it would be scored is no part of that."""
    return {name: value for name, value in asdict(settings).items() if name not in OF_SCORING}


class SearchRecorder:
    """A `SearchLog` for one sentence: its candidates, and what each live row has written so far."""

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
            written, end = self.live[parent][0], (len(self.steps), len(candidates))
            if finished:
                self.finished.append((Hypothesis(written, score, total, True), end))
            if row >= 0:
                alive[row] = ([*written, token], end)
            piece = self._tokenizer.pieces([token])[0]
            place = row if row >= 0 else None
            candidates.append(BeamCandidate(parent, token, piece, log_prob, total, score, place, finished))
        self.steps.append(candidates)
        self.live = alive

    def hypotheses(self, found: Sequence[Hypothesis]) -> list[LoggedHypothesis]:
        """What the search returned, then the other finished ones, each with the candidate it ended in."""
        ends = {(tuple(h.ids), True): end for h, end in self.finished}
        ends |= {(tuple(ids), False): end for ids, end in self.live.values() if end is not None}
        told = {tuple(h.ids) for h in found if h.finished}
        others = sorted((h for h, _ in self.finished if tuple(h.ids) not in told), key=lambda h: -h.score)
        return [
            LoggedHypothesis.of(h, self._tokenizer, ends.get((tuple(h.ids), h.finished)))
            for h in (*found, *others)
        ]


def translate(
    model: Translator | Ensemble,
    tokenizer: Tokenizer,
    source: Sequence[int],
    config: DecodeConfig,
    prefix: list[int],
) -> DecodeLog:
    """Translate one source (EOS included) as `Translate.predict` does, and tell how.

    Raises:
        UsageError: settings that contradict each other, or a prefix as long as the translation may be.
    """
    t = tokenizer
    bos, eos, pad = t.bos_id, t.eos_id, t.pad_id
    if config.sample:
        forced = [prefix] if prefix else None
        with asking(model):
            found = translate_ids(model, [source], config, Special(pad, bos, eos), prefixes=forced)[0]
        return DecodeLog("sample", config, [LoggedHypothesis.of(h, t) for h in found], prefix=prefix)
    limit = length_limit(len(source), model.max_len, config.max_new_tokens)
    if len(prefix) >= limit:
        raise UsageError(
            f"a prefix of {len(prefix)} tokens leaves nothing to write of the {limit} that are allowed",
            "shorten the prefix or raise max_new_tokens",
        )
    recorder = SearchRecorder(t)
    with asking(model):
        src = torch.tensor([list(source)], device=next(model.parameters()).device)
        stepper = translating(model, src)
        found = beam_search(
            stepper, [limit], config, bos=bos, eos=eos, pad=pad, prefixes=[prefix], log=recorder
        )[0]
    return DecodeLog("beam", config, recorder.hypotheses(found), recorder.steps, prefix)


def write(
    model: LanguageModel | Ensemble,
    tokenizer: Tokenizer,
    prompt: Sequence[int],
    config: DecodeConfig,
    banned: Sequence[int],
) -> tuple[DecodeLog, Hypothesis]:
    """Continue one prompt as `LanguageModelling.predict` does, `banned` never written; the log, and the continuation."""
    t = tokenizer
    with asking(model):
        found = sample(
            writing(model), [prompt], config,
            limits=[config.max_new_tokens], rows=[0], eos=t.eos_id,
            banned=banned,
        )[0]  # fmt: skip
    return DecodeLog("sample", config, [LoggedHypothesis.of(found, t)]), found
