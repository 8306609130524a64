"""Write the tokenizer of a run for transformers: the same ids, in the library's generic class.

That of a translator adds [EOS] to both sides, and that of words leaves out n-grams and bigrams, which are no tokens.
That of an imported model puts its own tokens around a text.
"""

from __future__ import annotations

import json
from typing import Any

from torch import nn

from glassformer.interop.export_facts import SIDE_FILES
from glassformer.models import LanguageModel, MaskedLanguageModel
from glassformer.models.encoder_models import TextEncoder
from glassformer.runs.folder import TOKENIZER
from glassformer.text.special_tokens import KEY, PAIRS, SIDES
from glassformer.text.tokenizer import BOS, EOS, MASK, PAD, UNK, Tokenizer


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
        data["post_processor"] = _around(tokenizer)
        return _json(data)
    data["added_tokens"] = [t for t in data["added_tokens"] if t["id"] <= tokenizer.mask_id or not t["special"]]
    if masks:
        data["added_tokens"][tokenizer.mask_id]["lstrip"] = tokenizer.kind != "char"
    if ends:
        first, second = ({"Sequence": {"id": part, "type_id": i}} for i, part in enumerate("AB"))
        end, end_of_second = ({"SpecialToken": {"id": EOS, "type_id": i}} for i in range(2))
        special = {EOS: {"id": EOS, "ids": [tokenizer.eos_id], "tokens": [EOS]}}
        template = {"single": [first, end], "pair": [first, end, second, end_of_second], "special_tokens": special}
        data["post_processor"] = {"type": "TemplateProcessing", **template}
    return _json(data)


def tokenizer_files(tokenizer: Tokenizer, masks: bool) -> dict[str, bytes]:
    """Return the files of a tokenizer by name: one, and those of source and target where a translator has two."""
    files = {TOKENIZER: tokenizer_file(tokenizer, masks=masks)}
    if tokenizer.of_targets is tokenizer:
        return files
    sides = json.loads(tokenizer.to_json())[SIDES]
    return files | {name: _json(side) for name, side in zip(SIDE_FILES, sides, strict=True)}


def _around(tokenizer: Tokenizer) -> dict[str, Any] | None:
    """Return what puts the tokens of an imported tokenizer around a text, in its file; None where there are none.

    Of a pair the second text is of the second segment, with what ends it.
    """
    ids = [*tokenizer.prefix, *tokenizer.suffix]
    if not ids:
        return None
    names = dict(zip(ids, tokenizer.tokens(ids), strict=True))
    before, after, after_second = (
        [{"SpecialToken": {"id": names[token], "type_id": segment}} for token in around]
        for around, segment in ((tokenizer.prefix, 0), (tokenizer.suffix, 0), (tokenizer.suffix, 1))
    )
    first, second = ({"Sequence": {"id": part, "type_id": i}} for i, part in enumerate("AB"))
    special = {name: {"id": name, "ids": [token], "tokens": [name]} for token, name in names.items()}
    template = {"single": [*before, first, *after], "pair": [*before, first, *after, second, *after_second]}
    return {"type": "TemplateProcessing", **template, "special_tokens": special}


def tokenizer_config(model: nn.Module, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the content of `tokenizer_config.json`."""
    special: dict[str, Any] = {
        "pad_token": PAD,
        "unk_token": UNK,
        "bos_token": EOS if isinstance(model, LanguageModel) else BOS,
        "eos_token": EOS,
        "mask_token": MASK,
    }
    if tokenizer.special is not None:
        special = _imported(tokenizer, isinstance(model, TextEncoder))
        if isinstance(model, TextEncoder) and model.config.n_segments < 2:
            special["model_input_names"] = ["input_ids", "attention_mask"]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **special,
        # "[PAD]" in a text is text, but [MASK] has to be found.
        "split_special_tokens": not isinstance(model, MaskedLanguageModel),
        "clean_up_tokenization_spaces": False,
        "model_max_length": getattr(model, "max_len", None),
        "padding_side": "left" if isinstance(model, LanguageModel) else "right",
    }


def _imported(tokenizer: Tokenizer, encodes: bool) -> dict[str, Any]:
    """Return the special tokens of an imported tokenizer, in the roles that a model of its kind has."""
    roles = {"pad": "pad", "unk": "unk", "mask": "mask", "bos": "bos", "eos": "eos"}
    roles |= {"bos": "cls", "eos": "sep"} if encodes else {}
    ids = {name: tokenizer.special and getattr(tokenizer.special, role) for role, name in roles.items()}
    return {f"{name}_token": tokenizer.tokens([i])[0] for name, i in ids.items() if i is not None and i >= 0}


def _json(value: Any) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode("utf-8")
