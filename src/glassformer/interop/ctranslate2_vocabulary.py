"""Read the vocabularies of a CTranslate2 folder, and join those of a translator into one.

A translator here has one vocabulary. Where source and target have two, the joint one begins with that of the target,
and each token has the row of its own side. A token that one side lacks is unknown to that side: as an input it has the
row of the unknown token, and it is never written, since its logit is far below the others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from glassformer.errors import CheckpointError, UsageError
from glassformer.interop.ctranslate2_binary import Variables
from glassformer.interop.ctranslate2_weights import TransformerWeights
from glassformer.text.special_tokens import NONE, SpecialTokens
from glassformer.text.tokenizer import Tokenizer
from glassformer.utils.safe_read import LIMITS, check_types, read_json, read_text

MAX_TOKENS = 1 << 22
"""Most tokens of a vocabulary; larger ones have no model."""
NEVER_WRITTEN = -100.0
"""Added to the logit of a token that a model cannot write: its probability is 0 in float32."""
NAMES = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
PADDING, MASKS = ("<blank>", "<pad>", "[PAD]"), ("<mask>", "[MASK]")
"""Names of the padding token and of the mask, where a vocabulary has one."""
FLAGS = {"with_source_bos": 0, "with_source_eos": 0, "with_target_bos": 1, "user_decoder_start_tokens": 0}
"""Settings of a file before version 6, which are variables, and their defaults."""
_NAMED = re.compile(r"<[^<>]+>|\[[A-Z]+\]")
"""A token that no text holds, such as "<s>" where it has no role."""
_HINT = "copy the folder whole, or convert the model again"


@dataclass(frozen=True)
class Roles:
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
            raise CheckpointError(f"{path} should hold a list of tokens", _HINT)
        if len(tokens) > MAX_TOKENS:
            raise CheckpointError(f"{path} has {len(tokens):,} tokens, and {MAX_TOKENS:,} is the limit", _HINT)
        if unk not in tokens:
            tokens = [*tokens, unk]
        seen = set[str]()
        for number, token in enumerate(tokens):
            if token in seen:
                raise CheckpointError(
                    f"{path}: the token {token[:40]!r} is in it twice, the second time as {number:,}", _HINT
                )
            seen.add(token)
        return tokens
    return None


def read_roles(folder: Path, config: Mapping[str, Any], variables: Variables) -> Roles:
    """Return the tokens with a role: those of `config.json`, or of a file before version 6 its variables.

    Raises:
        CheckpointError: a value is of another type.
        UsageError: the first token of a translation is left to the caller, or is none of the others.
    """
    if variables.version < 6:
        texts = {name: variables.text(name, text) for name, text in NAMES.items()}
        flags = {name: bool(variables.number(name, default)) for name, default in FLAGS.items()}
        if flags["user_decoder_start_tokens"]:
            start = None
        else:
            start = texts["bos_token"] if flags["with_target_bos"] else texts["eos_token"]
        around = flags["with_source_bos"], flags["with_source_eos"]
    else:
        where = folder / "config.json"
        check_types(
            config, dict.fromkeys(NAMES, str) | dict.fromkeys(("add_source_bos", "add_source_eos"), bool), where
        )
        texts = {name: config.get(name, text) for name, text in NAMES.items()}
        start = config.get("decoder_start_token", texts["bos_token"])
        around = bool(config.get("add_source_bos")), bool(config.get("add_source_eos"))
    if not isinstance(start, str):
        message = f"{folder} leaves the first token of a translation to its caller (decoder_start_token null)"
        raise UsageError(message, "import a model of one pair of languages")
    before = (texts["bos_token"],) if around[0] else ()
    after = (texts["eos_token"],) if around[1] else ()
    return Roles(texts["unk_token"], start, texts["eos_token"], before, after)


@dataclass(frozen=True)
class JointVocabulary:
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
        raise CheckpointError(f"the vocabulary lacks {missing[0][:40]!r}, which begins or ends a text", _HINT)
    # No model reads what it is padded with. The token is never written, nor is the one that begins a translation.
    pad = next((token for token in PADDING if token in of_target), roles.bos)
    mask = next((token for token in MASKS if token in of_target), None)
    special = SpecialTokens(
        n_ids=len(tokens),
        pad=ids[pad],
        unk=ids[roles.unk],
        bos=ids[roles.bos],
        eos=ids[roles.eos],
        mask=NONE if mask is None else ids[mask],
        prefix=tuple(ids[token] for token in roles.prefix),
        suffix=tuple(ids[token] for token in roles.suffix),
    )
    from_source, from_target = (
        [side.get(token, side[roles.unk]) for token in tokens] for side in (of_source, of_target)
    )
    return JointVocabulary(tokens, from_source, from_target, len(target), special)


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
    longer = [token for i, token in enumerate(tokens) if len(token) != 1 and i not in special.ids]
    if longer := [token for token in longer if not _NAMED.fullmatch(token)]:
        message = f"the tokens of {where} are not characters ({longer[0][:40]!r}), and there is no tokenizer.json"
        raise UsageError(message, "put the tokenizer.json into the folder that its texts are split with")
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated", "invert": False},
        "post_processor": None,
        "decoder": {"type": "Fuse"},
        "model": {
            "type": "WordLevel",
            "vocab": {token: i for i, token in enumerate(tokens)},
            "unk_token": tokens[special.unk],
        },
    }
    return Tokenizer.imported(json.dumps(content), special, where)
