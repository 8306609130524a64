"""Findings: written, read and measured again; those that no file may hold are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.explain.test_edits import explained
from tests.explain.test_sweeps import number
from tests.helpers.for_each import for_each
from tests.helpers.matrix import TEXTS, matrix_run, stack_of

from glassformer.errors import CheckpointError, UsageError
from glassformer.explain.edits.findings import differences, make_finding, measure_again, read_findings, write_findings
from glassformer.explain.explanation import TraceRequest, explain

REQUESTED: dict[str, dict[str, Any]] = {
    "multilabel": {"label": "good"},
    "tag": {"label": "4"},
    "translate": {"target": "ab", "member": 1},
    "lm": {"decode": {"max_new_tokens": 2}},
}


@for_each("task", REQUESTED)
def test_a_finding_is_measured_again_on_the_same(task: str, tmp_path: Path) -> None:
    fields = REQUESTED[task]
    run = matrix_run(task, fields.get("member", 0) + 1)
    e = explain(run, TraceRequest.from_dict({"text": TEXTS[task], **fields}))
    made = [make_finding(e, [f"{stack_of(task)}.0.self.{part}=0"]) for part in ("out", "head1")]
    file = tmp_path / f"{task}.toml"
    write_findings(file, run, made)
    weights, found = read_findings(file)
    assert weights is None and found == made and all(finding.request == fields for finding in found)
    assert all(differences(finding, measure_again(run, finding)) == [] for finding in found)


def test_the_controls_of_a_head_are_the_other_heads_and_all_is_compared() -> None:
    e = explained("translate")
    for pattern in ("encoder.0.self.context[head:{}]=0", "encoder.0.self.head{}=0"):
        finding = make_finding(e, [pattern.format(1)], name="a head")
        assert [one.edits for one in finding.control] == [[pattern.format(head)] for head in (0, 2)]
        wrong = [replace(one, after="x") for one in finding.control]
        expected = replace(finding, before="x", change=finding.change + 1, control=wrong)
        before, change, *controls = differences(expected, measure_again(e.subject, expected))
        assert "before is" in before and "log-probability" in change and len(controls) == 2
    assert make_finding(e, ["encoder.1.state=skip"]).control == []


def test_a_finding_about_a_number_holds_its_change() -> None:
    run = matrix_run("regress")
    found = make_finding(run.explain(TEXTS["regress"]), ["encoder.0.self.head1=0"])
    after, before = number(found.after), number(found.before)
    assert found.change == pytest.approx(after - before, rel=1e-3) and found.change != 0
    near = replace(found, before=str(before * (1 + 1e-4)), change=found.change * 1.001)
    assert differences(near, measure_again(run, near), of_numbers=True) == []
    far = replace(found, before=str(before * 1.1), change=found.change * 1.1)
    wrong = differences(far, measure_again(run, far), of_numbers=True)
    assert "before is" in wrong[0] and any("the number changes by" in one for one in wrong)


@for_each(
    ("text", "message"),
    [("x = [", "is not valid TOML"), ("x = 1", "holds no"), ('[[finding]]\nname = "a"', "finding 1")],
)
def test_a_file_of_findings_that_is_none_is_refused(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "findings.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError, match=message):
        read_findings(file)
    with pytest.raises(UsageError, match="cannot be read"):
        read_findings(tmp_path / "none.toml")
