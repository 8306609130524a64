"""Run folders: two trainings never share one, signals stop them with what is saved, and changed ones are refused."""

import errno
import fcntl
import json
import os
import shlex
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.hostile import edit_json
from tests.helpers.small_runs import FLAGS, SMALL, Killed, command, kill_at, write_table
from torch import Tensor

import glassformer
from glassformer.cli.main import main
from glassformer.errors import CheckpointError, Interrupted, UsageError
from glassformer.runs.folder import LOCK, RunFolder, lock_folder
from glassformer.runs.model_folder import CHECKPOINT_KIND, STATE, TENSORS, load_checkpoint, tensor_chunks
from glassformer.runs.sealed_folder import write_sealed_folder
from glassformer.training import finalize, trainer
from glassformer.training.loop import RunContext
from glassformer.training.preparation import prepare
from glassformer.training.trainer import resumed_state


def assert_free(folder: Path) -> None:
    with lock_folder(folder):
        pass


def test_a_locked_folder_is_refused_by_name_its_copy_is_not_and_it_is_free_afterwards(tmp_path):
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


def test_a_start_that_fails_leaves_neither_lock_nor_folders(tmp_path):
    with pytest.raises(ZeroDivisionError), lock_folder(tmp_path / "a" / "b"):
        raise ZeroDivisionError
    assert not any(tmp_path.iterdir())


def test_a_file_that_a_dead_process_left_locks_nothing(tmp_path):
    (tmp_path / LOCK).write_bytes(b"123 host")
    RunFolder(tmp_path).check_new()
    assert_free(tmp_path)
    assert not (tmp_path / LOCK).exists()


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_only_a_regular_file_is_locked(tmp_path, kind):
    folder, victim = tmp_path / "run", tmp_path / "victim"
    folder.mkdir()
    victim.write_text("precious")
    make: dict[str, Any] = {"link": lambda p: p.symlink_to(victim), "fifo": os.mkfifo, "folder": Path.mkdir}
    make[kind](folder / LOCK)
    with pytest.raises(glassformer.errors.GlassformerError, match="run"), lock_folder(folder):
        pass
    assert victim.read_text() == "precious" and os.path.lexists(folder / LOCK)


def test_a_file_system_without_locks_is_warned_of(tmp_path, monkeypatch, capsys):
    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with lock_folder(tmp_path / "run"):
        pass
    assert "without locks" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_the_lock_ends_with_its_process_and_not_with_a_child_that_it_forked(tmp_path):
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


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_that_ends_takes_no_lock_away(tmp_path):
    with lock_folder(tmp_path):
        if not (child := os.fork()):
            os._exit(0)
        os.waitpid(child, 0)
        with pytest.raises(UsageError), lock_folder(tmp_path):
            pass


# Commands


def test_every_start_and_resume_takes_the_lock(tmp_path, cli):
    table, out = write_table(tmp_path), tmp_path / "run"
    new = ["train", "classify", "--train-file", table, *FLAGS, "--steps", "2", "--out", out]

    def refused(*arguments: object) -> None:
        cli(*arguments).refused("another process is training into", str(tmp_path))

    with lock_folder(out):
        for more in ((), ("--seeds", "2"), ("--auto-resume",)):
            refused(*new, *more)
        assert cli(*new, "--dry-run").ok
    assert not out.exists()
    assert cli(*new).ok
    assert not (out / LOCK).exists()
    with lock_folder(out):
        refused("train", "--resume", out)
        refused(*new, "--auto-resume")
        for reading in (["predict", out, "good"], ["doctor", out], ["evaluate", out, "--split", "valid"]):
            assert cli(*reading).ok
    assert cli("train", "--resume", out).ok


def test_several_seeds_lock_their_folder_and_each_run_and_one_killed_before_its_first_step_is_begun_again(tmp_path):
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


def test_of_two_starts_at_once_one_trains(tmp_path):
    """One is whole, the other is refused and changes nothing."""
    table = write_table(tmp_path)
    new = ("train", "classify", "--train-file", str(table), *FLAGS, "--steps", "6", "--out", str(tmp_path / "run"))
    both = {seed: command(tmp_path / f"{seed}.txt", *new, "--seed", str(seed)) for seed in (1, 2)}
    whole, lost = sorted((*process.wait(120), seed) for seed, process in both.items())
    assert (whole[0], lost[0]) == (0, 2), (whole, lost)
    assert str(tmp_path / "run") in lost[1] and "this is a bug" not in lost[1]
    assert f"seed = {whole[2]}" in (tmp_path / "run" / "config.toml").read_text("utf-8")
    assert len((tmp_path / "run" / "metrics.jsonl").read_text("utf-8").splitlines()) == 6
    code, output = command(tmp_path / "resumed.txt", "train", "--resume", str(tmp_path / "run")).wait(120)
    assert code == 0, output


# A signal that stops a run says in each stage what is saved and how to resume, and exits with 128 and its number


SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
STAGES = {
    "preparing": (signal.SIGHUP, trainer, "prepare", "before the first step; nothing is saved in"),
    "beginning": (signal.SIGTERM, trainer, "describe_environment", "before the first step; nothing is saved in"),
    "scoring": (signal.SIGINT, finalize, "evaluate_run", "while scoring the trained model, which is saved in"),
    "report": (signal.SIGHUP, finalize, "write_report", "while writing the report; model and scores are saved in"),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing stopped; its table is in the same folder."""
    folder = tmp_path_factory.mktemp("whole")
    assert main(new_run(folder, folder / "run")) == 0
    return folder / "run"


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


@pytest.mark.parametrize("stage", STAGES)
def test_each_stage_says_what_is_saved(whole, tmp_path, stage, monkeypatch, cli):
    number, module, name, words = STAGES[stage]
    before, out = [signal.getsignal(n) for n in SIGNALS], tmp_path / "a run"
    with monkeypatch.context() as patch:
        patch.setattr(module, name, send_before(number, getattr(module, name)))
        stopped = cli(*new_run(whole.parent, out))
    assert stopped.code == 128 + number and f"stopped by {number.name} {words} {out}" in stopped.err
    assert [signal.getsignal(n) for n in SIGNALS] == before
    if "nothing" not in words:
        hint = next(line for line in stopped.err.splitlines() if line.startswith("hint: "))
        again = shlex.split(hint.partition(": ")[2].partition(": ")[2])[1:]
        assert again == ["train", "--resume", str(out)]
    else:
        assert "give the same command again" in stopped.err and not out.exists()
        again = new_run(whole.parent, out)
    assert main(again) == 0
    for file in ("model/model.safetensors", "predictions.jsonl", "evaluation.json"):
        assert (out / file).read_bytes() == (whole / file).read_bytes(), file


@pytest.mark.parametrize(("number", "step"), [(signal.SIGHUP, 1), (signal.SIGTERM, 3), (signal.SIGINT, 6)])
def test_while_training_the_step_is_saved(whole, tmp_path, number, step):
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


def test_a_second_interrupt_does_not_wait_for_the_step(whole, tmp_path):
    def send(report: Any) -> None:
        if report.step == 3:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted, match="up to its last checkpoint") as caught:
        train(whole, tmp_path / "run", send)
    assert caught.value.exit_code == 130
    assert [p.name for p in (tmp_path / "run" / "checkpoints").glob("step-*")] == ["step-00000002"]


def test_hangups_stay_ignored(whole, tmp_path):
    """As `nohup` has them."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        train(whole, tmp_path / "run", lambda report: os.kill(os.getpid(), signal.SIGHUP))
    finally:
        signal.signal(signal.SIGHUP, before)
    assert RunFolder(tmp_path / "run").finished


def test_between_seeds_and_in_their_ensemble(whole, tmp_path, monkeypatch, cli):
    out, name = tmp_path / "my seeds", "_evaluate_ensemble"
    with monkeypatch.context() as patch:
        patch.setattr(trainer, name, send_before(signal.SIGTERM, getattr(trainer, name)))
        stopped = cli(*new_run(whole.parent, out), "--seeds", "2")
    assert stopped.code == 143 and f"resume with: glassformer train --resume '{out}'" in stopped.err
    assert cli("train", "--resume", out).ok
    assert (out / "report.json").is_file()


# A run that someone changed is not trained on: a checkpoint sealed again, other settings, data or tokenizer


Change = Callable[[dict[str, Tensor], dict[str, Any]], object]


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed after its checkpoint of step 12, in its second epoch, with a best validation."""
    folder = tmp_path_factory.mktemp("unfinished")
    more = SMALL | {"batch_size": 8, "steps": 20, "save_every": 4, "ema_decay": 0.9, "validate_min_steps": 1}
    with pytest.raises(Killed):
        glassformer.train("classify", train_file=write_table(folder), out=folder / "run", on_step=kill_at(13), **more)
    return folder / "run"


def change_checkpoint(run: Path, change: Change) -> None:
    """Change tensors or state of the newest checkpoint, and seal it as a forger would."""
    path = max((run / "checkpoints").glob("step-*"))
    tensors, state = load_checkpoint(path)
    change(tensors, state)
    files = {TENSORS: tensor_chunks(tensors), STATE: [json.dumps(state).encode()]}
    write_sealed_folder(path, CHECKPOINT_KIND, files)


def without(group: str) -> Change:
    """Leave a group of tensors out."""

    def change(tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        for name in [name for name in tensors if name.startswith(f"{group}:")]:
            del tensors[name]

    return change


def tensor(start: str, make: Callable[[Tensor], Tensor], name: str = "") -> Change:
    """Put another tensor, perhaps of another name, in the place of the first whose name begins so."""

    def change(tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        found = next(full for full in sorted(tensors) if full.startswith(start))
        tensors[name or found] = make(tensors.pop(found))

    return change


NUMBERS = [{"epoch": "1"}, {"step": None}, {"position": -1}, {"seconds": float("nan")}, {"finished": "x"}]
TENSORS_CHANGED: dict[str, Change] = {
    **{f"no {group}": without(group) for group in ("best", "ema", "model", "optimizer", "rng")},
    "ema of another shape": tensor("ema:", lambda t: t.flatten()[:1].clone()),
    "best of another name": tensor("best:", Tensor.clone, "best:x"),
    "optimizer of another name": tensor("optimizer:", Tensor.clone, "optimizer:x/exp_avg"),
    "optimizer of another shape": tensor("optimizer:embedding", lambda t: t.flatten()[:1].clone()),
}
STATES: dict[str, Change] = {
    "no progress": lambda tensors, state: state.pop("progress"),
    "progress of strings": lambda tensors, state: state.update(progress=dict.fromkeys(state["progress"], "x")),
    "progress a list": lambda tensors, state: state.update(progress=[1]),
    "no names of tensors": lambda tensors, state: state.pop("tensors"),
    "no start": lambda tensors, state: state.pop("begun_with"),
    "start a list": lambda tensors, state: state.update(begun_with=[]),
    "another start": lambda tensors, state: state.update(begun_with="00"),
}
CHANGES = {f"{new}": lambda _, state, new=new: state["progress"].update(new) for new in NUMBERS}
CHANGES |= TENSORS_CHANGED | STATES


@pytest.fixture(scope="module")
def context(unfinished: Path) -> RunContext:
    """What a resume prepares from the data, once for all attacks."""
    folder = RunFolder(unfinished)
    return prepare(folder.read_config(), folder)


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_checkpoint_is_refused(unfinished, context, tmp_path, name):
    run = Path(shutil.copytree(unfinished, tmp_path / "run"))
    change_checkpoint(run, CHANGES[name])
    log = (run / "metrics.jsonl").read_bytes()
    with pytest.raises(CheckpointError, match="step-00000012") as caught:
        resumed_state(context, RunFolder(run))
    assert caught.value.hint
    assert (run / "metrics.jsonl").read_bytes() == log, "nothing is written"


def test_an_unchanged_run_is_resumed_whatever_the_layout_of_its_files(unfinished, tmp_path):
    run = Path(shutil.copytree(unfinished, tmp_path / "run"))
    change_checkpoint(run, lambda tensors, state: None)
    edit_json(run / "data.json", lambda data: None)
    (run / "config.toml").write_text("# a remark\n" + (run / "config.toml").read_text("utf-8"), "utf-8")
    assert main(["train", "--resume", str(run)]) == 0


LINES = ['{"loss": 1.0}', '{"step": "3"}', '{"step": null}', "[1]", "7", "{", '{"step": 1.5}', '{"step": true}']


def test_a_line_that_is_none_of_a_log_is_dropped_and_missing_steps_are_counted(tmp_path, capsys):
    """A process that died, or a disk that was cut off, leaves it."""
    lines = ['{"step": 3}\n', '{"step": 4}\n']
    for line in LINES:
        (tmp_path / "metrics.jsonl").write_text((line + "\n").join(["", *lines, ""]), "utf-8")
        RunFolder(tmp_path).truncate_metrics(4)
        assert (tmp_path / "metrics.jsonl").read_text("utf-8") == "".join(lines), line
        assert "lacks 2 of the 4 steps" in capsys.readouterr().err


def replaced(name: str, old: str, new: str) -> Callable[[Path], object]:
    def change(run: Path) -> None:
        text = (run / name).read_text("utf-8")
        assert old in text
        (run / name).write_text(text.replace(old, new, 1), "utf-8")

    return change


def edited(name: str, change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    return lambda run: edit_json(run / name, change)


OTHERWISE: dict[str, Callable[[Path], object]] = {
    "lr": replaced("config.toml", "lr = 0.005", "lr = 0.007"),
    "beta": replaced("config.toml", "beta2 = 0.98", "beta2 = 0.97"),
    "setting left out": replaced("config.toml", "lr = 0.005\n", ""),
    "data deleted": lambda run: (run / "data.json").unlink(),
    "data empty": lambda run: (run / "data.json").write_text("{}"),
    "data notes": edited("data.json", lambda data: data["notes"].append("x")),
    "tokenizer": edited("tokenizer.json", lambda content: content["model"]["vocab"].popitem()),
    "env deleted": lambda run: (run / "env.json").unlink(),
    "nothing recorded": edited("env.json", lambda env: env.pop("begun_with")),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_what_was_begun_otherwise_is_not_resumed(unfinished, tmp_path, name, cli):
    run = Path(shutil.copytree(unfinished, tmp_path / "run"))
    OTHERWISE[name](run)
    refused = cli("train", "--resume", run)
    refused.refused(str(run), code=4)
    assert "this is a bug" not in refused.err and len(refused.err.strip().splitlines()) <= 2


def test_a_changed_seed_run_stops_the_others(tmp_path):
    """The seeds that remain take the settings of the first, so that they are compared by their seed alone."""

    def kill(_: Any) -> None:
        if (tmp_path / "x" / "seed-2").exists():
            raise Killed

    with pytest.raises(Killed):
        more = SMALL | {"steps": 2, "train_file": write_table(tmp_path)}
        glassformer.train("classify", out=tmp_path / "x", seeds=2, on_step=kill, **more)
    replaced("config.toml", "lr = 0.005", "lr = 0.007")(tmp_path / "x" / "seed-1")
    with pytest.raises(CheckpointError, match=r"seed-1/config\.toml, .* is not what the run was begun with"):
        glassformer.resume(tmp_path / "x")
    assert not RunFolder(tmp_path / "x" / "seed-2").finished
