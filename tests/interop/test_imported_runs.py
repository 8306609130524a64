"""What the commands of runs say of an imported run, and of the folder it came from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.for_each import for_each
from tests.helpers.pretrained import POSITIONS, bert_folder

import glassformer
from glassformer.errors import DataError, UsageError
from glassformer.interop.sources import read_source

pytestmark = pytest.mark.usefixtures("unchecked")


def test_commands_that_need_a_training_say_that_there_was_none(cli: Callable, tmp_path: Path) -> None:
    run = str(glassformer.import_model(bert_folder(tmp_path / "source"), tmp_path / "run").path)
    done = cli("doctor", run)
    assert done.code == 0 and "(no log is here, only a model)" in done.out
    for command in (["train", "--resume", run], ["compare", run, run]):
        done = cli(*command)
        assert done.code == 4 and not done.out, command
        assert f"{run} holds no run" in done.err and "an import" in done.err and "--init-from" in done.err, command
    done = cli("evaluate", run)
    assert done.code == 3 and "holds a model that has no data of its own" in done.err and "--test-file" in done.err
    with pytest.raises(DataError, match="has no data of its own"):
        glassformer.load(run).evaluate()


def test_the_folder_of_another_library_is_to_be_imported_first(cli: Callable, tmp_path: Path) -> None:
    source = str(bert_folder(tmp_path / "source"))
    (tmp_path / "t.csv").write_text("text,label\n" + "a,x\nb,y\n" * 20)
    begin = ["train", "classify", "--train-file", str(tmp_path / "t.csv"), "--init-from", source]
    for command in (["predict", source, "x"], ["explain", source, "x", "--json"], ["evaluate", source], begin):
        done = cli(*command)
        assert done.code == 4 and "is a model of another library" in done.err, command
        assert f"import it: glassformer import {source}" in done.err, command


def test_an_answer_counts_the_tokens_that_are_unknown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    texts = ["zebra film quux", "the film", "zebra " * 9 * POSITIONS]
    for form in ("classify", "bare", "masked"):
        run = glassformer.import_model(bert_folder(tmp_path / form, form), tmp_path / f"run-{form}")
        caplog.clear()
        answers = run.predict(texts)
        n = 9 * POSITIONS if form == "masked" else POSITIONS - 2  # of a text that is cut only what is read counts
        assert [answer.get("unknown") for answer in answers] == [2, None, n]
        assert f"2 of 3 texts are read with {2 + n} tokens unknown to the model" in caplog.messages
        caplog.clear()
        assert [answer.get("unknown") for answer in run.predict_stream(texts[:2])] == [2, None]
        assert "1 of 2 texts is read with 2 tokens unknown to the model" in caplog.messages


@for_each(
    ("longest", "expected"), [(16, 16), (POSITIONS, POSITIONS), (512, POSITIONS), (2, POSITIONS), ("9", POSITIONS)]
)
def test_the_longest_text_is_that_of_the_sentence_encoder(longest: Any, expected: int, tmp_path_factory: Any) -> None:
    source = bert_folder(tmp_path_factory.mktemp("longest") / "source", "bare")
    (source / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": longest}))
    found = read_source(source)
    assert found.max_len == expected and any("max_seq_length" in note for note in found.notes) == (expected == 16)
    assert read_source(source, max_len=20).max_len == 20


@for_each("longest", [1, 2])
def test_a_text_has_room_beside_what_is_around_it(longest: int, tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.mktemp("room")
    with pytest.raises(UsageError, match=f"max_len {longest} leaves 0 tokens for a text, which has 2") as refused:
        glassformer.import_model(bert_folder(folder / "source", "bare"), folder / "run", max_len=longest)
    assert refused.value.hint == "use max_len=3 or more" and not (folder / "run").exists()
    run = glassformer.import_model(folder / "source", folder / "run", max_len=3)
    assert run.predict("the film") != run.predict("film")


def test_an_export_that_is_not_read_again_is_named_so(tmp_path: Path) -> None:
    for name in ("glassformer.json", "manifest.json"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(UsageError, match="is an export to a form that is not read again"):
        read_source(tmp_path)


def test_auto_resume_needs_no_source_of_a_run_that_began(cli: Callable, tmp_path: Path) -> None:
    begin = glassformer.import_model(bert_folder(tmp_path / "source", "bare"), tmp_path / "base").path
    rows = "".join(f"the film {i},{'ab'[i % 2]}\n" for i in range(40))
    (tmp_path / "t.csv").write_text(f"text,label\n{rows}")
    out = str(tmp_path / "run")
    flags = ["--train-file", str(tmp_path / "t.csv"), "--out", out, "--steps", "2", "--threads", "1", "--auto-resume"]
    command = ["train", "classify", "--init-from", str(begin), *flags]

    def stop(step: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        settings: dict[str, Any] = {"train_file": str(tmp_path / "t.csv"), "steps": 2, "threads": 1}
        glassformer.train("classify", out=out, init_from=str(begin), on_step=stop, **settings)
    shutil.rmtree(begin)
    done = cli(*command)
    assert done.code == 0 and "accuracy" in done.out and "holds a run: resuming it" in done.err
