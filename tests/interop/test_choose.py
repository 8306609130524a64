"""Which library holds what: every form and every recipe, and refusals that name the setting and what would do."""

from __future__ import annotations

from typing import Any

import pytest
from tests.helpers.exports import FORMS, SIZE
from tests.helpers.for_each import for_each

from glassformer.config import Config, ModelConfig, TextConfig
from glassformer.config.recipes import load_recipe, recipe_names
from glassformer.errors import UsageError
from glassformer.interop.choose import REGISTERED, TARGETS, Choice, choose, hf_model_type
from glassformer.tasks import task_class

KINDS = tuple(REGISTERED)


@for_each("kind", KINDS)
def test_each_form_is_held_or_refused_with_a_setting_and_another_way(kind: str) -> None:
    n_held = 0
    for form in FORMS:
        config = Config(model=ModelConfig(**SIZE, **form), text=TextConfig(tokenizer="byte-bpe"))
        for target in TARGETS:
            for native in (False, True):
                try:
                    choice = choose(kind, config, 1, target, native)
                except UsageError as error:
                    assert target != "onnx" and error.hint and "\n" not in error.message
                    assert "--to onnx" in error.hint or "--native" in error.hint
                else:
                    assert isinstance(choice, Choice) and choice.architecture
                    n_held += 1
    assert n_held >= len(FORMS) * 3  # onnx twice, and the registered class


def test_native_classes_and_architectures_by_form() -> None:
    forms = [ModelConfig(**SIZE, **form) for form in FORMS]
    of_lm = {hf_model_type("language_model", m)[0] for m in forms}
    of_translator = {hf_model_type("translator", m)[0] for m in forms}
    assert of_lm == {"", "llama", "arcee", "starcoder2", "gpt2"} and of_translator == {"", "pegasus", "marian"}
    for m in forms:
        for kind in ("language_model", "translator"):
            model_type, obstacle = hf_model_type(kind, m)
            assert bool(model_type) != bool(obstacle)


RECIPES = {
    "classify": "hf (approximate), onnx (exact); ctranslate2 holds no classifier",
    "dates": "ctranslate2 (exact), hf (exact), onnx (exact)",
    "gpt2-124m": "ctranslate2 (exact), hf (exact), onnx (exact)",
    "imdb": "hf (exact), onnx (exact); ctranslate2 holds no classifier",
    "lm": "ctranslate2 (exact), hf (exact), onnx (exact)",
    "pretrain": "hf (approximate), onnx (exact); ctranslate2 holds no masked language model",
    "shakespeare": "hf (exact), onnx (exact); ctranslate2 has no embeddings of token n-grams: model.max_ngram 5",
}


def summary(kind: str | None, config: Config) -> str:
    """In one line where a model can be exported to, and which settings are in the way elsewhere."""
    found, obstacles = list[str](), list[str]()
    for target in TARGETS:
        try:
            choice = choose(kind, config, 1, target)
            found.append(f"{target} ({'approximate' if choice.approximate else 'exact'})")
        except UsageError as error:
            obstacles.append(error.message)
    return "; ".join([", ".join(found), *obstacles])


def test_where_the_recipes_can_be_exported_to() -> None:
    for name in recipe_names():
        config = load_recipe(name)
        line = summary(task_class(config.task).explain_as, config)
        assert line == RECIPES.get(name, line) and "onnx (exact)" in line


@pytest.mark.parametrize(
    ("kind", "config", "n_members", "target", "native", "message"),
    [
        ("classifier", {}, 3, "ctranslate2", False, "ctranslate2 holds no classifier"),
        ("translator", {}, 3, "ctranslate2", False, "ctranslate2 holds one model, and this is an ensemble of 3"),
        ("translator", {}, 2, "onnx", False, "onnx holds one model, and this is an ensemble of 2"),
        ("translator", {"positions": "rotary"}, 1, "hf", True, "no class for this translator: model.positions rotary"),
        ("language_model", {"max_ngram": 4}, 1, "hf", True, "no class for this language model: model.max_ngram 4"),
        (None, {}, 1, "onnx", False, "onnx holds no model of the task"),
    ],
    ids=str,
)
def test_refusals(
    kind: str | None, config: dict[str, Any], n_members: int, target: Any, native: bool, message: str
) -> None:
    with pytest.raises(UsageError) as error:
        choose(kind, Config(model=ModelConfig(**config)), n_members, target, native)
    assert message in error.value.message
