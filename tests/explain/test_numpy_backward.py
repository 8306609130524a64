"""Gradients of every step and parameter against an independent backward pass in numpy, in double precision."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from tests.explain.test_backward import FAMILIES, IDS, REAL, SMOOTHING
from tests.helpers.for_each import for_each
from tests.helpers.matrix import ANSWERS, TEXTS, matrix_run
from tests.helpers.numpy_backward import NumpyModel, angles, sinusoids
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.explain.capture.exact_inference import exact_forward
from glassformer.nn import operations as backward_module
from glassformer.explain.learn.backward import GRADIENT, BackwardPass, is_gradient
from glassformer.explain.learn.loss import loss_steps, number_steps
from glassformer.explain.predictions import rows_of
from glassformer.explain.record_store import RecordStore, get_parameter
from glassformer.models import build
from glassformer.models.encoder_models import TextClassifier, TextRegressor
from glassformer.nn.embeddings import Rotation, SinusoidalPositions
from glassformer.nn.layers import RMSNorm

BASE = ModelConfig(n_layers=2, d_model=8, n_heads=2, d_ff=12, dropout=0.0)
POOLS = [(how, pooler) for how in ("mean", "max", "mean+max", "first") for pooler in ("none", "tanh", "relu")]


def in_double(model: nn.Module, seed: int = 3) -> nn.Module:
    """The model with random weights, and the few numbers that are always in single precision, in double precision."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.double().parameters():
            p.add_(torch.randn(p.shape, generator=generator, dtype=p.dtype) * 0.3)
    for module in model.modules():
        if isinstance(module, RMSNorm):
            module.forward = partial(_rms_norm, module)
        if isinstance(module, SinusoidalPositions):
            waves = torch.from_numpy(sinusoids(*module.table.shape)) * module.amplitude
            assert float((waves - module.table).abs().max()) < 1e-7
            module.table = waves
    return model.eval()


def _rms_norm(norm: RMSNorm, x: Tensor) -> Tensor:
    return x / (x.square().mean(dim=-1, keepdim=True) + norm.eps).sqrt() * norm.weight


class DoubleRotation(Rotation):
    """`Rotation`, whose angles are always in single precision, in double precision."""

    @staticmethod
    def at(positions: Tensor, d_head: int, base: float = 10000.0) -> Rotation:
        single = Rotation.at(positions, d_head, base)
        angle = torch.from_numpy(angles(positions.shape[1], d_head, base)).repeat(1, 2)[None]
        assert float((angle.cos() - single.cos).abs().max() + (angle.sin() - single.sin).abs().max()) < 1e-6
        return Rotation(angle.cos(), angle.sin(), base)


@pytest.fixture(autouse=True)
def double_angles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "Rotation", DoubleRotation)
    monkeypatch.setattr(backward_module, "Rotation", DoubleRotation)


FACTORS: dict[str, tuple[Any, ...]] = {
    "pre_norm": (True, False),
    "positions": ("sinusoidal", "learned", "rotary", "none"),
    "activation": ("relu", "gelu", "gelu-tanh", "silu", "swiglu"),
    "norm": ("layer", "rms"),
    "tie_embeddings": (True, False),
}


def _cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """The product of families and the first three factors; what has two values, or is of one family, takes turns."""
    norms, tied = itertools.cycle(FACTORS["norm"]), itertools.cycle([True, False, False])
    pools, more = itertools.cycle(POOLS), itertools.cycle([{}, {"bias": False}, {"embedding_norm": True}, {}])
    scales = itertools.cycle([{}, {"embedding_init_std": 0.5}, {}, {"output_bias": True}, {}])
    for family, *values in itertools.product(FAMILIES, *[FACTORS[name] for name in [*FACTORS][:3]]):
        changes = dict(zip(FACTORS, [*values, next(norms), next(tied)], strict=True)) | next(more) | next(scales)
        if family == "classifier":  # it has no output projection
            changes |= dict(zip(("pooling", "pooler"), next(pools), strict=True))
        yield family, changes


def test_every_pair_of_values_meets_in_every_family() -> None:
    cases = [*_cases()]
    for family, (one, other) in itertools.product(FAMILIES, itertools.combinations(FACTORS, 2)):
        met = {(changes[one], changes[other]) for name, changes in cases if name == family}
        assert met == {*itertools.product(FACTORS[one], FACTORS[other])}, (family, one, other)
    assert {(c["pooling"], c["pooler"]) for name, c in cases if name == "classifier"} == {*POOLS}


def model_of(family: str, config: ModelConfig, n_classes: int) -> tuple[nn.Module, dict[str, Any], list[int | None]]:
    """A model of a family; a classifier without n-grams, which the paper has not."""
    torch.manual_seed(0)
    model, inputs, labels = FAMILIES[family](config)
    if family == "classifier":
        model, inputs = TextClassifier(config, 11, n_classes, 5), {"ids": IDS, "padding_mask": REAL}
    return in_double(model), inputs, labels


def numpy_of(family: str, model: nn.Module, config: Any, inputs: dict[str, Any]) -> NumpyModel:
    """The same model and text in numpy, after the forward pass."""
    own = NumpyModel(config, {name: p.detach().numpy() for name, p in model.named_parameters()})
    arguments = {name: x[0].tolist() for name, x in inputs.items() if isinstance(x, Tensor)}
    if family == "translator":
        source = arguments["src"]
        real = arguments.get("src_padding_mask") or [True] * len(source)
        own.translator(source, arguments["tgt_in"], real)
    elif family == "language model":
        own.language_model(arguments["ids"])
    else:
        ids = arguments["ids"]
        compute = own.classifier if family == "classifier" else own.masked_language_model
        compute(ids, arguments.get("padding_mask") or [True] * len(ids))
    return own


def check_gradients(found: dict[str, np.ndarray], own: NumpyModel, tolerance: float, floor: float = 1e-4) -> None:
    """Compare each gradient with numpy's; every one that numpy has is there, and no other.

    Some are zero but for rounding, as that of the bias of keys, by which all scores of a query change alike: what is
    below the floor is compared with the floor.
    """
    for id, gradient in found.items():
        expected = own.gradients[id]
        assert gradient.shape == expected.shape, id
        largest = max(float(np.abs(expected).max()), floor)
        assert float(np.abs(gradient - expected).max()) <= tolerance * largest, id
    whole = {id for id in own.gradients if id.endswith(GRADIENT)}
    assert whole == {id for id in found if id.endswith(GRADIENT)}


@for_each("family, changes", _cases())
def test_gradients_are_those_of_numpy(family: str, changes: dict[str, Any]) -> None:
    """Each to 1e-9 of its largest number, and two numbers of parameters to 1e-6 by differences of the loss."""
    config = replace(BASE, **changes)
    model, inputs, labels = model_of(family, config, 2 + (changes["activation"] != "gelu"))
    streams = [range(x.shape[1]) for x in inputs.values() if isinstance(x, Tensor)]
    records = RecordStore(model, inputs, streams)
    steps = {id: records[id] for id in records}
    steps |= loss_steps(steps["logits"], labels, SMOOTHING)
    backward = BackwardPass(steps, lambda name: get_parameter(model, name).detach(), records.params)
    own = numpy_of(family, model, config, inputs)
    loss = own.loss(labels, SMOOTHING)
    assert abs(loss - steps["loss"].value.item()) < 1e-12 * max(1.0, loss)
    own.backward()
    for id, value in own.values.items():
        assert float(np.abs(steps[id].value.numpy() - value).max()) < 1e-12 * max(1.0, float(np.abs(value).max())), id
    check_gradients({id: step.value.numpy() for id, step in backward.steps.items()}, own, 1e-9)
    _check_by_differences(model, inputs, labels, own, sum(map(ord, repr(changes))))


@for_each("pre_norm, pool", [(pre_norm, pool) for pre_norm in (True, False) for pool in POOLS])
def test_gradients_of_a_number_are_those_of_numpy(pre_norm: bool, pool: tuple[str, str]) -> None:
    config = replace(BASE, pre_norm=pre_norm, pooling=pool[0], pooler=pool[1])
    model = in_double(TextRegressor(config, 11, 1, 5))
    inputs: dict[str, Any] = {"ids": IDS, "padding_mask": REAL}
    records = RecordStore(model, inputs, [range(x.shape[1]) for x in inputs.values()])
    steps = {id: records[id] for id in records}
    steps |= number_steps(steps["logits"], 0.7)
    backward = BackwardPass(steps, lambda name: get_parameter(model, name).detach(), records.params)
    own = NumpyModel(config, {name: p.detach().numpy() for name, p in model.named_parameters()})
    own.classifier(IDS[0].tolist(), REAL[0].tolist(), pinned=False)
    assert own.squared_error(0.7) == pytest.approx(steps["loss"].value.item(), rel=1e-12)
    own.backward()
    check_gradients({id: step.value.numpy() for id, step in backward.steps.items()}, own, 1e-9)


def _check_by_differences(model: nn.Module, inputs: Any, labels: list[int | None], own: NumpyModel, seed: int) -> None:
    """Compare two sampled entries with the difference of the model's own loss on both sides of them."""
    rng, named = np.random.default_rng(seed), dict(model.named_parameters())
    h, names = 1e-5, [name for name in named if f"{name}{GRADIENT}" in own.gradients]
    for name in rng.choice(names, 2, replace=False):
        gradient, p = own.gradients[f"{name}{GRADIENT}"], named[name].detach().view(-1)
        entry = int(rng.choice(np.flatnonzero(gradient)))
        kept, losses = float(p[entry]), list[float]()
        for value in (kept + h, kept - h):
            p[entry] = value
            losses.append(_loss(model, inputs, labels))
        p[entry] = kept
        slope, largest = (losses[0] - losses[1]) / (2 * h), max(float(np.abs(gradient).max()), 1e-3)
        assert abs(slope - gradient.flat[entry]) <= 1e-6 * largest, (name, entry)


def _loss(model: nn.Module, inputs: Any, labels: list[int | None]) -> float:
    """The loss by torch alone."""
    with torch.no_grad():
        rows = rows_of(exact_forward(model, **inputs)[0])
    y = torch.tensor([-100 if label is None else label for label in labels])
    return nn.functional.cross_entropy(rows, y, label_smoothing=SMOOTHING).item()


@for_each("task", ["classify", "translate", "lm", "pretrain"])
def test_what_learning_shows_is_that_of_numpy(task: str) -> None:
    """The gradients of `run.learn`, in single precision."""
    run = matrix_run(task)
    e = run.learn(TEXTS[task], ANSWERS[task])
    assert e.learning is not None
    family = {"classify": "classifier", "translate": "translator", "lm": "language model", "pretrain": "masked"}[task]
    inputs = e.model_inputs
    own = numpy_of(family, run.model, run.task.config.model, inputs)
    own.weights = {name: p.astype(np.float64) for name, p in own.weights.items()}
    assert own.loss(e.learning.labels, e.learning.smoothing) == pytest.approx(e.learning.loss, rel=1e-5)
    own.backward()
    check_gradients({id: e[id] for id in e.records if is_gradient(id)}, own, 1e-4, floor=0.1)
