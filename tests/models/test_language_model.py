"""`LanguageModel`: the future never changes the past, the cache changes nothing; test_import_families.py has GPT-2."""

from __future__ import annotations

from dataclasses import replace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.copying import randomise
from tests.helpers.for_each import for_each

from glassformer.config import ModelConfig
from glassformer.models import LanguageModel

SMALL = ModelConfig(n_layers=2, d_model=8, n_heads=2, dropout=0.0)
POSITIONS = st.sampled_from(["sinusoidal", "learned", "rotary", "none"])
LONGEST_NGRAM = st.sampled_from([0, 2, 5])


def model_of(**changes: object) -> LanguageModel:
    return randomise(LanguageModel(replace(SMALL, **changes), 20, 40))


@settings(deadline=None, max_examples=40)
@given(
    n=st.integers(2, 12),
    at=st.integers(1, 11),
    positions=POSITIONS,
    pre_norm=st.booleans(),
    max_ngram=LONGEST_NGRAM,
    seed=st.integers(0, 99),
)
def test_a_future_token_never_changes_the_past(n, at, positions, pre_norm, max_ngram, seed) -> None:
    at = min(at, n - 1)
    torch.manual_seed(seed)
    model = model_of(positions=positions, pre_norm=pre_norm, max_ngram=max_ngram)
    ids = torch.randint(20, (2, n))
    other = ids.clone()
    other[:, at:] = (ids[:, at:] + torch.randint(1, 20, (2, n - at))) % 20
    before, after = model(ids), model(other)
    torch.testing.assert_close(before[:, :at], after[:, :at], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(before[:, at:], after[:, at:], atol=1e-5)
    torch.testing.assert_close(model(ids[:, :at]), before[:, :at], atol=1e-5, rtol=1e-5)


@settings(deadline=None, max_examples=40)
@given(
    chunks=st.lists(st.integers(1, 5), min_size=1, max_size=7),
    positions=POSITIONS,
    max_ngram=LONGEST_NGRAM,
    seed=st.integers(0, 99),
)
def test_cached_equals_uncached(chunks, positions, max_ngram, seed) -> None:
    torch.manual_seed(seed)
    model = model_of(positions=positions, max_ngram=max_ngram)
    ids = torch.randint(20, (3, sum(chunks)))
    cache = model.new_cache()
    parts = [model(part, cache=cache) for part in ids.split(chunks, dim=1)]
    assert cache.length == ids.shape[1]
    torch.testing.assert_close(torch.cat(parts, dim=1), model(ids), atol=1e-5, rtol=1e-5)


@for_each("max_ngram", [0, 4])
def test_a_row_may_change_places_in_the_cache(max_ngram: int) -> None:
    model, rows = model_of(max_ngram=max_ngram), torch.tensor([2, 0, 2])
    ids = torch.randint(20, (3, 6))
    cache = model.new_cache()
    model(ids[:, :4], cache=cache)
    cache.select(rows)
    got = model(ids[rows][:, 4:], cache=cache)
    torch.testing.assert_close(got, model(ids[rows])[:, 4:], atol=1e-5, rtol=1e-5)
