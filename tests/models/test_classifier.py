"""`TextClassifier`: padding is neither attended to nor pooled, and BERT is one of its forms."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.copying import copy, randomise
from tests.helpers.for_each import for_each
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.config import ModelConfig
from glassformer.models import TextClassifier
from glassformer.models.encoder_models import pool
from glassformer.nn.embeddings import TokenEmbedding
from glassformer.nn.layers import LayerNorm

if TYPE_CHECKING:
    from transformers import BertForSequenceClassification


SMALL = ModelConfig(n_layers=2, d_model=8, n_heads=2, dropout=0.0)
POOLINGS = ["mean", "max", "mean+max", "first"]


def model_of(n_classes: int = 3, **changes: object) -> TextClassifier:
    model = TextClassifier(replace(SMALL, **changes), 20, n_classes, 40)
    randomise(model)
    return model


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
    real = torch.zeros_like(ids, dtype=torch.bool)
    for row, i in enumerate(order.tolist()):
        ids[row, : lengths[i]] = texts[i]
        real[row, : lengths[i]] = True
    torch.testing.assert_close(model(ids, real), alone[order], atol=1e-5, rtol=1e-5)


@for_each("pooling", POOLINGS)
def test_padding_has_no_gradient(pooling: str) -> None:
    model = model_of(pooling=pooling, positions="none")
    ids = torch.tensor([[3, 4, 5, 7, 7], [3, 4, 7, 7, 7]])
    real = torch.tensor([[True, True, True, False, False], [True, True, False, False, False]])
    model(ids, real)[:, 1].sum().backward()
    grad = model.embedding.weight.grad.abs().sum(-1)
    assert grad[7] == 0
    assert grad[3] > 0
    if pooling != "max":
        assert grad[4] > 0


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
    assert model.head.out_features == 1
    ids, labels = torch.randint(20, (5, 6)), torch.tensor([0, 1, 1, 0, 1])
    logits = model(ids)
    assert (logits[:, 0] == 0).all()
    torch.testing.assert_close(
        F.cross_entropy(logits, labels), F.binary_cross_entropy_with_logits(logits[:, 1], labels.float())
    )
    torch.testing.assert_close(logits.softmax(-1)[:, 1], logits[:, 1].sigmoid())


# BERT: post-norm, GELU, learned positions, a norm on the embeddings and a tanh before the head.


class BertEmbedding(nn.Module):
    """Our embedding and our norm: BERT norms the sum. Its segment vector is folded into the positions."""

    def __init__(self, embedding: TokenEmbedding, d_model: int) -> None:
        super().__init__()
        self.embedding, self.norm = embedding, LayerNorm(d_model)

    def forward(self, ids: Tensor, positions: Tensor) -> Tensor:
        return self.norm(self.embedding(ids, positions))


@torch.no_grad()
def from_bert(theirs: BertForSequenceClassification) -> TextClassifier:
    """Our model with BERT's weights; the two modules that it has beyond the paper are put in by hand."""
    c = theirs.config
    config = ModelConfig(
        n_layers=c.num_hidden_layers,
        d_model=c.hidden_size,
        n_heads=c.num_attention_heads,
        d_ff=c.intermediate_size,
        dropout=0.0,
        pre_norm=False,
        activation="gelu",
        positions="learned",
        pooling="first",
    )
    ours = TextClassifier(config, c.vocab_size, c.num_labels, c.max_position_embeddings)
    from_ = theirs.bert.embeddings
    ours.embedding.weight.copy_(from_.word_embeddings.weight / ours.embedding.scale)
    ours.embedding.positions.weight.copy_(from_.position_embeddings.weight + from_.token_type_embeddings.weight[0])
    embedding = BertEmbedding(ours.embedding, c.hidden_size)
    copy(embedding.norm, from_.LayerNorm)
    ours.embedding = embedding
    pooler = nn.Linear(c.hidden_size, c.hidden_size)
    copy(pooler, theirs.bert.pooler.dense)
    copy(ours.head, theirs.classifier)
    ours.head = nn.Sequential(pooler, nn.Tanh(), ours.head)
    for layer, other in zip(ours.encoder.layers, theirs.bert.encoder.layer, strict=True):
        attention = other.attention.self
        copy(layer.self_attention.q_proj, attention.query)
        copy(layer.self_attention.k_proj, attention.key)
        copy(layer.self_attention.v_proj, attention.value)
        copy(layer.self_attention.o_proj, other.attention.output.dense)
        copy(layer.self_residual.norm, other.attention.output.LayerNorm)
        copy(layer.feed_forward.up_proj, other.intermediate.dense)
        copy(layer.feed_forward.down_proj, other.output.dense)
        copy(layer.feed_forward_residual.norm, other.output.LayerNorm)
    return ours.eval()


def test_parity_with_bert() -> None:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=40,
        max_position_embeddings=12,
        num_labels=3,
        hidden_act="gelu",
        layer_norm_eps=1e-5,
        pad_token_id=0,
    )
    theirs = BertForSequenceClassification(config)
    randomise(theirs)
    ids = torch.randint(1, 50, (3, 10))
    real = torch.arange(10) < torch.tensor([10, 7, 1])[:, None]
    expected = theirs(ids, attention_mask=real.long()).logits
    assert expected.std() > 0.1
    torch.testing.assert_close(from_bert(theirs)(ids, real), expected, atol=1e-5, rtol=0)
