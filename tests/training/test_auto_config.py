"""Settings that come from the data, or from the time: logged with their reason, kept by the run, and given way to what
is set by hand. A budget in minutes becomes a number of updates once, and then the run is a function of the update.
"""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest import mock

import pytest
import torch
from tests.helpers.small import config_of, data_of, small
from tests.helpers.small_runs import write_table

import glassformer
from glassformer.config import Config, TrainConfig
from glassformer.config.recipes import load_recipe, override
from glassformer.data.splits import TextData
from glassformer.errors import UsageError
from glassformer.tasks.base import WORD_VOCAB_SIZE
from glassformer.tasks.encoder import Classify
from glassformer.tasks.lm import LanguageModelling
from glassformer.tasks.settings import MAX_TOKENS, suggest
from glassformer.tasks.translate import Translate
from glassformer.training import preparation
from glassformer.training.loop import Progress, copy_weights
from glassformer.training.preparation import apply_auto_config, batches_to_time, measure_pace

AUTO = replace(config_of("classify"), auto=("batch_size", "epochs"))


def test_the_rules_fill_what_the_recipe_leaves_to_them() -> None:
    config, data = apply_auto_config(AUTO, Classify, data_of("classify", 60))
    assert config.auto == () and config.train.batch_size and config.train.epochs
    assert config.model == AUTO.model  # which auto does not name
    assert "60 texts of 2 classes" in data.notes[-1] and f"batch_size {config.train.batch_size}" in data.notes[-1]


def test_what_is_set_by_hand_is_not_found_from_the_data() -> None:
    assert override(AUTO, {"batch_size": 7}).auto == ("epochs",)
    assert override(AUTO, {"steps": 7}).auto == ("batch_size",)  # a budget of any kind is a budget
    assert override(AUTO, {"train": {"batch_size": 7, "minutes": 1.0}}).auto == ()
    assert override(AUTO, {"batch_size": None}).auto == ("epochs",)  # batches of tokens, then
    assert override(AUTO, {"lr": 0.1, "steps": None}).auto == AUTO.auto
    config, _ = apply_auto_config(override(AUTO, {"batch_size": 7}), Classify, data_of("classify"))
    assert config.train.batch_size == 7


def test_the_rules_see_sizes_alone() -> None:
    data = data_of("classify", 60)
    other = replace(data, valid=data.valid.take([0]), test=None)
    assert apply_auto_config(AUTO, Classify, data)[0] == apply_auto_config(AUTO, Classify, other)[0]


def test_bigrams_and_the_size_of_a_vocabulary_follow_the_kind_of_tokenizer() -> None:
    """Else naming another tokenizer would end in a refusal of what the rule, and nobody else, asked for."""
    for kind in ("word", "char", "bpe", "byte-bpe"):
        left = replace(config_of("classify"), auto=("bigrams",))
        left = replace(left, text=replace(left.text, tokenizer=kind, vocab_size=1000))
        assert (apply_auto_config(left, Classify, data_of("classify"))[0].text.bigrams > 0) == (kind == "word")
        left = replace(config_of("translate"), auto=("vocab_size",), text=left.text)
        found = apply_auto_config(left, Translate, data_of("translate"))[0].text.vocab_size
        assert (found == WORD_VOCAB_SIZE) == (kind == "word")


def test_members_together_read_what_takes_minutes() -> None:
    """Long texts are dear: three models of 500 reviews, one of 2,000; of short ones in thousands still three."""

    def members(n: int, classes: int, words: float) -> int:
        return suggest(n, classes, words)["ensemble_size"]

    assert [members(n, 2, 280) for n in (500, 1000, 2000, 8000)] == [3, 2, 1, 1]
    assert members(3000, 4, 20) == members(10_000, 77, 12) == 3 and members(15_000, 150, 9) == 2
    for n, classes, words in itertools.product((2, 500, 2000, 9600, 25_000, 10**6), (2, 6, 150), (0.0, 8.0, 280.0)):
        chosen = suggest(n, classes, words)
        found = override(Config(task="classify"), chosen)
        assert 8 <= (found.train.batch_size or 0) <= 64 and 1 <= (k := found.model.ensemble_size) <= 3
        assert k == 1 or n < 500 or k * n * words * chosen["epochs"] <= MAX_TOKENS * 1.01


def test_few_pairs_are_read_often_and_many_seldom() -> None:
    """From a thousand pairs to ten million: more pieces, fewer passes, never past their ends."""
    sets = [cast(TextData, SimpleNamespace(train=range(n))) for n in (1, 1000, 5000, 29_000, 200_000, 10_000_000)]
    found = [Translate.suggest_settings(data, Config())[0] for data in sets]
    sizes, passes = [f["vocab_size"] for f in found], [f["epochs"] for f in found]
    assert sizes == sorted(sizes) and sizes[:3] == [6000] * 3 and sizes[-1] == 32_000
    assert passes == sorted(passes, reverse=True) and passes[:2] == [60, 60] and passes[-1] == 1.1
    for name in ("max_tokens", "d_model"):
        assert [f[name] for f in found] == sorted(f[name] for f in found), name
    assert [f["dropout"] for f in found] == [0.3] * 3 + [0.2] + [0.1] * 2


def test_a_longer_text_gets_more_pieces_and_fewer_passes() -> None:
    texts = [[range(3 * n)] for n in (1, 10**5, 10**6, 10**7, 10**8, 10**10)]  # of such lengths
    sets = [cast(TextData, SimpleNamespace(train=SimpleNamespace(text=each))) for each in texts]
    found = [LanguageModelling.suggest_settings(data, Config())[0] for data in sets]
    assert [f["vocab_size"] for f in found] == sorted(f["vocab_size"] for f in found)
    for name in ("epochs", "dropout"):
        assert [f[name] for f in found] == sorted((f[name] for f in found), reverse=True), name


def test_a_setting_without_a_rule_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot choose max_grad_norm automatically"):
        apply_auto_config(replace(AUTO, auto=("max_grad_norm",)), Classify, data_of("classify"))
    with pytest.raises(UsageError, match="not a setting"):
        override(replace(AUTO, auto=("batchsize",)), {})


def test_a_run_keeps_what_was_found(tmp_path: Path) -> None:
    settings = {"train_file": str(write_table(tmp_path)), "d_model": 8, "ensemble_size": 1}
    glassformer.train("classify", steps=3, out=tmp_path / "run", **settings)
    kept = load_recipe(tmp_path / "run")
    assert kept.auto == () and kept.train.steps == 3 and kept.train.epochs is None
    assert kept.train.batch_size and kept.model.d_model == 8
    assert "chosen automatically" in (tmp_path / "run" / "report.md").read_text(encoding="utf-8")


PACE = preparation.Pace(step=0.1, validation=1.0, tokens_per_s=1000.0, padding=0.0)


def settled(pace: preparation.Pace, updates_per_epoch: float = 100, **train: object) -> TrainConfig:
    return preparation.in_updates(Config(train=TrainConfig(**train)), pace, updates_per_epoch).train


def test_minutes_become_updates_validations_included() -> None:
    found = settled(PACE, minutes=1.0)
    assert found.minutes is None and found.steps is not None and found.validate_every == 1.0
    seconds = found.steps * PACE.step + math.ceil(found.steps / 100) * PACE.validation
    assert 60 - 2 * PACE.step - PACE.validation <= seconds <= 60
    assert settled(replace(PACE, validation=0.0), minutes=1.0).steps == 600


def test_dear_validations_come_at_longer_intervals() -> None:
    """They may take 15% of the time: nine seconds, so four of two seconds, instead of one every ten updates."""
    found = settled(replace(PACE, validation=2.0), updates_per_epoch=10, minutes=1.0)
    assert found.steps is not None
    n_validations = math.ceil(found.steps / 10 / found.validate_every - 1e-9)
    assert n_validations == 4
    assert found.steps * PACE.step + n_validations * 2.0 == pytest.approx(60, abs=0.2)
    slow = settled(replace(PACE, validation=100.0), minutes=1.0)
    assert slow.steps == 1, "one validation is due however long it takes"


def test_other_budgets_stand_and_bound_minutes_too() -> None:
    config = Config(train=TrainConfig(epochs=3))
    assert preparation.in_updates(config, PACE, 100) is config
    assert settled(PACE, minutes=1.0, steps=7).steps == 7
    both = settled(PACE, minutes=1.0, epochs=2.0)
    assert both.epochs == 2.0 and both.steps is not None


def test_the_pace_is_measured_on_real_updates() -> None:
    """No bound on how fast: only that all is there and adds up."""
    run = small("translate", minutes=0.01)
    pace = measure_pace(run.context, run.new_state())
    assert pace.step > 0 and pace.validation > 0 and pace.tokens_per_s > 0 and 0 <= pace.padding < 1
    run = small("classify")
    state = run.new_state()
    before, random = copy_weights(state.tensors()), torch.get_rng_state()
    assert measure_pace(run.context, state).validation == 0.0, "not timed where nobody asks"
    after = state.tensors()
    assert before.keys() == after.keys() and all(torch.equal(t, after[name]) for name, t in before.items())
    assert state.progress == Progress(next_validation=1.0) and torch.equal(torch.get_rng_state(), random)


def test_the_pace_counts_the_making_of_batches() -> None:
    """As the training loop does, whose seconds a budget in minutes is compared with."""
    run = small("classify")
    make = run.task.make_batch
    run.task.make_batch = lambda corpus, index: (time.sleep(0.1), make(corpus, index))[1]
    assert measure_pace(run.context, run.new_state()).step >= 0.1


def test_a_tenth_of_a_short_run_is_timed() -> None:
    """Unless its budget is in minutes, which the speed decides."""
    assert batches_to_time(TrainConfig(epochs=None, steps=4), 100) == (3, 3)
    assert batches_to_time(TrainConfig(epochs=None, steps=50, accumulate=4), 100) == (8, 20)
    assert batches_to_time(TrainConfig(epochs=2.0, steps=5000), 60) == (8, 12)
    assert batches_to_time(TrainConfig(epochs=None, steps=5000), 100) == (8, 32)
    assert batches_to_time(TrainConfig(epochs=None, steps=4, minutes=1.0), 100) == (8, 32)


def test_the_validation_that_is_timed_is_of_the_task_as_it_was_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fitting chooses a translator's metric; only the length of what it writes is another."""
    run = small("translate", minutes=0.01)
    run.task.metric = "exact_match"
    watched = mock.Mock(side_effect=preparation.validation_scores)
    monkeypatch.setattr(preparation, "validation_scores", watched)
    measure_pace(run.context, run.new_state())
    timed = watched.call_args.args[0]
    assert timed.task.metric == "exact_match" and timed.task.config == timed.config
    assert timed.config.decode.max_new_tokens < run.config.decode.max_new_tokens == 24
    assert replace(timed.config, decode=run.config.decode) == run.config


def test_a_settled_budget_is_the_task_s_too() -> None:
    made = small("classify", epochs=None, minutes=0.01)
    run, _ = preparation.settle_budget(made.context, made.new_state())
    assert run.config.train.minutes is None and run.config.train.steps
    assert run.task.config == run.config
