"""Text encoded ahead: nothing lost, nothing doubled, the same bytes each time, and nothing left of what failed."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.crashing import FullDisk, every_crash

from glassformer.config import TextConfig
from glassformer.data import shards
from glassformer.data.shards import TOKENIZER, PretokenizeConfig, ShardIndex, encode_text
from glassformer.errors import DataError, ResourceError, UsageError
from glassformer.text.tokenizer import Tokenizer

SPEECH = "To be, or not to be, that is the question:\nWhether 'tis nobler in the mind to suffer\n\n"
CONFIG = PretokenizeConfig(seed=3, valid_fraction=0.2, vocab_size=300)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments and batches of little text, so that a page of it is many."""
    monkeypatch.setattr(shards, "SEGMENT_BYTES", 128)
    monkeypatch.setattr(shards, "BATCH_CHARS", 256)


def corpus(folder: Path, n: int = 24) -> Path:
    """A folder of a plain file and of JSON Lines, one of whose texts is empty."""
    folder.mkdir(exist_ok=True)
    (folder / "plays.txt").write_text("".join(f"{i} {SPEECH}" for i in range(n)), encoding="utf-8")
    rows = [f"Text {i} is short." * (i % 4) for i in range(n)]
    lines = "".join(json.dumps({"text": text}) + "\n" for text in rows)
    (folder / "rows.jsonl").write_text(lines, encoding="utf-8")
    return folder


def encode(source: Path, out: Path, config: PretokenizeConfig, tokenizer: Tokenizer | None = None) -> ShardIndex:
    return encode_text(out, [source], config, tokenizer)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def tokenizer_of(index: ShardIndex) -> Tokenizer:
    return Tokenizer.load(index.path / TOKENIZER)


def documents_of(ids: np.ndarray, tokenizer: Tokenizer) -> list[str]:
    """The texts between the end tokens."""
    cuts = np.flatnonzero(ids == tokenizer.eos_id)
    return [tokenizer.decode(part.tolist()) for part in np.split(ids, cuts)]


def test_every_text_is_trained_on_or_held_out_once(tmp_path):
    source = corpus(tmp_path / "in")
    index = encode(source, tmp_path / "out", CONFIG)
    texts, held_out = documents_of(index.ids()[:], tokenizer_of(index)), index.read_held_out()
    assert held_out
    plays = (source / "plays.txt").read_text(encoding="utf-8")
    lines = (source / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    kept = [text for text in (json.loads(line)["text"] for line in lines) if text]
    assert sorted(t for t in [*texts, *held_out] if t in kept) == sorted(kept)
    whole = "".join(text for text in [*texts, *held_out] if text not in kept)
    assert sorted(whole) == sorted(plays) and all(text in plays for text in texts if text not in kept)
    assert index.counts["documents"] == len(texts) and index.counts["tokens"] == index.n_tokens + 1
    assert len(index.ids()) == index.n_tokens


def test_without_anything_held_out_a_plain_file_has_the_ids_of_the_whole(tmp_path):
    plays = corpus(tmp_path / "in") / "plays.txt"
    index = encode(plays, tmp_path / "out", replace(CONFIG, valid_fraction=0.0))
    ids = tokenizer_of(index).encode(plays.read_text(encoding="utf-8"))
    assert index.ids()[:].tolist() == ids and index.counts["documents"] == 1


def test_documents_are_joined_as_a_folder_of_them_is(tmp_path):
    (tmp_path / "in").mkdir()
    texts = [SPEECH * n for n in (1, 3, 9)]
    for i, text in enumerate(texts):
        (tmp_path / "in" / f"{i}.txt").write_text(text, encoding="utf-8")
    index = encode(tmp_path / "in", tmp_path / "out", replace(CONFIG, valid_fraction=0.0))
    t = tokenizer_of(index)
    wanted = list(chain.from_iterable([t.eos_id, *t.encode(text)] for text in texts))[1:]
    assert index.ids()[:].tolist() == wanted


def test_killed_at_any_operation_it_leaves_a_whole_folder_or_none(tmp_path):
    source = corpus(tmp_path / "in", 3)
    encode(source, tmp_path / "whole", CONFIG)
    wanted = contents(tmp_path / "whole")
    for folder, completed in every_crash(
        tmp_path, lambda _: None, lambda folder: encode(source, folder / "out", CONFIG), False, False
    ):
        out = folder / "out"
        assert out.exists() or not completed
        if not out.exists():
            encode(source, out, CONFIG)
        assert contents(out) == wanted and [path.name for path in folder.iterdir()] == ["out"]


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    source, out = corpus(tmp_path / "in"), tmp_path / "out"
    with monkeypatch.context() as patch:
        FullDisk(lambda path: path.name == "ids.bin").install(patch)
        with pytest.raises(ResourceError, match="No space left"):
            encode(source, out, CONFIG)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_folder_that_holds_something_is_refused_and_an_empty_one_filled(tmp_path):
    source, out = corpus(tmp_path / "in"), tmp_path / "out"
    out.mkdir()
    encode(source, out, CONFIG)
    before = contents(out)
    with pytest.raises(UsageError, match="exists and is not empty"):
        encode(source, out, CONFIG)
    assert contents(out) == before


def test_no_text_is_an_error(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"")
    (tmp_path / "a.jsonl").write_text('{"text": ""}\n', encoding="utf-8")
    for name in ("a.txt", "a.jsonl"):
        with pytest.raises(DataError, match="no text to train a tokenizer on"):
            encode(tmp_path / name, tmp_path / "out", CONFIG)
    (tmp_path / "a.txt").write_text("x", encoding="utf-8")
    with pytest.raises(DataError, match="too little text is left"):
        encode(tmp_path / "a.txt", tmp_path / "out", replace(CONFIG, valid_fraction=0.0))
    assert not (tmp_path / "out").exists()


def test_the_tokenizer_is_trained_on_some_of_the_training_text(tmp_path, monkeypatch):
    source, samples = corpus(tmp_path / "in", 200), list[list[str]]()
    train = Tokenizer.train

    def recorded(texts, config):
        samples.append(list(texts))
        return train(texts, config)

    monkeypatch.setattr(shards, "SAMPLE_CHARS", 4000)
    monkeypatch.setattr(Tokenizer, "train", recorded)
    index = encode(source, tmp_path / "out", CONFIG)
    encode(source, tmp_path / "again", CONFIG)
    encode(source, tmp_path / "other", replace(CONFIG, seed=4))
    assert contents(tmp_path / "out") == contents(tmp_path / "again")
    assert samples[0] == samples[1] != samples[2]
    assert all(3000 < sum(map(len, texts)) <= 4000 for texts in samples)
    assert not set(samples[0]) & set(index.read_held_out())


def test_a_given_tokenizer_is_used_and_another_one_refused(tmp_path):
    source = corpus(tmp_path / "in")
    own = Tokenizer.train([SPEECH, "0123456789 Text is short."], TextConfig(tokenizer="char"))
    other = Tokenizer.train(["abc"], TextConfig(tokenizer="char"))
    index = encode(source, tmp_path / "out", CONFIG, own)
    assert index.tokenizer == own.sha256 == tokenizer_of(index).sha256
    assert index.text == {"tokenizer": "char", "vocab_size": own.vocab_size, "lowercase": False}
    with pytest.raises(DataError, match="encoded with another tokenizer"):
        index.check_tokenizer(other)
    marked = Tokenizer.train([SPEECH], TextConfig(tokenizer="bpe", vocab_size=400))
    with pytest.raises(UsageError, match="marks where a text begins"):
        encode(source, tmp_path / "bpe", CONFIG, marked)


def test_ids_take_four_bytes_where_two_are_too_few(tmp_path):
    words = "\n".join(f"w{i}" for i in range(70_000))
    (tmp_path / "a.txt").write_text(words, encoding="utf-8")
    tokenizer = Tokenizer.train([words], TextConfig(tokenizer="word", vocab_size=80_000))
    index = encode(tmp_path / "a.txt", tmp_path / "out", replace(CONFIG, valid_fraction=0.0), tokenizer)
    assert index.dtype == "<u4" and int(index.ids()[:].max()) > 1 << 16
    assert index.ids()[:].tolist() == tokenizer.encode(words)
