"""A signal that stops a run says in each stage what is saved and how to resume, and exits with 128 and its number."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.small_runs import FLAGS, SMALL, write_table

import glassformer
from glassformer.cli.main import main
from glassformer.errors import Interrupted
from glassformer.runs.folder import RunFolder
from glassformer.training import finalize, trainer

if sys.platform == "win32":
    pytest.skip("POSIX signals", allow_module_level=True)

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
STAGES = {
    "preparing": (trainer, "prepare", "before the first step; nothing is saved in", False),
    "beginning": (trainer, "describe_environment", "before the first step; nothing is saved in", False),
    "scoring": (finalize, "evaluate_run", "while scoring the trained model, which is saved in", True),
    "writing the report": (finalize, "write_report", "while writing the report; model and scores are saved in", True),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing stopped; its table is in the same folder."""
    folder = tmp_path_factory.mktemp("whole")
    arguments = new_run(folder, folder / "run")
    assert main(arguments) == 0
    return folder / "run"


@pytest.fixture(autouse=True)
def hangup_stops() -> Iterator[None]:
    """Where nohup started the tests, a hangup is ignored, by their children too."""
    inherited = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, inherited)


def new_run(folder: Path, out: Path) -> list[str]:
    table = folder / "table.csv" if (folder / "table.csv").exists() else write_table(folder)
    steps = ["--steps", "6", "--save-every", "2"]
    return ["train", "classify", "--train-file", str(table), *FLAGS, *steps, "--out", str(out)]


def train(whole: Path, out: Path, on_step: Callable[[Any], None]) -> None:
    """Train as `whole` was, from Python."""
    settings = SMALL | {"steps": 6, "save_every": 2, "train_file": whole.parent / "table.csv"}
    glassformer.train("classify", out=out, on_step=on_step, **settings)


def send_before(number: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, with the signal sent to this process first."""

    def stopped(*args: Any, **options: Any) -> Any:
        os.kill(os.getpid(), number)
        return function(*args, **options)

    return stopped


@pytest.mark.parametrize(
    ("stage", "number"), [*zip(STAGES, (signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGHUP), strict=True)]
)
def test_each_stage_says_what_is_saved(
    whole: Path,
    tmp_path: Path,
    stage: str,
    number: signal.Signals,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    module, name, words, begun = STAGES[stage]
    before, out = [signal.getsignal(n) for n in SIGNALS], tmp_path / "a run"
    with monkeypatch.context() as patch:
        patch.setattr(module, name, send_before(number, getattr(module, name)))
        assert main(new_run(whole.parent, out)) == 128 + number
    error = capsys.readouterr().err
    assert f"stopped by {number.name} {words} {out}" in error
    assert [signal.getsignal(n) for n in SIGNALS] == before
    if begun:
        hint = next(line for line in error.splitlines() if line.startswith("hint: "))
        again = shlex.split(hint.partition(": ")[2].partition(": ")[2])[1:]
        assert again == ["train", "--resume", str(out)]
    else:
        assert "give the same command again" in error and not out.exists()
        again = new_run(whole.parent, out)
    assert main(again) == 0
    for file in ("model/model.safetensors", "predictions.jsonl", "evaluation.json"):
        assert (out / file).read_bytes() == (whole / file).read_bytes(), file


@pytest.mark.parametrize(("number", "step"), [(signal.SIGHUP, 1), (signal.SIGTERM, 3), (signal.SIGINT, 6)])
def test_while_training_the_step_is_saved(whole: Path, tmp_path: Path, number: signal.Signals, step: int) -> None:
    """Also in the last step, after which the run would have been finished."""

    def send(report: Any) -> None:
        if report.step == step:
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), signal.SIGTERM)  # launchers repeat themselves

    with pytest.raises(Interrupted) as caught:
        train(whole, tmp_path / "run", send)
    assert caught.value.exit_code == 128 + number
    assert f"stopped by {number.name}" in caught.value.message and str(tmp_path / "run") in caught.value.message
    assert not RunFolder(tmp_path / "run").trained
    assert "--resume" in caught.value.hint
    glassformer.resume(tmp_path / "run")
    for file in ("model/model.safetensors", "predictions.jsonl"):
        assert (tmp_path / "run" / file).read_bytes() == (whole / file).read_bytes(), file


def test_a_second_interrupt_does_not_wait_for_the_step(whole: Path, tmp_path: Path) -> None:
    def send(report: Any) -> None:
        if report.step == 3:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted, match="up to its last checkpoint") as caught:
        train(whole, tmp_path / "run", send)
    assert caught.value.exit_code == 130
    assert [p.name for p in (tmp_path / "run" / "checkpoints").glob("step-*")] == ["step-00000002"]


def test_hangups_stay_ignored(whole: Path, tmp_path: Path) -> None:
    """As `nohup` has them."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        train(whole, tmp_path / "run", lambda report: os.kill(os.getpid(), signal.SIGHUP))
    finally:
        signal.signal(signal.SIGHUP, before)
    assert RunFolder(tmp_path / "run").finished


def test_between_seeds_and_in_their_ensemble(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, name = tmp_path / "my seeds", "_evaluate_ensemble"
    arguments = [*new_run(whole.parent, out), "--seeds", "2"]
    with monkeypatch.context() as patch:
        patch.setattr(trainer, name, send_before(signal.SIGTERM, getattr(trainer, name)))
        assert main(arguments) == 143
    assert f"resume with: glassformer train --resume '{out}'" in capsys.readouterr().err
    assert main(["train", "--resume", str(out)]) == 0
    assert (out / "report.json").is_file()
