"""`glassformer data curve`: would more data help? The score of a run by the size of its training data."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from glassformer.cli import flags
from glassformer.errors import UsageError
from glassformer.utils import console

logger = logging.getLogger(__name__)

USAGE = "data curve runs/mine"


@dataclass(frozen=True)
class CurveArguments:
    """Train a run again on a quarter and on half of its data, and forecast its score for twice as much.

    Works for classifiers, regressors, taggers and translators. The runs and a report go to RUN/learning-curve;
    repeated, it continues.
    """

    seeds: int = 1
    """Number of runs of each size, which differ in their seed; the run itself is one of them."""
    json: bool = False
    """Print one JSON object."""


def run(argv: Sequence[str]) -> int:
    """Run the command with the arguments after its name."""
    words, flag_args = flags.split_words(CurveArguments, argv, "data curve")
    arguments = flags.parse(CurveArguments, flag_args, "data curve RUN")
    path = flags.run_folder(flags.one_word(words, "run", USAGE))
    if arguments.seeds < 1:
        raise UsageError(f"--seeds must be 1 or more, got {arguments.seeds}", "leave it out for one run of each size")

    from glassformer.runs.folder import RunFolder
    from glassformer.tasks import task_class
    from glassformer.training.learning_curve import FOLDER, curve_rows, curve_sentence, learning_curve
    from glassformer.training.progress import TrainingProgress

    found = learning_curve(path, arguments.seeds, TrainingProgress())
    if arguments.json:
        console.write_json(found)
    else:
        known = task_class(RunFolder(path).read_config().task).report.metric(found["metric"])
        console.write_table(("examples", known.title, found["interval"], "runs"), curve_rows(found, known))
        console.write("")
        console.write(curve_sentence(found, known))
    logger.info(f"report: {RunFolder(path / FOLDER).report}")
    return 0
