"""Compare integrated gradients with Captum's, on models that Captum supports: one embedding per stream."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.helpers.for_each import for_each
from tests.helpers.inference import infer, untrained
from torch import Tensor

from glassformer.explain.attribution import AttributeRequest, integrated_gradients, make_value_function

pytestmark = pytest.mark.filterwarnings("ignore:Multiple layers provided:UserWarning")

CASES: list[tuple[str, str, int, int | None, dict[str, Any]]] = [
    *(
        ("classify", "a b c good d e f", 0, None, {"positions": positions, "pooling": pooling, "activation": "gelu"})
        for positions, pooling in (("sinusoidal", "mean"), ("learned", "first"), ("rotary", "mean"))
    ),
    ("translate", "abcdef", 4, None, {"pre_norm": True, "activation": "gelu"}),
    ("translate", "abcdef", 4, 8, {"pre_norm": False, "activation": "gelu"}),
    ("lm", "ab cd e fg", 7, None, {"activation": "swiglu", "norm": "rms"}),
]


@for_each(("name", "text", "prediction", "foil", "model"), CASES)
def test_integrated_gradients_equal_captum(name: str, text: str, prediction: int, foil: int | None, model: Any) -> None:
    from captum.attr import LayerIntegratedGradients

    subject = untrained(name, tie_embeddings=False, **model)
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
    ids, erased = (tuple(x[n] for n in ("ids", "src", "tgt_in") if n in x) for x in (value_fn.inputs, nothing))
    several = len(erased) > 1
    theirs = LayerIntegratedGradients(
        quantity, [*value_fn.embeddings] if several else value_fn.embeddings[0]
    ).attribute(
        ids if several else ids[0],
        erased if several else erased[0],
        n_steps=600,
        method="gausslegendre",
        internal_batch_size=200,
    )
    for stream, of_stream in zip(value_fn.words, theirs if several else [theirs], strict=True):
        expected = of_stream.sum(dim=-1)[0].detach().numpy()
        assert np.abs(expected).max() > 1e-2
        assert np.abs(np.array(value_fn.by_stream(ours)[stream]) - expected).max() < 1e-3


def test_integrated_gradients_of_tied_embeddings_equal_separate_ones() -> None:
    """Captum does not support tied embeddings; they must score as untied ones with equal weights."""
    tied, apart = untrained("translate"), untrained("translate", tie_embeddings=False)
    weights = tied.model.state_dict()
    apart.model.load_state_dict({n: weights.get(n, weights["tgt_embedding.weight"]) for n in apart.model.state_dict()})
    value_fn, untied = (
        make_value_function(infer(subject, "abcdef", "fedcba"), AttributeRequest(prediction=4))
        for subject in (tied, apart)
    )
    assert value_fn.embeddings[0].weight is value_fn.embeddings[1].weight
    assert untied.embeddings[0].weight is not untied.embeddings[1].weight
    assert np.allclose(integrated_gradients(value_fn)[0], integrated_gradients(untied)[0], atol=1e-4)
