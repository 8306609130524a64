"""`glassformer import` and `export`: a model of another library as a run, and a run in the form of another library.

Both compare the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal

from glassformer.cli.flags import Command, Result, run_folder, use_of
from glassformer.errors import UsageError
from glassformer.interop.choose import Target
from glassformer.utils import console


class Import(Command):
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

    def run(self) -> Iterator[Result]:
        if self.out is None:
            raise UsageError("import needs --out, the folder of the run to write", f"as in: {self.example}")
        from glassformer.interop.read import import_folder

        result = import_folder(self.words[0], self.out, self.max_len)
        source = result.model.source
        what = f"{result.out}: {result.model.task}, from {source.family} ({source.library})"
        checked = "not checked: the library that it came from is not installed"
        shown = {"written": what, "note": result.model.notes, "check": result.check.words if result.check else checked}
        yield (result.to_json(), console.lines_of(shown | {"use it": use_of(result.out, result.model.tokenizer)}))


class Export(Command):
    """Write a run into the new folder OUT in the form of another library, load it there, and compare its answers."""

    usage: ClassVar = "export RUN OUT"
    example: ClassVar = "export runs/demo exported --to ctranslate2"
    to: Target | None = None
    """Library to write for."""
    quantization: Literal["int8", "float16", "bfloat16"] | None = None
    """Numbers of the weights (ctranslate2); float32 when absent."""
    member: int | None = None
    """Model of an ensemble to export, counted from 0."""
    license: str | None = None
    """Identifier of a licence for the card, such as cc-by-4.0; none when absent."""
    allow_changed_data: bool = False
    """Compare on the run's data even if it has changed since training."""

    def run(self) -> Iterator[Result]:
        if self.to is None:
            raise UsageError("export needs --to, the library to write for", "one of: ctranslate2, hf, onnx")
        from glassformer.api import load

        trained, out = load(run_folder(self.words[0]), device="cpu"), Path(self.words[1])
        options = {name: getattr(self, name) for name in ("quantization", "member", "license", "allow_changed_data")}
        result = trained.export(self.to, out, **options)
        what = f"{result.out}: {result.facts.architecture}, {result.facts.dtype}"
        shown = {"written": what, "note": result.facts.notes, "check": result.check_text()}
        yield result.to_json(), console.lines_of(shown | {"use it": use_of(result.out, trained.task.tokenizer)})
