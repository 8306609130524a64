# ruff: noqa: N999  # the module of a command has its name, and none imports it with a statement
"""`glassformer import`: a pretrained model of another library as a run, compared with that library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from glassformer.cli import flags
from glassformer.errors import UsageError
from glassformer.utils import console
from glassformer.utils.formatting import glassformer_command


@dataclass(frozen=True)
class ImportArguments:
    """Write the pretrained model SOURCE as a run, and compare it with the library that it came from.

    SOURCE is a folder that save_pretrained of Hugging Face's transformers wrote, or one of CTranslate2.
    Neither a pickle nor code is read.
    """

    out: str | None = None
    """Folder of the run, new or empty."""
    max_len: int | None = None
    """Most tokens of a text; all positions of the model when absent."""
    json: bool = False
    """Print one JSON object."""


def run(argv: Sequence[str]) -> int:
    """Run the command."""
    words, flag_args = flags.split_words(ImportArguments, argv, "import")
    arguments = flags.parse(ImportArguments, flag_args, "import SOURCE --out RUN")
    example = "as in: glassformer import all-MiniLM-L6-v2 --out runs/minilm"
    if len(words) != 1:
        raise UsageError(f"import takes one folder, and {len(words)} came", example)
    if arguments.out is None:
        raise UsageError("import needs --out, the folder of the run to write", example)

    from glassformer.interop.read import import_folder

    result = import_folder(words[0], arguments.out, arguments.max_len)
    if arguments.json:
        console.write_json(result.to_json())
        return 0
    model = result.model
    console.write(f"written  {result.out}: {model.task}, from {model.source.family} ({model.source.library})")
    for note in model.notes:
        console.write(f"note     {note}")
    if result.check is None:
        console.write("check    not checked: the library that it came from is not installed")
    else:
        console.write(f"check    {result.check.words}")
    console.write(f'use it:  {glassformer_command("predict", result.out)} "…"')
    return 0
