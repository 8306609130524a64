"""Requests and findings of others: what is no valid value is an error with a sentence, in any combination."""

import pytest
from tests.helpers.for_each import for_each
from tests.helpers.matrix import matrix_run

from glassformer.errors import CheckpointError, UsageError
from glassformer.explain.attribution import AttributeRequest
from glassformer.explain.edits.findings import read_findings
from glassformer.explain.edits.grammar import Edit
from glassformer.explain.explanation import TraceRequest, explain
from glassformer.explain.page.typescript import QUESTIONS

GOOD = 'name = "n"\ntext = "a b"\nedits = ["logits*1"]\nbefore = "a"\nafter = "b"\nchange = -1.5\n'
DIGITS = "1" * 8000


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('change = "-1.5"', "change must be a number"),
        ("change = nan", "change must be a number"),
        (f'edits = ["a={DIGITS}x"]', "at most 200 long"),
        ('edits = ["a=1x"]', "malformed"),
        ("edits = [1]", "must be an array"),
        ("text = 5", "text must be a string"),
        ('unknown = "x"', "'unknown' at the top is not a known key"),
        ("control = 5", "must be an array"),
        (f'[[finding.control]]\nedits = ["a={DIGITS}x"]\nafter = ""', "at most 200 long"),
        ("[[finding.control]]\nedits = []", "'after' in .control.0.. is missing"),
    ],
)
def test_a_finding_of_another_form_is_refused(tmp_path, line, message):
    name = line.split(" ")[0]
    kept = [one for one in GOOD.splitlines() if not one.startswith(f"{name} =")]
    path = tmp_path / "findings.toml"
    path.write_text("\n".join(["[[finding]]", *kept, line]))
    with pytest.raises(CheckpointError, match=message) as caught:
        read_findings(path)
    assert len(caught.value.message) < 400


@for_each(
    ("kind", "data"),
    [
        (TraceRequest, {"text": "a", "decode": {"length_penalty": -5}}),
        (TraceRequest, {"text": "a", "edits": ["x" * 201]}),
        (TraceRequest, {"text": "a", "other_text": 5}),
        (AttributeRequest, {"method": "guess"}),
        (AttributeRequest, {"prediction": 10**5000}),
        (AttributeRequest, {"target": 1.5}),
        (AttributeRequest, {"erase": {"text": "12"}}),
        (AttributeRequest, {"erase": {"text": [-1]}}),
        (QUESTIONS[0], {"trace": "t1", "kind": "all"}),
        (QUESTIONS[0], {"trace": "t" * 41, "kind": "parts"}),
    ],
)
def test_python_and_the_page_refuse_the_same(kind, data):
    message = []
    for build in (kind.from_dict, lambda values: kind(**values)):
        with pytest.raises(UsageError) as caught:
            build(data)
        message.append(caught.value.message)
    assert message[0] == message[1] and len(message[0]) < 300


@for_each("edit", [f"a={DIGITS}x", f"a*{'1' * 190}x", "****************x=0", "*e*e*e*e*e*e*e*e*e*e*e=0"])
def test_an_edit_that_would_backtrack_is_refused_at_once(edit):
    e = explain(matrix_run("translate"), "abc")
    with pytest.raises(UsageError):
        e.what_if(edit)


@for_each("number", ["0.1", "1.2345678", "-1e-07", "3", "0.30000000000000004"])
def test_an_edit_is_printed_as_it_acts(number):
    edit = Edit.parse(f"logits*{number}")
    assert edit.number == float(number) and Edit.parse(str(edit)) == edit


@for_each(("before", "part"), [(0, "beginning"), (45, "middle"), (95, "end")])
def test_the_part_of_a_text_with_the_mask_is_named(before, part):
    run = matrix_run("pretrain", max_len=30)
    text = "a" * before + "[MASK]" + "b" * (99 - before)
    [warning] = [one for one in explain(run, text).warnings if "truncated" in one]
    assert warning.endswith(f"keeping its {part}")
