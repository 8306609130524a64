"""Would more data help? Train a run again on parts of its data, and forecast its score for twice as much.

Every part is a run in the folder `learning-curve` of the first, with its settings but for the number of examples and
what is chosen from that; the same command continues an interrupted one. All are scored on the same validation examples.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from glassformer.config import Config
from glassformer.config.recipes import load_recipe, recipe_names
from glassformer.data.findings import FEW
from glassformer.data.splits import Split, TextData
from glassformer.errors import DataError, Interrupted, UsageError
from glassformer.evaluate.learning_curve import Counted, forecast
from glassformer.evaluate.metrics import Metric
from glassformer.models.bf16 import cast_for_inference
from glassformer.runs.folder import RunFolder
from glassformer.runs.model_folder import load_weights
from glassformer.runs.records import JsonObject
from glassformer.runs.run_data import load_run_data
from glassformer.tasks import task_class
from glassformer.tasks.restoring import load_model_folder
from glassformer.training.computing import computing_of
from glassformer.training.multi_seed import train_or_resume
from glassformer.training.trainer import OnStep
from glassformer.utils.atomic_io import atomic_write_text, write_json
from glassformer.utils.device import choose_device, tuned
from glassformer.utils.formatting import cell_text, counted, table

logger = logging.getLogger(__name__)

PARTS = (4, 2, 1)
"""What the training data is divided by."""
FEWEST = 100
"""Training examples from which a quarter of them is worth a run."""
FOLDER = "learning-curve"


def learning_curve(path: Path, seeds: int = 1, on_step: OnStep | None = None) -> JsonObject:
    """Train on a quarter and half of a run's data, write report.md and report.json, and return what they say.

    Args:
        path: the folder of a finished run.
        seeds: runs of each size, which differ in their seed; the run itself is one of them.
        on_step: called with the metrics of each step.

    Raises:
        UsageError: the task has no single examples with answers, or the run is not finished.
        DataError: the data is not there, has changed since, or is little.
        Interrupted: a signal came; what was trained is kept.
    """
    whole, config = RunFolder(path), RunFolder(path).read_config()
    task = task_class(config.task)
    if not whole.finished:
        raise UsageError(f"{path} is not trained to its end", f"resume it with: {whole.resume_command}")
    data = load_run_data(path, task.schema, config.data, allow_changed=None).text
    if data.train.answer is None:
        raise UsageError(f"a learning curve counts examples with answers, and {task.name} has none", "use another run")
    if (n := len(data.train)) < FEWEST:
        raise DataError(f"{counted(n, 'training examples')} are too few to be divided by {PARTS[0]}", "give more")
    base, sizes = with_auto(config, data), [n // part for part in PARTS]
    runs = list[list[RunFolder]]()
    try:
        for size in sizes:
            runs.append([_trained(base, whole, size, n, config.train.seed + i, on_step) for i in range(seeds)])
    except Interrupted as error:
        raise Interrupted(error.message, "give the same command again: it continues", error.exit_code) from None
    found = forecast(sizes, [[counts_of(run, data.valid) for run in of_size] for of_size in runs], 2 * n)
    found |= {"run": path.name, "n_valid": len(data.valid), "seeds": seeds}
    folder = RunFolder(path / FOLDER)
    write_json(folder.report_json, found)
    atomic_write_text(folder.report, curve_markdown(found, task.report.metric(found["metric"])))
    return found


def with_auto(config: Config, data: TextData) -> Config:
    """Return the configuration with those settings left to be chosen that a run's recipe chose from its data."""
    if config.recipe not in recipe_names():
        return config
    suggested, _ = task_class(config.task).suggest_settings(data, config)
    values = {k: v for section in (config.train, config.model, config.text) for k, v in vars(section).items()}
    auto = load_recipe(config.recipe).auto
    return replace(config, auto=tuple(n for n in auto if n in suggested and values[n] == suggested[n]))


def _trained(base: Config, whole: RunFolder, size: int, n: int, seed: int, on_step: OnStep | None) -> RunFolder:
    """Return the finished run of a size and a seed, which is trained unless it is there."""
    if size == n and seed == base.train.seed:
        return whole
    run = RunFolder(whole.path / FOLDER / f"n-{size}-seed-{seed}")
    if not (run.finished and run.report.is_file()):
        logger.info(f"training on {size:,} of {n:,} examples with seed {seed}: {run.path}")
        limited = replace(base.data, limit=size)
        train_or_resume(replace(base, data=limited, train=replace(base.train, seed=seed)), run, on_step)
    return run


def counts_of(run: RunFolder, split: Split) -> Counted:
    """Return what the score of a run is computed from, and its counts on the examples of a split."""
    config = run.read_config()
    task, weights = load_model_folder(run)
    device, model = choose_device(config.train.device), task.build_model()
    load_weights(model, weights)
    answering = cast_for_inference(model.to(device).eval(), computing_of(config.train).precision)
    with tuned(device, computing_of(config.train)):
        return task.report.counted(task.evaluate(answering, split, config.decode))


def curve_sentence(found: JsonObject, metric: Metric) -> str:
    """Return what to expect of twice the data."""
    now, (low, high), between = found["points"][-1], found["gain_ci95"], metric.between(found["ci95"])
    few = f" Only {counted(found['n_valid'], 'examples')} were scored." if found["n_valid"] < FEW else ""
    if found["law"]["b"] == 0:
        than = f"with {now['n']:,} than with {found['points'][0]['n']:,}"
        return f"{metric.title} on validation is no better {than}, so nothing is forecast.{few}"
    if metric.higher_is_better:
        scale, unit = (100, " points") if metric.write(0.5).endswith("%") else (1, "")
        gain, low, high = (f"{scale * each:.1f}" for each in (found["gain"], low, high))
    else:  # in the unit of the data, which may be small
        gain, low, high, unit = *map(metric.write, (found["gain"], low, high)), ""
    more, sign = ("more", 1) if metric.higher_is_better else ("less", -1)
    return (
        f"{metric.title} on validation is {metric.write(now['score'])} with {now['n']:,} examples; "
        f"with {found['n']:,}, expect {metric.write(found['score'])} ({found['interval']} {between}), {gain}{unit} "
        f"{more} than the {metric.write(found['score'] - sign * found['gain'])} of the fitted curve now "
        f"({low} to {high}).{few}"
    )


def curve_rows(found: JsonObject, metric: Metric) -> list[list[str]]:
    """Return the points of the curve and the forecast: examples, score, interval, runs."""
    rows = [
        [f"{point['n']:,}", metric.write(point["score"]), metric.between(point["ci95"]), str(point["runs"])]
        for point in found["points"]
    ]
    return [*rows, [f"{found['n']:,}", metric.write(found["score"]), metric.between(found["ci95"]), "expected"]]


def curve_markdown(found: JsonObject, metric: Metric) -> str:
    """Return the report as Markdown."""
    law, sign = found["law"], "−" if metric.higher_is_better else "+"
    parts = [
        f"# Learning curve of {cell_text(found['run'])}",
        curve_sentence(found, metric),
        table(["training examples", metric.title, found["interval"], "runs"], curve_rows(found, metric)),
        f"Every run is scored on the same {counted(found['n_valid'], 'validation examples')}, which chose its weights "
        "too. The error is taken to fall as a power of the number of examples n, to a limit (Figueroa et al. 2012; "
        f"Hestness et al. 2017): score = {law['a']:.4g} {sign} {abs(law['b']):.4g}·n^(−{law['c']:g}), by least squares "
        "with the exponent fixed. The interval draws the validation examples with replacement, one run of each size, "
        f"and an exponent from 0.1 to 1; it is about more data of the same kind."
        + (" One run of a size: it does not know what another seed would give." if found["seeds"] == 1 else ""),
    ]
    return "\n\n".join(parts) + "\n"
