"""Explain small tasks with random models, whose predictions depend strongly on their input."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.helpers.small import config_of, data_of, random_run

from glassformer.explain.explanation import Explanation, TraceRequest, explain
from glassformer.explain.subject import Subject
from glassformer.run import Run


def untrained(name: str, word_mask_prob: float = 0.1, **model: Any) -> Run:
    """Return a task on synthetic data with a random model whose predictions depend strongly on its input."""
    config = config_of(name, word_mask_prob=word_mask_prob)
    return random_run(replace(config, model=replace(config.model, **({"dropout": 0.0} | model))), data_of(name))


def infer(subject: Subject, text: str, target: str = "") -> Explanation:
    """Return the explanation of a text: of a translator with this target, of a language model with one token more."""
    name = subject.task.name
    decode = {"max_new_tokens": 1} if name == "lm" else {}
    return explain(subject, TraceRequest(text, target=target if name == "translate" else None, decode=decode))
