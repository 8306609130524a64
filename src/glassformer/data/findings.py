"""What stands out in data before the first step, and what to do: the part of the table of findings that is of the data.

`data check` prints what holds; the start of a training, which also knows what the tokenizer makes of the texts, logs
it and stores it in `data.json`. Each finding has its test, its sentence and its advice in one function. What runs and
their scores show is in `report/findings.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from glassformer.config import Config
from glassformer.data.diagnostics import Finding
from glassformer.data.splits import overlap_text
from glassformer.runs.records import SplitRecord
from glassformer.utils.formatting import counted, percent

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

    @property
    def is_running_text(self) -> bool:
        return self.splits["train"].n_duplicates is None


def chosen_on_test(known: KnownData) -> Iterator[Finding]:
    """Yield a finding if the weights are chosen on the test split."""
    if known.config.data.use_test_as_validation:
        matter = "the test split is used as validation, so the weights are chosen on it: no clean test score"
        yield Finding(matter, "leave out --use-test-as-validation", "test split")


def shared(known: KnownData) -> Iterator[Finding]:
    """Yield a finding for each part whose texts are in training too."""
    for name, split in known.splits.items():
        if (n := split.n_in_training) and (n_all := split.n_compared):
            matter = overlap_text(IN_WORDS[name], n, n_all, known.is_running_text)
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
    if known.is_running_text:
        return
    n, n_classes = known.splits["train"].n, len(known.labels)
    if n < (FEW_OF_A_CLASS * n_classes or FEW_EXAMPLES):
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
        named = ", ".join(lonely[:5]) + (", …" if len(lonely) > 5 else "")
        share = f"{len(lonely)} of {len(counts)} classes have one training example ({named})"
        matter, remedy = f"{share}: expect them never to be answered", "give more of them, or leave them out"
        yield Finding(matter, remedy, "classes of one example", {"n": len(lonely), "n_all": len(counts)})
    for label, n in counts.most_common(1):
        if n > MOST_OF_A_CLASS * n_texts:
            share = f"{percent(n / n_texts)} of the training texts have the label {label!r}"
            matter, remedy = f"{share}: always answering it is right as often", "read macro F1, not accuracy alone"
            yield Finding(matter, remedy, "prevailing class", {"n": n, "n_all": n_texts})


def of_data(known: KnownData) -> list[Finding]:
    """Return what is found in the data."""
    rules = chosen_on_test, shared, cut, unknown, few, lopsided
    return [finding for rule in rules for finding in rule(known)]
