"""Compare the log of a beam search with a naive search; logging does not change the search."""

from __future__ import annotations

import math

import pytest
import torch
from tests.helpers.small import config_of, data_of

from glassformer.config import DecodeConfig, ModelConfig
from glassformer.decode.incremental import TranslationDecoder
from glassformer.decode.search import beam_search
from glassformer.explain.inputs import SearchRecorder, translate
from glassformer.models import Translator
from glassformer.tasks import TASKS

PAD, BOS, EOS = 0, 2, 3


class Table(TranslationDecoder):
    """A decoder whose logits depend on the last token and the length."""

    def __init__(self, table: torch.Tensor) -> None:
        self.table, self.max_len, self.device, self.length = table, 999, torch.device("cpu"), 0

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        self.length += 1
        return self.table[min(self.length, len(self.table)) - 1, tokens[:, -1]]

    def reorder(self, rows: torch.Tensor, sentences: torch.Tensor | None = None) -> None: ...

    def reset(self) -> None: ...


@pytest.fixture(scope="module")
def tokenizer():
    config = config_of("translate")
    return TASKS["translate"].from_data(config, data_of("translate")).tokenizer


def table_of(seed: int, vocab_size: int) -> torch.Tensor:
    return 2 * torch.randn(9, vocab_size, vocab_size, generator=torch.Generator().manual_seed(seed))


def search(table: torch.Tensor, config: DecodeConfig, recorder: SearchRecorder | None, prefix: list[int]):
    return beam_search(Table(table), [9], config, bos=BOS, eos=EOS, pad=PAD, prefixes=[prefix], log=recorder)[0]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("beam_size", "penalty", "n_prefix"), [(1, 1.0, 0), (3, 0.6, 0), (4, 1.0, 2)])
def test_search_recorder_steps_equal_a_naive_search(tokenizer, seed, beam_size, penalty, n_prefix) -> None:
    table = table_of(seed, tokenizer.vocab_size)
    prefix = [5, 6][:n_prefix]
    config = DecodeConfig(beam_size=beam_size, length_penalty=penalty, n_best=min(2, beam_size))
    recorder = SearchRecorder(tokenizer)
    results = search(table, config, recorder, prefix)
    assert results == search(table, config, None, prefix)
    live: list[tuple[list[int], float]] = [([], 0.0)]
    for t, step in enumerate(recorder.steps):
        extensions = []
        for parent, (ids, total) in enumerate(live):
            log_probs = table[min(t, len(table) - 1), [BOS, *ids][-1]].log_softmax(-1).tolist()
            free = [v for v in range(len(log_probs)) if v not in (PAD, BOS)]
            for v in [prefix[t]] if t < n_prefix else free:
                extensions.append((total + log_probs[v], parent, v, log_probs[v]))
        extensions.sort(key=lambda e: -e[0])
        wanted = 1 if beam_size == 1 else 2 * beam_size
        assert [(c.parent, c.id) for c in step] == [(p, v) for _, p, v, _ in extensions[:wanted]]
        lived: list[tuple[list[int], float]] = []
        for rank, (c, (total, parent, v, log_prob)) in enumerate(zip(step, extensions, strict=False)):
            assert (c.total, c.log_prob) == pytest.approx((total, log_prob), abs=1e-5)
            assert c.score == pytest.approx(total / (t + 1) ** penalty, abs=1e-5)
            assert c.finished == (v == EOS and rank < beam_size)
            lives = v != EOS and len(lived) < beam_size
            assert c.row == (len(lived) if lives else None)
            if lives:
                lived.append(([*live[parent][0], v], total))
        live = lived


@pytest.mark.parametrize("seed", range(4))
def test_search_recorder_links_hypotheses_to_candidates(tokenizer, seed: int) -> None:
    config = DecodeConfig(beam_size=3, n_best=2)
    recorder = SearchRecorder(tokenizer)
    results = search(table_of(seed, tokenizer.vocab_size), config, recorder, [])
    hypotheses = recorder.hypotheses(results)
    assert [(h.ids, h.score) for h in hypotheses[: len(results)]] == [(h.ids, h.score) for h in results]
    n_finished = sum(c.finished for step in recorder.steps for c in step)
    assert sum(h.finished for h in hypotheses) == n_finished >= 1
    for h in hypotheses:
        assert h.end is not None
        t, index = h.end
        candidate, ids, log_probs = recorder.steps[t][index], [], []
        while True:
            ids.append(candidate.id)
            log_probs.append(candidate.log_prob)
            if t == 0:
                break
            t -= 1
            candidate = next(c for c in recorder.steps[t] if c.row == candidate.parent)
        assert ids[::-1] == [*h.ids, *[EOS] * h.finished]
        assert math.fsum(log_probs) == pytest.approx(h.log_prob, abs=1e-5)


def test_beam_search_log_skips_finished_sentences(tokenizer) -> None:
    """One of 16 sentences ends at once: it stays in the batch, but is no longer logged."""
    vocab_size = tokenizer.vocab_size
    model = Translator(ModelConfig(n_layers=1, d_model=8, n_heads=2, d_ff=8), vocab_size, 9).eval()
    src = torch.arange(16)[:, None] % vocab_size
    heard: list[list[int]] = []
    beam_search(
        TranslationDecoder(model, src),
        [1] + [4] * 15,
        DecodeConfig(beam_size=2),
        bos=BOS,
        eos=EOS,
        pad=PAD,
        log=lambda step: heard.append(step.sentence.tolist()),
    )
    assert heard[0] == list(range(16))
    assert all(0 not in sentences for sentences in heard[1:]) and len(heard) > 1


def test_translate_log_names_its_kind(tokenizer) -> None:
    vocab_size = tokenizer.vocab_size
    model = Translator(ModelConfig(n_layers=1, d_model=8, n_heads=2, d_ff=8), vocab_size, 9).eval()
    sampled = translate(model, tokenizer, [5, 6, EOS], DecodeConfig(sample=True, n_best=3, max_new_tokens=5), [])
    assert (sampled.kind, len(sampled.hypotheses), sampled.steps) == ("sample", 3, [])
    searched = translate(model, tokenizer, [5, 6, EOS], DecodeConfig(beam_size=2, max_new_tokens=5), [7])
    assert (searched.kind, searched.prefix, searched.hypotheses[0].ids[0]) == ("beam", [7], 7)
