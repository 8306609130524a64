"""`TextClassifier`: padding is neither attended to nor pooled; test_import_families.py has BERT, one of its forms."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.copying import randomise
from tests.helpers.for_each import for_each
from torch.nn import functional as F

from glassformer.config import ModelConfig
from glassformer.models import TextClassifier
from glassformer.models.encoder_models import pool

SMALL = ModelConfig(n_layers=2, d_model=8, n_heads=2, dropout=0.0)
POOLINGS = ["mean", "max", "mean+max", "first"]


def model_of(n_classes: int = 3, **changes: object) -> TextClassifier:
    return randomise(TextClassifier(replace(SMALL, **changes), 20, n_classes, 40))


@pytest.mark.row("2a", "4.4", "4c")
@settings(deadline=None, max_examples=40)
@given(
    lengths=st.lists(st.integers(1, 10), min_size=1, max_size=4),
    extra=st.integers(0, 6),
    pooling=st.sampled_from(POOLINGS),
    positions=st.sampled_from(["sinusoidal", "learned", "rotary", "none"]),
    pre_norm=st.booleans(),
    seed=st.integers(0, 99),
)
def test_padding_the_batch_and_its_order_change_nothing(lengths, extra, pooling, positions, pre_norm, seed) -> None:
    torch.manual_seed(seed)
    model = model_of(pooling=pooling, positions=positions, pre_norm=pre_norm)
    texts = [torch.randint(20, (n,)) for n in lengths]
    alone = torch.cat([model(text[None]) for text in texts])
    order = torch.randperm(len(texts))
    ids = torch.randint(20, (len(texts), max(lengths) + extra))  # padding that would be read if it could
    real = torch.arange(ids.shape[1]) < torch.tensor(lengths)[order][:, None]
    for row, i in enumerate(order.tolist()):
        ids[row, : lengths[i]] = texts[i]
    torch.testing.assert_close(model(ids, real), alone[order], atol=1e-5, rtol=1e-5)


def test_pooling_by_hand() -> None:
    x = torch.tensor([[[1.0, -1.0], [3.0, -5.0], [100.0, 100.0]]])
    real = torch.tensor([[True, True, False]])
    assert pool(x, real, "mean").tolist() == [[2.0, -3.0]]
    assert pool(x, real, "max").tolist() == [[3.0, -1.0]]
    assert pool(x, real, "mean+max").tolist() == [[2.0, -3.0, 3.0, -1.0]]
    assert pool(x, real, "first").tolist() == [[1.0, -1.0]]


@for_each("pooling", POOLINGS)
def test_pooling_without_padding_or_without_anything(pooling: str) -> None:
    x = torch.randn(2, 3, 4)
    assert torch.equal(pool(x, None, pooling), pool(x, torch.ones(2, 3, dtype=torch.bool), pooling))
    assert (pool(x, torch.zeros(2, 3, dtype=torch.bool), pooling) == 0).all()
    model = model_of(pooling=pooling)
    assert model(torch.ones(1, 3, dtype=torch.long), torch.zeros(1, 3, dtype=torch.bool)).isfinite().all()


def test_two_classes_are_one_logit_and_binary_cross_entropy() -> None:
    model = model_of(n_classes=2)
    ids, labels = torch.randint(20, (5, 6)), torch.tensor([0, 1, 1, 0, 1])
    logits = model(ids)
    assert model.head.out_features == 1 and (logits[:, 0] == 0).all()
    bce = F.binary_cross_entropy_with_logits(logits[:, 1], labels.float())
    torch.testing.assert_close(F.cross_entropy(logits, labels), bce)
