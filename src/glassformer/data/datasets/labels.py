"""Labels and numbers spelled one way: NFC, without invisible characters or spaces around them; what is wrong in them.

Labels that differ in case, spaces or punctuation alone stay different classes, and a note names them. Missing values
are refused. Training, validation and test data go through the same function. A number is written with a decimal point:
3, -0.5, 1e6; what might be read in two ways, such as 1,5, is refused.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path

import msgspec
import numpy as np

from glassformer.data.diagnostics import Diagnostics
from glassformer.errors import DataError

JOINERS = "\u200c\u200d"
"""They change how letters and emoji join, so they are kept within a label."""
LARGEST_EXACT = 2**53
"""Up to here each whole number is a float of its own."""
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
"""How a number is written: 3, -0.5, 1e6."""
MISSING = frozenset("nan <na> nat - #n/a #ref! #value! #name? #div/0! #null! #num! inf -inf +inf infinity".split())
"""How pandas, SNLI and Excel write a missing value, or numbers that are none: refused as labels."""
PERHAPS_MISSING = frozenset("na n/a none null nil ? . -- unknown unlabeled (blank) -1 -9 -99 -999 9999".split())
"""How else a missing value, or a label that is not known, is written; a class may be called so too."""
FLAGS = frozenset("0 1 0. 1. 0.0 1.0 true false".split())
"""What stands in vectors, and in columns, that say of each label whether a text has it."""
NAMES_OF_LABELS = "write the names of each text's labels into one column, parted by ;"
MAX_SHOWN = 5

_IN_BRACKETS = re.compile(r"\[.*\]|\{.*\}|\(.*\)", re.DOTALL)
_DASHES = str.maketrans(
    dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212_ ", "-") | dict.fromkeys("\u2018\u2019`", "'")
)


def normalised_label(label: str) -> str:
    """Return a label in NFC, without invisible characters and without spaces around it."""
    if label.isascii():
        return label.strip()
    kept = (c for c in label if c in JOINERS or unicodedata.category(c) != "Cf")
    return unicodedata.normalize("NFC", "".join(kept)).strip(JOINERS + " \t\r\n\u00a0")


def visible(text: str) -> str:
    """Return a text, or "" for one of invisible characters alone."""
    seen = text.isascii() or text.isspace() or any(not c.isspace() and unicodedata.category(c) != "Cf" for c in text)
    return text if seen else ""


def count_missing(path: Path, texts: Sequence[str], diagnostics: Diagnostics) -> None:
    """Count and note the texts that are spelled as a missing value."""
    found = Counter(text for text in texts if len(text) < 12 and text.strip().casefold() in MISSING | PERHAPS_MISSING)
    if found:
        diagnostics.counts["texts spelled as a missing value"] += found.total()
        shown = _shown(found, [text for text, _ in found.most_common()])
        diagnostics.notes.append(f"{path.name}: texts that are spelled as a missing value: {shown}")


def label_of_number(value: float | Decimal) -> str:
    """Return how a label that is a JSON boolean or number is spelled: true, 1 (also 1.0), 0.5."""
    if isinstance(value, float) and value.is_integer() and abs(value) <= LARGEST_EXACT:
        value = int(value)
    return str(value).lower()


def similarity_key(label: str) -> str:
    """Return a key that is equal for labels that look alike: case, spaces, dashes, marks at the ends, number form."""
    text = unicodedata.normalize("NFKC", label).casefold().translate(_DASHES)
    text = "".join(c for c in text if unicodedata.category(c) not in ("Cf", "Mn") and not c.isspace())
    if NUMBER.fullmatch(number := text.replace(",", ".")):
        return repr(float(number) + 0.0)
    return text.replace("-", "").strip(".,;:!?'\"()[]") or label


def similar_labels(labels: Iterable[str]) -> list[list[str]]:
    """Return the groups of labels with equal keys, each in the order given."""
    groups: dict[str, list[str]] = defaultdict(list)
    for label in labels:
        groups[similarity_key(label)].append(label)
    return [group for group in groups.values() if len(group) > 1]


def why_no_label(label: str) -> str:
    """Return what is wrong with a label, as a sentence; "" if nothing is."""
    if not label:
        return "the label is empty"
    if "\n" in label or "\r" in label:
        return f"the label {label[:40]!r} holds a line break"
    if label.casefold() in MISSING:
        return f"the label is {label!r}, a missing value; remove the row, or give the class another name"
    return ""


def refuse_vectors(path: Path, cells: Sequence[str], separator: str) -> None:
    """Raise DataError where a cell is a vector of 0 and 1."""
    for cell in dict.fromkeys(cells):
        parts = re.split(r"[,;|\s]+", cell.replace(separator or ";", ";").strip("[](){} ").casefold())
        if len(parts) > 1 and FLAGS.issuperset(parts):
            raise DataError(f"{path}: the cell {cell[:60]!r} is a vector of 0 and 1", NAMES_OF_LABELS)


def clean_labels(
    path: Path, lines: Sequence[int], labels: Sequence[str], separator: str, diagnostics: Diagnostics
) -> list[str]:
    """Return the labels spelled one way; count what was changed, report what is missing or easily confused."""
    refuse_vectors(path, labels, separator)
    written = Counter(labels)
    clean = {label: normalised_label(label) for label in written}
    wrong = {label: problem for label, spelled in clean.items() if (problem := why_no_label(spelled))}
    for line, label in zip(lines, labels, strict=True) if wrong else ():
        if label in wrong:
            diagnostics.error(path, line, "label", wrong[label])
    note_spellings(path, written, diagnostics)
    return [clean[label] for label in labels]


def note_spellings(path: Path, written: Counter[str], diagnostics: Diagnostics) -> None:
    """Count the labels that were spelled another way, and note those that are easily confused or perhaps missing."""
    counts, notes = Counter[str](), list[str]()
    for label, n in written.items():
        counts[normalised_label(label)] += n
    if n_changed := sum(n for label, n in written.items() if normalised_label(label) != label):
        diagnostics.counts["labels spelled another way"] += n_changed
        merged = sum(map(bool, map(normalised_label, written))) - len({*counts} - {""})
        also = f"; {merged} of them became one with another" if merged else ""
        notes.append(
            f"{n_changed:,} labels were brought to NFC, without spaces or invisible characters around them{also}"
        )
    if missing := [label for label in counts if label.casefold() in PERHAPS_MISSING and len(counts) > 1]:
        diagnostics.counts["labels spelled as a missing value"] += sum(counts[label] for label in missing)
        what = f"classes that are spelled as a missing value: {_shown(counts, missing)}"
        notes.append(f"{what}; leave these rows out if they have no label")
    if groups := similar_labels(filter(None, counts)):
        shown = "; ".join(_shown(counts, group) for group in groups[:MAX_SHOWN])
        shown += f"; and {len(groups) - MAX_SHOWN:,} groups more" * (len(groups) > MAX_SHOWN)
        what = "different classes that differ in case, spaces, punctuation or number form alone"
        notes.append(f"{what}: {shown}; spell them one way if they are the same")
    diagnostics.notes += [f"{path.name}: {note}" for note in notes]


def _shown(counts: Counter[str], labels: Sequence[str]) -> str:
    return ", ".join(f"{label!r} ({counts[label]:,})" for label in labels[:MAX_SHOWN])


# --- several labels --------------------------------------------------------------------------------------------


def labels_of(answer: str) -> list[str]:
    """Return the labels of an example: one, or, where a text may have several, each of the lines."""
    return answer.split("\n") if answer else []


def rarest_labels(answers: Sequence[str]) -> list[str]:
    """Return of each example the label that fewest others have; "" for none."""
    counts = Counter(label for answer in answers for label in labels_of(answer))
    return [min(labels_of(answer), key=lambda label: (counts[label], label), default="") for answer in answers]


def joined_labels(labels: Iterable[object], separator: str) -> str:
    """Return the labels of a JSON list as a cell of a table holds them.

    Raises:
        ValueError: one is no string and no number, or holds the separator.
    """
    cells = list[str]()
    for label in labels:
        cell = label_of_number(label) if isinstance(label, bool | int | float | Decimal) else label
        if not isinstance(cell, str):
            raise ValueError(f"is a list of labels, which holds strings, not {type(label).__name__}")
        if separator in cell:
            raise ValueError(f"has the label {cell[:40]!r}, which holds {separator!r}: --label-separator")
        cells.append(cell)
    return separator.join(cells)


def clean_label_sets(
    path: Path, lines: Sequence[int], cells: Sequence[str], separator: str, diagnostics: Diagnostics
) -> list[str]:
    """Return the labels of each cell, spelled one way, sorted, one a line; a text may have none.

    Labels hold no line breaks, so that the lines are read again as they were, whatever parted them in the file.
    """
    refuse_vectors(path, cells, separator)
    parted = list[list[str]]()
    for line, cell in zip(lines, cells, strict=True):
        try:
            parted.append(_parted(cell, separator))
        except ValueError as error:  # as in the cells below
            diagnostics.stop(path, line, "label", f"the cell {cell[:60]!r} {error}")
            return [""] * len(cells)
    where = [line for line, labels in zip(lines, parted, strict=True) for _ in labels]
    clean = clean_labels(path, where, [label for labels in parted for label in labels], "", diagnostics)
    left = iter(clean)
    sets = [sorted({next(left) for _ in labels}) for labels in parted]
    diagnostics.counts["labels that stand twice in a text"] += len(clean) - sum(map(len, sets))
    if sets and not any(len(found) > 1 for found in sets):
        none = f"no text has more than one label, parted by {separator!r}; --label-separator names another"
        diagnostics.notes.append(f"{path.name}: {none}")
    return ["\n".join(found) for found in sets]


def _parted(cell: str, separator: str) -> list[str]:
    """Return the labels of a cell, which may be a JSON list, as `predict-table` writes one into a table.

    Raises:
        ValueError: it stands in brackets, and is no list of labels.
    """
    if _IN_BRACKETS.fullmatch(cell.strip()):
        try:
            cell = joined_labels(msgspec.json.decode(cell, type=list), separator)
        except msgspec.MsgspecError:
            raise ValueError(f"is no JSON list; write the labels parted by {separator!r}") from None
    return [part for part in cell.split(separator) if part.strip()]


# --- numbers --------------------------------------------------------------------------------------------------------


LARGEST = 1e300
"""Numbers beyond it are refused: their sums and differences would be infinite."""


def is_number(cell: str) -> bool:
    """Return whether a cell, without spaces and invisible characters around it, is a number that can be a target."""
    return not why_no_number(normalised_label(cell))


def why_no_number(cell: str) -> str:
    """Return what is wrong with the cell of a number, as a sentence; "" if nothing is."""
    if not cell:
        return "the number is empty"
    if not NUMBER.fullmatch(cell):
        comma = "," in cell and set(cell) <= set("0123456789.,+-")
        hint = "; write it with a decimal point and without a comma" if comma else ""
        return f"{cell[:40]!r} is not a number{hint}"
    return "" if abs(float(cell)) <= LARGEST else f"{cell[:40]!r} is beyond {LARGEST:g} in size"


def mean_and_sd(numbers: np.ndarray) -> tuple[float, float]:
    """Return mean and standard deviation, of numbers of any size: no square of theirs overflows."""
    unit = float(np.abs(numbers).max()) or 1.0
    scaled = numbers / unit
    return float(scaled.mean()) * unit, float(scaled.std()) * unit
