"""Check a `tokenizer.json` that Glassformer wrote, before the library reads it.

The library reads any component there is: normalizers that make a text exponentially longer, patterns that never end.
So a file is compared with the table of parts that Glassformer writes. Those of pretrained models may hold more:
`imported_tokenizer.py`.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from glassformer.errors import CheckpointError
from glassformer.text.backends import EOS, MASK, SPECIAL_TOKENS, written_backends

COMPONENTS = ("model", "normalizer", "pre_tokenizer", "decoder")
_ENTRIES = {"vocab", "merges"}
"""Keys of a model that are no setting: what it has learned."""
_ENDS: list[dict[str, Any]] = [
    {"Sequence": {"id": "A", "type_id": 0}},
    {"SpecialToken": {"id": EOS, "type_id": 0}},
    {"Sequence": {"id": "B", "type_id": 1}},
    {"SpecialToken": {"id": EOS, "type_id": 1}},
]
_END_ID = SPECIAL_TOKENS.index(EOS)
_POST_PROCESSORS = (
    None,
    {  # of an exported translator: [EOS] ends a text
        "type": "TemplateProcessing",
        "single": _ENDS[:2],
        "pair": _ENDS,
        "special_tokens": {EOS: {"id": EOS, "ids": [_END_ID], "tokens": [EOS]}},
    },
)
HINT = "use a tokenizer that Glassformer wrote"
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized")
"""What changes where an added token is found in a text."""


def check_tokenizer_json(content: Any, where: Path | str) -> None:
    """Check the value of a `tokenizer.json` before the library reads it.

    Raises:
        CheckpointError: a component, a setting or an id is none that Glassformer writes.
    """
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise CheckpointError(f"{where}: this is not a readable tokenizer (no model)", HINT)
    given = {name: content.get(name) for name in COMPONENTS}
    given["model"] = {key: value for key, value in content["model"].items() if key not in _ENTRIES}
    if not any(all(_fits(given[name], parts[name]) for name in COMPONENTS) for parts in _written_parts()):
        odd = next((n for n in COMPONENTS if not any(_fits(given[n], parts[n]) for parts in _written_parts())), "model")
        raise CheckpointError(f"{where}: its {odd} is none that Glassformer writes", HINT)
    if not any(_fits(content.get("post_processor"), written) for written in _POST_PROCESSORS):
        raise CheckpointError(f"{where}: its post_processor is none that Glassformer writes", HINT)
    for name in ("truncation", "padding"):
        if content.get(name) is not None:
            raise CheckpointError(f"{where}: {name} should be null", HINT)
    _check_ids(content, where)


def _check_ids(content: dict[str, Any], where: Path | str) -> None:
    """Refuse ids that are not 0, 1, 2, …, each of one token: a model has a row for each, and for no other."""
    vocabulary, added = content["model"].get("vocab"), content.get("added_tokens")
    if not isinstance(vocabulary, dict) or not isinstance(added, list):
        raise CheckpointError(f"{where}: this is not a readable tokenizer (no vocabulary)", HINT)
    ids = dict(vocabulary)
    for token in added:
        if not isinstance(token, dict) or not isinstance(token.get("content"), str) or not token["content"]:
            raise CheckpointError(f"{where}: an added token has no text", HINT)
        name = token["content"]
        spaced = name == MASK and token.get("lstrip") is True  # an exported [MASK] takes the space before it
        if any(token.get(flag, False) is not (flag == "lstrip" and spaced) for flag in _FLAGS):
            raise CheckpointError(f"{where}: the added token {name[:40]!r} is found in another way", HINT)
        if ids.setdefault(name, token.get("id")) != token.get("id"):
            raise CheckpointError(f"{where}: the token {name[:40]!r} has two ids", HINT)
    if any(type(id) is not int for id in ids.values()) or sorted(ids.values()) != list(range(len(ids))):
        message = f"{where}: the ids of its {len(ids):,} tokens should be 0 to {len(ids) - 1:,}, each once"
        raise CheckpointError(message, HINT)


def _fits(value: Any, written: Any) -> bool:
    """Return True if a part is as it is written; settings that an older library did not write may be missing."""
    if isinstance(written, dict):
        same_type = isinstance(value, dict) and value.get("type") == written.get("type")
        return same_type and all(key in written and _fits(item, written[key]) for key, item in value.items())
    if isinstance(written, list):
        same_length = isinstance(value, list) and len(value) == len(written)
        return same_length and all(map(_fits, value, written))
    return type(value) is type(written) and value == written


@cache
def _written_parts() -> list[dict[str, Any]]:
    """Return the components of every tokenizer that Glassformer writes."""
    found = []
    for backend in written_backends():
        content = json.loads(backend.to_str())
        parts = {name: content[name] for name in COMPONENTS}
        parts["model"] = {key: value for key, value in parts["model"].items() if key not in _ENTRIES}
        found.append(parts)
    return found
