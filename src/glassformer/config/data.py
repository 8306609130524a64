"""Which text, and how it becomes ids."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from glassformer.config.fields import BY_DATASET, number


@dataclass(frozen=True)
class FilesConfig:
    """Files of your own: what they hold is for the task to say."""

    train_file: str | None = None
    """Own data: CSV, TSV, JSONL to classify; TSV, JSONL of pairs to translate; .txt or a folder of it or of shards for lm and pretrain."""
    valid_file: str | None = None
    """Own validation data in the same form; without it a seeded share of the training data is set aside."""
    test_file: str | None = None
    """Own test data in the same form."""
    src_file: str | None = None
    """Own source sentences, one a line (parallel to --tgt-file)."""
    tgt_file: str | None = None
    """Own target sentences, one a line."""
    valid_src_file: str | None = None
    """Source sentences to validate on."""
    valid_tgt_file: str | None = None
    """Target sentences to validate on."""
    test_src_file: str | None = None
    """Source sentences to test on."""
    test_tgt_file: str | None = None
    """Target sentences to test on."""
    text_column: str | None = None
    """Column with the text (guessed, and announced, when absent)."""
    label_column: str | None = None
    """Column with the label (guessed, and announced, when absent)."""
    src_column: str | None = None
    """Column with the source sentence of a TSV or JSONL of pairs."""
    tgt_column: str | None = None
    """Column with the target sentence of a TSV or JSONL of pairs."""


@dataclass(frozen=True)
class Multi30kConfig:
    """Languages of Multi30k."""

    src_lang: str = "en"
    """Language to translate from (en, de, fr)."""
    tgt_lang: str = "de"
    """Language to translate into (en, de, fr)."""


@dataclass(frozen=True)
class DatesConfig:
    """Dates, which are generated."""

    n_dates: int = number(40_000, "[1, 1000000]")
    """How many training pairs to generate."""


@dataclass(frozen=True)
class DataConfig:
    """Which text: a built-in data set, or files of your own."""

    dataset: Literal["files", "dates", "imdb", "imdb-texts", "multi30k", "shakespeare"] = "files"
    """Built-in data set, or `files` for your own."""
    data_dir: str | None = None
    """Folder (or archive) that holds the built-in data set; before GLASSFORMER_DATA, the cache and a download."""
    valid_fraction: float = number(0.1, "(0, 1)")
    """Share of the training data set aside for validation where no validation split is given."""
    split_seed: int = number(0, "[0, 4294967295]")
    """Seed of that split."""
    use_test_as_validation: bool = False
    """Validate on the test split. Only to restate published work that did so; every report says it."""
    limit: int | None = number(None, "[1, inf)")
    """Use only so many training examples, drawn by seed (a quick look; the report says it)."""
    pseudo_file: str | None = None
    """Predictions of a classifier (predict RUN --json) to train on as well: self-training."""
    pseudo_min_probability: float = number(0.9, "[0, 1]")
    """Lowest probability of a predicted label that is trained on."""
    files: FilesConfig = field(default_factory=FilesConfig, metadata=BY_DATASET)
    """For `dataset = "files"`."""
    multi30k: Multi30kConfig = field(default_factory=Multi30kConfig, metadata=BY_DATASET)
    """For `dataset = "multi30k"`."""
    dates: DatesConfig = field(default_factory=DatesConfig, metadata=BY_DATASET)
    """For `dataset = "dates"`."""


@dataclass(frozen=True)
class TextConfig:
    """From text to ids."""

    tokenizer: Literal["word", "char", "byte-bpe", "bpe"] = "byte-bpe"
    """word: words and punctuation; char: characters; byte-bpe: GPT-2's; bpe: merged characters, joint when translating."""
    vocab_size: int = number(8000, "[6, 10000000]")
    """Largest vocabulary, special tokens included (char: every character of the training split)."""
    lowercase: bool = False
    """Lower-case the text first (word tokenizers usually do; decoding cannot restore the case)."""
    ngrams: int = number(0, "[0, 1000000]")
    """Most character n-grams of words, whose vectors are added to those of the words: what is spelled alike is read alike."""
    max_len: int = number(256, "[1, 1000000]")
    """Most tokens of a sequence; a language model's context. What is cut is counted and printed."""
    truncate: Literal["head", "tail", "head+tail"] = "head"
    """Which part of a longer text to keep when classifying: the first tokens, the last, or half of each."""
    bigrams: int = number(0, "[0, 10000000]")
    """Most pairs of neighbouring words that get vectors of their own in a classifier, so that "not good" is not "not" and "good"."""
