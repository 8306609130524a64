"""Sweeps against single edits, identities of exchanged states, a planted pair of heads, findings, and cancelling."""

from __future__ import annotations

import copy
import random
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.browser.models import subject_of
from tests.explain.test_edits import FORMS, OTHERS, TEXTS, explained
from tests.helpers.for_each import for_each
from tests.helpers.inference import Subject, untrained

from glassformer.errors import CheckpointError, UsageError
from glassformer.explain.edits.findings import (
    differences,
    find_head,
    make_finding,
    measure_again,
    read_findings,
    write_findings,
)
from glassformer.explain.edits.measure import base_logits, edited_logits, variant_effects
from glassformer.explain.edits.states import sweep_states
from glassformer.explain.edits.what_if import what_if
from glassformer.explain.explanation import Explanation, TraceRequest, explain
from glassformer.models.ensemble import Ensemble
from glassformer.utils.process_settings import Cancelled, cancellable

EMBEDDINGS = [
    pytest.param("lm", {"max_ngram": 3}, id="lm-ngrams"),
    pytest.param("classify", {"text": {"ngrams": 60}}, id="classify-ngrams"),
    pytest.param("classify", {"text": {"bigrams": 30}}, id="classify-bigrams"),
]
LINEAR = [form for form in FORMS if form.values[0] != "pretrain"]  # the head of a masked model is not
SMALL = {"n_layers": 2, "d_model": 12, "n_heads": 3, "d_ff": 20}


def random_model(task: str, text: dict[str, int] | None = None, **form: Any) -> Any:
    """A random model, also with the n-grams or bigrams of words."""
    return subject_of((task, SMALL | form), **text) if text else untrained(task, **SMALL, **form)


def traced(task: str, text: str, subject: Any) -> Explanation:
    return explain(subject, TraceRequest(text, decode={} if task == "classify" else {"max_new_tokens": 5}))


@for_each(("task", "form"), [*FORMS, *EMBEDDINGS])
def test_a_batch_of_edits_gives_the_logits_of_each_alone(task: str, form: dict[str, Any]) -> None:
    subject = random_model(task, **form)
    e, other = (traced(task, text, subject) for text in (TEXTS[task], OTHERS[task]))
    stack = "decoder" if task == "lm" else "encoder"
    variants = [
        [f"{stack}.0.self.head1=0"],
        [f"{stack}.1.state=skip"],
        [f"{stack}.0.self.scores[head:2;key:0]=blocked", f"{stack}.1.ff.branch*0.5"],
        [f"{stack}.0.state[token:1]=B"],
        ["logits*1"],
    ]
    together = edited_logits(e, variants, other)
    for edits, logits in zip(variants, together, strict=True):
        alone = what_if(e, edits, other, again=False).records["logits"].value.double()
        torch.testing.assert_close(logits, alone.reshape(logits.shape), atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(together[-1], base_logits(e), atol=1e-4, rtol=1e-5)


@for_each("task", TEXTS)
def test_every_part_is_switched_off_and_left_alone(task: str) -> None:
    e = explained(task)
    sweep = e.sweep_parts()
    heads = [part for part in sweep.parts if part.kind == "head"]
    assert len(heads) == 3 * sum(part.kind == "heads" for part in sweep.parts) > 0
    assert {part.step for part in sweep.parts if part.kind == "block"} == {
        id for id in e.records if id.endswith("ff.out")
    }
    part = heads[1]
    block = part.step.removesuffix(".weights")
    assert part.off.edits == [f"{block}.context[head:1]=0"]
    [effect] = variant_effects(e, [part.off.edits])
    assert part.off.change == pytest.approx(effect.change, abs=1e-4)
    result = e.what_if(*part.off.edits)
    change = sum(effect.log_prob_after - effect.log_prob_before for effect in result.effects)
    assert part.off.change == pytest.approx(change, abs=1e-4) and part.off.n_changed == len(result.changed)
    assert part.alone is not None
    others_off = e.what_if(f"{block}.head0=0", f"{block}.head2=0")
    change = sum(effect.log_prob_after - effect.log_prob_before for effect in others_off.effects)
    assert part.alone.change == pytest.approx(change, abs=1e-4)
    assert sweep.untrained > 0


def test_every_key_is_blocked_for_every_head() -> None:
    e = explained("translate")
    sweep = e.sweep_keys()
    for grid in sweep.grids:
        record = e.records[grid.step]
        assert (len(grid.effects), len(grid.effects[0])) == (record.value.shape[0], record.value.shape[2])
        assert grid.stream == record.axes[-1].stream
    strongest = sweep.strongest(3)
    assert [e.change for e in strongest] == sorted(e.change for e in strongest)
    [effect] = variant_effects(e, [strongest[0].edits])
    assert effect.change == pytest.approx(strongest[0].change, abs=1e-4)


def differing(task: str, **form: Any) -> tuple[Explanation, Explanation]:
    """Two texts of equally many tokens with another answer."""
    subject, rng = random_model(task, **form), random.Random(0)
    words, space = (["a", "b", "c", "good", "bad"], " ") if task == "classify" else (list("abcdefg"), "")
    texts = [space.join(rng.choices(words, k=5)) for _ in range(100)]
    if task == "pretrain":
        texts = [f"{text}[MASK]" for text in texts]
    if task == "classify":  # so that half of the texts are of either class
        logits = torch.stack([traced(task, text, subject).records["logits"].value for text in texts[:21]])
        with torch.no_grad():
            subject.model.head.bias.sub_((logits[:, 1] - logits[:, 0]).median())
    first: Explanation | None = None
    for text in texts:
        e = traced(task, text, subject)
        first = first or e
        if e.answer["headline"] != first.answer["headline"]:
            try:
                sweep_states(first, e)
            except UsageError:  # too uncertain for shares, or a prompt of another length
                continue
            return first, e
    raise AssertionError("no two texts have other answers")


@for_each(("task", "form"), [*FORMS, *EMBEDDINGS])
def test_shares_of_a_cut_and_of_the_rest_sum_to_one(task: str, form: dict[str, Any]) -> None:
    """All tokens of the stream after a layer are a cut: S from the second text is the rest from the first."""
    a, b = differing(task, **form)
    sweep = sweep_states(a, b)
    grid = sweep.grids[0]
    index = 0 if a.is_classifier else next(i for i, p in enumerate(a.predictions) if p.position == sweep.position)
    tokens = [i for i, _ in grid.pairs]
    ids = [next(c.id for c in a.predictions[index].top if c.piece == one) for one in (sweep.answer, sweep.other_answer)]

    def m(e: Explanation, edits: list[str], other: Explanation) -> float:
        row = edited_logits(e, [edits], other)[0, index] if edits else base_logits(e)[index]
        return float(row[ids[0]] - row[ids[1]])

    whole = sweep.difference - sweep.other_difference
    for row in {row.state: row for row in (grid.rows[0], grid.rows[-1])}.values():
        for n in {1, len(tokens) // 2}:
            some, rest = tokens[:n], tokens[n:]
            noising = (sweep.difference - m(a, [f"{row.state}[token:{i}]=B" for i in some], b)) / whole
            denoising = (m(b, [f"{row.state}[token:{i}]=B" for i in rest], a) - sweep.other_difference) / whole
            assert noising + denoising == pytest.approx(1.0, abs=1e-3)
        every = [f"{row.state}[token:{i}]=B" for i in tokens]
        if task != "lm" or sweep.position == len(tokens) - 1:
            assert m(a, every, b) == pytest.approx(sweep.other_difference, abs=1e-3)
    first = grid.rows[0].noising[tokens[0]]
    expected = (sweep.difference - m(a, [f"{grid.rows[0].state}[token:{tokens[0]}]=B"], b)) / whole
    assert first == pytest.approx(expected, abs=1e-3)


def test_texts_with_one_answer_have_no_shares() -> None:
    e = explained("classify")
    with pytest.raises(UsageError, match="same answer"):
        e.sweep_states(e)


def backup_pair() -> Subject:
    """A classifier two of whose heads write the same: either suffices, as the final norm lets one through like both."""
    subject = untrained("classify", n_layers=1, d_model=12, n_heads=3, d_ff=20)
    layer, head = subject.model.encoder.layers[0], subject.model.head
    attention = layer.self_attention
    with torch.no_grad():
        for p in (attention.v_proj.weight, attention.v_proj.bias, attention.o_proj.weight, attention.o_proj.bias):
            p.zero_()
        layer.feed_forward.down_proj.weight.zero_()
        layer.feed_forward.down_proj.bias.zero_()
        attention.v_proj.bias[0] = attention.v_proj.bias[4] = 1000.0  # of heads 0 and 1
        attention.o_proj.weight[3, 0] = attention.o_proj.weight[3, 4] = 1.0
        for p in head.parameters():
            p.zero_()
        head.weight[..., 3] = torch.tensor([[-2.0], [2.0]])[: len(head.weight), 0]
    return subject


def test_a_pair_that_backs_each_other_up_is_found_by_together_and_missed_one_by_one() -> None:
    e = explain(backup_pair(), TEXTS["classify"])
    sweep = e.sweep_parts()
    single = [part.off for part in sweep.parts if part.kind == "head"]
    [together] = [part.off for part in sweep.parts if part.kind == "heads"]
    assert len(single) == 3 and all(abs(effect.change) < 1e-3 for effect in single)
    assert together.change < -0.3
    assert [abs(part.alone.change) < 1e-3 for part in sweep.parts if part.alone] == [True, True, False]


def test_a_cancelled_sweep_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from glassformer.explain.edits import measure

    monkeypatch.setattr(measure, "BATCH_TOKENS", 40)
    e = explained("translate")
    event, seen = threading.Event(), []
    check = measure.check_cancelled

    def count() -> None:
        seen.append(1)
        if len(seen) == 3:
            event.set()
        check()

    monkeypatch.setattr(measure, "check_cancelled", count)
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in e.subject.model.modules()]
    with cancellable(event), pytest.raises(Cancelled):
        e.sweep_parts()
    assert len(seen) == 3
    assert [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in e.subject.model.modules()] == hooks
    logits = e.subject.model(**e.model_inputs)[0]
    torch.testing.assert_close(logits, e.records["logits"].value, atol=1e-5, rtol=0)
    e.sweep_parts()  # without the event nothing is cancelled


def test_of_an_ensemble_the_answer_of_all_is_given_too() -> None:
    first, second = (untrained("classify", seed=seed, n_layers=2, d_model=12, n_heads=3, d_ff=20) for seed in (0, 1))
    both = Subject(first.task, Ensemble([first.model, second.model]))
    e = explain(both, TraceRequest(TEXTS["classify"], member=1))
    [expected] = [explain(second, TEXTS["classify"])]
    assert e.answer == expected.answer and e.together.size == 2 and e.together.answer != e.answer
    result, alone = e.what_if("logits=0"), expected.what_if("logits=0")
    assert (result.answer_before, result.answer_after) == (alone.answer_before, alone.answer_after)


def test_findings_are_measured_again(tmp_path: Path) -> None:
    e = explained("translate")
    finding = make_finding(e, ["encoder.0.self.context[head:1]=0"], name="a head")
    assert [one.edits for one in finding.control] == [[f"encoder.0.self.context[head:{h}]=0"] for h in (0, 2)]
    by_name = make_finding(e, ["encoder.0.self.head1=0"])
    assert [one.edits for one in by_name.control] == [[f"encoder.0.self.head{h}=0"] for h in (0, 2)]
    assert by_name.change == finding.change
    plain = make_finding(e, ["encoder.1.state=skip"])
    assert plain.control == []
    file = tmp_path / "findings.toml"
    write_findings(file, e.subject, [finding, plain])
    weights, [read, second] = read_findings(file)
    assert weights is None and read == finding and second == plain
    # The request decodes as the run does, here at most 24 tokens and not 5.
    expected = replace(read, before="x", change=finding.change + 1)
    found = differences(expected, measure_again(e.subject, expected))
    assert "before is" in found[0] and any("log-probability" in one for one in found)
    now = measure_again(e.subject, read)
    assert differences(now, measure_again(e.subject, now)) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = [", "is not valid TOML"),
        ("x = 1", "holds no"),
        ('[[finding]]\nname = "a"', "finding 1"),
        ('[[finding]]\nname = "a"\ntext = "b"\nedits = [1]\nbefore = ""\nafter = ""\nchange = 0.0', "finding 1"),
    ],
)
def test_a_file_of_findings_that_is_none_is_refused(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "findings.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError, match=message):
        read_findings(file)
    with pytest.raises(UsageError, match="cannot be read"):
        read_findings(tmp_path / "none.toml")


def test_the_head_that_decides_is_found_or_not() -> None:
    """What is found decides; of random weights it may be no head."""
    a, b = differing("classify")
    found = find_head(a, b)
    if found is not None:
        assert a.what_if(*found.edits).answer_after == b.answer["headline"]
    with pytest.raises(UsageError, match="tokens"):
        find_head(a, explained("classify", "a b"))


@for_each(("task", "form"), [*FORMS, *EMBEDDINGS])
def test_the_lens_is_a_model_with_fewer_layers_and_ends_in_its_logits(task: str, form: dict[str, Any]) -> None:
    """Row n is the model of which only the first n layers are left; the last row is the model's own prediction."""
    subject = random_model(task, **form)
    e = traced(task, TEXTS[task], subject)
    chosen = [0] if e.is_classifier else e.generated
    for stack in e.sweep_layers().stacks:
        last = stack.rows[-1]
        assert last.tokens == [e.predictions[i].top[0].piece for i in chosen]
        assert last.kl == [0.0] * len(chosen)
        own = [(e.predictions[i].actual or e.predictions[i].top[0]) for i in chosen]
        assert last.log_probs == pytest.approx([one.log_prob for one in own], abs=1e-5)
        for row in stack.rows[:-1]:
            shorter = copy.deepcopy(subject.model)
            del getattr(shorter, stack.stack).layers[row.layer :]
            with torch.no_grad():
                logits = shorter.eval()(**e.model_inputs)[0].double()
            logits = (logits[None] if e.is_classifier else logits)[chosen].log_softmax(dim=-1)
            expected = [float(logits[i, one.id]) for i, one in enumerate(own)]
            assert row.log_probs == pytest.approx(expected, abs=1e-4), row.layer


POOLING = [
    pytest.param("classify", {"pooling": how, "pre_norm": pre_norm}, id=f"{how}-{pre_norm}")
    for how in ("mean", "max", "mean+max", "first")
    for pre_norm in (True, False)
]


@pytest.mark.parametrize(
    ("task", "form"), [*LINEAR, *EMBEDDINGS, *POOLING, pytest.param("lm", {"norm": "rms"}, id="rms")]
)
def test_contributions_sum_to_the_logits(task: str, form: dict[str, Any]) -> None:
    subject = random_model(task, **form)
    e = traced(task, TEXTS[task], subject)
    for index in [0] if e.is_classifier else e.generated[:3]:
        found = e.contributions(index)
        top = e.predictions[index]
        assert found.difference == pytest.approx(
            (top.actual or top.top[0]).logit - next(c.logit for c in top.top if c.piece == found.contrast), abs=1e-4
        )
        assert abs(found.error) < 1e-5 * max(1.0, sum(abs(part.direct) for part in found.parts))
        assert sum(".head" in part.name for part in found.parts) >= 6


def test_a_wrong_norm_does_not_sum_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A norm folded twice, and statistics of another token."""
    from glassformer.explain.edits import contributions as module

    e = explained("translate", pre_norm=False)
    normed = module._normed
    for wrong in (
        lambda e, norm, part: normed(e, norm, normed(e, norm, part)),
        lambda e, norm, part: normed(e, norm, part.roll(1, dims=0)).roll(-1, dims=0),
    ):
        monkeypatch.setattr(module, "_normed", wrong)
        assert abs(e.contributions().error) > 1e-2


def test_the_total_effect_is_that_of_switching_the_part_off() -> None:
    e = explained("lm")
    part = next(part for part in e.contributions().parts if part.name == "decoder.1.ff")
    assert part.total is not None
    [off] = edited_logits(e, [["decoder.1.ff.out=0"]])[:, e.generated[0]]
    assert part.total == pytest.approx(e.contributions().difference - difference_of(e, off), abs=1e-4)


def difference_of(e: Explanation, row: torch.Tensor) -> float:
    prediction = e.predictions[e.generated[0]]
    target = (prediction.actual or prediction.top[0]).id
    contrast = next(c.id for c in prediction.top if c.id != target)
    return float(row[target] - row[contrast])
