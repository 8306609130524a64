"""`Translator`: padding, future, cache and beam change nothing, one of its forms is Marian: test_import_families.py."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.copying import randomise

from glassformer.config import ModelConfig
from glassformer.models import Translator

SMALL = ModelConfig(n_layers=2, d_model=8, n_heads=2, dropout=0.0)
POSITIONS = st.sampled_from(["sinusoidal", "learned", "rotary", "none"])


def model_of(**changes: object) -> Translator:
    return randomise(Translator(replace(SMALL, **changes), 20, 40))


@settings(deadline=None, max_examples=40)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 8), st.integers(1, 8)), min_size=1, max_size=4),
    extra=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    positions=POSITIONS,
    pre_norm=st.booleans(),
    seed=st.integers(0, 99),
)
def test_padding_and_the_batch_change_nothing(lengths, extra, positions, pre_norm, seed) -> None:
    torch.manual_seed(seed)
    model = model_of(positions=positions, pre_norm=pre_norm)
    longest = [max(column) + more for column, more in zip(zip(*lengths, strict=True), extra, strict=True)]
    src, tgt = (torch.randint(20, (len(lengths), n)) for n in longest)
    real = torch.arange(longest[0]) < torch.tensor([s for s, _ in lengths])[:, None]
    together = model(src, tgt, real)
    for i, (s, t) in enumerate(lengths):
        alone = model(src[i : i + 1, :s], tgt[i : i + 1, :t])
        torch.testing.assert_close(together[i : i + 1, :t], alone, atol=1e-5, rtol=1e-5)


@settings(deadline=None, max_examples=40)
@given(n=st.integers(2, 10), at=st.integers(1, 9), positions=POSITIONS, seed=st.integers(0, 99))
def test_a_future_target_token_never_changes_the_past(n, at, positions, seed) -> None:
    at = min(at, n - 1)
    torch.manual_seed(seed)
    model = model_of(positions=positions)
    src, tgt = torch.randint(20, (2, 5)), torch.randint(20, (2, n))
    other = tgt.clone()
    other[:, at:] = (tgt[:, at:] + 1) % 20
    before, after = model(src, tgt), model(src, other)
    torch.testing.assert_close(before[:, :at], after[:, :at], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(before[:, at:], after[:, at:], atol=1e-5)


def test_every_source_token_may_change_every_logit() -> None:
    model, src, tgt = model_of(), torch.randint(20, (1, 6)), torch.randint(20, (1, 4))
    others = (src.repeat(6, 1) + torch.eye(6, dtype=torch.long)) % 20
    assert ((model(others, tgt.repeat(6, 1)) - model(src, tgt)).abs().amax(-1) > 1e-6).all()


@pytest.mark.row("5.1")
@settings(deadline=None, max_examples=40)
@given(
    chunks=st.lists(st.integers(1, 4), min_size=1, max_size=6),
    beam=st.integers(1, 3),
    positions=POSITIONS,
    seed=st.integers(0, 99),
)
def test_cached_equals_uncached_with_any_beam(chunks, beam, positions, seed) -> None:
    torch.manual_seed(seed)
    model = model_of(positions=positions)
    src, tgt = torch.randint(20, (2, 5)), torch.randint(20, (2 * beam, sum(chunks)))
    real = torch.arange(5) < torch.tensor([5, 3])[:, None]
    memory, cache = model.encode(src, real), model.new_cache()
    parts = [model.decode(part, memory, real, cache) for part in tgt.split(chunks, dim=1)]
    whole = model(src.repeat_interleave(beam, 0), tgt, real.repeat_interleave(beam, 0))
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, atol=1e-5, rtol=1e-5)


def test_the_output_bias_is_added_to_each_logit() -> None:
    model, ids = model_of(output_bias=True), torch.tensor([[1, 2, 3]])
    before = model(ids, ids)
    with torch.no_grad():
        model.output_bias += torch.arange(20.0)
    torch.testing.assert_close(model(ids, ids), before + torch.arange(20.0))


def test_sentences_leave_and_hypotheses_change_places() -> None:
    model = model_of()
    src, real = torch.randint(20, (3, 5)), torch.arange(5) < torch.tensor([5, 3, 4])[:, None]
    tgt = torch.randint(20, (6, 4))  # a beam of two
    memory, cache = model.encode(src, real), model.new_cache()
    model.decode(tgt[:, :3], memory, real, cache)
    sentences, rows = torch.tensor([2, 0]), torch.tensor([5, 5, 1, 0])
    cache.select(rows, sentences)
    got = model.decode(tgt[rows][:, 3:], memory[sentences], real[sentences], cache)
    repeated = sentences.repeat_interleave(2)
    whole = model(src[repeated], tgt[rows], real[repeated])
    torch.testing.assert_close(got, whole[:, 3:], atol=1e-5, rtol=1e-5)
