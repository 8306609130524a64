"""Continuing prompts with a real (random) language model, within its context and beyond."""

from __future__ import annotations

import pytest
import torch
from tests.decode.toys import EOS, PAD, language_model, sentences

from glassformer.config import DecodeConfig
from glassformer.decode.jobs import generate_ids
from glassformer.decode.sampling import sample_tokens, uniform_numbers
from glassformer.errors import UsageError
from glassformer.text.long_text import window_start


@pytest.fixture(scope="module", params=["rotary", "learned"])
def model(request):
    return language_model(positions=request.param)


def by_definition(model, prompt, config, row, eos):
    """One token at a time, one row, no cache: what `generate_ids` must give."""
    text, n = list(prompt), len(prompt) + config.max_new_tokens
    u = torch.from_numpy(uniform_numbers(config.decode_seed, [row], n))
    while len(text) < n:
        seen = text[window_start(len(text), model.max_len) :]
        with torch.no_grad():
            logits = model(torch.tensor([seen]))[:, -1]
        token, _ = sample_tokens(logits, config, u[:, len(text)])
        if int(token) == eos:
            break
        text.append(int(token))
    return text[len(prompt) :]


@pytest.mark.parametrize(
    "config",
    [
        DecodeConfig(max_new_tokens=40, decode_seed=3),  # beyond the context of 16
        DecodeConfig(max_new_tokens=9, temperature=0.7, top_k=5),
        DecodeConfig(max_new_tokens=25, temperature=0),
    ],
    ids=["long", "filtered", "greedy"],
)
def test_equals_the_definition_for_prompts_of_any_length(model, config, monkeypatch):
    """In batches of any size and in several processes, with a cache."""
    prompts = [*sentences(0, 6, 19), [4] * 16, [5] * 17, list(range(3, 19)) * 3]
    eos = EOS
    expected = [by_definition(model, prompt, config, 100 + i, eos) for i, prompt in enumerate(prompts)]
    for batch_rows in (64, 1):
        monkeypatch.setattr("glassformer.decode.jobs.BATCH_ROWS", batch_rows)
        assert generate_ids(model, prompts, config, eos=eos, first_row=100) == expected
    with monkeypatch.context() as patch:
        patch.setattr("glassformer.decode.jobs.n_workers_for", lambda *_: 3)
        assert generate_ids(model, prompts, config, eos=eos, first_row=100) == expected


def test_banned_tokens_are_not_written_and_nothing_ends_without_an_end_token(model):
    texts = generate_ids(model, [[5]] * 20, DecodeConfig(max_new_tokens=20), suppress_tokens=[PAD, 7])
    assert not {PAD, 7} & {token for text in texts for token in text}
    assert all(len(text) == 20 for text in texts) and generate_ids(model, [], DecodeConfig()) == []
    with pytest.raises(UsageError, match="prompt 1 is empty"):
        generate_ids(model, [[5], []], DecodeConfig())
