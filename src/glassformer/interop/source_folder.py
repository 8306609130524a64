"""Read a folder that another library wrote, as data of a stranger: JSON and safetensors alone, of bounded size.

No pickle and no code is read. A file must be a regular file of the folder itself, not a link, and a name in an index of
shards must be the name of a file in the same folder. What a header says of a file of weights is compared with the size
of the file, so that no more memory is taken than the files have bytes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer.errors import CheckpointError, UsageError
from glassformer.runs.model_folder import read_shapes, read_tensors
from glassformer.utils.safe_read import LIMITS, parse_json, read_bytes, sha256_regular

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.bin", "model.pt", "model.pth")
MAX_SHARDS = 256
_FACT = re.compile(
    r"^(license|base_model|model_name):[ ]*(?:\n[ ]*-[ ]*)?['\"]?([\w./+-]{1,100})['\"]?[ ]*$", re.MULTILINE
)
_TITLE = re.compile(r"[\w./-]{1,193}")
GENERIC_NAMES = {"model", "models", "best", "best_model", "final", "output", "out", "export", "hf", "checkpoint"}
"""Names of folders that do not tell a model from others."""
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
        """Return the content of a small file."""
        path = self.file(name)
        self.hashes[name] = sha256_regular(path, LIMITS[limit])
        return read_bytes(path, LIMITS[limit])

    def json(self, name: str, limit: str = "record") -> dict[str, Any]:
        """Return the JSON object of a file."""
        value = parse_json(self.bytes(name, limit), self.path / name)
        if not isinstance(value, dict):
            raise CheckpointError(f"{self.path / name} should hold a JSON object")
        return value

    def json_if_there(self, name: str) -> dict[str, Any]:
        """Return the JSON object of a file; an empty one where there is no file."""
        return self.json(name) if self.has(name) else {}

    def modules(self, name: str) -> list[tuple[str, str]]:
        """Return the kind and the folder of each module of sentence-transformers, in the order of the file."""
        value = parse_json(self.bytes(name), self.path / name)
        rows = [(m.get("type"), m.get("path")) for m in value if isinstance(m, dict)] if isinstance(value, list) else []
        if not rows or len(rows) != len(value) or not all(isinstance(one, str) for row in rows for one in row):
            raise CheckpointError(f"{self.path / name} should list modules, each with its type and path")
        return [(str(kind).rpartition(".")[2], str(path)) for kind, path in rows]

    def card_facts(self) -> dict[str, str]:
        """Return "license" and "base_model" of the metadata of the card, where it has them; of a list the first."""
        return {name: value for name, value in _FACT.findall(self._card()[0]) if name != "model_name"}

    def name(self) -> str:
        """Return the name that the card's metadata give the model, or its heading where that can be a name.

        Else it is that of the folder, with the one above where it is a generic one.
        """
        (metadata, text), path = self._card(), self.path.resolve()
        title = next((line[2:].strip() for line in text.splitlines() if line.startswith("# ")), "")
        stated = dict(_FACT.findall(metadata)).get("model_name", "")
        if stated or ("-" in title and _TITLE.fullmatch(title)):
            return stated or title
        generic = path.name.lower() in GENERIC_NAMES or path.name.lower().startswith("checkpoint-")
        return f"{path.parent.name}/{path.name}" if generic and path.parent.name else path.name

    def _card(self) -> tuple[str, str]:
        """Return the metadata of the card and its text, both empty where there is none."""
        card = self.bytes("README.md", "text").decode("utf-8", "replace") if self.has("README.md") else ""
        card = card.replace("\r\n", "\n")
        if card[:3] != "---":
            return "", card
        metadata, _, text = card.partition("---\n")[2].partition("\n---")
        return metadata, text

    def tensors(self) -> SourceTensors:
        """Read all weights, each of which is to be taken; raise CheckpointError as `weights` does."""
        return SourceTensors(self.weights(), self.path)

    def weights(self) -> dict[str, Tensor]:
        """Read all weights by name.

        Raises:
            CheckpointError: there are none in safetensors, a shard is missing or damaged, or a name is in two shards.
        """
        found: dict[str, Tensor] = {}
        for name in self._weight_files():
            path = self.file(name)
            read_shapes(path)  # a header that describes other than the bytes of the file is refused before memory
            self.hashes[name] = sha256_regular(path)
            for tensor_name, tensor in read_tensors(read_bytes(path, LIMITS["weights"]), path).items():
                if tensor_name in found:
                    raise CheckpointError(f"{path}: the tensor {tensor_name[:80]} is in another file, too")
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
        places = self.json(INDEX).get("weight_map")
        if not isinstance(places, dict) or not places or not all(isinstance(name, str) for name in places.values()):
            raise CheckpointError(f"{self.path / INDEX} should name the file of each tensor")
        names = sorted({*places.values()})
        if odd := next((n for n in names if Path(n).name != n or not n.endswith(".safetensors")), None):
            raise CheckpointError(f"{self.path / INDEX} names {odd[:80]!r}, which is no file of the same folder")
        if len(names) > MAX_SHARDS:
            raise CheckpointError(f"{self.path / INDEX} names {len(names):,} files, more than {MAX_SHARDS}")
        return names


class SourceTensors:
    """The tensors of a source; each is taken once, or named as left out.

    Args:
        tensors: all of them by name.
        where: the folder, for messages.
    """

    def __init__(self, tensors: Mapping[str, Tensor], where: object) -> None:
        self._rest, self._where = dict(tensors), where
        self.left_out: list[str] = []

    def __contains__(self, name: str) -> bool:
        return name in self._rest

    @property
    def names(self) -> list[str]:
        """Return the names that were neither taken nor left out."""
        return sorted(self._rest)

    def take(self, name: str, shape: Iterable[int] | None = None) -> Tensor:
        """Return a tensor in float32.

        Raises:
            CheckpointError: it is missing, was taken before, has another shape, or no floating-point numbers.
        """
        if name not in self._rest:
            raise CheckpointError(f"{self._where} lacks the tensor {name[:80]}", "use another copy of the model")
        tensor = self._rest.pop(name)
        if shape is not None and tuple(tensor.shape) != tuple(shape):
            expected = tuple(shape)
            message = f"{self._where}: the tensor {name} should have shape {expected}, not {tuple(tensor.shape)}"
            raise CheckpointError(message)
        if tensor.dtype not in FLOATS:
            kind = str(tensor.dtype).removeprefix("torch.")
            raise CheckpointError(
                f"{self._where}: the tensor {name} has numbers of the type {kind}", "use float weights"
            )
        return tensor.float()

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor, which is not taken."""
        return tuple(self._rest[name].shape) or (0,)

    def leave_out(self, *starts: str) -> list[str]:
        """Leave out the tensors whose names begin with one of the starts; return their names."""
        names = [name for name in self.names if name.startswith(starts)]
        for name in names:
            del self._rest[name]
        self.left_out += names
        return names

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
            n, name = len(self._rest), min(self._rest)
            size = math.prod(self._rest[name].shape)
            more = f" and {n - 1} more tensors" if n > 1 else ""
            message = f"{self._where} holds the tensor {name[:80]} of {size:,} numbers{more}, which no part here has"
            raise CheckpointError(message, "it is a model of another kind than its config.json says")
