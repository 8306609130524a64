"""What the doctor measures inside a model, compared with plain computations of the same."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.helpers.small import config_of, data_of, small, small_run

from glassformer.explain.trace import trace
from glassformer.models import decoder_models
from glassformer.models.ensemble import members_of
from glassformer.nn.attention import MultiHeadAttention
from glassformer.nn.layers import FeedForward
from glassformer.report.findings import NotMade
from glassformer.report.run_record import RunRecord
from glassformer.runs.records import DataRecord, StepMetrics
from glassformer.tasks.lm import LanguageModelling
from glassformer.training import examine
from glassformer.training.examine import Activity, activity_of
from glassformer.training.finetune import freeze


@pytest.mark.parametrize("task", ["classify", "lm"])
def test_scores_and_entropy_are_those_of_a_trace(task: str) -> None:
    """Of the keys that a query sees, of a language model those before it."""
    run = small(task)
    model, corpus = run.new_state().model, run.context.valid
    seen, largest, shares = activity_of(model, run.task, corpus), torch.zeros(1), list[torch.Tensor]()
    for row in (row[None] for rows in run.task.eval_batches(corpus, 1) for row in rows):
        with torch.no_grad(), trace(model) as steps:
            run.task.logits(model, run.task.make_batch(corpus, row))
        [name] = [id.removesuffix(".weights") for id in steps if id.endswith("0.self.weights")]
        weights, n_keys = steps[f"{name}.weights"].value, steps[f"{name}.weights"].shape[-1]
        for query in range(n_keys):
            if (n := query + 1 if task == "lm" else n_keys) >= 8:
                p = weights[:, query, :n]
                shares.append(-(p * p.log()).sum(dim=-1) / math.log(n))
            largest = torch.maximum(largest, steps[f"{name}.scores"].value[:, query, :n].abs().amax(dim=-1))
    assert seen.scores[name].tolist() == pytest.approx(largest.tolist(), rel=1e-5)
    if shares:
        assert seen.entropy[name].tolist() == pytest.approx(torch.stack(shares).mean(dim=0).tolist(), rel=1e-4)


def test_cross_attention_and_members_are_looked_at_too() -> None:
    config = config_of("translate")
    run = small_run(replace(config, model=replace(config.model, ensemble_size=2)), data_of("translate"))
    model = run.new_state().model
    seen = activity_of(model, run.task, run.context.valid)
    parts = [f"members.{i}.{part}" for i in (0, 1) for part in ("encoder.0.self", "decoder.0.self", "decoder.0.cross")]
    assert sorted(seen.scores) == sorted(parts) and len(seen.dead) == 4 and len(members_of(model)) == 2
    assert not any(module._forward_pre_hooks for module in model.modules()), "no hook is left"


def test_units_that_are_silent_are_counted() -> None:
    run = small("classify")
    model: Any = run.new_state().model
    block = model.encoder.layers[0].feed_forward
    with torch.no_grad():
        block.up_proj.bias[:20] = -1e4
    before = activity_of(model, run.task, run.context.valid)
    assert before.dead["encoder.0.ff"] >= 20 / 64
    [found] = examine.dead_units(before)
    assert found.at == "encoder.0.ff" and found.numbers["share"] == before.dead["encoder.0.ff"]


def test_what_cannot_be_looked_at_is_said() -> None:
    config = config_of("classify")
    run = small_run(replace(config, model=replace(config.model, activation="gelu")), data_of("classify"))
    seen = activity_of(run.new_state().model, run.task, run.context.valid)
    with pytest.raises(NotMade, match="ReLU"):
        list(examine.dead_units(seen))
    for check in (examine.scores, examine.heads, examine.dead_units):
        with pytest.raises(NotMade):
            list(check(Activity()))


@pytest.mark.parametrize(
    ("check", "score", "shares", "grade"),
    [
        ("scores", 199.0, (0.5,) * 4, None),
        ("scores", 201.0, (0.5,) * 4, "look"),
        ("scores", 999.0, (0.5,) * 4, "look"),
        ("scores", 1001.0, (0.5,) * 4, "stop"),
        ("scores", math.inf, (0.5,) * 4, "stop"),
        ("heads", 10.0, (0.01,) * 4, None),  # sharp heads can be right
        ("heads", 210.0, (0.01,) * 4, "look"),
        ("heads", 210.0, (0.5,) * 4, None),
        ("heads", 1.0, (0.9995, 0.9995, 0.5, 0.5), "look"),
        ("heads", 1.0, (0.9995, 0.5, 0.5, 0.5), None),
        ("heads", 1.0, (0.99,) * 4, None),  # they may pool
    ],
)
def test_the_grade_of_scores_and_heads(check: str, score: float, shares: tuple[float, ...], grade: str | None) -> None:
    seen = Activity({"a": torch.tensor([1.0, score, 1.0, 1.0])}, {"a": torch.tensor(shares)}, {"ff": 0.0}, 100)
    found = list(getattr(examine, check)(seen))
    assert [f.grade for f in found] == [grade] * (grade is not None)
    if found and check == "scores":
        assert found[0].at == "a" and found[0].numbers["head"] == 1 and found[0].numbers["largest"] == score


def record_of(run: Any, loss: float, **more: Any) -> RunRecord:
    data = DataRecord(label_names=run.task.label_names, tokenizer={"vocab_size": run.task.tokenizer.vocab_size})
    return RunRecord(Path("run"), run.config, data=data, training=[StepMetrics(1, loss=loss, **more)])


def test_a_first_loss_is_compared_with_fresh_models() -> None:
    run = small("classify")
    fresh = examine.fresh_losses(run.context)
    mean = sum(fresh) / len(fresh)
    assert len(set(fresh)) == 3 and list(examine.fresh_loss(record_of(run, mean), run.context)) == []
    [found] = examine.fresh_loss(record_of(run, mean + 2), run.context)
    assert found.grade == "stop" and found.numbers["fresh"] == pytest.approx(mean)
    assert found.numbers["loss"] == mean + 2
    imported = record_of(run, mean + 2)
    with pytest.raises(NotMade, match="random weights"):
        list(examine.fresh_loss(replace(imported, data=replace(imported.data, base={"path": "x"})), run.context))


@pytest.mark.parametrize("task", ["lm", "translate", "pretrain"])
def test_no_answer_is_visible_in_sound_tasks(task: str) -> None:
    run = small(task)
    assert list(examine.answer_visible(run.new_state().model, run.context)) == []


def unshifted_labels(patch: pytest.MonkeyPatch) -> None:
    """Each label is the token that is read at its position."""
    make = LanguageModelling.make_batch

    def unshifted(*given: Any) -> Any:
        batch = make(*given)
        return replace(batch, labels=torch.where(batch.labels >= 0, batch.ids, batch.labels))

    patch.setattr(LanguageModelling, "make_batch", unshifted)


def no_causal_mask(patch: pytest.MonkeyPatch) -> None:
    """Each position sees later ones."""
    of = decoder_models.next_positions
    patch.setattr(decoder_models, "next_positions", lambda *given: (of(*given)[0], None))


@pytest.mark.parametrize("damage", [unshifted_labels, no_causal_mask])
def test_a_visible_answer_is_found(damage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = small("lm")
    damage(monkeypatch)
    [found] = examine.answer_visible(run.new_state().model, run.context)
    assert (found.grade, found.place) == ("stop", "answer-visible")


DAMAGE = {
    "scores": (MultiHeadAttention, lambda attention: attention.q_proj.weight.mul_(1e4)),
    "heads": (MultiHeadAttention, lambda attention: [p.zero_() for p in attention.q_proj.parameters()]),
    "dead-units": (FeedForward, lambda block: block.up_proj.bias.fill_(-100.0)),
}


@pytest.mark.parametrize("place", DAMAGE)
def test_a_damaged_model_is_found(place: str) -> None:
    run = small("translate")
    model = run.new_state().model
    examined = partial(examine.examine_model, record_of(run, 1.0), run.context)
    assert place not in {finding.place for finding in examined(model).findings}
    kind, damage = DAMAGE[place]
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, kind):
                damage(module)
    assert place in {finding.place for finding in examined(model).findings}


@pytest.mark.parametrize("frozen_layers", [0, 1])
def test_a_matrix_that_is_missing_in_the_log_was_not_trained_unless_the_settings_freeze_it(frozen_layers: int) -> None:
    run = small("classify", frozen_layers=frozen_layers)
    model = run.new_state().model
    everything = [name for name, p in model.named_parameters() if p.dim() > 1]
    if frozen_layers:
        freeze(model, 1)
    names = [name for name, p in model.named_parameters() if p.requires_grad and p.dim() > 1]
    assert 0 < len(names) < len(everything) + (not frozen_layers)

    def frozen(trained: list[str]) -> list[Any]:
        record = record_of(run, 1.0, update_ratios=dict.fromkeys(trained, 0.1))
        return list(examine.frozen(record, run.new_state().model.requires_grad_(False)))  # as it may be afterwards

    assert frozen(names) == frozen(everything) == []
    if not frozen_layers:
        [found] = frozen(names[1:])
        assert (found.grade, found.at, found.numbers["n"]) == ("stop", names[0], 1)
