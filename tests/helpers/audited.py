"""Small made data whose only faults are those that a test puts into it."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from glassformer.evaluate.audit.audit import audit_parts
from glassformer.evaluate.audit.findings import AuditFinding, AuditReport, Part

NAMES = ("sport", "food", "music")


def made_words(rng: np.random.Generator, n: int) -> list[str]:
    """Different words of six letters."""
    return list(dict.fromkeys("".join(rng.choice(list("abcdefghijklmnop"), 6)) for _ in range(2 * n)))[:n]


def labelled(n: int = 240, seed: int = 0) -> tuple[list[str], list[str]]:
    """Texts of common words and four of the forty words of their label."""
    rng = np.random.default_rng(seed)
    words = made_words(rng, 200 + 40 * len(NAMES))
    texts, labels = [], []
    for i in range(n):
        label = i % len(NAMES)
        own = rng.choice(words[200 + 40 * label : 240 + 40 * label], 4)
        chosen = [*rng.choice(words[:200], 8), *own]
        rng.shuffle(chosen)
        texts.append(" ".join(chosen))
        labels.append(NAMES[label])
    return texts, labels


def pairs(n: int = 600, seed: int = 0) -> tuple[list[str], list[str]]:
    """Sentences in two made languages of other letters, word for word, each source word with its own target word."""
    rng = np.random.default_rng(seed)
    sources = made_words(rng, 120)
    targets = [word.translate(str.maketrans("abcdefghijklmnop", "qrstuvwxyzäöüßéè")) for word in sources]
    chosen = [rng.choice(120, int(rng.integers(6, 14))) for _ in range(n)]
    return [[" ".join(side[i] for i in each) for each in chosen] for side in (sources, targets)]  # pyright: ignore[reportReturnType]


def audit(texts: Sequence[str], answers: Sequence[str], kind: str = "label") -> AuditReport:
    """Audit one part, whose line numbers begin at 2."""
    lines = range(2, len(texts) + 2)
    target = "t.txt" if kind == "target" else "a.csv"
    return audit_parts([Part("train", "a.csv", list(texts), list(answers), lines, target)], kind)


def of_kind(report: AuditReport, kind: str) -> list[AuditFinding]:
    return [finding for finding in report.findings if finding.kind == kind]


def write_table(path: Path, texts: Sequence[str], labels: Sequence[str]) -> Path:
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *zip(texts, labels, strict=True)])
    return path
