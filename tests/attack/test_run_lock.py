"""Two trainings never share a run folder, whatever holds it, and nothing that a dead one leaves is in the way."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.small_runs import FLAGS, SMALL, Killed, command, write_table

import glassformer
from glassformer.cli.main import main
from glassformer.errors import UsageError
from glassformer.runs.folder import LOCK, RunFolder, lock_folder

posix = pytest.mark.skipif(sys.platform == "win32", reason="forks and signals are POSIX's")


def assert_free(folder: Path) -> None:
    with lock_folder(folder):
        pass


def test_a_locked_folder_is_refused_by_name_its_copy_is_not_and_it_is_free_afterwards(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "run"
    with lock_folder(folder):
        RunFolder(folder).check_new()
        with pytest.raises(UsageError, match="another process is training into") as caught, lock_folder(folder):
            pass
        assert str(folder) in caught.value.message
        shutil.copytree(folder, tmp_path / "copy")
        assert_free(tmp_path / "copy")
        (folder / "kept.txt").touch()
    assert [path.name for path in folder.iterdir()] == ["kept.txt"]
    assert_free(folder)


def test_a_start_that_fails_leaves_neither_lock_nor_folders(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), lock_folder(tmp_path / "a" / "b"):
        raise ZeroDivisionError
    assert not any(tmp_path.iterdir())


def test_a_file_that_a_dead_process_left_locks_nothing(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_bytes(b"123 host")
    RunFolder(tmp_path).check_new()
    assert_free(tmp_path)
    assert not (tmp_path / LOCK).exists()


@posix
@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_only_a_regular_file_is_locked(tmp_path: Path, kind: str) -> None:
    folder, victim = tmp_path / "run", tmp_path / "victim"
    folder.mkdir()
    victim.write_text("precious")
    make: dict[str, Any] = {"link": lambda p: p.symlink_to(victim), "fifo": os.mkfifo, "folder": Path.mkdir}
    make[kind](folder / LOCK)
    with pytest.raises(glassformer.errors.GlassformerError, match="run"), lock_folder(folder):
        pass
    assert victim.read_text() == "precious" and os.path.lexists(folder / LOCK)


@pytest.mark.skipif(sys.platform == "win32", reason="flock is POSIX's")
def test_a_file_system_without_locks_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with lock_folder(tmp_path / "run"):
        pass
    assert "without locks" in capsys.readouterr().err


@posix
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_the_lock_ends_with_its_process_and_not_with_a_child_that_it_forked(tmp_path: Path) -> None:
    """The parent locks, forks a child that outlives it, and is killed."""
    folder, (alive, writing) = tmp_path / "run", os.pipe()
    parent = os.fork()
    if not parent:
        with lock_folder(folder):
            if not os.fork():
                os.write(writing, str(os.getpid()).encode())
                time.sleep(60)
                os._exit(0)
            time.sleep(60)
    child = int(os.read(alive, 20))
    try:
        with pytest.raises(UsageError), lock_folder(folder):
            pass
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        os.kill(child, 0)  # it lives
        assert (folder / LOCK).exists()
        assert_free(folder)
    finally:
        os.kill(child, signal.SIGKILL)


@posix
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_that_ends_takes_no_lock_away(tmp_path: Path) -> None:
    with lock_folder(tmp_path):
        if not (child := os.fork()):
            os._exit(0)
        os.waitpid(child, 0)
        with pytest.raises(UsageError), lock_folder(tmp_path):
            pass


# Commands


def test_every_start_and_resume_takes_the_lock(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, out = write_table(tmp_path), tmp_path / "run"
    new = ["train", "classify", "--train-file", str(table), *FLAGS, "--steps", "2", "--out"]

    def refused(*arguments: str) -> None:
        capsys.readouterr()
        assert main([*arguments]) == 2
        error = capsys.readouterr().err
        assert "another process is training into" in error and str(tmp_path) in error

    with lock_folder(out):
        refused(*new, str(out))
        refused(*new, str(out), "--seeds", "2")
        refused(*new, str(out), "--auto-resume")
        assert main([*new, str(out), "--dry-run"]) == 0
    assert not out.exists()
    assert main([*new, str(out)]) == 0
    assert not (out / LOCK).exists()
    with lock_folder(out):
        refused("train", "--resume", str(out))
        refused(*new, str(out), "--auto-resume")
        for reading in (
            ["predict", str(out), "good"],
            ["doctor", str(out)],
            ["evaluate", str(out), "--split", "valid"],
        ):
            assert main(reading) == 0, reading
    assert main(["train", "--resume", str(out)]) == 0


def test_several_seeds_lock_their_folder_and_each_run_and_one_killed_before_its_first_step_is_begun_again(
    tmp_path: Path,
) -> None:
    table, out, seen = write_table(tmp_path), tmp_path / "seeds", list[str]()

    def look(_: Any) -> None:
        for folder in (out, *out.glob("seed-*")):
            try:
                assert_free(folder)
            except UsageError:
                seen.append(folder.name)
        if (out / "seed-2").exists():
            raise Killed

    with pytest.raises(Killed):
        glassformer.train("classify", train_file=table, out=out, seeds=2, on_step=look, **SMALL | {"steps": 1})
    assert seen == ["seeds", "seed-1", "seeds", "seed-2"] or sorted(set(seen)) == ["seed-1", "seed-2", "seeds"]
    assert not list(out.rglob(LOCK))
    shutil.rmtree(out / "seed-2" / "checkpoints", ignore_errors=True)
    for name in ("config.toml", "metrics.jsonl"):
        (out / "seed-2" / name).unlink(missing_ok=True)
    (out / "seed-2" / LOCK).touch()
    with lock_folder(out), pytest.raises(UsageError, match="another process"):
        glassformer.resume(out)
    glassformer.resume(out)
    assert RunFolder(out / "seed-2").finished


@posix
def test_of_two_starts_at_once_one_trains(tmp_path: Path) -> None:
    """One is whole, the other is refused and changes nothing."""
    table = write_table(tmp_path)
    new = ("train", "classify", "--train-file", str(table), *FLAGS, "--steps", "6", "--out", str(tmp_path / "run"))
    both = [command(tmp_path / f"{seed}.txt", *new, "--seed", str(seed)) for seed in (1, 2)]
    ended = dict(zip((1, 2), (process.wait(120) for process in both), strict=True))
    codes = sorted(code for code, _ in ended.values())
    assert codes == [0, 2], ended
    lost = next(output for code, output in ended.values() if code == 2)
    assert str(tmp_path / "run") in lost and "this is a bug" not in lost
    won = next(seed for seed, (code, _) in ended.items() if code == 0)
    assert f"seed = {won}" in (tmp_path / "run" / "config.toml").read_text("utf-8")
    log = (tmp_path / "run" / "metrics.jsonl").read_text("utf-8").splitlines()
    assert len(log) == 6
    code, output = command(tmp_path / "resumed.txt", "train", "--resume", str(tmp_path / "run")).wait(120)
    assert code == 0, output
