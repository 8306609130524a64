"""Copies of a model that multiply in bf16, fp16 or int8.

Near it, apart from it, and the same for a text in any batch.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.helpers.machine import needs_fbgemm, with_fbgemm
from tests.helpers.small import Small, small
from torch import nn
from torch.nn import functional as F

from glassformer.config import ModelConfig
from glassformer.errors import UsageError
from glassformer.models import LanguageModel, MaskedLanguageModel, TextClassifier, Translator
from glassformer.models.quantize import Bf16Linear, Fp16Linear, Int8Linear, quantize_for_inference
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


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("kind", "error"), [(Bf16Linear, 2**-7), with_fbgemm(Fp16Linear, 2**-10), (Int8Linear, 2**-6)])
def test_a_layer_is_near_the_one_it_stands_for(kind: type[nn.Module], error: float, bias: bool) -> None:
    torch.manual_seed(0)
    linear, x = nn.Linear(64, 48, bias=bias), torch.randn(5, 7, 64)
    with torch.no_grad():
        found, expected = kind(linear.weight, linear.bias)(x), linear(x)
    assert found.shape == expected.shape and found.dtype == torch.float32
    assert (found - expected).norm() < error * expected.norm()


def test_bf16_gives_the_bits_of_the_plain_product_and_a_row_the_same_in_every_batch() -> None:
    torch.manual_seed(0)
    layer, x = Bf16Linear(torch.randn(48, 64), torch.randn(48)), torch.randn(37, 64)
    together = layer(x)
    assert torch.equal(together, F.linear(x.bfloat16(), layer.weight, layer.bias).float())
    for n in (1, 2, 16, 33):
        assert torch.equal(layer(x[:n]), together[:n])


def test_bf16_needs_no_kernel_of_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    weight, bias, x = torch.randn(48, 64), torch.randn(48), torch.randn(5, 64)
    expected = Bf16Linear(weight, bias)(x)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    layer = Bf16Linear(weight, bias)
    assert layer._blocks is None
    assert torch.allclose(layer(x), expected, rtol=2**-7, atol=2**-5)


def test_int8_gives_a_row_the_same_in_every_batch_to_the_last_bit() -> None:
    torch.manual_seed(0)
    layer, x = Int8Linear(torch.randn(48, 64), torch.randn(48)), torch.randn(37, 64)
    x[5] *= 1000  # a row of large values takes nothing from its neighbours
    together = layer(x)
    for n in (1, 2, 16, 33):
        assert torch.equal(layer(x[:n]), together[:n])


@pytest.mark.parametrize("sign", [1, -1])
def test_int8_sums_are_exact_where_every_product_is_the_largest(sign: int) -> None:
    """They would saturate on a processor without VNNI if its weights had 8 bits."""
    layer, x = Int8Linear(torch.full((48, 640), float(sign))), torch.ones(3, 640)
    torch.testing.assert_close(layer(x), torch.full((3, 48), 640.0 * sign))


@needs_fbgemm
def test_fp16_sums_in_fp32_in_a_batch_of_any_size() -> None:
    torch.manual_seed(0)
    layer, x = Fp16Linear(torch.randn(48, 640), torch.randn(48)), torch.randn(37, 640)
    assert layer.bias is not None
    weight, bias, together = layer.weight.double(), layer.bias.double(), layer(x)
    exact = x.double() @ weight.T + bias
    assert (together - exact).abs().max() < 1e-4  # sums of 640 products in fp16 would be off by .1
    rounding = (x.double().abs() @ weight.abs().T + bias.abs()) * 2**-20
    for n in (1, 2, 6, 7, 16, 33):
        alone = layer(x[:n])
        assert ((alone - exact[:n]).abs() < rounding[:n]).all()
        assert ((alone - together[:n]).abs() < rounding[:n]).all()


@pytest.fixture(scope="module", params=["classify", "translate"])
def trained(request: pytest.FixtureRequest) -> tuple[Small, nn.Module]:
    """A small run, and its model after 100 updates."""
    run = small(request.param)
    state = run.new_state()
    for step in range(100):
        plan = run.batches(step)
        run.update(state, [run.batch(plan[step % len(plan)])], 3e-3)
    return run, state.model


@pytest.mark.parametrize("precision", ["fp32", "bf16", with_fbgemm("fp16"), "int8"])
def test_a_trained_model_answers_a_text_the_same_alone_and_in_a_batch(
    trained: tuple[Small, nn.Module], precision: Precision
) -> None:
    """The same labels and texts; probabilities and scores to five decimal places."""
    run, model = trained[0], quantize_for_inference(trained[1], precision).eval()
    texts = ["a", "b c", "d e f", "a b c d", "good f g", "bad a", "abcdefg", "g f e d c b a"]

    def answers(texts: list[str]) -> list[dict[str, Any]]:
        with tuned(torch.device("cpu")):
            return run.task.predict(model, texts, run.config.decode)

    for found, expected in zip(answers(texts), [answers([text])[0] for text in texts], strict=True):
        assert found.keys() == expected.keys()
        for key, value in found.items():
            number = isinstance(value, (float, dict))
            assert value == (pytest.approx(expected[key], abs=1e-5) if number else expected[key])


def test_a_weight_that_fp16_cannot_hold_is_said() -> None:
    with pytest.raises(UsageError, match="too large for fp16"):
        Fp16Linear(torch.full((4, 8), 1e5))


def test_a_row_of_zeros_stays_one() -> None:
    assert torch.equal(Int8Linear(torch.ones(3, 8))(torch.zeros(2, 8)), torch.zeros(2, 3))


@pytest.mark.parametrize("name", models())
@pytest.mark.parametrize("precision", ["bf16", with_fbgemm("fp16"), "int8"])
def test_a_copy_is_near_the_model_and_leaves_it_alone(name: str, precision: Precision) -> None:
    model, inputs = models()[name]
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with torch.inference_mode():
        expected = model.eval()(*inputs)
        found = quantize_for_inference(model, precision)(*inputs)
        assert torch.equal(model(*inputs), expected)
    assert not torch.equal(found, expected)
    assert found.dtype == torch.float32
    assert (found - expected).norm() < 0.05 * expected.norm()
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_fp32_is_the_model_itself() -> None:
    model, _ = models()["translator"]
    assert quantize_for_inference(model, "fp32") is model
