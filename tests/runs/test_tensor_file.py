"""Safetensors: ours and the library's agree, and a hostile file is refused before it takes memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from glassformer.errors import CheckpointError
from glassformer.runs.model_folder import read_shapes, read_tensors, tensor_chunks

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
TENSORS = {
    "x": X,
    "the same memory": X,
    "transposed": X.t(),
    "scalar": torch.tensor(2.5),
    "empty": torch.empty(0, 4),
    "half": X.bfloat16(),
    "bytes": torch.arange(5, dtype=torch.uint8),
    "mask": torch.tensor([True, False]),
    "long": torch.tensor([-1, 2**40]),
}


def test_the_safetensors_library_agrees_on_the_format() -> None:
    theirs = safetensors.torch.load(b"".join(tensor_chunks(TENSORS)))
    ours = read_tensors(safetensors.torch.save({n: t.clone().contiguous() for n, t in TENSORS.items()}), Path("x"))
    assert theirs.keys() == ours.keys() == TENSORS.keys()
    assert all(torch.equal(theirs[name], x) and torch.equal(ours[name], x) for name, x in TENSORS.items())
    assert read_tensors(b"".join(tensor_chunks({})), Path("x")) == {}


def header(text: str) -> bytes:
    return len(text).to_bytes(8, "little") + text.encode()


def of_x(kind: str, shape: list[int], offsets: list[int]) -> bytes:
    return header(json.dumps({"x": {"dtype": kind, "shape": shape, "data_offsets": offsets}})) + b"\0" * 4


HOSTILE = {
    "empty": b"",
    "not JSON": header("pickle"),
    "huge shape": of_x("F32", [1099511627776, 1099511627776], [0, 4]),
    "offsets beyond the file": of_x("F32", [2], [0, 8]),
    "unknown type": of_x("CODE", [1], [0, 4]),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_tensor_files_are_refused(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"bad\.safetensors"):
        read_tensors(data, Path("bad.safetensors"))
    (tmp_path / "bad.safetensors").write_bytes(data)
    with pytest.raises(CheckpointError, match=r"bad\.safetensors"):
        read_shapes(tmp_path / "bad.safetensors")


@given(st.binary(max_size=200), st.integers(0, 120))
def test_no_bytes_at_all_get_past_the_reader(noise: bytes, n_header: int) -> None:
    for data in (noise, n_header.to_bytes(8, "little") + noise):
        try:
            tensors = read_tensors(data, Path("noise"))
        except CheckpointError:
            continue
        assert b"".join(tensor_chunks(tensors))[:8]  # an empty header is a sound file
