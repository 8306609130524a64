"""Settings that earlier versions had: recipes and runs written then may still hold them."""

from __future__ import annotations

from typing import Any

from glassformer.errors import UsageError

REMOVED: dict[str, Any] = {
    "data.multi30k.multi30k_version": "raw",
    "fit": "",
    "model.attention_dropout": 0.0,
    "model.n_decoder_layers": None,
    "model.ngram_rows": 16384,
    "model.qk_norm": False,
    "model.zero_init": False,
    "train.average_last": 1,
    "train.keep": 2,
    "train.loss_rows": 0,
    "train.muon.newton_schulz_steps": 5,
    "train.shard": False,
    "train.static_shapes": False,
    "train.two_way": False,
    "train.r_drop": 0.0,
    "train.bpe_dropout": 0.0,
}
"""The key of each (`train.lr`), and the value at which a run computes what it computes without the setting."""


def drop_removed(values: dict[str, Any], section: str, where: str) -> dict[str, Any]:
    """A section's table without the settings that were removed.

    Args:
        values: the table.
        section: what the section is called, `train.adamw`; the whole configuration has no name.
        where: what to name in errors.

    Raises:
        UsageError: one has a value that asks for what was removed.
    """
    kept = {}
    for name, value in values.items():
        key = f"{section}.{name}" if section else name
        if key not in REMOVED:
            kept[name] = value
        elif value != REMOVED[key]:
            told = f"{where}: {key} was removed and can only be {REMOVED[key]!r}; got {value!r}"
            raise UsageError(told, "leave it out, or use the version of glassformer that wrote it")
    return kept
