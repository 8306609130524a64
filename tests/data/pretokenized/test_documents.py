"""Text as a stream: every segment once, whole and in order; errors name file and line."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.config import TextConfig
from glassformer.data import shards
from glassformer.data.shards import PretokenizeConfig, Segment, find_sources, read_segments
from glassformer.errors import DataError, UsageError
from glassformer.text.tokenizer import Tokenizer

WORDS = [
    "the",
    "Cat",
    " ",
    "  ",
    "\n",
    "\n\n",
    " \n",
    "\t",
    ". ",
    "don't",
    "é",
    "好吃",
    "\u00a0",
    "\u3000",
    "42",
    "😀",
    "\r\n",
]
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=400).map("".join)
KINDS = {
    kind: Tokenizer.train(["".join(WORDS) * 3 + "the Cat sat"], TextConfig(tokenizer=kind, vocab_size=290))
    for kind in ("byte-bpe", "word", "char")
}


def segments(path: Path, config: PretokenizeConfig = PretokenizeConfig()) -> list[Segment]:  # noqa: B008
    return [segment for source in find_sources([path])[0] for segment in read_segments(*source, config)]


@pytest.fixture
def short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "SEGMENT_BYTES", 64)


@settings(max_examples=150, deadline=None)
@given(TEXTS)
def test_plain_text_is_its_segments(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("text") / "a.txt"
    path.write_bytes(text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "SEGMENT_BYTES", 64)
        found = segments(path)
    assert "".join(segment.text for segment in found) == text.replace("\r\n", "\n")
    assert [segment.starts_document for segment in found] == [True] + [False] * (len(found) - 1)
    assert all(len(segment.text.encode()) <= 4 * 64 for segment in found)
    assert len({segment.random for segment in found}) == len(found)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([w for w in WORDS if w != "\r\n"]), min_size=60, max_size=400).map("".join))
def test_segments_have_the_ids_of_the_whole(tmp_path_factory, text):
    """Wherever there is a line or a word to cut at; only in text that has none may a token fall in two."""
    path = tmp_path_factory.mktemp("text") / "a.txt"
    text = " and\n".join(text[i : i + 20] for i in range(0, len(text), 20))
    path.write_bytes(text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "SEGMENT_BYTES", 256)
        cut = [segment.text for segment in segments(path)]
    for tokenizer in KINDS.values():
        assert [i for part in cut for i in tokenizer.encode(part)] == tokenizer.encode(text)


def test_text_without_a_space_is_cut_at_a_character(short_segments, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("好吃" * 200, encoding="utf-8")
    found = segments(path)
    assert len(found) > 10 and "".join(segment.text for segment in found) == "好吃" * 200


@settings(max_examples=80, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=20), st.booleans())
def test_rows_of_json_lines_come_once_each(tmp_path_factory, texts, zipped):
    path = tmp_path_factory.mktemp("rows") / ("a.jsonl.gz" if zipped else "a.jsonl")
    data = "".join(json.dumps({"text": text, "n": i}) + "\n" for i, text in enumerate(texts)).encode()
    path.write_bytes(gzip.compress(data) if zipped else data)
    found = segments(path)
    assert [segment.text for segment in found] == texts and all(s.starts_document for s in found)
    assert len({segment.random for segment in found}) == len(texts)


def test_a_compressed_file_has_the_segments_of_the_file(short_segments, tmp_path):
    text = "a line of text\n" * 100
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
    (tmp_path / "x" / "a.txt").write_text(text, encoding="utf-8")
    (tmp_path / "y" / "a.txt.gz").write_bytes(gzip.compress(text.encode()))
    plain, zipped = segments(tmp_path / "x"), segments(tmp_path / "y")
    assert len(plain) > 10 and [s.text for s in plain] == [s.text for s in zipped]


def test_a_folder_is_its_files_of_text_by_name(tmp_path):
    for name in ("b.txt", "a/z.jsonl", "c.csv", "a/c.txt.gz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    found, others = find_sources([tmp_path])
    assert ([name for _, name in found], others) == (["a/c.txt.gz", "a/z.jsonl", "b.txt"], ["c.csv"])
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match="no text file in this folder"):
        find_sources([tmp_path / "none"])
    with pytest.raises(UsageError, match=r"nowhere\.txt: there is no such file"):
        find_sources([tmp_path / "nowhere.txt"])


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.txt", b"one\ntwo\n" * 40 + b"caf\xe9 \n", r"a\.txt:81: 0xE9 is not UTF-8"),
        ("a.txt", b"one\n" * 90 + b"two\0\n", r"a\.txt:91: a byte is NUL"),
        ("a.txt", b"\xff\xfet\0e\0x\0t\0", r"a\.txt:1: 0xFF is not UTF-8"),  # UTF-16
        # Without a time of their own they would have that of the collection, and so would these cases' names.
        ("a.txt.gz", gzip.compress(b"one\n" * 90 + b"\xff\n", mtime=0), r"a\.txt\.gz:91: 0xFF is not UTF-8"),
        ("a.txt.gz", gzip.compress(b"one\n" * 90, mtime=0)[:-9], r"a\.txt\.gz: the gzip file is damaged"),
        ("a.txt.gz", b"no gzip", r"a\.txt\.gz: the gzip file is damaged"),
        ("x.data", b"DATA\x15\x80", r"x\.data:1: 0x80 is not UTF-8"),
        ("x.parquet", b"PAR1\x15\x80", r"x\.parquet: this is no plain text"),
        ("x.csv", b"text,label\n", r"x\.csv: this is a table"),
        ("a.jsonl", b'{"text": "a"}\n' * 9 + b'{"text": \n', r"a\.jsonl:10: expected JSON"),
        ("a.jsonl", b'{"text": "a"}\n' * 9 + b'{"body": "a"}\n', r"a\.jsonl:10: .* in the field 'text', got: {\"body"),
        ("a.jsonl", b'{"text": "a"}\n{"text": "\xe9"}\n', r"a\.jsonl:2: expected JSON"),
        ("a.jsonl", b'{"text": 3}\n', r"a\.jsonl:1: .* in the field 'text', got: {\"text\": 3}$"),
        ("a.jsonl", b"[1]\n", r"a\.jsonl:1: .* in the field 'text', got: \[1\]$"),
        ("a.jsonl", b'\n{"text": "\\ud800"}\n', r"a\.jsonl:2: expected JSON"),
    ],
)
def test_what_is_not_text_is_an_error_with_its_line(short_segments, tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=message):
        segments(tmp_path / name)


def test_a_byte_order_mark_is_not_text(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone")
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "one"}')
    assert segments(tmp_path / "a.txt")[0].text == segments(tmp_path / "a.jsonl")[0].text == "one"


def test_what_is_held_out_is_a_function_of_seed_name_and_position(tmp_path):
    rows = "".join(json.dumps({"text": f"{i:06}"}) + "\n" for i in range(20_000))
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.jsonl").write_text(rows + "\n" * (folder == "y"), encoding="utf-8")

    def held_out(folder: str, seed: int, fraction: float) -> list[bool]:
        config = PretokenizeConfig(seed=seed, valid_fraction=fraction)
        return [segment.held_out for segment in segments(tmp_path / folder, config)]

    chosen = held_out("x", 1, 0.1)
    assert 0.09 < sum(chosen) / len(chosen) < 0.11
    assert chosen == held_out("y", 1, 0.1) and chosen != held_out("x", 2, 0.1)
    assert not any(held_out("x", 1, 0.0))


def test_text_behind_what_is_held_out_starts_a_document(short_segments, tmp_path):
    (tmp_path / "a.txt").write_text("a line of text\n" * 200, encoding="utf-8")
    found = segments(tmp_path / "a.txt", PretokenizeConfig(valid_fraction=0.3))
    assert 5 < sum(segment.held_out for segment in found) < len(found) - 5
    for before, segment in pairwise(found):
        assert segment.starts_document == before.held_out
