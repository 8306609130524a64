"""What a folder that `export --to hf` or `--to ctranslate2` wrote says of its run, so that the run comes back.

`glassformer.json` names the task, the longest text, the settings of decoding and the classes; `run_tokenizer.json` is
the run's tokenizer.
"""

from __future__ import annotations

from glassformer.errors import CheckpointError
from glassformer.interop.export_facts import FACTS, RUN_TOKENIZER, ExportFacts, read_facts
from glassformer.interop.source_folder import SourceFolder
from glassformer.text.tokenizer import Tokenizer


def own_facts(folder: SourceFolder, target: str) -> ExportFacts | None:
    """Return the description of an export of ours; None where another library wrote the folder.

    Raises:
        CheckpointError: it is damaged, or of an export to another library.
    """
    if not folder.has(FACTS):
        return None
    folder.bytes(FACTS)  # its hash, and no link
    facts = read_facts(folder.path)
    if facts.target != target:
        raise CheckpointError(f"{folder.path / FACTS} describes an export to {facts.target}", "copy the folder whole")
    return facts


def own_tokenizer(folder: SourceFolder) -> Tokenizer:
    """Return the tokenizer of the run that was exported."""
    folder.bytes(RUN_TOKENIZER, "tokenizer")  # its hash, and no link
    return Tokenizer.load(folder.path / RUN_TOKENIZER)
