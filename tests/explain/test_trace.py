"""A trace holds the numbers of the real forward pass, and every record says truly how it was computed, and where.

A tap says what is used in place of a step, and the rest is what the model makes of that. Tracing changes nothing that
it does not put back: hooks, modes, precision; and threads do not mix.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.helpers.copying import randomise
from tests.helpers.for_each import for_each
from tests.helpers.recompute import check_every_record
from torch import Tensor, nn

import glassformer
import glassformer.nn.attention as attention_module
from glassformer.config import ModelConfig
from glassformer.errors import UsageError
from glassformer.explain import trace
from glassformer.explain.capture.sites import SITES, source_line
from glassformer.explain.trace import Trace
from glassformer.models import LanguageModel, TextClassifier, Translator
from glassformer.nn.attention import Mask, MultiHeadAttention, Tap, attention
from glassformer.nn.embeddings import TokenEmbedding
from glassformer.nn.layers import FeedForward, Layer, LayerNorm, Residual

SMALL = ModelConfig(n_layers=2, d_model=8, n_heads=2, dropout=0.1)
FAMILIES = ["classifier", "translator", "language model"]
VARIANTS: dict[str, dict[str, Any]] = {
    "as published": {"pre_norm": False},
    "pre-norm": {"pre_norm": True},
    "rms, swiglu, rotary": {
        "norm": "rms",
        "activation": "swiglu",
        "positions": "rotary",
        "bias": False,
        "tie_embeddings": False,
    },
    "post-norm, gelu, learned": {"pre_norm": False, "activation": "gelu", "positions": "learned"},
    "rotary, narrow heads": {"positions": "rotary", "n_heads": 3, "d_head": 4},
    "no positions": {"positions": "none", "tie_embeddings": False},
}


def classifier(n_classes: int = 2, **changes: object) -> TextClassifier:
    return randomise(TextClassifier(replace(SMALL, **changes), 20, n_classes, 12))


def translator(**changes: object) -> Translator:
    return randomise(Translator(replace(SMALL, **changes), 20, 12))


def language_model(**changes: object) -> LanguageModel:
    return randomise(LanguageModel(replace(SMALL, **changes), 20, 12))


def ids(n: int, batch: int = 1) -> Tensor:
    return torch.randint(20, (batch, n))


def padding(*lengths: int) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def a_model(family: str, batch: int = 2, **changes: object) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return a model and its inputs; of two texts the second is shorter."""
    mask = padding(*(5, 3)[:batch])
    return {
        "classifier": lambda: (classifier(**changes), (ids(5, batch), mask)),
        "translator": lambda: (translator(**changes), (ids(5, batch), ids(4, batch), mask)),
        "language model": lambda: (language_model(**changes), (ids(5, batch),)),
    }[family]()


def traced(model: nn.Module, *args: Tensor) -> tuple[Trace, Tensor]:
    with torch.no_grad(), trace(model) as t:
        output = model(*args)
    return t, output


@pytest.mark.parametrize("family", FAMILIES)
@for_each("batch", [1, 2])
@for_each("changes", VARIANTS.values())
def test_every_record_is_what_its_operation_makes_of_its_inputs(family, changes, batch) -> None:
    model, args = a_model(family, batch, **changes)
    with torch.no_grad():
        plain = model(*args)
    t, output = traced(model, *args)
    check_every_record(t, model)
    torch.testing.assert_close(output, plain, atol=1e-5, rtol=1e-5)
    assert torch.equal(t["logits"].value, output if batch == 2 else output[0])
    assert [axis.name for axis in t["logits"].axes][:-1] == (["batch"] if batch == 2 else []) + (
        [] if family == "classifier" else ["token"]
    )
    assert all(record.source is not None for record in t.values())
    (check,) = t.checks
    assert check.ok and check.value < 1e-5


@for_each("how", ["mean", "max", "mean+max", "first"])
@for_each("n_classes", [2, 3])
@for_each("mask", [padding(5), padding(5) & padding(2, 5)[:1], padding(5) & False, None])
def test_pooling_and_head(how, n_classes, mask) -> None:
    model = classifier(n_classes, pooling=how)
    t, _ = traced(model, ids(5), *([] if mask is None else [mask]))
    check_every_record(t, model)
    assert ("head" in t) == (n_classes == 2)
    assert t["logits"].op == ("pin_zero" if n_classes == 2 else "linear")
    assert t["pooled"].inputs == ("encoder.norm", *(["encoder.1.self.mask"] if mask is not None else []))
    assert t["pooled"].stack == t["logits"].stack == "head"


def test_the_ids_of_a_translator_in_the_order_of_the_paper() -> None:
    t, _ = traced(translator(pre_norm=False), ids(5), ids(4), padding(5))
    embedding = "ids rows scaled positions sum".split()
    attention = "q_proj k_proj v_proj q k v products scores mask weights context concat out residual norm".split()
    feed_forward = "w_in hidden out residual norm".split()
    expected = [f"src_embedding.{step}" for step in embedding]
    for i in (0, 1):
        expected += [f"encoder.{i}.self.{s}" for s in attention] + [f"encoder.{i}.ff.{s}" for s in feed_forward]
    expected += [f"tgt_embedding.{step}" for step in embedding]
    for i in (0, 1):
        expected += [f"decoder.{i}.{block}.{s}" for block in ("self", "cross") for s in attention]
        expected += [f"decoder.{i}.ff.{s}" for s in feed_forward]
    assert list(t) == [*expected, "logits"]


def test_steps_that_only_some_models_have() -> None:
    t, _ = traced(language_model(**VARIANTS["rms, swiglu, rotary"]), ids(4))
    own = [id.removeprefix("decoder.0.") for id in t if id.startswith("decoder.0.")]
    attention = (
        "norm q_proj q_heads k_proj k_heads v_proj q k v products scores mask weights context concat out residual"
    )
    feed_forward = "norm w_gate w_in hidden out residual"
    assert own == [*(f"self.{step}" for step in attention.split()), *(f"ff.{step}" for step in feed_forward.split())]
    assert [t[f"decoder.0.self.{x}"].op for x in "qkv"] == ["rotate", "rotate", "split_heads"]
    assert [id for id in t if id.startswith("embedding")] == ["embedding.ids", "embedding.rows", "embedding.scaled"]
    assert t["decoder.0.self.norm"].inputs == ("embedding.scaled",)
    plain, _ = traced(language_model(), ids(4))
    assert plain["decoder.0.self.q"].inputs == ("decoder.0.self.q_proj",) and "decoder.0.self.q_heads" not in plain


def test_streams_stacks_layers_and_blocks() -> None:
    t, _ = traced(translator(), ids(5), ids(4), padding(5))
    weights = t["decoder.1.cross.weights"]
    axes = [(axis.name, axis.stream) for axis in weights.axes]
    assert axes == [("head", None), ("token", "target"), ("key", "source")] and weights.shape == (2, 4, 5)
    assert (weights.stack, weights.layer, weights.block) == ("decoder", 1, "cross")
    assert t["decoder.0.cross.k"].axes[1].stream == "source"
    assert (t["src_embedding.rows"].stack, t["tgt_embedding.rows"].stack) == ("source", "target")
    assert t["encoder.0.ff.hidden"].block == "ff" and t["encoder.norm"].layer is None
    assert t["logits"].stack == "head"
    own, _ = traced(language_model(), ids(5))
    assert {axis.stream for r in own.values() for axis in r.axes} == {None, "text"}
    assert own["embedding.ids"].stack == "text"


def test_masks_are_as_small_as_they_can_be() -> None:
    t, _ = traced(translator(), ids(5), ids(4), padding(5) & padding(3, 5)[:1])
    causal, unpadded = t["decoder.0.self.mask"], t["decoder.0.cross.mask"]
    assert causal.attrs == {"kind": "causal"} and torch.equal(causal.value, torch.ones(4, 4).tril().bool())
    assert unpadded.attrs == {"kind": "padding"} and unpadded.value.tolist() == [[True] * 3 + [False] * 2]
    assert t["decoder.0.cross.weights"].inputs == ("decoder.0.cross.scores", "decoder.0.cross.mask")
    bare, _ = traced(translator(), ids(5), ids(4))
    assert bare["decoder.0.cross.weights"].inputs == ("decoder.0.cross.scores",)
    blind, _ = traced(classifier(), ids(5), torch.zeros(1, 5, dtype=torch.bool))
    assert (blind["encoder.0.self.weights"].value == 0).all()


def test_a_table_that_source_and_target_share_has_one_name() -> None:
    model, readers = translator(), ("src_embedding.rows", "tgt_embedding.rows", "logits")
    t, _ = traced(model, ids(5), ids(4))
    assert (
        {t[id].params["weight"] for id in readers} == {"tgt_embedding.weight"} <= dict(model.named_parameters()).keys()
    )
    apart, _ = traced(translator(tie_embeddings=False), ids(5), ids(4))
    assert [apart[id].params["weight"] for id in readers[:2]] == ["src_embedding.weight", "tgt_embedding.weight"]


def test_only_what_is_named_is_kept_and_a_misspelt_name_is_an_error() -> None:
    model, args = translator(), (ids(5), ids(4))
    everything, _ = traced(model, *args)
    with torch.no_grad(), trace(model, only="decoder.*.cross.weights") as t:
        model(*args)
    assert list(t) == ["decoder.0.cross.weights", "decoder.1.cross.weights"]
    for record in t.values():
        torch.testing.assert_close(record.value, everything[record.id].value)
        assert record.inputs == everything[record.id].inputs
    wanted = ["*.norm", "logits", "encoder.0.slef.weights"]
    with (
        pytest.raises(UsageError, match=r"'encoder\.0\.slef\.weights' matches no step") as caught,
        trace(model, only=wanted) as t,
    ):
        model(*args)
    assert "encoder.0.self.weights" in caught.value.hint
    assert "encoder.norm" in t and "logits" in t
    with pytest.raises(UsageError, match=r"'encoder\.0\.self\.k' was computed, but `only` leaves it out"):
        t["encoder.0.self.k"]
    with trace(model, only="encoder.*.nothing"):
        pass  # no step was computed, so nothing was missed


def test_a_second_forward_has_ids_of_its_own() -> None:
    model, x = language_model(), ids(4)
    with torch.no_grad(), trace(model) as t:
        model(x)
        n = len(t)
        model(x[:, :2])
    assert len(t) == 2 * n
    assert t["decoder.0.self.weights"].shape == (2, 4, 4)
    assert t["decoder.0.self.weights@2"].shape == (2, 2, 2)
    assert t["decoder.1.self.norm@2"].inputs == ("decoder.0.ff.residual@2",)
    assert t["logits@2"].inputs == ("decoder.norm@2",)
    check_every_record(t, model)


def test_with_a_cache_earlier_keys_are_seen_and_no_check_is_claimed() -> None:
    model, x = language_model(), ids(4)
    whole, _ = traced(model, x)
    cache = model.new_cache()
    with torch.no_grad():
        model(x[:, :3], cache)
        with trace(model) as t:
            model(x[:, 3:], cache)
    torch.testing.assert_close(t["decoder.1.self.weights"].value, whole["decoder.1.self.weights"].value[:, 3:])
    assert t["embedding.positions"].attrs["first"] == 3
    assert t.checks == []


def test_decoding_step_by_step_no_call_is_mistaken_for_one_of_the_source() -> None:
    """The source was read before; the table of tokens is shared, and later steps read the keys of an earlier call."""
    model, src, tgt = translator(), ids(5), ids(2)
    with torch.no_grad():
        memory, cache = model.encode(src), model.new_cache()
        with trace(model) as t:
            model.decode(tgt[:, :1], memory, cache=cache)
            model.decode(tgt[:, 1:], memory, cache=cache)
    assert not any(id.startswith("src_embedding") for id in t)
    for step, token in (("", tgt[0, :1]), ("@2", tgt[0, 1:])):
        assert torch.equal(t[f"tgt_embedding.ids{step}"].value, token)
        assert t[f"decoder.0.self.q{step}"].axes[1].stream == "target"
        assert t[f"decoder.0.cross.weights{step}"].axes[1].stream == "target"
    assert t["decoder.0.cross.k"].axes[1].stream == "source"
    assert t["decoder.0.cross.k"].inputs == ("decoder.0.cross.k_proj",) and t["decoder.0.cross.k@2"].inputs == ()


def test_the_check_finds_a_difference() -> None:
    model = classifier()
    t, _ = traced(model, ids(5))
    with torch.no_grad():
        model.head.bias += 0.5
    [check] = t.checks
    assert not check.ok and check.value == pytest.approx(0.5, abs=1e-5)


def test_records_can_be_read() -> None:
    t, _ = traced(translator(), ids(5), ids(4))
    record = t["decoder.1.cross.weights"]
    assert repr(record) == (
        "decoder.1.cross.weights = softmax(decoder.1.cross.scores): (head 2, token 4, key 5) float32"
    )
    assert repr(record) in repr(t)
    assert np.allclose(np.asarray(record).sum(-1), 1.0)
    assert np.asarray(record, dtype=np.float64).dtype == np.float64
    assert "logits" in t and "logit" not in t and t.get("logit") is None
    with pytest.raises(KeyError):
        t["logit"]
    with pytest.raises(UsageError, match=r"no step called 'decoder\.1\.cross\.weight' among its \d+$") as caught:
        t["decoder.1.cross.weight"]
    assert "decoder.1.cross.weights" in caught.value.hint
    assert t["logits"] is t["logits"], "a record is made once"
    with trace(classifier()) as empty, pytest.raises(UsageError, match="among its 0") as caught:
        empty["logits"]
    assert "call the model inside" in caught.value.hint


def test_parts_alone_can_be_traced() -> None:
    attention = randomise(MultiHeadAttention(8, 2))
    x, memory = torch.randn(1, 4, 8), torch.randn(1, 6, 8)
    t, output = traced(attention, x)
    assert next(iter(t)) == "input" and t["q_proj"].inputs == ("input",)
    assert torch.equal(t["out"].value, output[0])
    first, second = (Residual(LayerNorm(8), 0.0, True) for _ in "12")
    parts = MultiHeadAttention(8, 2), FeedForward(8, 16)
    layer = randomise(Layer(*parts, self_residual=first, feed_forward_residual=second))
    t, output = traced(layer, x)
    assert t["self.residual"].inputs == ("self.input", "self.out")
    assert torch.equal(t["ff.residual"].value, output[0])
    for module, name in ((attention, ""), (translator().decoder, "0.cross.")):
        with torch.no_grad(), trace(module) as t:  # what attention reads besides its queries is the source
            module(x, memory=memory)
        streams = {axis.name: axis.stream for axis in t[f"{name}weights"].axes}
        assert streams == {"head": None, "token": "text", "key": "source"}
        assert t[f"{name}k_proj"].inputs == (f"{name}memory",)


class ByHand(nn.Module):
    """A model of the user's own, made of our parts, whose arguments are given by keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.words = TokenEmbedding(20, 8, None, 0.1)
        self.blocks = nn.ModuleList(MultiHeadAttention(8, 2) for _ in range(2))
        self.residual, self.ff = Residual(LayerNorm(8), 0.0, True), FeedForward(8, 16)
        self.last_norm, self.speak = LayerNorm(8), nn.Linear(8, 20)

    def forward(self, x: Tensor) -> Tensor:
        h = self.words(ids=x, positions=torch.arange(x.shape[1])[None])
        for block in self.blocks:
            h = block(mask=Mask.of(causal=(x.shape[1], x.shape[1])), x=h)
        return self.speak(input=self.last_norm(x=self.residual(sublayer=lambda y: self.ff(x=y), x=h)))


def test_a_model_made_by_hand_goes_by_its_own_names() -> None:
    model = randomise(ByHand())
    t, output = traced(model, ids(4))
    check_every_record(t, model)
    assert t["blocks.1.q_proj"].inputs == ("blocks.0.out",)
    assert t["residual.residual"].inputs == ("blocks.1.out", "ff.out") and t["ff.w_in"].inputs == ("residual.norm",)
    assert t["last_norm"].inputs == ("residual.residual",) and t["speak"].inputs == ("last_norm",)
    assert torch.equal(t["speak"].value, output[0])
    both = nn.ModuleDict({"layers": nn.ModuleDict({"a": LayerNorm(8)}), "a": LayerNorm(8)})
    with pytest.raises(UsageError, match="both record 'a'"), trace(both):
        both["a"](both["layers"]["a"](torch.ones(1, 2, 8)))


def test_the_answer_is_kept_once_whatever_the_caller_does_with_it() -> None:
    model, x = language_model(), ids(4)
    with torch.no_grad(), trace(model) as t:
        output = model(x)
        kept, read = output.clone(), x[0].tolist()
        output += 1.0
        x.zero_()
    assert t.output is not None and t.output.data_ptr() == t["logits"].value.data_ptr()
    assert torch.equal(t["logits"].value, kept[0]) and t["embedding.ids"].value.tolist() == read
    assert t.checks[0].ok


def test_the_scale_of_attention_is_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = classifier(), ids(5)
    assert traced(model, x)[0]["encoder.0.self.scores"].attrs["factor"] == 4**-0.5
    plain = attention_module.attention
    monkeypatch.setattr(attention_module, "attention", lambda *a, **k: plain(*a, **k, scale=0.3))
    t, _ = traced(model, x)
    assert t["encoder.0.self.scores"].attrs["factor"] == pytest.approx(0.3, rel=1e-6)
    check_every_record(t, model)


N_STEPS = 47
"""Records of `language_model()`."""


def n_hooks(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


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
        check_every_record(t, model, edited=some)
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
    assert n_hooks(model) == 0


def test_an_edited_trace_is_not_checked_against_the_fused_kernel() -> None:
    model, args = a_model("classifier")
    t, _ = tapped(model, args, lambda id, x: x * 2 if id == "encoder.0.self.scores" else x)
    assert t.checks == []


def test_hooks_modes_and_precision_are_put_back_even_after_an_error() -> None:
    model = language_model(dropout=0.5).train()
    model.decoder.layers[0].eval()  # a mixed state is restored as it was
    modes = [m.training for m in model.modules()]
    torch.set_float32_matmul_precision("medium")
    try:
        with pytest.raises(ZeroDivisionError), trace(model) as t:
            assert n_hooks(model) > 0
            assert not any(m.training for m in model.modules())
            assert torch.get_float32_matmul_precision() == "highest"
            with pytest.raises(UsageError, match="already open"), trace(classifier()):
                pass  # traces do not nest
            model(ids(3))
            raise ZeroDivisionError
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert n_hooks(model) == 0
    assert [m.training for m in model.modules()] == modes
    assert len(t) == N_STEPS
    model(ids(3))
    attention(*torch.randn(3, 1, 2, 3, 4))
    assert len(t) == N_STEPS


def test_dropout_is_off_and_gradients_still_flow() -> None:
    model, x = language_model(dropout=0.5).train(), ids(5)
    with trace(model) as t:
        model(x).sum().backward()
    assert model.embedding.weight.grad is not None
    with torch.inference_mode(), trace(model) as again:
        model(x)
    assert all(torch.equal(t[id].value, again[id].value) for id in t)
    assert not any(record.value.requires_grad for record in t.values())


def test_autocast_is_off_within_and_a_bf16_model_is_shown_in_fp32() -> None:
    model = language_model()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        with trace(model) as t:
            model(ids(4))
        assert model(ids(4)).dtype == torch.bfloat16
    assert t["decoder.1.ff.hidden"].dtype == torch.float32
    assert t.checks[0].value < 1e-5
    with torch.no_grad(), trace(model.bfloat16()) as t:
        output = model(ids(4))
    assert output.dtype == torch.bfloat16
    assert {r.dtype for r in t.values()} == {torch.float32, torch.int64, torch.bool}
    assert torch.equal(t["logits"].value, output[0].float())
    assert t.checks[0].ok


def test_calls_of_other_threads_are_not_recorded_and_compute_what_they_do_untraced() -> None:
    """To the bit: they take the fast path, whose products are scaled elsewhere, and not the one that is tapped."""
    model, x, found = language_model(), ids(9), []
    with torch.no_grad():
        plain = model(x)
    with torch.no_grad(), trace(model) as t:
        other = threading.Thread(target=lambda: found.append(model(x).detach()))
        other.start()
        other.join()
        assert len(t) == 0
        model(ids(3))
    assert len(t) == N_STEPS and t["embedding.ids"].shape == (3,)
    assert torch.equal(found[0], plain)


def test_many_threads_trace_one_model_at_once() -> None:
    """Each sees its own call alone, whatever hooks come and go, and the last one restores the modes."""
    model = language_model(dropout=0.5).train()
    texts = [ids(n) for n in range(2, 6)]
    expected = [traced(model, text)[0] for text in texts]
    together = threading.Barrier(4)

    def look(text: Tensor, alone: Trace) -> list[str]:
        together.wait()
        wrong = []
        for _ in range(4):
            t, _ = traced(model, text)
            wrong += [id for id in alone if not torch.equal(alone[id].value, t[id].value)]
            wrong += [] if list(t) == list(alone) else ["order"]
        return wrong

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(look, texts, expected)) == [[]] * 4
    finally:
        sys.setswitchinterval(interval)
    assert n_hooks(model) == 0
    assert all(m.training for m in model.modules())


COMPILED = """
import torch
from glassformer.config import ModelConfig
from glassformer.explain import trace
from glassformer.models import LanguageModel

graphs = []
def backend(graph, inputs):
    graphs.append(graph)
    return graph.forward

model = LanguageModel(ModelConfig(n_layers=1, d_model=8, n_heads=2), 20, 40).eval()
compiled = torch.compile(model, backend=backend)
with torch.no_grad():
    plain = compiled(torch.arange(4)[None])
    n = len(graphs)
    with trace(compiled) as t:
        traced = compiled(torch.arange(4)[None])
        compiled(torch.arange(6)[None])
    assert 0 < n == len(graphs), "nothing is compiled while tracing"
    assert t["decoder.0.self.weights@2"].shape == (2, 6, 6)
    assert t.checks[0].ok
    torch.testing.assert_close(traced, plain)
    torch.compiler.reset()
    compiled(torch.arange(4)[None])
    assert len(graphs) > n, "compiling is on again"
"""


def test_a_compiled_model_is_traced_uncompiled() -> None:
    """In a process of its own: torch cannot compile functions whose shapes are checked."""
    message = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True)
    assert message.returncode == 0, message.stderr


@for_each("line", [site.line for site in SITES.values() if site.line is not None])
def test_every_kind_of_step_has_its_line(line: Any) -> None:
    """The code shown beside a step is the code that computes it."""
    source = source_line(*line)
    assert source is not None
    lines = (Path(glassformer.__file__).parent / source.file).read_text(encoding="utf-8").splitlines()
    assert line[1] in lines[source.mark - 1]
    assert source.marked == lines[source.mark - 1].strip()
    shown = source.code.splitlines()
    assert 1 <= len(shown) <= 9
    assert source.line <= source.mark < source.line + len(shown)
    for i, text in enumerate(shown):
        assert text.strip() == lines[source.line - 1 + i].strip()


OF_CLASSIFIER = {
    "embedding.positions": "angle.sin()",
    "encoder.0.self.norm": "F.layer_norm(",
    "encoder.0.self.k_proj": "self.k_proj(source)",
    "encoder.0.self.scores": "products * scale",
    "encoder.0.self.mask": "padding_mask[:, None, None, :]",
    "encoder.0.self.context": "@ v",
    "encoder.0.self.residual": "x + self.dropout(",
    "encoder.0.ff.hidden": "F.relu(",
    "pooled": "n_real",
    "head": "self.head(",
    "logits": "torch.cat([torch.zeros_like",
}
OF_LANGUAGE_MODEL = {
    "decoder.0.self.q": "return x * cos",
    "decoder.0.self.mask": "tril(",
    "decoder.0.ff.w_gate": "self.gate_proj(x)",
    "decoder.0.ff.hidden": "F.silu(",
    "decoder.0.ff.norm": "torch.rsqrt(",
    "decoder.0.ff.residual": 'self.norm(step(self, "residual", x + self.dropout(',
    "logits": "F.linear(x, weight)",
}
"""Steps of which a line of another module, or of another branch of it, could be shown."""
POST_NORM = VARIANTS["rms, swiglu, rotary"] | {"pre_norm": False}


@for_each("model, expected", [(classifier(), OF_CLASSIFIER), (language_model(**POST_NORM), OF_LANGUAGE_MODEL)])
def test_steps_point_at_the_lines_one_would_look_for(model: nn.Module, expected: dict[str, str]) -> None:
    mask = [torch.ones(1, 4, dtype=torch.bool)] if isinstance(model, TextClassifier) else []
    with trace(model) as t:
        model(torch.randint(20, (1, 4)), *mask)
    for id, piece in expected.items():
        source = t[id].source
        assert source is not None and piece in source.marked, (id, source)
