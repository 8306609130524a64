"""Score a split with and without edits: whether what holds for one text holds for many.

The same examples are predicted twice, in fp32, and compared by the paired test of the task.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, TypedDict

from glassformer.config import DecodeConfig
from glassformer.data.splits import Split
from glassformer.errors import UsageError
from glassformer.explain.compute import compute_explanation
from glassformer.explain.edits.apply import Edits
from glassformer.explain.edits.reference import means_of_run
from glassformer.explain.explanation import Explanation
from glassformer.explain.request import MAX_FULL_TOKENS, TraceRequest
from glassformer.explain.subject import Subject, with_member
from glassformer.explain.trace import trace
from glassformer.models.ensemble import members_of
from glassformer.runs.records import Evaluation
from glassformer.utils.device import tuned

MAX_GROUPS = 12
"""Maximum groups of examples that are reported, those that lost most first."""
_TAG = re.compile(r"\[[^\]]{1,20}\]")


class Group(TypedDict):
    """Examples of one class, or of one tag at the beginning of the source ("[en_US]")."""

    name: str
    n: int
    before: float
    """Share of right answers without edits, from 0 to 1."""
    after: float


class EditScores(TypedDict):
    """The scores of a split without and with edits."""

    edits: list[str]
    member: int | None
    """Which model of an ensemble was edited and scored alone; None: the run has one model."""
    metric: str
    before: float
    after: float
    test: dict[str, Any]
    """The paired test: difference (after − before), ci95, p_value, n; see `evaluate/significance.py`."""
    groups: list[Group]


def evaluate_edits(
    subject: Subject, split: Split, edits: Sequence[str], decode: DecodeConfig, member: int = 1
) -> EditScores:
    """Return the headline score of a split without and with edits, their paired test, and where answers were lost.

    The first example gives the names and sizes by which edits are checked. Of an ensemble one member, counted from 1,
    is edited and scored alone.
    """
    n_members = len(members_of(subject.model))
    subject = with_member(subject, member)
    task, model = subject.task, subject.model
    if task.report.comparison_keys is None:
        raise UsageError(f"there is no paired test of a {task.report.model_name}")
    first = compute_explanation(subject, TraceRequest(split.text[0][:MAX_FULL_TOKENS]))
    # A language model is scored on texts as they are.
    tap = _tap(first, edits, generates=len(first.streams) > 1)
    with tuned(subject.device):
        with trace(model, lambda _: False):  # the same attention, step by step, as with a tap
            before = task.evaluate(model, split, decode)
        with trace(model, lambda _: False, tap=tap):
            after = task.evaluate(model, split, decode)
    tap.check_fired()
    scores = [task.report.score(Evaluation(task.name, "", each)) for each in (before, after)]
    truth_key, key = task.report.comparison_keys
    truth, was, is_now = (
        [str(row[name]).strip() for row in rows["predictions"]]
        for rows, name in ((before, truth_key), (before, key), (after, key))
    )
    metric = scores[0].metric.name
    test = task.report.paired_test(is_now, was, truth, metric)
    if any(score.value is None for score in scores):
        raise UsageError(f"this split has no {metric}", "choose another with --split")
    groups = (
        _groups(first.is_classifier, split.text, truth, was, is_now) if metric in ("accuracy", "exact_match") else []
    )
    return {
        "edits": [str(edit) for edit in tap.edits],
        "member": member if n_members > 1 else None,
        "metric": metric,
        "before": float(scores[0].value or 0.0),
        "after": float(scores[1].value or 0.0),
        "test": test,
        "groups": groups,
    }


def predict_edited(
    subject: Subject, texts: Sequence[str], edits: Sequence[str], decode: DecodeConfig, member: int = 1
) -> list[dict[str, Any]]:
    """Return the predictions of texts under edits, as the task's `predict` does; arguments as in `evaluate_edits`."""
    if not texts:
        return []
    subject = with_member(subject, member)
    first = compute_explanation(subject, TraceRequest(texts[0][:MAX_FULL_TOKENS]))
    tap = _tap(first, edits, generates=not first.is_classifier)
    with tuned(subject.device), trace(subject.model, lambda _: False, tap=tap):
        answers = subject.task.predict(subject.model, texts, decode)
    tap.check_fired()
    return answers


def _tap(first: Explanation, edits: Sequence[str], generates: bool) -> Edits:
    """Return the tap of edits for many texts, checked by the steps of the first."""
    tap = Edits(edits, first.records, means=means_of_run(first.subject, first.records))
    if generates and (placed := tap.at_positions_of(first.streams[-1].name)):
        raise UsageError(f"{placed[0]} is about positions of the text that is generated", "name other axes")
    return tap


def _groups(
    by_class: bool, texts: Sequence[str], truth: Sequence[str], was: Sequence[str], is_now: Sequence[str]
) -> list[Group]:
    """Return the groups of examples, by class or by tag, that lost most, at most `MAX_GROUPS`."""
    rows: dict[str, list[tuple[bool, bool]]] = defaultdict(list)
    for text, right, a, b in zip(texts, truth, was, is_now, strict=True):
        tag = _TAG.match(text)
        name = right if by_class else tag[0] if tag else ""
        if name:
            rows[name].append((a == right, b == right))
    groups: list[Group] = [
        {"name": name, "n": len(r), "before": sum(a for a, _ in r) / len(r), "after": sum(b for _, b in r) / len(r)}
        for name, r in rows.items()
    ]
    return sorted(groups, key=lambda group: (group["after"] - group["before"], group["name"]))[:MAX_GROUPS]
