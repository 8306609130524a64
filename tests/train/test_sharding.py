"""A model cut into shards trains as one in whole copies, and its state is that of one process."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.small import config_of, small
from tests.together import keep_and_load, together, train

from glassformer.errors import UsageError
from glassformer.ranks import ALONE
from glassformer.recipes import check_config
from glassformer.sharding import is_cut, lent, like, whole, without_weights

from .test_ranks import near


def test_a_whole_tensor_is_left_as_it_is() -> None:
    tensor = torch.ones(2)
    assert not is_cut(tensor) and whole(tensor) is tensor and like(tensor, torch.zeros(2)) is tensor


def test_a_model_without_weights_computes_with_what_it_is_lent() -> None:
    run = small("translate")
    model = run.task.build_model()
    weights = {name: p.detach() for name, p in model.named_parameters()}
    asked, batch = without_weights(model), run.batch(run.batches()[0])
    assert all(p.untyped_storage().nbytes() == p.element_size() for p in asked.parameters())
    with lent(asked, weights):
        assert torch.equal(run.task.logits(asked.eval(), batch), run.task.logits(model.eval(), batch))
        held = {p.data_ptr() for p in asked.parameters()}
        assert held == {t.data_ptr() for t in weights.values()}, "nothing is copied"
    assert not any(p.any() for p in asked.parameters())


def test_what_shards_cannot_do_is_said() -> None:
    with pytest.raises(UsageError, match=r"muon turns whole matrices"):
        check_config(config_of("classify", shard=True, optimizer="muon"))


def test_shards_train_the_run_of_one_process_and_know_nothing_of_their_number() -> None:
    settings = {"accumulate": 3, "epochs": 1, "shard": True}
    first, second = together(2, train, "classify", 4, 30, settings)
    assert first == second, "gathered, all have the same"
    near(first, train(ALONE, "classify", 4, 30, settings))


@pytest.mark.slow
@pytest.mark.parametrize("task", ["classify", "translate", "lm"])
def test_shards_train_the_curve_of_whole_copies(task: str) -> None:
    settings = {"epochs": 40}
    copies = together(2, train, task, 50, 60, settings)[0]
    assert len(copies["loss"]) == 50 and copies["valid"]
    for size in (2, 3):
        found = together(size, train, task, 50, 60, {**settings, "shard": True})
        assert all(other == found[0] for other in found)
        near(found[0], copies)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("classify", {"r_drop": 1.0}),
        ("classify", {"optimizer": "sgd"}),
        ("translate", {"optimizer": "adam", "label_smoothing": 0.1, "accumulate": 2}),
        ("classify", {"members": 2}),
    ],
    ids=str,
)
def test_objectives_optimizers_and_ensembles_go_with_shards(task: str, settings: dict) -> None:
    alone = train(ALONE, task, 8, 40, settings)
    found = together(2, train, task, 8, 40, settings | {"shard": True})
    assert found[0] == found[1]
    near(found[0], alone)


@pytest.mark.slow
def test_a_state_kept_by_two_is_that_of_one_and_loads_in_one_and_in_three(tmp_path: Path) -> None:
    alone = keep_and_load(ALONE, "lm", str(tmp_path / "one"), "")
    kept = together(2, keep_and_load, "lm", str(tmp_path / "two"), "")
    assert kept[0] == kept[1] and kept[0]["after"] == pytest.approx(alone["after"], rel=1e-5)
    for size in (1, 3):
        folder = str(tmp_path / "two")
        found = (
            together(size, keep_and_load, "lm", "", folder)
            if size > 1
            else [keep_and_load(ALONE, "lm", "", folder)]
        )
        for one in found:
            assert one["loaded"] == kept[0]["kept"], "to the byte"
            assert one["after"] == pytest.approx(kept[0]["after"], rel=1e-5)
