"""Exported folders of others: no code runs, nothing is asked, and what is wrong ends with exit code 4 in bounded time.

The fuzz over every file of every kind is slow, and a part of it is not.
"""

import io
import json
import os
import pickle
import shutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.exports import WORDS, run_of
from tests.helpers.hostile import Attack, edit_json, file_attacks, forge, key_attacks, query, reseal

from glassformer.cli.main import main
from glassformer.errors import CheckpointError
from glassformer.interop.export_facts import FACTS
from glassformer.interop.exported import load_exported
from glassformer.interop.transfer import export
from glassformer.runs.sealed_folder import MANIFEST

BYTES = {"tokenizer": "byte-bpe", "vocab_size": 300, "max_len": 32}
LLAMA = {"norm": "rms", "activation": "swiglu", "positions": "rotary", "bias": False}
LLAMA |= {"d_model": 64, "n_heads": 2, "d_ff": 96}
KINDS: dict[str, tuple[str, dict[str, Any], dict[str, Any], Any]] = {
    "ctranslate2-translator": ("translate", {}, {}, "ctranslate2"),
    "ctranslate2-lm": ("lm", BYTES, LLAMA, "ctranslate2"),
    "hf-lm": ("lm", BYTES, LLAMA, "hf"),
    "hf-translator": ("translate", {}, {}, "hf"),
    "onnx-classifier": ("classify", WORDS, {}, "onnx"),
}
"""Task, settings of the tokenizer and of the model, and library, by name."""
FAST = ("ctranslate2-translator", "ctranslate2-lm")


def unchecked(name: str, out: Path, patch: pytest.MonkeyPatch) -> Path:
    """Export a run of random weights without comparing it, which would take most of the time."""
    task, text, model, target = KINDS[name]
    patch.setattr("glassformer.interop.transfer.check_export", lambda *_: "not checked: by this test")
    export(run_of(task, patch, text, **model), target, out)
    return out


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Exports that are made at their first use."""

    @cache
    def made(name: str) -> Path:
        with pytest.MonkeyPatch.context() as patch:
            return unchecked(name, tmp_path_factory.mktemp("exports") / name, patch)

    return made


class Evil:
    """Something whose unpickling leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


def test_code_in_a_folder_is_never_run(exports, tmp_path, monkeypatch, capsys):
    folder, mark = shutil.copytree(exports("hf-lm"), tmp_path / "out"), tmp_path / "mark"
    auto_map = dict.fromkeys(("AutoConfig", "AutoModelForCausalLM", "AutoTokenizer"), "modeling_evil.C")
    for file in ("config.json", "tokenizer_config.json", "generation_config.json"):
        edit_json(folder / file, lambda config: config.update(auto_map=auto_map))
    for file in ("modeling_evil.py", "custom_generate/generate.py"):
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(f"import os\nos.mkdir({str(mark)!r})\n", "utf-8")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"y\n" * 1000)))  # a yes to every question
    codes = set[int]()
    for seals_all in (True, False):  # what the manifest does not name is not read either
        if not seals_all:
            reseal(folder)
            manifest = json.loads((folder / MANIFEST).read_bytes())
            assert "modeling_evil.py" in manifest["files"]
        codes.add(main(["predict", str(folder), "a"]))
    captured = capsys.readouterr()
    assert codes == {4} and not mark.exists() and "[y/N]" not in captured.out + captured.err


def test_a_pickle_is_never_opened(exports, tmp_path):
    folder, mark = shutil.copytree(exports("hf-lm"), tmp_path / "out"), tmp_path / "mark"
    (folder / "model.safetensors").unlink()
    for file in ("pytorch_model.bin", "model.bin", "model.safetensors"):
        (folder / file).write_bytes(pickle.dumps(Evil(mark)))
        reseal(folder)
        assert main(["predict", str(folder), "a"]) == 4 and not mark.exists()
        (folder / file).unlink()


VALUES: dict[str, list[Any]] = {
    "kind": ["__class__", ["language_model"], "translator"],
    "target": [["hf"]],
    "context": [-5],
    "max_len": ["64", 0],
    "decode": [{"beam_size": 10**6}, {"unknown": 1}],
    "labels": [[{}], ["a", "a"]],
    "check": [{"equal_answers": "1"}],
    "dtype": ["float1"],
    "truncate": ["middle"],
}


@pytest.mark.parametrize("key", VALUES)
def test_values_of_the_description_have_their_types(key, exports, tmp_path):
    for i, value in enumerate(VALUES[key]):
        folder = shutil.copytree(exports("ctranslate2-lm"), tmp_path / str(i))
        edit_json(folder / FACTS, lambda facts, value=value: facts.update({key: value}))
        reseal(folder)
        assert main(["predict", str(folder), "a"]) == 4, value


@pytest.mark.parametrize("name", ["ctranslate2-translator", "ctranslate2-lm"])
def test_a_vocabulary_is_that_of_the_tokenizer(name, exports, tmp_path):
    for i, change in enumerate((lambda v: [], lambda v: v[:-1], lambda v: [*v, "x"], lambda v: {}, lambda v: [1] * 5)):
        folder = shutil.copytree(exports(name), tmp_path / str(i))
        [vocabulary] = folder.glob("*vocabulary.json")
        vocabulary.write_text(json.dumps(change(json.loads(vocabulary.read_text("utf-8")))), "utf-8")
        reseal(folder)
        assert main(["predict", str(folder), "a"]) == 4


ALL = [pytest.param(name, 1, marks=pytest.mark.slow) for name in KINDS]


@pytest.mark.parametrize(("name", "some"), [*((name, 61) for name in FAST), *ALL])
def test_changes_of_every_file_end_with_an_error(name, some, exports, tmp_path):
    """Every change in the slow test, some otherwise."""
    attacks, wrong = list[Attack](), list[str]()
    for path in sorted(exports(name).iterdir()):
        attacks += file_attacks(path.name)
        if path.suffix == ".json" and path.name != MANIFEST:
            attacks += key_attacks(path.name, json.loads(path.read_bytes()), depth=1)
    for attack in attacks[::some]:
        code = query("predict", forge(exports(name), tmp_path / "forged", attack, seal=True), "a b").code
        wrong += [f"{attack}: exit {code}"] if code not in (0, 4) else []
    assert len(attacks) > 300 and not wrong


def test_a_failed_export_leaves_nothing(tmp_path, monkeypatch):
    run, out = run_of("translate", monkeypatch), tmp_path / "out"

    def fails(*_: object) -> None:
        raise CheckpointError("the comparison failed")

    with monkeypatch.context() as patch:
        patch.setattr("glassformer.interop.transfer.check_export", fails)
        with pytest.raises(CheckpointError, match="comparison failed"):
            export(run, "ctranslate2", out)
    assert not [*tmp_path.iterdir()]
    out.mkdir()  # an empty folder is as good as none
    unchecked("ctranslate2-translator", out, monkeypatch)
    assert load_exported(out).facts.target == "ctranslate2" and [*tmp_path.iterdir()] == [out]


@pytest.mark.parametrize("name", [name for name in KINDS if not name.startswith("onnx")])
def test_a_text_that_is_cut_is_marked_and_counted(name, exports, caplog):
    task, model = KINDS[name][0], load_exported(exports(name))
    long = {"translate": "abcdefg" * 30, "lm": "refund goods " * 30}[task]
    texts, options = [long, "a", long, ""], {"max_new_tokens": 2, "temperature": 0.0}
    answers = model.predict(texts, **options)
    assert [answer.get("truncated", False) for answer in answers] == [True, False, True, False]
    most = model.facts.context if task == "lm" else model.facts.max_len
    assert [*model.predict_stream(iter(texts), **options)] == answers
    counted = [f"2 of 4 texts are longer than {most} tokens, and cut"] * 2  # of each
    assert [line for line in caplog.messages if "cut" in line] == counted


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
def test_commands_that_need_a_run_name_the_exported_folder(command, exports, tmp_path, cli, runs):
    folder = exports("ctranslate2-translator")
    places = {"EXPORTED": str(folder), "OTHER": str(tmp_path / "other"), "TABLE": runs.table}
    words = [word.replace("EXPORTED", str(folder)) for word in command]
    refused = cli(*(places.get(word, word) for word in words))
    message = refused.err
    assert refused.code in (2, 4) and "export" in message and str(folder) in message, message
    assert "glassformer predict" in message or "--precision" in message, message
    assert not (tmp_path / "other").exists()
