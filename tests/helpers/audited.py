"""Small made data whose only faults are those that a test puts into it."""

from collections.abc import Sequence

import numpy as np

from glassformer.data.splits import Split
from glassformer.evaluate import audit as audits
from glassformer.evaluate.audit import AuditFinding, AuditReport

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


def with_sets(n: int = 300, seed: int = 0) -> tuple[list[str], list[str]]:
    """Texts with no, one or two labels, one a line, with eight of the forty words of each."""
    rng = np.random.default_rng(seed)
    words = made_words(rng, 180)
    own = {name: words[60 + 40 * i : 100 + 40 * i] for i, name in enumerate(NAMES)}
    chosen = [sorted(rng.choice(NAMES, i % 3, replace=False).tolist()) for i in range(n)]
    texts = [
        " ".join([*rng.choice(words[:60], 5), *(word for name in names for word in rng.choice(own[name], 8))])
        for names in chosen
    ]
    return texts, ["\n".join(names) for names in chosen]


def tagged(n: int = 200, seed: int = 0) -> tuple[list[str], list[str]]:
    """Sentences of words, some of which have a tag of their own, one a line."""
    rng = np.random.default_rng(seed)
    words = [f"{word}{'ing' if i < 15 else 'ton' if i < 30 else ''}" for i, word in enumerate(made_words(rng, 80))]
    tag_of = {word: "B-name" if i < 15 else "B-place" if i < 30 else "O" for i, word in enumerate(words)}
    chosen = [rng.choice(words, 9).tolist() for _ in range(n)]
    return [" ".join(each) for each in chosen], ["\n".join(tag_of[word] for word in each) for each in chosen]


MADE = {"label": labelled, "sets": with_sets, "tags": tagged, "target": pairs}


def rows_of(texts: Sequence[str], answers: Sequence[str], file: str = "a.csv") -> Split:
    """Return rows whose line numbers begin at 2."""
    return Split([*texts], [*answers], file, range(2, len(texts) + 2))


def audit(texts: Sequence[str], answers: Sequence[str], kind: str = "label") -> AuditReport:
    """Audit one part."""
    return audits.audit({"train": rows_of(texts, answers)}, "label" if kind == "sets" else kind)


def of_kind(report: AuditReport, kind: str) -> list[AuditFinding]:
    return [finding for finding in report.findings if finding.kind == kind]
