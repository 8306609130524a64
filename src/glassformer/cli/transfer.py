"""`glassformer import` and `export`: a model of another library as a run, and a run in the form of another library.

Both compare the two.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from glassformer.cli import flags
from glassformer.cli.folders import run_folder
from glassformer.errors import UsageError
from glassformer.interop.choose import Target
from glassformer.utils import console
from glassformer.utils.formatting import glassformer_command

WIDTH = 100
"""Most characters of a line of notes."""


@dataclass(frozen=True)
class ImportArguments:
    """Write the pretrained model SOURCE as a run, and compare it with the library that it came from.

    SOURCE is a folder that save_pretrained of Hugging Face's transformers wrote, or one of CTranslate2.
    Neither a pickle nor code is read.
    """

    usage: ClassVar = "import SOURCE"
    example: ClassVar = "import all-MiniLM-L6-v2 --out runs/minilm"
    out: str | None = None
    """Folder of the run, new or empty."""
    max_len: int | None = None
    """Most tokens of a text; all positions of the model when absent."""
    json: bool = False
    """Print one JSON object."""


def run_import(given: flags.Given[ImportArguments]) -> None:
    """Run `glassformer import`."""
    arguments = given.arguments()
    if arguments.out is None:
        raise UsageError("import needs --out, the folder of the run to write", f"as in: {ImportArguments.example}")
    from glassformer.interop.read import import_folder

    result = import_folder(given.words[0], arguments.out, arguments.max_len)
    if arguments.json:
        console.write_json(result.to_json())
        return
    model = result.model
    console.write(f"written  {result.out}: {model.task}, from {model.source.family} ({model.source.library})")
    write_notes(model.notes)
    words = "not checked: the library that it came from is not installed"
    console.write(f"check    {result.check.words if result.check else words}")
    console.write(f'use it:  {glassformer_command("predict", result.out)} "…"')


def write_notes(notes: Any) -> None:
    """Print sentences, each begun with "note", in lines of at most WIDTH characters."""
    for note in notes:
        for line in textwrap.wrap(note, WIDTH, initial_indent="note     ", subsequent_indent=" " * 9):
            console.write(line)


@dataclass(frozen=True)
class ExportArguments:
    """Write a run into the new folder OUT in the form of another library, load it there, and compare its answers."""

    usage: ClassVar = "export RUN OUT"
    example: ClassVar = "export runs/demo exported --to ctranslate2"
    to: Target | None = None
    """Library to write for."""
    quantization: Literal["int8", "float16", "bfloat16"] | None = None
    """Numbers of the weights (ctranslate2); float32 when absent."""
    member: int | None = None
    """Model of an ensemble to export, counted from 1."""
    license: str | None = None
    """Identifier of a licence for the card, such as cc-by-4.0; none when absent."""
    allow_changed_data: bool = False
    """Compare on the run's data even if it has changed since training."""
    json: bool = False
    """Print one JSON object."""


def run_export(given: flags.Given[ExportArguments]) -> None:
    """Run `glassformer export`."""
    arguments, (word, out) = given.arguments(), given.words
    if arguments.to is None:
        raise UsageError("export needs --to, the library to write for", "one of: ctranslate2, hf, onnx")
    from glassformer.api import load

    trained = load(run_folder(word), device="cpu")
    options = {name: getattr(arguments, name) for name in ("quantization", "member", "license")}
    allow = arguments.allow_changed_data
    result = trained.export(arguments.to, Path(out), allow_changed_data=allow, **options)
    if arguments.json:
        console.write_json(result.to_json())
        return
    console.write(f"written  {result.out}: {result.facts.architecture}, {result.facts.dtype}")
    write_notes(result.facts.notes)
    console.write(f"check    {result.check_text()}")
    console.write(f'use it:  {glassformer_command("predict", result.out)} "…"')
