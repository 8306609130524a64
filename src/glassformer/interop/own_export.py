"""What a folder that `export --to hf` or `--to ctranslate2` wrote says of its run, so that the run comes back.

`glassformer.json` names the task, the longest text, the settings of decoding and the classes; `tokenizer.json` is the
run's, up to three things that an export changes (`hf_tokenizer_writer.py`), which are changed back here. A class that
`hf_class.py` registers holds the model as it is, under the prefix `model.`, with its settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glassformer.errors import CheckpointError
from glassformer.interop.choose import REGISTERED
from glassformer.interop.export_facts import FACTS, POOLED, SIDE_FILES, ExportFacts, imported_tokenizer, read_facts
from glassformer.interop.source_folder import SourceFolder
from glassformer.runs.folder import TOKENIZER
from glassformer.text.backends import BYTE_TOKENS, MASK
from glassformer.text.special_tokens import SpecialTokens
from glassformer.text.tokenizer import Tokenizer

_FLAGS = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)


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


def own_tokenizer(folder: SourceFolder, facts: ExportFacts) -> Tokenizer:
    """Return the tokenizer of the run that was exported."""
    path = folder.path / TOKENIZER
    content = folder.json(TOKENIZER, "tokenizer")
    if facts.special is not None:
        special = SpecialTokens.from_json(facts.special, folder.path / FACTS)
        sides = [folder.json(name, "tokenizer") for name in SIDE_FILES if folder.has(name)]
        return imported_tokenizer(content, sides, special, path)
    return Tokenizer.of_content(_as_in_run(content), path)


def _as_in_run(content: dict[str, Any]) -> dict[str, Any]:
    """Undo what an export changes: the end of a text, the space before [MASK], and bytes that are in no text."""
    model, added = content.get("model"), content.get("added_tokens")
    if not isinstance(model, dict) or not isinstance(added, list):
        return content  # which is refused where it is checked
    added = [
        {**token, "lstrip": False} if isinstance(token, dict) and token.get("content") == MASK else token
        for token in added
    ]
    vocabulary = model.get("vocab")
    if model.get("byte_fallback") is True and isinstance(vocabulary, dict):
        known = {token.get("content") for token in added if isinstance(token, dict)}
        missing = [token for token in BYTE_TOKENS if token not in known and type(vocabulary.get(token)) is int]
        added += [{"id": vocabulary[token], "content": token, **_FLAGS, "special": True} for token in missing]
    return {**content, "added_tokens": added, "post_processor": None}


def registered_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a class that `hf_class.py` registers; they are checked where they are built."""
    settings = config.get("settings")
    if not isinstance(settings, dict):
        raise CheckpointError("config.json: settings should be a table of the model's settings")
    return {**settings, "ensemble_size": 1}  # of an ensemble one member can be exported


def registered_kind(config: Mapping[str, Any], facts: ExportFacts | None) -> str:
    """Return the kind of model of a class that `hf_class.py` registers."""
    names, context = config.get("architectures"), config.get("max_position_embeddings")
    problems = {"multi_label_classification": "multilabel_classifier", "regression": "regressor"}
    pooled = problems.get(str(config.get("problem_type")), "classifier")
    kinds = {name: kind for kind, name in REGISTERED.items() if kind == pooled or kind not in POOLED}
    kind = kinds.get(str(names[0])) if isinstance(names, list) and len(names) == 1 else None
    if kind is None or type(context) is not int or context < 1:
        raise CheckpointError("config.json: architectures or max_position_embeddings are not of a class here")
    if facts is not None and facts.kind != kind:
        raise CheckpointError(f"{FACTS} describes a {facts.kind}, and config.json a {kind}", "copy the folder whole")
    return kind
