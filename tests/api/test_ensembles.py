"""Ensembles of any task: members trained side by side in one run, and runs that are joined when they answer."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.helpers.for_each import for_each
from tests.helpers.small import Small, config_of, data_of, small_run

import glassformer
from glassformer.errors import CheckpointError, UsageError
from glassformer.models.ensemble import Ensemble, mean_logits
from glassformer.training.preparation import Pace, preflight

TASKS = ("classify", "translate", "lm")


def small_ensemble(task: str, members: int, **model: Any) -> Small:
    config = config_of(task)
    return small_run(replace(config, model=replace(config.model, ensemble_size=members, **model)), data_of(task))


@for_each("task", TASKS)
def test_members_learn_by_themselves_and_are_scored_together(task):
    run = small_ensemble(task, 3, dropout=0.0)
    state, batch = run.new_state(), run.batch(run.batches()[0])
    model = state.model
    alone = [run.task.loss_sum(member, batch).item() for member in model.members]
    assert len(set(alone)) == 3
    assert state.train_module(batch).item() == pytest.approx(sum(alone) / 3, rel=1e-5)
    model.eval()
    together = run.task.loss_sum(model, batch).item()  # by Jensen's inequality less than their mean
    assert together < sum(alone) / 3
    logits = mean_logits([run.task.logits(member, batch) for member in model.members])
    assert torch.allclose(run.task.logits(model, batch), logits)


@for_each("task", TASKS)
def test_an_ensemble_of_any_task_trains_validates_and_counts_its_work(task):
    run = small_ensemble(task, 2)
    state = run.new_state()
    before = [p.detach().clone() for p in state.model.parameters()]
    reports = run.run(state, most=30)
    assert not any(torch.equal(a, b) for a, b in zip(before, state.model.parameters(), strict=True) if a.ndim > 1)
    valid = [report.valid for report in reports if report.valid is not None]
    assert valid and all(math.isfinite(value) for value in valid[-1].values())
    pace = Pace(step=1.0, validation=0.0, tokens_per_s=1.0, padding=0.0)
    sizes = [small_ensemble(task, n) for n in (1, 2)]
    one, two = (preflight(each.context, pace, each.task.build_model()) for each in sizes)
    for count in ("flops_per_token", "n_parameters"):
        assert two.preflight[count] == 2 * one.preflight[count]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two runs of one recipe, one of another width, and one with another vocabulary."""
    folder = tmp_path_factory.mktemp("joined")
    file = folder / "pairs.tsv"
    pairs = [f"{a} {b}\t{b} {a}" for a in "one two three four five six".split() for b in "red blue green".split()]
    file.write_text("source\ttarget\n" + "\n".join(pairs * 3) + "\n", "utf-8")
    model = {"n_layers": 1, "d_model": 16, "n_heads": 2, "d_ff": 16}
    common: dict[str, Any] = {"train_file": str(file), "test_file": str(file), "valid_fraction": 0.2, "beam_size": 2}
    common |= {"steps": 4, "max_tokens": 200, "precision": "fp32"}
    others = {"a": (1, 16, 300), "b": (2, 16, 300), "wide": (1, 32, 300), "other": (1, 16, 280)}
    for name, (seed, width, vocab_size) in others.items():
        common |= {"model": model | {"d_model": width}, "text": {"vocab_size": vocab_size, "max_len": 16}}
        glassformer.train("translate", out=folder / name, seed=seed, **common)
    return {name: folder / name for name in others}


def test_runs_answer_together_whatever_their_sizes(trained):
    run, alone = glassformer.load(trained["a"], trained["b"], trained["wide"]), glassformer.load(trained["a"])
    assert isinstance(run.model, Ensemble) and len(run.model.members) == 3
    assert run.path == trained["a"] and run.joined == (trained["b"], trained["wide"])
    assert alone.joined == () and not isinstance(alone.model, Ensemble)
    assert run.predict("one red")["score"] != alone.predict("one red")["score"]
    assert "joined" not in alone.evaluate()


def test_commands_take_runs_apart_by_commas(trained, cli):
    together = f"{trained['a']},{trained['b']}"
    scores = cli("evaluate", together, "--json").ok.json
    assert scores["joined"] == together.split(",") and scores["n"] == 54
    assert f"{trained['a']}, {trained['b']}" in cli("evaluate", together).ok.out
    expected = glassformer.load(trained["a"], trained["b"]).predict("one red")
    assert cli("predict", together, "one red", "--json").json == expected | {"precision": "fp32"}
    nowhere = f"{trained['a']},{trained['a'].parent / 'nowhere'}"
    cli("evaluate", nowhere).refused("nowhere does not exist", code=CheckpointError.exit_code)


def test_what_cannot_join_is_refused_and_an_explanation_looks_into_one(trained):
    a, b, other = trained["a"], trained["b"], trained["other"]
    for call, message in (
        (lambda: glassformer.load(a, other), "its tokenizer is another"),
        (lambda: glassformer.load(a, b, a.parent / "b"), "named twice"),
        (lambda: glassformer.load(a, b).explain("one red"), "looks into one"),
    ):
        with pytest.raises(UsageError, match=message):
            call()
