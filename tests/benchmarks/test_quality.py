"""Time to quality: when a curve ends, what its row says, and that a peer is scored on every character once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.speed import quality
from benchmarks.speed.options import read_options
from benchmarks.speed.peers.nanogpt import NanoGPTCurve
from benchmarks.speed.quality import COLUMNS, GOALS, Contender, Goal, draw_curves, measure
from benchmarks.speed.table import Section
from benchmarks.speed.workloads import Workload

from glassformer.data.batches import overlapping_windows

DOWN = Goal("shakespeare", 10, "loss", 1.6, False, 5.0, "down", "nats")
UP = Goal("multi30k-en-de", 10, "bleu", 30.0, True, 5.0, "up", "BLEU")


class FakeChild:
    """A peer whose scores are given; each request takes five seconds."""

    scores: list[float]
    finished_after = 99

    def __init__(self, *_: object) -> None:
        self.n = 0

    def __enter__(self) -> FakeChild:
        return self

    def __exit__(self, *_: object) -> None: ...

    def answer(self) -> dict[str, Any]:
        return {"preparing": 1.0}

    def request(self, seconds: float) -> dict[str, Any]:
        score, self.n = self.scores[self.n], self.n + 1
        return {
            "seconds": 5.0 * self.n,
            "steps": 10 * self.n,
            "finished": self.n >= self.finished_after,
            "score": score,
        }


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeChild]]:
    class Child(FakeChild): ...

    monkeypatch.setattr(quality, "Child", Child)
    yield Child


@pytest.mark.parametrize(
    ("goal", "scores", "limit", "seconds", "cells"),
    [
        (DOWN, [2.0, 1.6, 1.5], math.inf, 10.0, ["10.0", "0.50", "20"]),
        (UP, [10.0, 29.9, 30.0], math.inf, 15.0, ["15.0", "0.75", "30"]),
        (UP, [10.0, 20.0, 30.0], 10.0, None, ["> 10.0", "> 0.50", "20"]),
    ],
)
def test_a_curve_ends_at_the_score_or_at_the_limit(
    goal: Goal, scores: list[float], limit: float, seconds: float | None, cells: list[str], fake: type[FakeChild]
) -> None:
    fake.scores, section = scores, Section("", COLUMNS)
    options = read_options(["--anyway"])
    found = measure(goal, options, section, Contender("peer", "ours", {}), limit, None, ours=20.0)
    assert found == seconds and section.rows[0][2:5] == cells
    assert [point["score"] for point in section.facts[0]["curve"]] == scores[: len(section.facts[0]["curve"])]


def test_a_schedule_that_ends_too_early_has_not_reached_it(fake: type[FakeChild]) -> None:
    fake.scores, fake.finished_after, section = [2.0, 1.7], 2, Section("", COLUMNS)
    ours = Contender("ours", "ours", {})
    found = measure(DOWN, read_options(["--anyway"]), section, ours, math.inf, None)
    assert found is None and section.rows[0][2] == "> 10.0"


def test_a_peer_learns_and_is_scored_on_every_character_but_the_first(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    text = rng.permutation(12)[np.arange(600) % 12]
    windows = np.concatenate(list(overlapping_windows(100, 16, 64)))
    np.savez(tmp_path / "text.npz", train=text, valid=text[:100], windows=windows)
    workload = Workload("i", "", "lm", 16, 1, 2, 12, 16, 128, 0, dropout=0.0)
    spec = {"workload": asdict(workload), "data": str(tmp_path / "text.npz"), "rows": 8, "horizon": 10.0, "seed": 1}
    peer = NanoGPTCurve(spec | quality.NANOGPT | {"lr": 1e-2, "precision": "fp32"})
    assert sum(stop - max(start + 1, first) + 1 for start, stop, first in windows) == 99
    before = peer.score()["score"]
    assert before == pytest.approx(math.log(12), abs=0.2)
    for _ in range(60):
        assert peer.step(0.0)
    assert peer.score()["score"] < 0.5 * before
    assert peer.lr(0.0) == pytest.approx(0.61 * 1e-2) and peer.lr(10.0) == pytest.approx(0.1 * 1e-2)


def test_curves_are_drawn(tmp_path: Path) -> None:
    curve = [{"seconds": 5.0, "score": 20.0}, {"seconds": 10.0, "score": 30.0}]
    facts = [{"goal": asdict(goal), "peer": name, "curve": curve} for goal in GOALS for name in ("a", "b")]
    draw_curves(facts, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 10_000
