"""Faults injected into real data, and how many of them the audit lists.

    GLASSFORMER_DATA=… python -m benchmarks.audit --own FOLDER [--run RUN] [--seeds 1 2 3] [--out benchmarks/audit.json]

FOLDER has tables of labelled texts (emotion.train.csv, …). In each, 5% of the labels are replaced by another class
drawn at random; the audit reads it by words, and with --run by the pooled vectors of a run. Multi30k's English and
German training pairs get stretches of targets that are shifted, copied sources (in half of them a word differs), pairs
whose sides are exchanged or whose target is a sentence of the source language, and targets that end in the middle.

Requests of clinc150 are joined, one to three in a text, for several labels: of 5% of the labels a third is removed, a
third replaced by another, and as many are added. Sentences of Multi30k have their counts, colours and garments tagged
by rules; the tag of 5% of the words with one, and of as many others, is replaced.

Recall is the share of injected faults that are listed, precision the share of what is listed that was injected: a lower
bound, since the data has faults of its own; `clean` has what is listed without injected ones. Thresholds were chosen on
seed 0, which is not reported.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from glassformer.config import DataConfig
from glassformer.data.datasets.local_files import load_text_data
from glassformer.data.splits import Split
from glassformer.evaluate.audit.audit import Vectors, audit_parts
from glassformer.evaluate.audit.findings import AuditReport, Part
from glassformer.tasks import task_class

OUT = Path(__file__).with_name("audit.json")
TABLES = ("emotion", "irony", "banking77", "clinc150")
FLIPPED = 0.05
OTHER_ANSWERS = "other answers by words"
"""Where the table has sets of labels and tags."""
SHARE = 0.01
"""Share of the pairs that get each fault."""


def read_labelled(path: Path) -> tuple[list[str], list[str]]:
    """Return texts and labels of a table."""
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [row["text"] for row in rows], [row["label"] for row in rows]


def read_imdb() -> tuple[list[str], list[str]]:
    """Return the training reviews of IMDB."""
    train = load_text_data(task_class("classify").schema, DataConfig(dataset="imdb")).train
    return train.text, train.answers


def read_multi30k() -> Split:
    """Return the training pairs of Multi30k."""
    return load_text_data(task_class("translate").schema, DataConfig(dataset="multi30k")).train


def flipped(labels: Sequence[str], seed: int, share: float = FLIPPED) -> tuple[list[str], set[int]]:
    """Replace labels by others drawn at random; return them, and which were."""
    rng, names, found = np.random.default_rng([seed, 1]), sorted(set(labels)), list(labels)
    chosen = rng.choice(len(labels), round(share * len(labels)), replace=False).tolist()
    for i in chosen:
        found[i] = rng.choice([name for name in names if name != labels[i]])
    return found, set(chosen)


def scored(listed: set[int], injected: set[int]) -> dict[str, float]:
    """Return recall, precision and counts."""
    hits = len(listed & injected)
    recall, precision = hits / max(1, len(injected)), hits / max(1, len(listed))
    return {"injected": len(injected), "listed": len(listed), "recall": recall, "precision": precision}


def lines_of(report: AuditReport, kind: str) -> set[int]:
    """Return the rows (from 0) that a kind of finding names, stretches with all of their lines."""
    found = [finding for finding in report.findings if finding.kind == kind]
    return {f.line - 1 for f in found}


def measure_labels(texts: list[str], labels: list[str], vectors: Vectors | None, seed: int | None) -> dict[str, Any]:
    """Return what is listed of flipped labels; without a seed, of the labels as they are."""
    given, injected = (labels, set[int]()) if seed is None else flipped(labels, seed)
    report = audit_parts([Part("train", "t", texts, given, range(1, len(texts) + 1), "t")], "label", vectors)
    found = scored(lines_of(report, "label-error"), injected) | {"accuracy": report.numbers["accuracy"]}
    return found if seed is not None else {"listed": found["listed"], "counts": report.counts}


def joined(texts: Sequence[str], labels: Sequence[str], n: int = 6000) -> tuple[list[str], list[str]]:
    """Join one to three requests with different labels; return texts, and their labels, one a line."""
    rng, found_texts, found_labels = np.random.default_rng(0), list[str](), list[str]()
    for _ in range(n):
        chosen = rng.choice(len(texts), int(rng.integers(1, 4)), replace=False).tolist()
        found_texts.append(" . ".join(texts[i] for i in chosen))
        found_labels.append("\n".join(sorted({labels[i] for i in chosen})))
    return found_texts, found_labels


def with_wrong_sets(answers: Sequence[str], seed: int) -> tuple[list[str], set[int]]:
    """Remove, replace and add labels; return the sets, and which texts have another one."""
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
    return ["\n".join(sorted(each)) for each in sets], {*removed, *replaced, *added}


COUNTS = {"two", "three", "four", "five", "six", "several", "many", "some"}
COLOURS = {"red", "blue", "white", "black", "green", "yellow", "orange", "brown", "pink", "purple", "gray", "dark"}
GARMENTS = {"shirt", "shirts", "jacket", "hat", "dress", "jeans", "coat", "pants", "shorts", "helmet", "sweater"}


def tagged(sentences: Sequence[str]) -> tuple[list[str], list[str]]:
    """Tag counts, colours, and garments with the colours before them; return sentences, and their tags, one a line."""
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


def with_wrong_tags(answers: Sequence[str], seed: int) -> tuple[list[str], set[tuple[int, int]]]:
    """Replace tags of words; return the tags of the sentences, and which (sentence, word) have another one."""
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
    return ["\n".join(each) for each in tags], chosen


def measure_answers(
    texts: list[str],
    answers: list[str],
    kind: str,
    change: Callable[[Sequence[str], int], tuple[list[str], set[Any]]],
    seed: int | None,
) -> dict[str, Any]:
    """Return what is listed of changed answers of a kind; without a seed, of the answers as they are."""
    given, injected = (answers, set[Any]()) if seed is None else change(answers, seed)
    report = audit_parts([Part("train", "t", texts, given, range(1, len(texts) + 1))], kind)
    rows = [f for f in report.findings if f.kind == "label-error"]
    listed = {(f.line - 1, int(f.numbers["word"]) - 1) if "word" in f.numbers else f.line - 1 for f in rows}
    facts = {name: report.numbers[name] for name in ("micro_f1", "accuracy") if name in report.numbers}
    found = scored(listed, injected) | facts
    return found if seed is not None else {"listed": found["listed"], "counts": report.counts}


def broken(source: list[str], target: list[str], seed: int) -> tuple[list[str], list[str], dict[str, set[int]]]:
    """Inject each fault into its own pairs; return both sides and the rows of each fault."""
    rng, n = np.random.default_rng([seed, 2]), len(source)
    src, tgt = list(source), list(target)
    injected: dict[str, set[int]] = {"copied-source": set(), "wrong-language": set(), "length": set()}
    rest = np.arange(n)
    copies, swapped, cut = rng.permutation(rest)[: 3 * int(SHARE * n)].reshape(3, -1).tolist()
    for count, i in enumerate(copies):
        words = src[i].split()
        if count % 2:  # a word differs
            words[int(rng.integers(len(words)))] = "???"
        tgt[i] = " ".join(words)
    for count, i in enumerate(swapped):
        if count % 2:  # another source sentence in place of the target
            tgt[i] = source[int(rng.choice(rest))]
        else:
            src[i], tgt[i] = tgt[i], src[i]
    for i in cut:
        words = tgt[i].split()
        tgt[i] = " ".join(words[: max(1, len(words) // 2)])
    return src, tgt, injected | {"copied-source": set(copies), "wrong-language": set(swapped), "length": set(cut)}


def measure_pairs(source: list[str], target: list[str], seed: int | None) -> dict[str, Any]:
    """Return what is listed of each fault of pairs; without a seed, of the pairs as they are."""
    src, tgt, injected = (source, target, {}) if seed is None else broken(source, target, seed)
    report = audit_parts([Part("train", "s", src, tgt, range(1, len(src) + 1), "t")], "target")
    found = {kind: scored(lines_of(report, kind), rows) for kind, rows in injected.items()}
    return found or {"listed": {kind: len(lines_of(report, kind)) for kind in report.counts}}


def vectors_of(run: str) -> Vectors:
    """Return a function that gives the pooled vectors of a run, each text encoded once."""
    import glassformer
    from glassformer.tasks.base import pooled_vectors

    loaded, known = glassformer.load(run, device="cpu"), dict[str, np.ndarray]()

    def vectors(texts: Sequence[str]) -> np.ndarray:
        new = [text for text in dict.fromkeys(texts) if text not in known]
        known.update(zip(new, pooled_vectors(loaded.task, loaded.model, new) if new else [], strict=True))
        return np.stack([known[text] for text in texts])

    return vectors


def mean_of(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the means of recall, precision and counts over seeds, and the least and largest of the two."""
    found = {key: round(fmean(row[key] for row in rows), 3) for key in rows[0]}
    ranges = {f"{k}_range": [round(f(row[k] for row in rows), 3) for f in (min, max)] for k in ("recall", "precision")}
    return found | ranges


def main() -> None:
    """Inject, audit, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--own", type=Path, required=True, help="folder of labelled tables")
    parser.add_argument("--run", help="a run whose pooled vectors judge the labels, too")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--only", default="", help="part of the name of a set")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    table = json.loads(arguments.out.read_text(encoding="utf-8")) if arguments.out.exists() else {}

    def keep(kind: str, name: str, measure: Callable[[int | None], dict[str, Any]]) -> None:
        rows = [measure(seed) for seed in arguments.seeds]
        nested = all(isinstance(value, dict) for value in rows[0].values())
        means = {k: mean_of([row[k] for row in rows]) for k in rows[0]} if nested else mean_of(rows)
        table.setdefault(kind, {})[name] = {"seeds": arguments.seeds, "clean": measure(None), "faults": means}
        print(kind, name, json.dumps(table[kind][name]), flush=True)
        arguments.out.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    judges: dict[str, Vectors | None] = {"words": None}
    if arguments.run:
        judges["vectors"] = vectors_of(arguments.run)
    for name in [name for name in (*TABLES, "imdb") if arguments.only in name]:
        texts, labels = read_imdb() if name == "imdb" else read_labelled(arguments.own / f"{name}.train.csv")
        for judge, vectors in judges.items():
            if name != "imdb" or vectors is None:
                keep(f"labels by {judge}", name, partial(measure_labels, texts, labels, vectors))
    read = {
        "clinc150, joined": (
            lambda: joined(*read_labelled(arguments.own / "clinc150.train.csv")),
            "labels",
            with_wrong_sets,
        ),
        "multi30k, tagged": (lambda: tagged(read_multi30k().text[:6000]), "tags", with_wrong_tags),
    }
    for name, (make, kind, change) in read.items():
        if arguments.only in name:
            keep(OTHER_ANSWERS, name, partial(measure_answers, *make(), kind, change))
    if arguments.only in "multi30k":
        train = read_multi30k()
        keep("pairs", "multi30k", partial(measure_pairs, train.text, train.answers))


if __name__ == "__main__":
    main()
