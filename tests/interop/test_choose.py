"""Which library holds what: every form and every recipe, and refusals that name the setting and what would do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.helpers.exports import FORMS, SIZE
from tests.helpers.for_each import for_each

from glassformer.config import Config, ModelConfig, TextConfig
from glassformer.config.recipes import load_recipe, recipe_names
from glassformer.errors import UsageError
from glassformer.interop.export_facts import FILES, TARGETS, choose
from glassformer.tasks import task_class

KINDS = sorted({kind for _, kind in FILES})


@for_each("kind", KINDS)
def test_each_form_is_held_or_refused_with_a_setting_and_another_way(kind: str) -> None:
    n_held = 0
    for form in FORMS:
        config = Config(model=ModelConfig(**SIZE, **form), text=TextConfig(tokenizer="byte-bpe"))
        for target in TARGETS:
            try:
                architecture, _ = choose(kind, config, 1, target)
            except UsageError as error:
                assert "\n" not in error.message and "--to " in str(error.hint)
            else:
                assert architecture
                n_held += 1
    assert n_held >= len(FORMS)


RECIPES = {
    "classify": "onnx; ctranslate2 holds no classifier; transformers has no class for this classifier: model.pre_norm",
    "dates": "ctranslate2; transformers has no class for this translator: model.positions rotary",
    "gpt2-124m": "ctranslate2, hf; onnx holds no language model",
    "translate": "ctranslate2, hf; onnx holds no translator",
    "shakespeare": "; no library has embeddings of token n-grams: model.max_ngram 5",
}


@pytest.mark.parametrize("name", recipe_names())
def test_where_the_recipes_can_be_exported_to(name: str) -> None:
    """In one line, with the settings that are in the way elsewhere."""
    config, found, obstacles = load_recipe(name), list[str](), list[str]()
    for target in TARGETS:
        try:
            choose(task_class(config.task).explain_as, config, 1, target)
            found.append(target)
        except UsageError as error:
            obstacles.append(error.message)
    line = "; ".join([", ".join(found), *obstacles])
    assert line.startswith(RECIPES.get(name, line))


@pytest.mark.parametrize(
    ("kind", "config", "n_members", "target", "message"),
    [
        ("classifier", {}, 3, "ctranslate2", "ctranslate2 holds no classifier"),
        ("regressor", {}, 1, "hf", "hf holds no regressor"),
        ("translator", {}, 3, "ctranslate2", "this is an ensemble of 3; export one of them: --member 0"),
        ("translator", {"positions": "rotary"}, 3, "hf", "model.positions rotary; use --to ctranslate2"),
        (
            "classifier",
            {"pooling": "first"},
            3,
            "hf",
            "no class for this classifier: model.pre_norm true; use --to onnx",
        ),
        ("pairs", {}, 3, "hf", "hf is not written of a model that reads pairs of texts; use --to onnx"),
        ("translator", {}, 1, "onnx", "onnx holds no translator"),
        ("translator", {"positions": "rotary"}, 1, "hf", "no class for this translator: model.positions rotary"),
        ("language_model", {"max_ngram": 4}, 1, "hf", "no library has embeddings of token n-grams: model.max_ngram 4"),
        (None, {}, 1, "onnx", "onnx holds no model of the task"),
    ],
    ids=str,
)
def test_refusals(kind: str | None, config: dict[str, Any], n_members: int, target: Any, message: str) -> None:
    """One member of an ensemble is advised where it can be written alone."""
    tokenizer = SimpleNamespace(separator=[3] if kind == "pairs" else [], special=None)
    kind = "classifier" if kind == "pairs" else kind
    with pytest.raises(UsageError) as error:
        choose(kind, Config(model=ModelConfig(**config)), n_members, target, tokenizer)
    assert message in f"{error.value.message}; {error.value.hint}"
