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
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from glassformer.config.fields import string
from glassformer.config.requests import build_request, check_request
from glassformer.errors import CheckpointError, UsageError
from glassformer.explain.compute import compute_explanation
from glassformer.explain.edits.grammar import Edit
from glassformer.explain.edits.sweeps import sweep_keys
from glassformer.explain.edits.what_if import what_if
from glassformer.explain.explanation import Explanation
from glassformer.explain.request import MAX_EDIT_TEXT, MAX_EDITS, MAX_TEXT, TraceRequest
from glassformer.explain.subject import MODEL, Subject, checkpoint_sha256
from glassformer.utils import safe_read
from glassformer.utils.atomic_io import atomic_write_text
from glassformer.utils.safe_read import LIMITS

MAX_TRIED = 5
"""Maximum heads that `find_head` tries, those with the largest effect first."""
CHANGE_TOLERANCE = 0.01
"""Largest difference of a change in log-probability, relative, and absolute in nats, between two machines."""
HINT = "write findings with glassformer explain RUN TEXT --edit … -o findings.toml"
_HEAD = re.compile(r"\b(head:?)([0-9]+)")


EDITS = field(metadata={"longest": MAX_EDITS, "items": {"longest": MAX_EDIT_TEXT}})
"""The field of edits, with the limits of a request."""


@dataclass(frozen=True)
class Control:
    """Other edits, of which nothing is expected."""

    edits: list[str] = EDITS
    """The edits."""
    after: str = string(MAX_TEXT)
    """The answer with them."""

    def __post_init__(self) -> None:
        check_request(self, "control")


@dataclass(frozen=True)
class Finding:
    """What some edits change in the answer to one text."""

    name: str = string(MAX_TEXT)
    """What was found, in words."""
    text: str = string(MAX_TEXT)
    """The text."""
    edits: list[str] = EDITS
    """The edits."""
    before: str = string(MAX_TEXT)
    """The answer without them."""
    after: str = string(MAX_TEXT)
    """The answer with them; where it was not decoded again, the empty text."""
    # Those above have no default either: `string` returns a field.
    change: float = field(metadata={"interval": "(-inf, inf)"})  # pyright: ignore[reportGeneralTypeIssues]
    """Change of the log-probability of the tokens predicted without edits, in nats."""
    other_text: str | None = string(MAX_TEXT, None)
    """The second text, for =B."""
    control: list[Control] = field(default_factory=list, metadata={"tables": Control})
    """Other edits, for comparison."""

    def __post_init__(self) -> None:
        check_request(self, "finding")

    @property
    def request(self) -> TraceRequest:
        """Return the request that shows it."""
        return TraceRequest(self.text, edits=tuple(self.edits), other_text=self.other_text)


@dataclass(frozen=True)
class Measured:
    """A finding that was measured again."""

    expected: Finding
    now: Finding

    @property
    def differences(self) -> list[str]:
        """Return what is not as expected, a sentence each."""
        found = [
            f"{name} is {getattr(self.now, name)!r}, not {getattr(self.expected, name)!r}"
            for name in ("before", "after")
            if getattr(self.now, name) != getattr(self.expected, name)
        ]
        was, now = self.expected.change, self.now.change
        if abs(was - now) > CHANGE_TOLERANCE * max(1.0, abs(was)):
            found.append(f"the log-probability changes by {now:.3f}, not {was:.3f}")
        for one, other in zip(self.expected.control, self.now.control, strict=True):
            if one.after != other.after:
                found.append(f"with {' '.join(one.edits)} the answer is {other.after!r}, not {one.after!r}")
        return found


def make_finding(
    explanation: Explanation, edits: Sequence[str], other: Explanation | None = None, name: str = ""
) -> Finding:
    """Return the finding of some edits; if they are of one head, its controls are the same edits of the others."""
    result = what_if(explanation, edits, other)
    controls = []
    for control in _other_heads(explanation, edits):
        after = what_if(explanation, control, other).answer_after
        controls.append(Control(control, after or ""))
    return Finding(
        name=name or " ".join(result.edits),
        text=explanation.request.text,
        edits=result.edits,
        before=result.answer_before,
        after=result.answer_after or "",
        change=round(sum(effect.log_prob_after - effect.log_prob_before for effect in result.effects), 4),
        other_text=None if other is None else other.request.text,
        control=controls,
    )


def _other_heads(explanation: Explanation, edits: Sequence[str]) -> list[list[str]]:
    """Return the same edits of each other head; none where the edits are not all of one head."""
    heads = {match[2] for edit in edits for match in [_HEAD.search(edit)] if match}
    if len(heads) != 1 or not all(_HEAD.search(edit) for edit in edits):
        return []
    attentions = (step for step in explanation.records.steps.values() if step.site == "weights")
    n_heads = next((a.shape[0] for a in attentions if edits[0].startswith(a.id.removesuffix("weights"))), 0)
    return [[_HEAD.sub(rf"\g<1>{h}", edit) for edit in edits] for h in range(n_heads) if str(h) not in heads]


def find_head(explanation: Explanation, other: Explanation) -> Finding | None:
    """Return the head whose attention to the differing token decides between the answers of two texts, if one does.

    Every head is kept from attending to each token in which the texts differ; of the heads with the largest effect, the
    first is taken under which the first text is answered like the second.
    """
    first, second = explanation.streams[0], other.streams[0]
    if len(first) != len(second):
        raise UsageError(f"the texts have {len(first)} and {len(second)} tokens", "choose texts of equally many")
    keys = [i for i, (a, b) in enumerate(zip(first.ids, second.ids, strict=True)) if a != b]
    effects = [
        row[key]
        for grid in sweep_keys(explanation).grids
        if grid.stream == first.name
        for row in grid.effects
        for key in keys
    ]
    for effect in sorted(effects, key=lambda effect: effect.change)[:MAX_TRIED]:
        if what_if(explanation, effect.edits).answer_after == other.answer["headline"]:
            name = f"This head decides between {explanation.request.text} and {other.request.text}"
            return make_finding(explanation, effect.edits, name=name)
    return None


def write_findings(path: Path, subject: Subject, findings: Sequence[Finding]) -> None:
    """Write findings on the model of a run, atomically."""
    import tomli_w

    kept = [{name: value for name, value in asdict(finding).items() if value not in (None, [])} for finding in findings]
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
        finding = build_request(Finding, data, "this finding")
        for edit in (*finding.edits, *(edit for control in finding.control for edit in control.edits)):
            Edit.parse(edit)
    except UsageError as error:
        needs = "it needs name, text, edits, before, after, change"
        raise CheckpointError(f"{path}, finding {number}: {error}", needs) from None
    return finding


def measure_again(subject: Subject, finding: Finding) -> Measured:
    """Return a finding with the same edits measured on the model as it is now."""
    request = finding.request
    base = compute_explanation(subject, request.without_edits())
    other = None if request.other_text is None else compute_explanation(subject, request.of_other_text())
    now = make_finding(base, finding.edits, other, finding.name)
    after = [Control(one.edits, what_if(base, one.edits, other).answer_after or "") for one in finding.control]
    return Measured(finding, replace(now, control=after))
