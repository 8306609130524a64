"""The tokenizer of a Hugging Face folder: `tokenizer.json`, special tokens by role, and what is around a text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import tokenizers

from glassformer.errors import CheckpointError
from glassformer.interop.hf_settings import read_keys
from glassformer.interop.source_folder import SourceFolder
from glassformer.runs.folder import TOKENIZER
from glassformer.text.special_tokens import NONE, SpecialTokens
from glassformer.text.tokenizer import Tokenizer

KEYS = {
    "pad": ("pad_token",),
    "unk": ("unk_token",),
    "bos": ("cls_token", "bos_token"),
    "eos": ("sep_token", "eos_token"),
    "mask": ("mask_token",),
}
"""Where `tokenizer_config.json` and `special_tokens_map.json` name the token of each role."""
USUAL = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "bos": ("[CLS]", "<s>", "<|endoftext|>"),
    "eos": ("[SEP]", "</s>", "<|endoftext|>"),
    "mask": ("[MASK]", "<mask>"),
}
"""Names of special tokens, where the folder does not say them."""
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
POST_PROCESSORS = {"BertProcessing", "ByteLevel", "RobertaProcessing", "Sequence", "TemplateProcessing"}
MOST_SAMPLES, MOST_PREPENDED = 32, 8


def read_tokenizer(folder: SourceFolder, config: Mapping[str, Any], n_ids: int) -> Tokenizer:
    """Return the tokenizer of a folder whose embedding has `n_ids` rows.

    Raises:
        CheckpointError: there is no `tokenizer.json`, it has a part that is not known, or a token without a row.
    """
    if not folder.has(TOKENIZER):
        hint = "load it with transformers where you trust it, and save it again: save_pretrained writes the file"
        raise CheckpointError(f"{folder.path} holds no {TOKENIZER}", hint)
    content = folder.json(TOKENIZER, "tokenizer")
    if not isinstance(content.get("model"), dict):
        raise CheckpointError(f"{folder.path / TOKENIZER}: this is not a readable tokenizer (no model)")
    ids = _ids(content)
    named = folder.json_if_there(TOKENIZER_CONFIG)
    read_keys(OTHER_KEYS, named, TOKENIZER_CONFIG)
    names = folder.json_if_there("special_tokens_map.json") | named
    roles = {role: _role(role, names, config, ids) for role in KEYS}
    if (start := config.get("decoder_start_token_id")) in ids.values() and type(start) is int:
        roles["bos"] = start  # of a translator, whatever the tokenizer has before a text
    if roles["unk"] in (roles["bos"], roles["eos"]) or content["model"].get("type") == "BPE":
        roles["unk"] = roles["unk"] if content["model"].get("unk_token") in ids else NONE
    unknown = content["model"].get("unk_token")
    if unknown and unknown not in ids:
        raise CheckpointError(f"{folder.path / TOKENIZER}: its unk_token {str(unknown)[:40]!r} is in no vocabulary")
    if not {*ids.values()} - {*roles.values()}:
        raise CheckpointError(f"{folder.path / TOKENIZER}: its vocabulary holds special tokens alone")
    prefix, suffix = _around(content, folder.path / TOKENIZER)
    _check_agreement(content, named, roles, (*prefix, *suffix))
    special = SpecialTokens(n_ids, prefix=prefix, suffix=suffix, **roles)
    return Tokenizer.imported(json.dumps(content), special, folder.path / TOKENIZER)


def _check_agreement(
    content: dict[str, Any], named: Mapping[str, Any], roles: Mapping[str, int], around: tuple[int, ...]
) -> None:
    """Refuse what `tokenizer_config.json` says otherwise than `tokenizer.json`, which it overrides in transformers.

    Raises:
        CheckpointError: the key is named.
    """
    steps = [content.get("normalizer"), content.get("pre_tokenizer")]
    steps += [
        step for one in steps if isinstance(one, dict) for step in one.get("normalizers", one.get("pretokenizers", []))
    ]
    for key, (kind, field) in OVERRIDES.items():
        for step in steps:
            if (
                isinstance(step, dict)
                and step.get("type") == kind
                and named.get(key, step.get(field)) != step.get(field)
            ):
                message = f"{TOKENIZER_CONFIG}: {key} is {named[key]!r}, and {TOKENIZER} has {step.get(field)!r}"
                raise CheckpointError(message, "correct the one that is wrong")
    if any(isinstance(step, dict) and len(str(step.get("prepend", ""))) > MOST_PREPENDED for step in steps):
        raise CheckpointError(f"{TOKENIZER}: Prepend adds more than {MOST_PREPENDED} characters to each text")
    for key, role in {"add_bos_token": "bos", "add_eos_token": "eos"}.items():
        if type(named.get(key)) is bool and named[key] != (roles[role] in around):
            message = f"{TOKENIZER_CONFIG}: {key} is {named[key]!r}, and {TOKENIZER} does otherwise"
            raise CheckpointError(message, "correct the one that is wrong")


def _ids(content: dict[str, Any]) -> dict[str, int]:
    """Return the id of each token by name."""
    vocabulary, added = content["model"].get("vocab"), content.get("added_tokens")
    if isinstance(vocabulary, list):
        vocabulary = {str(one[0]): i for i, one in enumerate(vocabulary) if isinstance(one, list) and one}
    found: dict[str, Any] = dict(vocabulary) if isinstance(vocabulary, dict) else {}
    for token in added if isinstance(added, list) else []:
        if isinstance(token, dict):
            found[str(token.get("content"))] = token.get("id")
    return {name: i for name, i in found.items() if type(i) is int}


def _role(role: str, names: Mapping[str, Any], config: Mapping[str, Any], ids: Mapping[str, int]) -> int:
    """Return the id of a role: as the tokenizer's files name it, as the model's do, or by a usual name."""
    for key in KEYS[role]:
        named = names.get(key)
        named = named.get("content") if isinstance(named, dict) else named
        if isinstance(named, str) and named in ids:
            return ids[named]
    given = config.get(f"{role}_token_id")
    if type(given) is int and given in ids.values():
        return given
    return next((ids[name] for name in USUAL[role] if name in ids), NONE)


def _around(content: dict[str, Any], where: object) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ids that the file puts before and after a text: read off a text encoded with and without them."""
    processor = content.get("post_processor")
    if processor is None:
        return (), ()
    steps = processor.get("processors", []) if isinstance(processor, dict) else [None]
    for step in [processor, *(steps if isinstance(steps, list) else [None])]:
        if not isinstance(step, dict) or step.get("type") not in POST_PROCESSORS:
            raise CheckpointError(f"{where}: its post_processor is of a type that is not known here")
    try:
        backend = tokenizers.Tokenizer.from_str(json.dumps({**content, "padding": None, "truncation": None}))
        plain, whole = list[int](), list[int]()
        samples = ["a", *list(backend.get_vocab())[:MOST_SAMPLES]]
        for sample in samples:
            plain = backend.encode(sample, add_special_tokens=False).ids
            whole = backend.encode(sample, add_special_tokens=True).ids
            if plain:
                break
    except BaseException as error:  # a bare Exception for what cannot be parsed; a panic is not even an Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise CheckpointError(f"{where}: this is not a readable tokenizer ({str(error)[:200]})") from error
    start = next((i for i in range(len(whole)) if whole[i : i + len(plain)] == plain), None)
    if start is None:
        raise CheckpointError(f"{where}: what it puts around a text is not before and after it alone")
    return tuple(whole[:start]), tuple(whole[start + len(plain) :])
