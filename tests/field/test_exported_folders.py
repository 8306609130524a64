"""Exported folders beside runs: texts that are cut are marked and counted, and commands that need a run say so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.helpers.hostile_exports import KINDS, write_export

from glassformer.cli.main import main
from glassformer.interop.exported import load_exported

LONG = {"translate": "abcdefg" * 30, "lm": "refund goods " * 30, "classify": "the good refund " * 40}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_export("ctranslate2-translator", tmp_path_factory.mktemp("exported") / "out")


SOME = [name for name in KINDS if not name.startswith("onnx")]


@pytest.mark.parametrize("name", SOME)
def test_a_text_that_is_cut_is_marked_and_counted(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    out, task = write_export(name, tmp_path / "out"), KINDS[name][0]
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
    command: list[str], folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "table.csv"
    table.write_text("text,label\n" + "".join(f"text {i},{'ab'[i % 2]}\n" for i in range(40)), encoding="utf-8")
    places = {"EXPORTED": str(folder), "OTHER": str(tmp_path / "other"), "TABLE": str(table)}
    words = [word.replace("EXPORTED", str(folder)) for word in command]
    code = main([places.get(word, word) for word in words])
    message = capsys.readouterr().err
    assert code in (2, 4) and "export" in message and str(folder) in message, message
    assert "glassformer predict" in message or "--precision" in message, message
    assert not (tmp_path / "other").exists()
