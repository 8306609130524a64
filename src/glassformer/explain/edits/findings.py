"""Findings: edits with the answers that they gave, in a file by which they can be measured again.

weights = "9f86d081…"                       # SHA-256 of the model file

[[finding]]
name = "What decides between two readings"
text = "[en_US] 04/05/2026"
edits = ["encoder.0.self.scores[head:3;key:0]=blocked"]
before = "2026-04-05"
after = "2026-05-04"
change = -5.074

[[finding.control]]
edits = ["encoder.0.self.scores[head:0;key:0]=blocked"]
after = "2026-04-05"
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from glassformer.config.recipes import build
from glassformer.errors import CheckpointError, UsageError
from glassformer.explain.edits.effects import WhatIf, explain_unedited, measure_of_answer, what_if
from glassformer.explain.edits.grammar import Edit
from glassformer.explain.explanation import Explanation
from glassformer.explain.one_label import of_same_label
from glassformer.explain.request import MAX_EDITS, EditText, Request, Text, TraceRequest
from glassformer.explain.subject import MODEL, Subject, checkpoint_sha256
from glassformer.utils import safe_read
from glassformer.utils.atomic_io import atomic_write_text
from glassformer.utils.safe_read import LIMITS

CHANGE_TOLERANCE = 0.01
"""Largest difference of a change in log-probability, relative, and absolute in nats, between two machines."""
HINT = "write findings with glassformer edit RUN TEXT EDIT -o findings.toml"
_HEAD = re.compile(r"\b(head:?)([0-9]+)")
EditTexts = Annotated[list[EditText], Meta(max_length=MAX_EDITS)]


@dataclass(frozen=True)
class Control(Request):
    """Other edits, of which nothing is expected."""

    edits: EditTexts
    """The edits."""
    after: Text
    """The answer with them."""


@dataclass(frozen=True)
class Finding(Request):
    """What some edits change in the answer to one text."""

    name: Text
    """What was found, in words."""
    text: Text
    """The text."""
    edits: EditTexts
    """The edits."""
    before: Text
    """The answer without them."""
    after: Text
    """The answer with them; where it was not decoded again, the empty text."""
    change: float
    """Change of the log-probability of the tokens predicted without edits, in nats."""
    other_text: Text | None = None
    """The second text, for =B."""
    control: list[Control] = field(default_factory=list)
    """Other edits, for comparison."""
    request: dict[str, Any] = field(default_factory=dict)
    """All other fields of the `TraceRequest`: label, target, member, checkpoint, decode."""

    @property
    def trace_request(self) -> TraceRequest:
        """Return the request that shows it."""
        own = {"text": self.text, "edits": list(self.edits), "other_text": self.other_text}
        return TraceRequest.from_dict({**self.request, **own})


def differences(expected: Finding, now: Finding, of_numbers: bool = False) -> list[str]:
    """Return what is not as expected of a finding that was measured again, a sentence each.

    Answers that are numbers may differ by 1%, as the change may: another machine rounds otherwise.
    """
    found = [
        f"{name} is {getattr(now, name)!r}, not {getattr(expected, name)!r}"
        for name in ("before", "after")
        if not _equal(getattr(now, name), getattr(expected, name), of_numbers)
    ]
    least = abs(expected.change) if of_numbers else max(1.0, abs(expected.change))
    if abs(expected.change - now.change) > CHANGE_TOLERANCE * least:
        what = "number" if of_numbers else "log-probability"
        found.append(f"the {what} changes by {now.change:.4g}, not {expected.change:.4g}")
    for one, other in zip(expected.control, now.control, strict=True):
        if not _equal(one.after, other.after, of_numbers):
            found.append(f"with {' '.join(one.edits)} the answer is {other.after!r}, not {one.after!r}")
    return found


def _equal(answer: str, expected: str, of_numbers: bool) -> bool:
    if answer == expected or not of_numbers:
        return answer == expected
    try:
        one, other = (float(text.replace("−", "-")) for text in (answer, expected))
    except ValueError:  # a file that was changed
        return False
    return abs(one - other) <= CHANGE_TOLERANCE * min(abs(one), abs(other))


def make_finding(
    explanation: Explanation,
    edits: Sequence[str],
    other: Explanation | None = None,
    name: str = "",
    controls: Sequence[Sequence[str]] | None = None,
) -> Finding:
    """Return the finding of some edits; if they are of one head, its controls are the same edits of the others."""
    result, request = what_if(explanation, edits, other), of_same_label(explanation.request, explanation.subject)
    if request.edits:
        raise UsageError("a finding compares with the text without edits", "take the explanation without edits")
    controls = _other_heads(explanation, edits) if controls is None else controls
    return Finding(
        name=name or " ".join(result.edits),
        text=explanation.request.text,
        edits=result.edits,
        before=result.answer_before,
        after=result.answer_after or "",
        change=_change(explanation, result),
        other_text=None if other is None else other.request.text,
        control=[Control([*one], what_if(explanation, one, other).answer_after or "") for one in controls],
        request={name: value for name, value in request.to_json().items() if name not in ("text", "edits")},
    )


def _change(explanation: Explanation, result: WhatIf) -> float:
    """Return by how much the log-probability of the answer changes, or the number itself."""
    measure = measure_of_answer(explanation)
    change = measure.total(result.trace) - measure.total(explanation.records)
    return float(f"{change:.6g}") if measure.unit == "number" else round(change, 4)


def _other_heads(explanation: Explanation, edits: Sequence[str]) -> list[list[str]]:
    """Return the same edits of each other head; none where the edits are not all of one head."""
    heads = {match[2] for edit in edits for match in [_HEAD.search(edit)] if match}
    if len(heads) != 1 or not all(_HEAD.search(edit) for edit in edits):
        return []
    attentions = (step for step in explanation.records.values() if step.site == "weights")
    n_heads = next((a.shape[0] for a in attentions if edits[0].startswith(a.id.removesuffix("weights"))), 0)
    return [[_HEAD.sub(rf"\g<1>{h}", edit) for edit in edits] for h in range(n_heads) if str(h) not in heads]


def write_findings(path: Path, subject: Subject, findings: Sequence[Finding]) -> None:
    """Write findings on the model of a run, atomically."""
    import tomli_w

    kept = [
        {name: value for name, value in asdict(finding).items() if value not in (None, [], {})} for finding in findings
    ]
    weights = checkpoint_sha256(subject, MODEL)
    data = ({} if weights is None else {"weights": weights}) | {"finding": kept}
    atomic_write_text(path, tomli_w.dumps(data, multiline_strings=False))


def read_findings(path: Path) -> tuple[str | None, list[Finding]]:
    """Return the hash of the weights that findings were made with, and the findings."""
    if not path.exists():
        raise UsageError(f"{path} cannot be read: there is no such file", "name a file of findings")
    data = safe_read.read_toml(path, LIMITS["findings"])
    findings = data.get("finding")
    if not isinstance(findings, list) or not findings or not isinstance(data.get("weights", ""), str):
        raise CheckpointError(f"{path} holds no [[finding]]", HINT)
    return data.get("weights"), [_finding(path, number, one) for number, one in enumerate(findings, start=1)]


def _finding(path: Path, number: int, data: Any) -> Finding:
    try:
        finding = build(Finding, data, "", "this finding")
        finding.trace_request  # noqa: B018  # its fields are checked
        for edit in (*finding.edits, *(edit for control in finding.control for edit in control.edits)):
            Edit.parse(edit)
    except UsageError as error:
        needs = "it needs name, text, edits, before, after, change"
        raise CheckpointError(f"{path}, finding {number}: {error}", needs) from None
    return finding


def measure_again(subject: Subject, finding: Finding) -> Finding:
    """Return a finding with the same edits measured on the model as it is now."""
    base, other = explain_unedited(subject, finding.trace_request)
    return make_finding(base, finding.edits, other, finding.name, [one.edits for one in finding.control])
