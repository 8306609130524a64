"""The vectors of a run are those that its head reads, in the order of the texts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.helpers.tiny_runs import Runs

import glassformer
from glassformer.errors import UsageError
from glassformer.models.ensemble import members_of
from glassformer.tasks.base import pooled_vectors

TEXTS = ["a good film", "bad", "a film, number 7, which goes on and on and on", "", "good good good"]


def test_the_head_makes_the_run_s_answers_of_them(runs: Runs) -> None:
    run = glassformer.load(runs.classify, device="cpu")
    found = pooled_vectors(run.task, run.model, TEXTS)
    members = members_of(run.model)
    halves = np.split(found, len(members), axis=1)
    probabilities = [
        member.head(torch.from_numpy(half)).sigmoid()[:, 0].tolist() if member.head.out_features == 1 else []  # pyright: ignore
        for member, half in zip(members, halves, strict=True)
    ]
    expected = [row["probabilities"][run.task.label_names[1]] for row in run.predict(TEXTS)]  # pyright: ignore
    assert np.mean(probabilities, axis=0).tolist() == pytest.approx(expected, abs=1e-5)


def test_a_text_alone_has_the_same_vector(runs: Runs) -> None:
    run = glassformer.load(runs.classify, device="cpu")
    together = pooled_vectors(run.task, run.model, TEXTS)
    alone = [pooled_vectors(run.task, run.model, [text])[0] for text in TEXTS]
    assert together == pytest.approx(np.stack(alone), abs=1e-5)


def test_a_translator_pools_nothing(runs: Runs) -> None:
    run = glassformer.load(runs.translate, device="cpu")
    with pytest.raises(UsageError, match="gives no vector"):
        pooled_vectors(run.task, run.model, TEXTS)
