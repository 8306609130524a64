"""The tokenizer of a folder of transformers: `tokenizer.json`, special tokens by role, and what is around a text.

That of a Marian is three files instead: `source.spm`, `target.spm` and `vocab.json`, whose ids are neither's.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers
from torch import nn

from glassformer.errors import CheckpointError, UsageError
from glassformer.interop.export_facts import SIDE_FILES
from glassformer.interop.hf_settings import read_keys
from glassformer.interop.protobuf import fields
from glassformer.interop.source_folder import SourceFolder
from glassformer.models import LanguageModel, MaskedLanguageModel
from glassformer.models.encoder_models import TextEncoder
from glassformer.runs.folder import TOKENIZER
from glassformer.text.tokenizer import (
    BOS,
    EOS,
    KEY,
    MASK,
    NONE,
    PAD,
    PAIRS,
    SIDES,
    UNK,
    PairedTokenizer,
    SpecialTokens,
    Tokenizer,
    readable,
)

ROLES = {
    "pad": ("pad_token", "[PAD]", "<pad>"),
    "unk": ("unk_token", "[UNK]", "<unk>"),
    "bos": ("cls_token", "bos_token", "[CLS]", "<s>", "<|endoftext|>"),
    "eos": ("sep_token", "eos_token", "[SEP]", "</s>", "<|endoftext|>"),
    "mask": ("mask_token", "[MASK]", "<mask>"),
}
"""Of each role the keys of `tokenizer_config.json` and `special_tokens_map.json`, and names where these do not say."""
TOKENIZER_CONFIG = "tokenizer_config.json"
OVERRIDES = {
    "do_lower_case": ("BertNormalizer", "lowercase"),
    "strip_accents": ("BertNormalizer", "strip_accents"),
    "tokenize_chinese_chars": ("BertNormalizer", "handle_chinese_chars"),
    "add_prefix_space": ("ByteLevel", "add_prefix_space"),
}
"""Keys of `tokenizer_config.json` that say what a part of `tokenizer.json` says."""
OTHER_KEYS = """
= true : do_basic_tokenize
= null : never_split
= null false true : keep_accents
= false null : separate_vocabs
. pad_token unk_token cls_token bos_token sep_token eos_token mask_token additional_special_tokens tokenizer_class
. do_lower_case strip_accents tokenize_chinese_chars add_prefix_space add_bos_token add_eos_token name_or_path backend
. clean_up_tokenization_spaces split_special_tokens model_max_length max_len padding_side truncation_side trim_offsets
. model_input_names added_tokens_decoder special_tokens_map_file tokenizer_file use_fast legacy errors is_local
. extra_special_tokens sp_model_kwargs spaces_between_special_tokens use_default_system_prompt chat_template vocab_size
. pad_to_multiple_of pad_token_type_id padding max_length stride truncation_strategy source_lang target_lang device_map
. wordpieces_prefix do_not_tokenize return_token_type_ids processor_class
"""
"""The other keys: what is around a text and roles of tokens are read; the rest changes no token of one text."""
MOST_SAMPLES = 32
MOST_GROWTH = 1024
"""The most characters that the steps of a tokenizer may make of one: each of them puts some in its place."""


def read_tokenizer(folder: SourceFolder, config: Mapping[str, Any], n_ids: int) -> Tokenizer:
    """Return the tokenizer of a folder whose embedding has `n_ids` rows.

    Raises:
        CheckpointError: there is no `tokenizer.json`, it has a part that is not known, or a token without a row.
    """
    where = folder.path / TOKENIZER
    if not folder.has(TOKENIZER):
        hint = "load it with transformers where you trust it, and save it again: save_pretrained writes the file"
        raise CheckpointError(f"{folder.path} holds no {TOKENIZER}", hint)
    content = folder.json(TOKENIZER, "tokenizer")
    check_growth(content)
    model = content.get("model")
    if not isinstance(model, dict):
        raise CheckpointError(f"{where}: this is not a readable tokenizer (no model)")
    ids, named = _ids(content), folder.json_if_there(TOKENIZER_CONFIG)
    read_keys(OTHER_KEYS, named, TOKENIZER_CONFIG)
    names = folder.json_if_there("special_tokens_map.json") | named
    roles = {role: _role(role, names, config, ids) for role in ROLES}
    if (start := config.get("decoder_start_token_id")) in ids.values() and type(start) is int:
        roles["bos"] = start  # of a translator, whatever the tokenizer has before a text
    unknown = model.get("unk_token")
    if roles["unk"] in (roles["bos"], roles["eos"]) or model.get("type") == "BPE":
        roles["unk"] = roles["unk"] if unknown in ids else NONE
    if unknown and unknown not in ids:
        raise CheckpointError(f"{where}: its unk_token {str(unknown)[:40]!r} is in no vocabulary")
    if not {*ids.values()} - {*roles.values()}:
        raise CheckpointError(f"{where}: its vocabulary holds special tokens alone")
    prefix, suffix = _around(content, where)
    _check_agreement(content, named, roles, (*prefix, *suffix))
    special = SpecialTokens(n_ids, prefix=prefix, suffix=suffix, **roles)
    return Tokenizer.imported(content, special, where)


def _check_agreement(
    content: dict[str, Any], named: Mapping[str, Any], roles: Mapping[str, int], around: tuple[int, ...]
) -> None:
    """Refuse what `tokenizer_config.json` says otherwise than `tokenizer.json`, which it overrides in transformers.

    Raises:
        CheckpointError: the key is named.
    """
    steps = [step for name in ("normalizer", "pre_tokenizer") if isinstance(step := content.get(name), dict)]
    steps += [part for step in steps for part in step.get("normalizers", step.get("pretokenizers", []))]
    found = [
        (key, step.get(field))
        for key, (kind, field) in OVERRIDES.items()
        for step in steps
        if isinstance(step, dict) and step.get("type") == kind
    ]
    adds = {"add_bos_token": "bos", "add_eos_token": "eos"}
    found += [(key, roles[role] in around) for key, role in adds.items() if type(named.get(key)) is bool]
    for key, value in found:
        if named.get(key, value) != value:
            message = f"{TOKENIZER_CONFIG}: {key} is {named[key]!r}, and {TOKENIZER} has {value!r}"
            raise CheckpointError(message, "correct the one that is wrong")


def check_growth(content: Mapping[str, Any]) -> None:
    """Refuse a tokenizer whose texts grow without bound; it is to be asked before the tokenizer reads a text.

    Raises:
        CheckpointError: they do.
    """
    steps, growth = [content.get(name) for name in ("normalizer", "pre_tokenizer", "decoder")], 1
    while steps:
        if isinstance(step := steps.pop(), dict):
            steps += [part for parts in step.values() if isinstance(parts, list) for part in parts]
            growth *= 1 + sum(len(str(step.get(key, ""))) for key in ("prepend", "content"))
    if growth > MOST_GROWTH:
        raise CheckpointError(f"{TOKENIZER}: Prepend and Replace make more than {MOST_GROWTH} characters of one")


def _ids(content: dict[str, Any]) -> dict[str, int]:
    """Return the id of each token by name."""
    vocabulary, added = content["model"].get("vocab"), content.get("added_tokens")
    if isinstance(vocabulary, list):
        vocabulary = {str(one[0]): i for i, one in enumerate(vocabulary) if isinstance(one, list) and one}
    found: dict[str, Any] = dict(vocabulary) if isinstance(vocabulary, dict) else {}
    tokens = [token for token in added if isinstance(token, dict)] if isinstance(added, list) else []
    found |= {str(token.get("content")): token.get("id") for token in tokens}
    return {name: i for name, i in found.items() if type(i) is int}


def _role(role: str, names: Mapping[str, Any], config: Mapping[str, Any], ids: Mapping[str, int]) -> int:
    """Return the id of a role: as the tokenizer's files name it, as the model's do, or by a usual name."""
    stated = (names.get(key) for key in ROLES[role] if key.endswith("_token"))
    stated = (one.get("content") if isinstance(one, dict) else one for one in stated)
    if found := [ids[name] for name in stated if isinstance(name, str) and name in ids]:
        return found[0]
    given = config.get(f"{role}_token_id")
    if type(given) is int and given in ids.values():
        return given
    return next((ids[name] for name in ROLES[role] if name in ids), NONE)


def _around(content: dict[str, Any], where: object) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ids that the file puts before and after a text: read off a text encoded with and without them."""
    if content.get("post_processor") is None:
        return (), ()
    with readable(where):
        backend = tokenizers.Tokenizer.from_str(json.dumps({**content, "padding": None, "truncation": None}))
        texts = ["a", *list(backend.get_vocab())[:MOST_SAMPLES]]
        sample = next((text for text in texts if backend.encode(text, add_special_tokens=False).ids), "a")
        plain, whole = (backend.encode(sample, add_special_tokens=around).ids for around in (False, True))
    start = next((i for i in range(len(whole)) if whole[i : i + len(plain)] == plain), None)
    if start is None:
        raise CheckpointError(f"{where}: what it puts around a text is not before and after it alone")
    return tuple(whole[:start]), tuple(whole[start + len(plain) :])


def tokenizer_file(tokenizer: Tokenizer, ends: bool = False, masks: bool = False) -> bytes:
    """Return the content of `tokenizer.json`: the same ids and texts as those of the run.

    With `ends`, [EOS] is added to every text, as a translator expects. With `masks`, [MASK] takes the space before it,
    as in `text.masked.parts`.
    """
    data = json.loads(tokenizer.to_json())
    data.pop(PAIRS, None)
    # In a run a byte is a special token, so that "<0x41>" in a text is text. Others leave special tokens out of what
    # they decode. Without an entry it is in no text, and is decoded.
    if tokenizer.special is not None:
        data.pop(KEY)
        data.pop(SIDES, None)  # in files of their own
        data["post_processor"] = _template(tokenizer, tokenizer.prefix, tokenizer.suffix)
        return json_bytes(data)
    data["added_tokens"] = [t for t in data["added_tokens"] if t["id"] <= tokenizer.mask_id or not t["special"]]
    if masks:
        data["added_tokens"][tokenizer.mask_id]["lstrip"] = tokenizer.kind != "char"
    data["post_processor"] = _template(tokenizer, (), (tokenizer.eos_id,)) if ends else data["post_processor"]
    return json_bytes(data)


def tokenizer_files(tokenizer: Tokenizer, masks: bool) -> dict[str, bytes]:
    """Return the files of a tokenizer by name: one, and those of source and target where a translator has two."""
    files = {TOKENIZER: tokenizer_file(tokenizer, masks=masks)}
    if tokenizer.of_targets is tokenizer:
        return files
    sides = json.loads(tokenizer.to_json())[SIDES]
    return files | {name: json_bytes(side) for name, side in zip(SIDE_FILES, sides, strict=True)}


def _template(tokenizer: Tokenizer, prefix: Sequence[int], suffix: Sequence[int]) -> dict[str, Any] | None:
    """Return what puts tokens around a text, in the tokenizer's file; None where there are none.

    Of a pair the second text is of the second segment, with what ends it.
    """
    ids = [*prefix, *suffix]
    if not ids:
        return None
    names = dict(zip(ids, tokenizer.tokens(ids), strict=True))
    before, after, after_second = (
        [{"SpecialToken": {"id": names[token], "type_id": segment}} for token in around]
        for around, segment in ((prefix, 0), (suffix, 0), (suffix, 1))
    )
    first, second = ({"Sequence": {"id": part, "type_id": i}} for i, part in enumerate("AB"))
    special = {name: {"id": name, "ids": [token], "tokens": [name]} for token, name in names.items()}
    template = {"single": [*before, first, *after], "pair": [*before, first, *after, second, *after_second]}
    return {"type": "TemplateProcessing", **template, "special_tokens": special}


def tokenizer_config(model: nn.Module, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the content of `tokenizer_config.json`; special tokens are in the roles that a model of its kind has."""
    is_lm, names, more = isinstance(model, LanguageModel), dict[str, str](), dict[str, Any]()
    roles = {"pad": PAD, "unk": UNK, "bos": EOS if is_lm else BOS, "eos": EOS, "mask": MASK}
    if (special := tokenizer.special) is not None:
        ids = {role: getattr(special, role) for role in roles}
        roles = {role: tokenizer.tokens([i])[0] for role, i in ids.items() if i >= 0}
    if isinstance(model, TextEncoder):
        names = {"bos": "cls", "eos": "sep"}
        more = {"model_input_names": ["input_ids", "attention_mask"]} if model.config.n_segments < 2 else {}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{f"{names.get(role, role)}_token": token for role, token in roles.items()},
        **more,
        # "[PAD]" in a text is text, but [MASK] has to be found.
        "split_special_tokens": not isinstance(model, MaskedLanguageModel),
        "clean_up_tokenization_spaces": False,
        "model_max_length": getattr(model, "max_len", None),
        "padding_side": "left" if is_lm else "right",
    }


def json_bytes(value: Any) -> bytes:
    """Return the content of a file of JSON."""
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode("utf-8")


MARIAN_FILES = VOCABULARY, *MARIAN_SIDES = "vocab.json", "source.spm", "target.spm"
MARIAN_UNK, MARIAN_EOS, MARIAN_PAD = "<unk>", "</s>", "<pad>"


def read_marian_tokenizer(folder: SourceFolder, config: Mapping[str, Any], n_ids: int) -> Tokenizer:
    """Return the tokenizer of a folder whose embedding has `n_ids` rows.

    Raises:
        CheckpointError: a file is damaged, or has an id without a row.
        UsageError: source and target have lists of ids of their own, or a rule is not read.
    """
    named = folder.json_if_there("tokenizer_config.json")
    if folder.has("target_vocab.json") or named.get("separate_vocabs") is True:
        raise UsageError("a Marian model with two vocabularies (separate_vocabs) is not read")
    where = folder.path / VOCABULARY
    ids = folder.json(VOCABULARY, "tokenizer")
    if any(type(i) is not int for i in ids.values()):
        raise CheckpointError(f"{where} should give each token a number")
    if missing := [name for name in (MARIAN_UNK, MARIAN_EOS, MARIAN_PAD) if name not in ids]:
        raise CheckpointError(f"{where} lacks the token {missing[0]}")
    start = config.get("decoder_start_token_id", ids[MARIAN_PAD])
    if start not in ids.values():
        raise CheckpointError(f"config.json: decoder_start_token_id {str(start)[:40]} is no token of {VOCABULARY}")
    special = SpecialTokens(n_ids, ids[MARIAN_PAD], ids[MARIAN_UNK], start, ids[MARIAN_EOS], suffix=(ids[MARIAN_EOS],))
    sides = [read_spm(folder.bytes(name, "tokenizer"), folder.path / name) for name in MARIAN_SIDES]
    content = {
        "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": False},
        "model": {"type": "WordLevel", "vocab": ids, "unk_token": MARIAN_UNK},
        SIDES: sides,
    }
    return PairedTokenizer(content, special, where)


MOST_PIECES = 1_000_000
UNKNOWN = "unknown "
"""The name of the unknown piece: with a space in it, it is in no text, whose spaces are replaced before."""
_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3
_TYPES = {4: "user-defined", 5: "unused", 6: "byte"}


def read_spm(data: bytes, where: object) -> dict[str, Any]:
    """Return the content of a `tokenizer.json` that cuts a text as a Unigram model of SentencePiece does.

    Tokens have their strings alone: their ids are the order here, in which control pieces have no place.

    Raises:
        CheckpointError: the file is damaged.
        UsageError: it is of another kind than Unigram, or has rules that `tokenizers` does not compute.
    """
    pieces: list[tuple[str, float]] = [(UNKNOWN, 0.0)]
    trainer, normalizer = dict[int, Any](), dict[int, Any]()
    try:
        for number, value in fields(memoryview(data)):
            if number == 1:
                piece = _message(value)
                kind, text = piece.get(3, _NORMAL), bytes(memoryview(piece.get(1, b""))).decode("utf-8")
                if kind in _TYPES:
                    raise UsageError(f"{where} has the {_TYPES[kind]} piece {text[:40]!r}, and such are not read")
                if kind not in (_UNKNOWN, _CONTROL):
                    [score] = struct.unpack("<f", piece.get(2, bytes(4)))
                    if not text or kind != _NORMAL or not math.isfinite(score):
                        raise ValueError(f"the piece {text[:40]!r}")
                    pieces.append((text, score))
            elif number == 2:
                trainer |= _message(value)
            elif number == 3:
                normalizer |= _message(value)
            elif number == 5 and _message(value).get(2):
                raise UsageError(f"{where} changes texts after decoding (denormalizer_spec), which is not read")
            if len(pieces) > MOST_PIECES:
                raise ValueError(f"more than {MOST_PIECES:,} pieces")
        charsmap = bytes(memoryview(normalizer.get(2, b"")))
    except (ValueError, TypeError, AttributeError, IndexError, struct.error) as error:
        message = f"{where} is not a readable model of SentencePiece ({str(error)[:100]})"
        raise CheckpointError(message, "use another copy of the model") from error
    if len(pieces) == 1 or len(dict(pieces)) != len(pieces):
        raise CheckpointError(f"{where} has no pieces, or one twice", "use another copy of the model")
    for name, values, number, expected in (
        ("model_type", trainer, 3, 1),
        ("treat_whitespace_as_suffix", trainer, 24, 0),
        ("byte_fallback", trainer, 35, 0),
        ("add_dummy_prefix", normalizer, 3, 1),
        ("remove_extra_whitespaces", normalizer, 4, 1),
        ("escape_whitespaces", normalizer, 5, 1),
    ):
        if values.get(number, expected) != expected:
            raise UsageError(f"{where} has {name} {str(values[number])[:40]}, and only {expected} is read")
    return _of_pieces(pieces, charsmap)


def _of_pieces(pieces: list[tuple[str, float]], charsmap: bytes) -> dict[str, Any]:
    """Return the content of a `tokenizer.json` of these pieces."""
    steps: list[dict[str, Any]] = [
        {"type": "Strip", "strip_left": True, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
    ]
    if charsmap:
        encoded = base64.b64encode(charsmap).decode("ascii")
        steps.insert(0, {"type": "Precompiled", "precompiled_charsmap": encoded})
    marks = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": False}
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": marks,
        "decoder": marks,
        "model": {"type": "Unigram", "unk_id": 0, "vocab": [list(piece) for piece in pieces], "byte_fallback": False},
    }


def _message(value: Any) -> dict[int, Any]:
    """Return the fields of a message by number; of a repeated one the last."""
    if not isinstance(value, memoryview):
        raise ValueError("a number where a message is expected")
    return dict(fields(value))
