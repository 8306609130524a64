"""Text as a stream: every unit once, whole and in order, however the input is divided; what is wrong is told with its place."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.config import TextConfig
from glassformer.data import sources
from glassformer.data.cuts import cut_up
from glassformer.data.sources import Part, Source, cut_into_blocks, find_sources, is_held_out
from glassformer.data.stream import Layout, Unit, units_of
from glassformer.errors import DataError, UsageError
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.word_cache import WordCache

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


def units(path: Path, block: int = 1 << 20, layout: Layout = Layout()) -> list[Unit]:  # noqa: B008
    blocks = cut_into_blocks(find_sources([path]), block)
    return [unit for parts in blocks for part in parts for unit in units_of(part, layout)]


@pytest.fixture
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "STRETCH", 64)


@settings(max_examples=150, deadline=None)
@given(TEXTS, st.integers(1, 600))
def test_a_file_is_its_stretches_however_it_is_divided(tmp_path_factory, text, block):
    path = tmp_path_factory.mktemp("text") / "a.txt"
    path.write_bytes(text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "STRETCH", 64)
        whole, divided = units(path), units(path, block)
    assert whole == divided
    assert "".join(unit.text for unit in whole) == text.replace("\r\n", "\n")
    assert [unit.begins for unit in whole] == [True] + [False] * (len(whole) - 1)
    assert [unit.place for unit in whole] == list(range(len(whole)))
    assert all(len(unit.text.encode()) <= 4 * 64 for unit in whole)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([w for w in WORDS if w != "\r\n"]), min_size=60, max_size=400).map("".join))
def test_stretches_have_the_ids_of_the_whole(tmp_path_factory, text):
    """Wherever there is a line or a word to cut at; only in text that has none may a piece fall in two."""
    path = tmp_path_factory.mktemp("text") / "a.txt"
    text = " and\n".join(text[i : i + 20] for i in range(0, len(text), 20))
    path.write_bytes(text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "STRETCH", 256)
        cut = [unit.text for unit in units(path)]
    for tokenizer in KINDS.values():
        assert [i for part in cut for i in tokenizer.encode(part)] == tokenizer.encode(text)


@settings(max_examples=100, deadline=None)
@given(TEXTS, st.integers(1, 90))
def test_text_that_is_cut_up_has_the_ids_of_the_whole(text, size):
    parts = cut_up(text, size)
    assert "".join(parts) == text
    for tokenizer in KINDS.values():
        assert [i for part in parts for i in tokenizer.encode(part)] == tokenizer.encode(text)


@settings(max_examples=150, deadline=None)
@given(st.lists(TEXTS | st.text(st.characters(codec="utf-8"), max_size=60), min_size=1, max_size=5))
def test_looking_words_up_changes_no_id(texts):
    for tokenizer in KINDS.values():
        words = WordCache(tokenizer, "<u4")
        for some in (texts, texts[::-1]):
            found = [np.frombuffer(ids, "<u4").tolist() for ids in words.encode(some)]
            assert found == tokenizer.encode_batch(some)


def test_words_are_forgotten_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr("glassformer.text.word_cache.MOST_WORDS", 50)
    words, tokenizer = WordCache(KINDS["byte-bpe"], "<u2"), KINDS["byte-bpe"]
    for start in range(0, 500, 20):
        text = " ".join(f"w{i}" for i in range(start, start + 20))
        assert np.frombuffer(words.encode([text])[0], "<u2").tolist() == tokenizer.encode(text)
        assert len(words.known) <= 70


def test_a_text_without_a_space_is_cut_at_a_character(short_stretches, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("好吃" * 200, encoding="utf-8")
    found = units(path)
    assert len(found) > 10 and "".join(unit.text for unit in found) == "好吃" * 200


@settings(max_examples=80, deadline=None)
@given(st.lists(TEXTS, max_size=20), st.integers(1, 900), st.booleans())
def test_rows_of_json_lines_come_once_each(tmp_path_factory, texts, block, zipped):
    path = tmp_path_factory.mktemp("rows") / ("a.jsonl.gz" if zipped else "a.jsonl")
    data = "".join(json.dumps({"text": text, "n": i}) + "\n" for i, text in enumerate(texts)).encode()
    path.write_bytes(gzip.compress(data) if zipped else data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "STRETCH", 64)
        found = units(path, block) if data else []
    assert [unit.text for unit in found] == texts and all(unit.begins for unit in found)
    assert len({unit.place for unit in found}) == len(texts)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(st.sampled_from(["a b", "c", "dd e", "é"]), max_size=8), min_size=1, max_size=12),
       st.integers(1, 400), st.sampled_from(["", "<|endoftext|>"]))  # fmt: skip
def test_documents_between_separators_come_once_each(tmp_path_factory, documents, block, separator):
    path = tmp_path_factory.mktemp("docs") / "a.txt"
    path.write_text(f"\n{separator}\n".join("\n".join(lines) for lines in documents), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "STRETCH", 32)
        whole = units(path, 1 << 20, Layout(separator))
        assert units(path, block, Layout(separator)) == whole
    wanted = ["\n".join(lines) for lines in documents]
    assert [unit.text for unit in whole if unit.text] == [text for text in wanted if text]


def test_a_zipped_file_has_the_units_of_the_file(short_stretches, tmp_path):
    text = "a line of text\n" * 100
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(text.encode()))
    assert units(tmp_path / "a.txt") == units(tmp_path / "b.txt.gz", 128)


def test_a_folder_is_its_files_of_text_by_name(tmp_path):
    for name in ("b.txt", "a/z.jsonl", "c.csv", "a/c.txt.gz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    assert [source.name for source in find_sources([tmp_path])] == ["a/c.txt.gz", "a/z.jsonl", "b.txt"]
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match="no file of text in this folder"):
        find_sources([tmp_path / "none"])
    with pytest.raises(UsageError, match=r"nowhere\.txt: there is no such file"):
        find_sources([tmp_path / "nowhere.txt"])
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    with pytest.raises(UsageError, match=r"\.parquet is not read"):
        find_sources([tmp_path / "x.parquet"])


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("a.txt", b"one\ntwo\n" * 40 + b"caf\xe9 \n", r"a\.txt:81: 0xE9 is not UTF-8"),
        ("a.txt", b"one\n" * 90 + b"two\0\n", r"a\.txt:91: a byte is NUL"),
        ("a.txt", "text".encode("utf-16"), r"a\.txt:1: the file is UTF-16"),
        # Without a time of their own they would have that of the collection, and so would these cases' names.
        ("a.txt.gz", gzip.compress(b"one\n" * 90 + b"\xff\n", mtime=0), r"a\.txt\.gz:91: 0xFF is not UTF-8"),
        ("a.txt.gz", gzip.compress(b"one\n" * 90, mtime=0)[:-9], r"a\.txt\.gz: the gzip file is damaged"),
        ("a.txt.gz", b"no gzip", r"a\.txt\.gz: the gzip file is damaged"),
        ("a.jsonl", b'{"text": "a"}\n' * 9 + b'{"text": \n', r"a\.jsonl:10: this is not JSON"),
        ("a.jsonl", b'{"text": "a"}\n' * 9 + b'{"body": "a"}\n', r"a\.jsonl:10: there is no text in 'text', only: body"),
        ("a.jsonl", b'{"text": 3}\n', r"a\.jsonl:1: there is no text in 'text'"),
        ("a.jsonl", b"[1]\n", r"a\.jsonl:1: there is no text in 'text', only: list"),
        ("a.jsonl", b'\n{"text": "\\ud800"}\n', r"a\.jsonl:2: half a surrogate pair"),
    ],
)  # fmt: skip
def test_what_is_no_text_is_told_with_its_place(short_stretches, tmp_path, name, data, told):
    (tmp_path / name).write_bytes(data)
    for block in (64, 1 << 20):
        with pytest.raises(DataError, match=told):
            units(tmp_path / name, block)


def test_a_byte_order_mark_is_no_text(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone")
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "one"}')
    assert units(tmp_path / "a.txt")[0].text == units(tmp_path / "a.jsonl")[0].text == "one"


def test_what_is_held_out_is_a_matter_of_seed_name_and_place():
    source = Source(Path("x/a.txt"), "a.txt", 10, 0)
    chosen = [is_held_out(1, source, place, 0.1) for place in range(20_000)]
    assert 0.09 < sum(chosen) / len(chosen) < 0.11
    moved = Source(Path("y/a.txt"), "a.txt", 99, 5)
    assert chosen == [is_held_out(1, moved, place, 0.1) for place in range(20_000)]
    assert chosen != [is_held_out(2, source, place, 0.1) for place in range(20_000)]
    assert not any(is_held_out(1, source, place, 0.0) for place in range(1000))


def test_blocks_cover_all_files_once():
    files = [
        Source(Path(f"{n}.txt"), f"{n}.txt", size, 0) for n, size in enumerate((5, 0, 300_000, 7, 100_000))
    ]
    for size in (1, 40_000, 65_536, 10**9):
        parts = [part for block in cut_into_blocks(files, size) for part in block]
        for source in files:
            own = [part for part in parts if part.source is source]
            assert [p.start for p in own[1:]] == [p.stop for p in own[:-1]]
            assert not own if not source.size else (own[0].start, own[-1].stop) == (0, source.size)
    zipped = Source(Path("a.gz"), "a.gz", 10**9, 0)
    assert cut_into_blocks([zipped], 1) == [[Part(zipped, 0, 10**9)]]
