"""Edits against models that were changed by hand, their identities to the bit, the means of `=mean`, and random texts.

The means are over texts and real tokens, taken from the validation split.
"""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.browser.models import subject_of
from tests.helpers.for_each import for_each
from tests.helpers.matrix import stack_of
from tests.helpers.small import CPU, data_of
from torch import nn

from glassformer.errors import UsageError
from glassformer.explain.edits import apply as module
from glassformer.explain.edits.apply import Edits, reference_means
from glassformer.explain.edits.effects import WhatIf, what_if
from glassformer.explain.edits.grammar import Edit
from glassformer.explain.explanation import Explanation, TraceRequest, explain
from glassformer.explain.trace import trace
from glassformer.run import Run
from glassformer.utils.device import Computing, tuned

TEXTS = {"classify": "a b good c, d", "translate": "abc de", "lm": "abc ba", "pretrain": "a b [MASK] c, d"}
OTHERS = {"classify": "d c bad b, a", "translate": "cba ed", "lm": "cab ab", "pretrain": "d c [MASK] b, a"}
FORMS = [
    (task, {"pre_norm": pre_norm, "positions": positions})
    for task in TEXTS
    for pre_norm, positions in ((True, "sinusoidal"), (False, "sinusoidal"), (False, "rotary"), (True, "learned"))
    if task != "pretrain" or positions == "sinusoidal"  # its encoder is that of "classify"
]


@pytest.fixture(autouse=True)
def _explicit_attention() -> Iterator[None]:
    """Compute attention as what is looked at does, whose sums torch's fused kernel adds in another order."""
    with tuned(CPU, Computing(attention="explicit")):
        yield


def explained(task: str, text: str = "", settings: Any = (), **model: Any) -> Explanation:
    """Explain by a random model; `settings` are of its tokenizer."""
    run = subject_of((task, {"d_model": 12, "n_heads": 3, "d_ff": 20} | model), **dict(settings))
    decode = {"max_new_tokens": 5} if task in ("translate", "lm") else {}
    return explain(run, TraceRequest(text or TEXTS[task], decode=decode))


def logits_of(e: Explanation, change: Any = None) -> torch.Tensor:
    """Return the logits of the explanation's inputs by a copy of the model that `change` changes by hand."""
    changed = copy.deepcopy(e.subject.model)
    with torch.no_grad():
        if change is not None:
            change(changed)
        return changed(**e.model_inputs)[0]


def edited_logits(result: WhatIf) -> torch.Tensor:
    return result.trace["logits"].value


@for_each(("task", "form"), FORMS)
def test_an_edited_pass_equals_a_model_changed_by_hand(task: str, form: dict[str, Any]) -> None:
    """Weights do by hand what edits do to numbers: columns of W_O, rows of W_2, a layer taken out of its stack."""
    e = explained(task, **form)
    for stack in {"translate": ["encoder", "decoder"]}.get(task, [stack_of(task)]):

        def layer(model: nn.Module, i: int, stack: str = stack) -> Any:
            return getattr(model, stack).layers[i]

        active = int(e.records[f"{stack}.0.ff.hidden"].value.sum(dim=0).argmax())
        for edit, change in (
            (f"{stack}.1.self.head1=0", lambda m: layer(m, 1).self_attention.o_proj.weight[:, 4:8].zero_()),
            (f"{stack}.0.self.branch=0", lambda m: [p.zero_() for p in layer(m, 0).self_attention.o_proj.parameters()]),
            (
                f"{stack}.0.ff.neuron{active}*0.5",
                lambda m, i=active: layer(m, 0).feed_forward.down_proj.weight[:, i].mul_(0.5),
            ),
            (f"{stack}.1.state=skip", lambda m, stack=stack: getattr(m, stack).layers.pop(1)),
        ):
            result = e.what_if(edit)
            torch.testing.assert_close(edited_logits(result), logits_of(e, change), atol=1e-5, rtol=1e-5, msg=edit)
            assert result.unchanged == []
            # Nothing before the first edited step differs, to the bit.
            ids = list(result.trace)
            first = next(i for i, id in enumerate(ids) if id in result.trace.edited)
            assert all(torch.equal(result.trace[id].value, e.records[id].value) for id in ids[:first]), edit


@for_each("task", TEXTS)
def test_what_changes_nothing_changes_nothing_to_the_bit(task: str) -> None:
    e = explained(task)
    ids = [id for id, record in e.records.items() if record.editable]
    for some, kind in itertools.product((ids[::2], ids[1::2]), ("*1", "=B")):
        edits = [f"{id}{kind}" for id in some]
        result = what_if(e, edits, e)
        assert torch.equal(edited_logits(result), e.records["logits"].value)
        assert result.unchanged == edits and result.changed == [] and result.trace.edited == []
        assert result.answer_after in (None, result.answer_before) and set(result.same) == set(e.records)
        assert all(one.kl == 0 and one.log_prob_before == one.log_prob_after for one in result.effects)


@for_each("positions", ["sinusoidal", "rotary", "learned"])
@for_each("task", TEXTS)
def test_the_embedding_of_a_second_text_gives_its_answer(task: str, positions: str) -> None:
    """Also of rotary models, which add no positions: there the last step of the embedding is edited."""
    e, other = (explained(task, text, positions=positions) for text in (TEXTS[task], OTHERS[task]))
    if task in ("classify", "pretrain"):
        result = what_if(e, ["embedding=B"], other)
        torch.testing.assert_close(edited_logits(result), other.records["logits"].value, atol=1e-6, rtol=0)
    elif task == "translate":
        inputs = {**e.model_inputs, "src": other.model_inputs["src"]}
        for edit in ("source=B", "memory=B"):
            result = what_if(e, [edit], other)
            torch.testing.assert_close(edited_logits(result), e.subject.model(**inputs)[0], atol=1e-6, rtol=0)
    else:
        n = min(len(e.streams[0]), len(other.streams[0]))
        result = what_if(e, [f"embedding[token:0-{n}]=B"], other)
        expected = e.subject.model(other.model_inputs["ids"][:, :n])[0]
        torch.testing.assert_close(edited_logits(result)[:n], expected, atol=1e-5, rtol=0)


def test_a_blocked_key_is_that_key_as_padding() -> None:
    e = explained("classify")
    last = len(e.streams[0]) - 1
    result = e.what_if(f"encoder.*.self.scores[key:{last}]=blocked")
    mask = torch.ones_like(e.model_inputs["ids"], dtype=torch.bool)
    mask[0, last] = False
    with trace(e.subject.model) as padded:
        e.subject.model(**{**e.model_inputs, "padding_mask": mask})
    for layer in (0, 1):
        ours, theirs = (t[f"encoder.{layer}.self.weights"].value for t in (result.trace, padded))
        assert torch.equal(ours, theirs) and not ours[..., last].any()


@for_each(
    ("task", "block"), [("classify", "encoder.0.self"), ("lm", "decoder.0.self"), ("translate", "decoder.1.cross")]
)
def test_a_row_whose_keys_are_all_blocked_has_no_weights(task: str, block: str) -> None:
    weights = explained(task).what_if(f"{block}.scores[head:1;token:1]=blocked").trace[f"{block}.weights"].value
    assert not weights[1, 1].any()
    torch.testing.assert_close(weights[0].sum(dim=-1), torch.ones(weights.shape[1]))


def test_no_masked_key_takes_the_place_of_the_only_one() -> None:
    blocked = explained("lm").what_if("decoder.0.self.scores[key:0]=blocked").trace["decoder.0.self.weights"].value
    assert not blocked[:, 0].any() and not blocked.triu(diagonal=1).any()


def test_several_edits_act_in_the_order_of_computation() -> None:
    e = explained("lm")
    together = e.what_if("decoder.1.self.head0=0", "decoder.0.ff.branch*2", "decoder.1.self.head0=1")
    assert together.trace.edited == ["decoder.0.ff.out", "decoder.1.self.context"]
    assert (together.trace["decoder.1.self.context"].value[0] == 1).all()  # the later of two at one step
    edits = Edits(["decoder.0.self.scores[key:0]=blocked", "decoder.1.state=skip"], e.records, dict)
    blocked, skipped = {"scores", "weights"}, {"decoder.0.ff.residual", "decoder.1.ff.residual"}
    assert edits.ids == {f"decoder.0.self.{step}" for step in blocked} | skipped, "a tap is called for its steps only"
    with pytest.raises(UsageError, match="never acted"):
        edits.check_fired()


def test_effects_are_those_of_the_logits() -> None:
    e = explained("translate")
    result = e.what_if("decoder.1.ff.branch=0")
    a, w = (t["logits"].value.double() for t in (e.records, result.trace))
    assert len(result.effects) == len(e.generated)
    for i, effect in zip(e.generated, result.effects, strict=True):
        target = e.predictions[i].actual or e.predictions[i].top[0]
        assert effect.log_prob_before == pytest.approx(a[i].log_softmax(-1)[target.id].item())
        assert effect.log_prob_after == pytest.approx(w[i].log_softmax(-1)[target.id].item())
        assert effect.rank_after == int((w[i] > w[i, target.id]).sum())
        p, q = a[i].softmax(-1), w[i].softmax(-1)
        assert effect.kl == pytest.approx((p * (p / q).log()).sum().item(), abs=1e-9)
        assert effect.contrast != effect.target
        piece = e.subject.task.tokenizer.tokens
        assert (effect.before, effect.after) == tuple(piece([int(x[i].argmax())])[0] for x in (a, w))
    assert result.to_json()["effects"][0].keys() == vars(result.effects[0]).keys()


def test_decoding_again_reads_the_edits_at_every_step_and_leaves_the_model_as_it_is() -> None:
    """The answer under an edit is that of the model changed by hand."""
    e = explained("translate")
    changed = copy.deepcopy(e.subject.model)
    with torch.no_grad():
        changed.decoder.layers[0].cross_attention.o_proj.weight[:, 8:12] = 0
    by_hand = explain(Run(Path(), e.run.task, changed, CPU), e.request)
    result = e.what_if("decoder.0.cross.head2=0")
    assert result.answer_after == by_hand.streams[-1].text and result.answer_before == e.streams[-1].text
    given = explain(e.subject, TraceRequest(TEXTS["translate"], target="abc"))
    assert given.what_if("decoder.0.cross.head2=0").answer_after is None
    assert e.what_if("decoder.0.self.scores[key:1]=blocked").answer_after is None
    late = e.what_if(f"decoder.0.self.out[token:{len(e.streams[1]) - 1}]=0")
    assert late.answer_after is None and "positions of this text" in late.why_not
    with pytest.raises(UsageError):
        e.what_if("decoder.0.self.head9=0")
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in e.subject.model.modules())
    torch.testing.assert_close(logits_of(e), e.records["logits"].value, atol=1e-6, rtol=0)


@for_each(
    ("edit", "message"),
    [
        ("encoder.0.self.contxt=0", "nearest are encoder.0.self.context"),
        ("encoder.0.self.head3=0", "out of range"),
        ("encoder.0.self.context[token:0;token:0]=0", "sliced twice"),
        ("encoder.0.self.context[key:2]=0", "no axis 'key'"),
        ("encoder.0.self.q=blocked", "only scores can be blocked"),
        ("encoder.0.self.mask[key:0]=0", "block scores"),
        ("encoder.0.self.out=skip", "only a whole layer"),
        ("encoder.0.state[token:1]=skip", "only a whole layer"),
        ("embedding.ids=0", "does not use it"),
        ("encoder.0.state=B", "no second text"),
        ("decoder.0.state=0", "no step is called"),
        ("memory=nan", "malformed"),
        ("memory=1e30", "from -10000 to 10000"),
        ("target=0", "no target embedding"),
    ],
)
def test_an_edit_that_cannot_act_is_refused_with_what_would(edit: str, message: str) -> None:
    e = explain(explained("classify").subject, TraceRequest(""))  # so that there is a mask
    with pytest.raises(UsageError) as error:
        e.what_if(edit)
    assert message in f"{error.value.message} {error.value.hint}"


def test_slices_of_a_second_text_must_be_as_large() -> None:
    e, other = explained("classify"), explained("classify", "a b")
    with pytest.raises(UsageError, match="second text"):
        what_if(e, ["encoder.0.state=B"], other)
    for edit in ("encoder.0.state[token:0-2]=B[token:0-2]", "encoder.0.state[token:4]=B[token:1]"):
        assert what_if(e, [edit], other).unchanged == []


@for_each("text", "a.b[head:2;token:0-5]=0 a.*.c*-0.5 x=B[token:1] x=B s[key:0]=blocked e.1.state=skip a=2".split())
def test_a_text_comes_back_as_it_was_parsed(text: str) -> None:
    assert str(Edit.parse(text)) == text and Edit.parse(str(Edit.parse(text))) == Edit.parse(text)


@for_each("task", TEXTS)
def test_any_text_has_an_effect_or_is_refused(task: str) -> None:
    """Never silence, never another error."""
    e, other, draw = explained(task), explained(task, OTHERS[task]), random.Random(0)
    steps = [*e.records, "memory", "embedding", "source", "encoder.0.state", "decoder.1.state", "decoder.0.self.head1",
             "encoder.1.ff.neuron3", "*.0.self.branch", "encoder.*.self.scores", "nothing"]  # fmt: skip
    axes = ("head", "token", "key", "feature", "head_feature", "hidden", "vocab", "class", "wrong")
    refused = changed = 0
    for _ in range(170):
        parts = [
            f"{draw.choice(axes)}:{draw.choice(['0', '1', '0-2', '1.2', '0.2', '99', '2-1', ''])}"
            for _ in range(draw.randint(0, 2))
        ]
        part, what = f"[{';'.join(parts)}]" if parts else "", "=0 =B =blocked =skip *2 =-3.5 =x +1".split() + [""]
        try:
            result = what_if(e, [draw.choice(steps) + part + draw.choice(what)], other)
            assert result.unchanged or result.trace.edited
            changed += 1
        except UsageError as error:
            assert error.message
            refused += 1
    assert refused > 20 and changed > 20


@for_each("task", TEXTS)
def test_means_are_over_all_tokens_of_all_texts(task: str) -> None:
    """Each text alone, without padding, and the sum of its rows."""
    e, split = explained(task), data_of(task).valid
    subject, t = e.subject, e.subject.task
    means = reference_means(t, subject.model, split, e.records)
    assert set(means) == {id for id, record in e.records.items() if module.has_mean(record)}
    again = reference_means(t, subject.model, split, e.records)
    assert all(torch.equal(mean, again[id]) for id, mean in means.items())
    if task == "pretrain":  # its masks are drawn anew, so only the seed gives the same
        return
    corpus = t.encode(split, training=False)
    rows: dict[str, list[torch.Tensor]] = {id: [] for id in means}
    for row in (row for batch in t.eval_batches(corpus, 1) for row in batch):
        with trace(subject.model) as one, torch.no_grad():
            t.logits(subject.model, t.make_batch(corpus, row[None]))
        for id in rows:
            value, names = one[id].value, [axis.name for axis in one[id].axes]
            rows[id].append(value.movedim(names.index("token"), 0) if "token" in names else value[None])
    for id, mean in means.items():
        torch.testing.assert_close(mean, torch.cat(rows[id]).mean(dim=0), atol=1e-5, rtol=1e-5, msg=id)


@for_each("task", TEXTS)
def test_a_head_is_set_to_its_mean_at_every_token(task: str) -> None:
    e, step = explained(task), f"{stack_of(task)}.0.self.context"
    means = reference_means(e.subject.task, e.subject.model, data_of(task).valid, e.records)
    tap = Edits([f"{step}[head:1]=mean"], e.records, lambda: means)
    with trace(e.subject.model, tap=tap) as t, torch.no_grad():
        e.subject.model(**e.model_inputs)
    value = t[step].value
    torch.testing.assert_close(value[1], means[step][1].expand_as(value[1]))
    torch.testing.assert_close(value[0], e.records[step].value[0])
    twice = {name: torch.cat([x, x]) for name, x in e.model_inputs.items()}
    with trace(e.subject.model, lambda _: False, tap=tap), torch.no_grad():
        both = e.subject.model(**twice)
    torch.testing.assert_close(both[0], both[1])


def test_means_are_computed_once_for_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    e = explained("classify")
    run, read = Run(tmp_path, e.run.task, e.run.model, CPU), list[str]()
    (tmp_path / "config.json").write_text("{}")

    def load(*_: Any, **__: Any) -> Any:
        read.append("data")
        return data_of("classify")

    monkeypatch.setattr(module, "load_run_data", load)
    first, second = (explain(run, TEXTS["classify"]).what_if("encoder.0.self.head0=mean") for _ in range(2))
    assert read == ["data"] and torch.equal(first.trace["logits"].value, second.trace["logits"].value)


def test_steps_over_pairs_of_tokens_have_no_mean_and_runs_without_data_are_refused() -> None:
    e = explained("classify")
    for step in ("scores", "weights"):
        with pytest.raises(UsageError, match="no mean over texts"):
            e.what_if(f"encoder.0.self.{step}=mean")
    with pytest.raises(UsageError, match="averages over the validation texts of the run, which cannot be read"):
        e.what_if("encoder.0.self.head0=mean")
