"""`lm` on own text in any script: nothing is unknown, nothing is lost, and every character is scored."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import glassformer
from glassformer.config import DataConfig, FilesConfig

SCRIPTS = {
    "Chinese": "今天天气很好，我们去公园散步。",
    "Japanese": "今日は天気がいいので、公園を散歩します。",
    "Thai": "วันนี้อากาศดีเราไปเดินเล่นในสวน",
    "Arabic": "الطقس جميل اليوم، لنذهب إلى الحديقة.",
    "Hindi": "आज मौसम अच्छा है, हम पार्क चलते हैं।",
    "Russian": "Сегодня хорошая погода, идём в парк.",
    "emoji": "🌞👩‍👩‍👧🏞️ 🇯🇵 👍🏽",
}
TINY = {
    "model": {"n_layers": 1, "d_model": 32, "n_heads": 2, "d_ff": 64},
    "text": {"vocab_size": 300, "max_len": 40},
    "steps": 12,
    "device": "cpu",
    "precision": "fp32",
}


@pytest.fixture(scope="module")
def english(tmp_path_factory: pytest.TempPathFactory) -> glassformer.Run:
    """A model that has read nothing but English."""
    folder = tmp_path_factory.mktemp("english")
    (folder / "book.txt").write_text("The weather is fine today, let us walk in the park.\n" * 40, "utf-8")
    patch = pytest.MonkeyPatch()
    patch.setenv("GLASSFORMER_CACHE", str(folder / "cache"))
    run = glassformer.train("lm", out=folder / "run", train_file=folder / "book.txt", **TINY)
    patch.undo()
    return run


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_it_never_saw_is_scored_whole(name: str, english: glassformer.Run, tmp_path: Path) -> None:
    text, tokenizer = SCRIPTS[name] * 5, english.task.tokenizer
    ids = tokenizer.encode(text)
    assert tokenizer.unk_id not in ids and tokenizer.decode(ids) == text
    test_file = tmp_path / "test.txt"
    test_file.write_text(text, "utf-8")
    scores = english.evaluate(data=DataConfig(dataset="files", files=FilesConfig(test_file=str(test_file))))
    assert (scores["n_chars"], scores["n_bytes"]) == (len(text), len(text.encode()))
    assert scores["n"] == len(ids) - 1, "every token but the very first"
    assert math.isfinite(scores["bits_per_byte"]) and "notes" not in scores, "bits per character compare"


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_prompt_in_any_script_is_continued(name: str, english: glassformer.Run) -> None:
    answer = english.predict(SCRIPTS[name], max_new_tokens=5)
    assert answer["prompt"] == SCRIPTS[name] and answer["text"]


def test_all_of_them_mixed_can_be_learned_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "cache"))
    book = tmp_path / "mixed.txt"
    book.write_text("\n".join(SCRIPTS.values()) * 20, "utf-8")
    run = glassformer.train("lm", out=tmp_path / "run", train_file=book, **TINY)
    everything = "".join(SCRIPTS.values())
    assert run.task.tokenizer.decode(run.task.tokenizer.encode(everything)) == everything
