"""The recipe for own texts learns in any script, and nothing is lost of a character it has never seen."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
from tests.helpers.for_each import for_each

import glassformer
from glassformer.config import DataConfig, TextConfig
from glassformer.text.tokenizer import Tokenizer

SCRIPTS = ["今日は天気がいいので、公園を散歩します。", "الطقس جميل اليوم، لنذهب إلى الحديقة.", "🌞👩‍👩‍👧🏞️ 🇯🇵 👍🏽"]


def test_a_script_it_never_saw_is_scored_whole_and_continued(tmp_path: Path) -> None:
    """By a model that has read nothing but English."""
    book, test = tmp_path / "book.txt", tmp_path / "test.txt"
    book.write_text("The weather is fine today, let us walk in the park.\n" * 40, "utf-8")
    small: dict[str, Any] = {"model": {"n_layers": 1, "d_model": 32, "n_heads": 2, "d_ff": 64}, "steps": 12}
    small |= {"text": {"vocab_size": 300, "max_len": 40}, "precision": "fp32"}
    run = glassformer.train("lm", out=tmp_path / "run", train_file=book, **small)
    tokenizer = run.task.tokenizer
    for script in SCRIPTS:
        ids = tokenizer.encode(text := script * 5)
        assert tokenizer.unk_id not in ids and tokenizer.decode(ids) == text
        test.write_text(text, "utf-8")
        scores = run.evaluate(data=DataConfig(dataset="files", test_file=str(test)))
        assert (scores["n_chars"], scores["n_bytes"]) == (len(text), len(text.encode()))
        assert scores["n"] == len(ids) - 1, "every token but the very first"
        assert math.isfinite(scores["bits_per_byte"]) and "notes" not in scores, "bits per character compare"
        answer = run.predict(script, max_new_tokens=5)
        assert answer["prompt"] == script and answer["text"]


PHRASES = {
    "English": ("loved it|a joy|well made|so funny|great cast", "hated it|a bore|badly made|not funny|awful cast"),
    "中文": ("非常好看|演员很棒|值得再看|感动极了|剧情精彩", "非常难看|演员很差|浪费时间|无聊透顶|剧情混乱"),
    "العربية": ("أحببته كثيرا|ممتع حقا|تمثيل رائع|قصة جميلة", "كرهته كثيرا|ممل حقا|تمثيل سيئ|قصة فارغة"),
}
"""Phrases of praise and of blame in three scripts."""


def write_reviews(path: Path, n: int, seed: int) -> Path:
    """Reviews of two or three phrases of one kind; scripts without spaces have none."""
    rng = np.random.default_rng(seed)
    with open(path, "w", encoding="utf-8", newline="") as out:
        rows = csv.writer(out)
        rows.writerow(["text", "label"])
        for _ in range(n):
            language, label = [*PHRASES][rng.integers(3)], int(rng.integers(2))
            phrases = rng.permutation(PHRASES[language][1 - label].split("|"))[: rng.integers(2, 4)]
            rows.writerow([("" if language == "中文" else ", ").join(phrases), ("bad", "good")[label]])
    return path


def test_reviews_of_a_few_phrases_are_learned_in_all_scripts_at_once(tmp_path: Path) -> None:
    files = {
        name: str(write_reviews(tmp_path / f"{name}.csv", n, n))
        for name, n in (("train_file", 300), ("valid_file", 80))
    }
    small: dict[str, Any] = {"steps": 60, "d_model": 32, "ngrams": 2000, "ensemble_size": 1, "lr": 4e-3}
    run = glassformer.train("classify", out=tmp_path / "run", **files, **small)
    assert run is not None and run.evaluate("valid")["accuracy"] > 0.95
    [answer] = run.predict(["🦄 ꙮ ⵣ"])  # in no training text, and in no script of them
    assert 0 < answer["probability"] < 1


@for_each("language", PHRASES)
def test_every_character_is_spelled(language: str) -> None:
    """Words of one script alone; texts of all the others."""
    texts = [phrase for side in PHRASES[language] for phrase in side.split("|")]
    tokenizer = Tokenizer.train(texts, TextConfig(tokenizer="word", vocab_size=500, ngrams=500))
    for other, sides in PHRASES.items():
        for ids, words in tokenizer.read([*sides, "👩‍🚀 e\u0301 \u200d ﷽ 𓂀 ¿?"]):
            assert len(ids) == len(words) > 1
            assert all(tokenizer.ngrams.lookup(word) for word in words), other
