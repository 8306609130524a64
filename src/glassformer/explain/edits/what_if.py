"""What a model predicts under edits: the same text in one more forward pass, and decoded again.

The pass reads the tokens of the explanation, so that its numbers compare position by position; decoding again shows
what the model would say instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from glassformer.errors import UsageError
from glassformer.explain.capture.exact_inference import exact_forward
from glassformer.explain.edits.apply import Edits
from glassformer.explain.explanation_data import ExplanationData
from glassformer.explain.inputs.families import encode
from glassformer.explain.predictions import Prediction, top_predictions
from glassformer.explain.trace import Trace, trace
from glassformer.utils.device import tuned


@dataclass(frozen=True)
class Effect:
    """What edits change in one prediction.

    Attributes:
        position: position of the prediction; None for the whole text, by a classifier.
        target: the class or token that is followed: the model's own prediction, or the token that follows in the text.
        contrast: what it is compared with: what the edited model predicts instead, else the second most probable.
        before: the most probable class or token without edits.
        after: the same with edits.
        difference_before: logit of the target minus that of the contrast, without edits.
        difference_after: the same with edits.
        log_prob_before: log-probability of the target without edits, in nats.
        log_prob_after: the same with edits.
        rank_after: number of classes or tokens with a larger logit than the target, with edits.
        kl: Kullback–Leibler divergence of the distribution with edits from that without, in nats.
    """

    position: int | None
    target: str
    contrast: str
    before: str
    after: str
    difference_before: float
    difference_after: float
    log_prob_before: float
    log_prob_after: float
    rank_after: int
    kl: float


@dataclass(frozen=True, eq=False)
class WhatIf:
    """The result of edits on one explanation.

    Attributes:
        edits: the edits, as text.
        unchanged: those that changed no number.
        answer_before: the class, or the text that was decoded, without edits.
        answer_after: the same with edits; None where it was not decoded again.
        why_not: why it was not decoded again; empty if it was.
        effects: what changes at each position that is predicted.
        trace: the records of the edited pass.
    """

    edits: list[str]
    unchanged: list[str]
    answer_before: str
    answer_after: str | None
    why_not: str
    effects: list[Effect]
    trace: Trace

    @property
    def changed(self) -> list[Effect]:
        """Return the effects at positions where the most probable class or token is another one."""
        return [effect for effect in self.effects if effect.before != effect.after]

    def to_json(self) -> dict[str, Any]:
        """Return everything but the records as JSON data."""
        fields = {name: value for name, value in vars(self).items() if name not in ("effects", "trace")}
        return fields | {"effects": [asdict(effect) for effect in self.effects]}


def what_if(explanation: ExplanationData, edits: Sequence[str], other: ExplanationData | None = None) -> WhatIf:
    """Return what the model predicts when steps of its forward pass are replaced.

    Args:
        explanation: the explanation of the text, of at most 128 tokens.
        edits: edits as text (`grammar.py`).
        other: the explanation of a second text by the same model, for =B.

    Raises:
        UsageError: an edit is malformed, names no step, does not fit or never acts; or the text is too long.
    """
    for one in (explanation, other):
        if one is not None and one.records.trace is None:
            raise UsageError("edits need a text of at most 128 tokens", "shorten the text")
    subject, records = explanation.subject, explanation.records

    def apply() -> Edits:
        return Edits(edits, records, None if other is None else other.records)

    tap = apply()
    with tuned(subject.device), torch.no_grad(), trace(subject.model, tap=tap) as edited:
        exact_forward(subject.model, **explanation.model_inputs)
    tap.check_fired()
    after = _predictions(explanation, edited["logits"].value)
    logits = [_rows(e["logits"].value) for e in (records, edited)]
    effects = [
        _effect(explanation, i, logits[0][i], logits[1][i], after[i])
        for i in ([0] if explanation.is_classifier else explanation.generated)
    ]
    answer, why_not = _answer(explanation, after, tap, lambda: trace(subject.model, lambda _: False, tap=apply()))
    texts = [str(edit) for edit in tap.edits]
    return WhatIf(texts, tap.unchanged, _headline(explanation), answer, why_not, effects, edited)


def _headline(explanation: ExplanationData) -> str:
    return explanation.predictions[0].top[0].piece if explanation.is_classifier else explanation.streams[-1].text


def _rows(logits: Float[Tensor, "..."]) -> Float[Tensor, "N C"]:
    """Return logits with a row per prediction, in double precision."""
    return logits.double().reshape(-1, logits.shape[-1])


def _predictions(explanation: ExplanationData, logits: Tensor) -> list[Prediction]:
    """Return the predictions of edited logits at the positions of the explanation."""
    old = explanation.predictions
    following = [None if p.actual is None else p.actual.id for p in old]
    rows = logits[None] if logits.dim() == 1 else logits
    return top_predictions(explanation.subject.task, rows[: len(old)], [p.position for p in old], following)


def _effect(explanation: ExplanationData, i: int, a: Tensor, w: Tensor, after: Prediction) -> Effect:
    """Return the effect on one prediction, given its logits (C,) without and with edits."""
    before = explanation.predictions[i]
    target = before.actual or before.top[0]
    contrast = after.top[0] if after.top[0].id != target.id else next(c for c in before.top if c.id != target.id)
    log_a, log_w = a.log_softmax(dim=-1), w.log_softmax(dim=-1)
    return Effect(
        position=before.position,
        target=target.piece,
        contrast=contrast.piece,
        before=before.top[0].piece,
        after=after.top[0].piece,
        difference_before=float(a[target.id] - a[contrast.id]),
        difference_after=float(w[target.id] - w[contrast.id]),
        log_prob_before=float(log_a[target.id]),
        log_prob_after=float(log_w[target.id]),
        rank_after=int((w > w[target.id]).sum()),
        kl=float((log_a.exp() * (log_a - log_w)).sum()),
    )


def _answer(
    explanation: ExplanationData, after: list[Prediction], tap: Edits, edited: Callable[[], AbstractContextManager[Any]]
) -> tuple[str | None, str]:
    """Return what the model answers under edits, and if it was not decoded again, why."""
    if explanation.is_classifier:
        return after[0].top[0].piece, ""
    if explanation.request.target is not None:
        return None, "the text was given, so it is not decoded again"
    if placed := tap.at_positions_of(explanation.streams[-1].name):
        return None, f"not decoded again, as {placed[0]} is about positions of this text"
    with tuned(explanation.subject.device), edited():
        encoded = encode(explanation.subject, explanation.request)
    return encoded.streams[-1].text, ""
