"""Read a CTranslate2 folder of a translator or a language model into ours (https://opennmt.net/CTranslate2/).

    model.bin  config.json  source_vocabulary.txt  target_vocabulary.txt       (or shared_vocabulary, vocabulary; .json)

Files before version 6 have no `config.json`. A folder has no tokenizer of its own, since CTranslate2 is given tokens: a
`tokenizer.json` beside the model is used, as in an export of ours; without one the tokens have to be characters.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from glassformer.config import DecodeConfig, ModelConfig
from glassformer.config.recipes import build
from glassformer.errors import CheckpointError, UsageError
from glassformer.interop.ctranslate2_binary import FILE, open_variables
from glassformer.interop.ctranslate2_vocabulary import (
    character_tokenizer,
    join,
    read_roles,
    read_vocabulary,
    with_joint_vocabulary,
)
from glassformer.interop.ctranslate2_weights import TransformerWeights, read_weights
from glassformer.interop.export_facts import FACTS, RUN_TOKENIZER, decode_of
from glassformer.interop.imported import ImportedModel, ImportSource
from glassformer.interop.own_export import own_facts, own_tokenizer
from glassformer.interop.source_folder import SourceFolder
from glassformer.runs.folder import TOKENIZER
from glassformer.tasks import task_of_kind
from glassformer.text.tokenizer import Tokenizer
from glassformer.utils.safe_read import LIMITS, check_types, read_text, sha256_regular

CONFIG = "config.json"
VOCABULARIES = ("source_vocabulary", "target_vocabulary", "shared_vocabulary", "vocabulary")
FILES = (
    FILE,
    CONFIG,
    TOKENIZER,
    RUN_TOKENIZER,
    FACTS,
    *(f"{name}.{end}" for name in VOCABULARIES for end in ("json", "txt")),
)
"""Files that are read, where they are there."""
CTRANSLATE2_BEAM = 2
"""The default beam size of CTranslate2."""


def read_ctranslate2(path: Path, max_len: int | None) -> ImportedModel:
    """Return the model in a CTranslate2 folder, in float32.

    Args:
        path: the folder, with `model.bin` and a vocabulary.
        max_len: the most tokens of a text; None for as many as the file has positions for.

    Raises:
        CheckpointError: a file is missing, damaged or a link.
        UsageError: our modules cannot compute what the model computes, or its texts cannot be split.
    """
    folder = SourceFolder(path)
    hashes = {name: sha256_regular(folder.file(name)) for name in FILES if folder.has(name)}
    config = folder.json_if_there(CONFIG)
    check_types(config, {"layer_norm_epsilon": float | None, "quantization_type": Any}, path / CONFIG)
    if config.get("quantization_type") not in (None, 0):
        raise UsageError(f"{path} has weights of four bits (quantization_type)", "convert the model again without")
    facts = own_facts(folder, "ctranslate2")
    with open_variables(path / FILE) as variables:
        roles = read_roles(path, config, variables)
        # A translator has a position more than its longest text has tokens: of an end token, or of a start token.
        is_translator = variables.spec != "TransformerDecoderSpec"
        most = facts.context if facts is not None else None
        found = read_weights(variables, config, most if max_len is None else max_len + is_translator)
        spec = variables.spec
    joint = join(*_vocabularies(path, found, roles.unk), roles)
    if facts is not None:
        tokenizer = own_tokenizer(folder)
    elif TOKENIZER in hashes:
        text = read_text(path / TOKENIZER, LIMITS["tokenizer"])
        tokenizer = Tokenizer.imported(text, joint.special, path / TOKENIZER)
    elif is_translator:
        tokenizer = character_tokenizer(joint.tokens, joint.special, path)
    else:
        message = f"there is no {TOKENIZER} in {path}, and the tokens of a language model are pieces of words"
        raise UsageError(message, f"put the {TOKENIZER} into the folder that its texts are split with")
    if tokenizer.vocabulary() != joint.tokens:
        message = f"{path / TOKENIZER} has other tokens than the vocabulary of the model"
        raise CheckpointError(message, "copy the folder whole")
    with_joint_vocabulary(found, joint)
    positions = found.n_positions - is_translator
    if max_len is not None and max_len > positions:
        message = f"{path} has positions for texts of {positions:,} tokens, not of {max_len:,}"
        raise UsageError(message, f"use --max-len {positions} or less")
    return ImportedModel(
        task=task_of_kind(found.kind),
        model=build(ModelConfig, found.settings, "model", str(path / FILE)),
        tokenizer=tokenizer,
        max_len=positions,
        state=found.weights,
        source=ImportSource("ctranslate2", spec, folder.name(), hashes, **folder.card_facts()),
        notes=tuple(found.notes),
        decode=DecodeConfig(beam_size=CTRANSLATE2_BEAM) if facts is None else decode_of(facts),
    )


def library_files(path: Path) -> list[str]:
    """Return the names of the files that CTranslate2 itself reads."""
    return [name for name in FILES if name not in (TOKENIZER, RUN_TOKENIZER, FACTS) and (path / name).exists()]


def _vocabularies(folder: Path, found: TransformerWeights, unk: str) -> tuple[list[str], list[str]]:
    """Return the tokens of source and target, each with a row of its embedding."""
    rows = {name: len(weight) for name, weight in found.weights.items() if name.endswith("embedding.weight")}
    if found.kind == "language_model":
        source = target = read_vocabulary(folder, "vocabulary", unk)
        n_source = n_target = rows["embedding.weight"]
    else:
        shared = read_vocabulary(folder, "shared_vocabulary", unk)
        target = shared or read_vocabulary(folder, "target_vocabulary", unk)
        source = shared or read_vocabulary(folder, "source_vocabulary", unk)
        n_target = rows["tgt_embedding.weight"]
        n_source = rows.get("src_embedding.weight", n_target)
    if source is None or target is None:
        wanted = "vocabulary" if found.kind == "language_model" else "shared_vocabulary, or one of source and target"
        raise CheckpointError(f"{folder} lacks its {wanted} (.json or .txt)", "copy the folder whole")
    for name, tokens, n in (("source", source, n_source), ("target", target, n_target)):
        if len(tokens) != n:
            message = f"{folder}: the vocabulary of the {name} has {len(tokens):,} tokens, and its embedding {n:,} rows"
            raise CheckpointError(message, "copy the folder whole, or convert the model again")
    return source, target
