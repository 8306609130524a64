"""Compare the log of a beam search with a naive search; logging does not change the search."""

from __future__ import annotations

import math

import pytest
import torch
from tests.helpers.for_each import for_each
from tests.helpers.small import config_of, data_of

from glassformer.config import DecodeConfig, ModelConfig
from glassformer.decode.incremental import TranslationDecoder
from glassformer.decode.search import SearchLog, beam_search
from glassformer.explain.inputs import logged_search, translate
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


TOKENIZER = TASKS["translate"].from_data(config_of("translate"), data_of("translate")).tokenizer
SIZE = TOKENIZER.vocab_size


def table_of(seed: int) -> torch.Tensor:
    return 2 * torch.randn(9, SIZE, SIZE, generator=torch.Generator().manual_seed(seed))


def search(table: torch.Tensor, config: DecodeConfig, prefix: list[int], log: SearchLog | None = None):
    return beam_search(Table(table), [9], config, bos=BOS, eos=EOS, pad=PAD, prefixes=[prefix], log=log)[0]


@for_each("seed", range(6))
@for_each(("beam_size", "penalty", "n_prefix"), [(1, 1.0, 0), (3, 0.6, 0), (4, 1.0, 2)])
def test_what_is_recorded_equals_a_naive_search(seed: int, beam_size: int, penalty: float, n_prefix: int) -> None:
    table, prefix = table_of(seed), [5, 6][:n_prefix]
    config = DecodeConfig(beam_size=beam_size, length_penalty=penalty, n_best=min(2, beam_size))
    logged, steps = logged_search(lambda log: search(table, config, prefix, log), TOKENIZER)
    plain = search(table, config, prefix)
    assert [(h.ids, h.score, h.log_prob, h.finished) for h in logged[: len(plain)]] == [
        (h.ids, h.score, h.log_prob, h.finished) for h in plain
    ]
    live: list[tuple[list[int], float]] = [([], 0.0)]
    for t, step in enumerate(steps):
        extensions = []
        for parent, (ids, total) in enumerate(live):
            log_probs = table[min(t, len(table) - 1), [BOS, *ids][-1]].log_softmax(-1).tolist()
            free = [v for v in range(SIZE) if v not in (PAD, BOS)]
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


@for_each("seed", range(4))
def test_hypotheses_are_linked_to_their_candidates(seed: int) -> None:
    table, config = table_of(seed), DecodeConfig(beam_size=3, n_best=2)
    hypotheses, steps = logged_search(lambda log: search(table, config, [], log), TOKENIZER)
    n_finished = sum(c.finished for step in steps for c in step)
    assert sum(h.finished for h in hypotheses) == n_finished >= 1
    for h in hypotheses:
        assert h.end is not None
        t, index = h.end
        path = [steps[t][index]]
        for step in reversed(steps[:t]):
            path.append(next(c for c in step if c.row == path[-1].parent))
        assert [c.id for c in reversed(path)] == [*h.ids, *[EOS] * h.finished]
        assert math.fsum(c.log_prob for c in path) == pytest.approx(h.log_prob, abs=1e-5)


def test_a_log_skips_finished_sentences_and_names_its_kind() -> None:
    """One of 16 sentences ends at once: it stays in the batch, but is no longer logged."""
    model = Translator(ModelConfig(n_layers=1, d_model=8, n_heads=2, d_ff=8), SIZE, 9).eval()
    decoder, heard = TranslationDecoder(model, torch.arange(16)[:, None] % SIZE), list[list[int]]()
    longest, ids = [1] + [4] * 15, {"bos": BOS, "eos": EOS, "pad": PAD}
    beam_search(
        decoder, longest, DecodeConfig(beam_size=2), **ids, log=lambda step: heard.append(step.sentence.tolist())
    )
    assert heard[0] == list(range(16))
    assert all(0 not in sentences for sentences in heard[1:]) and len(heard) > 1
    sampled = translate(model, TOKENIZER, [5, 6, EOS], DecodeConfig(sample=True, n_best=3, max_new_tokens=5), [])
    assert (sampled.kind, len(sampled.hypotheses), sampled.steps) == ("sample", 3, [])
    searched = translate(model, TOKENIZER, [5, 6, EOS], DecodeConfig(beam_size=2, max_new_tokens=5), [7])
    assert (searched.kind, searched.prefix, searched.hypotheses[0].ids[0]) == ("beam", [7], 7)
