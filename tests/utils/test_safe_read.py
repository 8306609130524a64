"""Files of others are read if they are regular and of bounded size, and anything else is one kind of error."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from glassformer.errors import CheckpointError
from glassformer.runs.records import StepMetrics
from glassformer.utils import safe_read


@pytest.mark.parametrize(
    "make",
    [
        Path.mkdir,
        os.mkfifo,
        lambda path: None,
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to("nowhere"),
        lambda path: path.symlink_to(path),
    ],
    ids=["a folder", "a pipe", "nothing", "a device", "a dangling link", "a link to itself"],
)
def test_what_is_no_regular_file_is_not_opened(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "x.json"
    make(path)
    for read in (safe_read.read_json, safe_read.read_toml, safe_read.read_text, safe_read.sha256_regular):
        with pytest.raises(CheckpointError, match=r"x\.json"):
            read(path)
    with pytest.raises(CheckpointError):
        safe_read.check_regular(path, 10)


def test_a_link_to_a_regular_file_is_read_and_a_sparse_file_is_not(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('{"x": 1}', "utf-8")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert safe_read.read_json_object(tmp_path / "b") == {"x": 1}
    os.truncate(tmp_path / "a", 20 << 30)
    with pytest.raises(CheckpointError, match="at most"):
        safe_read.read_json(tmp_path / "a")


@pytest.mark.parametrize(
    "text",
    ["a = [" + "[" * 100_000, "a = " + "1" * 10_000, ".".join(["a"] * 100_000) + " = 1", "a = {" + "b={" * 10_000, "x"],
    ids=["deep", "10,000 digits", "a long key", "deep tables", "no value"],
)
def test_toml_that_takes_long_or_is_none(tmp_path: Path, text: str) -> None:
    path, dots = tmp_path / "a.toml", "." * 500
    path.write_text(text, "utf-8")
    with pytest.raises(CheckpointError, match=r"a\.toml"):
        safe_read.read_toml(path)
    path.write_text(f"a = \"{dots}\"\nb = [1.5, 2.5]\n[c.d]\ne = '{dots}'\n", "utf-8")
    assert safe_read.read_toml(path) == {"a": dots, "b": [1.5, 2.5], "c": {"d": {"e": dots}}}


def test_json_that_no_version_wrote() -> None:
    digits, deep = b'{"a": ' + b"1" * 5000 + b"}", b"[" * 10_000
    for data in (digits, deep, b"", b"{", b"\xff{}", b'{"a": 1} x', b'{"a": "\\ud800"}', b'{"\\uDfff": 1}'):
        with pytest.raises(CheckpointError):
            safe_read.from_json(dict, data, "x")
    assert safe_read.from_json(str, b'"\\ud83d\\ude00"', "x") == "😀", "a pair of surrogates is a character"


def test_a_record_names_the_field_that_is_wrong() -> None:
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
