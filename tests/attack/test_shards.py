"""A folder of shards that somebody else made is refused as data, exit 3, in bounded time and memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.attack.conftest import SMALL, Victims
from tests.helpers.hostile import BYTES, Attack, file_attacks, forge, key_attacks, peak_bytes, query

Edit = Callable[[dict[str, Any]], Any]


def train(shards: Path, out: Path) -> tuple[int, str]:
    answer = query("train", "lm", "--train-file", shards, "--out", out, *SMALL, "--text.max-len", "32", "--dry-run")
    return answer.code, answer.err


def test_the_shards_themselves_are_read(victims: Victims, tmp_path: Path) -> None:
    assert train(victims.shards, tmp_path / "out")[0] == 0


EDITS: dict[str, Edit] = {
    "no counts": lambda c: c.pop("counts"),
    "a count less": lambda c: c["counts"].pop("documents"),
    "counts of a string": lambda c: c["counts"].update(tokens="x"),
    "counts of 10^15": lambda c: c["counts"].update(tokens=10**15, documents=10**15),
    "counts of nothing": lambda c: c["counts"].update(tokens=0),
    "negative tokens": lambda c: c["counts"].update(tokens=-1),
    "an unknown dtype": lambda c: c.update(dtype="<f8"),
    "a wider dtype": lambda c: c.update(dtype="<u4"),
    "no files": lambda c: c.update(files={}),
    "files of numbers": lambda c: c.update(files=[1]),
    "no text": lambda c: c.pop("text"),
    "another tokenizer": lambda c: c.update(tokenizer="0" * 64),
    "a tokenizer of 5": lambda c: c.update(tokenizer=5),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_index_that_says_otherwise_is_refused(victims: Victims, tmp_path: Path, edit: Edit) -> None:
    def change(path: Path) -> None:
        content = json.loads(path.read_text("utf-8"))
        edit(content)
        path.write_text(json.dumps(content), "utf-8")

    forged = forge(victims.shards, tmp_path / "forged", Attack("index.json", "", change))
    assert train(forged, tmp_path / "out")[0] == 3


def test_ids_beyond_the_vocabulary_are_refused(victims: Victims, tmp_path: Path) -> None:
    def change(path: Path) -> None:
        ids = np.fromfile(path, "<u2")
        ids[10] = 60_000
        path.write_bytes(ids.tobytes())
        index = json.loads((path.parent / "index.json").read_text("utf-8"))
        index["files"]["ids.bin"] = hashlib.sha256(ids.tobytes()).hexdigest()
        (path.parent / "index.json").write_text(json.dumps(index), "utf-8")

    forged = forge(victims.shards, tmp_path / "forged", Attack("ids.bin", "", change))
    code, message = train(forged, tmp_path / "out")
    assert code == 3 and "60,000" in message


@pytest.mark.parametrize("file", ["index.json", "tokenizer.json", "ids.bin", "held-out.jsonl"])
def test_every_damage_of_every_file_is_refused(victims: Victims, tmp_path: Path, file: str) -> None:
    for attack in file_attacks(file):
        code, message = train(forge(victims.shards, tmp_path / "forged", attack), tmp_path / "out")
        no_longer_shards = file == "index.json" and code == 2  # without an index it is a folder of texts
        assert code == 3 or no_longer_shards, f"{attack}: {code} {message[-300:]}"
    assert peak_bytes() < BYTES


@pytest.mark.slow
def test_every_key_of_the_index(victims: Victims, tmp_path: Path) -> None:
    content = json.loads((victims.shards / "index.json").read_text("utf-8"))
    for attack in key_attacks("index.json", content, depth=3):
        forged = forge(victims.shards, tmp_path / "forged", attack)
        code, message = train(forged, tmp_path / "out")
        assert code in (0, 3), f"{attack}: {code} {message[-300:]}"
