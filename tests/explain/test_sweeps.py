"""Sweeps against the same edits made one by one and against smaller models, of classes, tokens and numbers.

And findings: written, read and measured again; those that no file may hold are refused.
"""

from __future__ import annotations

import copy
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.explain.test_edits import FORMS, OTHERS, TEXTS, explained
from tests.helpers.for_each import for_each
from tests.helpers.matrix import TEXTS as ALL_TEXTS
from tests.helpers.matrix import make_cell, matrix_run, second_text, stack_of

from glassformer.errors import CheckpointError, UsageError
from glassformer.explain.edits import effects as measure
from glassformer.explain.edits import sweeps as states
from glassformer.explain.edits.effects import base_logits, edited_logits, what_if
from glassformer.explain.edits.findings import differences, make_finding, measure_again, read_findings, write_findings
from glassformer.explain.explanation import Explanation, TraceRequest, explain
from glassformer.models.ensemble import members_of
from glassformer.run import Run
from glassformer.runs.folder import RunFolder
from glassformer.runs.model_folder import save_snapshot
from glassformer.utils.process_settings import Cancelled, cancellable

NGRAMS = [("lm", {"max_ngram": 3}), *(("classify", {"settings": rows}) for rows in ({"ngrams": 60}, {"bigrams": 30}))]
POOLINGS = [
    (task, {"pooling": how, "pre_norm": pre_norm})
    for task, pre_norm in (("classify", False), ("regress", True))
    for how in ("mean", "max", "mean+max", "first")
]
LINEAR = [form for form in FORMS if form[0] != "pretrain"]  # the head of a masked model is not
CASES = [*TEXTS, "plain", "edited", "ensemble"]
"""Tasks, and of a number the cases of the matrix."""
EDIT = "encoder.0.self.context=0"


def of_case(case: str) -> Explanation:
    return explained(case) if case in TEXTS else make_cell("regress", case, Path("unused")).e


def number(text: str) -> float:
    return float(text.replace("−", "-"))


def number_of(e: Explanation, *edits: str, other: Explanation | None = None) -> float:
    """The number of the answer under edits, one pass of the model by itself."""
    output = what_if(e, edits, other).trace["logits"].value if edits else e.records["logits"].value
    return float(e.subject.task.decision.numbers(output.numpy()).item())


def followed(e: Explanation, *edits: str) -> float:
    """What is followed of the answer, one pass of the model by itself."""
    if e.is_number:
        return number_of(e, *edits)
    return sum(effect.log_prob_after for effect in what_if(e, edits or ["logits*1"], again=False).effects)


@for_each(("task", "form"), [*(form for form in FORMS if form[1]["positions"] == "sinusoidal"), *NGRAMS])
def test_a_batch_of_edits_gives_the_logits_of_each_alone(task: str, form: dict[str, Any]) -> None:
    e, other = (explained(task, text, **form) for text in (TEXTS[task], OTHERS[task]))
    stack = stack_of(task)
    variants = [
        [f"{stack}.0.self.head1=0"],
        [f"{stack}.1.state=skip"],
        [f"{stack}.0.self.scores[head:2;key:0]=blocked", f"{stack}.1.ff.branch*0.5"],
        [f"{stack}.0.state[token:1]=B"],
        ["logits*1"],
    ]
    together = edited_logits(e, variants, other)
    for edits, logits in zip(variants, together, strict=True):
        alone = what_if(e, edits, other, again=False).trace["logits"].value.double()
        torch.testing.assert_close(logits, alone.reshape(logits.shape), atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(together[-1], base_logits(e), atol=1e-4, rtol=1e-5)


@for_each("kind", ["parts", "keys"])
@for_each("case", CASES)
def test_each_row_is_its_edits_alone(case: str, kind: Any) -> None:
    e = of_case(case)
    sweep, before = e.sweep(kind), followed(e)
    assert sweep.unit == ("number" if e.is_number else "nats") and sweep.value == pytest.approx(before, abs=1e-4)
    heads = {id.removesuffix(".weights"): step.shape for id, step in e.records.items() if step.site == "weights"}
    rows = sweep.rows
    if kind == "keys":
        keys = [(block, h, k) for block, shape in heads.items() for h in range(shape[0]) for k in range(shape[-1])]
        expected = [(block, [f"{block}.scores[head:{h};key:{k}]=blocked"]) for block, h, k in keys]
        assert [(row.name, row.edits) for row in rows] == expected
    else:
        off = {f"{block}.head{h}": f"{block}.context[head:{h}]=0" for block in heads for h in range(heads[block][0])}
        names = [*off]
        off |= {block: f"{block}.context=0" for block in heads}
        off |= {id.removesuffix(".out"): f"{id}=0" for id in e.records if id.endswith("ff.out")}
        assert {row.name: row.edits for row in rows} == {name: [edit] for name, edit in off.items()}
        assert [row.name for row in rows if row.alone] == names
        block, shape = next(iter(heads.items()))
        alone = next(row.alone for row in rows if row.name == f"{block}.head1")
        assert alone.edits == [f"{block}.context[head:{h}]=0" for h in range(shape[0]) if h != 1]
        rows = [*rows, *(row.alone for row in rows if row.alone)]
    for row in rows[:: 1 + len(rows) // 12]:
        result = what_if(e, row.edits, again=False)
        assert (row.value_before, row.value_after) == pytest.approx((before, followed(e, *row.edits)), abs=1e-4)
        assert row.change == row.value_after - row.value_before
        if e.is_number:
            shown = (row.value_before, row.value_after)
            assert (number(row.before), number(row.after)) == pytest.approx(shown, rel=1e-4)
            assert (row.n_changed, row.position) == (int(row.before != row.after), None)
        else:
            most = min(result.effects, key=lambda one: one.log_prob_after - one.log_prob_before)
            assert (row.n_changed, row.position) == (len(result.changed), most.position)
            assert (row.before, row.after) == (most.before, most.after)


@for_each(
    ("kind", "given", "message"),
    [
        ("all", {}, "no sweep of 'all'"),
        ("states", {}, "needs a second text"),
        ("parts", {"other": True}, "no other sweep does"),
        ("keys", {"prediction": 0}, "only contributions are of one prediction"),
        ("contributions", {"prediction": 99}, "prediction 99 does not exist"),
        ("checkpoints", {}, "needs edits"),
    ],
)
def test_what_no_sweep_takes_is_refused(kind: Any, given: dict[str, Any], message: str) -> None:
    e = explained("classify")
    with pytest.raises(UsageError, match=message):
        e.sweep(kind, **{name: e if name == "other" else value for name, value in given.items()})


@for_each("task", TEXTS)
def test_shares_of_a_cut_and_of_the_rest_sum_to_one(task: str) -> None:
    """All tokens of the stream after a layer are a cut: S from the second text is the rest from the first."""
    a = make_cell(task, "plain", Path("unused")).e
    b = second_text(a)
    sweep = a.sweep("states", b)
    states = [row.name for row in sweep.rows if ("decoder" not in row.name and row.name != "target") or task == "lm"]
    index = 0 if a.is_classifier else next(i for i, p in enumerate(a.predictions) if p.position == sweep.position)
    tokens = [row.position for row in sweep.rows if row.name == states[0]]
    ids = [next(c.id for c in a.predictions[index].top if c.piece == one) for one in (sweep.target, sweep.contrast)]
    other_value = sweep.rows[0].back.value_before

    def m(e: Explanation, edits: list[str], other: Explanation) -> float:
        row = edited_logits(e, [edits], other)[0, index] if edits else base_logits(e)[index]
        return float(row[ids[0]] - row[ids[1]])

    whole = sweep.value - other_value
    assert (sweep.value, other_value) == (m(a, [], b), m(b, [], a))
    for state in (states[0], states[-1]):
        every = [f"{state}[token:{i}]=B" for i in tokens]
        for n in {1, len(tokens) // 2}:
            noising = (sweep.value - m(a, every[:n], b)) / whole
            denoising = (m(b, every[n:], a) - other_value) / whole
            assert noising + denoising == pytest.approx(1.0, abs=1e-3)
        if task != "lm" or sweep.position == len(tokens) - 1:
            assert m(a, every, b) == pytest.approx(other_value, abs=1e-3)
    first = sweep.rows[0]
    [edit] = first.edits
    assert edit == f"{states[0]}[token:{tokens[0]}]=B[token:{first.back.position}]"
    assert first.value_after == pytest.approx(m(a, [edit], b), abs=1e-3)
    assert first.back.value_after == pytest.approx(m(b, first.back.edits, a), abs=1e-3)


@for_each("case", ["plain", "edited"])
def test_states_change_the_number_of_each_text(case: str) -> None:
    a = of_case(case)
    b = second_text(a)
    sweep, (mean, _) = a.sweep("states", b), a.subject.task.decision.scale
    m_a, m_b = number_of(a) - mean, number_of(b) - mean
    assert (sweep.target, sweep.contrast) == (a.answer["headline"], b.answer["headline"])
    assert sweep.unit == "number" and sweep.position is None and sweep.value == pytest.approx(m_a, abs=1e-4)
    for row in sweep.rows:
        edit = f"{row.name}[token:{row.position}]=B"
        lost, back = number_of(a, edit, other=b) - mean, number_of(b, edit, other=a) - mean
        assert (row.value_before, row.value_after) == pytest.approx((m_a, lost), abs=1e-3 * abs(m_a - m_b))
        assert (row.back.value_before, row.back.value_after) == pytest.approx((m_b, back), abs=1e-3 * abs(m_a - m_b))


def test_texts_whose_answers_do_not_differ_have_no_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    e = explained("classify")
    with pytest.raises(UsageError, match="same answer"):
        e.sweep("states", e)
    a = of_case("plain")
    b, sd = second_text(a), a.subject.task.decision.scale[1]
    apart = abs(number_of(a) - number_of(b)) / sd
    monkeypatch.setattr(states, "MIN_DEVIATIONS", apart * 1.01)
    with pytest.raises(UsageError, match=re.escape(a.answer["headline"])) as refused:
        a.sweep("states", b)
    assert f"{apart * 1.01 * sd:.3g} away" in refused.value.hint
    monkeypatch.setattr(states, "MIN_DEVIATIONS", apart * 0.99)
    assert a.sweep("states", b).rows
    first, second = (matrix_run("regress").explain(text) for text in ("abcabca", "gfg"))
    with pytest.raises(UsageError, match="no token of one text stands for one of the other"):
        first.sweep("states", second)


def test_a_cancelled_sweep_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "BATCH_TOKENS", 40)
    e = explained("translate")
    event, seen, check = threading.Event(), [], measure.check_cancelled

    def count() -> None:
        seen.append(1)
        if len(seen) == 3:
            event.set()
        check()

    monkeypatch.setattr(measure, "check_cancelled", count)
    with cancellable(event), pytest.raises(Cancelled):
        e.sweep("parts")
    assert len(seen) == 3
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in e.subject.model.modules())
    torch.testing.assert_close(e.subject.model(**e.model_inputs)[0], e.records["logits"].value, atol=1e-5, rtol=0)
    e.sweep("parts")  # without the event nothing is cancelled


@for_each(("task", "form"), [*FORMS, *NGRAMS, ("regress", {})])
def test_the_lens_is_a_model_with_fewer_layers_and_ends_in_its_logits(task: str, form: dict[str, Any]) -> None:
    """Row n is the model of which only the first n layers are left; the last row is the model's own prediction."""
    e = explained(task, ALL_TEXTS[task] if task == "regress" else TEXTS[task], **form)
    rows, at = e.sweep("layers").rows, 0
    for stack, depth in e.records.n_layers.items():
        first, *layers = rows[at : at + depth + 1]
        assert first.name in ("embedding", "source", "target")
        assert [row.name for row in layers] == [f"{stack}.{i}.state" for i in range(depth)]
        at += depth + 1
        for n, row in enumerate([first, *layers]):
            shorter = copy.deepcopy(e.subject.model)
            del getattr(shorter, stack).layers[n:]
            assert row.value_after == pytest.approx(value_by_hand(shorter.eval(), e), abs=1e-4)
            if e.is_number:
                assert number(row.after) == pytest.approx(row.value_after, abs=1e-4)
            assert sum(one.log_prob_after for one in row.effects) == pytest.approx(
                0 if e.is_number else row.value_after, abs=1e-6
            )
            positions = [e.predictions[i].position for i in e.answered]
            assert [one.position for one in row.effects] == ([] if e.is_number else positions)
        assert row.value_after == pytest.approx(followed(e), abs=1e-4) and all(one.kl == 0 for one in row.effects)
        assert all(one.after == one.before for one in row.effects)


@for_each(("task", "form"), [*LINEAR, *NGRAMS, *POOLINGS, ("lm", {"norm": "rms"})])
def test_contributions_sum_to_the_logits(task: str, form: dict[str, Any]) -> None:
    e = explained(task, TEXTS.get(task, "a b good b a"), **form)
    for index in e.answered[:3] or [0]:
        found = e.sweep("contributions", prediction=index)
        if e.is_number:
            expected = number_of(e) - e.subject.task.decision.scale[0]
            assert (found.target, found.contrast) == ("number", "mean of the training numbers")
        else:
            top = e.predictions[index]
            contrast = next(c.logit for c in top.top if c.piece == found.contrast)
            expected = (top.actual or top.top[0]).logit - contrast
        assert found.value == pytest.approx(expected, abs=1e-4)
        direct = [row.direct for row in found.rows]
        assert sum(direct) - found.value == pytest.approx(found.error, abs=1e-9)
        assert abs(found.error) < 1e-5 * max(1.0, sum(map(abs, direct)))
        assert sum(".head" in row.name for row in found.rows) >= 6


@for_each("case", [case for case in CASES if case != "pretrain"])
def test_the_total_effect_is_that_of_switching_the_part_off(case: str) -> None:
    e = of_case(case)
    found, index = e.sweep("contributions"), next(iter(e.answered), 0)
    assert found == e.sweep("contributions", prediction=index)
    [base] = base_logits(e)[[index]]
    sd = e.subject.task.decision.scale[1] if e.is_number else None
    ids = {c.piece: c.id for c in e.predictions[index].top} if sd is None else {}
    for row in found.rows:
        assert row.edits or row.change == 0
        off = edited_logits(e, [row.edits])[0, index] - base if row.edits else base - base
        expected = off[ids[found.target]] - off[ids[found.contrast]] if sd is None else sd * off[0]
        assert row.change == pytest.approx(float(expected), abs=1e-4)


def with_snapshot(task: str, path: Path, members: int = 1) -> Run:
    """Return a run with a snapshot of other weights."""
    run, other = matrix_run(task, members), matrix_run(task, members, seed=8)
    weights = {name: p.detach().clone() for name, p in other.model.named_parameters()}
    if task == "multilabel":
        weights["head.bias"][0] += 3  # another label is the most probable
    save_snapshot(RunFolder(path).snapshots, 16, weights)
    return Run(path, run.task, run.model, run.device)


@pytest.mark.parametrize(
    ("task", "members"), [("multilabel", 1), ("tag", 1), ("regress", 2), ("translate", 1), ("classify", 2)]
)
def test_edits_are_measured_at_every_checkpoint(task: str, members: int, tmp_path: Path) -> None:
    """The label or word that the finished model chooses, and the tokens that it writes, are looked at in all."""
    run, text = with_snapshot(task, tmp_path, members), ALL_TEXTS[task]
    request = TraceRequest(text, edits=(EDIT,), member=members - 1)
    e = explain(run, request)
    if e.labels is not None:
        shown = e.labels.each[e.labels.shown].name
        request = replace(request, label=shown)
        other = explain(run, TraceRequest(text, checkpoint="step-00000016")).labels
        assert other.each[other.shown].name != shown, "the weights of the snapshot choose another one"
        assert e.sweep("checkpoints") == explain(run, request).sweep("checkpoints")
    rows = e.sweep("checkpoints").rows
    assert [row.name for row in rows] == ["step-00000016", "model"]
    for row, seed in zip(rows, (8, 5), strict=True):
        assert row.edits == [EDIT] and row.n_changed == int(row.before != row.after)
        if task != "translate":
            alone = explain(run, replace(request, edits=(), checkpoint=row.name))
            assert (row.before, row.after) == tuple(one.answer["headline"] for one in (alone, alone.what_if(EDIT)))
        if e.labels is None:  # what is followed is what the finished model answers
            model: Any = copy.deepcopy(members_of(matrix_run(task, members, seed=seed).model)[-1])
            values = [value_by_hand(model, e.base)]
            with torch.no_grad():
                model.encoder.layers[0].self_attention.o_proj.weight.zero_()
            values.append(value_by_hand(model, e.base))
            assert [row.value_before, row.value_after] == pytest.approx(values, abs=1e-4)


def value_by_hand(model: Any, e: Explanation) -> float:
    with torch.no_grad():
        output = model(**e.model_inputs)[0].double()
    if e.is_number:
        return float(e.subject.task.decision.numbers(output.numpy()[None]).item())
    log_probs = output.reshape(-1, output.shape[-1]).log_softmax(dim=-1)
    return sum(float(log_probs[i, (e.predictions[i].actual or e.predictions[i].top[0]).id]) for i in e.answered)


def test_the_figure_of_an_effect_is_of_the_number() -> None:
    e = of_case("edited ensemble")
    assert e.base is not None
    figure = e.plot.effect()
    [axes] = figure.axes
    assert "number; ring" in figure.get_supxlabel() and [t.get_text() for t in axes.get_yticklabels()] == ["number"]
    drawn = next([*map(float, line.get_xdata())] for line in axes.lines[1:] if len(line.get_xdata()) == 2)
    assert drawn == pytest.approx([number_of(e.base), number_of(e)], abs=1e-4)


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
    e = explain(run, TraceRequest.from_dict({"text": ALL_TEXTS[task], **fields}))
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
    found = make_finding(run.explain(ALL_TEXTS["regress"]), ["encoder.0.self.head1=0"])
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
