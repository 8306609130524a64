"""Shards: nothing lost, nothing doubled, the same bytes for any number of processes and after any kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.crashing import FullDisk, every_crash

from glassformer.config import TextConfig
from glassformer.data import shard_documents, shard_writer
from glassformer.data.shard_writer import PretokenizedWriter
from glassformer.data.shards import INDEX, TOKENIZER, PretokenizeConfig, ShardIndex, is_pretokenized
from glassformer.errors import DataError, ResourceError, UsageError
from glassformer.text.tokenizer import Tokenizer

SPEECH = "To be, or not to be, that is the question:\nWhether 'tis nobler in the mind to suffer\n\n"
CONFIG = PretokenizeConfig(seed=3, valid_fraction=0.2, shard_mb=2, vocab_size=300)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments and batches of little text, so that a page of it is many."""
    monkeypatch.setattr(shard_documents, "SEGMENT_BYTES", 128)
    monkeypatch.setattr(shard_writer, "BATCH_CHARS", 256)


def corpus(folder: Path, n: int = 24) -> Path:
    """A folder of a plain file and of JSON Lines, one of whose texts is empty."""
    folder.mkdir(exist_ok=True)
    (folder / "plays.txt").write_text("".join(f"{i} {SPEECH}" for i in range(n)), encoding="utf-8")
    rows = [f"Text {i} is short." * (i % 4) for i in range(n)]
    lines = "".join(json.dumps({"text": text}) + "\n" for text in rows)
    (folder / "rows.jsonl").write_text(lines, encoding="utf-8")
    return folder


def pretokenize(
    source: Path, out: Path, config: PretokenizeConfig, tokenizer: Tokenizer | None = None, jobs: int = 1
) -> ShardIndex:
    for _ in PretokenizedWriter(out, [source], config, tokenizer).write(jobs):
        pass
    return ShardIndex.read(out)


def begin(source: Path, out: Path, n_shards: int) -> None:
    """Write some shards and stop."""
    shards = PretokenizedWriter(out, [source], CONFIG, None).write()
    assert len(list(islice(shards, n_shards))) == n_shards


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
    index = pretokenize(source, tmp_path / "out", CONFIG)
    texts, held_out = documents_of(index.ids()[:], tokenizer_of(index)), index.read_held_out()
    assert held_out and len(index.shards) > 3
    plays = (source / "plays.txt").read_text(encoding="utf-8")
    lines = (source / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    kept = [text for text in (json.loads(line)["text"] for line in lines) if text]
    assert sorted(t for t in [*texts, *held_out] if t in kept) == sorted(kept)
    whole = "".join(text for text in [*texts, *held_out] if text not in kept)
    assert sorted(whole) == sorted(plays) and all(text in plays for text in texts if text not in kept)
    assert index.counts["documents"] == len(texts) and index.counts["tokens"] == index.n_tokens + 1
    assert sum(shard.tokens for shard in index.shards) == index.counts["tokens"]


def test_without_anything_held_out_a_plain_file_has_the_ids_of_the_whole(tmp_path):
    plays = corpus(tmp_path / "in") / "plays.txt"
    index = pretokenize(plays, tmp_path / "out", replace(CONFIG, valid_fraction=0.0))
    ids = tokenizer_of(index).encode(plays.read_text(encoding="utf-8"))
    assert index.ids()[:].tolist() == ids and index.counts["documents"] == 1


def test_documents_are_joined_as_a_folder_of_them_is(tmp_path):
    (tmp_path / "in").mkdir()
    texts = [SPEECH * n for n in (1, 3, 9)]
    for i, text in enumerate(texts):
        (tmp_path / "in" / f"{i}.txt").write_text(text, encoding="utf-8")
    index = pretokenize(tmp_path / "in", tmp_path / "out", replace(CONFIG, valid_fraction=0.0))
    t = tokenizer_of(index)
    wanted = list(chain.from_iterable([t.eos_id, *t.encode(text)] for text in texts))[1:]
    assert index.ids()[:].tolist() == wanted


@pytest.mark.parametrize(("torn", "power_cut"), [(False, False), (True, False), (False, True)])
def test_killed_at_any_operation_it_continues_to_the_same_bytes(tmp_path, torn, power_cut):
    source = corpus(tmp_path / "in", 10)
    config = replace(CONFIG, shard_mb=2)
    pretokenize(source, tmp_path / "whole", config)
    wanted, n_unfinished = contents(tmp_path / "whole"), 0
    assert len(wanted) > 5
    for folder, completed in every_crash(
        tmp_path, lambda _: None, lambda folder: pretokenize(source, folder / "out", config), torn, power_cut
    ):
        out = folder / "out"
        if not completed and is_pretokenized(out):
            try:
                ShardIndex.read(out).verify()  # the index says that all of it is there
            except DataError as error:
                assert "not finished" in error.message
                n_unfinished += 1
        pretokenize(source, out, config)
        assert contents(out) == wanted
    assert n_unfinished > 5


def test_finished_shards_are_not_written_again(tmp_path):
    source, out = corpus(tmp_path / "in"), tmp_path / "out"
    begin(source, out, 3)
    with pytest.raises(DataError, match="not finished"):
        ShardIndex.read(out)
    before = {p.name: p.stat().st_mtime_ns for p in out.glob("*.bin")}
    assert len(before) == 3
    written = list(PretokenizedWriter(out, [source], CONFIG, None).write())
    assert written[0].name == "shard-00003.bin"
    assert {name: (out / name).stat().st_mtime_ns for name in before} == before
    assert ShardIndex.read(out).sha256 == pretokenize(source, tmp_path / "whole", CONFIG).sha256


@pytest.mark.slow
def test_two_processes_write_what_one_does(tmp_path):
    source = corpus(tmp_path / "in", 400)
    one = pretokenize(source, tmp_path / "one", CONFIG)
    two = tmp_path / "two"
    stopped = PretokenizedWriter(two, [source], CONFIG, None).write(2)
    assert len(list(islice(stopped, 5))) == 5
    stopped.close()  # type: ignore[attr-defined]
    assert one.sha256 == pretokenize(source, two, CONFIG, jobs=2).sha256
    assert contents(tmp_path / "one") == contents(two)
    (source / "bad.txt").write_bytes(b"caf\xe9 " * 3)
    with pytest.raises(DataError, match=r"bad\.txt:1: 0xE9 is not UTF-8"):
        pretokenize(source, tmp_path / "bad", CONFIG, tokenizer_of(one), jobs=2)


def running(pid: int) -> bool:
    """Whether a process lives and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are found in /proc")
def test_a_killed_command_leaves_no_process_and_continues(tmp_path):
    source, out = tmp_path / "a.txt", tmp_path / "out"
    lines = (f"{i} {i * 7919 % 9973} {SPEECH}" for i in range(60_000))
    source.write_text("".join(lines), encoding="utf-8")
    command = [sys.executable, "-m", "glassformer", "data", "encode", str(source), "--shard-mb", "1"]
    command += ["--vocab-size", "300", "--jobs", "2", "--out"]
    with subprocess.Popen([*command, str(out)], stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and not (out / "shard-00000.bin").exists():
            time.sleep(0.01)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="utf-8").split()
        process.send_signal(signal.SIGKILL)
    assert children
    for _ in range(500):
        if not any(running(int(pid)) for pid in children):
            break
        time.sleep(0.02)
    assert not any(running(int(pid)) for pid in children)
    with pytest.raises(DataError, match="not finished"):
        ShardIndex.read(out)
    for folder in (out, tmp_path / "whole"):
        subprocess.run([*command, str(folder)], check=True, capture_output=True)
    assert contents(out) == contents(tmp_path / "whole")


def test_a_dead_worker_is_an_error(tmp_path, monkeypatch):
    from concurrent.futures import Future
    from concurrent.futures.process import BrokenProcessPool

    def submit(self: object, *_: object) -> Future[bytes]:
        future: Future[bytes] = Future()
        future.set_exception(BrokenProcessPool())
        return future

    monkeypatch.setattr("concurrent.futures.ProcessPoolExecutor.submit", submit)
    with pytest.raises(ResourceError, match="a worker process died"):
        pretokenize(corpus(tmp_path / "in"), tmp_path / "out", CONFIG, jobs=2)


def test_what_has_changed_since_it_was_begun_is_refused(tmp_path):
    source, out = corpus(tmp_path / "in"), tmp_path / "out"
    begin(source, out, 2)
    for changed, message in (
        (replace(CONFIG, seed=4), "begun with seed 3, not 4"),
        (replace(CONFIG, column="body"), "begun with column text, not body"),
        (replace(CONFIG, vocab_size=301), "begun with vocab_size 300, not 301"),
    ):
        with pytest.raises(UsageError, match=message):
            pretokenize(source, out, changed)
    (source / "more.txt").write_text("x", encoding="utf-8")
    with pytest.raises(UsageError, match=r"begun with more\.txt of None bytes, not 1"):
        pretokenize(source, out, CONFIG)
    with open(source / "plays.txt", "a", encoding="utf-8") as file:
        file.write("more\n")
    (source / "more.txt").unlink()
    with pytest.raises(UsageError, match=r"begun with plays\.txt of \d+ bytes, not \d+"):
        pretokenize(source, out, CONFIG)


def test_what_changes_while_it_is_read_is_refused(tmp_path):
    source, out = corpus(tmp_path / "in"), tmp_path / "out"
    shards = PretokenizedWriter(out, [source], CONFIG, None).write()
    next(shards)
    facts = (source / "plays.txt").stat()
    os.utime(source / "plays.txt", ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))
    with pytest.raises(DataError, match=r"plays\.txt changed while it was encoded"):
        list(shards)
    with pytest.raises(DataError, match="not finished"):
        ShardIndex.read(out)


def test_a_finished_folder_is_left_as_it_is_and_another_one_is_refused(tmp_path):
    source, out = corpus(tmp_path / "in"), tmp_path / "out"
    pretokenize(source, out, CONFIG)
    before = {p: p.stat().st_mtime_ns for p in out.iterdir()}
    assert not list(PretokenizedWriter(out, [source], CONFIG, None).write())
    assert {p: p.stat().st_mtime_ns for p in out.iterdir()} == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.doc").write_text("x", encoding="utf-8")
    with pytest.raises(UsageError, match="exists and is not empty"):
        pretokenize(source, tmp_path / "other", CONFIG)


def test_a_full_disk_leaves_what_is_finished(tmp_path, monkeypatch):
    source, out = corpus(tmp_path / "in"), tmp_path / "out"
    with monkeypatch.context() as patch:
        FullDisk(lambda path: "shard-00002" in path.name).install(patch)
        with pytest.raises(ResourceError, match="No space left"):
            pretokenize(source, out, CONFIG)
    assert len(json.loads((out / INDEX).read_text(encoding="utf-8"))["shards"]) == 2
    assert not (out / "shard-00002.bin").exists()
    assert not [p for p in out.iterdir() if p.name.startswith(".tmp")]
    pretokenize(source, out, CONFIG)
    pretokenize(source, tmp_path / "whole", CONFIG)
    assert contents(out) == contents(tmp_path / "whole")


def test_no_text_is_an_error(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"")
    with pytest.raises(DataError, match="every file is empty"):
        pretokenize(tmp_path / "a.txt", tmp_path / "out", CONFIG)
    (tmp_path / "a.jsonl").write_text('{"text": ""}\n', encoding="utf-8")
    with pytest.raises(DataError, match="no text to train a tokenizer on"):
        pretokenize(tmp_path / "a.jsonl", tmp_path / "out", CONFIG)


def test_the_tokenizer_is_trained_on_some_of_the_training_text(tmp_path, monkeypatch):
    source, samples = corpus(tmp_path / "in", 200), list[list[str]]()
    train = Tokenizer.train

    def recorded(texts, config):
        samples.append(list(texts))
        return train(texts, config)

    monkeypatch.setattr(shard_writer, "SAMPLE_CHARS", 4000)
    monkeypatch.setattr(Tokenizer, "train", recorded)
    index = pretokenize(source, tmp_path / "out", CONFIG)
    pretokenize(source, tmp_path / "again", CONFIG)
    pretokenize(source, tmp_path / "other", replace(CONFIG, seed=4))
    assert samples[0] == samples[1] != samples[2]
    assert all(3000 < sum(map(len, texts)) <= 4000 for texts in samples)
    assert not set(samples[0]) & set(index.read_held_out())


def test_a_given_tokenizer_is_used_and_another_one_refused(tmp_path):
    source = corpus(tmp_path / "in")
    own = Tokenizer.train([SPEECH, "0123456789 Text is short."], TextConfig(tokenizer="char"))
    other = Tokenizer.train(["abc"], TextConfig(tokenizer="char"))
    index = pretokenize(source, tmp_path / "out", CONFIG, own)
    assert index.tokenizer == own.sha256 == tokenizer_of(index).sha256
    assert index.text == {"tokenizer": "char", "vocab_size": own.vocab_size, "lowercase": False}
    with pytest.raises(DataError, match="encoded with another tokenizer"):
        index.check_tokenizer(other)
    for tokenizer in (other, None):
        with pytest.raises(UsageError, match="begun with tokenizer"):
            pretokenize(source, tmp_path / "out", CONFIG, tokenizer)


def test_ids_take_four_bytes_where_two_are_too_few(tmp_path):
    words = "\n".join(f"w{i}" for i in range(70_000))
    (tmp_path / "a.txt").write_text(words, encoding="utf-8")
    tokenizer = Tokenizer.train([words], TextConfig(tokenizer="word", vocab_size=80_000))
    config = replace(CONFIG, valid_fraction=0.0, shard_mb=2000)
    index = pretokenize(tmp_path / "a.txt", tmp_path / "out", config, tokenizer)
    assert index.dtype == "<u4" and int(index.ids()[:].max()) > 1 << 16
    assert index.ids()[:].tolist() == tokenizer.encode(words)
