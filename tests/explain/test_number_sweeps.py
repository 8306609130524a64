"""Sweeps and contributions of a number, against the number of the same edits made one by one, and of smaller models."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.browser.models import subject_of
from tests.helpers.for_each import for_each
from tests.helpers.matrix import CASES, TEXTS, make_cell, matrix_run, second_text

import glassformer
from glassformer.errors import UsageError
from glassformer.explain.edits import states
from glassformer.explain.edits.findings import differences, make_finding, measure_again
from glassformer.explain.edits.what_if import what_if
from glassformer.explain.explanation import Explanation, TraceRequest, explain
from glassformer.run import Run

TEXT = "a b good b a"
SHORT = [case for case in CASES if case != "long"]
NOT_OF_NUMBERS = r"nats|log-prob|log p|probabilit|logit|rank|KL"


@cache
def explained(case: str) -> Explanation:
    return make_cell("regress", case, Path("unused")).e


def number_of(e: Explanation, *edits: str, other: Explanation | None = None) -> float:
    """The number of the answer under edits, one pass of the model by itself."""
    output = what_if(e, edits, other).records["logits"].value if edits else e.records["logits"].value
    return float(e.subject.task.decision.numbers(output.numpy()).item())


@for_each("case", SHORT)
def test_each_change_is_that_of_the_number_under_the_edit_alone(case: str) -> None:
    e = explained(case)
    before = number_of(e)
    if case == "plain":
        assert before == pytest.approx(matrix_run("regress").predict(TEXT)["number"], abs=1e-4)
    parts, keys = e.sweep_parts(), e.sweep_keys()
    assert parts.unit == keys.unit == "number"
    effects = [effect for part in parts.parts for effect in (part.off, part.alone) if effect]
    effects += [effect for grid in keys.grids for row in grid.effects for effect in row]
    for effect in effects:
        after = number_of(e, *effect.edits)
        assert effect.change == pytest.approx(after - before, abs=1e-4)
        assert float(effect.before.replace("−", "-")) == pytest.approx(before, rel=1e-5)
        assert float(effect.after.replace("−", "-")) == pytest.approx(after, rel=1e-4)
        assert effect.n_changed == int(effect.before != effect.after) and effect.position is None
    sizes = [abs(effect.change) for effect in keys.strongest(5)]
    assert sizes == sorted((abs(e.change) for row in keys.grids[0].effects for e in row), reverse=True)[:5]
    assert parts.untrained > 0


@for_each("case", SHORT)
def test_contributions_sum_to_the_number_minus_the_mean(case: str) -> None:
    e = explained(case)
    found, (mean, sd) = e.contributions(), e.subject.task.decision.scale
    assert (found.target, found.contrast, found.unit) == ("number", "mean of the training numbers", "number")
    assert found.difference == pytest.approx(number_of(e) - mean, abs=1e-4)
    assert sum(part.direct for part in found.parts) == pytest.approx(number_of(e) - mean, abs=1e-4)
    assert abs(found.error) < 1e-5 * sd * max(1.0, sum(abs(part.direct) for part in found.parts))
    for part in found.parts:
        if part.edit:
            assert part.total == pytest.approx(number_of(e) - number_of(e, part.edit), abs=1e-4)
    assert found == e.contributions(0)
    with pytest.raises(UsageError, match="no prediction 1"):
        e.contributions(1)


@for_each("pooling", ["mean", "max", "mean+max", "first"])
@for_each("pre_norm", [True, False])
def test_they_sum_up_with_every_pooling_and_norm(pooling: str, pre_norm: bool) -> None:
    run = subject_of(("regress", {"pooling": pooling, "pre_norm": pre_norm, "n_heads": 4}))
    e = explain(run, TEXT)
    found = e.contributions()
    mean, _ = run.task.decision.scale
    assert sum(part.direct for part in found.parts) == pytest.approx(run.predict(TEXT)["number"] - mean, abs=1e-3)
    assert abs(found.error) < 1e-5 * max(1.0, sum(abs(part.direct) for part in found.parts))
    assert sum(".head" in part.name for part in found.parts) == 8


def test_the_number_after_a_layer_is_that_of_a_model_with_fewer() -> None:
    run = subject_of(("regress", {}))
    e = explain(run, TEXT)
    sweep = e.sweep_layers()
    assert sweep.positions == [None] and sweep.unit == "number"
    [stack] = sweep.stacks
    assert [row.layer for row in stack.rows] == [0, 1, 2]
    for row in stack.rows:
        shorter: Any = copy.deepcopy(run.model)
        del shorter.encoder.layers[row.layer :]
        with torch.no_grad():
            output = shorter.eval()(**e.model_inputs)
        assert row.numbers == pytest.approx(run.task.decision.numbers(output.numpy())[0].tolist(), abs=1e-4)
        assert [float(text.replace("−", "-")) for text in row.tokens] == pytest.approx(row.numbers, rel=1e-5)
        assert not row.log_probs and not row.ranks and not row.kl
    assert stack.rows[-1].numbers == pytest.approx([run.predict(TEXT)["number"]], abs=1e-4)


@for_each("case", ["plain", "edited"])
def test_shares_are_of_the_difference_of_both_numbers(case: str) -> None:
    a = explained(case)
    b = second_text(a)
    sweep, (mean, _) = a.sweep_states(b), a.subject.task.decision.scale
    m_a, m_b = number_of(a), number_of(b)
    assert (sweep.answer, sweep.other_answer) == (a.answer["headline"], b.answer["headline"])
    assert sweep.unit == "number" and sweep.position is None
    assert (sweep.difference, sweep.other_difference) == pytest.approx((m_a - mean, m_b - mean), abs=1e-4)
    [grid] = sweep.grids
    for row in grid.rows:
        for i, j in grid.pairs:
            lost = number_of(a, f"{row.state}[token:{i}]=B[token:{j}]", other=b)
            back = number_of(b, f"{row.state}[token:{j}]=B[token:{i}]", other=a)
            assert row.noising[i] == pytest.approx((m_a - lost) / (m_a - m_b), abs=1e-3)
            assert row.denoising[i] == pytest.approx((back - m_b) / (m_a - m_b), abs=1e-3)
    assert sum(x or 0.0 for x in grid.rows[-1].noising) == pytest.approx(
        sum(x or 0.0 for x in grid.rows[-1].denoising), abs=1e-5
    )


def test_numbers_that_are_close_have_no_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    a = explained("plain")
    b = second_text(a)
    sd = a.subject.task.decision.scale[1]
    apart = abs(number_of(a) - number_of(b)) / sd
    monkeypatch.setattr(states, "MIN_DEVIATIONS", apart * 1.01)
    with pytest.raises(UsageError, match=re.escape(a.answer["headline"])) as refused:
        a.sweep_states(b)
    assert f"{apart * 1.01 * sd:.3g} away" in refused.value.hint
    assert not re.search(NOT_OF_NUMBERS, f"{refused.value.message} {refused.value.hint}")
    monkeypatch.setattr(states, "MIN_DEVIATIONS", apart * 0.99)
    assert a.sweep_states(b).grids


def test_no_text_speaks_of_classes_or_tokens() -> None:
    e = explained("plain")
    results = [e.sweep_parts(), e.sweep_keys(), e.sweep_layers(), e.sweep_states(second_text(e)), e.contributions()]
    for result in (*results, explained("edited").sweep_checkpoints()):
        assert not re.search(NOT_OF_NUMBERS, repr(result)), repr(result)


@for_each("case", ["edited", "edited ensemble"])
def test_the_figure_of_an_effect_is_of_the_number(case: str) -> None:
    e = explained(case)
    assert e.base is not None
    figure = e.plot.effect()
    [axes] = figure.axes
    assert "number; ring" in figure.get_supxlabel() and [t.get_text() for t in axes.get_yticklabels()] == ["number"]
    drawn = next([*map(float, line.get_xdata())] for line in axes.lines[1:] if len(line.get_xdata()) == 2)
    assert drawn == pytest.approx([number_of(e.base), number_of(e)], abs=1e-4)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("number-sweeps")
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(["good", "bad", *"abcde"], 5)) for _ in range(80)]
    rows = [{"text": f"{text} n{i}", "stars": -3.5 + text.count("good")} for i, text in enumerate(texts)]
    table = folder / "a.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    model = {"n_layers": 1, "d_model": 16, "n_heads": 2, "d_ff": 16, "ensemble_size": 2, "dropout": 0.0}
    settings: dict[str, Any] = {"model": model, "epochs": 2, "lr": 0.02, "device": "cpu"}
    out = folder / "run"
    glassformer.train("regress", out=out, train_file=table, label_column="stars", threads=1, **settings)
    return glassformer.load(out, device="cpu")


def test_edits_are_measured_at_every_checkpoint(trained: Run) -> None:
    edit = "encoder.0.self.context=0"
    e = explain(trained, TraceRequest("good a b c bad", edits=(edit,), member=1))
    sweep = e.sweep_checkpoints()
    assert sweep.unit == "number" and sweep.checkpoints[-1].checkpoint == "model" and len(sweep.checkpoints) > 1
    for one in sweep.checkpoints:
        request = TraceRequest("good a b c bad", checkpoint=one.checkpoint, member=1)
        alone = explain(trained, request)
        assert one.number_before == pytest.approx(number_of(alone), abs=1e-4)
        assert one.number_after == pytest.approx(number_of(alone, edit), abs=1e-4)
        assert (one.answer_before, one.log_prob_before, one.log_prob_after) == (alone.answer["headline"], None, None)


def test_sweeps_of_classes_say_their_unit() -> None:
    calls: list[Callable[[Explanation], Any]] = [
        lambda e: e.sweep_parts(),
        lambda e: e.sweep_keys(),
        lambda e: e.sweep_layers(),
        lambda e: e.contributions(),
    ]
    e = explain(subject_of(("classify", {})), TEXT)
    assert {call(e).unit for call in calls} == {"nats"} and "nats" in repr(e.sweep_parts())
    assert all(row.numbers == [] for row in e.sweep_layers().stacks[0].rows)


def test_a_finding_about_a_number_holds_its_change(tmp_path: Path) -> None:
    run = matrix_run("regress")
    e = run.explain(TEXTS["regress"])
    found = make_finding(e, ["encoder.0.self.head1=0"])
    after, before = (float(text.replace("−", "-")) for text in (found.after, found.before))
    assert found.change == pytest.approx(after - before, rel=1e-3) and found.change != 0
    assert differences(found, measure_again(run, found), of_numbers=True) == []
    near = replace(found, before=str(before * (1 + 1e-4)), change=found.change * 1.001)
    assert differences(near, measure_again(run, near), of_numbers=True) == []
    far = replace(found, before=str(before * 1.1), change=found.change * 1.1)
    wrong = differences(far, measure_again(run, far), of_numbers=True)
    assert "before is" in wrong[0] and any("the number changes by" in one for one in wrong)


def test_positions_of_a_text_are_edited_for_many() -> None:
    run = matrix_run("regress")
    edit = "encoder.0.self.scores[head:0;key:0]=blocked"
    number = run.predict(TEXTS["regress"], edits=[edit])["number"]
    shown = run.explain(TEXTS["regress"]).what_if(edit).answer["headline"]
    assert number == pytest.approx(float(shown.replace("−", "-")), rel=1e-4)


def test_states_without_partners_are_refused() -> None:
    run = matrix_run("regress")
    first, second = (run.explain(text) for text in ("abcabca", "gfg"))
    assert {first.streams[0].ids[0], first.streams[0].ids[-1]} & {*second.streams[0].ids} == set()
    with pytest.raises(UsageError, match="no token of one text stands for one of the other"):
        first.sweep_states(second)
