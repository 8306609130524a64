"""Sentences of three topics from a small grammar: what chapters train small models on, without any download.

The word "apple" is a fruit in some sentences and a company in others.
"""

from __future__ import annotations

import csv
import itertools
import random
from pathlib import Path

WORDS = {
    "fruit": ["apple", "pear", "plum", "cherry", "peach"],
    "company": ["apple", "nordex", "velora", "quantix", "brightway"],
    "animal": ["horse", "cow", "goat", "sheep", "donkey"],
}
"""The subjects of each topic. All companies but one are invented."""
TEMPLATES = {
    "fruit": [
        "she ate a {adjective} {word} in the {room}",
        "a {adjective} {word} fell from the tree",
        "he cut the {word} and made a cake",
        "the {word} on the table was {adjective}",
    ],
    "company": [
        "{word} hired {number} engineers in {month}",
        "shares of {word} rose in {month}",
        "the board of {word} sold {number} shops",
        "{word} opened {number} shops in {month}",
    ],
    "animal": [
        "the {size} {word} slept in the barn",
        "a {size} {word} ran across the field",
        "they fed the {word} and closed the gate",
        "the {word} in the field was {size}",
    ],
}
FILLERS = {
    "adjective": ["ripe", "sweet", "sour", "green", "fresh"],
    "room": ["kitchen", "garden", "morning"],
    "number": ["ten", "forty", "ninety", "two hundred"],
    "month": ["march", "june", "august", "october"],
    "size": ["old", "small", "grey", "brown", "tired"],
}


def all_sentences() -> list[tuple[str, str]]:
    """Return every sentence of the grammar with its topic."""
    found = []
    for topic, templates in TEMPLATES.items():
        for template, word in itertools.product(templates, WORDS[topic]):
            names = [name for name in FILLERS if "{" + name + "}" in template]
            for choice in itertools.product(*(FILLERS[name] for name in names)):
                found.append((template.format(word=word, **dict(zip(names, choice, strict=True))), topic))
    return found


def sentences(seed: int = 0, held_out: float = 0.2) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return training and held-out sentences with their topics, in random order; none is in both."""
    found = all_sentences()
    random.Random(seed).shuffle(found)
    n_held_out = round(held_out * len(found))
    return found[n_held_out:], found[:n_held_out]


def write_sentences(folder: Path) -> None:
    """Write train.csv and valid.csv with columns text and label, and train.txt with a sentence per line."""
    folder.mkdir(parents=True, exist_ok=True)
    train, valid = sentences()
    for name, rows in (("train", train), ("valid", valid)):
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("text", "label"), *rows])
        (folder / f"{name}.txt").write_text("".join(f"{text}\n" for text, _ in rows), encoding="utf-8")
