"""`glassformer doctor`: what this machine offers, or what stands out in a run, with what to try."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from glassformer import __version__
from glassformer.cli import flags
from glassformer.report.diagnosis import diagnose
from glassformer.report.run_record import load_run_record
from glassformer.utils import console


@dataclass(frozen=True)
class DoctorArguments:
    """Report on this machine, or on a run: NaN, overfitting, padding, unknown words and more."""

    json: bool = False
    """Print one JSON object."""


def run(argv: Sequence[str]) -> int:
    """Run the command."""
    words, flag_args = flags.split_words(DoctorArguments, argv, "doctor")
    arguments = flags.parse(DoctorArguments, flag_args, "doctor [RUN]")
    if words:
        path = flags.run_folder(flags.one_word(words, "run folder", "doctor runs/imdb"))
        diagnostics = diagnose(load_run_record(path))
        if arguments.json:
            console.write_json({"run": str(path), "diagnostics": [asdict(finding) for finding in diagnostics]})
        else:
            lines = [
                finding.matter + (f"\n    try: {finding.remedy}" * bool(finding.remedy)) for finding in diagnostics
            ]
            console.write("\n".join(lines or ["nothing stands out"]))
    elif arguments.json:
        console.write_json(machine())
    else:
        console.write_table(("what", "here"), list(machine().items()))
    return 0


def machine() -> dict[str, str]:
    """Return versions, processors, precision, folders and the built-in data that is present."""
    import torch

    from glassformer.data.download import cache_dir
    from glassformer.utils.device import choose_device, choose_precision

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
        "precision": choose_precision("auto", device),
        "threads": f"{torch.get_num_threads()} of {os.cpu_count()} processors",
        "cache": f"{cache} ({'writable' if writable else 'NOT writable: set GLASSFORMER_CACHE'})",
        "GLASSFORMER_DATA": set_to if named else "not set",
        **{name: str([*at, "not here; fetched when a recipe needs it"][0]) for name, at in folders.items()},
    }
