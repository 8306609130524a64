"""Training, resuming and loading a run: what `glassformer.train`, `.resume` and `.load` are.

A `Run` answers questions (`predict`, `evaluate`, `explain`); its folder can be moved and needs none of the
data it was trained on. torch is imported where it is needed, for a model that was exported is loaded without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from glassformer.config import Config, DataConfig, DecodeConfig
from glassformer.config.recipes import load_recipe, override
from glassformer.config.validation import check_type
from glassformer.data.sources import pipes_kept
from glassformer.errors import UsageError
from glassformer.runs.folder import RunFolder, SeedsFolder, is_exported
from glassformer.runs.records import Evaluation, JsonObject
from glassformer.text.answers import PREDICTED_TOGETHER, checked_lines, checked_texts, warn_at_end, warn_of_cut
from glassformer.text.long_text import chunks_of
from glassformer.utils.console import is_main_process, log_to_stderr

if TYPE_CHECKING:
    import torch
    from torch import nn

    from glassformer.explain.explanation import Explanation
    from glassformer.explain.page.notebook import NotebookPage
    from glassformer.interop.choose import Target
    from glassformer.interop.export import Export
    from glassformer.tasks import Task
    from glassformer.utils.device import Precision


@log_to_stderr()
def train(
    recipe: str | Path | Config,
    *,
    out: str | Path | None = None,
    on_step: Callable[[Any], None] | None = None,
    dry_run: bool = False,
    overfit_batch: bool = False,
    seeds: int | None = None,
    **overrides: Any,
) -> Run | None:
    """Train, evaluate and report a run; of several processes started by `torchrun`, all but the first return None.

    Messages are logged to the logger "glassformer" and shown on stderr, unless the caller has configured logging: to
    silence them, `logging.getLogger("glassformer").setLevel(logging.ERROR)`.

    Args:
        recipe: the name of a shipped recipe, the path of a TOML file, or a `Config`.
        out: the run folder, new or empty; `runs/<recipe>` when absent.
        on_step: called with the `StepMetrics` of each step.
        dry_run: log what would be trained and how long it would take, and return None.
        overfit_batch: train on a single batch, whose loss must go to zero, and return None.
        seeds: train N consecutive seeds into `out/seed-1` …, report mean and SD in `out/report.md` and `.json`, and
            return the best run by validation.
        overrides: fields of the configuration by name: `minutes=10`, `train_file="a.csv"`, `model={"n_layers": 2}`.

    Raises:
        UsageError, DataError, DivergedError, ResourceError, Interrupted: see `errors`.
    """
    from glassformer.tasks import task_class

    config = recipe if isinstance(recipe, Config) else load_recipe(recipe)
    begin = None if isinstance(recipe, Config) else config.train.init_from
    for name, value in overrides.items():  # as `override` reads them: alone or in a section, the last one counts
        named = {name: value} if name != "train" or not isinstance(value, dict) else value
        begin = named.get("init_from", begin)
    if begin:
        from glassformer.training.finetune import with_pretrained_settings

        config = with_pretrained_settings(config, str(begin))
    config = override(config, overrides, ignores=task_class(config.task).ignores)
    return train_checked(config, out=out, on_step=on_step, dry_run=dry_run, overfit_batch=overfit_batch, seeds=seeds)


@log_to_stderr()
@pipes_kept()
def train_checked(
    config: Config,
    *,
    out: str | Path | None = None,
    on_step: Callable[[Any], None] | None = None,
    dry_run: bool = False,
    overfit_batch: bool = False,
    seeds: int | None = None,
) -> Run | None:
    """Do what `train` does, of a configuration that `override` has made."""
    from glassformer.distributed.process_group import launched_processes
    from glassformer.training.finalize import overfit_batch as overfit
    from glassformer.training.preparation import new_state, prepare, settle_budget
    from glassformer.training.trainer import start_run
    from glassformer.utils.device import choose_device, tuned

    folder = _folder(out) if out is not None else Path("runs") / (config.recipe or config.task)
    if (n := launched_processes()) > 1 and (dry_run or overfit_batch or seeds is not None):
        message = f"a dry run, overfit_batch and seeds are the work of one process, and {n} were started"
        raise UsageError(message, "start it without torchrun; with it, one run of one seed at a time")
    if seeds is not None:
        if dry_run or overfit_batch:
            raise UsageError("seeds trains several runs, and this looks at one", "leave seeds out")
        from glassformer.training.multi_seed import start_seeds

        start_seeds(config, folder, seeds, _evaluate_together, on_step)
        return load(folder)
    if dry_run or overfit_batch:
        with tuned(choose_device(config.train.device), config.train.deterministic):
            context = prepare(config)
            prepared, _ = settle_budget(context, new_state(context))
            if overfit_batch:
                overfit(prepared, on_step)
        return None
    start_run(config, RunFolder(folder), on_step)
    return load(folder) if is_main_process() else None


@log_to_stderr()
def resume(out: str | Path, *, on_step: Callable[[Any], None] | None = None) -> Run | None:
    """Resume an interrupted run, or several seeds, to the same weights as without the interruption.

    The number of processes may differ from before; all but the first return None.
    """
    from glassformer.training.trainer import resume_run

    out = _folder(out)
    if SeedsFolder(out).exists:
        from glassformer.training.multi_seed import resume_seeds

        resume_seeds(SeedsFolder(out), _evaluate_together, on_step)
    else:
        resume_run(RunFolder(out), on_step)
    return load(out) if is_main_process() else None


def load(path: str | Path, *others: str | Path, device: str = "auto", precision: str | None = None) -> Run:
    """Load a run folder (or its `model/` alone) for use; of several seeds the best by validation.

    With others it is an ensemble that averages their probabilities. A folder that `Run.export` wrote is loaded with the
    library that it was written for, as an `ExportedModel`, which predicts.

    Args:
        path: the folder.
        others: folders of more runs of the same task, tokenizer and classes; their sizes may differ.
        device: "auto", "cpu", "cuda" or "mps".
        precision: of `predict` and `evaluate`: "auto" (bf16 where native), "fp32" or "bf16"; default: as in training.

    Raises:
        CheckpointError: it is missing, damaged, or its tokenizer is not the one it was trained with.
        UsageError: a device or a precision that this machine does not have, or others that cannot join.
    """
    path, others = _folder(path), tuple(map(_folder, others))
    if is_exported(path):
        from glassformer.interop.exported import load_exported

        if others:
            raise UsageError(f"{path} is an exported model, which predicts alone", "name one folder")
        if precision is not None:
            raise UsageError(f"{path} is exported, in a precision chosen then", "export with --quantization")
        return load_exported(path, device)  # pyright: ignore[reportReturnType]  # typed as what one loads to look into
    from glassformer.models.ensemble import Ensemble, members_of
    from glassformer.tasks.restoring import check_joins

    run = _load(path, device, precision)
    joining = [_load(other, device, precision) for other in others]
    for i, other in enumerate(joining):
        check_joins([(each.path, each.task) for each in (run, *joining[:i])], other.path, other.task)
    if not joining:
        return run
    members = [member for each in (run, *joining) for member in members_of(each.model)]
    paths = tuple(other.path for other in joining)
    return Run(run.path, run.task, Ensemble(members).eval(), run.device, run.precision, paths)


@log_to_stderr()
def import_model(source: str | Path, out: str | Path, **options: Any) -> Run:
    """Write a pretrained model of another library as a run, and load it.

    Where that library is installed, the two are compared, layer by layer: `out/import.json` and the card have it.

    Args:
        source: a folder of transformers or CTranslate2; or a name on the Hugging Face hub, "org/name".
        out: the run folder, new or empty.
        options: `labels`, the classes of a classifier whose head is new; `max_len`, most tokens of a text; `revision`,
            the branch, tag or commit of a model on the hub.

    Raises:
        UsageError, CheckpointError: it is of a kind that is not read, or damaged; or `out` is not empty.
        DataError: the hub cannot be reached.
    """
    from glassformer.interop.read import import_folder

    import_folder(_folder(source), _folder(out), **options)
    return load(out)


def _folder(path: Any) -> Path:
    """Return an argument that names a folder as a path; raise UsageError for what is neither text nor a path."""
    check_type(path, (str, PathLike), "the path of a folder", 'as in: glassformer.load("runs/imdb")')
    return Path(path)


def _evaluate_together(paths: Sequence[Path]) -> Evaluation:
    """Score several runs as an ensemble, on the split and in the precision in which each of them was scored."""
    from glassformer.runs.run_data import load_run_data
    from glassformer.utils.device import tuned

    run = load(*paths, device=RunFolder(paths[0]).read_config().train.device, precision="fp32")
    data = load_run_data(run.path, run.task.schema, run.config.data, allow_changed=None).text
    name, split = ("valid", data.valid) if data.test is None else ("test", data.test)
    with tuned(run.device):
        scores = run.task.evaluate(run.model, split, run.config.decode)
    kept = {key: value for key, value in scores.items() if key != "predictions"}
    return Evaluation(run.task.name, name, {"precision": run.precision} | kept)


def _load(path: str | Path, device: str, precision: str | None) -> Run:
    from glassformer.runs.model_folder import load_weights
    from glassformer.tasks.restoring import load_model_folder
    from glassformer.utils.device import choose_device, choose_precision

    folder = SeedsFolder(path).best if SeedsFolder(path).exists else RunFolder(path)
    task, weights = load_model_folder(folder)
    target, model = choose_device(device), task.build_model()
    load_weights(model, weights)
    chosen = choose_precision(precision or task.config.train.precision, target)
    return Run(folder.path, task, model.to(target).eval(), target, chosen)


class Run:
    """A trained model in evaluation mode, with its task, tokenizer and configuration; `path` is the run folder.

    `model` is the fp32 model; `precision` is what `predict` and `evaluate` compute in. `joined` are the folders of
    runs that answer with it. With `allow_changed_data` changed data is warned of where it is read, and not refused.
    """

    def __init__(
        self,
        path: Path,
        task: Task,
        model: nn.Module,
        device: torch.device,
        precision: Precision = "fp32",
        joined: tuple[Path, ...] = (),
    ) -> None:
        self.path, self.task, self.model, self.device = path, task, model, device
        self.precision: Precision = precision
        self.config, self.joined = task.config, joined
        self.allow_changed_data = False

    def __repr__(self) -> str:
        n_parameters = sum(p.numel() for p in self.model.parameters())
        evaluation = RunFolder(self.path).read_evaluation() or Evaluation()
        metric, value, _ = self.task.report.score(evaluation)
        score = "" if value is None else f", {evaluation.split} {metric.name} {value:.4f}"
        recipe = f"recipe {self.config.recipe}, " if self.config.recipe else ""
        return f"Run({str(self.path)!r}: {self.task.name}, {recipe}{n_parameters:,} parameters{score})"

    @cached_property
    def _answering(self) -> nn.Module:
        """Return the model for inference, in the selected precision."""
        from glassformer.models.bf16 import cast_for_inference

        return cast_for_inference(self.model, self.precision)

    @overload
    def predict(self, texts: str, *, edits: Sequence[str] = (), member: int = 1, **options: Any) -> dict[str, Any]: ...  # pyright: ignore[reportOverlappingOverload]

    @overload
    def predict(
        self, texts: Iterable[str], *, edits: Sequence[str] = (), member: int = 1, **options: Any
    ) -> list[dict[str, Any]]: ...

    def predict(
        self, texts: str | Iterable[str], *, edits: Sequence[str] = (), member: int = 1, **options: Any
    ) -> dict[str, Any] | list[dict[str, Any]]:
        """Return the answer to a text, a dictionary with the keys of the task's `predict`; of a list a list, in order.

        Args:
            texts: a text, or a list of texts.
            edits: edits of the forward pass as text, such as "encoder.0.self.head3=0"; computed in fp32.
            member: which model of an ensemble is edited and answers alone, counted from 1; without edits all answer.
            options: fields of `DecodeConfig` (`beam_size=1`).

        Raises:
            DataError: what came is not a text, or not a list of texts.
            UsageError: an edit is malformed, names no step, needs a second text, fits no text; a member without edits.
        """
        several = checked_texts(texts)
        if edits:
            from glassformer.explain.edits.findings import predict_edited

            answers = predict_edited(self, several, edits, self._decode(options), member)
            return answers[0] if isinstance(texts, str) else answers
        if member != 1:
            raise UsageError("without edits all members answer together", "leave out `member`, or pass edits")
        from glassformer.utils.device import tuned

        with tuned(self.device):
            answers = self.task.predict(self._answering, several, self._decode(options))
            warn_of_cut(answers, self.config.text.max_len)
        return answers[0] if isinstance(texts, str) else answers

    def predict_stream(self, lines: Iterable[str], **options: Any) -> Iterator[dict[str, Any]]:
        """Yield `predict` of any number of texts, in order, at bounded memory."""
        return warn_at_end(self._answers(checked_lines(lines), self._decode(options)), self.config.text.max_len)

    def _answers(self, lines: Iterable[str], decode: DecodeConfig) -> Iterator[dict[str, Any]]:
        from glassformer.utils.device import tuned

        done = 0
        for chunk in chunks_of(lines, PREDICTED_TOGETHER):
            with tuned(self.device):
                answers = self.task.predict(self._answering, chunk, decode, first=done)
            yield from answers
            done += len(chunk)

    def explain(
        self, text: str, *, target: str | None = None, checkpoint: str = "model", member: int = 1, **options: Any
    ) -> Explanation:
        """Look at one text as the model does: every tensor, every prediction, every step of decoding.

        Args:
            text: the text, source sentence or prompt.
            target: a translation to look at instead of the model's own.
            checkpoint: "model", or a snapshot or checkpoint of the run: "step-00000016".
            member: which model of an ensemble, counted from 1.
            options: fields of `DecodeConfig`.

        Raises:
            UsageError, CheckpointError, DivergedError: see `explain.explanation.explain`.
        """
        from glassformer.explain.explanation import TraceRequest, explain

        if self.joined:
            message = f"{1 + len(self.joined)} runs answer together here, and an explanation looks into one"
            raise UsageError(message, f"load it alone: glassformer.load({str(self.path)!r})")
        self._decode(options)  # refuses options that are none
        request = TraceRequest(text, target=target, checkpoint=checkpoint, member=member, decode=options)
        return explain(self, request)

    def watch(self) -> NotebookPage:
        """Return the page of the training so far, for a notebook: its curves, and what each snapshot answers."""
        from glassformer.explain.page.notebook import training_page

        return training_page(self)

    @log_to_stderr()
    def evaluate(
        self, split: str = "test", *, data: DataConfig | None = None, allow_changed_data: bool = False, **options: Any
    ) -> JsonObject:
        """Return all scores of a split of the run's data, or of the test files that `data` names.

        Raises:
            DataError: the data is not there, has no such split, or, unless that is allowed, has changed since training.
        """
        from glassformer.tasks.scored_data import scored_data
        from glassformer.utils.device import tuned

        scored = scored_data(self, split, data, allow_changed_data)
        with tuned(self.device):
            scores = self.task.evaluate(self._answering, scored.split, self._decode(options), scored.baselines)
        together = {"joined": [str(path) for path in (self.path, *self.joined)]} if self.joined else {}
        facts = {"task": self.task.name, "split": scored.name, "precision": self.precision}
        return facts | together | scored.facts() | scores

    @log_to_stderr()
    def evaluate_edits(
        self,
        *edits: str,
        split: str = "test",
        data: DataConfig | None = None,
        member: int = 1,
        allow_changed_data: bool = False,
        **options: Any,
    ) -> JsonObject:
        """Return the headline score of a split without and with edits, and their test (`edits.evaluation`)."""
        from glassformer.explain.edits.findings import evaluate_edits
        from glassformer.tasks.scored_data import scored_data

        scored = scored_data(self, split, data, allow_changed_data)
        self.allow_changed_data = self.allow_changed_data or allow_changed_data
        scores = evaluate_edits(self, scored.split, edits, self._decode(options), member)
        return {"split": scored.name, **scored.facts(), **scores}

    def export(self, target: Target, out: str | Path, *, allow_changed_data: bool = False, **options: Any) -> Export:
        """Write the run in the form of another library, and compare what was written; see `interop.export.export`."""
        from glassformer.interop.export import export

        if self.joined:
            raise UsageError("several runs cannot be exported as one", f"load one alone: {str(self.path)!r}")
        self.allow_changed_data = self.allow_changed_data or allow_changed_data
        return export(self, target, Path(out), **options)

    def _decode(self, options: dict[str, Any]) -> DecodeConfig:
        return override(self.config, {"decode": options}, "options").decode
