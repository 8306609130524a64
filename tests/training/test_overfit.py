"""Learning one batch by heart: whatever holds a model back from it is off."""

from __future__ import annotations

import pytest
from tests.helpers.small import small

from glassformer.config import AdamWConfig, MuonConfig, SGDConfig
from glassformer.training import finalize
from glassformer.training.state import RunContext

SECTIONS = {
    "adamw": {"adamw": AdamWConfig(weight_decay=0.3)},
    "adam": {},
    "sgd": {"sgd": SGDConfig(weight_decay=0.3)},
    "muon": {"muon": MuonConfig(weight_decay=0.3)},
}


@pytest.mark.parametrize("optimizer", SECTIONS)
def test_overfit_batch_has_no_weight_decay(optimizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    decays, configs = [], []

    def updated(state: finalize.TrainState, run: RunContext, *_: object) -> tuple[float, float]:
        decays.extend(group["weight_decay"] for group in state.optimizer.param_groups)
        configs.append((run.config, run.task.config))
        return 0.0, 0.0

    monkeypatch.setattr(finalize, "optimizer_step", updated)
    given = small("classify", optimizer=optimizer, label_smoothing=0.1, **SECTIONS[optimizer])
    assert finalize.overfit_batch(given.context) == 0.0
    assert decays and not any(decays)
    [(of_run, of_task)] = configs
    assert of_run == of_task and of_run.train.label_smoothing == 0.0
