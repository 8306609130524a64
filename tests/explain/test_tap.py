"""A tap says what is used in place of a step, and the rest of the trace is what the model makes of that."""

from __future__ import annotations

import pytest
import torch
from tests.explain.test_trace import FAMILIES, VARIANTS, a_model, traced
from tests.helpers.for_each import for_each
from tests.helpers.recompute import recompute
from torch import Tensor, nn

from glassformer.errors import UsageError
from glassformer.explain import trace
from glassformer.explain.trace import Trace
from glassformer.nn.attention import Tap


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def tapped(model: nn.Module, args: tuple[Tensor, ...], tap: Tap) -> tuple[Trace, Tensor]:
    with torch.no_grad(), trace(model, tap=tap) as t:
        return t, model(*args)


def other_than(x: Tensor) -> Tensor:
    """Values of the same form; of a mask, one that hides the first key, which is seen otherwise."""
    return x & (torch.arange(x.shape[-1]) > 0) if x.dtype == torch.bool else x + torch.randn(x.shape)


@pytest.mark.parametrize("family", FAMILIES)
@for_each("changes", VARIANTS.values())
def test_each_step_on_the_way_can_be_replaced_and_the_others_are_made_of_it(family: str, changes: dict) -> None:
    """And a tap that hands back what it saw changes no bit."""
    model, args = a_model(family, **changes)
    plain, text = traced(model, *args)
    on_the_way, seen = [id for id in plain if plain[id].editable or plain[id].op == "mask"], list[str]()
    t, output = tapped(model, args, lambda id, x: (seen.append(id), x)[1])
    assert torch.equal(output, text) and not t.edited
    assert list(t) == list(plain) and all(torch.equal(t[id].value, plain[id].value) for id in t)
    assert sorted(seen) == sorted(on_the_way), "every step on the way, each once"
    every = [id for id in on_the_way if not bool((plain[id].value == 0).all())]
    for some in (set(every[first::4]) for first in range(4)):  # each once, four traces for all
        t, output = tapped(model, args, lambda id, x, some=some: other_than(x) if id in some else x)
        # Pooling reads the mask of the text; where attention's is another one, it stands by itself.
        assert [id for id in t if id != "mask"] == list(plain)
        assert set(t.edited) == some
        for record in t.values():
            made = None if record.id in some else recompute(t, model, record)
            if made is not None:
                value, made = record.value.double(), made.expand_as(record.value)
                torch.testing.assert_close(value, made, atol=1e-4, rtol=1e-4, msg=f"{sorted(some)}: {record}")
        assert torch.equal(t["logits"].value, output) and not torch.equal(output, text)
    assert torch.equal(traced(model, *args)[1], text), "nothing is left behind"


def test_one_head_of_one_layer_is_cut_before_it_is_mixed_with_the_others() -> None:
    model, args = a_model("translator")

    def cut(id: str, x: Tensor) -> Tensor:
        if id == "decoder.1.cross.context":
            x[:, 1] = 0  # a copy, of which the steps before know nothing
        return x

    plain, _ = traced(model, *args)
    t, _ = tapped(model, args, cut)
    assert t.edited == ["decoder.1.cross.context"]
    assert not t["decoder.1.cross.context"].value[:, 1].any()
    assert torch.equal(t["decoder.1.cross.v"].value, plain["decoder.1.cross.v"].value)
    kept, gone = t["decoder.1.cross.concat"].value.chunk(2, dim=-1)
    assert torch.equal(kept, plain["decoder.1.cross.concat"].value.chunk(2, dim=-1)[0]) and not gone.any()


def test_steps_that_are_not_kept_are_tapped_too() -> None:
    model, args = a_model("classifier")
    with torch.no_grad(), trace(model, only="logits", tap=lambda id, x: x * 0 if id == "pooled" else x) as t:
        model(*args)
    assert list(t) == ["logits"] and t.edited == ["pooled"]
    assert torch.equal(t["logits"].value[:, 1], model.head.bias.expand(2))


def test_gradients_go_through_what_the_tap_returned() -> None:
    model, args = a_model("classifier")
    held = {"encoder.1.self.weights", "encoder.0.self.weights"}
    with trace(model, tap=lambda id, x: x.detach() if id in held else x) as t:
        model(*args).sum().backward()
    assert not t.edited  # the same numbers
    assert model.encoder.layers[0].self_attention.q_proj.weight.grad is None
    assert model.encoder.layers[0].self_attention.v_proj.weight.grad.any()


@for_each(
    ("made", "message"),
    [
        (lambda x: None, "a tensor like 'encoder.0.ff.out', .*, got NoneType"),
        (lambda x: x[:, :1], r"'encoder.0.ff.out', \(2, 5, 8\) .*, got \(2, 1, 8\)"),
        (lambda x: x.double(), "got .*float64"),
    ],
)
def test_a_tap_that_answers_with_something_else_is_refused(made, message: str) -> None:
    model, args = a_model("classifier")
    with pytest.raises(UsageError, match=message):
        tapped(model, args, lambda id, x: made(x) if id == "encoder.0.ff.out" else x)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_an_edited_trace_is_not_checked_against_the_fused_kernel() -> None:
    model, args = a_model("classifier")
    t, _ = tapped(model, args, lambda id, x: x * 2 if id == "encoder.0.self.scores" else x)
    assert t.checks == []
