"""Run folders as training leaves them, made up: the three tasks, with curves, data and scores."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from glassformer.evaluate import metrics, translation
from glassformer.evaluate.scores import class_scores

N_STEPS = 1500

CONFIGS = {
    "classify": ('recipe = "imdb"', 'dataset = "imdb"', "max_len = 256"),
    "translate": ('recipe = "multi30k-en-de"', 'dataset = "multi30k"', "max_len = 64"),
    "lm": ('recipe = "shakespeare"', 'dataset = "shakespeare"', "max_len = 256"),
}


@pytest.fixture
def fake_run(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that makes a run folder of a task."""

    def make(task: str, name: str | None = None, *, evaluated: bool = True) -> Path:
        run = tmp_path / (name or task)
        run.mkdir()
        write_config(run, task)
        write_json(run / "env.json", ENV)
        write_json(run / "data.json", data_facts(task))
        write_metrics(run / "metrics.jsonl", task)
        if evaluated:
            write_json(run / "evaluation.json", {"task": task, "split": "test", **EVALUATIONS[task]()})
        return run

    return make


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def write_config(run: Path, task: str) -> None:
    recipe, dataset, max_len = CONFIGS[task]
    text = f"""task = "{task}"
{recipe}
note = ""
[data]
{dataset}
use_test_as_validation = false
[text]
tokenizer = "byte-bpe"
{max_len}
truncate = "head+tail"
[model]
n_layers = 2
d_model = 192
n_heads = 4
pre_norm = true
positions = "sinusoidal"
activation = "relu"
dropout = 0.1
[train]
epochs = 4.0
max_tokens = 8192
optimizer = "adamw"
lr = 0.001
schedule = "cosine"
warmup = 0.05
max_grad_norm = 1.0
label_smoothing = 0.1
seed = 1
[decode]
beam_size = 5
"""
    (run / "config.toml").write_text(text, encoding="utf-8")


ENV = {
    "versions": {"glassformer": "0.1.0", "torch": "2.13.0", "numpy": "2.4.6", "sacrebleu": "2.6.0"},
    "python": "3.11.9",
    "platform": "Linux-6.1-x86_64-with-glibc2.36",
    "device": "cpu",
    "device_name": "Example CPU",
    "precision": "bf16",
    "threads": 2,
    "cpus": 2,
    "started": "2026-01-02T03:04:05+00:00",
    "command": "glassformer train imdb --out runs/imdb",
}


def data_facts(task: str) -> dict[str, object]:
    rng = np.random.default_rng(5)
    mean, limit, n = {"classify": (5.2, 256, 22_500), "translate": (2.7, 64, 29_000), "lm": (5, 256, 1)}[task]
    raw = np.exp(rng.normal(mean, 0.45, size=n))
    train = {
        "n": n,
        "n_tokens": int(np.minimum(raw, limit).sum()) if n > 1 else 903_353,
        "n_truncated": int((raw > limit).sum()),
        "n_tokens_cut": int(np.maximum(raw - limit, 0).sum()),
        "n_dropped": 0,
        "n_unknown": 0,
        "unknown_rate": 0.0012 if task == "classify" else 0.0,
    }
    return {
        "task": task,
        "metric": {"classify": "accuracy", "translate": "bleu", "lm": "nats_per_token"}[task],
        "dataset": task,
        "source": f"{task}/train",
        "splits": {"train": train, "valid": {**train, "n": max(1, n // 10)}, "test": {"n": 25_000}},
        "label_names": ["neg", "pos"] if task == "classify" else None,
        "hashes": {"aclImdb.tar.gz": "0123456789abcdef" * 4},
        "notes": ["Validation: 2,500 of the training reviews, no film on both sides (seed 0)."],
        "tokenizer": {"kind": "byte-bpe", "vocab_size": 8000, "sha256": "fedcba9876543210" * 4},
        "preflight": {"n_parameters": 2_143_490, "flops_per_token": 9.7e6},
    }


def write_metrics(path: Path, task: str) -> None:
    rng = np.random.default_rng(3)
    high, low = {"classify": (0.69, 0.2), "translate": (7.5, 1.9), "lm": (4.2, 1.3)}[task]
    rows, best = [], None
    for step in range(1, N_STEPS + 1):
        share = step / N_STEPS
        rate = 1e-3 * (min(1.0, share / 0.05) if share < 0.05 else 0.5 * (1 + np.cos(np.pi * (share - 0.05) / 0.95)))
        row = {
            "step": step,
            "epoch": 4 * share,
            "loss": low + (high - low) * float(np.exp(-5 * share)) + float(rng.normal(0, 0.03 * high)),
            "lr": rate,
            "grad_norm": float(np.exp(rng.normal(0.4 - 0.9 * share, 0.3))),
            "tokens_per_s": 41_000.0,
            "padding": 0.031,
            "seconds": 60 * share,
        }
        if step % 150 == 0:
            loss = low * 1.25 + (high - low) * float(np.exp(-6 * share)) + 0.12 * high * max(0, share - 0.6)
            row["valid"] = {"loss": loss, **VALID_SCORES[task](share, loss)}
            score = -loss if task == "lm" else [*row["valid"].values()][1]
            if best is None or score > best:
                row["best"], best = True, score
        rows.append(json.dumps(row))
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


VALID_SCORES: dict[str, Callable[[float, float], dict[str, float]]] = {
    "classify": lambda share, loss: {"accuracy": 0.885 - 0.25 * float(np.exp(-5 * share)) - 0.01 * max(0, share - 0.7)},
    "translate": lambda share, loss: {
        "bleu": 35 - 36 * float(np.exp(-4 * share)),
        "chrf": 60 - 40 * float(np.exp(-4 * share)),
        "exact_match": 0.1 * share,
    },
    "lm": lambda share, loss: {"nats_per_token": loss},
}


def classify_scores() -> dict[str, object]:
    rng = np.random.default_rng(2)
    n = 5000
    labels = rng.integers(2, size=n)
    logits = (2 * labels - 1) * 2.2 + rng.normal(0, 1.9, size=n)
    pos = 1 / (1 + np.exp(-1.6 * logits))
    scores = class_scores(labels, np.stack([1 - pos, pos], axis=1), ["neg", "pos"])
    scores["n_truncated"] = 812
    scores["baselines"] = {
        "majority": {"accuracy": 0.5, "ci95": [0.494, 0.506], "macro_f1": 0.333, "settings": "most frequent"},
        "tfidf_logistic": {
            "accuracy": 0.908,
            "ci95": [0.905, 0.912],
            "macro_f1": 0.908,
            "settings": "TF-IDF of words and word pairs",
        },
    }
    scores["examples"] = [
        {"text": "A | strange <b>film</b>\nwith bars", "label": "pos", "probability": 0.93, "truth": "pos"},
        {"text": "Two hours of rain. " * 40, "label": "pos", "probability": 0.58, "truth": "neg"},
    ]
    return scores


def translate_scores() -> dict[str, object]:
    rng = np.random.default_rng(4)
    words = "ein Hund läuft über die Wiese während zwei Männer in roten Hemden am alten Haus warten .".split()
    references = [" ".join(rng.choice(words, size=int(rng.integers(4, 26)))) for _ in range(400)]
    hypotheses = [
        " ".join(w if rng.uniform() < 0.78 else str(rng.choice(words)) for w in sentence.split())
        for sentence in references
    ]
    scores = translation.score(hypotheses, references, n_bootstrap=50)
    scores["decode"] = {"beam_size": 5}
    scores["examples"] = [
        {"text": "A dog runs.", "translation": "Ein Hund läuft.", "score": -0.21, "reference": "Ein Hund rennt."}
    ]
    return scores


def lm_scores() -> dict[str, object]:
    scores = dict(metrics.score(111_540 * 1.57, 111_540, 111_540, 111_540))
    scores["examples"] = [{"prompt": "ROMEO:", "text": "\nWhat say'st thou, ```sir```?\n\nJULIET:\nNothing."}]
    return scores


EVALUATIONS = {"classify": classify_scores, "translate": translate_scores, "lm": lm_scores}
