"""Exports of the heads that no other library has answer as the run does."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.exports import printed_by_card, run_of
from tests.helpers.for_each import for_each

from glassformer.errors import UsageError
from glassformer.interop.exported import load_exported
from glassformer.text.answers import Decision, answer_lines


def alike(one: Any, two: Any) -> bool:
    """Whether answers are equal but for the last digits of numbers."""
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(alike(one[key], two[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(two) and all(map(alike, one, two))
    return one == (pytest.approx(two, abs=1e-4) if isinstance(two, float) else two)


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("task", ["multilabel", "regress", "tag"])
def test_an_export_answers_as_the_run(
    task: str, members: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime")
    run = run_of(task, monkeypatch, ensemble_size=members)
    if task == "multilabel":
        run.task.decision = Decision(thresholds=[0.3, 0.5, 0.6])
    facts = run.export("onnx", tmp_path / "out").facts
    assert facts.check is not None and facts.check["equal_answers"] == 1.0
    texts, exported = ["a good,b", "", "odd bad", "good " * 40], load_exported(tmp_path / "out")
    assert alike(exported.predict(texts), run.predict(texts))
    if task == "tag":
        assert answer_lines(exported.predict("a good")) == answer_lines(run.predict("a good"))
    if task == "regress":
        with pytest.raises(UsageError, match="is for classifiers"):
            exported.predict("a", calibrated=True)
    if task == "multilabel":
        printed = printed_by_card(tmp_path / "out", monkeypatch, capsys)
        assert {*ast.literal_eval(printed)} == {*run.predict("a text")["labels"]}, "by the thresholds"


@for_each(("task", "kind", "target"), [("regress", "regressor", "hf"), ("tag", "tagger", "ctranslate2")])
def test_another_target_holds_no_such_model(task: str, kind: str, target: Any, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(UsageError, match=f"{target} holds no {kind}"):
        run_of(task, patch).export(target, tmp_path / "out")
