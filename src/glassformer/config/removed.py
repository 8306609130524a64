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
    "train.bpe_dropout": 0.0,
    "train.keep": 2,
    "train.loss_rows": 0,
    "train.muon.newton_schulz_steps": 5,
    "train.r_drop": 0.0,
    "train.shard": False,
    "train.static_shapes": False,
    "train.two_way": False,
}
"""The key of each (`train.lr`), and the value at which a run computes what it computes without the setting."""

RENAMED = {
    "model.embedding_std": "embedding_init_std",
    "model.longest_ngram": "max_ngram",
    "model.members": "ensemble_size",
    "train.clip": "max_grad_norm",
    "train.recompute": "activation_checkpointing",
}
"""The earlier key of each, and its name now, in the same section."""


def update_section(values: dict[str, Any], section: str, where: str) -> dict[str, Any]:
    """Return a section's table without removed settings and with today's names.

    Args:
        values: the table.
        section: name of the section, such as `train.adamw`; empty for the whole configuration.
        where: file or flag to name in errors.

    Raises:
        UsageError: a removed setting has a value at which it had an effect.
    """
    updated = {}
    for name, value in values.items():
        key = f"{section}.{name}" if section else name
        if key not in REMOVED:
            updated[RENAMED.get(key, name)] = value
        elif value != REMOVED[key]:
            message = f"{where}: {key} was removed and can only be {REMOVED[key]!r}; got {value!r}"
            raise UsageError(message, "leave it out, or use the version of glassformer that wrote it")
    return updated
