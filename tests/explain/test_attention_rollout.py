"""Tests of attention rollout, on weights with a known result and on real explanations."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers.attention_rollout import attention_rollout, rollout, rollout_decoder
from tests.helpers.inference import untrained

from glassformer.explain.explanation import TraceRequest, explain


def random_weights(n_heads: int, n_queries: int, n_keys: int, seed: int) -> np.ndarray:
    weights = np.random.default_rng(seed).random((n_heads, n_queries, n_keys))
    return weights / weights.sum(axis=-1, keepdims=True)


def test_rollout_of_two_layers_by_hand() -> None:
    """All tokens attend to token 0 in both layers: a quarter of each stays in place."""
    to_first = np.zeros((1, 3, 3))
    to_first[:, :, 0] = 1
    expected = np.array([[1, 0, 0], [0.75, 0.25, 0], [0.75, 0, 0.25]])
    assert np.allclose(rollout([to_first, to_first]), expected)


def test_rollout_depends_on_the_order_of_layers() -> None:
    """Attention 0 → 1 and then 1 → 2 moves token 0 to position 2; the reverse order does not."""
    first, second = np.eye(3)[None].copy(), np.eye(3)[None].copy()
    first[0, 1], second[0, 2] = [1, 0, 0], [0, 1, 0]
    assert rollout([first, second])[2, 0] == pytest.approx(0.25)
    assert rollout([second, first])[2, 0] == 0


def test_rollout_rows_sum_to_one_when_fully_masked() -> None:
    weights = random_weights(2, 4, 4, 0)
    weights[:, 2] = 0
    assert np.allclose(rollout([weights, weights]).sum(axis=-1), 1)
    cross = random_weights(2, 3, 4, 1)
    cross[:, 0] = 0
    self_weights = random_weights(2, 3, 3, 2)
    source, target = rollout_decoder([self_weights, self_weights], [cross, cross], rollout([weights]))
    assert np.allclose(source.sum(axis=-1) + target.sum(axis=-1), 1)


def test_rollout_decoder_of_one_layer_is_half_source() -> None:
    self_weights, cross = random_weights(2, 3, 3, 0), random_weights(2, 3, 4, 1)
    source, target = rollout_decoder([self_weights], [cross], np.eye(4))
    assert np.allclose(source, cross.mean(axis=0) / 2)
    assert np.allclose(target, (self_weights.mean(axis=0) / 2 + np.eye(3) / 2) / 2)


@pytest.mark.parametrize("name", ["classify", "translate", "lm"])
def test_attention_rollout_of_each_task(name: str) -> None:
    subject = untrained(name, n_layers=2)
    explanation = explain(subject, TraceRequest("a b c", target="cba" if name == "translate" else None))
    flow = attention_rollout(explanation)
    n = len(explanation.streams[-1])
    assert list(flow) == [s.name for s in explanation.streams]
    assert all(flow[s.name].shape == (n, len(s)) for s in explanation.streams)
    assert np.allclose(sum(m.sum(axis=-1) for m in flow.values()), 1, atol=1e-6)
    if name != "classify":
        assert np.allclose(np.triu(flow[explanation.streams[-1].name], 1), 0)  # nothing from the future
