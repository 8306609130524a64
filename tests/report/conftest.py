"""Run folders as training leaves them, made up: the three tasks, with curves, data and scores."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

from glassformer.evaluate import metrics
from glassformer.evaluate.scores import class_scores

N_STEPS = 1500


@pytest.fixture
def fake_run(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that makes a run folder of a task."""

    def make(task: str, name: str | None = None, *, evaluated: bool = True) -> Path:
        run = tmp_path / (name or task)
        run.mkdir()
        dataset, max_len = {"classify": ("imdb", 256), "translate": ("multi30k", 64), "lm": ("shakespeare", 256)}[task]
        config = {"task": task, "recipe": dataset, "note": "", "data": {"dataset": dataset}}
        config |= {"text": {"tokenizer": "byte-bpe", "max_len": max_len}, "model": {"n_layers": 2, "d_model": 192}}
        config["train"] = {"label_smoothing": 0.1, "seed": 1}
        (run / "config.toml").write_text(tomli_w.dumps(config), "utf-8")
        records = {"env": {"device": "cpu", "device_name": "Example CPU"}, "data": data_facts(task)}
        if evaluated:
            records["evaluation"] = {"task": task, "split": "test", **EVALUATIONS[task]()}
        for record, value in records.items():
            (run / f"{record}.json").write_text(json.dumps(value), "utf-8")
        write_metrics(run / "metrics.jsonl", task)
        return run

    return make


def data_facts(task: str) -> dict[str, object]:
    n = {"classify": 22_500, "translate": 29_000, "lm": 1}[task]
    counts = {"n_truncated": 5_076, "n_dropped": 0, "unknown_rate": 0.0012 if task == "classify" else 0.0}
    train = {"n": n, "n_tokens": 903_353, **counts}
    return {
        "metric": {"classify": "accuracy", "translate": "bleu", "lm": "nats_per_token"}[task],
        "source": f"{task}/train",
        "splits": {"train": train, "valid": {**train, "n": max(1, n // 10)}, "test": {"n": 25_000}},
        "label_names": ["neg", "pos"] if task == "classify" else None,
        "notes": ["Validation: 2,500 of the training reviews, no film on both sides (seed 0)."],
        "tokenizer": {"kind": "byte-bpe", "vocab_size": 8000, "sha256": "fedcba9876543210" * 4},
        "preflight": {"n_parameters": 2_143_490},
    }


def write_metrics(path: Path, task: str) -> None:
    """Write a loss that falls, and one of validation that rises again; their scores follow it."""
    high, low = {"classify": (0.69, 0.2), "translate": (7.5, 1.9), "lm": (4.2, 1.3)}[task]
    rows, best = [], -math.inf
    for step in range(1, N_STEPS + 1):
        share = step / N_STEPS
        falling = (high - low) * math.exp(-5 * share)
        row: dict[str, Any] = {"step": step, "epoch": 4 * share, "lr": 1e-3, "seconds": 60 * share}
        row["loss"] = low + falling
        if step % 150 == 0:
            loss = low * 1.25 + falling + 0.12 * high * max(0, share - 0.6)
            scores = {
                "classify": {"accuracy": 0.885 - 0.25 * math.exp(-5 * share) - 0.01 * max(0, share - 0.7)},
                "translate": {"bleu": 35 - 36 * math.exp(-4 * share)},
                "lm": {"nats_per_token": loss},
            }[task]
            row["valid"] = {"loss": loss, **scores}
            score = -loss if task == "lm" else next(iter(scores.values()))
            if score > best:
                row["best"], best = True, score
        rows.append(json.dumps(row))
    path.write_text("\n".join(rows) + "\n", "utf-8")


def classify_scores() -> dict[str, object]:
    rng = np.random.default_rng(2)
    n = 5000
    labels = rng.integers(2, size=n)
    logits = (2 * labels - 1) * 2.2 + rng.normal(0, 1.9, size=n)
    pos = 1 / (1 + np.exp(-1.6 * logits))
    scores = class_scores(labels, np.stack([1 - pos, pos], axis=1), ["neg", "pos"])
    bag = {"accuracy": 0.908, "ci95": [0.905, 0.912], "macro_f1": 0.908, "settings": "TF-IDF of words and word pairs"}
    majority = {"accuracy": 0.5, "ci95": [0.494, 0.506], "macro_f1": 0.333, "settings": "most frequent"}
    scores["baselines"] = {"majority": majority, "tfidf_logistic": bag}
    scores["examples"] = [
        {"text": "A | strange <b>film</b>\nwith bars", "label": "pos", "probability": 0.93, "truth": "pos"},
        {"text": "Two hours of rain. " * 40, "label": "pos", "probability": 0.58, "truth": "neg"},
    ]
    return scores


def translate_scores() -> dict[str, object]:
    signatures = {"bleu_signature": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"}
    scores = {"bleu": 31.4, "bleu_ci95": [30.1, 32.6], "chrf": 55.2, "exact_match": 0.04, "headline": "bleu"}
    example = {"text": "A dog runs.", "translation": "Ein Hund läuft.", "score": -0.21, "reference": "Ein Hund rennt."}
    return {"n": 400, **scores, **signatures, "decode": {"beam_size": 5}, "examples": [example]}


def lm_scores() -> dict[str, object]:
    scores: dict[str, object] = dict(metrics.score(111_540 * 1.57, 111_540, 111_540, 111_540))
    scores["examples"] = [{"prompt": "ROMEO:", "text": "\nWhat say'st thou, ```sir```?\n\nJULIET:\nNothing."}]
    return scores


EVALUATIONS = {"classify": classify_scores, "translate": translate_scores, "lm": lm_scores}
