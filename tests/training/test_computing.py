"""What a run computes with is found once on a machine, kept, and written into the run."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.helpers.small import small
from tests.helpers.small_runs import SMALL, write_table
from tests.helpers.together import begin, together

import glassformer
from glassformer.config import TrainConfig
from glassformer.config.recipes import load_recipe
from glassformer.distributed.process_group import ProcessGroup
from glassformer.errors import UsageError
from glassformer.explain.page.service import Service
from glassformer.runs.folder import RunFolder
from glassformer.tasks import TASKS
from glassformer.training import computing
from glassformer.training.computing import (
    candidates,
    chosen,
    computing_for_answers,
    computing_of,
    in_words,
    least_times,
)
from glassformer.training.state import RunContext
from glassformer.utils.device import Computing, Precision, tuned
from glassformer.utils.process_settings import turns

CPU = torch.device("cpu")
OPEN: dict[str, Any] = {"precision": "auto", "products": "auto", "attention": "auto"}
FOUND = Computing("bf16", "blas", "explicit", 1)
SPEEDS = {in_words(FOUND): 300.0, in_words(Computing()): 200.0}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which nothing was tried yet."""
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "computing"


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every run is long enough, and a trial finds `FOUND`; the list grows with each."""
    made: list[int] = []

    def trial(_context: RunContext, _index: object, _busy: bool) -> tuple[Computing, dict[str, float]]:
        made.append(1)
        return FOUND, SPEEDS

    monkeypatch.setattr(computing, "SHORT", 0.0)
    monkeypatch.setattr(computing, "trial", trial)
    monkeypatch.delenv("OMP_NUM_THREADS")
    return made


def found_by(context: RunContext) -> Computing:
    return computing_of(chosen(context).config.train)


def test_a_choice_is_tried_once_for_a_shape_and_printed(trials: list[int], cache: Path) -> None:
    context = small("classify", **OPEN).context
    first, second = chosen(context), chosen(small("classify", **OPEN).context)
    assert computing_of(first.config.train) == computing_of(second.config.train) == FOUND and len(trials) == 1
    expected = "bf16, explicit attention, 1 thread: 300 tokens/s; fp32, products by"
    assert first.choice.startswith(expected) and "(a trial of" in first.choice
    assert second.choice.startswith(expected) and "(as measured before)" in second.choice
    found_by(small("classify", max_tokens=16, **OPEN).context)
    assert len(trials) == 2, "batches of another size are another shape"
    found_by(small("classify", **OPEN | {"precision": "fp32"}).context)
    assert len(trials) == 3 and len([*cache.iterdir()]) == 3, "what is fixed is tried no more"
    several = small("classify", **OPEN).context
    several = several.with_config(replace(several.config, model=replace(several.config.model, ensemble_size=3)))
    assert found_by(several) == FOUND and len(trials) == 4, "the members of an ensemble take longer"


DAMAGED = [
    "",
    "[" * 100_000,
    '{"choice": {"precision": "int8"}, "tried": ""}',
    '{"choice": {"threads": 0}, "tried": ""}',
    '{"choice": {"threads": 1e999}, "tried": ""}',
    '{"choice": {}}',
    '{"choice": {}, "tried": "\\u001b[31m"}',
]


@pytest.mark.parametrize("damage", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_choice_is_found_again(trials: list[int], cache: Path, damage: str) -> None:
    context = small("classify", **OPEN).context
    found_by(context)
    (file,) = cache.glob("*/choice.json")
    file.write_text(damage, encoding="utf-8")
    assert found_by(context) == found_by(context) == FOUND and len(trials) == 2


def test_of_two_that_try_at_once_both_take_the_first(cache: Path) -> None:
    for found in (FOUND, Computing()):
        kept = computing.keep(cache / "shape", found, "some speeds")
        assert kept == (FOUND, "some speeds")


@pytest.mark.parametrize("train", [{"deterministic": True}, {}], ids=["deterministic", "short"])
def test_what_is_not_worth_a_trial_computes_the_same_everywhere(
    cache: Path, monkeypatch: pytest.MonkeyPatch, train: dict[str, Any]
) -> None:
    if train:
        monkeypatch.setattr(computing, "SHORT", 0.0)
    context = chosen(small("classify", **OPEN, **train).context)
    assert computing_of(context.config.train) == Computing() and context.choice == "" and not cache.exists()
    named = chosen(small("classify", **OPEN | {"precision": "bf16", "attention": "explicit"}, **train).context)
    assert computing_of(named.config.train) == Computing("bf16", "blas", "explicit")


def test_a_fixed_number_of_threads_stays(trials: list[int]) -> None:
    for n_threads in (64, 2):  # more than there are cores, too
        contexts = [chosen(small("classify", threads=n_threads, **OPEN).context) for _ in range(2)]
        assert [computing_of(c.config.train) for c in contexts] == [replace(FOUND, threads=n_threads)] * 2
        assert contexts[1].choice.endswith("(as measured before)")
    context = contexts[0]
    with computing.computing(context) as held:
        assert held.threads is None and torch.get_num_threads() == 2
    with computing.computing(small("classify", **OPEN).context) as held:
        assert held.threads is not None and held.threads.most == torch.get_num_threads() == 1


def test_settings_are_held_within_the_block_only(trials: list[int]) -> None:
    before = torch.get_rng_state()
    with computing.computing(small("classify", **OPEN).context) as context:
        assert context.precision == "bf16" and not turns.current.flash
    assert turns.current.flash and torch.equal(torch.get_rng_state(), before)


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


def test_a_run_records_its_choice_and_repeats_itself_without_the_cache(
    trials: list[int], settings: dict[str, Any], cache: Path, tmp_path: Path
) -> None:
    run = glassformer.train("classify", out=tmp_path / "run", **settings)
    assert run is not None and run.precision == "bf16" and run.config.train.most_threads == 1
    environment = json.loads(RunFolder(run.path).env.read_text(encoding="utf-8"))
    assert environment["precision"] == "bf16" and "300 tokens/s; fp32" in environment["computing"]
    for folder in cache.iterdir():
        (folder / "choice.json").unlink()
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
    assert run is not None
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


def test_explain_says_where_predict_answers_otherwise(settings: dict[str, Any], tmp_path: Path) -> None:
    run = glassformer.train("classify", out=tmp_path / "run", **settings | {"precision": "bf16"})
    assert run is not None
    text, other = "good word1 and word2", copy.deepcopy(run.model)
    run.__dict__["answering"] = run.model
    assert run.explain(text).warnings == []
    with torch.no_grad():
        other.head.weight.neg_()
    run.__dict__["answering"] = other
    there, here = run.predict(text)["label"], run.explain(text)
    (note,) = here.warnings
    assert there != here.answer["headline"]
    assert note.startswith(f"`predict` answers in bf16: {there}, 0.") and f"it is {here.answer['headline']}, 0." in note
    assert Service(run).trace({"text": text})["warnings"] == [note], "the page says so, too"


def test_answers_take_what_this_machine_found_for_their_shape(
    trials: list[int], settings: dict[str, Any], tmp_path: Path
) -> None:
    run = glassformer.train("classify", out=tmp_path / "run", **settings)
    assert run is not None and run.computing == FOUND
    assert computing_for_answers(run.task, "fp32", CPU) == Computing(), "that is another precision"
    other = run.task.with_config(replace(run.config, model=replace(run.config.model, n_layers=7)))
    assert computing_for_answers(other, "bf16", CPU) == Computing("bf16", attention="explicit"), "another shape"


def test_in_bf16_answers_keep_the_attention_of_the_run(
    trials: list[int], settings: dict[str, Any], tmp_path: Path
) -> None:
    """The two kinds of attention round otherwise, so that scores would depend on what a cache holds."""
    fixed = settings | {"precision": "bf16", "attention": "fused", "products": "blas"}
    run = glassformer.train("classify", out=tmp_path / "run", **fixed)
    found_by(small("classify", **OPEN).context)
    assert run is not None and run.computing == Computing("bf16", attention="fused")
    assert glassformer.load(run.path).computing.attention == "fused"


# --- the trial ------------------------------------------------------------------------------------------------


@pytest.fixture
def no_bf16(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(computing, "bf16_slowdown", lambda *_: 30.0)
    yield


@pytest.mark.parametrize(("task", "busy"), [*((task, False) for task in TASKS if task != "embed"), ("translate", True)])
def test_a_trial_times_every_setting_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, task: str, busy: bool
) -> None:
    for name, value in {"bf16_slowdown": 1.0, "has_onednn": True, "others_busy": busy}.items():
        monkeypatch.setattr(computing, name, lambda *_, value=value: value)
    monkeypatch.setattr(computing, "SECONDS", 1e9)
    monkeypatch.setattr(computing, "SHORT", 0.0)
    context, before = small(task, **OPEN).context, torch.get_rng_state()
    found = chosen(context)
    expected = {in_words(c) for c in candidates(context.config.train, CPU, 16, lambda: 0.0)}
    assert len(expected) == 6 and all(name in found.choice for name in expected)
    assert in_words(computing_of(found.config.train)) in expected and torch.equal(torch.get_rng_state(), before)
    assert ("beside other programs" in found.choice) == busy


def test_emulated_and_rounding_settings_are_not_tried(monkeypatch: pytest.MonkeyPatch, no_bf16: None) -> None:
    monkeypatch.setattr(computing, "has_onednn", lambda: False)
    tried = candidates(TrainConfig(**OPEN), CPU, 16, lambda: 0.0)
    assert tried == [Computing(attention="fused"), Computing(attention="explicit")]
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda _including_emulation: True)
    on_gpu = candidates(TrainConfig(**OPEN), torch.device("cuda"), 16, lambda: 0.0)
    assert on_gpu == [Computing("fp32"), Computing("bf16")]


def test_what_is_clearly_slower_is_called_no_more() -> None:
    calls: list[str] = []

    def taking(name: str, *seconds: float) -> Any:
        left = iter(seconds)

        def run() -> list[float]:
            calls.append(name)
            return [next(left)]

        return run

    least = least_times([taking("a", 9, 1.5, 1.2), taking("b", 9, 3), taking("c", 9, 1.2, 1.1)], 1e99)
    assert least == [[1.2], [3], [1.1]] and "".join(calls) == "abc" + "abc" + "ac"
    late = least_times([taking("a", 9, 1), taking("b", 9, 1)], 0.0)
    assert late[0] == [9] and late[1][0] == float("inf"), "the first is always timed"
    assert least_times([taking("a", 9, 1, 2)], 1e99) == [[1]], "and not by its first call alone"


def test_fixed_settings_reach_the_kernels() -> None:
    with tuned(CPU, Computing(attention="explicit", threads=2)):
        assert torch.get_num_threads() == 2 and not turns.current.flash
        with tuned(CPU):
            assert turns.current.flash
