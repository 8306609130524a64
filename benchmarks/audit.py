"""Faults injected into real data, and how many of them the audit lists.

    GLASSFORMER_DATA=… python -m benchmarks.audit --own FOLDER [--out benchmarks/audit.json]

FOLDER has tables of labelled texts (emotion.train.csv, …). In each, 5% of the labels are replaced by another class
drawn at random. Requests of clinc150 are joined, one to three in a text, for several labels: of 5% of the labels a
third is removed, a third replaced by another, and as many are added. Sentences of Multi30k have their counts, colours
and garments tagged by rules; the tag of 5% of the words with one, and of as many others, is replaced. Of its English
and German pairs 1% get a copied source, 1% have their sides exchanged, and 1% a target that ends in the middle.

Precision is the share of what is listed that was injected: a lower bound, since the data has faults of its own; `clean`
has what is listed without injected ones. Recall is the share of injected faults that are listed. Both are medians of
the seeds 1 to 3; thresholds were chosen on seed 0.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from glassformer.config import DataConfig
from glassformer.data.datasets.local_files import load_text_data
from glassformer.data.splits import Split
from glassformer.evaluate.audit import audit
from glassformer.tasks import task_class

OUT = Path(__file__).with_name("audit.json")
TABLES = {"emotion": 4, "irony": 2, "banking77": 20, "clinc150": 30}
"""How many of the classes of a table are taken, in alphabetical order: of the first two all."""
FLIPPED, SHARE, SEEDS = 0.05, 0.01, (1, 2, 3)
Data = tuple[list[str], list[str]]
Injected = set[tuple[int, int | None]]
"""Rows (from 0) with a fault, and where a fault is about a word its number (from 1)."""


def read_labelled(path: Path, n_classes: int) -> Data:
    """Return texts and labels of a table."""
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    names = sorted({row["label"] for row in rows})[:n_classes]
    rows = [row for row in rows if row["label"] in names]
    return [row["text"] for row in rows], [row["label"] for row in rows]


def flipped(texts: list[str], labels: Sequence[str], seed: int) -> tuple[Data, Injected]:
    """Replace labels by others drawn at random."""
    rng, names, found = np.random.default_rng([seed, 1]), sorted(set(labels)), list(labels)
    chosen = rng.choice(len(labels), round(FLIPPED * len(labels)), replace=False).tolist()
    for i in chosen:
        found[i] = rng.choice([name for name in names if name != labels[i]])
    return (texts, found), {(i, None) for i in chosen}


def joined(texts: Sequence[str], labels: Sequence[str], n: int = 3000) -> Data:
    """Join one to three requests with different labels; labels are one a line."""
    rng, found_texts, found_labels = np.random.default_rng(0), list[str](), list[str]()
    for _ in range(n):
        chosen = [*map(int, rng.choice(len(texts), int(rng.integers(1, 4)), replace=False))]
        found_texts.append(" . ".join(texts[i] for i in chosen))
        found_labels.append("\n".join(sorted({labels[i] for i in chosen})))
    return found_texts, found_labels


def with_wrong_sets(texts: list[str], answers: Sequence[str], seed: int) -> tuple[Data, Injected]:
    """Remove, replace and add labels."""
    rng, sets = np.random.default_rng([seed, 3]), [set(answer.split("\n")) for answer in answers]
    names = sorted({label for each in sets for label in each})
    n = round(FLIPPED * sum(map(len, sets)) / 3)
    removed, replaced, added = rng.permutation(len(sets))[: 3 * n].reshape(3, -1).tolist()
    for rows, remove, add in ((removed, True, False), (replaced, True, True), (added, False, True)):
        for i in rows:
            before = sorted(sets[i])
            if remove:
                sets[i].remove(rng.choice(before))
            if add:
                sets[i].add(rng.choice([name for name in names if name not in before]))
    return (texts, ["\n".join(sorted(each)) for each in sets]), {(i, None) for i in (*removed, *replaced, *added)}


COUNTS = {"two", "three", "four", "five", "six", "several", "many", "some"}
COLOURS = {"red", "blue", "white", "black", "green", "yellow", "orange", "brown", "pink", "purple", "gray", "dark"}
GARMENTS = {"shirt", "shirts", "jacket", "hat", "dress", "jeans", "coat", "pants", "shorts", "helmet", "sweater"}


def tagged(sentences: Sequence[str]) -> Data:
    """Tag counts, colours, and garments with the colours before them; tags are one a line."""
    texts, answers = list[str](), list[str]()
    for sentence in sentences:
        words = sentence.replace(".", " .").replace(",", " ,").split()
        tags = ["B-count" if w.lower() in COUNTS else "B-colour" if w in COLOURS else "O" for w in words]
        for i, word in enumerate(words):
            if word in GARMENTS:
                first = i
                while first and tags[first - 1] == "B-colour":
                    first -= 1
                tags[first : i + 1] = ["B-garment", *["I-garment"] * (i - first)]
        texts.append(" ".join(words))
        answers.append("\n".join(tags))
    return texts, answers


def with_wrong_tags(texts: list[str], answers: Sequence[str], seed: int) -> tuple[Data, Injected]:
    """Replace tags of words."""
    rng, tags = np.random.default_rng([seed, 4]), [answer.split("\n") for answer in answers]
    names = sorted({tag for each in tags for tag in each})
    places = [(i, k) for i, each in enumerate(tags) for k in range(len(each))]
    of_entity = [(i, k) for i, k in places if tags[i][k] != "O"]
    outside = [(i, k) for i, k in places if tags[i][k] == "O"]
    n, chosen = round(FLIPPED * len(of_entity)), set[tuple[int, int]]()
    for group in (of_entity, outside):
        chosen |= {group[i] for i in rng.choice(len(group), n, replace=False).tolist()}
    for i, k in sorted(chosen):
        tags[i][k] = str(rng.choice([name for name in names if name != tags[i][k]]))
    return (texts, ["\n".join(each) for each in tags]), {(i, k + 1) for i, k in chosen}


def on_the_wrong_side(source: list[str], target: list[str], seed: int) -> tuple[Data, Injected]:
    """Copy sources to their targets, and exchange the sides of as many pairs."""
    rows = np.random.default_rng([seed, 2]).permutation(len(source))[: 2 * int(SHARE * len(source))].tolist()
    src, tgt = list(source), list(target)
    for count, i in enumerate(rows):
        src[i], tgt[i] = (target[i], source[i]) if count % 2 else (source[i], source[i])
    return (src, tgt), {(i, None) for i in rows}


def cut(source: list[str], target: list[str], seed: int) -> tuple[Data, Injected]:
    """Leave out the second half of targets."""
    rows = np.random.default_rng([seed, 5]).permutation(len(source))[: int(SHARE * len(source))].tolist()
    tgt = list(target)
    for i in rows:
        words = tgt[i].split()
        tgt[i] = " ".join(words[: max(1, len(words) // 2)])
    return (source, tgt), {(i, None) for i in rows}


def listed(data: Data, target: str, kind: str) -> Injected:
    """Return where the audit finds faults of a kind."""
    texts, answers = data
    report = audit({"train": Split(texts, answers, "t", range(len(texts)))}, target)
    found = [finding for finding in report.findings if finding.kind == kind]
    words = [re.match(r"word (\d+), ", each.matter) if target == "tags" else None for each in found]
    return {(int(f.place[2:]), int(word[1]) if word else None) for f, word in zip(found, words, strict=True)}


def measure(data: Data, target: str, kind: str, inject: Callable[..., tuple[Data, Injected]]) -> dict[str, Any]:
    """Return precision and recall of injected faults, how many were listed, and how many are without them."""
    rows = []
    for seed in SEEDS:
        broken, injected = inject(*data, seed)
        found = listed(broken, target, kind)
        hits = len(found & injected)
        rows.append((hits / max(1, len(found)), hits / len(injected), len(found), len(injected)))
    names = ("precision", "recall", "listed", "injected")
    medians = {name: round(median(row[i] for row in rows), 3) for i, name in enumerate(names)}
    return {"examples": len(data[0]), **medians, "clean": len(listed(data, target, kind))}


def cases(own: Path) -> Iterator[tuple[str, Data, str, str, Callable[..., tuple[Data, Injected]]]]:
    """Yield what is measured: its name, data, what the texts come with, the kind of fault, and what injects it."""
    tables = {name: read_labelled(own / f"{name}.train.csv", n_classes) for name, n_classes in TABLES.items()}
    for name, data in tables.items():
        yield name, data, "label", "label-error", flipped
    yield "clinc150, joined", joined(*tables["clinc150"]), "label", "label-error", with_wrong_sets
    train = load_text_data(task_class("translate").schema, DataConfig(dataset="multi30k")).train
    yield "Multi30k, tagged", tagged(train.text[:3000]), "tags", "label-error", with_wrong_tags
    pairs = train.text[:6000], train.answers[:6000]
    yield "Multi30k, other side", pairs, "target", "wrong-language", on_the_wrong_side
    yield "Multi30k, half a target", pairs, "target", "length", cut


def main() -> None:
    """Inject, audit, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--own", type=Path, required=True, help="folder of labelled tables")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments, table = parser.parse_args(), dict[str, Any]()
    for name, data, target, kind, inject in cases(arguments.own):
        table[name] = measure(data, target, kind, inject)
        print(name, json.dumps(table[name]), flush=True)
    arguments.out.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
