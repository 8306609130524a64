"""Exported folders of others: no code runs, nothing is asked, and what is wrong ends with exit code 4 in bounded time.

The fuzz over every file of every kind is slow, and a part of it is not.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.exports import run_of
from tests.helpers.hostile_exports import (
    KINDS,
    change_json,
    changed_documents,
    copy_of,
    damaged_files,
    hostile_run,
    reseal,
    write_export,
)

from glassformer.cli.main import main
from glassformer.errors import CheckpointError
from glassformer.interop.export import export
from glassformer.interop.export_facts import FACTS
from glassformer.interop.exported import load_exported
from glassformer.runs.sealed_folder import MANIFEST

SOME = [name for name in KINDS if not name.startswith("onnx")]
FAST = ("ctranslate2-translator", "ctranslate2-lm")


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Exports that are made at their first use."""

    class Made(dict[str, Path]):
        def __missing__(self, name: str) -> Path:
            self[name] = write_export(name, tmp_path_factory.mktemp("exports") / name)
            return self[name]

    return Made()


class Evil:
    """Something whose unpickling leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


def test_code_in_a_folder_is_never_run(
    exports: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, mark = copy_of(exports["hf-lm"], tmp_path / "out"), tmp_path / "mark"
    auto_map = dict.fromkeys(("AutoConfig", "AutoModelForCausalLM", "AutoTokenizer"), "modeling_evil.C")
    for where in ("config.json", "generation_config.json"):
        change_json(folder / where, lambda config: config | {"model_type": "evil", "auto_map": auto_map})
    for file in ("modeling_evil.py", "custom_generate/generate.py"):
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(f"import os\nos.mkdir({str(mark)!r})\n", encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"y\n" * 1000)))  # yes to every question
    codes = {main(["predict", str(folder), "a"])}
    reseal(folder)  # what the manifest does not name is not read either
    codes.add(main(["predict", str(folder), "a"]))
    captured = capsys.readouterr()
    assert codes == {4} and not mark.exists() and "[y/N]" not in captured.out + captured.err


def test_a_pickle_is_never_opened(exports: dict[str, Path], tmp_path: Path) -> None:
    file = "pytorch_model.bin"
    folder, mark = copy_of(exports["hf-lm"], tmp_path / "out"), tmp_path / "mark"
    (folder / "model.safetensors").unlink()
    (folder / file).write_bytes(pickle.dumps(Evil(mark)))
    reseal(folder)
    assert main(["predict", str(folder), "a"]) == 4 and not mark.exists()
    # Under the right name it is no safetensors file.
    (folder / file).rename(folder / "model.safetensors")
    reseal(folder)
    assert main(["predict", str(folder), "a"]) == 4 and not mark.exists()


@pytest.mark.parametrize(
    "change",
    [
        {"transformers_weights": "../other.safetensors"},
        {"quantization_config": {"quant_method": "bitsandbytes"}},
        {"attn_implementation": "someone/kernel"},
        {"rope_parameters": {"rope_type": "longrope", "rope_theta": 1.0}},
        {"hidden_act": "someone/kernel"},
        {"num_hidden_layers": 10**9},
        {"max_position_embeddings": -1},
    ],
    ids=str,
)
def test_settings_of_transformers_are_those_of_exports(
    change: dict[str, Any], exports: dict[str, Path], tmp_path: Path
) -> None:
    folder = copy_of(exports["hf-lm"], tmp_path / "out")
    change_json(folder / "config.json", lambda config: config | change)
    reseal(folder)
    assert main(["predict", str(folder), "a"]) == 4


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "__class__"},
        {"kind": "classifier"},
        {"target": ["hf"]},
        {"context": -5},
        {"max_len": "64"},
        {"max_len": 0},
        {"decode": {"beam_size": 10**6}},
        {"decode": {"unknown": 1}},
        {"labels": [{}]},
        {"labels": ["a", "a"]},
        {"check": {"equal_answers": "1"}},
        {"truncate": "middle"},
    ],
    ids=str,
)
def test_values_of_the_description_have_their_types(
    change: dict[str, Any], exports: dict[str, Path], tmp_path: Path
) -> None:
    folder = copy_of(exports["ctranslate2-translator"], tmp_path / "out")
    change_json(folder / FACTS, lambda facts: facts | change)
    reseal(folder)
    assert main(["predict", str(folder), "a"]) == 4


@pytest.mark.parametrize("name", ["ctranslate2-translator", "ctranslate2-lm"])
def test_a_vocabulary_is_that_of_the_tokenizer(name: str, exports: dict[str, Path], tmp_path: Path) -> None:
    for i, change in enumerate((lambda v: [], lambda v: v[:-1], lambda v: [*v, "x"], lambda v: {}, lambda v: [1] * 5)):
        folder = copy_of(exports[name], tmp_path / str(i))
        [vocabulary] = folder.glob("*vocabulary.json")
        change_json(vocabulary, change)
        reseal(folder)
        assert main(["predict", str(folder), "a"]) == 4


@pytest.mark.parametrize("name", SOME)
def test_weights_of_another_model_are_refused(name: str, exports: dict[str, Path], tmp_path: Path) -> None:
    """Every token of the tokenizer has a row, and each file is what its header says."""
    weights = {"ctranslate2": "model.bin", "hf": "model.safetensors"}[KINDS[name][3]]
    for i, change in enumerate((lambda d: d[:-8], lambda d: d + b"\0" * 8, lambda d: d[:12] + b"\xff" * 8 + d[20:])):
        folder = copy_of(exports[name], tmp_path / str(i))
        (folder / weights).write_bytes(change((folder / weights).read_bytes()))
        reseal(folder)
        assert main(["predict", str(folder), "a"]) == 4


def _fuzz(folder: Path, tmp_path: Path, some: int) -> tuple[int, list[str]]:
    """Try every change of every file of an export; return their number, and those that end otherwise."""
    wrong, n = list[str](), 0
    for path in sorted(folder.iterdir()):
        changes: list[tuple[str, Any, bool]] = []
        if path.suffix == ".json" and path.name != MANIFEST:
            documents = list(changed_documents(path.read_text(encoding="utf-8")))
            changes += [(name, text, True) for name, text in documents]
        changes += list(damaged_files(path, tmp_path / "nothing"))
        for name, change, sums in changes[::some]:
            n += 1
            out = copy_of(folder, tmp_path / f"{path.stem}{n}")
            if isinstance(change, str):
                (out / path.name).write_text(change, encoding="utf-8")
            else:
                [change] = [do for its, do, _ in damaged_files(out / path.name, tmp_path / "nothing") if its == name]
                change()
            if path.name != MANIFEST:
                reseal(out, sums)
            code = main(["predict", str(out), "a b"])
            if code not in (0, 4):
                wrong.append(f"{path.name}: {name}: exit {code}")
    return n, wrong


@pytest.mark.parametrize("name", FAST)
def test_some_changes_of_every_file_end_with_an_error(name: str, exports: dict[str, Path], tmp_path: Path) -> None:
    n, wrong = _fuzz(exports[name], tmp_path, 61)
    assert n > 5 and not wrong


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_every_change_of_every_file_ends_with_an_error(name: str, exports: dict[str, Path], tmp_path: Path) -> None:
    n, wrong = _fuzz(exports[name], tmp_path, 1)
    assert n > 100 and not wrong


def test_a_failed_export_leaves_nothing_and_a_killed_one_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, out = hostile_run("ctranslate2-translator", monkeypatch), tmp_path / "out"

    def fails(*_: object) -> None:
        raise CheckpointError("the comparison failed")

    with monkeypatch.context() as patch:
        patch.setattr("glassformer.interop.export.check_export", fails)
        with pytest.raises(CheckpointError, match="comparison failed"):
            export(run, "ctranslate2", out)
    assert not [*tmp_path.iterdir()]
    process = os.fork()
    if process == 0:
        os._exit(0)
    os.waitpid(process, 0)  # its number is that of no process now
    dead, others = tmp_path / f".tmp-out-{process}-0", [tmp_path / f".tmp-out-{os.getppid()}-0", tmp_path / ".tmp-o"]
    for folder in (dead, *others):
        (folder / "inner").mkdir(parents=True)
    out.mkdir()  # an empty folder is as good as none
    monkeypatch.setattr("glassformer.interop.export.check_export", lambda *_: "not checked: by this test")
    export(run, "ctranslate2", out)
    assert load_exported(out).facts.target == "ctranslate2"
    assert {*tmp_path.iterdir()} == {out, *others}


LONG = {"translate": "abcdefg" * 30, "lm": "refund goods " * 30, "classify": "the good refund " * 40}


@pytest.mark.parametrize("name", SOME)
def test_a_text_that_is_cut_is_marked_and_counted(
    name: str, exports: dict[str, Path], caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    out, task = exports[name], KINDS[name][0]
    texts, options = (
        [LONG[task], "a", LONG[task], ""],
        {} if task == "classify" else {"max_new_tokens": 2, "temperature": 0.0},
    )
    model = load_exported(out)
    answers = model.predict(texts, **options)
    assert [answer.get("truncated", False) for answer in answers] == [True, False, True, False]
    most = model.facts.context if task == "lm" else model.facts.max_len
    assert f"2 of 4 texts are longer than {most} tokens, and cut" in caplog.messages
    caplog.clear()
    assert [*model.predict_stream(iter(texts), **options)] == answers
    assert [line for line in caplog.messages if "cut" in line] == [
        f"2 of 4 texts are longer than {most} tokens, and cut"
    ]
    capsys.readouterr()
    flags = [f"--{key.replace('_', '-')}={value}" for key, value in options.items()]
    assert main(["predict", str(out), *texts[:2], "--json", *flags]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row.get("truncated", False) for row in rows] == [True, False]


@pytest.mark.parametrize(
    "command",
    [
        ["explain", "EXPORTED", "abc"],
        ["evaluate", "EXPORTED"],
        ["export", "EXPORTED", "OTHER", "--to", "onnx"],
        ["doctor", "EXPORTED"],
        ["compare", "EXPORTED", "EXPORTED"],
        ["train", "--resume", "EXPORTED"],
        ["train", "classify", "--init-from", "EXPORTED", "--train-file", "TABLE", "--out", "OTHER"],
        ["train", "translate", "--init-from", "EXPORTED", "--train-file", "TABLE", "--out", "OTHER"],
        ["predict", "EXPORTED,EXPORTED", "abc"],
        ["predict", "EXPORTED", "abc", "--precision", "bf16"],
    ],
    ids=" ".join,
)
def test_commands_that_need_a_run_name_the_exported_folder(
    command: list[str], exports: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = exports["ctranslate2-translator"]
    table = tmp_path / "table.csv"
    table.write_text("text,label\n" + "".join(f"text {i},{'ab'[i % 2]}\n" for i in range(40)), encoding="utf-8")
    places = {"EXPORTED": str(folder), "OTHER": str(tmp_path / "other"), "TABLE": str(table)}
    words = [word.replace("EXPORTED", str(folder)) for word in command]
    code = main([places.get(word, word) for word in words])
    message = capsys.readouterr().err
    assert code in (2, 4) and "export" in message and str(folder) in message, message
    assert "glassformer predict" in message or "--precision" in message, message
    assert not (tmp_path / "other").exists()


def test_a_greedy_score_is_that_of_the_run(exports: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Transformers gives logits there, which were summed as if they were log-probabilities."""
    run = run_of("translate", monkeypatch)
    options: dict[str, Any] = {"beam_size": 1, "max_new_tokens": 5}
    for length_penalty in (0.0, 1.0):
        ours = run.predict(["abc", "gfedcba"], length_penalty=length_penalty, **options)
        theirs = load_exported(exports["hf-translator"]).predict(
            ["abc", "gfedcba"], length_penalty=length_penalty, **options
        )
        assert [a["translation"] for a in ours] == [a["translation"] for a in theirs]
        assert [a["score"] for a in theirs] == pytest.approx([a["score"] for a in ours], abs=1e-4)
