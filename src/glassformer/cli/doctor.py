"""`glassformer doctor`: what this machine offers, or what stands out in a run, with what to try."""

from __future__ import annotations

import os
import platform
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from glassformer import __version__
from glassformer.cli import flags
from glassformer.config.recipes import recipe_names
from glassformer.errors import UsageError
from glassformer.report.findings import EXAMINED, RULES, Checkup, check_run
from glassformer.report.run_record import load_run_record
from glassformer.runs.folder import RunFolder
from glassformer.utils import console
from glassformer.utils.formatting import counted


@dataclass(frozen=True)
class DoctorArguments:
    """Report on this machine, or on a run: NaN, overfitting, padding and more."""

    json: bool = False
    """Print one JSON object."""
    examine: bool = False
    """Load its weights too, and look at attention, units and the first loss on up to 16,000 validation tokens."""
    text_file: str | None = None
    """Texts to look at, a line each, in place of validation data: for an imported model, which has none."""


def run(argv: Sequence[str]) -> int:
    """Run the command."""
    words, flag_args = flags.split_words(DoctorArguments, argv, "doctor")
    if not words:
        arguments = flags.parse(DoctorArguments, flag_args, "doctor [RUN]")
        if arguments.examine or arguments.text_file:
            raise UsageError("no run is named to examine", "as in: glassformer doctor runs/imdb --examine")
        if arguments.json:
            console.write_json(machine())
        else:
            console.write_table(("what", "here"), list(machine().items()))
        return 0
    word = flags.one_word(words, "run folder", "doctor runs/imdb")
    if not Path(word).is_dir() and (word in recipe_names() or word.endswith(".toml")):
        raise UsageError(f"doctor takes a run folder, and {word} is a recipe", "as in: glassformer doctor runs/imdb")
    path = flags.run_folder(word)
    arguments = flags.parse(DoctorArguments, flag_args, f"doctor {word}")
    _write(_of_run(path, arguments), arguments.json, path)
    return 0


def _of_run(path: Path, arguments: DoctorArguments) -> Checkup:
    """Return what the folder shows, where it is no imported model or a copy without its run, and what its weights."""
    record = load_run_record(path, damaged_log=True) if RunFolder(path).resumable else None
    found = check_run(record) if record else Checkup(not_made=dict.fromkeys(RULES, "no log is here, only a model"))
    if arguments.text_file is not None:
        from glassformer.explain.examine import examine_texts

        reason, found = (
            "needs the run's own data, and a file is named",
            found + examine_texts(path, Path(arguments.text_file)),
        )
    elif not arguments.examine:
        reason = "needs the weights: --examine"
    elif record is None:
        reason = "the model was not trained here, so there is no log to compare with: name texts with --text-file"
    else:
        from glassformer.explain.examine import examine

        return found + examine(record)
    return found + Checkup(not_made=dict.fromkeys(EXAMINED, reason))


def _write(checkup: Checkup, as_json: bool, path: Path) -> None:
    """Print findings, how many checks were made, and why others were not."""
    if as_json:
        found = [asdict(finding) for finding in checkup.findings]
        console.write_json({"run": str(path), "diagnostics": found, "made": checkup.made, "not_made": checkup.not_made})
        return
    for finding in checkup.findings:
        console.write(f"{finding.grade.upper()}  {finding.place}: {finding.matter}")
        if finding.remedy:
            console.write(f"    try: {finding.remedy}")
    if checkup.made:
        rest = "" if checkup.findings else ", nothing stands out"
        console.write(f"{counted(len(checkup.made), 'checks')}{rest}")
    reasons = defaultdict[str, list[str]](list)
    for name, reason in checkup.not_made.items():
        reasons[reason].append(name)
    for reason, names in reasons.items():
        console.write(f"not made: {', '.join(names)} ({reason})")


def machine() -> dict[str, str]:
    """Return versions, processors, folders and the built-in data that is present."""
    import torch

    from glassformer.data.download import cache_dir
    from glassformer.utils.device import choose_device

    device = choose_device("auto")
    cache = cache_dir()
    existing = next(folder for folder in (cache, *cache.parents) if folder.exists())
    writable = existing.is_dir() and os.access(existing, os.W_OK)
    named = os.environ.get("GLASSFORMER_DATA", "")
    set_to = named if Path(named).is_dir() else f"{named} (no such folder)"
    places = [Path(folder) for folder in (named, cache / "data") if folder]
    names = ("imdb", "multi30k", "tinyshakespeare")  # only folders are looked at; reading one is the loader's
    folders = {name: [place / name for place in places if (place / name).is_dir()] for name in names}
    return {
        "glassformer": __version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "platform": platform.platform(),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "threads": f"{torch.get_num_threads()} of {os.cpu_count()} processors",
        "cache": f"{cache} ({'writable' if writable else 'NOT writable: set GLASSFORMER_CACHE'})",
        "GLASSFORMER_DATA": set_to if named else "not set",
        **{name: str([*at, "not here; fetched when a recipe needs it"][0]) for name, at in folders.items()},
    }
