"""Where the weights of a run began, if they are those of an imported model; read back from the model folder.

`interop/imported.py` writes the record into `model/config.json`. Fine-tuning copies it, so that the licence and the
model that the weights were made from are on the card of every run and of every export that descends from an import.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from glassformer.runs.model_folder import read_description
from glassformer.runs.records import JsonObject
from glassformer.utils.formatting import cell_text, code
from glassformer.utils.safe_read import dataclass_from_json

IMPORT = "import"
"""Key of the record in `model/config.json`, and in the record of the run that a run begins from (`DataRecord.base`)."""
_LICENSE = re.compile(r"[\w.+-]{1,100}")
_MODEL = re.compile(r"[\w.-]{1,96}(/[\w.-]{1,96})?")


@dataclass(frozen=True)
class Origin:
    """The record of an import.

    Attributes:
        library: whose format it was: "transformers", "ctranslate2".
        family: the kind of model there.
        name: the name of the folder, or that of its card.
        files: SHA-256 of each file that was read, by name.
        license: the identifier of its licence; empty where its card states none.
        base_model: the model that it was made from, as its card says; empty where it says none.
        task: the task that it was imported as.
        notes: what was repeated, permuted or folded, and what was left out.
        check: the comparison with the library; None if it was not made.
    """

    library: str
    family: str
    name: str
    files: dict[str, str] = field(default_factory=dict)
    license: str = ""
    base_model: str = ""
    task: str = ""
    notes: list[str] = field(default_factory=list)
    check: dict[str, Any] | None = None

    @classmethod
    def from_json(cls, value: object, where: Path | str) -> Origin | None:
        """Return the record; None where there is none. Anything else is a CheckpointError that names `where`."""
        return None if value is None else dataclass_from_json(cls, value, f"{where}: {IMPORT}")

    def as_json(self) -> JsonObject:
        """Return the record as JSON data."""
        return asdict(self)

    def front_matter(self, license: str | None = None) -> list[str]:
        """Return the lines on licence and base model for the metadata of a card, as model hubs read them.

        A value that is no identifier is left out. `license` stands for another licence than that of the source.
        """
        chosen = license or self.license
        lines = [f"license: {chosen}"] if _LICENSE.fullmatch(chosen) else []
        return lines + ([f"base_model: {self.base_model}"] if _MODEL.fullmatch(self.base_model) else [])

    @property
    def title(self) -> str:
        """Return which model it is, for a sentence in Markdown."""
        return f"{code(self.name)} ({cell_text(self.family)} in the format of {cell_text(self.library)})"

    def changes(self) -> str:
        """Return what was changed as it was imported, as a list in Markdown; empty if nothing was."""
        return "\n".join(f"- {cell_text(note, 1000)}" for note in self.notes)

    def source(self) -> list[str]:
        """Return the paragraphs on the files of the source and its licence."""
        hashes = "\n".join(f"- {code(name)}: SHA-256 {cell_text(sha)}" for name, sha in sorted(self.files.items()))
        base = f" It was made from {code(self.base_model)}." if self.base_model else ""
        licence = f"Licence of the source: {cell_text(self.license) or 'not stated'}.{base}"
        return [*([hashes] if hashes else []), licence]

    def of_descendant(self) -> list[str]:
        """Return the paragraphs of the card of a run that began with these weights."""
        parts = [f"Its weights began as those of {self.title}."]
        if changes := self.changes():
            parts += ["Changed as they were imported:", changes]
        return [*parts, *self.source()]


def read_origin(model_folder: Path) -> Origin | None:
    """Return the record of an import in a model folder; None where its weights began at random.

    Raises:
        CheckpointError: the folder is damaged, or the record is none.
    """
    config, _ = read_description(model_folder)
    return Origin.from_json(config.get(IMPORT), model_folder)
