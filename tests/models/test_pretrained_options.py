"""The options of the modules that pretrained models need: defaults change nothing, and each computes what it says."""

from __future__ import annotations

import torch
from tests.helpers.copying import randomise
from tests.helpers.for_each import for_each
from tests.helpers.recompute import recompute
from torch import nn

from glassformer.config import ModelConfig
from glassformer.explain import trace
from glassformer.models import LanguageModel, MaskedLanguageModel, TextClassifier, Translator

SIZES = {"n_layers": 2, "d_model": 8, "n_heads": 2, "dropout": 0.0}
BERT = {
    "norm_eps": 1e-12,
    "embedding_norm": True,
    "n_segments": 2,
    "pooler": "tanh",
    "pre_norm": False,
    "positions": "learned",
    "activation": "gelu",
    "embedding_init_std": 1.0,
    "pooling": "first",
}
OPTIONS = [
    BERT,
    {"embedding_norm": True, "norm": "rms", "activation": "silu", "positions": "none"},
    {"pooler": "relu", "n_segments": 1, "positions": "rotary", "rope_base": 1e5, "activation": "gelu-tanh"},
]


def models_of(options: dict) -> list[nn.Module]:
    config = ModelConfig(**{**SIZES, **options})
    torch.manual_seed(0)
    made = [TextClassifier(config, 20, 3, 10), MaskedLanguageModel(config, 20, 10)]
    made += [LanguageModel(config, 20, 10), Translator(config, 20, 10)]
    return [model.eval() for model in made]


def outputs_of(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    return model(ids, ids.flip(1)) if isinstance(model, Translator) else model(ids)


@for_each("options", OPTIONS)
def test_every_step_of_a_model_with_these_options_is_recomputed(options: dict) -> None:
    ids = torch.randint(20, (1, 7), generator=torch.Generator().manual_seed(2))
    for model in models_of({**options, "output_bias": True}):
        randomise(model)
        with trace(model) as t:
            outputs_of(model, ids)
        for step in t.values():
            assert step.op != "input", step.id
            if (again := recompute(t, model, step)) is not None:
                torch.testing.assert_close(step.value.double(), again, atol=1e-5, rtol=1e-5)


def test_the_output_bias_of_a_translator_is_added_to_each_logit() -> None:
    *_, model = models_of({"output_bias": True})
    ids = torch.tensor([[1, 2, 3]])
    before = model(ids, ids)
    with torch.no_grad():
        model.output_bias += torch.arange(20.0)
    torch.testing.assert_close(model(ids, ids), before + torch.arange(20.0))
