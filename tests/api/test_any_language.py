"""The recipe for own texts learns in any script, and nothing is lost of a character it has never seen."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.for_each import for_each

import glassformer
from glassformer.config import DataConfig, FilesConfig
from glassformer.text.tokenizer import Tokenizer

PHRASES = {
    "English": (
        "loved it|a joy|well made|so funny|great cast|very moving|see it twice",
        "hated it|a bore|badly made|not funny|awful cast|quite empty|left early",
    ),
    "中文": (
        "非常好看|演员很棒|值得再看|感动极了|剧情精彩|音乐动听|强烈推荐",
        "非常难看|演员很差|浪费时间|无聊透顶|剧情混乱|音乐刺耳|不要去看",
    ),
    "العربية": (
        "أحببته كثيرا|ممتع حقا|تمثيل رائع|قصة جميلة|أنصح به|موسيقى عذبة|سأراه ثانية",
        "كرهته كثيرا|ممل حقا|تمثيل سيئ|قصة فارغة|لا أنصح به|موسيقى مزعجة|خرجت مبكرا",
    ),
}
"""Phrases of praise and of blame in three scripts."""


def write_reviews(path: Path, n: int, seed: int, languages: tuple[str, ...]) -> None:
    """Reviews of two to four phrases of one kind; scripts without spaces have none."""
    rng = np.random.default_rng(seed)
    with open(path, "w", encoding="utf-8", newline="") as out:
        rows = csv.writer(out)
        rows.writerow(["text", "label"])
        for _ in range(n):
            language, label = languages[rng.integers(len(languages))], int(rng.integers(2))
            phrases = rng.permutation(PHRASES[language][1 - label].split("|"))[: rng.integers(2, 5)]
            joint = "" if language == "中文" else ", "
            rows.writerow([joint.join(phrases), ("bad", "good")[label]])


@pytest.mark.parametrize("language", ["中文", "mixed"])
def test_reviews_of_a_few_phrases_are_learned(language: str, tmp_path: Path) -> None:
    languages = tuple(PHRASES) if language == "mixed" else (language,)
    for part, n in (("train", 360), ("valid", 80)):
        write_reviews(tmp_path / f"{part}.csv", n, len(part) + n, languages)
    run = glassformer.train(
        "classify",
        train_file=str(tmp_path / "train.csv"),
        valid_file=str(tmp_path / "valid.csv"),
        steps=60,
        out=tmp_path / "run",
        d_model=32,
        ngrams=2000,
        ensemble_size=1,
        lr=4e-3,
    )
    assert run is not None and run.evaluate("valid")["accuracy"] > 0.95
    [answer] = run.predict(["🦄 ꙮ ⵣ"])  # in no training text, and in no script of them
    assert 0 < answer["probability"] < 1


@for_each("language", PHRASES)
def test_every_character_is_spelled(language: str) -> None:
    """Words of one script alone; texts of all the others."""
    from glassformer.config import TextConfig

    texts = [phrase for side in PHRASES[language] for phrase in side.split("|")]
    tokenizer = Tokenizer.train(texts, TextConfig(tokenizer="word", vocab_size=500, ngrams=500))
    assert tokenizer.ngrams is not None
    for other, sides in PHRASES.items():
        for ids, words in tokenizer.encode_with_surfaces([*sides, "👩‍🚀 e\u0301 \u200d ﷽ 𓂀 ¿?"]):
            assert len(ids) == len(words) > 1
            assert all(tokenizer.ngrams.lookup(word) for word in words), other


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


def test_all_of_them_mixed_can_be_learned_from(tmp_path: Path) -> None:
    book = tmp_path / "mixed.txt"
    book.write_text("\n".join(SCRIPTS.values()) * 20, "utf-8")
    run = glassformer.train("lm", out=tmp_path / "run", train_file=book, **TINY)
    everything = "".join(SCRIPTS.values())
    assert run.task.tokenizer.decode(run.task.tokenizer.encode(everything)) == everything
