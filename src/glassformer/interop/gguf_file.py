"""What stands in the header of a GGUF file of an export: llama.cpp ends the whole process where parts disagree.

Checked are the names and the kinds of the settings, those that have to agree with the description of the folder, and
that every tensor lies inside the file. The format is that of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any

from glassformer.errors import CheckpointError
from glassformer.interop.export_facts import MAX_LENGTH, MAX_WEIGHTS, ExportFacts
from glassformer.utils.safe_read import open_regular

ARCHITECTURES = ("llama", "starcoder2", "gpt2")
MAX_TENSORS, MAX_SETTINGS, MAX_TEXT = 100_000, 100, 1 << 16
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_WIDTHS = {0: 4, 1: 2}
"""Bytes of a weight by the type of its tensor: float32 and float16."""
_OF_ARCHITECTURE = """context_length embedding_length block_count feed_forward_length attention.head_count
    attention.head_count_kv vocab_size attention.layer_norm_rms_epsilon attention.layer_norm_epsilon rope.freq_base
    rope.dimension_count attention.key_length attention.value_length""".split()
_OTHERS = """general.architecture general.name general.file_type general.quantization_version general.alignment
    tokenizer.ggml.model tokenizer.ggml.pre tokenizer.ggml.tokens tokenizer.ggml.token_type tokenizer.ggml.merges
    tokenizer.ggml.bos_token_id tokenizer.ggml.eos_token_id tokenizer.ggml.padding_token_id
    tokenizer.ggml.unknown_token_id tokenizer.ggml.add_bos_token""".split()


class _Wrong(Exception):
    """What is wrong with a file."""


def check_gguf(path: Path, facts: ExportFacts, tokens: Sequence[str]) -> None:
    """Check the header of a GGUF file.

    Args:
        path: the file.
        facts: the description of its folder.
        tokens: the token of each id.

    Raises:
        CheckpointError: it is not one that an export writes.
    """
    with open_regular(path, MAX_WEIGHTS) as file:
        try:
            _check(file, facts, tokens)
        except (_Wrong, struct.error, UnicodeDecodeError, OverflowError) as error:
            raise CheckpointError(f"{path} is not a model of this export: {error}", "export the run again") from error


def _check(file: BufferedReader, facts: ExportFacts, tokens: Sequence[str]) -> None:
    size = os.fstat(file.fileno()).st_size
    magic, version, n_tensors, n_settings = _read(file, "4sIQQ")
    _require(magic == b"GGUF" and version == 3, f"version {version}")
    _require(n_tensors <= MAX_TENSORS and n_settings <= MAX_SETTINGS, f"{n_tensors} tensors, {n_settings} settings")
    settings: dict[str, Any] = {}
    for _ in range(n_settings):
        name = _text(file)
        settings[name] = _value(file, _read(file, "I")[0], size)
    kind = facts.architecture
    _require(kind in ARCHITECTURES and settings.get("general.architecture") == kind, "another architecture")
    known = {*_OTHERS, *(f"{kind}.{name}" for name in _OF_ARCHITECTURE)}
    _require(settings.keys() <= known, f"the setting {min(settings.keys() - known, default='')[:80]!r}")
    _require(settings.get("tokenizer.ggml.tokens") == [*tokens], "its tokens are not those of tokenizer.json")
    types = settings.get("tokenizer.ggml.token_type")
    _require(isinstance(types, list) and len(types) == len(tokens), "types for other tokens")
    c = {name: settings.get(f"{kind}.{name}") for name in _OF_ARCHITECTURE}
    for name, value in c.items():
        whole = isinstance(value, int) and 1 <= value <= MAX_LENGTH
        _require(value is None or isinstance(value, float) or whole, f"{name} {value}")
    _require(c["context_length"] == facts.context + 1, f"a context of {c['context_length']}")
    _require(settings.get("general.alignment", 32) == 32, "another alignment")
    shapes, ends = _read_shapes(file, n_tensors)
    start = -(-file.tell() // 32) * 32
    _require(start + max(ends, default=0) <= size, "it ends before its tensors do")
    _require(shapes.get("token_embd.weight") == [c["embedding_length"], len(tokens)], "an embedding of another shape")
    _require(isinstance(c["block_count"], int) and c["block_count"] <= n_tensors, f"{c['block_count']} blocks")


def _read_shapes(file: BufferedReader, n: int) -> tuple[dict[str, list[int]], list[int]]:
    """Return the shape of each tensor, and where each ends."""
    shapes, ends = dict[str, list[int]](), list[int]()
    for _ in range(n):
        name, [n_axes] = _text(file), _read(file, "I")
        _require(1 <= n_axes <= 4, f"a tensor of {n_axes} axes")
        shape = [*_read(file, f"{n_axes}Q")]
        kind, offset = _read(file, "IQ")
        _require(kind in _WIDTHS and offset % 32 == 0, f"the tensor {name[:80]!r}")
        shapes[name] = shape
        ends.append(offset + _WIDTHS[kind] * math.prod(shape))
    return shapes, ends


def _read(file: BufferedReader, layout: str) -> tuple[Any, ...]:
    layout = f"<{layout}"
    return struct.unpack(layout, file.read(struct.calcsize(layout)))


def _text(file: BufferedReader) -> str:
    [size] = _read(file, "Q")
    _require(size <= MAX_TEXT, f"a text of {size} bytes")
    return file.read(size).decode("utf-8")


def _value(file: BufferedReader, kind: int, size: int) -> Any:
    """Return the value of a setting; in an array there is no other."""
    if kind == _ARRAY:
        inner, n = _read(file, "IQ")
        _require(n <= size and (inner in _NUMBERS or inner == _STRING), f"an array of {n}")
        return [_text(file) for _ in range(n)] if inner == _STRING else [*_read(file, f"{n}{_NUMBERS[inner]}")]
    if kind == _STRING:
        return _text(file)
    _require(kind in _NUMBERS, f"a setting of the kind {kind}")
    return _read(file, _NUMBERS[kind])[0]


def _require(is_right: bool, what: str) -> None:
    if not is_right:
        raise _Wrong(what)
