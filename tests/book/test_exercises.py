"""Every exercise: its solution is right, a stub is not yet, and each known mistake gets its own hint."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from types import ModuleType

import pytest
import torch
from exercises.checker import Exercise

BOOK = Path(__file__).parents[2] / "docs" / "book"
NAMES = [path.stem for path in sorted((BOOK / "exercises").glob("*.py")) if path.stem not in ("__init__", "checker")]
MODULES = [importlib.import_module(f"exercises.{name}") for name in NAMES]


@pytest.mark.parametrize("module", MODULES, ids=NAMES)
def test_the_solution_is_right_a_stub_is_not_yet_and_each_known_mistake_gets_its_own_hint(
    module: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    def stub(*_: object) -> torch.Tensor:
        raise NotImplementedError

    exercise = module.EXERCISE
    assert exercise.check(module.solution)
    assert capsys.readouterr().out == "correct, on 20 random inputs\n"
    assert not exercise.check(stub)
    assert capsys.readouterr().out == "not yet: the function raises NotImplementedError\n"
    for mistake, hint in exercise.mistakes.items():
        assert not exercise.check(mistake)
        output = capsys.readouterr().out
        assert output.startswith("not yet: ") and output.endswith(f"hint: {hint}\n")
    assert len({*exercise.mistakes.values()}) == len(exercise.mistakes)
    name = module.__name__.rpartition(".")[2].replace("_", "-")
    text = (BOOK / f"{getattr(module, 'CHAPTER', name)}.md").read_text(encoding="utf-8")
    arguments = ", ".join(inspect.signature(module.solution).parameters)
    assert f"({arguments}):\n    raise NotImplementedError" in text, "the chapter has another signature"


def test_what_is_neither_right_nor_a_known_mistake_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    exercise = Exercise(lambda x: 2 * x, lambda generator: (torch.rand(2, 3, generator=generator),))
    assert not exercise.check(lambda x: x[0])
    assert not exercise.check(lambda x: 5)
    assert not exercise.check(lambda x: 3 * x)
    assert not exercise.check(lambda x: x @ x)
    shape, kind, value, error = capsys.readouterr().out.splitlines()
    assert shape.endswith("the result has shape (3,) instead of (2, 3)")
    assert kind.endswith("a tensor was expected, and int came")
    assert "an entry is" in value and error.startswith("RuntimeError for inputs of shape (2, 3)")
