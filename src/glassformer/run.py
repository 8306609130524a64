"""A trained model with its task, tokenizer and configuration: what it answers, why, and how well."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast, overload

from glassformer.config import DataConfig, DecodeConfig
from glassformer.config.recipes import override
from glassformer.errors import UsageError, options_as_arguments
from glassformer.runs.folder import RunFolder
from glassformer.runs.records import Evaluation, JsonObject
from glassformer.text.answers import PREDICTED_TOGETHER, warn_at_end, warn_of_cut
from glassformer.text.long_text import chunks_of
from glassformer.text.pairs import GivenText, given_texts
from glassformer.utils.console import log_to_stderr

if TYPE_CHECKING:
    import torch
    from torch import nn

    from glassformer.data.datasets.columns import ColumnSpecs
    from glassformer.explain.explanation import Explanation
    from glassformer.interop.export_facts import Target
    from glassformer.interop.transfer import Export
    from glassformer.tasks import Task
    from glassformer.utils.device import Computing, Precision


class Answer(TypedDict):
    """The answer to one text; it has the keys of its task, which every key names here."""

    text: str
    """The text, or what a language model wrote."""
    pair: str
    """The second text of a pair."""
    label: str | None
    """The class; None below `min_probability`."""
    labels: list[str]
    """Of a text that may have several."""
    probability: float
    """Of the class."""
    probabilities: dict[str, float]
    """Of every class or label."""
    number: float
    words: list[str]
    tags: list[str]
    spans: list[dict[str, Any]]
    """Each with its text, label, start, end and probability."""
    vector: list[float]
    translation: str
    score: float
    n_best: list[dict[str, Any]]
    """Translations with their scores, the best first."""
    prompt: str
    filled: str
    """The text with the first predictions of its [MASK]."""
    guesses: list[list[dict[str, Any]]]
    """For each [MASK] the most probable tokens."""


class DecodeOptions(TypedDict, total=False):
    """Fields of `DecodeConfig`, as keyword arguments."""

    beam_size: int
    length_penalty: float
    n_best: int
    max_new_tokens: int
    bleu_tokenize: str
    sample: bool
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    decode_seed: int


class PredictOptions(DecodeOptions, total=False):
    """Also what is done with probabilities; each is described in `Run.predict`."""

    calibrated: bool
    min_probability: float | None


class EditedOptions(PredictOptions, total=False):
    """Also edits of the forward pass, and the member of an ensemble that has them."""

    edits: Sequence[str]
    member: int


class Run:
    """A trained model in evaluation mode, with its task, tokenizer and configuration; `path` is the run folder.

    `model` is the fp32 model; `precision` is what `predict` and `evaluate` compute in. `joined` are the folders of
    other runs that answer together with it. With `allow_changed_data` whatever reads the run's data again warns
    where it has changed since training, and does not refuse.
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

    @property
    def labels(self) -> list[str]:
        """Return the names of the classes, labels or tags, in the order of the model's outputs; empty without any."""
        return list(self.task.label_names or [])

    def text_columns(self, named: tuple[str | None, str | None]) -> ColumnSpecs:
        """Return the columns of a table to answer, of first and second texts: those named, else those of training."""
        from glassformer.data.datasets.columns import Columns

        return self.task.text_columns(Columns.from_json(RunFolder(self.path).read_data().columns), named)

    @cached_property
    def answering(self) -> nn.Module:
        """Return the model for inference, in the selected precision."""
        from glassformer.models.bf16 import cast_for_inference

        return cast_for_inference(self.model, self.precision)

    @cached_property
    def computing(self) -> Computing:
        """Return with what it answers: as it was trained, but for its own precision and all threads."""
        from glassformer.training.computing import computing_of

        return replace(computing_of(self.config.train), precision=self.precision, threads=None)

    @overload
    def predict(self, texts: GivenText, **options: Unpack[EditedOptions]) -> Answer: ...  # pyright: ignore[reportOverlappingOverload]

    @overload
    def predict(self, texts: Iterable[GivenText], **options: Unpack[EditedOptions]) -> list[Answer]: ...

    @options_as_arguments()
    def predict(
        self, texts: GivenText | Iterable[GivenText], **options: Unpack[EditedOptions]
    ) -> Answer | list[Answer]:
        """Return the answer to a text, a dictionary with the keys of the task's `predict`; of a list, a list of them.

        The answers to a list are in its order, each as if it were alone; what is sampled depends on its place, too.

        Args:
            texts: a text, or a list of texts; where the model reads pairs, a tuple of two texts, or a list of them.
            options: fields of `DecodeConfig` (`beam_size=1`); of a classifier also `calibrated=True`, for probabilities
                at the temperature fitted on validation, and `min_probability`, below which it answers no label;
                `edits`, edits of the forward pass as text, such as "encoder.0.self.head3=0", computed in fp32, and
                `member`, which model of an ensemble is edited and answers alone, counted from 0, and stands in each
                answer as "member"; without edits all answer together.

        Raises:
            DataError: what came is not a text, or not a list of texts.
            UsageError: an edit is malformed, names no step, needs a second text, or does not fit one of the texts; or a
                member without edits.
        """
        from glassformer.models.ensemble import Ensemble
        from glassformer.utils.device import tuned

        given: Any = given_texts(self.task.tokenizer, texts)
        several, edits = [given] if isinstance(given, str) else [*given], options.pop("edits", ())
        if "member" in options and not edits:
            raise UsageError("without edits all members answer together", "leave out `member`, or pass edits")
        member = options.pop("member", 0)
        rule, decode = self.task.answer_rule({**options})
        if edits:
            from glassformer.explain.edits.effects import predict_edited

            if rule.calibrated and isinstance(self.model, Ensemble):
                raise UsageError("the temperature is of the whole ensemble, not of one", "leave out calibrated")
            answers: Any = [*rule.apply(predict_edited(self, several, edits, self._decode(decode), member))]
        else:
            with tuned(self.device, self.computing):
                answers = [*rule.apply(self.task.predict(self.answering, several, self._decode(decode)))]
            warn_of_cut(answers, self.config.text.max_len)
        return answers[0] if isinstance(given, str) else answers

    def predict_stream(self, lines: Iterable[GivenText], **options: Unpack[PredictOptions]) -> Iterator[Answer]:
        """Yield `predict` of any number of texts, in order, at bounded memory."""
        rule, decode = self.task.answer_rule({**options})
        given = given_texts(self.task.tokenizer, lines, several=True)
        answers = rule.apply(self._answers(given, self._decode(decode)))
        return cast("Iterator[Answer]", warn_at_end(iter(answers), self.config.text.max_len))

    def _answers(self, lines: Iterable[str], decode: DecodeConfig) -> Iterator[dict[str, Any]]:
        from glassformer.utils.device import tuned

        done = 0  # the row number, on which sampling depends
        for chunk in chunks_of(lines, PREDICTED_TOGETHER):
            with tuned(self.device, self.computing):
                answers = self.task.predict(self.answering, chunk, decode, first=done)
            yield from answers
            done += len(chunk)

    def explain(
        self,
        text: GivenText,
        *,
        target: str | None = None,
        checkpoint: str = "model",
        member: int = 0,
        label: str | None = None,
        **options: Unpack[DecodeOptions],
    ) -> Explanation:
        """Look at one text as the model does: every tensor, every prediction, every step of decoding.

        Args:
            text: the text, source sentence or prompt; of pairs a tuple of two texts.
            target: a translation to look at instead of the model's own.
            checkpoint: "model", or a snapshot or checkpoint of the run: "step-00000016".
            member: which model of an ensemble, counted from 0.
            label: which of several labels, where a text may have them; the most probable one by default. Of a tagger
                which word, by itself or by its number from 1; the first that is tagged by default.
            options: fields of `DecodeConfig`.

        Raises:
            UsageError, CheckpointError, DivergedError: see `explain.explanation.explain`.
        """
        self._decode({**options})  # refuses options that are none
        which = {"checkpoint": checkpoint, "member": member, "label": label}
        return self._explained(text, target=target, decode=options, **which)

    def learn(
        self,
        text: GivenText,
        answer: str,
        *,
        steps: int = 0,
        lr: float | None = None,
        optimizer: str | None = None,
        checkpoint: str = "model",
        member: int = 0,
        label: str | None = None,
    ) -> Explanation:
        """Look at one step of learning: the loss of an answer, the gradient of every tensor, and what steps change.

        Args:
            text: the text, source sentence or prompt.
            answer: what the model should answer: a class, a number, a translation, the next words, or those at [MASK].
            steps: steps of the optimizer on this answer, in a copy of the model; the explanation is that after them,
                and its `base` that before.
            lr: learning rate of these steps instead of the run's.
            optimizer: "adamw", "adam", "sgd" or "muon" instead of the run's.
            checkpoint: as of `explain`, like `member` and `label`.
            member: which model of an ensemble learns.
            label: which of several labels.

        Raises:
            UsageError: the answer does not suit the task, or the model or the text is too large.
        """
        which = {"checkpoint": checkpoint, "member": member, "label": label}
        return self._explained(text, answer=answer, learn_steps=steps, lr=lr, optimizer=optimizer, **which)

    @options_as_arguments()
    def _explained(self, text: GivenText, **request: Any) -> Explanation:
        from glassformer.explain.explanation import TraceRequest, explain

        if self.joined:
            what = "several runs answer together here, and an explanation looks into one"
            raise UsageError(what, f"load it alone: glassformer.load({str(self.path)!r})")
        return explain(self, TraceRequest(given_texts(self.task.tokenizer, text), **request))

    @options_as_arguments()
    @log_to_stderr()
    def evaluate(
        self,
        split: str = "test",
        *,
        data: DataConfig | None = None,
        allow_changed_data: bool = False,
        **options: Unpack[DecodeOptions],
    ) -> JsonObject:
        """Return all scores of a split of the run's data, or of the test files that `data` names.

        Raises:
            DataError: the data is not there, has no such split, or, unless that is allowed, has changed since training.
        """
        from glassformer.tasks.scored_data import scored_data
        from glassformer.utils.device import tuned

        allow_changed_data = allow_changed_data or self.allow_changed_data
        scored, train, facts = scored_data(self.path, self.task, split, data, allow_changed_data)
        with tuned(self.device, self.computing):
            scores = self.task.evaluate(self.answering, scored, self._decode({**options}), train)
        together = {"joined": [str(path) for path in (self.path, *self.joined)]} if self.joined else {}
        return {"task": self.task.name, "precision": self.precision} | together | facts | scores

    @options_as_arguments()
    def export(
        self,
        target: Target,
        out: str | Path,
        *,
        quantization: str | None = None,
        member: int | None = None,
        license: str | None = None,
        allow_changed_data: bool = False,
    ) -> Export:
        """Write the run in the form of another library, and compare what was written; see `interop.transfer.export`."""
        from glassformer.interop.transfer import export

        if self.joined:
            raise UsageError("several runs cannot be exported as one", f"load one alone: {str(self.path)!r}")
        self.allow_changed_data = self.allow_changed_data or allow_changed_data
        options: Any = {"quantization": quantization, "member": member, "license": license}
        return export(self, target, Path(out), **options)

    def _decode(self, options: dict[str, Any]) -> DecodeConfig:
        return override(self.config, {"decode": options}, "options").decode
