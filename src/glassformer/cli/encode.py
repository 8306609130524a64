"""`glassformer data encode`: text of any size into a folder of token ids, ahead of training."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from glassformer.cli import flags
from glassformer.data.shards import PretokenizeConfig
from glassformer.errors import UsageError
from glassformer.utils import console
from glassformer.utils.formatting import glassformer_command

logger = logging.getLogger(__name__)

VERB = "data encode"
USAGE = "data encode corpus --out shards"


@dataclass(frozen=True)
class EncodeArguments(PretokenizeConfig):
    """Encode text of any size ahead of training: data encode FILES… --out SHARDS, then train lm --train-file SHARDS.

    It reads .txt, .jsonl and both as .gz, files and folders, in bounded memory.
    """

    out: str | None = None
    """Folder of the shards, new or empty."""
    tokenizer: str | None = None
    """Use this tokenizer, a tokenizer.json or a run; one is trained on a sample of the text when absent."""
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
    for name, least in {"vocab_size": 6, "seed": 0}.items():
        if (value := getattr(a, name)) < least:
            raise UsageError(f"--{name.replace('_', '-')} must be {least} or more, got {value}")

    from glassformer.data.shards import TOKENIZER, encode_text
    from glassformer.text.tokenizer import Tokenizer

    tokenizer = None
    if a.tokenizer is not None:
        path = Path(a.tokenizer)
        tokenizer = Tokenizer.load(path / TOKENIZER if path.is_dir() else path)  # a run calls it so, too
        if tokenizer.ngrams or tokenizer.bigrams:
            message = f"{path} reads words with their n-grams or pairs, which are not in shards"
            raise UsageError(message, "use one that was trained with --text.ngrams 0 --text.bigrams 0")
    index = encode_text(Path(a.out), words, a, tokenizer)
    counts = index.counts | {"held out": len(index.read_held_out())}
    if a.json:
        console.write_json(counts | {"out": a.out, "tokenizer": index.tokenizer, "sha256": index.sha256})
        return 0
    console.write_table(("found", "count"), [(name, f"{n:,}") for name, n in counts.items()])
    valid = [] if counts["held out"] else ["--valid-file", "VALID.txt"]
    logger.info(f"train on it:  {glassformer_command(*'train lm --train-file'.split(), a.out, *valid)}")
    return 0
