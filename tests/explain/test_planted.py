"""Tests of attributions on a planted shortcut: in texts of random words, only one word determines the label.

A method that finds it in a trained model, and whose ranking changes with the weights, explains the model and not the
text (Adebayo et al. 2018).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import torch
from tests.helpers.for_each import for_each
from tests.helpers.inference import Subject, infer
from tests.helpers.small import data_of, small

from glassformer.explain.attribution import AttributeRequest, integrated_gradients, leave_one_out, make_value_function
from glassformer.explain.explanation import Explanation

N_TEXTS = 50
PLANTED = ("bad", "good")


@cache
def trained() -> Subject:
    """Return a classifier of "… good …" against "… bad …" that is almost always right."""
    s = small("classify", 200, epochs=10, word_mask_prob=0.1)
    state = s.new_state()
    s.run(state)
    return Subject(s.task, state.model.eval())


@cache
def random() -> Subject:
    """Return the same classifier with random weights."""
    torch.manual_seed(5)
    return replace(trained(), model=trained().task.build_model().eval())


def about(subject: Subject) -> list[Explanation]:
    """Return inferences for texts that were not trained on."""
    return [infer(subject, text) for text in data_of("classify", N_TEXTS, seed=9).train.text]


@cache
def scored(method: str, subject: Subject) -> list[tuple[list[str], np.ndarray]]:
    """Return words and their scores for "good" against "bad"."""
    results = []
    for e in about(subject):
        value_fn = make_value_function(e, AttributeRequest(target=1))
        scores = leave_one_out(value_fn) if method == "erase" else integrated_gradients(value_fn)[0]
        results.append((e.streams[0].pieces, scores))
    return results


@for_each("method", ["erase", "integrated_gradients"])
def test_attribution_finds_the_planted_word(method: str) -> None:
    """It has the right sign: "good" is positive, "bad" is negative."""
    results = [
        pieces[int(np.abs(scores).argmax())] == PLANTED[int(scores[np.abs(scores).argmax()] > 0)]
        for pieces, scores in scored(method, trained())
    ]
    assert np.mean(results) > 0.95


@for_each("method", ["erase", "integrated_gradients"])
def test_attribution_depends_on_the_weights(method: str) -> None:
    """Scores of trained and random weights are uncorrelated, and random weights rarely favour the planted word."""
    pairs = list(zip(scored(method, trained()), scored(method, random()), strict=True))
    ranks = [[np.abs(scores).argsort().argsort() for _, scores in pair] for pair in pairs]
    assert abs(np.mean([np.corrcoef(*pair)[0, 1] for pair in ranks])) < 0.3
    results = [pieces[int(np.abs(scores).argmax())] in PLANTED for pieces, scores in scored(method, random())]
    assert np.mean(results) < 0.5
