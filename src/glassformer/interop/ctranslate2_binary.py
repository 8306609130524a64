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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.errors import CheckpointError
from glassformer.interop.export_facts import MAX_WEIGHTS
from glassformer.utils.safe_read import open_regular

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
HINT = "copy the folder whole, or convert the model again"


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

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return NumPy's type of them as they are stored."""
        return np.dtype(_TYPES[self.type])


class Variables:
    """The variables of a file by name.

    Attributes:
        spec: name of the model's specification, such as "TransformerSpec".
        revision: of the specification: which names it uses.
    """

    def __init__(self, path: Path, file: BufferedReader) -> None:
        self.path, self._file, self._size = path, file, os.fstat(file.fileno()).st_size
        [version] = self._read("I")
        require(version in VERSIONS, f"its version is {version}, and {VERSIONS[0]} to {VERSIONS[-1]} are known")
        self.version: int = version
        self.spec = self._name()
        [self.revision] = self._read("I")
        self._variables = self._read_index()
        self._aliases = self._read_aliases() if version >= 3 else {}
        require(file.tell() == self._size, f"{self._size - file.tell()} bytes follow its variables")
        stored = sum(variable.size for variable in self._variables.values())
        repeated = sum(self._variables[name].size for name in self._aliases.values())
        require(repeated <= MAX_REPEATS * stored, f"second names repeat its {stored:,} numbers {repeated:,} times")

    def _read(self, layout: str) -> tuple[Any, ...]:
        """Return numbers, little-endian, in a layout of `struct`."""
        layout = f"<{layout}"
        return struct.unpack(layout, self._file.read(struct.calcsize(layout)))

    def _name(self) -> str:
        [n_bytes] = self._read("H")
        require(n_bytes <= MAX_NAME, f"a text of {n_bytes} bytes")
        name = self._file.read(n_bytes)[:-1].decode("utf-8")
        # With letters, digits and few marks alone it can be printed.
        require(name.isascii() and name.replace("/", "").isidentifier(), f"{name[:80]!r} is no name of a variable")
        return name

    def _read_index(self) -> dict[str, Variable]:
        found = dict[str, Variable]()
        [n_variables] = self._read("I")
        require(n_variables <= MAX_VARIABLES, f"it names {n_variables:,} variables")
        for _ in range(n_variables):
            name, [n_axes] = self._name(), self._read("B")
            require(name not in found, f"{name!r} is in it twice")
            require(n_axes <= MAX_AXES, f"{name!r} has {n_axes} axes")
            shape = self._read(f"{n_axes}I")
            kind, n = self._read("BI")  # before version 4 the width of a number, and how many there are
            if self.version < 4:
                require(kind in _OF_WIDTH, f"{name!r} has numbers of {kind} bytes")
                kind, n = _OF_WIDTH[kind], n * kind
            require(kind < len(_TYPES), f"{name!r} is of the unknown type {kind}")
            variable = Variable(self._file.tell(), shape, kind)
            expected = variable.size * variable.dtype.itemsize
            require(n == expected, f"{name!r} has {n:,} bytes, and {list(shape)} needs {expected:,}")
            require(variable.at + n <= self._size, f"it ends inside of {name!r}")
            self._file.seek(n, os.SEEK_CUR)
            found[name] = variable
        return found

    def _read_aliases(self) -> dict[str, str]:
        """Return the variable of each second name."""
        [n_aliases] = self._read("I")
        require(n_aliases <= MAX_VARIABLES, f"it has {n_aliases:,} second names")
        found = dict[str, str]()
        for _ in range(n_aliases):
            alias, name = self._name(), self._name()
            require(alias not in self._variables and alias not in found, f"{alias!r} is in it twice")
            require(name in self._variables, f"{alias!r} is a second name of {name!r}, which is missing")
            found[alias] = name
        return found

    def __contains__(self, name: str) -> bool:
        return name in self._variables or name in self._aliases

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
        stored, kind = self._numbers(name), self._find(name).type
        if kind in (1, 2):
            scale_name = f"{self._aliases.get(name, name)}_scale"
            values = self._unscaled(name, stored, scale_name if scale_name in self else f"{name}_scale")
        elif kind == _BFLOAT16:
            values = (stored.astype(np.uint32) << 16).view(np.float32)
        elif kind in (0, 4):
            values = stored.astype(np.float32)
        else:
            raise self.error(f"{name!r} holds whole numbers, where weights are expected")
        return self._finite(name, values)

    def _unscaled(self, name: str, stored: np.ndarray, scale_name: str) -> np.ndarray:
        scale = np.array(INT16_SCALE, np.float32)
        if scale_name in self:
            scale = self._numbers(scale_name)
        elif stored.dtype != np.int16:
            raise self.error(f"{name!r} is in {stored.dtype}, and {scale_name!r} is missing")
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
        return float(self._finite(name, value).reshape(()))

    def text(self, name: str, default: str) -> str:
        """Return a text, or the default where it is missing."""
        if name not in self:
            return default
        value = self._numbers(name)
        if value.dtype != np.int8 or value.size > MAX_NAME:
            raise self.error(f"{name!r} is no short text")
        return value.tobytes().decode("utf-8", "replace")

    def error(self, what: str) -> CheckpointError:
        """Return the error of a file with something wrong in it."""
        return CheckpointError(f"{self.path} is not a model of CTranslate2 as it should be: {what}", HINT)

    def _find(self, name: str) -> Variable:
        if name not in self:
            raise self.error(f"{name!r} is missing")
        return self._variables[self._aliases.get(name, name)]

    def _numbers(self, name: str) -> np.ndarray:
        """Read the numbers of a variable as they are stored."""
        variable = self._find(name)
        self._file.seek(variable.at)
        data = self._file.read(variable.size * variable.dtype.itemsize)
        if len(data) != variable.size * variable.dtype.itemsize:
            raise self.error(f"it ends inside of {name!r}")
        return np.frombuffer(data, variable.dtype).reshape(variable.shape)

    def _finite(self, name: str, values: np.ndarray) -> np.ndarray:
        if not np.isfinite(values).all():
            raise self.error(f"{name!r} holds NaN or infinity")
        return values


@contextmanager
def open_variables(path: Path) -> Iterator[Variables]:
    """Open a `model.bin`; its names and shapes are read and checked, its numbers when they are taken.

    Raises:
        CheckpointError: there is no such file, it is damaged, or of an unknown version.
    """
    with open_regular(path, MAX_WEIGHTS) as file:
        try:
            variables = Variables(path, file)
        except (struct.error, ValueError, OverflowError) as problem:
            what = "it ends too early" if isinstance(problem, struct.error) else problem
            raise CheckpointError(f"{path} is not a model of CTranslate2 as it should be: {what}", HINT) from problem
        yield variables
