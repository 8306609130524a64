"""Encoding ahead: nothing lost, nothing doubled, the same to the byte for any number of processes and any kill."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

import numpy as np
import pytest
from tests.crashing import every_crash

from glassformer import files
from glassformer.config import DataConfig, FilesConfig, TextConfig
from glassformer.data import encode as encode_module
from glassformer.data import sources as sources_module
from glassformer.data.encode import BlockEncoder, Encoding
from glassformer.data.encode_jobs import encode
from glassformer.data.encoded_ahead import load_shards
from glassformer.data.forms import Form
from glassformer.data.reading import Findings
from glassformer.data.shards import ShardedIds, Shards, is_shards
from glassformer.data.stream import Layout
from glassformer.errors import DataError, GlassformerError, ResourceError, UsageError
from glassformer.text.tokenizer import Tokenizer

SPEECH = "To be, or not to be, that is the question:\nWhether 'tis nobler in the mind to suffer\n\n"
ENCODING = Encoding(seed=3, valid_fraction=0.2, shard_bytes=512, text=TextConfig(vocab_size=300))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretches of 128 bytes, so that a page of text is many."""
    monkeypatch.setattr(sources_module, "STRETCH", 128)


def corpus(folder: Path, n: int = 24) -> Path:
    """A folder of a plain file and of JSON Lines, one of whose texts is empty."""
    folder.mkdir(exist_ok=True)
    (folder / "plays.txt").write_text("".join(f"{i} {SPEECH}" for i in range(n)), encoding="utf-8")
    rows = [f"Text {i} is short." * (i % 4) for i in range(n)]
    lines = "".join(json.dumps({"text": text}) + "\n" for text in rows)
    (folder / "rows.jsonl").write_text(lines, encoding="utf-8")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def documents_of(ids: np.ndarray, tokenizer: Tokenizer) -> list[str]:
    """The texts between the end tokens."""
    cuts = np.flatnonzero(ids == tokenizer.eos_id)
    return [tokenizer.decode(part.tolist()) for part in np.split(ids, cuts)]


def test_every_text_is_trained_on_or_held_out_once(tmp_path):
    source = corpus(tmp_path / "in")
    shards = encode([source], tmp_path / "out", ENCODING)
    texts, held_out = documents_of(shards.ids()[:], shards.read_tokenizer()), shards.read_held_out()
    assert held_out and len(shards.shards) > 3
    plays = (source / "plays.txt").read_text(encoding="utf-8")
    lines = (source / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line)["text"] for line in lines]
    kept = [text for text in rows if text]
    assert sorted(t for t in [*texts, *held_out] if t in kept) == sorted(kept)
    whole = "".join(text for text in [*texts, *held_out] if text not in kept)
    assert sorted(whole) == sorted(plays) and all(text in plays for text in texts if text not in kept)
    counts = shards.counts
    assert counts["empty"] == len(rows) - len(kept)
    assert counts["documents"] == len(texts) and counts["tokens"] == shards.n_tokens + 1
    assert sum(shard.tokens for shard in shards.shards) == counts["tokens"]
    assert not [
        p.name for p in (tmp_path / "out").iterdir() if p.suffix == ".json" and p.name.startswith("shard")
    ]


def test_without_anything_held_out_a_plain_file_has_the_ids_of_the_whole(tmp_path):
    plays = corpus(tmp_path / "in") / "plays.txt"
    shards = encode([plays], tmp_path / "out", replace(ENCODING, valid_fraction=0.0))
    ids = shards.read_tokenizer().encode(plays.read_text(encoding="utf-8"))
    assert shards.ids()[:].tolist() == ids and shards.counts["documents"] == 1


def test_documents_are_joined_as_a_folder_of_them_is(tmp_path):
    (tmp_path / "in").mkdir()
    texts = [SPEECH * n for n in (1, 3, 9)]
    for i, text in enumerate(texts):
        (tmp_path / "in" / f"{i}.txt").write_text(text, encoding="utf-8")
    shards = encode([tmp_path / "in"], tmp_path / "out", replace(ENCODING, valid_fraction=0.0))
    t = shards.read_tokenizer()
    wanted = list(chain.from_iterable([t.eos_id, *t.encode(text)] for text in texts))[1:]
    assert shards.ids()[:].tolist() == wanted


@pytest.mark.parametrize(("torn", "power_cut"), [(False, False), (True, False), (False, True)])
def test_killed_at_any_operation_it_goes_on_to_the_same_bytes(tmp_path, torn, power_cut):
    source = corpus(tmp_path / "in", 8)
    encoding = replace(ENCODING, shard_bytes=1024)
    encode([source], tmp_path / "whole", encoding)
    wanted, n_unfinished = contents(tmp_path / "whole"), 0
    for folder, completed in every_crash(
        tmp_path, lambda _: None, lambda folder: encode([source], folder / "out", encoding), torn, power_cut
    ):
        out = folder / "out"
        if not completed and is_shards(out):
            try:
                Shards.read(out).check(None)  # the index was there, so all of it was
            except DataError as error:
                assert "not finished" in error.message
                n_unfinished += 1
        encode([source], out, encoding)
        assert contents(out) == wanted
    assert n_unfinished > 5


def test_what_is_sealed_is_not_made_again(tmp_path, monkeypatch):
    source, out, seals = corpus(tmp_path / "in"), tmp_path / "out", list[int]()
    seal = BlockEncoder.seal

    def counted(self: BlockEncoder, number: int):
        if len(seals) == 3:
            raise KeyboardInterrupt
        seals.append(number)
        return seal(self, number)

    monkeypatch.setattr(BlockEncoder, "seal", counted)
    with pytest.raises(KeyboardInterrupt):
        encode([source], out, ENCODING)
    before = {p.name: p.stat().st_mtime_ns for p in out.glob("*.bin")}
    monkeypatch.setattr(BlockEncoder, "seal", seal)
    done: list[int] = []
    encode([source], out, ENCODING, told=lambda n, _, counts: done.append(n))
    assert done[0] == 4 and {name: (out / name).stat().st_mtime_ns for name in before} == before


def test_a_sealed_shard_that_is_cut_short_is_made_again(tmp_path):
    source, out = corpus(tmp_path / "in"), tmp_path / "out"
    wanted = encode([source], tmp_path / "whole", ENCODING).sha256
    with pytest.raises(Stop):
        encode([source], out, ENCODING, told=stop_at(3))
    (out / "shard-00001.bin").write_bytes(b"..")
    assert encode([source], out, ENCODING).sha256 == wanted


class Stop(Exception):
    pass


def stop_at(wanted: int):
    def told(done: int, n: int, counts: object) -> None:
        if done == wanted:
            raise Stop

    return told


@pytest.mark.slow
def test_two_processes_write_what_one_does(tmp_path):
    source = corpus(tmp_path / "in", 400)
    encoding = replace(ENCODING, shard_bytes=1 << 14)
    with pytest.MonkeyPatch.context() as patch:
        patch.undo()
        patch.setattr(sources_module, "STRETCH", 1 << 13)  # that of processes that are started anew
        one = encode([source], tmp_path / "one", encoding)
        with pytest.raises(Stop):
            encode([source], tmp_path / "two", encoding, jobs=2, told=stop_at(1))
        two = encode([source], tmp_path / "two", encoding, jobs=2)
        assert one.sha256 == two.sha256 and contents(tmp_path / "one") == contents(tmp_path / "two")
        (source / "bad.txt").write_bytes(b"caf\xe9 " * 3)
        with pytest.raises(DataError, match=r"bad\.txt:1: 0xE9 is not UTF-8"):
            encode([source], tmp_path / "bad", encoding, jobs=2, tokenizer=one.read_tokenizer())


def test_what_has_changed_since_it_was_begun_is_refused(tmp_path):
    source, out = corpus(tmp_path / "in"), tmp_path / "out"
    with pytest.raises(Stop):
        encode([source], out, ENCODING, told=stop_at(2))
    for changed, told in (
        (replace(ENCODING, seed=4), "begun with seed 3, not 4"),
        (replace(ENCODING, layout=Layout("")), "begun with separator None, not "),
        (replace(ENCODING, text=TextConfig(vocab_size=301)), "begun with vocab size 300, not 301"),
    ):
        with pytest.raises(UsageError, match=told):
            encode([source], out, changed)
    facts = (source / "plays.txt").stat()
    os.utime(source / "plays.txt", ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))
    with pytest.raises(DataError, match=r"plays\.txt has changed since"):
        encode([source], out, ENCODING)
    (source / "more.txt").write_text("x", encoding="utf-8")
    with pytest.raises(DataError, match=r"more\.txt is new since"):
        encode([source], out, ENCODING)


def test_what_changes_while_it_is_read_is_refused(tmp_path):
    source, out = corpus(tmp_path / "in"), tmp_path / "out"

    def grow(done: int, n: int, counts: object) -> None:
        with open(source / "plays.txt", "a", encoding="utf-8") as file:
            file.write("more\n")

    with pytest.raises(DataError, match=r"plays\.txt changed while it was encoded"):
        encode([source], out, ENCODING, told=grow)
    with pytest.raises(DataError, match="not finished"):
        Shards.read(out)


def test_a_finished_folder_is_left_as_it_is_and_another_one_is_refused(tmp_path):
    source, out = corpus(tmp_path / "in"), tmp_path / "out"
    encode([source], out, ENCODING)
    before = {p: p.stat().st_mtime_ns for p in out.iterdir()}
    encode([source], out, ENCODING, told=lambda *_: pytest.fail("encoded again"))
    assert {p: p.stat().st_mtime_ns for p in out.iterdir()} == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.doc").write_text("x", encoding="utf-8")
    with pytest.raises(UsageError, match="holds something already"):
        encode([source], tmp_path / "other", ENCODING)


def test_a_full_disk_leaves_what_is_sealed(tmp_path, monkeypatch):
    source, out = corpus(tmp_path / "in"), tmp_path / "out"

    class Full(files.FileSystem):
        def write(self, path, chunks) -> None:
            if "shard-00002" in path.name:
                super().write(path, islice(chunks, 1))
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            super().write(path, chunks)

    with monkeypatch.context() as patch:
        patch.setattr(files, "fs", Full())
        with pytest.raises(ResourceError, match="No space left"):
            encode([source], out, ENCODING)
    assert (out / "shard-00001.json").is_file() and not (out / "shard-00002.bin").exists()
    assert not [p for p in out.iterdir() if p.name.startswith(".tmp")]
    encode([source], out, ENCODING)
    encode([source], tmp_path / "whole", ENCODING)
    assert contents(out) == contents(tmp_path / "whole")


def test_no_text_is_told(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"")
    with pytest.raises(DataError, match="every file is empty"):
        encode([tmp_path / "a.txt"], tmp_path / "out", ENCODING)
    (tmp_path / "a.jsonl").write_text('{"text": ""}\n', encoding="utf-8")
    with pytest.raises(DataError, match="no text to train a tokenizer on"):
        encode([tmp_path / "a.jsonl"], tmp_path / "out", ENCODING)


def test_the_tokenizer_is_trained_on_some_of_the_training_text(tmp_path, monkeypatch):
    source = corpus(tmp_path / "in", 200)
    monkeypatch.setattr(encode_module, "SAMPLE_BYTES", 4000)
    sources = sources_module.find_sources([source])
    texts = encode_module.sample(sources, ENCODING)
    assert texts == encode_module.sample(sources, ENCODING)
    assert 2000 < sum(map(len, texts)) < 12_000
    shards = encode([source], tmp_path / "out", ENCODING)
    assert not set(texts) & set(shards.read_held_out())
    assert texts != encode_module.sample(sources, replace(ENCODING, seed=4))


def test_a_tokenizer_that_is_given_is_used_and_another_one_refused(tmp_path):
    source = corpus(tmp_path / "in")
    own = Tokenizer.train([SPEECH, "0123456789 Text is short."], TextConfig(tokenizer="char"))
    shards = encode([source], tmp_path / "out", ENCODING, tokenizer=own)
    assert shards.tokenizer == own.sha256 == shards.read_tokenizer().sha256
    assert shards.text == {"tokenizer": "char", "vocab_size": own.vocab_size, "lowercase": False}
    with pytest.raises(DataError, match="encoded with another tokenizer"):
        shards.check_tokenizer(Tokenizer.train(["abc"], TextConfig(tokenizer="char")))
    with pytest.raises(UsageError, match="begun with tokenizer"):
        encode(
            [source],
            tmp_path / "out",
            ENCODING,
            tokenizer=Tokenizer.train(["a"], TextConfig(tokenizer="char")),
        )


def test_ids_take_four_bytes_where_two_are_too_few(tmp_path):
    words = " ".join(f"w{i}" for i in range(70_000))
    (tmp_path / "a.txt").write_text(words.replace(" w", "\nw"), encoding="utf-8")
    tokenizer = Tokenizer.train([words], TextConfig(tokenizer="word", vocab_size=80_000))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources_module, "STRETCH", 1 << 15)
        shards = encode(
            [tmp_path / "a.txt"], tmp_path / "out", Encoding(valid_fraction=0.0), tokenizer=tokenizer
        )
    assert shards.dtype == "<u4" and int(shards.ids()[:].max()) > 1 << 16
    assert shards.ids()[:].tolist() == tokenizer.encode(words)


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    encode([corpus(tmp_path / "in")], tmp_path / "out", ENCODING)
    return tmp_path / "out"


def load(path: Path):
    return load_shards(Form("lm"), DataConfig(files=FilesConfig(train_file=str(path))), Findings())


@pytest.mark.parametrize("name", ["shard-00001.bin", "held-out-00001.jsonl"])
def test_a_damaged_file_is_named(sealed, name, monkeypatch, tmp_path):
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "cache"))
    load(sealed)
    whole = (sealed / name).read_bytes()
    (sealed / name).write_bytes(whole[:-2])
    with pytest.raises(DataError, match=rf"{name} has [\d,]+ bytes, and [\d,]+ were written"):
        load(sealed)
    (sealed / name).write_bytes(whole[:-2] + b"..")
    with pytest.raises(DataError, match=f"{name} is damaged"):
        load(sealed)
    (sealed / name).unlink()
    with pytest.raises(DataError, match=f"{name} is missing"):
        load(sealed)


def test_a_file_is_hashed_once(sealed, monkeypatch, tmp_path):
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "cache"))
    load(sealed)
    monkeypatch.setattr(
        "glassformer.data.shards.sha256_file", lambda path: pytest.fail(f"hashed {path} again")
    )
    data = load(sealed)
    assert data.train.shards is not None and len(data.train) == data.train.shards.counts["documents"]


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"format": "other"}'])
def test_an_index_that_is_none_is_told(sealed, content):
    (sealed / "index.json").write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=r"index\.json"):
        Shards.read(sealed)


def test_shards_are_refused_where_they_are_of_no_use(sealed, tmp_path):
    data = DataConfig(files=FilesConfig(train_file=str(sealed)))
    from glassformer.tasks import TASKS

    with pytest.raises(UsageError, match="classify needs texts with labels"):
        load_shards(TASKS["classify"].form, data, Findings())
    with pytest.raises(UsageError, match="limit counts examples"):
        load_shards(Form("lm"), replace(data, limit=3), Findings())
    none = encode([tmp_path / "in"], tmp_path / "none", replace(ENCODING, valid_fraction=0.0))
    with pytest.raises(DataError, match="nothing to validate on"):
        load(none.path)


def test_ids_in_several_arrays_are_read_as_one():
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 60_000, n).astype(np.uint16) for n in (5, 1, 300, 2)]
    ids, whole = ShardedIds(arrays), np.concatenate(arrays)
    assert len(ids) == len(whole) and ids.dtype == whole.dtype
    for shape in ((0,), (1,), (50,), (4, 9)):
        places = rng.integers(0, len(whole), shape)
        assert np.array_equal(ids[places], whole[places])
    assert np.array_equal(ids[3:308:7], whole[3:308:7]) and np.array_equal(ids[:], whole)


def test_errors_come_back_from_a_process_with_their_hint():
    import pickle

    error = pickle.loads(pickle.dumps(DataError("a", "b")))
    assert isinstance(error, GlassformerError) and (error.message, error.hint) == ("a", "b")
