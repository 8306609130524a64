"""Compare integrated gradients with Captum's, on models that Captum supports: one embedding per stream."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.helpers.for_each import for_each
from tests.helpers.inference import infer, untrained
from torch import Tensor

from glassformer.explain.attribution import AttributeRequest, integrated_gradients, make_value_function
from glassformer.explain.explanation import Explanation

pytestmark = pytest.mark.filterwarnings("ignore:Multiple layers provided:UserWarning")


def separate_embeddings(name: str, **model: Any) -> Any:
    """Return a subject with separate source and target embeddings, in double precision."""
    subject = untrained(name, tie_embeddings=False, **model)
    subject.model.double()
    return subject


def compare(explanation: Explanation, prediction: int, foil: int | None = None) -> None:
    from captum.attr import LayerIntegratedGradients

    value_fn = make_value_function(explanation, AttributeRequest(prediction=prediction, foil=foil))
    ours, completeness = integrated_gradients(value_fn, tolerance=1e-4)
    assert completeness.relative < 1e-3
    model, inputs = explanation.subject.model, explanation.model_inputs
    mask = inputs.get("padding_mask", inputs.get("src_padding_mask"))

    def quantity(*ids: Tensor) -> Tensor:
        masks = [] if mask is None else [mask.expand(len(ids[0]), -1)]
        logits = model(*ids, *masks)
        if logits.ndim == 3:
            logits = logits[:, value_fn.position]
        if value_fn.measure.foil is not None:
            return logits[:, value_fn.measure.ids[0]] - logits[:, value_fn.measure.foil]
        return logits.log_softmax(dim=-1)[:, value_fn.measure.ids[0]]

    nothing = value_fn.erased(value_fn.tokens_of(np.ones((1, value_fn.n_words), dtype=bool)))
    erased = [nothing[name] for name in ("ids", "src", "tgt_in") if name in nothing]
    layers = [*value_fn.embeddings]
    theirs = LayerIntegratedGradients(quantity, layers if len(layers) > 1 else layers[0]).attribute(
        tuple(value_fn.ids) if len(layers) > 1 else value_fn.ids[0],
        tuple(erased) if len(layers) > 1 else erased[0],
        n_steps=600,
        method="gausslegendre",
        internal_batch_size=200,
    )
    for name, of_stream in zip(value_fn.words, theirs if len(layers) > 1 else [theirs], strict=True):
        expected = of_stream.sum(dim=-1)[0].detach().numpy()
        assert np.abs(expected).max() > 1e-2
        assert np.abs(np.array(value_fn.by_stream(ours)[name]) - expected).max() < 1e-3


@for_each("positions", ["sinusoidal", "learned", "rotary"])
@for_each("pooling", ["mean", "first"])
def test_integrated_gradients_equal_captum_for_classifiers(positions: str, pooling: str) -> None:
    subject = separate_embeddings("classify", positions=positions, pooling=pooling, activation="gelu")
    compare(infer(subject, "a b c good d e f", n_pad=2), 0)


@for_each("foil", [None, 8])
@for_each("pre_norm", [True, False])
def test_integrated_gradients_equal_captum_for_translators(pre_norm: bool, foil: int | None) -> None:
    subject = separate_embeddings("translate", pre_norm=pre_norm, activation="gelu")
    compare(infer(subject, "abcdef", "fedcba", n_pad=1), 4, foil)


def test_integrated_gradients_equal_captum_for_language_models() -> None:
    subject = separate_embeddings("lm", activation="swiglu", norm="rms")
    compare(infer(subject, "ab cd e fg"), 7)


def test_integrated_gradients_of_tied_embeddings_equal_separate_ones() -> None:
    """Captum does not support tied embeddings; they must score as untied ones with equal weights."""
    tied = untrained("translate")
    apart = untrained("translate", tie_embeddings=False)
    weights = tied.model.state_dict()
    table = weights["tgt_embedding.weight"]
    for name, parameter in apart.model.named_parameters():
        with torch.no_grad():
            parameter.copy_(weights.get(name, table))
    value_fn, untied = (
        make_value_function(infer(subject, "abcdef", "fedcba"), AttributeRequest(prediction=4))
        for subject in (tied, apart)
    )
    first, second = integrated_gradients(value_fn)[0], integrated_gradients(untied)[0]
    assert value_fn.embeddings[0].weight is value_fn.embeddings[1].weight
    assert untied.embeddings[0].weight is not untied.embeddings[1].weight
    assert len(first) == len(second) and np.allclose(first, second, atol=1e-4)
