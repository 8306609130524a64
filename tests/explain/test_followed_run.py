"""A run that is followed through the server: before it has weights, with snapshots alone, finished, and gone."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from tests.explain.test_report import Page
from tests.helpers.for_each import for_each
from tests.helpers.serving import Client
from tests.helpers.small import small
from tests.helpers.small_runs import SMALL, write_table

from glassformer.api import Run, train
from glassformer.errors import UsageError
from glassformer.explain.page.saved_page import replay_html
from glassformer.explain.page.server import PageServer
from glassformer.explain.page.service import Service
from glassformer.explain.watch.probes import MAX_MAP_TOKENS, ProbeRequest, default_texts, from_border, probe
from glassformer.explain.watch.training import Followed, Training
from glassformer.runs.folder import PAUSE, ControlFile, RunFolder, lock_folder
from glassformer.runs.model_folder import save_snapshot
from glassformer.runs.records import DataRecord

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("followed")
    settings = {"epochs": None, "steps": 40, "snapshots": True, "threads": 1, "validate_every": 2}
    run = train("classify", out=folder / "run", train_file=str(write_table(folder)), **SMALL, **settings)
    return run


@pytest.fixture
def begun(finished: Run, tmp_path: Path) -> Path:
    copy = tmp_path / "run"
    shutil.copytree(finished.path, copy, ignore=shutil.ignore_patterns("model", "evaluation.json", "report*"))
    return copy


@contextmanager
def served(path: Path, may_write: bool = False) -> Iterator[Client]:
    with PageServer(Followed(path, CPU, may_write), port=0) as server:
        assert "#/training?" in server.address, "it opens on that screen"
        yield Client(server.port, server.token)


def test_before_there_are_weights_the_log_is_shown(begun: Path) -> None:
    shutil.rmtree(begun / "checkpoints")
    shutil.move(begun / "snapshots", begun / "aside")
    with served(begun) as client:
        refused = client.request("GET", "/api/run")
        assert refused.status == 400 and "has no weights yet" in refused.json()["error"]["message"]
        assert client.request("GET", "/api/training?after=30").json()["curve"]["step"] == list(range(31, 41))
        shutil.move(begun / "aside", begun / "snapshots")
        facts = client.request("GET", "/api/run").json()
        assert facts["model"]["task"] == "classify"
        assert "word" in facts["start"][0]["text"], "a text of the data, as the run has no examples yet"
        assert client.request("GET", "/api/training").json()["snapshots"][1] == {"name": "step-00000016", "step": 16}


def test_an_empty_folder_is_waited_for(tmp_path: Path) -> None:
    with served(tmp_path) as client:
        assert client.request("GET", "/api/training").json()["state"] == "waiting"
    with pytest.raises(UsageError, match="has no weights yet"):
        Followed(tmp_path, CPU).subject()


def test_the_model_is_the_newest_and_stays_when_the_folder_goes(begun: Path, finished: Run) -> None:
    followed = Followed(begun, CPU)
    first = followed.subject()
    assert first is followed.subject()
    best = dict(finished.model.named_parameters())
    for name, parameter in first.model.named_parameters():
        assert torch.equal(parameter, best[name]), "the best weights of the newest checkpoint"
    shutil.copytree(finished.path / "model", begun / "model")
    assert followed.subject() is not first
    shutil.rmtree(begun)
    assert followed.subject().model is not None


def test_each_snapshot_answers(finished: Run) -> None:
    text = "good word1 and word2"
    names = ["step-00000000", "step-00000032", "model"]
    answers = [probe(finished, ProbeRequest(text, name)) for name in names]
    for name, answer in zip(names, answers, strict=True):
        explained = finished.explain(text, checkpoint=name)
        assert answer["headline"] == explained.answer["headline"]
        assert f"{100 * (answer['probability'] or 0):.1f}" in answer["detail"]
        shown = answer["map"]
        assert shown is not None and shown["rows"] == shown["columns"] == explained.streams[0].pieces
        expected = explained[shown["step"]].mean(axis=0)
        assert torch.allclose(torch.tensor(shown["weights"]), torch.tensor(expected), atol=6e-4)
    assert len({answer["probability"] for answer in answers}) == 3


def test_a_long_text_has_no_map(finished: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_MAP_TOKENS > 8
    monkeypatch.setattr("glassformer.explain.watch.probes.MAX_MAP_TOKENS", 3)
    assert probe(finished, ProbeRequest("good word1 and word2", "model"))["map"] is None


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
        ("without_any_border", "without_any_border"),
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
    followed = Followed(finished.path, finished.device)
    service, request = Service(followed), {"text": "a good film"}
    service.run()
    first = service.trace(request)["id"]
    service.run()
    assert service.trace(request)["id"] == first
    followed._model = None  # as where newer ones were saved
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


def test_a_folder_that_disappears(begun: Path) -> None:
    with served(begun) as client:
        client.request("GET", "/api/run")
        shutil.rmtree(begun)
        assert client.request("GET", "/api/training").json()["state"] == "gone"
        assert client.post("/api/probe", {"text": "a", "checkpoint": "step-00000016"}).status == 400


def test_a_replay_holds_curves_and_answers(finished: Run) -> None:
    html, lacks = replay_html(finished, Training(finished.path))
    data = Page(html).data()
    saved = data["training"]
    assert data["view"] == "#/training" and saved["now"]["curve"]["step"] == list(range(1, 41))
    names = [each["name"] for each in saved["now"]["snapshots"]] + ["model"]
    assert [(a["checkpoint"], a["text"]) for a in saved["answers"]] == [(n, t) for n in names for t in saved["texts"]]
    assert not any("Training" in sentence for sentence in lacks)
    _, lacks = replay_html(finished, Training(finished.path), seconds=-1.0)
    assert any("answers are left out" in sentence for sentence in lacks)


@pytest.mark.parametrize("name", ["classify", "translate", "lm", "pretrain"])
def test_every_task_is_followed_before_its_first_checkpoint(tmp_path: Path, name: str) -> None:
    """From what is written before the first step, and a snapshot."""
    task, folder = small(name).task, RunFolder(tmp_path / "run")
    folder.begin(task.config, {}, DataRecord(label_names=task.label_names), task.tokenizer)
    torch.manual_seed(0)
    model = task.build_model().eval()
    save_snapshot(folder.snapshots, 16, {name: p.detach() for name, p in model.named_parameters()})
    subject = Followed(folder.path, CPU).subject()
    assert type(subject.task) is type(task)
    for (_, got), (_, expected) in zip(subject.model.named_parameters(), model.named_parameters(), strict=True):
        assert torch.equal(got, expected)
    text = {"pretrain": "a b [MASK] c"}.get(name, "a b c")
    answer = probe(subject, ProbeRequest(text, "step-00000016"))
    assert answer["headline"] and answer["map"] is not None
    assert (answer["probability"] is None) == (name == "pretrain")
