"""Read a folder that another library wrote, as data of a stranger: JSON and safetensors alone, of bounded size.

No pickle and no code is read. A file must be a regular file of the folder itself, not a link, and a name in an index of
shards must be the name of a file in the same folder. What a header says of a file of weights is compared with the size
of the file, so that no more memory is taken than the files have bytes.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer.errors import CheckpointError, UsageError
from glassformer.runs.model_folder import read_shapes, read_tensors
from glassformer.utils.safe_read import LIMITS, from_json, open_regular, read_bytes

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.bin", "model.pt", "model.pth")
_FACT = re.compile(r"^(license|base_model):[ ]*(?:\n[ ]*-[ ]*)?['\"]?([\w./+-]{1,100})['\"]?[ ]*$", re.MULTILINE)
MOST_HEADER = 4 << 20
"""Bytes that describe the tensors of a file: those of 30,000."""
MAX_BYTES = 16 << 30
"""Most bytes of all files of weights: those of 2³² numbers of 32 bits."""
FLOATS = {torch.float32, torch.float16, torch.bfloat16, torch.float64}


class SourceFolder:
    """A folder of another library; `hashes` are the SHA-256 of the files that were read."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.hashes: dict[str, str] = {}
        if not self.path.is_dir():
            hint = "name the folder of a model; one of a hub is fetched by: hf download ORG/NAME --local-dir FOLDER"
            raise UsageError(f"{self.path} is not a folder", hint)

    def has(self, name: str) -> bool:
        """Return whether there is something of this name."""
        return (self.path / name).exists() or (self.path / name).is_symlink()

    def file(self, name: str) -> Path:
        """Return the path of a file that is to be read; raise CheckpointError for a link."""
        path = self.path / name
        for part in (path, *path.parents[: len(Path(name).parts) - 1]):
            if part.is_symlink():
                raise CheckpointError(f"{part} is a link", "copy the folder with what its links lead to: cp -rL")
        return path

    def bytes(self, name: str, limit: str = "record") -> bytes:
        """Return the content of a file."""
        data = read_bytes(self.file(name), LIMITS[limit])
        self.hashes[name] = hashlib.sha256(data).hexdigest()
        return data

    def json(self, name: str, limit: str = "record") -> dict[str, Any]:
        """Return the JSON object of a file."""
        return from_json(dict[str, Any], self.bytes(name, limit), self.path / name)

    def json_if_there(self, name: str) -> dict[str, Any]:
        """Return the JSON object of a file; an empty one where there is no file."""
        return self.json(name) if self.has(name) else {}

    def modules(self, name: str) -> list[tuple[str, str]]:
        """Return the kind and the folder of each module of sentence-transformers, in the order of the file."""
        found = from_json(list[dict[str, Any]], self.bytes(name), self.path / name)
        return [(str(module.get("type")).rpartition(".")[2], str(module.get("path"))) for module in found]

    def card_facts(self) -> dict[str, Any]:
        """Return "license" and "base_model" of the metadata of the card, where it has them; of a list the first."""
        card = self.bytes("README.md", "text").decode("utf-8", "replace") if self.has("README.md") else ""
        card = card.replace("\r\n", "\n")
        return dict(_FACT.findall(card.split("\n---", 1)[0])) if card.startswith("---\n") else {}

    @property
    def name(self) -> str:
        """Return the name of the folder."""
        return self.path.resolve().name

    def weights(self) -> dict[str, Tensor]:
        """Read all weights by name.

        Raises:
            CheckpointError: there are none in safetensors, a shard is missing or damaged, or a name is in two shards.
        """
        found, room = dict[str, Tensor](), MAX_BYTES
        for name in self._weight_files():
            with open_regular(self.file(name), room) as file:
                room -= os.fstat(file.fileno()).st_size
                if int.from_bytes(file.read(8), "little") > MOST_HEADER:
                    raise CheckpointError(f"{self.path / name} is not a sound safetensors file: a header too large")
            read_shapes(self.file(name))  # a header that describes other than the bytes of the file is refused first
            for tensor_name, tensor in read_tensors(self.bytes(name, "weights"), self.path / name).items():
                if tensor_name in found:
                    raise CheckpointError(f"{self.path / name}: the tensor {tensor_name[:80]!r} is in two files")
                found[tensor_name] = tensor
        return found

    def _weight_files(self) -> list[str]:
        if self.has(WEIGHTS):
            return [WEIGHTS]
        if not self.has(INDEX):
            if pickle := next((name for name in PICKLES if self.has(name)), None):
                hint = "where you trust it, load it with transformers, whose save_pretrained writes safetensors"
                raise CheckpointError(f"{self.path / pickle} is a pickle, which can run code and is never read", hint)
            raise CheckpointError(f"{self.path} holds no {WEIGHTS}", "give the folder that save_pretrained wrote")
        places = from_json(dict[str, str], self.json(INDEX).get("weight_map"), self.path / INDEX)
        names = sorted({*places.values()})
        if odd := next((n for n in names if Path(n).name != n or not n.endswith(".safetensors")), None):
            raise CheckpointError(f"{self.path / INDEX} names {odd[:80]!r}, which is no file of the same folder")
        return names


class SourceTensors:
    """The tensors of a source; each is taken once, or named as left out.

    Args:
        tensors: all of them by name.
        where: the folder, for messages.
    """

    def __init__(self, tensors: Mapping[str, Tensor], where: object) -> None:
        self._rest, self._where = dict(tensors), where

    def __contains__(self, name: str) -> bool:
        return name in self._rest

    def __len__(self) -> int:
        return len(self._rest)

    def take(self, name: str) -> Tensor:
        """Return a tensor in float32.

        Raises:
            CheckpointError: it is missing, was taken before, or has no floating-point numbers.
        """
        if name not in self._rest:
            raise CheckpointError(f"{self._where} lacks the tensor {name[:80]}", "use another copy of the model")
        tensor = self._rest.pop(name)
        if tensor.dtype not in FLOATS:
            kind = str(tensor.dtype).removeprefix("torch.")
            raise CheckpointError(f"{self._where}: the tensor {name} has numbers of the type {kind}, and no floats")
        return tensor.float()

    def leave_out(self, name: str) -> None:
        """Leave out a tensor, where it is there."""
        self._rest.pop(name, None)

    def rename(self, old: str, new: str) -> None:
        """Replace a part of all names."""
        self._rest = {name.replace(old, new): tensor for name, tensor in self._rest.items()}

    def without_prefix(self, prefix: str) -> None:
        """Remove a prefix from the names that have it."""
        self._rest = {name.removeprefix(prefix): tensor for name, tensor in self._rest.items()}

    def finish(self) -> None:
        """Refuse a tensor that was neither taken nor left out.

        Raises:
            CheckpointError: it is named.
        """
        if self._rest:
            name = min(self._rest)
            more = f" and {n} more tensors" if (n := len(self._rest) - 1) else ""
            size = math.prod(self._rest[name].shape)
            message = f"{self._where} holds the tensor {name[:80]!r} of {size:,} numbers{more}, which no part here has"
            raise CheckpointError(message, "it is a model of another kind than its config.json says")
