"""Copies of a model that multiply in bf16: near it, apart from it, and the same for a text in any batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.helpers.for_each import for_each
from tests.helpers.small import Small, small
from torch import nn
from torch.nn import functional as F

from glassformer.config import ModelConfig
from glassformer.models import LanguageModel, MaskedLanguageModel, TextClassifier, Translator
from glassformer.models.bf16 import Bf16Linear, cast_for_inference
from glassformer.utils.device import Precision, tuned

SMALL = ModelConfig(n_layers=2, d_model=32, n_heads=2, d_ff=64)
IDS = torch.randint(3, 50, (4, 9), generator=torch.Generator().manual_seed(1))


def models() -> dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]]:
    torch.manual_seed(0)
    return {
        "translator": (Translator(SMALL, 50, 16), (IDS, IDS)),
        "language model": (LanguageModel(SMALL, 50, 16), (IDS,)),
        "classifier": (TextClassifier(SMALL, 50, 3, 16), (IDS,)),
        "masked": (MaskedLanguageModel(SMALL, 50, 16), (IDS,)),
    }


@pytest.mark.parametrize("native", [True, False])
def test_bf16_gives_the_bits_of_the_plain_product_and_a_row_the_same_in_every_batch(
    monkeypatch: pytest.MonkeyPatch, native: bool
) -> None:
    """Without kernels for bf16 those of the product of the rounded numbers in fp64."""
    if not native:
        monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    torch.manual_seed(0)
    layer, x = Bf16Linear(torch.randn(48, 64), torch.randn(48)), torch.randn(37, 64)
    together, dtype = layer(x), layer.weight.dtype
    assert dtype == torch.float64 or (native and dtype == torch.bfloat16)
    plain = F.linear(x.bfloat16().to(dtype), layer.weight, layer.bias)
    assert torch.equal(together, plain.bfloat16().float())
    for n in (1, 2, 16, 33):
        assert torch.equal(layer(x[:n]), together[:n])


@pytest.fixture(scope="module", params=["classify", "translate"])
def trained(request: pytest.FixtureRequest) -> tuple[Small, nn.Module]:
    """A small run, and its model after 100 updates."""
    run = small(request.param)
    state = run.new_state()
    for step in range(100):
        plan = run.batches(step)
        run.update(state, [run.batch(plan[step % len(plan)])], 3e-3)
    return run, state.model


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_trained_model_answers_a_text_the_same_alone_and_in_a_batch(
    trained: tuple[Small, nn.Module], precision: Precision
) -> None:
    """The same labels and texts, and nearly the same probabilities and scores.

    In bf16, sums of products of other shapes are rounded differently by processors that multiply it natively.
    """
    native = any(torch.cpu.get_capabilities().get(name) for name in ("avx512_bf16", "amx_bf16"))
    tolerance = 1e-3 if precision == "bf16" and native else 1e-5
    run, model = trained[0], cast_for_inference(trained[1], precision).eval()
    texts = ["a", "b c", "d e f", "a b c d", "good f g", "bad a", "abcdefg", "g f e d c b a"]

    def answers(texts: list[str]) -> list[dict[str, Any]]:
        with tuned(torch.device("cpu")):
            return run.task.predict(model, texts, run.config.decode)

    for found, expected in zip(answers(texts), [answers([text])[0] for text in texts], strict=True):
        assert found.keys() == expected.keys()
        for key, value in found.items():
            number = isinstance(value, (float, dict))
            assert value == (pytest.approx(expected[key], abs=tolerance) if number else expected[key])


@for_each("name", models())
def test_a_copy_is_near_the_model_and_leaves_it_alone(name: str) -> None:
    model, inputs = models()[name]
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with torch.inference_mode():
        expected = model.eval()(*inputs)
        found = cast_for_inference(model, "bf16")(*inputs)
        assert torch.equal(model(*inputs), expected)
    assert not torch.equal(found, expected)
    assert found.dtype == torch.float32
    assert (found - expected).norm() < 0.05 * expected.norm()
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_fp32_is_the_model_itself() -> None:
    model, _ = models()["translator"]
    assert cast_for_inference(model, "fp32") is model
