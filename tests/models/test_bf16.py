"""Copies of a model that multiply in bf16: near it, apart from it, and the same for a text in any batch."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from tests.helpers.for_each import for_each
from torch.nn import functional as F

from glassformer.config import ModelConfig
from glassformer.models import LanguageModel, MaskedLanguageModel, TextClassifier, Translator
from glassformer.models.bf16 import Bf16Linear, cast_for_inference

SMALL = ModelConfig(n_layers=2, d_model=32, n_heads=2, d_ff=64)
IDS = torch.randint(3, 50, (4, 9), generator=torch.Generator().manual_seed(1))


@for_each("kind", [Translator, LanguageModel, TextClassifier, MaskedLanguageModel])
def test_a_copy_is_near_the_model_and_leaves_it_alone(kind: Any) -> None:
    torch.manual_seed(0)
    model = (kind(SMALL, 50, 3, 16) if kind is TextClassifier else kind(SMALL, 50, 16)).eval()
    inputs, before = (IDS, IDS) if kind is Translator else (IDS,), deepcopy(model.state_dict())
    with torch.inference_mode():
        expected, found = model(*inputs), cast_for_inference(model, "bf16")(*inputs)
        assert torch.equal(model(*inputs), expected) and not torch.equal(found, expected)
    assert found.dtype == torch.float32 and (found - expected).norm() < 0.05 * expected.norm()
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert cast_for_inference(model, "fp32") is model


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
