"""`glassformer data encode`: text of any size into shards of token ids, ahead of training."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.cli import flags
from glassformer.data.shards import PretokenizeConfig
from glassformer.errors import UsageError
from glassformer.utils import console
from glassformer.utils.cpu_threads import cores
from glassformer.utils.formatting import glassformer_command

logger = logging.getLogger(__name__)

VERB = "data encode"
USAGE = "data encode corpus --out shards"


@dataclass(frozen=True)
class EncodeArguments(PretokenizeConfig):
    """Encode text of any size ahead of training: data encode FILES… --out SHARDS, then train lm --train-file SHARDS.

    It reads .txt, .jsonl and both as .gz, files and folders, in bounded memory, and continues where it was stopped.
    """

    out: str | None = None
    """Folder of the shards: new or empty, or one to continue."""
    tokenizer: str | None = None
    """Use this tokenizer, a tokenizer.json or a run; one is trained on a sample of the text when absent."""
    jobs: int | None = None
    """Processes; one a core when absent. The result is the same for any number."""
    json: bool = False
    """Print one JSON object."""


def run(argv: Sequence[str]) -> int:
    """Run the command with the arguments after its name."""
    words, flag_args = flags.split_words(EncodeArguments, argv, VERB)
    a = flags.parse(EncodeArguments, flag_args, USAGE)
    if not words or a.out is None:
        message = f"{VERB} needs files of text, and --out for the shards"
        raise UsageError(message, f"give them as in: glassformer {USAGE}")
    if a.valid_fraction is not None and not 0 <= a.valid_fraction < 1:
        raise UsageError(f"--valid-fraction must be in [0, 1), got {a.valid_fraction:g}", "try 0.01")
    for name, least in {"vocab_size": 6, "shard_mb": 1, "jobs": 1, "seed": 0}.items():
        if (value := getattr(a, name)) is not None and value < least:
            raise UsageError(f"--{name.replace('_', '-')} must be {least} or more, got {value}")

    from glassformer.data.shard_writer import PretokenizedWriter
    from glassformer.data.shards import TOKENIZER, ShardIndex
    from glassformer.data.sources import not_read, not_read_record
    from glassformer.text.tokenizer import Tokenizer

    tokenizer = None
    if a.tokenizer is not None:
        path = Path(a.tokenizer)
        tokenizer = Tokenizer.load(path / TOKENIZER if path.is_dir() else path)  # a run calls it so, too
        if tokenizer.ngrams or tokenizer.bigrams:
            message = f"{path} reads words with their n-grams or pairs, which are not in shards"
            raise UsageError(message, "use one that was trained with --text.ngrams 0 --text.bigrams 0")
    started, n_tokens = time.perf_counter(), 0
    writer = PretokenizedWriter(Path(a.out), words, a, tokenizer)
    if writer.others:
        logger.warning(not_read(writer.others))
    for shard in writer.write(a.jobs or len(cores())):
        n_tokens += shard.tokens
        rate = n_tokens / (time.perf_counter() - started)
        logger.info(f"{shard.name}: {shard.tokens:,} tokens, {rate:,.0f} tokens/s")
    index = ShardIndex.read(Path(a.out))
    held_out = sum(shard.held_out_documents for shard in index.shards)
    counts: dict[str, Any] = {"shards": len(index.shards), **index.counts, "held out": held_out}
    if a.json:
        counts |= {"not_read": not_read_record(writer.others)}
        console.write_json(counts | {"out": a.out, "tokenizer": index.tokenizer, "sha256": index.sha256})
        return 0
    console.write_table(("found", "count"), [(name, f"{n:,}") for name, n in counts.items()])
    logger.info(f"train on it:  {glassformer_command(*'train lm --train-file'.split(), a.out)}")
    return 0
