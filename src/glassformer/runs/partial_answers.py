"""Answers to the rows of a table while they are computed: a folder beside the output, from which the command resumes.

`facts.json` holds what the answers depend on: the hash of the table's content, those of the models, the options.
`answers.jsonl` has an answer a line, in the order of the rows. A line that a kill cut short, and what is behind it, is
dropped, down to whole groups: numbers may depend on the texts that are answered together, and so a resumed table has
the same bytes as one that was answered at once.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from glassformer.errors import DataError, ResourceError, UsageError
from glassformer.runs.lock import lock_folder
from glassformer.utils.atomic_io import remove_leftovers, remove_leftovers_of, sync, write_json
from glassformer.utils.safe_read import LIMITS, parse_json, read_json_object

FACTS, ANSWERS = "facts.json", "answers.jsonl"
SUFFIX = ".partial"
WHAT_CHANGED = {"input": "another table", "models": "another model", "options": "other options"}


class PartialAnswers:
    """The answers so far; `n_rows` are there."""

    def __init__(self, folder: Path, group: int) -> None:
        self.folder, self._group, self.n_rows, self.is_open = folder, group, 0, False

    def open(self, facts: Mapping[str, Any], n_rows: int) -> None:
        """Begin, or continue where an earlier command with the same facts stopped, of `n_rows` in all.

        Raises:
            UsageError: the answers that are there depend on something else.
        """
        path = self.folder / FACTS
        if not path.is_file():
            write_json(path, facts)
        begun = read_json_object(path, LIMITS["settings"], UsageError)
        if changed := [what for name, what in WHAT_CHANGED.items() if begun.get(name) != facts[name]]:
            hint = "give the command as it was, or remove this folder to begin again"
            raise UsageError(f"{self.folder} was begun with {' and '.join(changed)}", hint)
        answers = self.folder / ANSWERS
        if answers.is_symlink():
            raise UsageError(f"{answers} should be a regular file", "remove it, and begin again")
        with open(answers, "a+b") as file:
            file.seek(0)
            n, size, group_ends = 0, 0, 0
            for line in file:
                if not line.endswith(b"\n") or not _is_answer(line):
                    break
                n, size = n + 1, size + len(line)
                if n % self._group == 0 or n == n_rows:
                    self.n_rows, group_ends = n, size
            file.truncate(group_ends)
        self.is_open = True

    def append(self, answers: Sequence[Mapping[str, Any]]) -> None:
        """Write answers to the next rows.

        Raises:
            ResourceError: the disk is full, or cannot be written; what was written before stands.
        """
        data = b"".join(json.dumps(answer).encode() + b"\n" for answer in answers)
        try:
            with open(self.folder / ANSWERS, "ab") as file:
                file.write(data)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))
            hint = "free some disk space, then give the same command again: it continues"
            message = f"{self.folder} cannot be written: {error.strerror or error}"
            raise ResourceError(message, hint if full else "choose a folder that can be written") from error
        self.n_rows += len(answers)

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield all answers, in order."""
        with open(self.folder / ANSWERS, "rb") as file:
            for line in file:
                yield json.loads(line)

    def sync(self) -> None:
        """Force the answers to the disk."""
        sync(self.folder / ANSWERS)


@contextmanager
def partial_answers(out: Path, group: int) -> Iterator[PartialAnswers]:
    """Yield the answers for an output, locked against other processes; once `out` is there they are removed.

    Where none was kept, nothing is left either.

    Raises:
        UsageError: another process answers the same table.
    """
    folder = out.with_name(out.name + SUFFIX)
    with lock_folder(folder, "answering into"):
        remove_leftovers_of(out)
        remove_leftovers(folder)
        partial = PartialAnswers(folder, group)
        try:
            yield partial
        finally:
            if done := out.is_file() or (partial.is_open and not partial.n_rows):
                for name in (ANSWERS, FACTS):
                    (folder / name).unlink(missing_ok=True)
    if done:
        with suppress(OSError):  # gone already, or another process has begun
            folder.rmdir()


def _is_answer(line: bytes) -> bool:
    try:
        return isinstance(parse_json(line, ANSWERS, DataError), dict)
    except DataError:
        return False
