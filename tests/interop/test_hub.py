"""A model by its name on the hub: from a local server that speaks its protocol, or one sentence why not."""

from __future__ import annotations

import json
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.hub import COMMIT, Hub, served
from tests.helpers.pretrained import bert_folder

import glassformer
from glassformer.errors import CheckpointError, DataError, GlassformerError, UsageError
from glassformer.interop import hub as module
from glassformer.interop import import_check

pytest.importorskip("huggingface_hub")
NAME = "lab/tiny-bert"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with a BERT, other files that are not fetched, and an empty cache."""
    monkeypatch.setattr(import_check, "_load", lambda *_: (_ for _ in ()).throw(OSError("left out")))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "lists"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.chdir(tmp_path)
    folder = bert_folder(tmp_path / "files", "bare")
    (folder / "README.md").write_text("---\nlicense: mit\nbase_model: lab/larger\n---\n", encoding="utf-8")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_max_tokens": true}', encoding="utf-8")
    (folder / "onnx").mkdir()
    for name in (
        "pytorch_model.bin",
        "modeling_evil.py",
        "onnx/model.onnx",
        "onnx/config.json",
        "model.fp16.safetensors",
    ):
        (folder / name).write_bytes(b"never fetched")
    with served(Hub(NAME, folder)) as one:
        monkeypatch.setenv("HF_ENDPOINT", one.url)
        yield one


def nothing_is_left(tmp_path: Path) -> None:
    assert not (tmp_path / "run").exists() and not [*(tmp_path / "temporary").iterdir()]
    assert not [*tmp_path.glob(".tmp-*")]


def test_a_model_is_fetched_by_its_name(hub: Hub, tmp_path: Path) -> None:
    run = glassformer.import_model(NAME, tmp_path / "run", revision="v1")
    again = glassformer.import_model(hub.folder, tmp_path / "by-hand")
    assert run.predict("a film") == again.predict("a film") and run.config.model.pooling == "max"
    record = json.loads((tmp_path / "run" / "import.json").read_text(encoding="utf-8"))
    assert (record["name"], record["revision"], record["license"]) == (NAME, COMMIT, "mit")
    assert record["files"] == json.loads((tmp_path / "by-hand" / "import.json").read_text("utf-8"))["files"]
    card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert f"\nlicense: mit\nbase_model: {NAME}\n" in card and COMMIT in card and "`lab/larger`" in card
    fetched = {path.rpartition("/")[2] for method, path in hub.seen if method == "GET" and "/api/" not in path}
    assert fetched == {"README.md", "config.json", "model.safetensors", "tokenizer.json"}
    assert not [path for path in (tmp_path / "run").rglob("*") if path.is_symlink()]
    assert not [*(tmp_path / "temporary").iterdir()]


def test_the_command_fetches_too_and_a_second_time_from_the_cache(
    hub: Hub, cli: Callable[..., Any], tmp_path: Path
) -> None:
    for name in ("first", "second"):
        done = cli("import", NAME, "--out", tmp_path / name, "--json", "--labels", "x,y")
        assert done.code == 0 and json.loads(done.out)["revision"] == COMMIT
    assert sum(path.startswith("/cdn/") and method == "GET" for method, path in hub.seen) == 1


def test_a_folder_of_the_same_name_comes_first(hub: Hub, tmp_path: Path) -> None:
    bert_folder(tmp_path / "lab" / "tiny-bert", "masked")
    assert glassformer.import_model(NAME, tmp_path / "run").task.name == "pretrain"
    assert not hub.seen
    with pytest.raises(UsageError, match="only those have a revision"):
        glassformer.import_model(NAME, tmp_path / "other", revision="main")


def refused(hub: Hub) -> None:
    hub.refuse = (500, "")


CASES: list[tuple[str, Callable[[Hub], Any], type[GlassformerError], str]] = [
    ("gated", lambda hub: setattr(hub, "refuse", (403, "GatedRepo")), UsageError, "granted access"),
    ("private", lambda hub: setattr(hub, "refuse", (401, "RepoNotFound")), UsageError, "or it is private"),
    ("an error of the server", refused, DataError, "answers 500"),
    ("another name", lambda hub: setattr(hub, "name", "lab/other"), UsageError, "no model of this name"),
    ("no such revision", lambda hub: setattr(hub, "revisions", ("main",)), UsageError, "no revision 'v1'"),
    ("too large", lambda hub: hub.sizes.update({"model.safetensors": 1 << 40}), CheckpointError, "more than 17,179"),
    (
        "a large tokenizer",
        lambda hub: hub.sizes.update({"tokenizer.json": 1 << 30}),
        CheckpointError,
        "tokenizer.json has",
    ),
    ("no size", lambda hub: hub.sizes.update({"config.json": None}), CheckpointError, "has no size"),
    (
        "a pickle alone",
        lambda hub: (hub.folder / "model.safetensors").unlink(),
        CheckpointError,
        "pytorch_model.bin alone",
    ),
    ("damaged weights", lambda hub: hub.damaged.add("model.safetensors"), DataError, "model.safetensors is not as"),
    ("damaged settings", lambda hub: hub.damaged.add("config.json"), DataError, "config.json is not as"),
]


@pytest.mark.parametrize(("case", "change", "kind", "words"), CASES, ids=[case for case, *_ in CASES])
def test_what_cannot_be_fetched_is_said_in_one_sentence(
    case: str, change: Callable[[Hub], Any], kind: type[GlassformerError], words: str, hub: Hub, tmp_path: Path
) -> None:
    change(hub)
    with pytest.raises(kind, match=words) as error:
        glassformer.import_model(NAME, tmp_path / "run", revision="v1")
    assert "\n" not in error.value.message and type(error.value) is kind
    assert not any(path.startswith("/cdn/") for _, path in hub.seen) or "weights" in case
    nothing_is_left(tmp_path)


def test_a_connection_that_ends_leaves_nothing(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda _: None)
    hub.cut.add("model.safetensors")
    with pytest.raises(DataError, match="cannot be fetched from the hub") as error:
        glassformer.import_model(NAME, tmp_path / "run")
    assert "\n" not in error.value.message
    nothing_is_left(tmp_path)


def test_without_a_server_one_sentence(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{port}")
    with pytest.raises(DataError, match="is no folder here, and cannot be fetched from the hub") as error:
        glassformer.import_model(NAME, tmp_path / "run")
    assert "\n" not in error.value.message and "network" in error.value.hint
    nothing_is_left(tmp_path)


def test_without_a_network_a_model_comes_from_the_cache(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = glassformer.import_model(NAME, tmp_path / "first")
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", unreachable)
    hub.seen.clear()
    second = glassformer.import_model(NAME, tmp_path / "second")
    assert not hub.seen and "those that were fetched before, at 0123456789ab" in caplog.text
    files = ("import.json", "model/model.safetensors", "model/README.md")
    assert all((tmp_path / "first" / f).read_bytes() == (tmp_path / "second" / f).read_bytes() for f in files)
    assert first.predict("a film") == second.predict("a film")
    with pytest.raises(DataError, match="cannot be fetched"):  # of another revision nothing is known
        glassformer.import_model(NAME, tmp_path / "run", revision="v1")
    [kept] = (tmp_path / "lists" / "hub-lists").iterdir()
    sound = kept.read_text(encoding="utf-8")
    for damaged in ("[]", "{}", sound.replace(COMMIT, "x"), sound.replace('"config.json"', '"../config.json"')):
        kept.write_text(damaged, encoding="utf-8")
        with pytest.raises(DataError, match="cannot be fetched"):
            glassformer.import_model(NAME, tmp_path / "run")
    kept.write_text(sound, encoding="utf-8")
    next((tmp_path / "cache").rglob("config.json")).unlink()
    with pytest.raises(DataError, match="cannot be fetched"):
        glassformer.import_model(NAME, tmp_path / "run")
    nothing_is_left(tmp_path)


def unreachable(*_: Any, **__: Any) -> None:
    raise ConnectionError("no route to host")


def test_without_the_library_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UsageError, match="needs the package huggingface_hub") as error:
        glassformer.import_model(NAME, tmp_path / "run")
    assert error.value.hint == 'install it: pip install "glassformer[hub]"'


@pytest.mark.parametrize("source", ["name", "a/b/c", "../x", "a/..", "/a/b", "a b/c", "-a/b"])
def test_what_is_no_name_is_a_folder(source: str) -> None:
    assert not module.is_hub_name(source)
