"""Real processes of one run: what they are given, how they stop, die and are resumed, in any number.

And what may befall one of them: a full disk, no answer, a port that is taken.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.api.test_end_to_end import write_reviews
from tests.distributed.together import environment_of, free_port
from tests.helpers.crashing import FullDisk
from tests.helpers.forking import Command, until

from glassformer import distributed
from glassformer.runs.folder import PAUSE, Control, ControlFile, RunFolder
from glassformer.training import loop

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="torchrun, gloo and POSIX signals")
FLAGS = (
    "--max-tokens 200 --device cpu --precision fp32 --text.max-len 40 "
    "--text.vocab-size 300 --model.n-layers 1 --model.d-model 32 --model.n-heads 2 --model.d-ff 64 "
    "--model.dropout 0 --model.embedding-dropout 0 --word-mask-prob 0 --word-unknown-prob 0 --model.activation gelu"
).split()
"""Settings under which the number of processes changes no more than rounding.

A ReLU would: a hidden unit whose input is zero up to rounding has a gradient or has none. Moving the initial weights by
one unit in the last place changed the third norm of gradients by 6e-5 with it, and by nothing with GELU.
"""


def new_run(tmp_path: Path, name: str, *more: str) -> tuple[str, ...]:
    file = tmp_path / "r.csv"
    if not file.exists():
        write_reviews(file)
    usual = {"--epochs": "6", "--save-every": "7"}
    more += tuple(word for name, value in usual.items() if name not in more for word in (name, value))
    return ("train", "classify", "--train-file", str(file), "--out", str(tmp_path / name), *FLAGS, *more)


def start(tmp_path: Path, size: int, *words: str, others: tuple[str, ...] = (), before: Any = None) -> list[Command]:
    """`size` processes of one command; all but the first of another one where that is given.

    `before` may break them.
    """
    port, n = free_port(), len(list(tmp_path.glob("run-*")))
    given = [others if rank and others else words for rank in range(size)]
    places = [(tmp_path / f"run-{n}-{rank}", environment_of(rank, size, port)) for rank in range(size)]
    return [Command(file, each, place, before) for each, (file, place) in zip(given, places, strict=True)]


def ended(processes: list[Command], seconds: float = 120) -> tuple[list[int], list[str]]:
    """The exit code of each, and what each said."""
    outcomes = [process.wait(seconds) for process in processes]
    return [code for code, _ in outcomes], [output for _, output in outcomes]


def saved(tmp_path: Path, name: str) -> list[str]:
    return sorted(path.name for path in (tmp_path / name / "checkpoints").glob("step-*"))


def curve(tmp_path: Path, name: str) -> dict[str, list]:
    """Losses, norms and validations by update."""
    lines = (tmp_path / name / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    logged = [json.loads(line) for line in lines]
    assert [row["step"] for row in logged] == list(range(1, len(logged) + 1))
    numbers = {key: [row[key] for row in logged] for key in ("loss", "grad_norm", "lr")}
    scores = [value for row in logged for value in (row.get("valid") or {}).values()]
    return numbers | {"valid": scores}


def assert_same_curve(tmp_path: Path, *names: str) -> None:
    """All but rounding is equal in the logs of runs."""
    first, *others = (curve(tmp_path, name) for name in names)
    assert all(other[key] == pytest.approx(values, rel=1e-5) for other in others for key, values in first.items())


@pytest.mark.slow
def test_only_the_first_process_writes_and_talks(tmp_path: Path) -> None:
    codes, output = ended(start(tmp_path, 2, *new_run(tmp_path, "two", "--steps", "3")))
    assert codes == [0, 0] and "report:" in output[0] and output[1] == "", output
    codes, output = ended(start(tmp_path, 1, *new_run(tmp_path, "one", "--steps", "3")))
    files = [{p.relative_to(tmp_path / name) for p in (tmp_path / name).rglob("*")} for name in ("one", "two")]
    assert codes == [0] and files[0] == files[1]
    assert_same_curve(tmp_path, "one", "two")


@pytest.mark.slow
def test_what_several_processes_cannot_do_is_a_sentence_of_the_first(tmp_path: Path) -> None:
    """And an exit code of all, so that none waits for another."""
    ours, other = new_run(tmp_path, "x"), tmp_path / "other.csv"
    write_reviews(other, 90)
    theirs = tuple(str(other) if word.endswith("r.csv") else word for word in ours)
    missing = tuple(word.replace("r.csv", "none.csv") for word in ours)
    elsewhere = f"process 1: {tmp_path / 'elsewhere'} is not visible to every process"
    cases = [
        (ours, theirs, 2, "differ in:"),
        (ours, (*ours, "--lr", "0.5"), 2, "differ in: configuration"),
        (ours, missing, 3, "process 1: "),
        (ours, new_run(tmp_path, "elsewhere"), 2, elsewhere),
        ((*ours, "--overfit-batch"), (), 2, "the work of one process, and 2 were started"),
        ((*ours, "--dry-run"), (), 2, "the work of one process, and 2 were started"),
        (("predict", "x", "text"), (), 2, "predict is the work of one process, and 2 were started"),
        (("explain", "x"), (), 2, "explain is the work of one process, and 2 were started"),
    ]
    for arguments, others, code, message in cases:
        codes, output = ended(start(tmp_path, 2, *arguments, others=others))
        assert codes == [code, code], (message, output)
        assert message in output[0] and output[0].count("error:") == 1 and output[1] == "", (message, output)


@pytest.mark.slow
def test_stopped_by_two_and_gone_on_with_by_one_and_by_three(tmp_path: Path) -> None:
    assert ended(start(tmp_path, 1, *new_run(tmp_path, "whole")))[0] == [0]
    resume = ("train", "--resume", str(tmp_path / "parts"))
    for size, arguments, struck in ((2, new_run(tmp_path, "parts"), 1), (1, resume, 0)):
        before = saved(tmp_path, "parts")
        processes = start(tmp_path, size, *arguments)
        processes[0].until(lambda before=before: saved(tmp_path, "parts")[-1:] > before[-1:])
        processes[struck].send(signal.SIGTERM)  # one alone gets it, and all stop after the same update
        codes, output = ended(processes)
        assert codes == [143] * size, output
        assert output[0].count("everything is saved") == 1 and not any(output[1:])
    codes, output = ended(start(tmp_path, 3, *resume))
    assert codes == [0, 0, 0], output
    assert_same_curve(tmp_path, "whole", "parts")


@pytest.mark.slow
def test_all_processes_pause_step_and_stop_as_the_file_asks(tmp_path: Path) -> None:
    processes = start(tmp_path, 2, *new_run(tmp_path, "run", "--steps", "100000"))
    folder, seen = RunFolder(tmp_path / "run"), list[int]()
    control = ControlFile(folder.control)

    def paused() -> bool:
        lines = folder.metrics.read_bytes().splitlines()
        last = json.loads(lines[-1])
        if last.get("paused") and last["step"] not in seen:
            seen.append(last["step"])
            return True
        return False

    processes[0].until(lambda: folder.metrics.is_file() and folder.metrics.stat().st_size > 0)
    control.write(PAUSE)
    processes[0].until(paused)
    control.write(Control(until=seen[0] + 3))
    processes[0].until(lambda: paused() and seen[-1] == seen[0] + 3)
    control.write(Control(stop=True))
    codes, output = ended(processes)
    assert codes == [0, 0], output
    report = folder.report.read_text("utf-8")
    assert f"stopped at step {seen[-1]}, before its budget was used" in report and not folder.control.exists()


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_lost_process_ends_the_others_with_a_sentence(lost: int, tmp_path: Path) -> None:
    processes = start(tmp_path, 3, *new_run(tmp_path, "cut", "--epochs", "60"))
    processes[0].until(lambda: bool(saved(tmp_path, "cut")))
    began = time.monotonic()
    processes[lost].send(signal.SIGKILL)
    codes, output = ended(processes, 60)
    assert time.monotonic() - began < 30
    assert [code for rank, code in enumerate(codes) if rank != lost] == [6, 6], output
    for rank in {0, 1, 2} - {lost}:
        assert output[rank].count("error: another process of this run was lost") == 1, output
        assert f"glassformer train --resume {tmp_path / 'cut'}" in output[rank]


@contextmanager
def torchrun(tmp_path: Path, size: int, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The command under torch's own launcher, within the block."""
    launcher = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={size}"]
    own = os.environ | {"OMP_NUM_THREADS": "1"}
    with open(tmp_path / "torchrun.txt", "w", encoding="utf-8") as output:
        process = subprocess.Popen([*launcher, *arguments], env=own, text=True, stdout=output, stderr=output)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()


def workers(tmp_path: Path, launcher: subprocess.Popen[str]) -> list[int]:
    """The processes it started, by rank."""
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text(encoding="utf-8").split()
    ranks = {}
    for child in children:
        values = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        ranks |= {int(v[5:]): int(child) for v in values if v.startswith(b"RANK=")}
    return [pid for _, pid in sorted(ranks.items())]


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("meeting", ["--standalone", "--master-port"])
def test_torchrun_restarts_a_run_that_lost_a_process(lost: int, meeting: str, tmp_path: Path) -> None:
    codes, output = ended(start(tmp_path, 2, *new_run(tmp_path, "whole")))
    assert codes == [0, 0], output
    where = [meeting] if meeting == "--standalone" else [meeting, str(free_port())]
    arguments = ("--max-restarts=1", *where, "-m", "glassformer", *new_run(tmp_path, "cut"))
    with torchrun(tmp_path, 2, *arguments) as launcher:
        until(lambda: saved(tmp_path, "cut"), lambda: launcher.poll() is not None)
        os.kill(workers(tmp_path, launcher)[lost], signal.SIGKILL)
        assert launcher.wait(180) == 0, (tmp_path / "torchrun.txt").read_text(encoding="utf-8")
    for file in ("model/model.safetensors", "config.toml"):
        assert (tmp_path / "cut" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes(), file


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=str)
def test_a_signal_to_torchrun_saves_once_and_stops_all(number: signal.Signals, tmp_path: Path) -> None:
    arguments = ("--master-port", str(free_port()), "-m", "glassformer", *new_run(tmp_path, "cut", "--epochs", "90"))
    with torchrun(tmp_path, 2, *arguments) as launcher:
        until(lambda: saved(tmp_path, "cut"), lambda: launcher.poll() is not None)
        launcher.send_signal(number)
        assert launcher.wait(60) != 0
    output = (tmp_path / "torchrun.txt").read_text(encoding="utf-8")
    assert output.count("everything is saved") == 1, output
    steps = len((tmp_path / "cut" / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    assert saved(tmp_path, "cut")[-1] == f"step-{steps:08d}"


def test_auto_resume_starts_resumes_and_leaves_a_finished_run(tmp_path: Path) -> None:
    arguments = new_run(tmp_path, "run", "--auto-resume", "--steps", "3")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "env.json").write_text("{}", encoding="utf-8")  # died before its first update
    [first] = start(tmp_path, 1, *arguments)
    assert first.wait(120)[0] == 0, first.text()
    before = (tmp_path / "run" / "model" / "model.safetensors").stat().st_mtime_ns
    names = (".tmp-report.md-7-1", "plots/.tmp-loss.png-7-2", "model/.tmp-README.md-7-3", "checkpoints/.tmp-step-7-4")
    leftovers = [tmp_path / "run" / name for name in names]
    for leftover in leftovers:
        leftover.write_text("killed while writing", encoding="utf-8")
    [again] = start(tmp_path, 1, *arguments)
    code, output = again.wait(120)
    assert not any(leftover.exists() for leftover in leftovers)
    assert code == 0 and "resuming it" in output, output
    assert (tmp_path / "run" / "model" / "model.safetensors").stat().st_mtime_ns == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "data.json").write_text("precious", encoding="utf-8")
    [refused] = start(tmp_path, 1, *new_run(tmp_path, "mine", "--auto-resume"))
    code, output = refused.wait(120)
    assert code == 2 and "is not empty" in output
    assert (tmp_path / "mine" / "data.json").read_text(encoding="utf-8") == "precious"


def fill_disk() -> None:
    """The second checkpoint finds the disk full, in the middle of its tensors; before and after there is room."""
    disk = FullDisk(lambda path: path.name == "state.safetensors" and "step-00000014" in str(path))
    disk.install(pytest.MonkeyPatch())


def fall_silent() -> None:
    """The last process stops responding from the ninth step on, and nobody waits long."""
    distributed.TIMEOUT = timedelta(seconds=6)
    step = loop.optimizer_step

    def silent(state: Any, run: Any, *args: Any) -> Any:
        if state.progress.step >= 8 and run.group.rank == run.group.world_size - 1:
            time.sleep(600)
        return step(state, run, *args)

    loop.optimizer_step = silent


@pytest.mark.slow
def test_a_full_disk_of_the_first_is_named_and_all_train(tmp_path: Path) -> None:
    short = ("--epochs", "2")
    codes, output = ended(start(tmp_path, 2, *new_run(tmp_path, "whole", *short)))
    assert codes == [0, 0], output
    codes, output = ended(start(tmp_path, 2, *new_run(tmp_path, "cut", *short), before=fill_disk))
    assert codes == [0, 0], output
    assert output[0].count("this checkpoint is not saved, the previous one stays") == 1 and output[1] == "", output
    assert "step-00000014" not in saved(tmp_path, "cut") and "step-00000028" in saved(tmp_path, "cut")
    assert curve(tmp_path, "cut") == curve(tmp_path, "whole")


@pytest.mark.slow
def test_one_that_does_not_answer_ends_the_others_with_a_sentence(tmp_path: Path) -> None:
    processes = start(tmp_path, 3, *new_run(tmp_path, "run"), before=fall_silent)
    began = time.monotonic()
    codes, output = ended(processes[:2], 90)
    assert time.monotonic() - began < 90 and processes[2].returncode is None
    processes[2].send(signal.SIGKILL)
    assert codes == [6, 6], output
    for message in output:
        assert message.count("or kept the others waiting for 0.1 minutes, at step 9") == 1, output
        assert f"--resume {tmp_path / 'run'}" in message
    assert saved(tmp_path, "run")[-1] == "step-00000007"


@pytest.mark.slow
def test_a_port_that_is_taken_is_said_and_not_waited_for(tmp_path: Path) -> None:
    """By the first process; under torchrun by torchrun, which then starts none."""
    arguments = new_run(tmp_path, "run")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        code, output = Command(tmp_path / "said", arguments, environment_of(0, 2, port)).wait(60)
        assert code == 2 and "the 2 processes of this run cannot meet" in output and "EADDRINUSE" in output, output
        assert "--master-port that is free" in output
        with torchrun(tmp_path, 2, "--master-port", str(port), "-m", "glassformer", *arguments) as launcher:
            assert launcher.wait(60) == 1
    assert not os.path.exists(tmp_path / "run")
