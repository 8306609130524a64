"""`glassformer export`: a run in the form of another library, compared with the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from glassformer.cli import flags
from glassformer.errors import UsageError
from glassformer.interop.choose import Choice, Target
from glassformer.utils import console
from glassformer.utils.formatting import glassformer_command


@dataclass(frozen=True)
class ExportArguments:
    """Write a run into the new folder OUT in the form of another library, load it there, and compare its answers.

    Without --to: what the run becomes in each library, or the setting in the way.
    """

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
    dry_run: bool = False
    """Print what would be written, and write nothing."""
    json: bool = False
    """Print one JSON object."""


def run(argv: Sequence[str]) -> int:
    """Run the command."""
    words, flag_args = flags.split_words(ExportArguments, argv, "export")
    arguments = flags.parse(ExportArguments, flag_args, "export RUN [OUT]")
    example = "as in: glassformer export runs/demo exported --to ctranslate2"
    if not words:
        raise UsageError("export takes a run folder", example)
    if arguments.to is not None and len(words) != 2 and not (arguments.dry_run and len(words) == 1):
        raise UsageError(f"export --to takes a run and a new folder, {len(words)} came", example)
    if arguments.to is None and len(words) != 1:
        raise UsageError("a folder is written for a library, and none is named", "add --to ctranslate2 (hf, onnx)")
    path = flags.run_folder(words[0])

    from glassformer.api import load
    from glassformer.interop.export import targets_of

    trained = load(path, device="cpu")
    if arguments.to is None:
        found = targets_of(trained, arguments.member)
        if arguments.json:
            console.write_json({name: _target_json(choice) for name, choice in found.items()})
        else:
            rows = [(name, *_target_row(choice)) for name, choice in found.items()]
            console.write_table(("library", "", "as", "notes"), rows)
        return 0
    result = trained.export(
        arguments.to,
        Path(words[-1]) if len(words) == 2 else Path("OUT"),
        quantization=arguments.quantization,
        member=arguments.member,
        license=arguments.license,
        dry_run=arguments.dry_run,
        allow_changed_data=arguments.allow_changed_data,
    )
    if arguments.json:
        console.write_json(result.to_json())
        return 0
    facts = result.facts
    console.write(
        f"{'would write' if arguments.dry_run else 'written'}  {result.out}: {facts.architecture}, {facts.dtype}"
    )
    for note in facts.notes:
        console.write(f"note     {note}")
    if not arguments.dry_run:
        console.write(f"check    {result.check_text()}")
        console.write(f'use it:  {glassformer_command("predict", result.out)} "…"')
    return 0


def _target_row(choice: Choice | UsageError) -> tuple[str, str, str]:
    if isinstance(choice, UsageError):
        return "no", "", f"{choice.message}; {choice.hint}" if choice.hint else choice.message
    return "yes", choice.architecture, "; ".join(choice.notes)


def _target_json(choice: Choice | UsageError) -> dict[str, Any]:
    if isinstance(choice, UsageError):
        return {"possible": False, "reason": choice.message, "hint": choice.hint}
    return {"possible": True, "architecture": choice.architecture, "notes": [*choice.notes]}
