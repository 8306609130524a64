"""Read `model.bin`, CTranslate2's file of weights: sizes are checked before numbers are read, one variable at a time.

The layout, little-endian, from CTranslate2's `specs/model_spec.py` (which writes it) and `model.cc` (which reads it):

    version: u32, name of the specification, its revision: u32
    number of variables: u32, then for each: name, number of axes: u8, each axis: u32,
        type: u8 and bytes: u32 (from version 4 on), or width: u8 and numbers: u32 (before), and the numbers
    number of second names: u32 (from version 3 on), then for each: second name, name

A name is its length with a final zero byte, u16, and the bytes. Of a weight in int8 or int16 a second variable, whose
name ends in `_scale`, holds what it was multiplied by: a number for each row, or one for all.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.errors import CheckpointError
from glassformer.interop.export_facts import MAX_WEIGHTS
from glassformer.utils.safe_read import open_regular, read_bytes

FILE = "model.bin"
VERSIONS = range(2, 7)
MAX_VARIABLES, MAX_AXES, MAX_NAME = 100_000, 4, 1000
MAX_REPEATS = 8
"""Times that second names may repeat all numbers of a file: a tied matrix has three names, a row of zeros many."""
INT16_SCALE = 1000
"""Scale of int16 weights of old files, which hold none."""
_TYPES = ("<f4", "i1", "<i2", "<i4", "<f2", "<u2")
"""NumPy's type of each id: float32, int8, int16, int32, float16 and bfloat16, the upper half of a float32."""
_BFLOAT16 = 5
_OF_WIDTH = {4: 0, 1: 1, 2: 2}
"""Id of the type by the bytes of a number, before version 4."""
_HINT = "copy the folder whole, or convert the model again"


class FieldReader:
    """Reads the fields of a binary file one by one; little-endian."""

    def __init__(self, file: BufferedReader) -> None:
        self.file, self.size = file, os.fstat(file.fileno()).st_size

    def numbers(self, layout: str) -> tuple[Any, ...]:
        """Return numbers in a layout of `struct`."""
        layout = f"<{layout}"
        return struct.unpack(layout, self.file.read(struct.calcsize(layout)))

    def text(self, length: str, most: int) -> str:
        """Return a text after its length in bytes, a number in a layout of `struct`."""
        [n_bytes] = self.numbers(length)
        require(n_bytes <= most, f"a text of {n_bytes} bytes")
        return self.file.read(n_bytes).decode("utf-8")


def require(is_right: bool, what: str) -> None:
    """Say what is wrong with a file that `open_variables` reads."""
    if not is_right:
        raise ValueError(what)


@dataclass(frozen=True)
class Variable:
    """Where a variable is in the file, and what it is."""

    at: int
    shape: tuple[int, ...]
    type: int

    @property
    def size(self) -> int:
        """Return the number of its numbers."""
        return math.prod(self.shape)


class Variables:
    """The variables of a file by name. Each is taken once; `left` says which were not.

    Attributes:
        spec: name of the model's specification, such as "TransformerSpec".
        revision: of the specification: which names it uses.
    """

    def __init__(self, path: Path, fields: FieldReader) -> None:
        self.path, self._fields = path, fields
        [version] = fields.numbers("I")
        require(version in VERSIONS, f"its version is {version}, and {VERSIONS[0]} to {VERSIONS[-1]} are known")
        self.version: int = version
        self.spec = self._name()
        [self.revision] = fields.numbers("I")
        self._variables = self._read_index()
        self._aliases = self._read_aliases() if version >= 3 else {}
        require(fields.file.tell() == fields.size, f"{fields.size - fields.file.tell()} bytes follow its variables")
        stored = sum(variable.size for variable in self._variables.values())
        repeated = sum(self._variables[name].size for name in self._aliases.values())
        require(repeated <= MAX_REPEATS * stored, f"second names repeat its {stored:,} numbers {repeated:,} times")
        self._left = {*self._variables, *self._aliases}

    def _read_index(self) -> dict[str, Variable]:
        fields, found = self._fields, dict[str, Variable]()
        [n_variables] = fields.numbers("I")
        require(n_variables <= MAX_VARIABLES, f"it names {n_variables:,} variables")
        for _ in range(n_variables):
            name, [n_axes] = self._name(), fields.numbers("B")
            require(name not in found, f"{name!r} is in it twice")
            require(n_axes <= MAX_AXES, f"{name!r} has {n_axes} axes")
            shape = fields.numbers(f"{n_axes}I")
            if self.version >= 4:
                kind, n_bytes = fields.numbers("BI")
                require(kind < len(_TYPES), f"{name!r} is of the unknown type {kind}")
                width = np.dtype(_TYPES[kind]).itemsize
            else:
                width, n_numbers = fields.numbers("BI")
                require(width in _OF_WIDTH, f"{name!r} has numbers of {width} bytes")
                kind, n_bytes = _OF_WIDTH[width], n_numbers * width
            variable = Variable(fields.file.tell(), shape, kind)
            expected = variable.size * width
            require(n_bytes == expected, f"{name!r} has {n_bytes:,} bytes, and {list(shape)} needs {expected:,}")
            require(variable.at + n_bytes <= fields.size, f"it ends inside of {name!r}")
            fields.file.seek(n_bytes, os.SEEK_CUR)
            found[name] = variable
        return found

    def _read_aliases(self) -> dict[str, str]:
        """Return the variable of each second name."""
        [n_aliases] = self._fields.numbers("I")
        require(n_aliases <= MAX_VARIABLES, f"it has {n_aliases:,} second names")
        found = dict[str, str]()
        for _ in range(n_aliases):
            alias, name = self._name(), self._name()
            require(alias not in self._variables and alias not in found, f"{alias!r} is in it twice")
            require(name in self._variables, f"{alias!r} is a second name of {name!r}, which is missing")
            found[alias] = name
        return found

    def _name(self) -> str:
        name = self._fields.text("H", MAX_NAME)
        require(name.endswith("\0"), "a name does not end with a zero byte")
        name = name[:-1]
        # With letters, digits and few marks alone it can be printed.
        require(name.isascii() and name.replace("/", "").isidentifier(), f"{name[:80]!r} is no name of a variable")
        return name

    def __contains__(self, name: str) -> bool:
        return name in self._variables or name in self._aliases

    def left(self) -> list[str]:
        """Return the names that were not taken, sorted."""
        return sorted(self._left)

    def names(self) -> list[str]:
        """Return all names, second ones too."""
        return [*self._variables, *self._aliases]

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a variable without reading its numbers."""
        return self._find(name).shape

    def is_whole(self, name: str) -> bool:
        """Return True if a variable is of a type of whole numbers."""
        return self._find(name).type in (1, 2, 3)

    def take(self, name: str) -> np.ndarray:
        """Return the numbers of a variable as float32; int8 and int16 are divided by their scales.

        Raises:
            CheckpointError: it is missing, or its numbers are not finite.
        """
        stored, scale_name = self._numbers(name), f"{self._aliases.get(name, name)}_scale"
        kind, alias_scale = self._find(name).type, f"{name}_scale"
        match kind:
            case 1 | 2:
                values = self._unscaled(name, stored, scale_name if scale_name in self else alias_scale)
            case 0 | 4:
                values = stored.astype(np.float32)
            case _ if kind == _BFLOAT16:
                values = (stored.astype(np.uint32) << 16).view(np.float32)
            case _:
                raise self.error(f"{name!r} holds whole numbers, where weights are expected")
        self._finite(name, values)
        return values

    def _unscaled(self, name: str, stored: np.ndarray, scale_name: str) -> np.ndarray:
        if scale_name not in self and stored.dtype == np.int16:
            scale = np.array(INT16_SCALE, np.float32)
        else:
            if scale_name not in self:
                raise self.error(f"{name!r} is in {stored.dtype}, and {scale_name!r} is missing")
            scale = self._numbers(scale_name)
            if scale.dtype != np.float32 or scale.shape not in ((), stored.shape[:1]) or not (scale > 0).all():
                raise self.error(f"{scale_name!r} holds no scales of the {len(stored):,} rows of {name!r}")
        # As CTranslate2 does: times the inverse, in float32.
        inverse = np.float32(1) / scale
        return stored.astype(np.float32) * (inverse.reshape(-1, *[1] * (stored.ndim - 1)) if inverse.ndim else inverse)

    def number(self, name: str, default: float | None = None) -> float:
        """Return a single number, or the default where it is missing.

        Raises:
            CheckpointError: it is no single number, or missing without a default.
        """
        if name not in self and default is not None:
            return default
        value = self._numbers(name)
        if value.size != 1 or value.ndim > 1 or self._find(name).type == _BFLOAT16:
            raise self.error(f"{name!r} has the shape {list(value.shape)}, where one number is expected")
        self._finite(name, value)
        return float(value.reshape(()))

    def text(self, name: str, default: str) -> str:
        """Return a text, or the default where it is missing."""
        if name not in self:
            return default
        value = self._numbers(name)
        if value.dtype != np.int8 or value.size > MAX_NAME:
            raise self.error(f"{name!r} is no short text")
        try:
            return value.tobytes().decode("utf-8")
        except UnicodeDecodeError as problem:
            raise self.error(f"{name!r} is not UTF-8") from problem

    def error(self, what: str) -> CheckpointError:
        """Return the error of a file with something wrong in it."""
        return CheckpointError(f"{self.path} is not a model of CTranslate2 as it should be: {what}", _HINT)

    def _find(self, name: str) -> Variable:
        if name not in self:
            raise self.error(f"{name!r} is missing")
        return self._variables[self._aliases.get(name, name)]

    def _numbers(self, name: str) -> np.ndarray:
        """Read the numbers of a variable as they are stored."""
        variable = self._find(name)
        self._left.discard(name)
        dtype = np.dtype(_TYPES[variable.type])
        self._fields.file.seek(variable.at)
        data = self._fields.file.read(variable.size * dtype.itemsize)
        if len(data) != variable.size * dtype.itemsize:
            raise self.error(f"it ends inside of {name!r}")
        return np.frombuffer(data, dtype).reshape(variable.shape)

    def _finite(self, name: str, values: np.ndarray) -> None:
        if not np.isfinite(values).all():
            raise self.error(f"{name!r} holds NaN or infinity")


@contextmanager
def open_variables(path: Path) -> Iterator[Variables]:
    """Open a `model.bin`; its names and shapes are read and checked, its numbers when they are taken.

    Raises:
        CheckpointError: there is no such file, it is damaged, or of an unknown version.
    """
    with open_regular(path, MAX_WEIGHTS) as file:
        try:
            variables = Variables(path, FieldReader(file))
        except (struct.error, ValueError, OverflowError) as problem:
            what = "it ends too early" if isinstance(problem, struct.error) else problem
            raise CheckpointError(f"{path} is not a model of CTranslate2 as it should be: {what}", _HINT) from problem
        yield variables


def in_memory(folder: Path, names: Iterable[str]) -> dict[str, bytes]:
    """Return the content of files by name: given these, the library opens no other of the folder, such as `vmap.txt`.

    Raises:
        CheckpointError: one is missing, too large, or no regular file.
    """
    return {name: read_bytes(folder / name, MAX_WEIGHTS) for name in names}
