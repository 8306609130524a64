"""`glassformer evaluate`: all scores of a run, on its own test split or on files it has never seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import tyro

from glassformer.cli import flags
from glassformer.cli.scores import write_scores
from glassformer.config import Config, DataConfig, DecodeConfig, FilesConfig
from glassformer.errors import UsageError


@dataclass(frozen=True)
class EvaluateArguments:
    """Score a run: classification beside two baselines, translation with signatures, text in nats and bits."""

    split: Literal["test", "valid", "train"] = "test"
    """Which split of the run's own data."""
    data_dir: str | None = None
    """Where the run's built-in data set lies now, if not where it lay."""
    test_file: str | None = None
    """Own test data instead: CSV, TSV, JSONL or .txt, as in training."""
    src_file: str | None = None
    """Own source sentences instead, one a line."""
    ref_file: str | None = None
    """Their translations, one a line."""
    text_column: str | None = None
    """Column with the text; as in training when absent."""
    label_column: str | None = None
    """Column with the label; as in training when absent."""
    src_column: str | None = None
    """Column with the source sentence; as in training when absent."""
    tgt_column: str | None = None
    """Column with the target sentence; as in training when absent."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute."""
    json: bool = False
    """Print one JSON object."""
    decode: tyro.conf.OmitArgPrefixes[DecodeConfig] = field(default_factory=DecodeConfig)


def run(argv: Sequence[str]) -> int:
    """The verb."""
    words, given = flags.split_words(EvaluateArguments, argv, "evaluate")
    if "--help" in given and not words:
        flags.parse(EvaluateArguments, given, "evaluate RUN")
    path = flags.run_folder(flags.one_word(words, "run folder", "evaluate runs/imdb"))
    config = flags.run_config(path)

    from glassformer.tasks import TASKS

    start, task = EvaluateArguments(decode=config.decode), TASKS.get(config.task)
    arguments = flags.parse(EvaluateArguments, given, f"evaluate {path}", start, task)
    flags.config_of(arguments, config)  # checks the decoding flags
    data = test_data(arguments, config)

    import glassformer

    trained = glassformer.load(path, device=arguments.device)
    options = flags.changed(arguments.decode, config.decode)
    write_scores(trained.evaluate(arguments.split, data=data, **options), arguments.json)
    return 0


def test_data(arguments: EvaluateArguments, config: Config) -> DataConfig | None:
    """The data to score that the flags name; None for the run's own.

    Raises:
        UsageError: half of a pair of files, or files and a split.
    """
    if (arguments.src_file is None) != (arguments.ref_file is None):
        raise UsageError(
            "--src-file and --ref-file go together", "give both: --src-file s.en --ref-file r.de"
        )
    if arguments.test_file is None and arguments.src_file is None:
        return replace(config.data, data_dir=arguments.data_dir) if arguments.data_dir else None
    if arguments.test_file is not None and arguments.src_file is not None:
        raise UsageError("--test-file and --src-file name two test sets", "give one of them")
    if arguments.split != "test":
        raise UsageError(
            f"--split {arguments.split} is of the run's own data, and files were given", "give one of them"
        )
    columns = ("text_column", "label_column", "src_column", "tgt_column")
    files = FilesConfig(
        test_file=arguments.test_file, test_src_file=arguments.src_file, test_tgt_file=arguments.ref_file,
        **{name: getattr(arguments, name) or getattr(config.data.files, name) for name in columns},
    )  # fmt: skip
    return DataConfig(files=files)
