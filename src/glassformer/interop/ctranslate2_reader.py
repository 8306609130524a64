"""Read a CTranslate2 folder of a translator or a language model into ours (https://opennmt.net/CTranslate2/).

    model.bin  config.json  source_vocabulary.txt  target_vocabulary.txt       (or shared_vocabulary, vocabulary; .json)

Files before version 6 have no `config.json`. A folder has no tokenizer of its own, since CTranslate2 is given tokens: a
`tokenizer.json` beside the model is used, as in an export of ours; without one the tokens have to be characters.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from glassformer.config import DecodeConfig, ModelConfig
from glassformer.config.recipes import build
from glassformer.errors import CheckpointError, UsageError
from glassformer.interop.ctranslate2_binary import FILE, HINT, Variables, open_variables
from glassformer.interop.ctranslate2_engine import CONFIG, KEYS
from glassformer.interop.ctranslate2_weights import FLAGS, NAMES, TransformerWeights, read_weights
from glassformer.interop.export_facts import FACTS, RUN_TOKENIZER, decode_of
from glassformer.interop.hf_settings import read_keys
from glassformer.interop.hf_tokenizer import check_growth
from glassformer.interop.imported import ImportedModel, own_export
from glassformer.interop.source_folder import SourceFolder
from glassformer.runs.folder import TOKENIZER
from glassformer.runs.records import Origin
from glassformer.tasks import task_of_kind
from glassformer.text.tokenizer import NONE, SpecialTokens, Tokenizer
from glassformer.utils.safe_read import LIMITS, check_types, read_json, read_text, sha256_regular

VOCABULARIES = ("source_vocabulary", "target_vocabulary", "shared_vocabulary", "vocabulary")
OF_LIBRARY = [FILE, CONFIG, *(f"{name}.{end}" for name in VOCABULARIES for end in ("json", "txt"))]
"""Files that CTranslate2 itself reads, where they are there."""
CTRANSLATE2_BEAM = 2
"""The default beam size of CTranslate2."""


def read_ctranslate2(folder: SourceFolder, config: Mapping[str, Any], max_len: int | None) -> ImportedModel:
    """Return the model in a CTranslate2 folder, in float32.

    Args:
        folder: the folder, with `model.bin` and a vocabulary.
        config: its `config.json`, empty where it has none.
        max_len: the most tokens of a text; None for as many as the file has positions for.

    Raises:
        CheckpointError: a file is missing, damaged or a link.
        UsageError: our modules cannot compute what the model computes, or its texts cannot be split.
    """
    path, files = folder.path, [*OF_LIBRARY, TOKENIZER, RUN_TOKENIZER, FACTS]
    hashes = {name: sha256_regular(folder.file(name)) for name in files if folder.has(name)}
    check_types(config, {"layer_norm_epsilon": float | None}, path / CONFIG)
    read_keys(KEYS, config, CONFIG)
    with open_variables(path / FILE) as variables:
        roles, spec = read_roles(path, config, variables), variables.spec
        # A translator has a position more than its longest text has tokens: of an end token, or of a start token.
        is_translator = spec != "TransformerDecoderSpec"
        own = own_export(folder, "ctranslate2", "translator" if is_translator else "language_model")
        most = own[0].context if own else None
        found = read_weights(variables, config, most if max_len is None else max_len + is_translator)
    joint = join(*_vocabularies(path, found, roles.unk), roles)
    if own:
        tokenizer = own[1]
    elif TOKENIZER in hashes:
        check_growth(folder.json(TOKENIZER, "tokenizer"))
        text = read_text(path / TOKENIZER, LIMITS["tokenizer"])
        tokenizer = Tokenizer.imported(text, joint.special, path / TOKENIZER)
    elif is_translator:
        tokenizer = character_tokenizer(joint.tokens, joint.special, path)
    else:
        message = f"there is no {TOKENIZER} in {path}, and the tokens of a language model are pieces of words"
        raise UsageError(message, f"put the {TOKENIZER} into the folder that its texts are split with")
    if tokenizer.vocabulary() != joint.tokens:
        raise CheckpointError(f"{path / TOKENIZER} has other tokens than the model", "copy the folder whole")
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
        source=Origin("ctranslate2", spec, folder.name, hashes, **folder.card_facts()),
        notes=tuple(found.notes),
        decode=decode_of(own[0]) if own else DecodeConfig(beam_size=CTRANSLATE2_BEAM),
    )


def _vocabularies(folder: Path, found: TransformerWeights, unk: str) -> tuple[list[str], list[str]]:
    """Return the tokens of source and target, each with a row of its embedding."""
    is_lm, weights = found.kind == "language_model", found.weights
    shared = read_vocabulary(folder, "vocabulary" if is_lm else "shared_vocabulary", unk)
    target_rows = weights["embedding.weight" if is_lm else "tgt_embedding.weight"]
    sides = list[list[str]]()
    for name, rows in (("source", weights.get("src_embedding.weight", target_rows)), ("target", target_rows)):
        tokens = shared if shared or is_lm else read_vocabulary(folder, f"{name}_vocabulary", unk)
        if tokens is None:
            wanted = "vocabulary" if is_lm else "shared_vocabulary, or one of source and target"
            raise CheckpointError(f"{folder} lacks its {wanted} (.json or .txt)", "copy the folder whole")
        if len(tokens) != len(rows):
            what = f"{len(tokens):,} tokens, and its embedding {len(rows):,} rows"
            raise CheckpointError(f"{folder}: the vocabulary of the {name} has {what}", HINT)
        sides.append(tokens)
    return sides[0], sides[1]


NEVER_WRITTEN = -100.0
"""Added to the logit of a token that a model cannot write: its probability is 0 in float32."""
PADDING, MASKS = ("<blank>", "<pad>", "[PAD]"), ("<mask>", "[MASK]")
"""Names of the padding token and of the mask, where a vocabulary has one."""
_NAMED = re.compile(r"<[^<>]+>|\[[A-Z]+\]")
"""A token that no text holds, such as "<s>" where it has no role."""


class Roles(NamedTuple):
    """The tokens with a role in a vocabulary, by their names there.

    Attributes:
        unk: stands for a token that is not in it.
        bos: begins a translation.
        eos: ends one.
        prefix: tokens before a source.
        suffix: tokens after a source.
    """

    unk: str
    bos: str
    eos: str
    prefix: tuple[str, ...] = ()
    suffix: tuple[str, ...] = ()


def read_vocabulary(folder: Path, name: str, unk: str) -> list[str] | None:
    """Return the tokens of `NAME.json` or `NAME.txt` by id, or None without either.

    The unknown token is added at the end where it is missing, as CTranslate2 does.

    Raises:
        CheckpointError: it is no list of tokens, or has one twice.
    """
    for path in (folder / f"{name}.json", folder / f"{name}.txt"):
        if not path.is_symlink() and not path.exists():
            continue
        if path.suffix == ".json":
            tokens = read_json(path, LIMITS["tokenizer"])
        else:
            tokens = read_text(path, LIMITS["tokenizer"]).split("\n")
            tokens = tokens[:-1] if tokens[-1] == "" else tokens
            if all(token.endswith("\r") for token in tokens):
                tokens = [token[:-1] for token in tokens]
        if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
            raise CheckpointError(f"{path} should hold a list of tokens", HINT)
        tokens = tokens if unk in tokens else [*tokens, unk]
        if twice := next((token for token, n in Counter(tokens).items() if n > 1), None):
            raise CheckpointError(f"{path}: the token {twice[:40]!r} is in it twice", HINT)
        return tokens
    return None


def read_roles(folder: Path, config: Mapping[str, Any], variables: Variables) -> Roles:
    """Return the tokens with a role: those of `config.json`, or of a file before version 6 its variables.

    Raises:
        CheckpointError: a value is of another type.
        UsageError: the first token of a translation is left to the caller, or is none of the others.
    """
    if variables.version < 6:
        flags = {name: bool(variables.number(name, default)) for name, default in FLAGS.items()}
        config = dict[str, Any]((name, variables.text(name, text)) for name, text in NAMES.items())
        start = None if flags["user_decoder_start_tokens"] else "bos_token" if flags["with_target_bos"] else "eos_token"
        config |= {"decoder_start_token": config[start] if start else None}
        config |= {f"add_source_{end}": flags[f"with_source_{end}"] for end in ("bos", "eos")}
    kinds = dict.fromkeys(NAMES, str) | {"add_source_bos": bool, "add_source_eos": bool}
    check_types(config, kinds, folder / "config.json")
    texts = {name: config.get(name, text) for name, text in NAMES.items()}
    start = config.get("decoder_start_token", texts["bos_token"])
    if not isinstance(start, str):
        message = f"{folder} leaves the first token of a translation to its caller (decoder_start_token null)"
        raise UsageError(message, "import a model of one pair of languages")
    before, after = ((texts[f"{end}_token"],) if config.get(f"add_source_{end}") else () for end in ("bos", "eos"))
    return Roles(texts["unk_token"], start, texts["eos_token"], before, after)


class JointVocabulary(NamedTuple):
    """One vocabulary of both sides: the tokens of the target by their ids there, then those of the source alone.

    Attributes:
        tokens: by id.
        source: for each, the row of the source's vocabulary.
        target: for each, the row of the target's.
        n_written: number of the first ones, which the model can write.
        special: the ids of special tokens.
    """

    tokens: list[str]
    source: list[int]
    target: list[int]
    n_written: int
    special: SpecialTokens


def join(source: Sequence[str], target: Sequence[str], roles: Roles) -> JointVocabulary:
    """Return one vocabulary for both sides; where they are equal, it is theirs.

    Raises:
        CheckpointError: a token with a role is missing.
    """
    of_source, of_target = ({token: i for i, token in enumerate(side)} for side in (source, target))
    tokens = [*target, *(token for token in source if token not in of_target)]
    ids = {token: i for i, token in enumerate(tokens)}
    needed = [(roles.bos, of_target), (roles.eos, of_target)]
    needed += [(token, of_source) for token in (*roles.prefix, *roles.suffix)]
    if missing := [token for token, side in needed if token not in side]:
        raise CheckpointError(f"the vocabulary lacks {missing[0][:40]!r}, which begins or ends a text", HINT)
    # No model reads what it is padded with. The token is never written, nor is the one that begins a translation.
    pad = next((token for token in PADDING if token in of_target), roles.bos)
    mask = next((ids[token] for token in MASKS if token in of_target), NONE)
    prefix, suffix = (tuple(ids[token] for token in around) for around in (roles.prefix, roles.suffix))
    special = SpecialTokens(len(tokens), ids[pad], ids[roles.unk], ids[roles.bos], ids[roles.eos], mask, prefix, suffix)
    rows, target_rows = ([side.get(token, side[roles.unk]) for token in tokens] for side in (of_source, of_target))
    return JointVocabulary(tokens, rows, target_rows, len(target), special)


def with_joint_vocabulary(found: TransformerWeights, joint: JointVocabulary) -> None:
    """Arrange the rows of a translator's weights by the ids of its joint vocabulary, in place."""
    weights, source, target = found.weights, torch.tensor(joint.source), torch.tensor(joint.target)
    for name, index in {"src_embedding": source, "tgt_embedding": target, "output": target}.items():
        if f"{name}.weight" in weights:
            weights[f"{name}.weight"] = weights[f"{name}.weight"][index]
    if joint.n_written < len(joint.tokens):
        bias = weights["output_bias"][target] if "output_bias" in weights else torch.zeros(len(target))
        bias[joint.n_written :] += NEVER_WRITTEN
        weights["output_bias"], found.settings["output_bias"] = bias, True
        found.notes.append(
            f"the vocabularies, of {len({*joint.source})} and {joint.n_written} tokens, became one of {len(target)}: "
            f"{len(target) - joint.n_written} tokens of the source alone have {NEVER_WRITTEN:g} in the output bias"
        )


def character_tokenizer(tokens: Sequence[str], special: SpecialTokens, where: Path) -> Tokenizer:
    """Return the tokenizer of a vocabulary whose tokens are characters, beside special ones.

    Raises:
        UsageError: one is longer.
    """
    several = (token for i, token in enumerate(tokens) if len(token) != 1 and i not in special.ids)
    if longer := [token for token in several if not _NAMED.fullmatch(token)]:
        message = f"the tokens of {where} are not characters ({longer[0][:40]!r}), and there is no tokenizer.json"
        raise UsageError(message, "put the tokenizer.json into the folder that its texts are split with")
    content = {
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated", "invert": False},
        "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": {t: i for i, t in enumerate(tokens)}, "unk_token": tokens[special.unk]},
    }
    return Tokenizer.imported(json.dumps(content), special, where)
