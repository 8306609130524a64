"""Settings of the data and the tokenizer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from glassformer.config.fields import BY_DATASET, number


@dataclass(frozen=True)
class FilesConfig:
    """Your own files; the task says what they contain."""

    train_file: str | None = None
    """Training data: CSV, TSV or JSONL (classify, translate), or text files or pretokenized shards (lm, pretrain)."""
    valid_file: str | None = None
    """Validation data in the same format; without it, a seeded share of the training data is held out."""
    test_file: str | None = None
    """Test data in the same format."""
    src_file: str | None = None
    """Source sentences, one per line, parallel to --tgt-file."""
    tgt_file: str | None = None
    """Target sentences, one per line."""
    valid_src_file: str | None = None
    """Source sentences of the validation split."""
    valid_tgt_file: str | None = None
    """Target sentences of the validation split."""
    test_src_file: str | None = None
    """Source sentences of the test split."""
    test_tgt_file: str | None = None
    """Target sentences of the test split."""
    text_column: str | None = None
    """Name of the text column; without it, it is guessed and printed."""
    label_column: str | None = None
    """Name of the label column; without it, it is guessed and printed."""
    src_column: str | None = None
    """Name of the source column of a TSV or JSONL of pairs."""
    tgt_column: str | None = None
    """Name of the target column of a TSV or JSONL of pairs."""


@dataclass(frozen=True)
class Multi30kConfig:
    """Language pair of Multi30k."""

    src_lang: str = "en"
    """Source language: en, de or fr."""
    tgt_lang: str = "de"
    """Target language: en, de or fr."""


@dataclass(frozen=True)
class DatesConfig:
    """Generated dates."""

    n_dates: int = number(40_000, "[1, 1000000]")
    """Number of training pairs to generate."""


@dataclass(frozen=True)
class DataConfig:
    """Data: a built-in data set, or your own files."""

    dataset: Literal["files", "dates", "imdb", "imdb-texts", "multi30k", "shakespeare"] = "files"
    """Built-in data set, or `files` for your own."""
    data_dir: str | None = None
    """Folder or archive of the built-in data set, searched before GLASSFORMER_DATA, the cache and a download."""
    valid_fraction: float = number(0.1, "(0, 1)")
    """Share of the training data held out for validation if there is no validation split."""
    split_seed: int = number(0, "[0, 4294967295]")
    """Seed of the held-out split."""
    use_test_as_validation: bool = False
    """Validate on the test split, only to restate published work that did so; every report says it."""
    limit: int | None = number(None, "[1, inf)")
    """Number of training examples to use, drawn by seed; without it, all."""
    files: FilesConfig = field(default_factory=FilesConfig, metadata=BY_DATASET)
    """For `dataset = "files"`."""
    multi30k: Multi30kConfig = field(default_factory=Multi30kConfig, metadata=BY_DATASET)
    """For `dataset = "multi30k"`."""
    dates: DatesConfig = field(default_factory=DatesConfig, metadata=BY_DATASET)
    """For `dataset = "dates"`."""


@dataclass(frozen=True)
class TextConfig:
    """Tokenizer and truncation."""

    tokenizer: Literal["word", "char", "byte-bpe", "bpe"] = "byte-bpe"
    """Tokenizer: words and punctuation, characters, byte-level BPE (GPT-2), or BPE (joint in translation)."""
    vocab_size: int = number(8000, "[6, 10000000]")
    """Maximum vocabulary size, special tokens included (char: all characters of the training split)."""
    lowercase: bool = False
    """Lowercase the text; decoding cannot restore the case."""
    ngrams: int = number(0, "[0, 1000000]")
    """Maximum number of character n-grams, whose embeddings are added to those of their words; 0 for none."""
    max_len: int = number(256, "[1, 1000000]")
    """Maximum sequence length in tokens (language model: the context); what is truncated is counted and printed."""
    truncate: Literal["head", "tail", "head+tail"] = "head"
    """Part kept of a text that is too long for the classifier: its first tokens, its last, or half of each."""
    bigrams: int = number(0, "[0, 10000000]")
    """Maximum number of word bigrams with an embedding, so that "not good" is not "not" and "good"; 0 for none."""
