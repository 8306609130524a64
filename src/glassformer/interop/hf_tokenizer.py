"""The tokenizer of a Hugging Face folder: `tokenizer.json`, special tokens by role, and what is around a text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import tokenizers

from glassformer.errors import CheckpointError
from glassformer.interop.source_folder import SourceFolder
from glassformer.runs.folder import TOKENIZER
from glassformer.text.special_tokens import NONE, SpecialTokens
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.tokenizer_file import check_parts

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
POST_PROCESSORS = {"BertProcessing", "ByteLevel", "RobertaProcessing", "Sequence", "TemplateProcessing"}
MOST_SAMPLES = 32


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
    names = folder.json_if_there("special_tokens_map.json") | folder.json_if_there("tokenizer_config.json")
    roles = {role: _role(role, names, config, ids) for role in KEYS}
    if (start := config.get("decoder_start_token_id")) in ids.values() and type(start) is int:
        roles["bos"] = start  # of a translator, whatever the tokenizer has before a text
    if roles["unk"] in (roles["bos"], roles["eos"]) or content["model"].get("type") == "BPE":
        roles["unk"] = roles["unk"] if content["model"].get("unk_token") in ids else NONE
    prefix, suffix = _around(content, folder.path / TOKENIZER)
    special = SpecialTokens(n_ids, prefix=prefix, suffix=suffix, **roles)
    return Tokenizer.imported(json.dumps(content), special, folder.path / TOKENIZER)


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
    check_parts(content, where)
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
