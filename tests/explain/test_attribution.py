"""Attributions: scores sum to the change, equal direct evaluations and Captum's, and warn of their limits."""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from tests.browser.models import subject_of
from tests.helpers.for_each import for_each
from tests.helpers.ngram_runs import ngram_run
from torch import Tensor

from glassformer.errors import UsageError
from glassformer.explain import attribution as module
from glassformer.explain.attribution import (
    AttributeRequest,
    attribute,
    erase,
    integrated_gradients,
    make_value_function,
)
from glassformer.explain.explanation import Explanation, TraceRequest, explain
from glassformer.run import Run

TASKS = ["classify", "translate", "lm"]
METHODS = ["erase", "integrated_gradients"]


def infer(run: Run, text: str, target: str = "") -> Explanation:
    """Return the explanation of a text: of a translator with this target, of a language model with one token more."""
    decode = {"max_new_tokens": 1} if run.task.name == "lm" else {}
    return explain(run, TraceRequest(text, target=target if run.task.name == "translate" else None, decode=decode))


SPELLED: dict[str, tuple[Callable[..., Run], str]] = {
    "ngrams": (ngram_run, "refunds xyzzy card"),
    "unmasked ngrams": (partial(ngram_run, word_mask_prob=0.0), "refunds xyzzy card"),
    "bigrams": (partial(ngram_run, bigrams=40), "card cards card lost xyzzy card"),
    "hashed ngrams": (lambda **model: subject_of(("lm", {"max_ngram": 4} | model)), "ab cd e"),
}
"""Models whose embedding of a token is also that of its n-grams."""


def example(name: str, **model: Any) -> Explanation:
    """Return an explanation for a text of each task, and of models with n-grams."""
    if name in SPELLED:
        made, text = SPELLED[name]
        return infer(made(**model), text)
    text = {"classify": "a b c good d e f", "translate": "abcdef", "lm": "ab cd e fg a", "pretrain": "ab [MASK] cd e"}
    return infer(subject_of((name, model)), text[name], "fedcba")


def last(explanation: Explanation) -> int:
    return max(0, len(explanation.predictions) - 2)


def quantity(explanation: Explanation, erased: dict[str, list[int]], request: AttributeRequest) -> float:
    """Return the explained quantity: replace the ids and call the whole model once."""
    subject, inputs = explanation.subject, copy.deepcopy(explanation.model_inputs)
    names = {"text": "ids", "source": "src", "target": "tgt_in"}
    for stream, positions in erased.items():
        inputs[names[stream]][0, positions] = module.erase_id(subject.task)
        if "ngram_batch" in inputs:
            inputs["ngram_batch"].index[0, positions] = 0
    with torch.inference_mode():
        logits = subject.model(**inputs)[0].double()
    if subject.task.name == "classify":
        first, second = (explanation.predictions[0].top[i].id for i in (0, 1))
        return float(logits[first] - logits[second])
    i = request.prediction
    assert i is not None
    row, predicted = logits[i], explanation.predictions[i]
    target = (predicted.actual or predicted.top[0]).id
    return float(row.log_softmax(-1)[target]) if request.foil is None else float(row[target] - row[request.foil])


@for_each("name", [*TASKS, "pretrain", *SPELLED])
def test_erase_scores_equal_the_drops_without_each_word(name: str) -> None:
    e = example(name)
    request = AttributeRequest(method="erase", prediction=e.generated[0] if name == "pretrain" else last(e))
    result = attribute(e, request)
    assert result.value == pytest.approx(quantity(e, {}, request), abs=1e-5)
    seen = 0
    for stream in e.streams:
        whole = stream is not e.streams[-1] or e.run.task.name in ("classify", "pretrain")
        end = len(stream) if whole else last(e) + 1  # what a prediction reads
        for word in range(len(stream.word_texts)):
            here = [i for i, w in enumerate(stream.words) if w == word and i < end]
            fall = result.value - quantity(e, {stream.name: here}, request)
            assert sum(result.scores[stream.name][i] for i in here) == pytest.approx(fall, abs=1e-5)
            seen += len(here) > 0
        assert all(result.scores[stream.name][i] == 0 for i, s in enumerate(stream.special) if s)
        assert not any(result.scores[stream.name][end:])
    alone = module.erase_words(e, request.prediction)
    assert len({one.value for _, one in alone}) == len(alone) == seen >= 2
    for positions, one in alone:
        assert (one.value, one.original) == pytest.approx((quantity(e, positions, request), result.value), abs=1e-5)
    everything = {s.name: [i for i, w in enumerate(s.words) if w >= 0] for s in e.streams}
    assert result.baseline_value == pytest.approx(quantity(e, everything, request), abs=1e-5)
    together = erase(e, replace(request, erase=everything))  # what follows the prediction changes nothing
    assert (together.value, together.original) == pytest.approx((result.baseline_value, result.value), abs=1e-5)
    for one in (together, *(one for _, one in alone)):
        found = one.prediction
        assert all(c.log_prob == pytest.approx(c.logit - found.logsumexp, abs=1e-5) for c in found.top)
        assert sum(np.exp(c.log_prob) for c in found.top) == pytest.approx(1.0, abs=1e-4)  # the vocabulary is smaller
        if found.actual is not None:
            assert found.actual.log_prob == pytest.approx(one.value, abs=1e-5)
            assert [c.id for c in found.top].index(found.actual.id) == found.rank


@for_each("method", METHODS)
@for_each("name", TASKS)
def test_the_least_certain_token_is_explained_or_any_by_its_index(name: str, method: Any) -> None:
    e = explain(subject_of((name, {})), TraceRequest("a b c"))
    stream, predictions = e.streams[-1], e.predictions
    least = min(e.answered, key=lambda i: (predictions[i].actual or predictions[i].top[0]).log_prob)
    default = e.attribute(method)
    assert default.prediction == least
    assert default.target.id == (predictions[least].actual or predictions[least].top[0]).id
    assert len(repr(default)) <= 300 and f"prediction {least}, " in repr(default)
    assert {n: len(scores) for n, scores in default.scores.items()} == {s.name: len(s) for s in e.streams}
    if name != "classify":
        first = stream.n_given - 1
        result, later = (e.attribute(method, prediction=i) for i in (first, first + 2))
        assert result.target.id == stream.ids[first + 1] and not any(result.scores[stream.name][first + 1 :])
        assert result.value == pytest.approx(predictions[first].actual.log_prob, abs=1e-4)
        assert later.target.id == stream.ids[first + 3] and later.scores[stream.name][first + 2] != 0


@for_each("model", [{"pre_norm": True}, {"pre_norm": False, "positions": "rotary"}])
@for_each("name", [*TASKS, "pretrain", *SPELLED])
def test_integrated_gradients_sum_to_the_change(name: str, model: dict[str, Any]) -> None:
    """Explain the prediction, or of three texts the one, that erasing everything changes most."""
    first = example(name, **model)
    texts = ("a b c good d e f", "bad a a", "g f e d c good")
    choices = [(first, i) for i in range(len(first.predictions) - 1)]
    choices = choices or [(infer(first.subject, text), 0) for text in texts]

    def change(choice: tuple[Explanation, int]) -> float:
        start, end = make_value_function(choice[0], AttributeRequest(prediction=choice[1])).baseline_and_value()
        return abs(end - start)

    e, i = max(choices, key=change)
    result = attribute(e, AttributeRequest(method="integrated_gradients", prediction=i))
    assert result.completeness is not None and result.completeness.ok
    whole = result.value - result.baseline_value
    error = abs(sum(sum(scores) for scores in result.scores.values()) - whole)
    assert error == pytest.approx(result.completeness.relative * abs(whole), abs=1e-4)
    assert error <= 0.02 * abs(whole) + 1e-4
    assert all(len(result.scores[s.name]) == len(s) for s in e.streams)
    assert any(result.scores[e.streams[0].name])


def test_integrated_gradients_report_too_few_steps() -> None:
    """Eight steps are too few for a path as curved as this one."""
    e = example("translate", n_layers=2, pre_norm=False)
    value_fn = make_value_function(e, AttributeRequest(prediction=3))
    scores, completeness = integrated_gradients(value_fn, min_steps=8, max_steps=8)
    start, end = value_fn.baseline_and_value()
    error = abs(scores.sum() - (end - start))
    assert completeness.relative == pytest.approx(error / abs(end - start), abs=1e-5)
    assert completeness.n_steps == 8 and not completeness.ok and completeness.relative > 0.02
    _, better = integrated_gradients(value_fn, min_steps=8)
    assert 8 < better.n_steps <= 1024 and better.relative < completeness.relative / 10


def test_integrated_gradients_report_errors_that_cancel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scores of two tokens change abruptly, one up and one down, so that their sum does not change."""
    value_fn = make_value_function(infer(subject_of(("classify", {})), "a b"), AttributeRequest())

    def along(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        peak = np.exp(-(((points - 0.37) / 0.01) ** 2))
        return np.zeros_like(points), np.stack([peak, -peak], axis=1)

    monkeypatch.setattr(module, "path", lambda value_fn: along)
    scores, completeness = integrated_gradients(value_fn)
    assert completeness.ok and abs(scores.sum()) < 1e-12
    assert abs(scores[0] - 0.01 * math.sqrt(math.pi)) > 0.002, "the score is wrong"
    assert completeness.token_error > 0.002, "and that is reported"


def test_a_token_is_contrasted_with_a_foil_and_a_class_with_the_second_best() -> None:
    e = example("translate")
    i = last(e)
    foil = next(c.id for c in e.predictions[i].top if c.id != e.predictions[i].actual.id)
    request = AttributeRequest(prediction=i, foil=foil)
    result = attribute(e, request)
    assert result.foil is not None and result.foil.id == foil
    assert result.value == pytest.approx(result.target.log_prob - result.foil.log_prob, abs=1e-5)
    assert result.value == pytest.approx(quantity(e, {}, request), abs=1e-5)
    assert result.quantity.startswith("log p of ") and " minus log p of " in result.quantity
    e = example("classify")
    result, names = attribute(e), e.subject.task.label_names or []
    first, second = (c.id for c in e.predictions[0].top)
    assert result.quantity == f"logit of {names[first]} minus logit of {names[second]}"
    assert result.foil is not None and result.value > 0
    assert result.value == pytest.approx(result.target.logit - result.foil.logit)
    other = attribute(e, AttributeRequest(target=second))
    assert other.foil is not None and other.foil.id == first
    assert np.allclose(other.scores["text"], -np.array(result.scores["text"]), atol=1e-6)


@for_each(
    ("request_", "words"),
    [
        ({"erase": {"source": [99]}}, "erase.source: there is no token to erase at position 99"),
        ({"erase": {"target": [0]}}, "erase.target: there is no token to erase at position 0"),
        ({"erase": {"text": [0]}}, "erase.text: there is no token to erase at position 0"),
        ({"erase": {"sauce": [0]}}, "sauce"),
        ({"erase": [1]}, "must be a table, each key one of text, source, target"),
        ({"erase": {}, "prediction": 99}, "99"),
        ({"erase": {}, "target": 10**6}, "target"),
        ({"erase": {}, "target": 7, "foil": 7}, "7"),
        ({"erase": {}, "why": 1}, "why"),
    ],
)
def test_erase_rejects_invalid_requests(request_: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as error:
        erase(example("translate"), AttributeRequest.from_dict(request_))
    assert words in error.value.message


def test_faithfulness_of_the_best_ranking_beats_random() -> None:
    """Of a model that sums known weights, ranking by these weights is best, and the reverse is worst."""
    e = infer(subject_of(("classify", {})), "a b c d e f g a b c d e f g a b c d e f")
    value_fn = make_value_function(e, AttributeRequest())
    weights = np.linspace(-1, 2, value_fn.n_words)

    class Sum(type(value_fn)):
        def values(self, words: np.ndarray) -> np.ndarray:
            return (~words * weights).sum(axis=1)

    known = Sum(**{name: getattr(value_fn, name) for name in value_fn.__dataclass_fields__})
    random = module.random_mean_drops(known)
    assert value_fn.n_words == 20 and len(random) == 200
    best = np.sort(weights)[::-1]
    comprehensiveness, sufficiency = module.faithfulness(known, weights, random)
    assert comprehensiveness.value == pytest.approx(np.mean([best[:k].sum() for k in (2, 4, 10)]))
    assert sufficiency.value == pytest.approx(np.mean([best[k:].sum() for k in (2, 4, 10)]))
    assert comprehensiveness.beats_random and sufficiency.beats_random
    assert not any(worst.beats_random for worst in module.faithfulness(known, -weights, random))
    # The mean drop of a random ranking is that of a random set: the sizes are 2, 4 and 10 of 20 words.
    expected = weights.sum() * np.mean([2, 4, 10]) / 20
    assert random[:, 0].mean() == pytest.approx(expected, abs=3 * random[:, 0].std() / np.sqrt(200))
    low, high = comprehensiveness.random_low, comprehensiveness.random_high
    assert 0.94 <= np.mean((random[:, 0] >= low) & (random[:, 0] <= high)) <= 0.96


def test_faithfulness_of_no_word_one_word_and_a_long_text() -> None:
    e = infer(subject_of(("translate", {})), "", "ab")
    for method in METHODS:
        result = attribute(e, AttributeRequest(method=method, prediction=0))
        assert result.scores == {"source": [0.0], "target": [0.0, 0.0, 0.0]}
        assert result.warnings == ["there is no word to erase"]
        assert not result.comprehensiveness.beats_random and result.value == result.baseline_value
    value_fn = make_value_function(infer(subject_of(("classify", {})), "good"), AttributeRequest())
    start, end = value_fn.baseline_and_value()
    assert module.mean_drops(value_fn, np.array([[0]])) == pytest.approx(np.array([[end - start, 0.0]]))
    assert len(module.random_mean_drops(value_fn)) == 200
    assert len(module.random_mean_drops(replace(value_fn, words={"text": np.full(1000, -1)}))) == 100


def test_the_model_is_as_before_and_other_threads_run_it_as_usual() -> None:
    """While one thread replaces embeddings and stops early, another runs the whole model."""
    e = example("translate", dropout=0.5)
    model = e.subject.model.train()
    first, second = (attribute(e, AttributeRequest(method="integrated_gradients")) for _ in range(2))
    assert model.training and first.scores == second.scores
    assert not any(m._forward_hooks for m in model.modules())
    assert all(p.grad is None for p in model.parameters())
    value_fn = make_value_function(e, AttributeRequest(prediction=1))
    rows = [torch.zeros(1, len(words), 16) for words in value_fn.words.values()]
    model.eval()
    with ThreadPoolExecutor(1) as pool, torch.no_grad():
        expected = model(**e.model_inputs)
        seen, this_thread = [], threading.get_ident()

        def meanwhile(*_: Any) -> None:
            # Called by the forward passes of both threads; in this one all hooks are in place.
            if threading.get_ident() == this_thread:
                seen.append(pool.submit(lambda: model(**e.model_inputs)).result())

        handle = model.encoder.register_forward_hook(meanwhile)
        changed = value_fn.logits(value_fn.inputs, rows)
        handle.remove()
        assert torch.equal(seen[0], expected)
        assert not torch.allclose(changed[0], expected[0, 1])


@for_each(
    ("n_words", "message"),
    [(1, "only 1 word can"), (2, "only 2 words"), (5, "2 of the 3 parts"), (10, "1 of the 3 parts"), (11, "")],
)
def test_a_short_text_has_a_warning(n_words: int, message: str) -> None:
    e = infer(subject_of(("classify", {})), " ".join("abcdefghijk"[:n_words]))
    of_erase, of_gradients = (attribute(e, AttributeRequest(method=method)).warnings for method in METHODS)
    assert not any("of the 3 parts" in one for one in of_gradients)
    assert any(message in one if message else "of the 3 parts" in one or "only" in one for one in of_erase) == bool(
        message
    )


def test_what_erases_a_word_is_named_and_of_a_model_without_word_masking_warned_of() -> None:
    masked, unmasked = (ngram_run(word_mask_prob=p).explain("lost card").attribute() for p in (0.1, 0.0))
    assert (masked.erased_with, unmasked.erased_with) == ("[MASK]", "[UNK]")
    assert not any("masking" in one for one in masked.warnings)
    assert any("word masking" in one for one in unmasked.warnings)


@pytest.mark.filterwarnings("ignore:Multiple layers provided:UserWarning")
@for_each(
    ("name", "text", "prediction", "foil", "model"),
    [
        ("classify", "a b c good d e f", 0, None, {"positions": "sinusoidal", "pooling": "mean", "activation": "gelu"}),
        ("classify", "a b c good d e f", 0, None, {"positions": "learned", "pooling": "first", "activation": "gelu"}),
        ("classify", "a b c good d e f", 0, None, {"positions": "rotary", "pooling": "mean", "activation": "gelu"}),
        ("translate", "abcdef", 4, None, {"pre_norm": True, "activation": "gelu"}),
        ("translate", "abcdef", 4, 8, {"pre_norm": False, "activation": "gelu"}),
        ("lm", "ab cd e fg", 7, None, {"activation": "swiglu", "norm": "rms"}),
    ],
)
def test_integrated_gradients_equal_captum(name: str, text: str, prediction: int, foil: int | None, model: Any) -> None:
    from captum.attr import LayerIntegratedGradients

    subject = subject_of((name, {"tie_embeddings": False} | model))
    subject.model.double()
    explanation = infer(subject, text, "fedcba")
    value_fn = make_value_function(explanation, AttributeRequest(prediction=prediction, foil=foil))
    ours, completeness = integrated_gradients(value_fn, tolerance=1e-4)
    assert completeness.relative < 1e-3
    inputs = explanation.model_inputs
    mask = inputs.get("padding_mask", inputs.get("src_padding_mask"))

    def quantity(*ids: Tensor) -> Tensor:
        masks = [] if mask is None else [mask.expand(len(ids[0]), -1)]
        logits = subject.model(*ids, *masks)
        if logits.ndim == 3:
            logits = logits[:, value_fn.position]
        if value_fn.measure.foil is not None:
            return logits[:, value_fn.measure.ids[0]] - logits[:, value_fn.measure.foil]
        return logits.log_softmax(dim=-1)[:, value_fn.measure.ids[0]]

    nothing = value_fn.erased(value_fn.tokens_of(np.ones((1, value_fn.n_words), dtype=bool)))
    given, erased = (
        tuple(x[name] for name in ("ids", "src", "tgt_in") if name in x) for x in (value_fn.inputs, nothing)
    )
    theirs = LayerIntegratedGradients(quantity, [*value_fn.embeddings]).attribute(
        given, erased, n_steps=600, method="gausslegendre", internal_batch_size=200
    )
    for stream, of_stream in zip(value_fn.words, theirs, strict=True):
        expected = of_stream.sum(dim=-1)[0].detach().numpy()
        assert np.abs(expected).max() > 1e-2
        assert np.abs(np.array(value_fn.by_stream(ours)[stream]) - expected).max() < 1e-3


def test_integrated_gradients_of_tied_embeddings_equal_separate_ones() -> None:
    """Captum does not support tied embeddings; they must score as untied ones with equal weights."""
    tied, apart = (subject_of(("translate", {"tie_embeddings": tie})) for tie in (True, False))
    weights = tied.model.state_dict()
    apart.model.load_state_dict({n: weights.get(n, weights["tgt_embedding.weight"]) for n in apart.model.state_dict()})
    value_fn, untied = (
        make_value_function(infer(subject, "abcdef", "fedcba"), AttributeRequest(prediction=4))
        for subject in (tied, apart)
    )
    assert value_fn.embeddings[0].weight is value_fn.embeddings[1].weight
    assert untied.embeddings[0].weight is not untied.embeddings[1].weight
    assert np.allclose(integrated_gradients(value_fn)[0], integrated_gradients(untied)[0], atol=1e-4)
