"""The tokenizer of an exported folder, as the library `tokenizers` reads it in Python, JavaScript and elsewhere."""

from __future__ import annotations

import json

from glassformer.text.tokenizer import EOS, Tokenizer


def tokenizer_file(tokenizer: Tokenizer, ends: bool = False, masks: bool = False) -> bytes:
    """Return the content of `tokenizer.json`: the same ids and texts as those of the run.

    Args:
        tokenizer: the tokenizer of the run.
        ends: add [EOS] to every text, as a translator expects.
        masks: [MASK] takes the space before it, as in `text.masked.parts`.
    """
    data = json.loads(tokenizer.to_json())
    # In a run a byte is a special token, so that "<0x41>" in a text is text. Others leave special tokens out of what
    # they decode. Without an entry it is in no text, and is decoded.
    data["added_tokens"] = [t for t in data["added_tokens"] if t["id"] <= tokenizer.mask_id or not t["special"]]
    if masks:
        data["added_tokens"][tokenizer.mask_id]["lstrip"] = tokenizer.kind != "char"
    if ends:
        first, second = ({"Sequence": {"id": part, "type_id": i}} for i, part in enumerate("AB"))
        end, end_of_second = ({"SpecialToken": {"id": EOS, "type_id": i}} for i in range(2))
        special = {EOS: {"id": EOS, "ids": [tokenizer.eos_id], "tokens": [EOS]}}
        template = {"single": [first, end], "pair": [first, end, second, end_of_second], "special_tokens": special}
        data["post_processor"] = {"type": "TemplateProcessing", **template}
    return (json.dumps(data, ensure_ascii=False, indent=2) + "\n").encode("utf-8")
