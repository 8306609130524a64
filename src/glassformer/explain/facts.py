"""What a page needs to know before anything is traced: the model, its checkpoints, texts to begin with."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from glassformer.errors import CheckpointError
from glassformer.explain.checkpoints import MODEL, Subject, list_checkpoints, sha256_of, step_of
from glassformer.explain.decode_log import settings_json
from glassformer.explain.inputs import decode_settings
from glassformer.explain.lengths import FULL, LAYERED
from glassformer.models.build import d_ff_of, d_head_of
from glassformer.runs.folder import RunFolder

FAMILIES = {"classify": "encoder", "translate": "encoder-decoder", "lm": "decoder"}
MAX_TRACES = 4
"""Traces a server keeps; a long text's holds a hundred megabytes."""
MAX_TEXT_BYTES = 200_000
"""Longest text a server reads: far more than any model here does, and still only a moment's work to cut into tokens."""
N_EXAMPLES = 6
FIRST_TEXTS = {
    "dates": [
        "[en_US] Monday, November 16, 2026",
        "[de_DE] 16. November 2026",
        "[fr_FR] 16/11/2026",
        "[zh_CN] 2026年11月16日",
    ],
    "imdb": [
        "A wonderful little film: funny, warm and beautifully acted.",
        "Not bad at all, I was pleasantly surprised.",
        "I wanted to love it, but two hours of my life are gone and I will never get them back.",
    ],
    "shakespeare": ["ROMEO:\n", "To be, or not to be"],
}
"""Texts to begin with where the data set's own are too long, or too much alike, to be seen at a glance."""


def model_facts(subject: Subject, checkpoint: str = MODEL) -> dict[str, Any]:
    """`ModelFacts` of web/src/types.ts; `checkpoint` is what the subject's weights are called."""
    task, config, tokenizer = subject.task, subject.task.config.model, subject.task.tokenizer
    n_decoder = 0 if task.name == "classify" else config.n_decoder_layers or config.n_layers
    special = {name: getattr(tokenizer, f"{name}_id") for name in ("pad", "unk", "bos", "eos", "mask")}
    return {
        "task": task.name,
        "family": FAMILIES[task.name],
        "run": subject.path.resolve().name,
        "recipe": task.config.recipe,
        "checkpoint": checkpoint,
        "step": step_of(subject, checkpoint),
        "sha256": sha256_of(subject, checkpoint),
        "n_params": sum(p.numel() for p in subject.model.parameters()),
        "members": config.members,
        "n_layers": n_decoder if task.name == "lm" else config.n_layers,
        "n_decoder_layers": n_decoder,
        "d_model": config.d_model,
        "n_heads": config.n_heads,
        "d_head": d_head_of(config),
        "d_ff": d_ff_of(config),
        "pre_norm": config.pre_norm,
        "norm": config.norm,
        "positions": config.positions,
        "activation": config.activation,
        "qk_norm": config.qk_norm,
        "pooling": config.pooling if task.name == "classify" else None,
        "vocab_size": tokenizer.vocab_size,
        "max_len": task.config.text.max_len,
        "label_names": task.label_names,
        "word_mask_prob": task.config.train.word_mask_prob,
        "tokenizer": tokenizer.kind,
        "special_ids": special,
        "versions": _versions(),
    }


def run_facts(subject: Subject) -> dict[str, Any]:
    """`RunFacts` of web/src/types.ts."""
    return {
        "model": model_facts(subject),
        "examples": examples(subject),
        "checkpoints": list_checkpoints(subject),
        "defaults": settings_json(decode_settings(subject, {})),
        "limits": {
            "full": FULL, "layered": LAYERED, "max_traces": MAX_TRACES, "max_text_bytes": MAX_TEXT_BYTES,
        },
        "version": _versions()["glassformer"],
    }  # fmt: skip


def examples(subject: Subject) -> list[str]:
    """A few texts to start with: what the run was evaluated on, the shortest first."""
    try:
        evaluation = RunFolder(subject.path).read_evaluation()
        rows = evaluation.examples if evaluation else []
        texts = [str(row["prompt"] if "prompt" in row else row["text"]) for row in rows]
    except (CheckpointError, KeyError, TypeError):
        texts = []
    own = FIRST_TEXTS.get(subject.task.config.data.dataset or "", [])
    found = [text for text in sorted(set(texts), key=lambda text: (len(text), text)) if text.strip()]
    return [*own, *found][:N_EXAMPLES]


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("glassformer", "torch"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found
