"""`glassformer data encode`: text of any size into shards, ahead of training."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from glassformer import console
from glassformer.cli import flags
from glassformer.config import TextConfig
from glassformer.errors import UsageError
from glassformer.threads import cores

if TYPE_CHECKING:
    from glassformer.text.tokenizer import Tokenizer

VERB = "data encode"
USAGE = "data encode corpus --out shards"


@dataclass(frozen=True)
class EncodeArguments:
    """Encode text of any size ahead of training: data encode FILES… --out SHARDS, then train lm --train-file SHARDS.

    It reads .txt, .jsonl and both as .gz, files and folders, holds little in memory, and goes on where it was stopped.
    """

    out: str | None = None
    """Folder of the shards: new or empty, or one to go on with."""
    tokenizer: str | None = None
    """Use this tokenizer, a tokenizer.json or a run; one is trained on a sample of the text when absent."""
    kind: Literal["word", "char", "byte-bpe", "bpe"] = "byte-bpe"
    """Which kind of tokenizer to train."""
    vocab_size: int = 8000
    """Its largest vocabulary; from 65,537 on ids take four bytes."""
    lowercase: bool = False
    """Lower-case the text first."""
    separator: str | None = None
    """A line that stands between two documents of a .txt (an empty one: ""); without it a file is one document."""
    column: str = "text"
    """The field of a .jsonl that holds the text."""
    valid_fraction: float | None = None
    """Share held out for validation, whole documents (of one long document, stretches); a tenth, or about 4 MB, when absent."""
    seed: int = 0
    """Of what is held out, and of the sample."""
    jobs: int | None = None
    """Processes; one a core when absent. The outcome is the same for any number."""
    shard_mb: int = 64
    """Megabytes of text in a shard, about."""
    json: bool = False
    """Print one JSON object."""


def run(argv: Sequence[str]) -> int:
    """Run the command, without its name."""
    words, given = flags.split_words(EncodeArguments, argv, VERB)
    a = flags.parse(EncodeArguments, given, USAGE)
    _check(a, words)

    from glassformer.data.encode import Encoding
    from glassformer.data.encode_jobs import encode
    from glassformer.data.stream import Layout

    text = TextConfig(tokenizer=a.kind, vocab_size=a.vocab_size, lowercase=a.lowercase)
    encoding = Encoding(Layout(a.separator, a.column), a.seed, a.valid_fraction, a.shard_mb << 20, text)
    tokenizer = _tokenizer(Path(a.tokenizer)) if a.tokenizer else None
    began, n_tokens = time.perf_counter(), 0

    def told(done: int, n: int, counts: Counter[str]) -> None:
        nonlocal n_tokens
        n_tokens += counts["tokens"]
        rate = n_tokens / (time.perf_counter() - began)
        console.say(f"shard {done} of {n}: {n_tokens:,} tokens, {rate:,.0f} tokens/s")

    shards = encode(
        words, Path(str(a.out)), encoding, tokenizer=tokenizer, jobs=a.jobs or len(cores()), told=told
    )
    held_out = sum(shard.held_out_documents for shard in shards.shards)
    facts = {"shards": len(shards.shards), **shards.counts, "held out": held_out}
    if a.json:
        console.write_json(facts | {"out": a.out, "tokenizer": shards.tokenizer, "sha256": shards.sha256})
        return 0
    console.write_table(("found", "count"), [(name, f"{n:,}") for name, n in facts.items()])
    console.say(f"train on it:  glassformer train lm --train-file {a.out}")
    return 0


def _check(a: EncodeArguments, words: Sequence[str]) -> None:
    """Refuse what cannot be meant."""
    if not words:
        raise UsageError("nothing to encode is named", f"as in: glassformer {USAGE}")
    if a.out is None:
        raise UsageError("nothing says where the shards go", f"as in: glassformer {USAGE}")
    if a.valid_fraction is not None and not 0 <= a.valid_fraction < 1:
        raise UsageError(f"--valid-fraction must be in [0, 1), not {a.valid_fraction:g}", "0.01 is usual")
    for name, least in {"vocab_size": 6, "shard_mb": 1, "jobs": 1, "seed": 0}.items():
        if (value := getattr(a, name)) is not None and value < least:
            raise UsageError(f"--{name.replace('_', '-')} must be {least} or more, not {value}")


def _tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a file, or of a run.

    Raises:
        CheckpointError: there is none. UsageError: it knows more than ids tell.
    """
    from glassformer.data.shards import TOKENIZER
    from glassformer.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(path / TOKENIZER if path.is_dir() else path)  # a run calls it so, too
    if tokenizer.spelling or tokenizer.bigrams:
        told = f"{path} reads words with their n-grams or pairs, which are not in shards"
        raise UsageError(told, "use one that was trained with --text.ngrams 0 --text.bigrams 0")
    return tokenizer
