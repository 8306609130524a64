"""Standard streams that are closed, full or without a reader, and lines that arrive one after another."""

import errno
import io
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest
from tests.helpers.for_each import for_each
from tests.helpers.small_runs import FLAGS, command, write_table

from glassformer.cli.main import main
from glassformer.errors import DataError
from glassformer.text.long_text import ArrivingLines, chunks_of
from glassformer.utils import console


def broken(number: int) -> io.StringIO:
    """A stream that cannot be written."""
    stream = io.StringIO()
    stream.write = Mock(side_effect=OSError(number, os.strerror(number)))
    return stream


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


STREAMS: dict[str, Callable[[], object]] = {
    "none": lambda: None,
    "closed": closed,
    "full": lambda: broken(errno.ENOSPC),
    "no reader": lambda: broken(errno.EPIPE),
    "bad descriptor": lambda: broken(errno.EBADF),
    "terminal gone": lambda: broken(errno.EIO),
}


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("arguments", [["recipes"], ["recipes", "imdb"], ["--help"], ["recipes", "--json"]], ids=str)
def test_results_that_cannot_be_written(name, arguments, monkeypatch):
    monkeypatch.setattr(sys, "stdout", STREAMS[name]())
    code = main(arguments)
    assert code == (0 if name in ("none", "closed", "no reader", "bad descriptor") else code)
    assert code in (0, 1, 6) and (name != "full" or code == 6)


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("which", ["stdout", "stderr"])
def test_an_error_keeps_its_code_without_streams(name, which, monkeypatch):
    monkeypatch.setattr(sys, which, STREAMS[name]())
    assert main(["recipes", "none", "--json"]) == 2


def test_an_argument_that_is_not_utf8_is_refused(cli):
    for arguments in (["data", "check", "classify", "--train-file", "b\udce4.csv"], ["predict", "r", "M\udce4rz"]):
        cli(*arguments).refused("is not UTF-8")


@pytest.mark.parametrize("closing", [">&-", "2>&-", ">&- 2>&- <&-", "| head -c 1 >/dev/null"])
def test_the_command_with_closed_descriptors(closing):
    command = f"{sys.executable} -m glassformer recipes {closing}"
    result = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert result.returncode == 0 and "Traceback" not in result.stderr and "bug" not in result.stderr


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_line_is_given_as_it_arrives(end):
    read, write = os.pipe()
    with os.fdopen(read, "rb") as stream:
        chunks = ArrivingLines(stream).chunks(256)
        for line in ("one", "", "two\u2028parts", "x" * 5000):
            os.write(write, line.encode() + end)
            assert next(chunks) == [line]
        os.write(write, b"a\nb\nc\nlast")
        assert next(chunks) == ["a", "b", "c"]
        os.close(write)
        assert list(chunks) == [["last"]]


@for_each("size", [1, 3, 256])
def test_lines_before_a_bad_byte_are_given(size):
    chunks = ArrivingLines(io.BytesIO(b"\xef\xbb\xbfone\ntwo\nthree\n\xff\nfive\n")).chunks(size)
    seen: list[str] = []
    with pytest.raises(DataError, match="stdin:4: expected UTF-8, found byte 0xff"):
        for chunk in chunks:
            seen += chunk
    assert seen == ["one", "two", "three"]


def test_chunks_are_bounded_and_whole():
    lines = [f"line {i}" for i in range(1000)]
    data = "\n".join(lines).encode()
    chunks = list(ArrivingLines(io.BytesIO(data)).chunks(7))
    assert max(map(len, chunks)) <= 7 and [line for chunk in chunks for line in chunk] == lines
    assert list(ArrivingLines(None).chunks(7)) == [] and list(chunks_of(iter("abc"), 2)) == [["a", "b"], ["c"]]


def test_log_messages_of_several_threads_leave_the_logger_as_it_was():
    logger = logging.getLogger("glassformer")
    before = (list(logger.handlers), logger.level, logger.propagate)

    def log() -> None:
        for _ in range(100):
            with console.log_to_stderr():
                pass

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(log) for _ in range(4)]:
            done.result()
    assert (list(logger.handlers), logger.level, logger.propagate) == before


def lose_streams() -> None:
    """Put a pipe without a reader in the place of stdout and stderr."""
    reading, writing = os.pipe()
    os.close(reading)
    for number in (1, 2):
        os.dup2(writing, number)
    os.close(writing)


def test_a_training_without_readers_is_finished(tmp_path):
    files = ["--train-file", str(write_table(tmp_path)), "--out", str(tmp_path / "run")]
    arguments = ["train", "classify", *FLAGS, "--steps", "12", *files]
    code, _ = command(tmp_path / "output.txt", *arguments, before=lose_streams).wait(120)
    finished = (tmp_path / "run" / "report.md").is_file()
    assert finished and code == 0, f"training stopped with {code}"
    assert len((tmp_path / "run" / "metrics.jsonl").read_text("utf-8").splitlines()) == 12


SCRIPT = """
import multiprocessing, sys, torch, glassformer
torch.set_num_threads(2)
run = glassformer.load(sys.argv[1])
texts = [f"a good film, number {i}" for i in range(64)]
before = run.predict(texts)
def child(queue):
    queue.put([answer["label"] for answer in run.predict(texts)])
context = multiprocessing.get_context("fork")
queue = context.Queue()
process = context.Process(target=child, args=(queue,))
process.start()
assert queue.get(timeout=100) == [answer["label"] for answer in before]
process.join()
print("answered")
"""


def test_a_forked_child_predicts(runs):
    environment = {name: value for name, value in os.environ.items() if name != "TOKENIZERS_PARALLELISM"}
    environment |= {"OMP_NUM_THREADS": "2"}
    command = [sys.executable, "-c", SCRIPT, str(runs.classify)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert "answered" in done.stdout and "fork" not in done.stderr, done.stderr
