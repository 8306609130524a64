"""A training that is followed: its log, read while it grows and thinned; the state of its folder; its newest model.

Through the server: before it has weights, with snapshots alone, finished, and gone.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock
from tests.explain.test_report import Page
from tests.helpers.for_each import for_each
from tests.helpers.serving import Client
from tests.helpers.small import small
from tests.helpers.small_runs import SMALL, write_table

from glassformer.api import Run, train
from glassformer.errors import CheckpointError, UsageError
from glassformer.explain import watch as module
from glassformer.explain.page.saved_page import replay_html
from glassformer.explain.page.server import PageServer
from glassformer.explain.page.service import Service
from glassformer.explain.watch import GrowingLog, Training, default_texts, from_border, probe, spread, thinned
from glassformer.report.findings import Checkup
from glassformer.runs.folder import CONTINUE, LOCK, PAUSE, Control, ControlFile, RunFolder, is_locked, lock_folder
from glassformer.runs.model_folder import save_snapshot
from glassformer.runs.records import DataRecord, StepMetrics


def line(step: int, **more: object) -> str:
    return json.dumps({"step": step, "seconds": step / 10, "loss": 1 / step, **more}) + "\n"


def append(path: Path, text: str | bytes) -> None:
    with open(path, "ab") as file:
        file.write(text.encode() if isinstance(text, str) else text)


def steps(log: GrowingLog) -> list[int]:
    """Read what is new of a log; return its steps."""
    log.update()
    return [row.step for row in log.rows]


def test_only_whole_lines_count_and_nothing_is_read_twice_until_a_run_is_resumed(tmp_path: Path) -> None:
    path, new = tmp_path / "metrics.jsonl", tmp_path / "new"
    log = GrowingLog(path)
    assert steps(log) == []
    path.write_text(line(1) + line(2) + '{"step": 3', encoding="utf-8")
    assert steps(log) == [1, 2]
    first = log.rows[0]
    append(path, ', "loss": 0.5}\n' + "".join(map(line, range(4, 9))))
    assert steps(log) == [*range(1, 9)] and log.rows[0] is first and log.generation == 0
    new.write_text("".join(map(line, range(1, 5))), encoding="utf-8")  # as `truncate_metrics` replaces it
    os.replace(new, path)
    assert steps(log) == [1, 2, 3, 4] and log.generation == 1
    append(path, line(3, loss=9.0))  # a step that was done again
    assert steps(log) == [1, 2, 3, 4] and log.generation == 2
    assert [row.loss for row in log.rows][2:] == [9.0, 0.25]
    path.unlink()
    assert steps(log) == [] and log.generation == 3


DAMAGED = ("[]", "{}", '{"step": "x"}', '{"step": 3, "lo', "\x00\x00", '{"step": 2}{"step": 3}', '"\\ud800"')


def test_damaged_lines_are_left_out_with_their_numbers(tmp_path: Path) -> None:
    """One line that a crash cut, or that holds no row, takes no other row away, wherever it stands."""
    path, n = tmp_path / "metrics.jsonl", len(DAMAGED)
    path.write_text(line(1) + "\n".join(DAMAGED) + "\n\n" + line(4) + "[", encoding="utf-8")
    log = GrowingLog(path)
    assert steps(log) == [1, 4] and log.damaged == [*range(2, n + 2)]
    append(path, b"]\n" + line(5).encode() + b"\xff\xfe\n" + line(6).encode())
    assert steps(log) == [1, 4, 5, 6] and log.damaged == [*range(2, n + 2), n + 4, n + 6]
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl:2: expected `object`, got"):
        RunFolder(tmp_path).read_metrics()
    damaged: list[int] = []
    assert RunFolder(tmp_path).read_metrics(damaged) == log.rows and damaged == log.damaged
    path.write_text(line(1), encoding="utf-8")
    assert steps(log) == [1] and log.damaged == []


def test_thinning_keeps_the_newest_whole_and_every_spike() -> None:
    spikes = {12345: 99.0, 777: -5.0}
    many = [StepMetrics(step, loss=spikes.get(step, 1.0)) for step in range(1, 30_001)]
    kept = thinned(many)
    assert len(kept) <= 2000 and kept[-500:] == many[-500:]
    assert {99.0, -5.0} <= {row.loss for row in kept}
    assert [row.step for row in kept] == sorted({row.step for row in kept})
    assert thinned(many[:2000]) == many[:2000]
    assert [row.step for row in spread(many, 4)] == [1, 10000, 20000, 30000]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("followed")
    settings = {"epochs": None, "steps": 55, "snapshots": True, "threads": 1, "validate_every": 2}
    return train("classify", out=folder / "run", train_file=str(write_table(folder)), **SMALL, **settings)


@pytest.fixture
def begun(finished: Run, tmp_path: Path) -> Path:
    """A copy of the run as if it had been stopped while it trained."""
    copy = tmp_path / "run"
    shutil.copytree(finished.path, copy, ignore=shutil.ignore_patterns("model", "evaluation.json", "report*"))
    return copy


def test_a_finished_run_is_shown_whole(finished: Run) -> None:
    now = Training(finished.path).now()
    assert (now["state"], now["step"], now["steps"]) == ("finished", 55, 55)
    assert now["curve"]["step"] == list(range(1, 56))
    logged = [json.loads(text) for text in (finished.path / "metrics.jsonl").read_text("utf-8").splitlines()]
    assert now["curve"]["loss"] == [row["loss"] for row in logged]
    assert [point.step for point in now["updates"]] == [1, 50]
    assert now["updates"][1].update_ratios == logged[49]["update_ratios"]
    assert [point.valid for point in now["validations"]] == [row["valid"] for row in logged if "valid" in row]
    assert [each["step"] for each in now["snapshots"]][:3] == [0, 16, 32]
    assert now["has_model"] and not now["control"] and now["refused"] is None
    assert any(finding.place == "few validation examples" for finding in now["findings"])
    assert Training(finished.path).now(after=54)["curve"]["step"] == [55]


def test_the_state_follows_the_folder(begun: Path) -> None:
    training, log = Training(begun, may_write=True), begun / "metrics.jsonl"
    assert training.now()["state"] == "stopped"
    assert any(finding.place == "unfinished" for finding in training.now()["findings"])
    with lock_folder(begun):
        assert is_locked(begun)
        assert training.now()["state"] == "running" and training.now()["control"]
        append(log, line(56, paused=True))
        assert training.now()["state"] == "running", "that pause is over, as nothing asks for it any more"
        ControlFile(begun / "control.json").write(PAUSE)
        assert training.now()["state"] == "paused"
        assert all(finding.place != "unfinished" for finding in training.now()["findings"])
        log.write_text("", encoding="utf-8")
        assert training.now()["state"] == "waiting"
    assert not is_locked(begun)
    shutil.rmtree(begun)
    assert training.now()["state"] == Training(begun).now()["state"] == "gone"


def test_damaged_lines_are_a_finding(begun: Path) -> None:
    """Of the doctor too, in `test_diagnosis_of_logs.py`; also where no other line is left."""
    log = begun / "metrics.jsonl"
    lines = log.read_text("utf-8").splitlines(keepends=True)
    lines[7] = lines[7][:30] + "\n"
    log.write_text("".join([*lines[:20], "garbage\n", *lines[20:]]), encoding="utf-8")
    now = Training(begun).now()
    assert now["curve"]["step"] == [*range(1, 8), *range(9, 56)]
    [found] = [finding for finding in now["findings"] if finding.place == "log"]
    assert found.matter == "lines 8, 21 of metrics.jsonl cannot be read, and are left out"
    log.write_text("garbage\n", encoding="utf-8")
    [found] = [finding for finding in Training(begun).now()["findings"] if finding.place == "log"]
    assert found.matter == "line 1 of metrics.jsonl cannot be read, and is left out"


def test_what_is_requested_is_written(begun: Path) -> None:
    training, file = Training(begun, may_write=True), ControlFile(begun / "control.json")
    with pytest.raises(UsageError, match="it is stopped"):
        training.request("pause")
    newest = training.log.rows[-1].step
    with lock_folder(begun):
        cases: tuple[tuple[Any, Control], ...] = (
            ("pause", PAUSE),
            ("step", Control(until=newest + 1)),
            ("pause", Control(until=newest + 1)),
            ("step", Control(until=newest + 2)),
            ("continue", CONTINUE),
            ("step", PAUSE),
            ("stop", Control(stop=True)),
        )
        for action, expected in cases:
            training.request(action)
            assert file.read() == expected, action
        reader = Training(begun)
        now = reader.now()
        assert not now["control"] and "only reads" in str(now["refused"])
        with pytest.raises(UsageError, match="only reads"):
            reader.request("stop")


def test_who_looks_whether_it_is_locked_never_refuses_a_training(begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that is held for an instant is waited for."""
    monkeypatch.setattr("glassformer.runs.folder.WAIT_SECONDS", 60)
    held = FileLock(begun / LOCK, thread_local=False)
    held.acquire()
    release = threading.Timer(0.05, held.release)
    release.start()
    with lock_folder(begun):
        assert is_locked(begun)
    release.join()


def test_a_diagnosis_is_not_made_at_each_look(begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(module, "diagnose", lambda facts: (calls.append(facts.steps), Checkup())[1])
    training = Training(begun)
    with lock_folder(begun):
        for step in range(56, 60):
            append(begun / "metrics.jsonl", line(step))
            training.now()
    assert calls == [56]
    training.now()
    assert calls == [56, 59], "and once more at the end"


@contextmanager
def served(path: Path, may_write: bool = False) -> Iterator[Client]:
    with PageServer(Training(path, may_write), port=0) as server:
        assert "#/training?" in server.address, "it opens on that screen"
        yield Client(server.port, server.token)


def test_a_run_is_followed_before_its_weights_and_until_its_folder_goes(begun: Path, tmp_path: Path) -> None:
    shutil.rmtree(begun / "checkpoints")
    shutil.move(begun / "snapshots", begun / "aside")
    with served(begun) as client:
        refused = client.request("GET", "/api/run")
        assert refused.status == 400 and "has no weights yet" in refused.json()["error"]["message"]
        assert client.request("GET", "/api/training?after=45").json()["curve"]["step"] == list(range(46, 56))
        shutil.move(begun / "aside", begun / "snapshots")
        facts = client.request("GET", "/api/run").json()
        assert facts["model"]["task"] == "classify"
        assert "word" in facts["start"][0]["text"], "a text of the data, as the run has no examples yet"
        assert client.request("GET", "/api/training").json()["snapshots"][1] == {"name": "step-00000016", "step": 16}
        shutil.rmtree(begun)
        assert client.request("GET", "/api/training").json()["state"] == "gone"
        assert client.post("/api/probe", {"text": "a", "checkpoint": "step-00000016"}).status == 400
    empty = tmp_path / "empty"
    empty.mkdir()
    assert Training(empty).now()["state"] == "waiting"
    with pytest.raises(UsageError, match="has no weights yet"):
        Training(empty).subject()


def test_the_model_is_the_newest_and_stays_when_the_folder_goes(begun: Path, finished: Run) -> None:
    followed = Training(begun)
    first = followed.subject()
    assert first is followed.subject()
    newest, best = ([*run.model.parameters()] for run in (first, finished))
    torch.testing.assert_close(newest, best, rtol=0, atol=0)
    shutil.copytree(finished.path / "model", begun / "model")
    assert followed.subject() is not first
    shutil.rmtree(begun)
    assert followed.subject().model is not None


def test_each_snapshot_answers_and_a_long_text_has_no_map(finished: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    text, probabilities = "good word1 and word2", set()
    for name in ("step-00000000", "step-00000032", "model"):
        answer, explained = probe(finished, text, name), finished.explain(text, checkpoint=name)
        assert answer["headline"] == explained.answer["headline"]
        assert f"{100 * (answer['probability'] or 0):.1f}" in answer["detail"]
        shown = answer["map"]
        assert shown is not None and shown["rows"] == shown["columns"] == explained.streams[0].pieces
        expected = explained[shown["step"]].mean(axis=0)
        assert torch.allclose(torch.tensor(shown["weights"]), torch.tensor(expected), atol=6e-4)
        probabilities.add(answer["probability"])
    assert len(probabilities) == 3 and module.MAX_MAP_TOKENS > 8
    monkeypatch.setattr(module, "MAX_MAP_TOKENS", 3)
    assert probe(finished, text, "model")["map"] is None


def test_texts_come_from_the_evaluation_or_the_data_or_are_missed(begun: Path, finished: Run) -> None:
    with served(finished.path) as client:
        assert client.request("GET", "/api/probes").json()["missing"] is None
    with served(begun) as client:
        found = client.request("GET", "/api/probes").json()
        assert len(found["texts"]) == 4 and found["missing"] is None
        table = finished.path.parent / "table.csv"
        table.rename(table.with_name("aside"))
        try:
            found = client.request("GET", "/api/probes").json()
        finally:
            table.with_name("aside").rename(table)
        assert found["texts"] == [] and "cannot be read: " in found["missing"] and "table.csv" in found["missing"]


@for_each(
    "text, expected",
    [
        ("ing of the first\nSecond line, and more\nthird", "Second line, and more\nthird"),
        ("ing of a long line that is the only one\nhort", "of a long line that is the only one\nhort"),
        ("\n\nA line", "A line"),
        ("一個沒有空格的句子", "一個沒有空格的句子"),
        ("", ""),
    ],
)
def test_a_probe_of_running_text_begins_at_a_border(text: str, expected: str) -> None:
    assert from_border(text) == expected


def test_probes_of_a_language_model_begin_at_a_border(tmp_path: Path) -> None:
    """While it trains, from the validation split, and afterwards, from the prompt that was evaluated."""
    book = tmp_path / "book.txt"
    book.write_text(" ".join(f"number{i} word{i}" + "\n" * (i % 7 == 0) for i in range(900)), encoding="utf-8")
    settings = {"epochs": None, "steps": 2, "snapshots": True, "threads": 1, "model": SMALL["model"]}
    run = train("lm", out=tmp_path / "run", train_file=str(book), text={"max_len": 32}, precision="fp32", **settings)
    [finished] = default_texts(run)["texts"]
    (run.path / "evaluation.json").unlink()
    [begun] = default_texts(run)["texts"]
    assert all(re.match(r"(number|word)\d+\s", text) for text in (finished, begun)), (finished, begun)
    assert len(finished) < 40 < 200 < len(begun)


def test_a_page_that_is_loaded_again_answers_with_the_newer_weights(finished: Run) -> None:
    followed = Training(finished.path)
    service, request = Service(followed), {"text": "a good film"}
    service.run()
    first = service.trace(request)["id"]
    service.run()
    assert service.trace(request)["id"] == first
    followed._loaded = None  # as where newer ones were saved
    service.run()
    assert service.trace(request)["id"] != first


def test_requests_are_checked(begun: Path) -> None:
    with served(begun, may_write=True) as client, lock_folder(begun):
        assert client.request("GET", "/api/training?after=x").status == 400
        assert client.post("/api/probe", {"text": "a", "checkpoint": "step-99"}).status == 400
        assert client.post("/api/control", {"action": "format"}).status == 400
        assert not (begun / "control.json").exists()
        assert client.post("/api/control", {"action": "pause"}).status == 200
        assert ControlFile(begun / "control.json").read() == PAUSE
    with served(begun) as client:
        assert client.post("/api/control", {"action": "stop"}).status == 400


def test_a_replay_holds_curves_and_answers(finished: Run) -> None:
    html, lacks = replay_html(finished, Training(finished.path))
    data = Page(html).data()
    saved = data["training"]
    assert data["view"] == "#/training" and saved["now"]["curve"]["step"] == list(range(1, 56))
    names = [each["name"] for each in saved["now"]["snapshots"]] + ["model"]
    assert [(a["checkpoint"], a["text"]) for a in saved["answers"]] == [(n, t) for n in names for t in saved["texts"]]
    assert not any("Training" in sentence for sentence in lacks)
    _, lacks = replay_html(finished, Training(finished.path), seconds=-1.0)
    assert any("answers are left out" in sentence for sentence in lacks)


@pytest.mark.parametrize("name", ["translate", "lm", "pretrain"])
def test_every_task_is_followed_before_its_first_checkpoint(tmp_path: Path, name: str) -> None:
    """From what is written before the first step, and a snapshot."""
    task, folder = small(name).task, RunFolder(tmp_path / "run")
    folder.begin(task.config, {}, DataRecord(label_names=task.label_names), task.tokenizer)
    torch.manual_seed(0)
    model = task.build_model().eval()
    save_snapshot(folder.snapshots, 16, {name: p.detach() for name, p in model.named_parameters()})
    subject = Training(folder.path).subject()
    assert type(subject.task) is type(task)
    torch.testing.assert_close([*subject.model.parameters()], [*model.parameters()], rtol=0, atol=0)
    answer = probe(subject, "a b [MASK] c" if name == "pretrain" else "a b c", "step-00000016")
    assert answer["headline"] and answer["map"] is not None
    assert (answer["probability"] is None) == (name == "pretrain")
