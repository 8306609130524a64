"""The folder of several runs that differ in their seed alone: `seed-1/`, `seed-2/`, … and what was asked for.

Each of them is a run folder like any other. What is said of them together is `report/seeds.py`'s; training them is
`glassformer/seeds.py`'s. It imports no torch.
"""

from __future__ import annotations

from pathlib import Path

from glassformer.config import Config
from glassformer.config.recipes import config_from_dict, config_to_dict
from glassformer.errors import CheckpointError, UsageError
from glassformer.runs.folder import SEEDS, RunFolder
from glassformer.runs.records import Evaluation, is_of_type
from glassformer.utils import atomic_io, safe_read
from glassformer.utils.safe_read import LIMITS


class SeedsFolder:
    """Several runs on disk; making one touches nothing."""

    def __init__(self, path: Path | str) -> None:
        self.path = path = Path(path)
        self.seeds_file = path / SEEDS  # written before the first run, so that all of them can go on
        self.ensemble = path / "ensemble.json"  # scores of all runs as one
        self.report, self.report_json = RunFolder(path).report, RunFolder(path).report_json

    @property
    def exists(self) -> bool:
        return self.seeds_file.is_file()

    def run(self, seed: int) -> RunFolder:
        return RunFolder(self.path / f"seed-{seed}")

    def begin(self, config: Config, seeds: list[int]) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        atomic_io.write_json(self.seeds_file, {"seeds": seeds, "config": config_to_dict(config)})

    def read(self) -> tuple[Config, list[int]]:
        """Read the configuration and the seeds to train; raise CheckpointError if the file is damaged."""
        value = safe_read.read_json_object(self.seeds_file, LIMITS["settings"])
        try:
            seeds = value["seeds"]
            if not is_of_type(seeds, list[int]) or not seeds or len({*seeds}) < len(seeds):
                raise ValueError("no list of seeds")
            return config_from_dict(value["config"], str(self.seeds_file), of_a_run=True), seeds
        except (TypeError, KeyError, ValueError, UsageError) as error:
            raise CheckpointError(f"{self.seeds_file} does not say which seeds of what to train") from error

    @property
    def finished(self) -> list[RunFolder]:
        return [run for seed in self.read()[1] if (run := self.run(seed)).finished]

    def write_ensemble(self, evaluation: Evaluation) -> None:
        atomic_io.write_json(self.ensemble, evaluation.as_json())

    def read_ensemble(self) -> Evaluation | None:
        at = self.ensemble
        return Evaluation.from_json(safe_read.read_json(at), at) if at.exists() else None

    @property
    def best(self) -> RunFolder:
        """Return the run with the best validation, as the report names it.

        Raises:
            CheckpointError: not all seeds are finished.
        """
        name = safe_read.read_json_object(self.report_json).get("best") if self.report_json.exists() else None
        runs = [self.run(seed) for seed in self.read()[1]]
        if name is None:
            begun = [run.path for run in runs if run.model_folder]
            one = f"; or name one that is finished: {begun[0]}" if begun else ""
            hint = f"go on with: {RunFolder(self.path).resume_command}{one}"
            raise CheckpointError(f"{self.path} holds several seeds, and not all of them are trained", hint)
        if found := [run for run in runs if run.path.name == name]:
            return found[0]
        raise CheckpointError(f"{self.report_json} names a best run that is none of the {len(runs)} seeds")
