"""Reports everything wrong with data before training, with file and line, and counts what is merely unusual.

Errors are those that loading or training would stop at, all of them instead of the first. Byte order marks, CRLF line
ends, empty texts, duplicates, and texts shared with the training part are only counted. What stands out is a finding,
with its test, its sentence and its advice in one function; the start of a training, which also knows what the tokenizer
makes of the texts, logs it and stores it in `data.json`. What runs and their scores show is in `report/findings.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glassformer.config import Config, DataConfig
from glassformer.data.datasets.columns import DataSchema
from glassformer.data.datasets.labels import labels_of
from glassformer.data.datasets.local_files import data_parts, load_text_data, read_parts, with_validation
from glassformer.data.diagnostics import DataIssue, Diagnostics, Finding
from glassformer.data.splits import Split, check_texts_differ, n_duplicates, overlap_text, overlap_with_training
from glassformer.errors import DataError
from glassformer.runs.records import SplitRecord
from glassformer.utils.formatting import counted, percent, shortened


@dataclass(frozen=True)
class CheckReport:
    """The result of a check.

    Args:
        errors: errors in reading order, the first ten of a kind in each file.
        n_errors: number of all errors.
        more: number of those that are not in `errors`, by file and kind.
        counts: counts above 0 by name, such as "train: duplicates".
        sizes: readable examples (running text: characters) of each part.
        notes: messages, such as which columns are read.
        findings: those that the start of a training logs about the data, as far as they need no tokenizer.
    """

    errors: list[DataIssue]
    n_errors: int
    more: dict[str, int]
    counts: dict[str, int]
    sizes: dict[str, int]
    notes: list[str]
    findings: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Return True if training could start."""
        return self.n_errors == 0


def check_data(schema: DataSchema, data: DataConfig) -> CheckReport:
    """Read all parts of the data and return a report; errors inside files are reported, not raised.

    Raises:
        UsageError: files are not named, or a requested column is missing.
        DataError: a built-in data set cannot be loaded.
    """
    diagnostics, loaded, running = Diagnostics(), None, schema.columns is None
    if data.dataset != "files":
        loaded = load_text_data(schema, data)
        splits = loaded.splits()
        diagnostics.notes += loaded.notes
    else:
        splits = read_parts(schema, data_parts(schema, data), data, diagnostics)
    if not diagnostics.n_issues:
        try:
            loaded = loaded or with_validation(schema, splits, data, Diagnostics())
            if not running:
                check_texts_differ(loaded.train)
            schema.check(loaded.splits(), diagnostics)
        except DataError as error:
            path, tgt = Path(data.train_file or data.src_file or data.dataset), data.tgt_file
            other = f" (read with {tgt})" if tgt else ""
            diagnostics.error(path, 0, "too little", error.message.removeprefix(f"{path}: ") + other)
            loaded = None
    train, counts = splits["train"], diagnostics.counts
    for name, split in splits.items():
        counts.update({f"{name}: {what}": n for what, n in _counts(schema, split, train).items()})
    sizes = {name: sum(map(len, split.text)) if running else len(split) for name, split in splits.items()}
    found = list[Finding]()
    if loaded is not None:
        train, parts = loaded.train, loaded.splits().items()
        records = {name: SplitRecord(len(part), **compared(part, train, running)) for name, part in parts}
        known = KnownData(Config(data=data), records, label_counts(schema, train))
        found = [*loaded.findings, *of_data(known)]
    errors = diagnostics.issues, diagnostics.n_issues, diagnostics.more
    return CheckReport(*errors, dict(+counts), sizes, diagnostics.notes, found)


def _counts(schema: DataSchema, split: Split, train: Split) -> dict[str, int]:
    """Return how many examples of a part are unusual, and in which way."""
    columns = [split.text, split.answers] if schema.parallel else [split.text]
    empty = sum(not all(side.strip() for side in example) for example in zip(*columns, strict=True))
    shared = compared(split, train, schema.columns is None).get("n_in_training", 0)
    counts = {"empty": empty, "duplicates": n_duplicates(split), "also in training": shared}
    if schema.columns and schema.columns[-1].separator is not None:
        counts["texts without a label"] = sum(not answer for answer in split.answers)
    return counts | dict(schema.count(split))


def compared(split: Split, train: Split, running_text: bool) -> dict[str, Any]:
    """Return how many examples of a part occur twice, and how many of its texts are in training, as `SplitRecord`."""
    counts = {} if running_text else {"n_duplicates": n_duplicates(split)}
    if split is train:
        return counts
    n_shared, n = overlap_with_training(split, train, running_text)
    return counts | {"n_in_training": n_shared, "n_compared": n}


def label_counts(schema: DataSchema, split: Split) -> Counter[str]:
    """Return how many texts have each label; nothing where answers are none."""
    if schema.target != "label":
        return Counter()
    return Counter(label for answer in split.answers for label in labels_of(answer))


# --- what stands out ------------------------------------------------------------------------------------------------


FEW = 30
"""Examples below which a score on them says little of others."""
FEW_OF_A_CLASS, FEW_EXAMPLES = 20, 500
"""Training examples a class, or without classes, below which hardly anything is learned that holds elsewhere."""
MOST_OF_A_CLASS = 0.9
"""Share of one class from which accuracy says little."""
MANY_CUT = 0.1
"""Share of training texts that are cut from which it is a finding."""
MANY_UNKNOWN, SOME_UNKNOWN, MANY_TEXTS = 0.05, 0.02, 0.2
"""Share of unknown tokens above which a model does not read what it is given. Fewer matter too where they are spread
over so many texts; in long texts a rare name is no harm."""
IN_WORDS = {"train": "training", "valid": "validation", "test": "test"}


@dataclass(frozen=True)
class KnownData:
    """What is known of data before the first step.

    Attributes:
        splits: what was counted of each part; of running text no duplicates, since it has no single examples.
        labels: how many training texts have each label.
        has_ngrams: whether unknown words are read by their n-grams.
        better_truncation: the `text.truncate` that helps if many texts are cut.
    """

    config: Config
    splits: Mapping[str, SplitRecord]
    labels: Counter[str] = field(default_factory=Counter)
    has_ngrams: bool = False
    better_truncation: str = ""


def chosen_on_test(known: KnownData) -> Iterator[Finding]:
    """Yield a finding if the weights are chosen on the test split."""
    if known.config.data.use_test_as_validation:
        matter = "the test split is used as validation, so the weights are chosen on it: no clean test score"
        yield Finding(matter, "leave out --use-test-as-validation", "test split")


def shared(known: KnownData) -> Iterator[Finding]:
    """Yield a finding for each part whose texts are in training too."""
    for name, split in known.splits.items():
        if (n := split.n_in_training) and (n_all := split.n_compared):
            matter = overlap_text(IN_WORDS[name], n, n_all, split.n_duplicates is None)
            remedy = "scores on them say nothing of other texts, so remove them from one of the parts"
            yield Finding(matter, remedy, "overlap", {"n": n, "n_all": n_all})


def cut(known: KnownData) -> Iterator[Finding]:
    """Yield a finding if many texts are cut; positions that are taken from another run cannot be more."""
    train, text, begin = known.splits["train"], known.config.text, known.config.train.init_from
    n, n_cut = train.n + (train.n_dropped or 0) + (train.n_empty or 0), train.n_truncated or 0
    if n_cut > MANY_CUT * n:
        matter = f"{n_cut:,} of {n:,} training texts ({percent(n_cut / n)}) are cut at {text.max_len} tokens"
        fixed = begin is not None and known.config.model.positions == "learned"
        remedy = f"the longest text is that of {begin}" if fixed else "a larger --text.max-len"
        if known.better_truncation not in ("", text.truncate):
            remedy += f", or --text.truncate {known.better_truncation}"
        yield Finding(matter, remedy, "truncation", {"n": n_cut, "n_all": n})


def unknown(known: KnownData) -> Iterator[Finding]:
    """Yield a finding for each part of new texts with many tokens that the vocabulary lacks, and no n-grams read."""
    begin = known.config.train.init_from
    remedy = "--text.tokenizer byte-bpe knows every character; a larger --text.vocab-size knows more words"
    if begin is not None:
        remedy = f"begin with a model of such texts: the tokenizer is that of {begin}"
    for name, split in known.splits.items():
        rate, n_texts = split.unknown_rate or 0.0, split.n_texts_unknown
        spread = (n_texts or 0) / max(1, split.n) > MANY_TEXTS
        matters = rate > MANY_UNKNOWN or (rate > SOME_UNKNOWN and spread)
        if matters and name != "train" and not known.has_ngrams:
            among = f", in {n_texts:,} of {split.n:,} texts" if n_texts is not None else ""
            matter = f"{percent(rate)} of the {IN_WORDS[name]} tokens are unknown to the model{among}"
            yield Finding(matter, remedy, "unknown tokens", {"rate": rate})


def few(known: KnownData) -> Iterator[Finding]:
    """Yield findings about too few examples to train on and to validate on."""
    train, n_classes = known.splits["train"], len(known.labels)
    if train.n_duplicates is None:  # running text
        return
    if (n := train.n) < (FEW_OF_A_CLASS * n_classes or FEW_EXAMPLES):
        expect = "scores on other texts may be far lower"
        if known.config.train.init_from is not None:
            expect = "what the pretrained model brings counts for most"
        among = f" of {n_classes} classes" if n_classes else ""
        matter = f"only {counted(n, 'examples')}{among} to train on: {expect}"
        yield Finding(matter, "add examples before trying settings", "few examples", {"n": n}, "know")
    if (n := known.splits["valid"].n) < FEW:
        matter = f"only {counted(n, 'examples')} to validate on: scores on others may be far from theirs"
        remedy = "give more with --valid-file or --valid-fraction"
        yield Finding(matter, remedy, "few validation examples", {"n": n}, "know")


def lopsided(known: KnownData) -> Iterator[Finding]:
    """Yield findings about classes that are very rare or very frequent in training."""
    counts, n_texts = known.labels, known.splits["train"].n
    if lonely := sorted(label for label, n in counts.items() if n == 1):
        named = ", ".join(shortened(label, 60) for label in lonely[:5]) + ", …" * (len(lonely) > 5)
        share = f"{len(lonely)} of {len(counts)} classes have one training example ({named})"
        matter, remedy = f"{share}: expect them never to be answered", "give more of them, or leave them out"
        yield Finding(matter, remedy, "classes of one example", {"n": len(lonely), "n_all": len(counts)})
    for label, n in counts.most_common(1):
        if n > MOST_OF_A_CLASS * n_texts:
            share = f"{percent(n / n_texts)} of the training texts have the label {label[:60]!r}"
            matter, remedy = f"{share}: always answering it is right as often", "read macro F1, not accuracy alone"
            yield Finding(matter, remedy, "prevailing class", {"n": n, "n_all": n_texts})


def of_data(known: KnownData) -> list[Finding]:
    """Return what is found in the data."""
    return [finding for rule in (chosen_on_test, shared, cut, unknown, few, lopsided) for finding in rule(known)]
