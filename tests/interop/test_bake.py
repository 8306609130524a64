"""Character n-grams folded into words: the same numbers for words of the vocabulary, and what cannot be folded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from tests.helpers.exports import WORDS, ensemble_of, run_of, word_data

from glassformer.errors import DataError, UsageError
from glassformer.interop.bake import bake
from glassformer.interop.export import export
from glassformer.interop.exported import load_exported
from glassformer.runs import run_data

SPELLED = WORDS | {"bigrams": 0}


@pytest.mark.parametrize("task", ["classify", "pretrain"])
def test_words_of_the_vocabulary_give_the_same_numbers(
    task: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = run_of(task, monkeypatch, SPELLED)
    if task == "classify":
        run = ensemble_of(run)
    monkeypatch.setattr(run_data, "load_text_data", lambda *_: word_data(task))
    t = run.task.tokenizer
    known = " ".join(word for word in t.vocabulary()[5:] if t.ngrams and t.ngrams.lookup(f"<{word}>"))
    texts = [known] if task == "classify" else [f"{known} [MASK] {known}"]
    before = {name: p.clone() for name, p in run.model.named_parameters()}
    result = export(run, "onnx", tmp_path / "out", bake=True)
    assert all(torch.equal(p, before[name]) for name, p in run.model.named_parameters())
    [note] = [note for note in result.facts.notes if note.startswith("n-grams were folded into words: ")]
    assert re.search(rf"{run.task.metric} on the validation split was \d\.\d{{4}}, and is \d\.\d{{4}}$", note)
    assert not (tmp_path / "out" / "spelling.json").exists()
    [ours], [theirs] = run.predict(texts), load_exported(tmp_path / "out").predict(texts)
    if task == "classify":
        assert theirs["probabilities"] == pytest.approx(ours["probabilities"], abs=1e-5)
        unknown = "refundable goodish"
        [with_spelling], [without] = run.predict([unknown]), load_exported(tmp_path / "out").predict([unknown])
        assert without["probabilities"] != pytest.approx(with_spelling["probabilities"], abs=1e-4)
    else:
        p, q = ([one["probability"] for one in each["guesses"][0]] for each in (ours, theirs))
        assert p == pytest.approx(q, abs=1e-5) and ours["filled"] == theirs["filled"]


def test_baked_it_is_exact_in_transformers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = run_of("classify", monkeypatch, SPELLED)
    result = export(run, "hf", tmp_path / "out", bake=True)
    assert not any(note.startswith("approximate") for note in result.facts.notes)
    assert result.facts.check is not None and result.facts.check["largest_difference"] < 1e-5


def test_without_the_validation_split_nothing_is_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise DataError("no such file")

    run = run_of("classify", monkeypatch, SPELLED)
    monkeypatch.setattr(run_data, "load_text_data", missing)
    assert "no such file" in bake(run.path, run.task, run.model).note


def test_what_cannot_be_folded_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for text, message in (({"bigrams": 40}, r"pairs of words cannot be folded"), ({}, "no character n-grams to fold")):
        run = run_of(
            "classify", monkeypatch, {"tokenizer": "word", "vocab_size": 12, "ngrams": 60 * bool(text), **text}
        )
        with pytest.raises(UsageError, match=message):
            export(run, "onnx", tmp_path / "out", bake=True)
    run = run_of("classify", monkeypatch, SPELLED)
    assert run.task.tokenizer.ngrams is not None
    run.task.tokenizer.ngrams.ngrams.append("好吃")
    with pytest.raises(UsageError, match="script without spaces"):
        export(run, "onnx", tmp_path / "out", bake=True)
    assert not (tmp_path / "out").exists()
