"""What stands in the files of a CTranslate2 model of an export, checked before the library, which trusts it."""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any

from glassformer.errors import CheckpointError
from glassformer.interop.export_facts import MAX_WEIGHTS, ExportFacts
from glassformer.utils.safe_read import open_regular, read_json, read_json_object

MODEL, CONFIG = "model.bin", "config.json"
SPECS = {"translator": "TransformerSpec", "language_model": "TransformerDecoderSpec"}
VOCABULARIES = {"translator": "shared_vocabulary.json", "language_model": "vocabulary.json"}
SETTINGS = {
    "add_source_bos": bool,
    "add_source_eos": bool,
    "bos_token": str,
    "decoder_start_token": str,
    "eos_token": str,
    "layer_norm_epsilon": (float, type(None)),
    "multi_query_attention": bool,
    "quantization_type": type(None),
    "quantization_bits": type(None),
    "quantization_group_size": type(None),
    "unk_token": str,
}
"""Settings of `config.json`, and their types."""
VERSION, MAX_VARIABLES = 6, 100_000
_WIDTHS = {0: 4, 1: 1, 2: 2, 3: 4, 4: 2, 5: 2}
"""Bytes of a number, by the id of its type: float32, int8, int16, int32, float16, bfloat16."""


class _Wrong(Exception):
    """What is wrong with a file."""


def check_ctranslate2(folder: Path, facts: ExportFacts, tokens: Sequence[str]) -> None:
    """Check the files of a model.

    Args:
        folder: the exported folder.
        facts: its description.
        tokens: the token of each id.

    Raises:
        CheckpointError: they are not those that an export writes.
    """
    vocabulary = folder / VOCABULARIES[facts.kind]
    if read_json(vocabulary) != [*tokens]:
        raise CheckpointError(f"{vocabulary} does not hold the tokens of tokenizer.json", "export the run again")
    for name, value in read_json_object(folder / CONFIG).items():
        if name not in SETTINGS or not isinstance(value, SETTINGS[name]):
            raise CheckpointError(f"{folder / CONFIG}: {name[:80]} {str(value)[:80]!r} is in no export")
    path = folder / MODEL
    with open_regular(path, MAX_WEIGHTS) as file:
        try:
            _check(file, SPECS[facts.kind], len(tokens))
        except (_Wrong, struct.error, UnicodeDecodeError) as error:
            raise CheckpointError(f"{path} is not a model of this export: {error}", "export the run again") from error


def _check(file: BufferedReader, spec: str, n_tokens: int) -> None:
    """Check that the variables fill the file, and that those of tokens have as many rows as there are tokens."""
    size = os.fstat(file.fileno()).st_size
    [version] = _read(file, "I")
    _require(version == VERSION, f"version {version}")
    found = _text(file)
    _require(found == spec, f"it is a {found[:80]!r}")
    _, n_variables = _read(file, "II")
    _require(n_variables <= MAX_VARIABLES, f"{n_variables} variables")
    names = set[str]()
    for _ in range(n_variables):
        name, [rank] = _text(file), _read(file, "B")
        _require(rank <= 4, f"{name[:80]!r} has {rank} axes")
        shape = _read(file, f"{rank}I")
        kind, n_bytes = _read(file, "BI")
        _require(kind in _WIDTHS and n_bytes == _WIDTHS[kind] * math.prod(shape), f"{name[:80]!r} has another size")
        _require(file.tell() + n_bytes <= size, f"it ends inside of {name[:80]!r}")
        file.seek(n_bytes, os.SEEK_CUR)
        names.add(name)
        if name.endswith(("embeddings/weight", "embeddings_0/weight", "projection/weight")):
            _require(rank == 2 and shape[0] == n_tokens, f"{name[:80]!r} has {shape} numbers for {n_tokens} tokens")
    [n_aliases] = _read(file, "I")
    _require(n_aliases <= MAX_VARIABLES, f"{n_aliases} second names")
    for _ in range(n_aliases):
        _text(file)
        _require(_text(file) in names, "a second name of nothing")
    _require(file.tell() == size, "something follows its variables")


def _read(file: BufferedReader, layout: str) -> tuple[Any, ...]:
    layout = f"<{layout}"
    return struct.unpack(layout, file.read(struct.calcsize(layout)))


def _text(file: BufferedReader) -> str:
    [size] = _read(file, "H")
    return file.read(size).decode("utf-8").removesuffix("\0")


def _require(is_right: bool, what: str) -> None:
    if not is_right:
        raise _Wrong(what)
