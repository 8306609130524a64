"""Gradients step by step against autograd, in double precision, over all parts of a model."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from tests.helpers.for_each import for_each
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.config import ModelConfig
from glassformer.explain.capture.exact_inference import exact_forward
from glassformer.explain.capture.sites import SITES, Step
from glassformer.explain.capture.slices import get_parameter
from glassformer.explain.inputs import rows_of
from glassformer.explain.learn.backward import GRADIENT, backward_pass, loss_steps
from glassformer.explain.trace import record
from glassformer.models.decoder_models import LanguageModel, Translator
from glassformer.models.encoder_models import MaskedLanguageModel, TextClassifier
from glassformer.nn.cross_entropy import IGNORE_INDEX
from glassformer.nn.layers import RMSNorm
from glassformer.nn.ngram_embeddings import NgramBatch
from glassformer.nn.operations import OPERATIONS, row_of
from glassformer.nn.steps import step

V, L, S = 11, 5, 6
SMOOTHING = 0.1
BASE = ModelConfig(n_layers=2, d_model=8, n_heads=2, d_ff=12, dropout=0.0)
NGRAMS = NgramBatch(torch.tensor([[1, 2, 1, 3, 0]]), torch.tensor([[0, 0], [1, 2], [3, 0], [2, 2]]))
IDS, SOURCE = torch.tensor([[4, 7, 4, 9, 10]]), torch.tensor([[3, 5, 8, 5, 0, 0]])
REAL = torch.tensor([[True, True, True, True, False]])


def _random(model: nn.Module) -> nn.Module:
    """Return the model in double precision with random norms and biases, which begin as ones and zeros."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, p in model.double().named_parameters():
            p.add_(torch.randn(p.shape, generator=generator, dtype=p.dtype) * 0.3)
            if "bigrams" in name or "ngrams" in name:
                p[0] = 0
    for module in model.modules():
        if isinstance(module, RMSNorm):
            module.forward = partial(_rms_norm, module)
    return model.eval()


def _rms_norm(norm: RMSNorm, x: Tensor) -> Tensor:
    """Return what `RMSNorm` does, whose mean square is always in fp32, in the precision of x."""
    y = x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + norm.eps) * norm.weight
    return step(norm, "norm", y, x, op="rms_norm", eps=norm.eps)


Made = tuple[nn.Module, dict[str, Any], list[int | None]]
WITH_NGRAMS = {"ids": IDS, "padding_mask": REAL, "ngram_batch": NGRAMS}
PAIR = {"src": SOURCE, "tgt_in": IDS, "src_padding_mask": SOURCE != 0}
FAMILIES: dict[str, Callable[[ModelConfig], Made]] = {
    "classifier": lambda config: (TextClassifier(config, V, 3, L, 4, [(4, 7), (4, 9)]), WITH_NGRAMS, [1]),
    "masked": lambda config: (
        MaskedLanguageModel(config, V, L),
        {"ids": IDS, "padding_mask": REAL},
        [None, 6, None, 2, None],
    ),
    "language model": lambda config: (LanguageModel(config, V, L), {"ids": IDS}, [None, 4, 9, 10, 1]),
    "translator": lambda config: (Translator(config, V, S), PAIR, [7, 4, 9, 10, 2]),
}
"""Of each family a model, its inputs and its labels."""
PARTS: list[dict[str, Any]] = [
    {},
    {"activation": "gelu", "norm": "rms", "bias": False},
    {"activation": "gelu-tanh", "embedding_norm": True, "n_segments": 2},
    {"activation": "silu", "tie_embeddings": False, "output_bias": True},
    {"activation": "swiglu", "norm": "rms", "embedding_init_std": 0.05},
]
"""Every activation and norm, tied and untied, with and without biases, an embedding norm, a scale of embeddings."""
POOLS = ["mean", "max", "mean+max", "first"]


def _cases() -> Iterator[tuple[str, dict[str, Any]]]:
    positions = itertools.cycle(["sinusoidal", "learned", "rotary", "none"])
    for family, pre_norm, parts in itertools.product(FAMILIES, (True, False), PARTS):
        changes = {**parts, "pre_norm": pre_norm}
        if family not in ("classifier", "masked"):
            changes.pop("n_segments", None)
        yield family, {**changes, "positions": next(positions)}

    for pooling, pooler in zip(POOLS, ["none", "tanh", "relu", "tanh"], strict=True):
        yield "classifier", {"pooling": pooling, "pooler": pooler}


def _backward(model: nn.Module, inputs: dict[str, Any], labels: list[int | None]) -> dict[str, Step]:
    records = record(model, inputs)
    steps = {id: records[id] for id in records}
    steps |= loss_steps(steps["logits"], labels, SMOOTHING)
    return steps | backward_pass(steps, lambda name: get_parameter(model, name).detach(), records.params)


def _loss(model: nn.Module, inputs: dict[str, Any], labels: list[int | None]) -> Tensor:
    """Return the loss by torch alone."""
    rows = rows_of(exact_forward(model, **inputs)[0])
    y = torch.tensor([IGNORE_INDEX if label is None else label for label in labels])
    return F.cross_entropy(rows, y, ignore_index=IGNORE_INDEX, label_smoothing=SMOOTHING)


@for_each("family, changes", _cases())
def test_gradients_are_those_of_autograd(family: str, changes: dict[str, Any]) -> None:
    """Every parameter's to 1e-9 of the largest, and with it that of each step which it is computed from."""
    torch.manual_seed(0)
    model, inputs, labels = FAMILIES[family](dataclasses.replace(BASE, **changes))
    backward, loss = _backward(_random(model), inputs, labels), _loss(model, inputs, labels)
    assert abs(backward["loss"].value.item() - loss.item()) < 1e-12
    named = dict(model.named_parameters())
    for name, gradient in zip(named, torch.autograd.grad(loss, list(named.values()), allow_unused=True), strict=True):
        own = backward.get(f"{name}{GRADIENT}")
        if gradient is None:
            assert own is None, name
            continue
        assert own is not None, name
        assert own.shape == gradient.shape
        assert float((own.value - gradient).abs().max()) <= 1e-9 * float(gradient.abs().max().clamp(min=1e-6)), name


def test_every_operation_passes_back_to_all_it_takes_but_ids_and_masks() -> None:
    without = {"ids", "mask", "targets"}
    for name, row in OPERATIONS.items():
        assert set(row.arguments) - without == row.gradients.keys(), name
        for argument in row.gradients:
            assert set(row_of(f"{name}.{argument}").arguments) <= {*row.arguments, "y", "g"}
    recorded = {site.op for site in SITES.values()} - {"input"}
    assert recorded <= {name.partition(":")[0] for name in OPERATIONS}


def test_a_tied_table_gets_both_contributions() -> None:
    """The table that is embedding and output projection gets the sum of two gradients, each a step of its own."""
    model, inputs, labels = FAMILIES["language model"](BASE)
    backward = _backward(_random(model), inputs, labels)
    total = backward["embedding.weight.grad"]
    assert total.op == "sum" and len(total.inputs) == 2
    parts = [backward[id] for id in total.inputs]
    assert sorted(part.op for part in parts) == ["linear.weight", "lookup.weight"]
    assert torch.equal(total.value, parts[0].value + parts[1].value)


def test_the_forward_steps_stay_as_they_are() -> None:
    """The backward pass changes no number of the forward pass and leaves no gradient in the model."""
    model, inputs, labels = FAMILIES["translator"](BASE)
    model = _random(model)
    weights = copy.deepcopy(model.state_dict())
    plain = record(model, inputs)
    backward = _backward(model, inputs, labels)
    for id in plain:
        assert torch.equal(plain[id].value, backward[id].value), id
    assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
