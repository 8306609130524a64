"""What is known before the first step: machine, data, size, work, memory, what is cut, and how long it will take."""

from __future__ import annotations

import math
import os
import platform
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any

import torch
from torch import nn

from glassformer.data.check import OTHER_MODEL, REMEDY, count_unknown_tokens, n_texts_with_unknown, unknown_finding
from glassformer.data.corpus import EncodedCorpus, fingerprint
from glassformer.data.datasets.labels import labels_of
from glassformer.data.diagnostics import FEW_EXAMPLES, Finding
from glassformer.data.splits import Overlap, Split, n_duplicates, overlap_text, overlap_with_training
from glassformer.evaluate.significance import FEW, wilson_interval
from glassformer.models.build import d_ff_of
from glassformer.runs.origin import IMPORT, read_origin
from glassformer.runs.records import DataRecord, JsonObject, SplitRecord
from glassformer.runs.sealed_folder import package_versions
from glassformer.tasks import Task
from glassformer.training.budget import Pace
from glassformer.training.computing import flops_per_token
from glassformer.training.finetune import pretrained_folder
from glassformer.training.state import RunContext
from glassformer.utils.formatting import counted, duration, glassformer_command, percent

PACKAGES = ("glassformer", "torch", "numpy", "tokenizers", "safetensors", "sacrebleu", "scikit-learn")


def describe_environment(context: RunContext) -> dict[str, Any]:
    """Return versions, platform, device, precision and what it was chosen by, threads and the time (UTC)."""
    device = context.device
    cpu = torch.cpu.get_capabilities().get("cpu_name") or platform.processor() or platform.machine()
    return {
        "versions": package_versions(*PACKAGES),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": device.type,
        "device_name": torch.cuda.get_device_name(device) if device.type == "cuda" else str(cpu),
        "precision": context.precision,
        **({"computing": context.choice} if context.choice else {}),
        "threads": torch.get_num_threads(),
        "cpus": os.cpu_count(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": glassformer_command(*sys.argv[1:]),
    }


def describe_data(context: RunContext, facts: Preflight) -> DataRecord:
    """Return sizes, truncated and unknown tokens, file hashes, and the tokenizer."""
    t, known = context.task.tokenizer, asdict(facts)
    known.pop("splits")
    return DataRecord(
        context.config.task,
        context.task.metric,
        context.config.data.dataset,
        context.data.train.source,
        facts.splits,
        label_names=context.task.label_names,
        hashes=context.data.hashes,
        notes=context.data.notes,
        tokenizer={"kind": t.kind, "vocab_size": t.vocab_size, "sha256": t.sha256, "has_ngrams": t.ngrams is not None},
        preflight=known,
        columns=context.data.columns,
        counts=context.data.counts,
        pipes=context.data.pipes,
        base=_base(context),
        scale={name: x for name, x in context.task.decision.to_json().items() if name in ("mean", "sd")},
    )


def _base(context: RunContext) -> JsonObject:
    """Return which run the weights are taken from, and where those began if they were imported.

    What the import drew at random is trained from here on.
    """
    if (pretrained := context.pretrained) is None:
        return {}
    known: JsonObject = {"path": pretrained.path, "sha256": pretrained.sha256}
    origin = read_origin(pretrained_folder(pretrained.path))
    return known if origin is None else known | {IMPORT: replace(origin, untrained=[]).as_json()}


@dataclass(frozen=True)
class Preflight:
    """Facts before step 1. FLOPs are of one training step a real token (forward × 3); bytes, seconds.

    `splits` are the parts of the data as the model sees them, the test part's answers apart; `counts` is what was met
    in the files; `of_pairs`: examples are pairs.
    """

    n_parameters: int
    flops_per_token: float
    memory_bytes: float
    n_examples: int
    n_tokens: int
    padding: float
    truncated_rate: float
    dropped: int
    tokens_per_s: float
    seconds_per_epoch: float
    estimated_seconds: float
    splits: dict[str, SplitRecord]
    warnings: list[Finding]
    counts: dict[str, int] = field(default_factory=dict)
    of_pairs: bool = False

    def lines(self) -> list[str]:
        """Return the same as lines of text."""
        train = self.splits["train"]
        dropped = f", {counted(self.dropped, 'pairs')} too long and left out" if self.dropped else ""
        unit = "pairs with an empty side" if self.of_pairs else "texts without a token to predict"
        dropped += f", {train.n_empty:,} {unit} left out" if train.n_empty else ""
        dropped += f", {train.n_duplicates:,} duplicates kept" if train.n_duplicates else ""
        cut = f" ({train.n_truncated:,})" if train.n_truncated else ""
        return [
            f"model       {self.n_parameters:,} parameters, {self.flops_per_token / 1e6:.1f} MFLOP per token, "
            f"about {self.memory_bytes / 2**20:,.0f} MiB to train",
            f"data        {counted(self.n_examples, 'examples')}, {self.n_tokens:,} tokens; "
            f"{self.truncated_rate:.1%} of texts{cut} truncated{dropped}; {self.padding:.1%} padding",
            *([f"met         {', '.join(f'{name}: {n:,}' for name, n in self.counts.items())}"] if self.counts else []),
            f"unknown     {', '.join(_unknown(name, split) for name, split in self.splits.items())}",
            f"speed       {self.tokens_per_s:,.0f} tokens/s, measured; an epoch takes "
            f"{duration(self.seconds_per_epoch)}, the run about {duration(self.estimated_seconds)}",
            *self._evaluation_lines(),
        ]

    def _evaluation_lines(self) -> list[str]:
        """Return how long an evaluation by forward passes takes at least, where that is long beside the training."""
        name = "test" if "test" in self.splits else "valid"
        split = self.splits.get(name, SplitRecord())
        seconds = self.seconds_per_epoch / 3 * (split.n_tokens or 0) / max(1, self.n_tokens)
        if self.of_pairs or seconds < max(LONG_EVALUATION, self.estimated_seconds / 4):
            return []
        longer = ", longer than the training" if seconds > self.estimated_seconds else ""
        after = f"after the training take at least {duration(seconds)}{longer}"
        return [f"evaluation  {split.n:,} {IN_WORDS[name]} examples {after}"]


LONG_EVALUATION = 10.0
"""Seconds from which an evaluation is announced."""
FEW_OF_A_CLASS, FEW_PAIRS = 20, 500
"""Training examples a class, or pairs, below which hardly anything is learned that holds elsewhere."""
MOST_OF_A_CLASS = 0.9
"""Share of one class from which accuracy says little."""
MANY_CUT = 0.1
"""Share of training texts that are cut from which it is a warning."""
COUNTS = {f.name for f in fields(SplitRecord) if f.name.startswith("n_")} - {"n_texts_unknown"}
"""Counts of a corpus that a split's record has fields for; others are the task's own."""
IN_WORDS = {"train": "training", "valid": "validation", "test": "test"}


def _unknown(name: str, split: SplitRecord) -> str:
    """Return `3.1% of tokens in validation (in 12 of 40 texts)`."""
    texts = f" (in {split.n_texts_unknown:,} of {split.n:,} texts)" if split.n_texts_unknown else ""
    return f"{percent(split.unknown_rate or 0.0, 2)} of tokens in {IN_WORDS[name]}{texts}"


def preflight(context: RunContext, pace: Pace, model: nn.Module) -> Preflight:
    """Look at the data and the model; how fast it goes was measured.

    What patience may save and validations cost is not known, so `estimated_seconds` is that of the steps.
    """
    corpus, config, n_batches = context.train, context.config, len(context.task.epoch_batches(context.train, 0))
    stats, lengths, c = corpus.stats, corpus.lengths, config.train
    squares = (lengths.astype("float64") ** 2).sum()
    typical = float(squares / max(1, lengths.sum()))  # the length of the text that a token is in
    n_tokens = int(stats.get("n_tokens", 0))
    per_epoch, splits = pace.step * n_batches / c.accumulate, describe_splits(context)
    return Preflight(
        n_parameters=n_parameters(model),
        flops_per_token=flops_per_token(context.task, min(typical, config.text.max_len)),
        memory_bytes=memory(model, context, n_tokens / max(1e-9, 1 - pace.padding) / max(1, n_batches)),
        n_examples=len(corpus),
        n_tokens=n_tokens,
        padding=pace.padding,
        truncated_rate=stats.get("n_truncated", 0) / max(1, stats.get("n", len(corpus))),
        dropped=int(stats.get("n_dropped", 0)),
        tokens_per_s=pace.tokens_per_s,
        seconds_per_epoch=per_epoch,
        estimated_seconds=min((c.epochs or math.inf) * per_epoch, (c.steps or math.inf) * pace.step),
        splits=splits,
        warnings=list(_findings(context, splits)),
        counts=context.data.counts,
        of_pairs=context.task.schema.parallel,
    )


def _findings(context: RunContext, splits: dict[str, SplitRecord]) -> Iterator[Finding]:
    """Yield what a reader must know of the data before believing a score."""
    yield from context.data.findings
    if context.config.data.use_test_as_validation:
        matter = "the test split is used as validation, so the weights are chosen on it: no clean test score"
        yield Finding(matter, "leave out --use-test-as-validation", "test split")
    running = context.task.running_text
    for name, split in splits.items():
        if split.n_in_training and split.n_compared:
            matter = overlap_text(IN_WORDS[name], Overlap(split.n_in_training, split.n_compared), running)
            remedy = "scores on them say nothing of other texts, so remove them from one of the parts"
            yield Finding(matter, remedy, "overlap", {"n": split.n_in_training, "n_all": split.n_compared})
    n, n_cut = context.train.stats.get("n", len(context.train)), context.train.stats.get("n_truncated", 0)
    if not running and n and n_cut > MANY_CUT * n:
        share = f"{n_cut:,} of {n:,} training texts ({percent(n_cut / n)})"
        matter = f"{share} are cut at {context.config.text.max_len} tokens"
        yield Finding(matter, _more_room(context), "truncation", {"n": n_cut, "n_all": n})
    if context.task.tokenizer.ngrams is None:  # which read unknown words
        for name, split in splits.items():
            begin = context.config.train.init_from
            remedy = REMEDY if begin is None else f"{OTHER_MODEL}: the tokenizer is that of {begin}"
            finding = unknown_finding(IN_WORDS[name], split.unknown_rate, split.n_texts_unknown, split.n, remedy)
            if name != "train" and finding is not None:
                yield finding
    if not running and not context.train.is_running_text:
        begun = context.config.train.init_from is not None
        yield from _too_few(len(context.train), len(context.valid), context.task.label_names, begun)
    if context.task.schema.target == "label":
        answers = context.data.train.answers
        yield from _lopsided([label for answer in answers for label in labels_of(answer)], len(answers))


def _more_room(context: RunContext) -> str:
    """Return what to do about texts that are cut; positions that are taken from another run cannot be more."""
    begin, report = context.config.train.init_from, context.task.report
    other = "" if context.config.text.truncate == report.better_truncation else report.better_truncation
    if begin is None or context.config.model.positions != "learned":
        return "a larger --text.max-len" + (f", or --text.truncate {other}" if other else "")
    return f"the longest text is that of {begin}" + (f"; use --text.truncate {other}" if other else "")


def _too_few(n: int, n_valid: int, classes: list[str] | None, begun: bool) -> Iterator[Finding]:
    """Yield findings about too few examples; with `begun` the weights are those of a pretrained model."""
    if n < FEW_OF_A_CLASS * len(classes or ()) or (not classes and n < FEW_PAIRS):
        among = f" of {len(classes)} classes" if classes else ""
        few = f"only {counted(n, 'examples')}{among} to train on"
        pretrained = f"{few}: what the pretrained model brings counts for most"
        matter = pretrained if begun else f"{few}: expect little more than guessing on other texts"
        yield Finding(matter, "add examples before trying settings", FEW_EXAMPLES, {"n": n}, "know")
    if n_valid < FEW:
        low, high = wilson_interval(round(0.8 * n_valid), n_valid)
        of_share = f"where about 80% of them are right it may be {low:.0%} to {high:.0%} of others"
        doubt = of_share if classes else "scores on others may be far from theirs"
        matter = f"only {counted(n_valid, 'examples')} to validate on: {doubt}"
        remedy = "give more with --valid-file or --valid-fraction"
        yield Finding(matter, remedy, "few validation examples", {"n": n_valid}, "know")


def _lopsided(labels: Sequence[str], n: int) -> Iterator[Finding]:
    """Yield findings about classes of the n training texts that are very rare or very frequent."""
    counts = Counter(labels).most_common()
    lonely, (most_frequent, highest) = sorted(label for label, n in counts if n == 1), counts[0]
    if lonely:
        named = ", ".join(lonely[:5]) + (", …" if len(lonely) > 5 else "")
        share = f"{len(lonely)} of {len(counts)} classes have one training example ({named})"
        matter, remedy = f"{share}: expect them never to be answered", "give more of them, or leave them out"
        yield Finding(matter, remedy, "classes of one example", {"n": len(lonely), "n_all": len(counts)})
    if highest > MOST_OF_A_CLASS * n:
        matter = f"{percent(highest / n)} of the training texts are {most_frequent!r}: guessing is right as often"
        remedy = "read macro F1 and the table of classes, not accuracy"
        yield Finding(matter, remedy, "prevailing class", {"n": highest, "n_all": n})


def describe_splits(context: RunContext) -> dict[str, SplitRecord]:
    """Return each split as the model sees it: sizes, truncated and unknown tokens.

    Of the test split only the texts are read, never the targets.
    """
    task, data, corpora = context.task, context.data, {"train": context.train, "valid": context.valid}
    parts = data.splits()
    splits = {name: _describe_split(task, corpus, parts[name]) for name, corpus in corpora.items()}
    if (test := data.test) is not None:
        running = task.running_text
        n_tokens, n_cut, n_unknown, n_texts = count_unknown_tokens(
            task.tokenizer, test.text, context.config.text, running
        )
        splits["test"] = SplitRecord(
            len(test),
            n_tokens,
            None if running else n_cut,
            n_unknown=n_unknown,
            sha256=fingerprint(test),
            unknown_rate=n_unknown / max(1, n_tokens),
            n_texts_unknown=None if running else n_texts,
        )
    return {name: replace(split, **_compared(task, parts[name], data.train)) for name, split in splits.items()}


def _compared(task: Task, split: Split, train: Split) -> dict[str, Any]:
    """Return how many examples of a part occur twice, and how many of its texts are in the training part."""
    counts = {} if task.running_text or split.shards else {"n_duplicates": n_duplicates(split)}
    if split is train or (overlap := overlap_with_training(split, train, task.running_text)) is None:
        return counts
    return counts | {"n_in_training": overlap.n_shared, "n_compared": overlap.n}


def _describe_split(task: Task, corpus: EncodedCorpus, split: Split) -> SplitRecord:
    stats = corpus.stats
    target = corpus.target if task.schema.parallel else None  # else they are no tokens, but numbers of labels
    columns = [column for column in (corpus.ids, target) if column is not None]
    running = task.running_text or corpus.is_running_text
    n_texts = None if running else n_texts_with_unknown(columns, task.tokenizer.unk_id)
    own = {name: n for name, n in stats.items() if name not in COUNTS and name != "n"}
    return SplitRecord(
        n=len(corpus),
        **{name: n for name, n in stats.items() if name in COUNTS},
        counts=own or None,
        unknown_rate=stats.get("n_unknown", 0) / max(1, stats.get("n_tokens", 0)),
        n_texts_unknown=n_texts,
        sha256=fingerprint(split),
    )


def n_parameters(model: nn.Module) -> int:
    """Return the number of parameters, frozen ones too; shared ones count once."""
    return sum(p.numel() for p in model.parameters())


def memory(model: nn.Module, context: RunContext, slots: float) -> float:
    """Return the bytes of weights, gradients, two Adam moments, and roughly the activations of a batch.

    Frozen weights have neither gradients nor moments. Fused attention keeps no matrix of queries by keys. With
    activation checkpointing, layers keep their input, and one layer all activations.
    """
    c, width = context.config.model, 2 if context.precision == "bf16" else 4
    layer = 16 * c.d_model + 3 * d_ff_of(c)
    per_slot = c.n_layers * c.d_model + layer if context.config.train.activation_checkpointing else c.n_layers * layer
    n_trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return 4 * n_parameters(model) + 12 * n_trained + width * per_slot * slots * c.ensemble_size
