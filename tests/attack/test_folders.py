"""A folder of somebody else is refused with one kind of error, in bounded time and memory, or answers as it did."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.attack.conftest import TEXT, Victims
from tests.helpers.hostile import BYTES, Attack, file_attacks, forge, key_attacks, peak_bytes, query

MODEL = ["config.json", "model.safetensors", "tokenizer.json", "manifest.json", "README.md"]
RECORDS = ["evaluation.json", "data.json", "env.json", "metrics.jsonl"]
RUN = ["config.toml", "predictions.jsonl", "tokenizer.json", *RECORDS]
FAST = {"null", "-1", "10^35", "NaN", "long string", "array of arrays", "object of objects"}


def judge(victims: Victims, folder: Path, attacks: Iterable[Attack], *commands: str) -> Counter[int]:
    """Ask every command of every forged folder; return how often each exit code came."""
    codes: Counter[int] = Counter()
    broken = []
    for attack in attacks:
        forged = forge(victims.run, folder / "forged", attack, seal=True)
        for command in commands:
            arguments: dict[str, tuple[Any, ...]] = {
                "predict": (TEXT, "--json"),
                "explain": (TEXT, "--json"),
                "evaluate": ("--test-file", victims.table, "--json"),
                "compare": (victims.run,),
            }
            answer = query(command, forged, *arguments.get(command, ()))
            codes[answer.code] += 1
            # Of the configuration a forger chooses what it says: labels that a file of texts does not hold (3), or
            # a scale at which all logits are NaN (5).
            of_its_own = attack.file == "model/config.json" and (
                (answer.code, command) == (3, "evaluate") or (answer.code == 5 and "NaN" in answer.err)
            )
            if not (answer.code in (0, 4) or of_its_own) or (answer.code == 4 and "bug" in answer.err):
                broken.append(f"{command}, {attack}: exit {answer.code}, {answer.err.strip()[-200:]}")
            # Of the configuration a forger chooses what it says; all else is either refused or has no effect.
            same = answer.out == victims.answer.out or attack.file == "model/config.json"
            if answer.code == 0 and command == "predict" and not same:
                broken.append(f"{command}, {attack}: another answer, {answer.out[:200]}")
    assert not broken, "\n".join(broken)
    assert peak_bytes() < BYTES
    return codes


def record(victims: Victims, file: str) -> Any:
    text = (victims.run / file).read_text("utf-8")
    return json.loads(text.split("\n")[0] if file.endswith(".jsonl") else text)


@pytest.mark.parametrize("file", MODEL)
def test_every_file_of_a_model_is_refused_or_does_not_matter(victims: Victims, tmp_path: Path, file: str) -> None:
    codes = judge(victims, tmp_path, file_attacks(f"model/{file}"), "predict")
    assert file == "README.md" or codes[0] == 0


@pytest.mark.parametrize("file", RUN)
def test_every_file_of_a_run_is_refused_or_does_not_matter(victims: Victims, tmp_path: Path, file: str) -> None:
    judge(victims, tmp_path, file_attacks(file), "doctor", "compare")


@pytest.mark.parametrize("file", RECORDS)
def test_records_of_other_types_are_refused(victims: Victims, tmp_path: Path, file: str) -> None:
    attacks = key_attacks(file, record(victims, file), depth=1)
    values = [attack for attack in attacks if attack.name.split(" = ")[-1] in FAST]
    codes = judge(victims, tmp_path, values, "doctor")
    # Versions and machine are not read, and lines of the log that are damaged are left out and counted.
    assert codes[4] > 0 or file in ("env.json", "metrics.jsonl"), "none is refused"


def test_a_model_configuration_of_other_types_is_refused(victims: Victims, tmp_path: Path) -> None:
    attacks = key_attacks("model/config.json", record(victims, "model/config.json"), depth=1)
    assert judge(victims, tmp_path, attacks, "predict")[4] > 0


@pytest.mark.slow
def test_every_key_of_every_record(victims: Victims, tmp_path: Path) -> None:
    codes: Counter[int] = Counter()
    for file in RECORDS:
        attacks = key_attacks(file, record(victims, file), depth=3)
        codes += judge(victims, tmp_path, attacks, "doctor", "compare")
    config = key_attacks("model/config.json", record(victims, "model/config.json"), depth=2)
    codes += judge(victims, tmp_path, config, "predict", "evaluate")
    tokenizer = key_attacks("model/tokenizer.json", record(victims, "model/tokenizer.json"), depth=3)
    codes += judge(victims, tmp_path, list(tokenizer)[::3], "predict")
    for file in ("config.toml", *MODEL):
        attacks = file_attacks(file if file == "config.toml" else f"model/{file}")
        codes += judge(victims, tmp_path, attacks, "predict", "evaluate", "explain")
    print(f"{codes.total()} commands on forged folders: {codes[0]} as before, {codes[4]} refused")
