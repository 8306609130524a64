"""Training, resuming and loading a run: what `glassformer.train`, `.resume` and `.load` are.

A `Run` answers questions (`predict`, `evaluate`, `explain`); its folder can be moved and needs none of the
data it was trained on. torch is imported where it is needed, for a model that was exported is loaded without it.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from glassformer import config as fields_of
from glassformer.config import Config
from glassformer.config.recipes import check_type, load_recipe, override
from glassformer.errors import UsageError, options_as_arguments
from glassformer.run import Run
from glassformer.runs.folder import RunFolder, SeedsFolder, is_exported
from glassformer.runs.records import Evaluation
from glassformer.utils.console import is_main_process, log_to_stderr

if TYPE_CHECKING:
    from glassformer.runs.records import StepMetrics

logger = logging.getLogger(__name__)

Recipe: TypeAlias = str | Path | Config
P = ParamSpec("P")
R = TypeVar("R")

if TYPE_CHECKING:

    @dataclass(frozen=True, kw_only=True)
    class Settings(
        fields_of.DecodeConfig, fields_of.TrainConfig, fields_of.ModelConfig, fields_of.TextConfig, fields_of.DataConfig
    ):
        """Every setting by its name, and sections as dictionaries: what a type checker accepts after the recipe."""

        data: Mapping[str, Any] = field(default_factory=dict)
        text: Mapping[str, Any] = field(default_factory=dict)
        model: Mapping[str, Any] = field(default_factory=dict)
        train: Mapping[str, Any] = field(default_factory=dict)
        decode: Mapping[str, Any] = field(default_factory=dict)
        on_step: Callable[[StepMetrics], None] | None = None

    @dataclass(frozen=True, kw_only=True)
    class TrainSettings(Settings):
        """Also where a run is written, and how many of them."""

        out: str | Path | None = None
        seeds: int | None = None


else:
    Settings = TrainSettings = None


def _typed(settings: Callable[P, Any]) -> Callable[[Callable[..., R]], Callable[Concatenate[Recipe, P], R]]:
    """Give a function of a recipe the keyword arguments of a dataclass, for type checkers and editors."""
    return lambda function: function  # pyright: ignore[reportReturnType]


@_typed(TrainSettings)
@options_as_arguments()
@log_to_stderr()
def train(
    recipe: Recipe,
    *,
    out: str | Path | None = None,
    on_step: Callable[[StepMetrics], None] | None = None,
    seeds: int | None = None,
    **settings: Any,
) -> Run:
    """Train, evaluate and report a run; of several processes started by `torchrun`, all but the first end here.

    Messages are logged to the logger "glassformer" and shown on stderr, unless the caller has configured logging: to
    silence them, `logging.getLogger("glassformer").setLevel(logging.ERROR)`.

    Args:
        recipe: the name of a shipped recipe, the path of a TOML file, or a `Config`.
        out: the run folder, new or empty; `runs/<recipe>` when absent.
        on_step: called with the `StepMetrics` of each step.
        seeds: train N consecutive seeds into `out/seed-1` …, report mean and SD in `out/report.json`, and return
            the best run by validation.
        settings: fields of the configuration by name: `minutes=10`, `train_file="a.csv"`, `model={"n_layers": 2}`.

    Raises:
        UsageError, DataError, DivergedError, ResourceError, Interrupted: see `errors`.
        SystemExit: this is not the first of several processes.
    """
    config = _configured(recipe, settings)
    folder = _folder(out) if out is not None else Path("runs") / (config.recipe or config.task)
    train_into(folder, config, on_step, seeds)
    return _of_first_process(folder)


@_typed(Settings)
@options_as_arguments()
def dry_run(recipe: Recipe, **settings: Any) -> None:
    """Log what `train` would train and how long it would take, and write nothing; arguments as of `train`."""
    try_out(_configured(recipe, settings))


@_typed(Settings)
@options_as_arguments()
def overfit_batch(recipe: Recipe, *, on_step: Callable[[StepMetrics], None] | None = None, **settings: Any) -> float:
    """Train on a single batch and return its last loss, which must go to zero; arguments as of `train`."""
    return try_out(_configured(recipe, settings), on_step, overfit=True)


def _configured(recipe: Recipe, settings: dict[str, Any]) -> Config:
    """Return the configuration of a recipe with settings laid over it, and over those of what it begins with."""
    from glassformer.tasks import task_class

    config = recipe if isinstance(recipe, Config) else load_recipe(recipe)
    begin = None if config is recipe else config.train.init_from
    for name, value in settings.items():  # as `override` reads them: alone or in a section, the last one counts
        begin = (value if isinstance(value, dict) else {name: value}).get("init_from", begin)
    if begin:
        from glassformer.training.finetune import with_pretrained_settings

        config = with_pretrained_settings(config, str(begin))
    return override(config, settings, ignores=task_class(config.task).ignores)


def train_into(
    folder: Path,
    config: Config | None = None,
    on_step: Callable[[StepMetrics], None] | None = None,
    seeds: int | None = None,
    finish: bool = False,
) -> None:
    """Train, evaluate and report a run of a configuration that `override` has made, or several; without one resume."""
    from glassformer.training.trainer import resume_seeds, start_seeds, train_run

    if seeds is None and (config is not None or not SeedsFolder(folder).exists):
        train_run(RunFolder(folder), config, on_step, finish)
    elif finish:
        raise UsageError("finish ends one run, and this folder holds several", f"name one: {folder}/seed-1")
    elif seeds is None or config is None:
        resume_seeds(SeedsFolder(folder), _evaluate_together, on_step)
    else:
        check_alone("seeds")
        start_seeds(config, folder, seeds, _evaluate_together, on_step)


@log_to_stderr()
def try_out(config: Config, on_step: Callable[[StepMetrics], None] | None = None, overfit: bool = False) -> float:
    """Do what `dry_run` and `overfit_batch` do, of a configuration that `override` has made; return the last loss."""
    from glassformer.training import finalize
    from glassformer.training.computing import computing
    from glassformer.training.preparation import new_state, prepare, settle_budget

    check_alone("overfit_batch" if overfit else "dry_run")
    with computing(prepare(config)) as context:
        prepared, _ = settle_budget(context, new_state(context))
        return finalize.overfit_batch(prepared, on_step) if overfit else math.nan


def check_alone(what: str) -> None:
    """Raise a UsageError for what one process does, where several were started."""
    if (n := int(os.environ.get("WORLD_SIZE", "1"))) > 1:
        message = f"{what} is the work of one process, and {n} were started"
        raise UsageError(message, "start it without torchrun, which is for `train`, one run of one seed at a time")


def _of_first_process(folder: Path) -> Run:
    """Return the run that was trained; end the other processes of several, which have no more to do."""
    if not is_main_process():
        raise SystemExit(0)
    return load(folder)


@options_as_arguments()
@log_to_stderr()
def resume(out: str | Path, *, on_step: Callable[[StepMetrics], None] | None = None, finish: bool = False) -> Run:
    """Resume an interrupted run, or several seeds, to the same weights as without the interruption.

    The number of processes may differ from before; all but the first end here, as in `train`. With `finish` the run
    trains no more: its best weights so far are evaluated, and the report says that it was stopped.
    """
    train_into(out := _folder(out), on_step=on_step, finish=finish)
    return _of_first_process(out)


@options_as_arguments()
def load(path: str | Path, *others: str | Path, device: str = "auto", precision: str | None = None) -> Run:
    """Load a run folder (or its `model/` alone) for use; of several seeds the best by validation.

    With others it is an ensemble that averages their probabilities: usually more accurate, N times slower. A folder
    that `Run.export` wrote is loaded with the library that it was written for, as an `ExportedModel`, which predicts.

    Args:
        path: the folder.
        others: folders of more runs of the same task, tokenizer and classes; their sizes may differ.
        device: "auto", "cpu", "cuda" or "mps".
        precision: of `predict` and `evaluate`, "fp32" or "bf16"; that of the run when absent, in which it was scored
            and its thresholds were chosen. `explain` is always fp32. Not for an exported model.

    Raises:
        CheckpointError: it is missing, damaged, or its tokenizer is not the one it was trained with.
        UsageError: a device that this machine does not have, no such precision, or others that cannot join.
    """
    path, others = _folder(path), tuple(map(_folder, others))
    if is_exported(path):
        from glassformer.interop.exported import load_exported

        if others:
            raise UsageError(f"{path} is an exported model, which predicts alone", "name one folder")
        if precision is not None:
            hint = "leave out --precision; export sets it by --quantization"
            raise UsageError(f"the precision of {path} is chosen at export", hint)
        return load_exported(path, device)  # pyright: ignore[reportReturnType]  # typed as what one loads to look into
    from glassformer.models.ensemble import Ensemble, members_of
    from glassformer.runs.model_folder import load_weights
    from glassformer.tasks.restoring import decision_together, load_model_folder
    from glassformer.utils.device import choose_device

    if precision not in (None, "fp32", "bf16"):
        raise UsageError(f"precision must be fp32 or bf16, not {precision!r}", "leave it out for that of the run")
    runs = list[Run]()
    for folder in map(RunFolder, (path, *others)):
        if (seeds := SeedsFolder(folder.path)).exists:
            folder = seeds.best
            logger.info(f"{seeds.path} holds several seeds; {folder.path} is the best by validation")
        task, weights = load_model_folder(folder)
        target, model = choose_device(device), task.build_model()
        load_weights(model, weights)
        of_run = task.config.train.precision  # an import has none of its own
        chosen = "bf16" if (precision or of_run) == "bf16" else "fp32"
        runs.append(Run(folder.path, task, model.to(target).eval(), target, chosen))
    run = runs[0]
    if len({each.precision for each in runs}) > 1:
        raise UsageError("these runs compute in fp32 and in bf16, and answer together in one", "add --precision fp32")
    if not others:
        return run
    run.task.decision = decision_together(run.path.parent, [(each.path, each.task) for each in runs])
    members = [member for each in runs for member in members_of(each.model)]
    joined = tuple(each.path for each in runs[1:])
    return Run(run.path, run.task, Ensemble(members).eval(), run.device, run.precision, joined)


@options_as_arguments()
@log_to_stderr()
def import_model(source: str | Path, out: str | Path, *, max_len: int | None = None) -> Run:
    """Write a pretrained model of another library as a run, and load it.

    Where that library is installed, the two are compared: `out/import.json` and the card have it.

    Args:
        source: a folder of transformers or CTranslate2.
        out: the run folder, new or empty.
        max_len: most tokens of a text; all positions of the model when absent.

    Raises:
        UsageError, CheckpointError: it is of a kind that is not read, or damaged; or `out` is not empty.
    """
    from glassformer.interop.transfer import import_folder

    import_folder(_folder(source), _folder(out), max_len)
    return load(out)


def _folder(path: Any) -> Path:
    """Return an argument that names a folder as a path; raise UsageError for what is neither text nor a path."""
    check_type(path, (str, PathLike), "the path of a folder", 'as in: glassformer.load("runs/imdb")')
    return Path(path)


def _evaluate_together(paths: Sequence[Path]) -> Evaluation:
    """Score several runs as an ensemble, on the split and in the precision in which each of them was scored.

    What it answers from is chosen on the validation split, as for each of them.
    """
    from glassformer.runs.run_data import load_run_data
    from glassformer.utils.device import tuned

    run = load(*paths, device=RunFolder(paths[0]).read_config().train.device)
    data = load_run_data(run.path, run.task.schema, run.config.data, allow_changed=None)
    name = "valid" if data.test is None else "test"
    with tuned(run.device, run.computing):
        task = run.task.decided(run.answering, run.task.encode(data.valid, training=False))
        scores = task.evaluate(run.answering, data.splits()[name], run.config.decode)
    del scores["predictions"]
    return Evaluation(task.name, name, {"precision": run.precision, "decision": task.decision.to_json()} | scores)
