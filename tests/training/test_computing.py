"""What a run computes with is found by a trial, and written into the run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.distributed.together import begin, together
from tests.helpers.small import small
from tests.helpers.small_runs import SMALL, write_table

import glassformer
from glassformer.config import TrainConfig
from glassformer.config.recipes import load_recipe
from glassformer.distributed import ProcessGroup
from glassformer.errors import UsageError
from glassformer.explain.page.service import Service
from glassformer.runs.folder import RunFolder
from glassformer.tasks import TASKS
from glassformer.training import computing
from glassformer.training.computing import candidates, chosen, computing_of, in_words
from glassformer.training.loop import RunContext
from glassformer.utils.device import Computing, Precision
from glassformer.utils.process_settings import turns

CPU = torch.device("cpu")
OPEN: dict[str, Any] = {"precision": "auto", "products": "auto", "attention": "auto"}
FOUND = Computing("bf16", "blas", "explicit")
SPEEDS = {FOUND: 300.0, Computing(): 200.0}


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every run is long enough, and a trial finds `FOUND`; the list grows with each."""
    made: list[int] = []

    def trial(_context: RunContext) -> tuple[Computing, dict[Computing, float]]:
        made.append(1)
        return FOUND, SPEEDS

    monkeypatch.setattr(computing, "SHORT", 0.0)
    monkeypatch.setattr(computing, "trial", trial)
    monkeypatch.delenv("OMP_NUM_THREADS")
    return made


def test_a_choice_is_printed_with_what_it_was_compared_with(trials: list[int]) -> None:
    context = chosen(small("classify", **OPEN).context)
    assert computing_of(context.config.train) == FOUND
    assert context.choice.startswith("bf16, explicit attention: 300 tokens/s; fp32, products by")
    assert chosen(context) is context and len(trials) == 1, "what is written is tried no more"


@pytest.mark.parametrize("train", [{"deterministic": True}, {}], ids=["deterministic", "short"])
def test_what_is_not_worth_a_trial_computes_the_same_everywhere(
    monkeypatch: pytest.MonkeyPatch, train: dict[str, Any]
) -> None:
    if train:
        monkeypatch.setattr(computing, "SHORT", 0.0)
    context = chosen(small("classify", **OPEN, **train).context)
    assert computing_of(context.config.train) == Computing() and context.choice == ""
    named = chosen(small("classify", **OPEN | {"precision": "bf16", "attention": "explicit"}, **train).context)
    assert computing_of(named.config.train) == Computing("bf16", "blas", "explicit")


def test_settings_and_a_fixed_number_of_threads_are_held_within_the_block_only(trials: list[int]) -> None:
    context, before = small("classify", threads=2, **OPEN).context, torch.get_rng_state()
    assert computing_of(chosen(context).config.train) == replace(FOUND, threads=2)
    with computing.computing(context) as held:
        assert held.threads is None and torch.get_num_threads() == 2
        assert held.precision == "bf16" and not turns.current.flash
    assert turns.current.flash and torch.equal(torch.get_rng_state(), before)
    with computing.computing(small("classify", **OPEN).context) as held:
        assert held.threads is not None and held.threads.most == torch.get_num_threads()


def _chosen_by(ranks: ProcessGroup) -> list[str]:
    computing.SHORT = 0.0
    computing.trial = lambda *_: (FOUND if ranks.is_main else Computing(), SPEEDS)
    run, _ = begin(ranks, "classify", 60, OPEN)
    return [in_words(computing_of(chosen(run).config.train))]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_the_first_process_decides_for_all() -> None:
    assert together(2, _chosen_by) == [[in_words(FOUND)]] * 2


# --- runs -----------------------------------------------------------------------------------------------------


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    return SMALL | OPEN | {"train_file": write_table(tmp_path), "epochs": 2, "validate_min_steps": 1}


def weights(path: Path) -> bytes:
    return (path / "model" / "model.safetensors").read_bytes()


def test_a_run_records_its_choice_and_repeats_itself(
    trials: list[int], settings: dict[str, Any], tmp_path: Path
) -> None:
    run = glassformer.train("classify", out=tmp_path / "run", **settings)
    assert run is not None and run.precision == "bf16" and run.computing == FOUND
    assert glassformer.load(run.path, precision="fp32").computing == replace(FOUND, precision="fp32")
    environment = json.loads(RunFolder(run.path).env.read_text(encoding="utf-8"))
    assert environment["precision"] == "bf16" and "300 tokens/s; fp32" in environment["computing"]
    again = glassformer.train(load_recipe(run.path / "config.toml"), out=tmp_path / "again")
    assert again is not None and weights(again.path) == weights(run.path)
    assert glassformer.resume(run.path) is not None and len(trials) == 1


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_report_and_answers_are_computed_in_one_precision(
    settings: dict[str, Any], tmp_path: Path, precision: Precision
) -> None:
    """Scores, temperature and thresholds are of the answers that `predict` gives, on every machine."""
    settings |= {"precision": precision, "test_file": settings["train_file"]}
    run = glassformer.train("classify", out=tmp_path / "run", **settings)
    note = ["`predict` computes in bf16, and everything here is fp32: the third digit may differ"]
    assert run.explain("good word1 and word2").warnings == note * (precision == "bf16")
    assert Service(run).trace({"text": "good word1"})["warnings"] == note * (precision == "bf16"), "the page, too"
    reported = RunFolder(run.path).read_evaluation()
    assert reported is not None and reported.scores["precision"] == precision
    found = glassformer.load(run.path).evaluate()
    for key in ("accuracy", "log_loss", "coverage", "calibrated_log_loss"):
        assert found.get(key) == reported.scores.get(key), key
    assert json.loads((run.path / "model" / "config.json").read_text(encoding="utf-8"))["precision"] == precision
    other: Any = "bf16" if precision == "fp32" else "fp32"
    assert glassformer.load(run.path, precision=other).evaluate()["log_loss"] != reported.scores["log_loss"]
    with pytest.raises(UsageError, match="precision must be fp32 or bf16, not 'auto'"):
        glassformer.load(run.path, precision="auto")


# --- the trial ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [task for task in TASKS if task != "embed"])
def test_a_trial_times_every_setting_and_changes_nothing(monkeypatch: pytest.MonkeyPatch, task: str) -> None:
    for name, value in {"bf16_slowdown": 1.0, "has_onednn": True}.items():
        monkeypatch.setattr(computing, name, lambda *_, value=value: value)
    monkeypatch.setattr(computing, "SECONDS", 0.0)
    monkeypatch.setattr(computing, "SHORT", 0.0)
    context, before = small(task, **OPEN).context, torch.get_rng_state()
    found = chosen(context)
    expected = {in_words(c) for c in candidates(context.config.train, CPU, 16)}
    assert len(expected) == 6 and all(name in found.choice for name in expected)
    assert in_words(computing_of(found.config.train)) in expected and torch.equal(torch.get_rng_state(), before)


def test_a_trial_takes_the_fastest_and_drops_what_is_clearly_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its least time after the first round, and another than the safe one only if it is clearly faster."""
    fused, explicit, bf16 = Computing(), Computing(attention="explicit"), Computing("bf16")
    monkeypatch.setattr(computing, "candidates", lambda *_: [fused, explicit, bf16])

    def taking(*times: list[float]) -> tuple[Computing, list[Computing]]:
        left, calls = dict(zip((fused, explicit, bf16), map(iter, times), strict=True)), list[Computing]()

        def seconds_of_step(_module: object, _batch: object, _device: object, c: Computing) -> float:
            calls.append(c)
            monkeypatch.setattr(computing, "SECONDS", 1e9 if len(calls) < 8 else 0.0)
            return next(left[c])

        monkeypatch.setattr(computing, "seconds_of_step", seconds_of_step)
        return computing.trial(small("classify", **OPEN).context)[0], calls

    found, calls = taking([1, 3.0, 3.0], [9, 2.2, 2.0], [9, 9.0])
    assert found == explicit and calls.count(bf16) == 2, "after one counted round it is tried no more"
    assert taking([9, 1.0, 1.0], [1, 0.99, 0.99], [9, 9.0])[0] == fused


def test_emulated_and_rounding_settings_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(computing, "bf16_slowdown", lambda *_: 30.0)
    monkeypatch.setattr(computing, "has_onednn", lambda: False)
    tried = candidates(TrainConfig(**OPEN), CPU, 16)
    assert tried == [Computing(attention="fused"), Computing(attention="explicit")]
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda _including_emulation: True)
    on_gpu = candidates(TrainConfig(**OPEN), torch.device("cuda"), 16)
    assert on_gpu == [Computing("fp32"), Computing("bf16")]
