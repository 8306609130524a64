"""Labels spelled one way: NFC, without zero-width characters or spaces around them; what they may hide is reported.

Labels that differ in case, spaces or number form alone stay different classes, and a note names them. NaN and infinity
are refused where labels are numbers. Training, validation and test data go through the same function.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from glassformer.data.diagnostics import Diagnostics
from glassformer.utils.formatting import counted

ZERO_WIDTH = "\u00ad\u200b\u200c\u200d\u2060\ufeff\u200e\u200f\u180e"
"""Soft hyphen, zero-width space, joiners, no-break space and direction marks."""
JOINERS = "\u200c\u200d"
"""They change how letters and emoji join, so they are kept between two characters of such scripts."""
FIRST_JOINING = 0x0590
"""Scripts before Hebrew have no joiners."""
LARGEST_EXACT = 2**53
"""Up to here each whole number is a float of its own."""
MISSING = frozenset({"nan", "na", "n/a", "<na>", "nat", "none", "null", "nil", "inf", "-inf", "+inf", "infinity"})
"""How programs spell a missing value; a class may be called so too."""
MAX_SHOWN = 5

_ZERO_WIDTH = re.compile(f"[{ZERO_WIDTH}]")
_INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Variation selectors and fillers, which `unicodedata` does not call format characters."""
_LOOKALIKES = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u0432\u043c\u043d\u0442\u043a\u0433"
    "\u03b1\u03bf\u03c1\u03bd\u03c5\u03ba\u03c4\u03b9\u0131",
    "aeopcyxijsdbmhtkraopvuktii",
    "\u0307",
)
"""Letters of Cyrillic and Greek that look like Latin ones, the dotless i, and the dot that small İ leaves behind."""
_NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d{1,3})?")


def normalised_label(label: str) -> str:
    """Return a label in NFC, without zero-width characters and without spaces around it."""
    return unicodedata.normalize("NFC", without_zero_width(label)).strip()


def without_zero_width(text: str) -> str:
    """Return the text without zero-width characters, except joiners between letters of scripts that need them."""
    if text.isascii() or not _ZERO_WIDTH.search(text):
        return text
    kept = []
    for i, character in enumerate(text):
        joins = character in JOINERS and 0 < i < len(text) - 1
        if character not in ZERO_WIDTH or (joins and _joining(text[i - 1]) and _joining(text[i + 1])):
            kept.append(character)
    return "".join(kept)


def label_of_number(value: float) -> str:
    """Return how a label that is a JSON boolean or number is spelled: true, 1 (also 1.0), 0.5.

    Raises:
        ValueError: NaN or infinity.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        raise ValueError(f"{value}, which is not a class")
    return str(int(value)) if value.is_integer() and abs(value) <= LARGEST_EXACT else repr(value)


def similarity_key(label: str) -> str:
    """Return a key that is equal for labels that look alike: case, spaces, width, invisible characters, number form."""
    text = _INVISIBLE.sub("", unicodedata.normalize("NFKC", label))
    text = "".join(character for character in text if unicodedata.category(character) != "Cf")
    text = "".join(unicodedata.normalize("NFKC", text.casefold().translate(_LOOKALIKES)).split())
    if _NUMBER.fullmatch(text):
        number = float(text.replace(",", "."))
        return repr(number + 0.0) if math.isfinite(number) else text
    return text


def similar_labels(labels: Sequence[str]) -> list[list[str]]:
    """Return the groups of labels with equal keys, each in the order given."""
    groups: dict[str, list[str]] = defaultdict(list)
    for label in labels:
        groups[similarity_key(label)].append(label)
    return [group for group in groups.values() if len(group) > 1]


def clean_labels(path: Path, lines: Sequence[int], labels: Sequence[str], diagnostics: Diagnostics) -> list[str]:
    """Return the labels spelled one way; count what was changed, report what is missing or easily confused."""
    written = Counter(labels)
    clean = {label: normalised_label(label) for label in written}
    _note_changes(path, written, clean, diagnostics)
    cleaned = [clean[label] for label in labels]
    counts = Counter(cleaned)
    no_number = {label for label in counts if label and _is_number(label) is False}
    others = [label for label in counts if label and label not in no_number]
    refused = no_number if others and all(_is_number(label) for label in others) else set()
    for line, label in zip(lines, cleaned, strict=True):
        if not label:
            diagnostics.error(path, line, "label", "the label is empty")
        elif label in refused:
            diagnostics.error(path, line, "label", f"the label is {label}, which is no class where labels are numbers")
        elif "\n" in label or "\r" in label:
            diagnostics.error(path, line, "label", f"the label {label[:40]!r} holds a line break")
    _note_missing(path, {label: n for label, n in counts.items() if label not in refused}, diagnostics)
    _note_similar(path, counts, diagnostics)
    return cleaned


def joined_labels(labels: Iterable[object], separator: str) -> str:
    """Return the labels of a JSON list as a cell of a table holds them.

    Raises:
        ValueError: one is no string and no number, or holds the separator.
    """
    cells = []
    for label in labels:
        if isinstance(label, bool | int | float):
            label = label_of_number(label)
        if not isinstance(label, str):
            raise ValueError(f"a list of labels holds strings, not {type(label).__name__}")
        if separator in label:
            raise ValueError(f"the label {label[:40]!r} holds {separator!r}, which parts labels: --label-separator")
        cells.append(label)
    return separator.join(cells)


def labels_of(answer: str) -> list[str]:
    """Return the labels of an example: one, or, where a text may have several, each of the lines."""
    return answer.split("\n") if answer else []


def rarest_labels(answers: Sequence[str]) -> list[str]:
    """Return of each example the label that fewest others have; "" for none."""
    counts = Counter(label for answer in answers for label in labels_of(answer))
    return [min(labels_of(answer), key=lambda label: (counts[label], label), default="") for answer in answers]


def clean_label_sets(
    path: Path, lines: Sequence[int], cells: Sequence[str], separator: str, diagnostics: Diagnostics
) -> list[str]:
    """Return the labels of each cell, spelled one way, sorted, one a line; a text may have none.

    Labels hold no line breaks, so that the lines are read again as they were, whatever parted them in the file.
    """
    parted = [_parted(cell, separator) for cell in cells]
    for line, labels, cell in zip(lines, parted, cells, strict=True):
        if labels is None:
            diagnostics.error(path, line, "label", f"a list of labels holds strings and numbers, not {cell[:60]!r}")
    parted = [labels or [] for labels in parted]
    where = [line for line, labels in zip(lines, parted, strict=True) for _ in labels]
    clean = iter(clean_labels(path, where, [label for labels in parted for label in labels], diagnostics))
    sets = [sorted({next(clean) for _ in labels}) for labels in parted]
    if twice := sum(len(labels) - len(found) for labels, found in zip(parted, sets, strict=True)):
        diagnostics.counts["labels that stand twice in a text"] += twice
    if sets and not any(len(found) > 1 for found in sets):
        other = _likely_separator(cells)
        hint = "" if other is None else f"; if {other!r} parts them, --label-separator '{other}'"
        diagnostics.notes.append(f"{path.name}: no text has more than one label, parted by {separator!r}{hint}")
    return ["\n".join(found) for found in sets]


def _likely_separator(cells: Sequence[str]) -> str | None:
    """Return what may part the labels of cells: where it does, the same few labels come again in many of them.

    A space parts them only where nothing else does, since labels may have several words.
    """
    if any(cell.startswith("[") and cell.endswith("]") for cell in cells):
        return None
    whole = set(cells)
    for candidates in ("|,;/\t", " "):
        parts = {c: {part.strip() for cell in whole for part in cell.split(c)} for c in candidates}
        found = [c for c in candidates if any(c in cell for cell in whole) and len(parts[c]) < len(whole)]
        if found:
            return min(found, key=lambda c: len(parts[c]))
    return None


def _parted(cell: str, separator: str) -> list[str] | None:
    """Return the labels of a cell, which may be a JSON list, as `predict --file` writes one into a table.

    None for a list of something else.
    """
    if cell.startswith("[") and cell.endswith("]"):
        try:
            labels = json.loads(cell)
        except ValueError:
            labels = None
        if isinstance(labels, list):
            if not all(isinstance(label, str | bool | int | float) for label in labels):
                return None
            written = [label if isinstance(label, str) else label_of_number(label) for label in labels]
            return [label for label in written if label.strip()]
    return [part for part in cell.split(separator) if part.strip()]


def note_spellings(path: Path, tags: Counter[str], diagnostics: Diagnostics) -> None:
    """Count the tags that were spelled another way, and report those that are easily confused."""
    clean = {tag: normalised_label(tag) for tag in tags}
    _note_changes(path, tags, clean, diagnostics)
    counts: Counter[str] = Counter()
    for tag, n in tags.items():
        counts[clean[tag]] += n
    _note_similar(path, counts, diagnostics)


def _note_changes(path: Path, written: Counter[str], clean: dict[str, str], diagnostics: Diagnostics) -> None:
    """Count the labels that were brought to NFC, and that lost zero-width characters or spaces around them."""
    changes: Counter[str] = Counter()
    for label, n in written.items():
        visible = without_zero_width(label)
        changes["labels without their zero-width characters"] += n * (visible != label)
        changes["labels brought to NFC"] += n * (unicodedata.normalize("NFC", visible) != visible)
        changes["labels without the spaces around them"] += n * (visible.strip() != visible and bool(visible.strip()))
    diagnostics.counts.update(changes)
    shown = [f"{n:,} {name}" for name, n in changes.items() if n]
    merged = len(written) - len(set(clean.values()))
    if shown:
        result = f"; {counted(merged, 'spellings')} became one with another" if merged else ""
        diagnostics.notes.append(f"{path.name}: {', '.join(shown)}{result}")


def _note_missing(path: Path, counts: dict[str, int], diagnostics: Diagnostics) -> None:
    """Report labels that are spelled as a missing value."""
    found = [label for label in counts if label.casefold() in MISSING]
    if found and len(counts) > 1:
        diagnostics.counts["labels spelled as a missing value"] += sum(counts[label] for label in found)
        shown = ", ".join(f"{label!r} ({counts[label]:,})" for label in found[:MAX_SHOWN])
        diagnostics.notes.append(
            f"{path.name}: classes that are spelled as a missing value: {shown}; leave these rows out if they have no "
            "label"
        )


def _note_similar(path: Path, counts: Counter[str], diagnostics: Diagnostics) -> None:
    """Report the classes that differ in case, spaces or number form alone."""
    groups = similar_labels([label for label in counts if label])
    if groups:
        diagnostics.counts["labels that differ in case, spaces or number form alone"] += sum(map(len, groups))
        written = [", ".join(f"{label!r} ({counts[label]:,})" for label in group) for group in groups[:MAX_SHOWN]]
        more = f"; and {len(groups) - MAX_SHOWN:,} groups more" if len(groups) > MAX_SHOWN else ""
        diagnostics.notes.append(
            f"{path.name}: different classes that differ in case, spaces or number form alone: {'; '.join(written)}"
            f"{more}; spell them one way if they are the same"
        )


def _is_number(label: str) -> bool | None:
    """Return True for a finite number, False for NaN and infinity, None for other labels."""
    if _NUMBER.fullmatch(label):
        return True
    return False if re.fullmatch(r"[+-]?(nan|inf|infinity)", label.casefold()) else None


def _joining(character: str) -> bool:
    return ord(character) >= FIRST_JOINING and not "\u2000" <= character <= "\u206f"
