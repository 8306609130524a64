"""The recipe for own texts learns in any script, and nothing is lost of a character it has never seen."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.for_each import for_each

import glassformer
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
    "ไทย": (
        "สนุกมาก|นักแสดงเก่ง|ดูซ้ำได้|ประทับใจ|เรื่องดี|เพลงเพราะ|แนะนำเลย",
        "น่าเบื่อมาก|นักแสดงแย่|เสียเวลา|ผิดหวัง|เรื่องงง|เพลงแย่|อย่าไปดู",
    ),
    "العربية": (
        "أحببته كثيرا|ممتع حقا|تمثيل رائع|قصة جميلة|أنصح به|موسيقى عذبة|سأراه ثانية",
        "كرهته كثيرا|ممل حقا|تمثيل سيئ|قصة فارغة|لا أنصح به|موسيقى مزعجة|خرجت مبكرا",
    ),
    "हिन्दी": (
        "बहुत अच्छी|मज़ा आया|शानदार अभिनय|सुंदर कहानी|ज़रूर देखें|मधुर संगीत|दिल छू गई",
        "बहुत बुरी|ऊब गया|खराब अभिनय|बेकार कहानी|मत देखें|शोर संगीत|समय बरबाद",
    ),
    "Русский": (
        "очень понравилось|смешно и умно|прекрасная игра|сильный сюжет|смотрите все|чудная музыка|тронуло",
        "совсем не понравилось|скучно и глупо|ужасная игра|слабый сюжет|не смотрите|плохая музыка|жаль времени",
    ),
}
"""Phrases of praise and of blame in six scripts."""


def write_reviews(path: Path, n: int, seed: int, languages: tuple[str, ...]) -> None:
    """Reviews of two to four phrases of one kind; scripts without spaces have none."""
    rng = np.random.default_rng(seed)
    with open(path, "w", encoding="utf-8", newline="") as out:
        rows = csv.writer(out)
        rows.writerow(["text", "label"])
        for _ in range(n):
            language, label = languages[rng.integers(len(languages))], int(rng.integers(2))
            phrases = rng.permutation(PHRASES[language][1 - label].split("|"))[: rng.integers(2, 5)]
            joint = "" if language in ("中文", "ไทย") else ", "
            rows.writerow([joint.join(phrases), ("bad", "good")[label]])


@pytest.mark.parametrize("language", [*PHRASES, "mixed"])
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
