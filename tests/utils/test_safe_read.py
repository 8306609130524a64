"""Files of others are read if they are regular and of bounded size, and anything else is one kind of error."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from glassformer.errors import CheckpointError
from glassformer.runs.records import StepMetrics
from glassformer.utils import safe_read


def test_a_link_to_a_regular_file_is_read_and_a_sparse_file_is_not(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('{"x": 1}', "utf-8")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert safe_read.read_json_object(tmp_path / "b") == {"x": 1}
    os.truncate(tmp_path / "a", 20 << 30)
    with pytest.raises(CheckpointError, match="at most"):
        safe_read.read_json(tmp_path / "a")


def test_toml_is_bounded_in_depth_and_parts_of_a_key(tmp_path: Path) -> None:
    path, dots = tmp_path / "a.toml", "." * 500
    path.write_text(f"a = \"{dots}\"\nb = [1.5, 2.5]\n[c.d]\ne = '{dots}'\n", "utf-8")
    assert safe_read.read_toml(path) == {"a": dots, "b": [1.5, 2.5], "c": {"d": {"e": dots}}}
    for text in ("a = [" + "[" * 100_000, "a = " + "1" * 10_000, ".".join(["a"] * 100_000) + " = 1"):
        path.write_text(text, "utf-8")
        with pytest.raises(CheckpointError, match=r"a\.toml"):
            safe_read.read_toml(path)


def test_a_record_names_the_field_that_is_wrong() -> None:
    assert safe_read.from_json(str, b'"\\ud83d\\ude00"', "x") == "😀", "a pair of surrogates is a character"
    assert safe_read.from_json(StepMetrics, {"step": 3, "later": 1}, "x") == StepMetrics(3)
    for value, message in (
        ({}, "x: object missing required field `step`"),
        ({"step": "3"}, "x, `$.step`: expected `int`, got `str`"),
        ({"step": 0}, "x, `$.step`: expected `int` >= 1"),
        ({"step": 1, "valid": {"accuracy": "1"}}, "x, `$.valid[...]`: expected `float`, got `str`"),
        ([1], "x: expected `object`, got `array`"),
    ):
        with pytest.raises(CheckpointError) as caught:
            safe_read.from_json(StepMetrics, value, "x")
        assert caught.value.message == message and caught.value.hint
