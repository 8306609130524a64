"""`glassformer data label`: texts labelled by a trained classifier, those it is sure of, to train another on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from glassformer import console
from glassformer.cli import flags
from glassformer.errors import DataError, UsageError

VERB = "data label"
USAGE = "data label runs/imdb texts.txt --out labelled.jsonl"
TELL_EVERY = 10_000
"""Texts between two lines of progress."""


@dataclass(frozen=True)
class LabelArguments:
    """Label texts with a run, and keep those it is sure of: data label RUN [FILES…] --out labelled.jsonl.

    FILES are .txt, one text a line, or CSV, TSV or JSONL, or folders of .txt. Without any, a run on IMDB labels the
    reviews that have no labels. They should be of the kind that the run knows: it may be as sure of others, and wrong.
    A run of several seeds labels by the mean of their probabilities, as a rule right more often than any of them.
    To train on both: glassformer train classify … --pseudo-file labelled.jsonl.
    """

    out: str | None = None
    """File to write, new: one JSON object a line, with text, label and probability."""
    least: float = 0.9
    """Keep a text if its label is this probable or more."""
    text_column: str | None = None
    """Column with the text (guessed, and announced, when absent)."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute."""
    precision: Literal["auto", "fp32", "bf16", "fp16", "int8"] | None = None
    """Of the matrix products; as in training when absent."""
    json: bool = False
    """Print one JSON object."""


def run(argv: Sequence[str]) -> int:
    """The verb, without its name."""
    words, given = flags.split_words(LabelArguments, argv, VERB)
    a = flags.parse(LabelArguments, given, USAGE)
    if not words:
        raise UsageError("nothing says which run labels", f"as in: glassformer {USAGE}")
    if a.out is None:
        raise UsageError("nothing says where the labelled texts go", f"as in: glassformer {USAGE}")
    if (out := Path(a.out)).exists():
        raise UsageError(f"{out} exists", "name a file that does not")
    if not 0 <= a.least <= 1:
        raise UsageError(f"--least must be in [0, 1], not {a.least:g}", "0.9 is usual")
    path = flags.run_folder(words[0], whole=True)

    import glassformer
    from glassformer.data.pseudo_labels import without_labels
    from glassformer.files import atomic_write_chunks
    from glassformer.runs.seeds_folder import SeedsFolder

    several = SeedsFolder(path)
    paths = [run.path for run in several.trained] if several.exists else [path]
    trained = glassformer.load(*paths, device=a.device, precision=a.precision)
    config, labels = trained.config, trained.task.label_names
    if not labels:
        told = f"{path} is a run of {config.task}, and labels come from a classifier"
        raise UsageError(told, "name a run of classify")
    texts = without_labels([Path(word) for word in words[1:]], config.data, a.text_column)
    by = f", by the mean of {len(paths)} seeds" if len(paths) > 1 else ""
    console.say(f"labelling {len(texts):,} texts of {texts.source}{by}")
    seen, kept = Counter[str](), Counter[str]()
    sure = _sure(trained.predict_stream(texts.text), a.least, seen, kept)
    chunks = (json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in sure)
    atomic_write_chunks(
        out, _at_least_one(chunks, f"{path} is {a.least:g} sure of none of {len(texts):,} texts")
    )
    if a.json:
        console.write_json({"out": a.out, "texts": len(texts), "kept": dict(kept), "labelled": dict(seen)})
    else:
        rows = [(name, f"{seen[name]:,}", f"{kept[name]:,}") for name in labels if seen[name]]
        console.write_table(
            ("label", "texts", "kept"), [*rows, ("all", f"{len(texts):,}", f"{kept.total():,}")]
        )
    if never := [name for name in labels if not kept[name]]:
        told = f"no text was surely {never[0]!r}" + (
            f", nor of {len(never) - 1} other labels" if never[1:] else ""
        )
        console.warn(f"{told}: training on the others alone makes it rarer")
    console.say(f"train on it:  glassformer train {config.recipe} … --pseudo-file {out}")
    return 0


def _sure(
    results: Iterable[dict[str, Any]], least: float, seen: Counter[str], kept: Counter[str]
) -> Iterator[dict[str, Any]]:
    """What is kept of the results, all of which are counted by label."""
    for n, result in enumerate(results, start=1):
        seen[result["label"]] += 1
        if result["probability"] >= least:
            kept[result["label"]] += 1
            yield {name: result[name] for name in ("text", "label", "probability")}
        if n % TELL_EVERY == 0:
            console.say(f"{n:,} labelled, {kept.total():,} kept")


def _at_least_one(chunks: Iterator[bytes], otherwise: str) -> Iterator[bytes]:
    """The chunks; where there are none a DataError, so that no empty file is written."""
    first = next(chunks, None)
    if first is None:
        raise DataError(otherwise, "lower --least, or train the run on more texts")
    yield first
    yield from chunks
