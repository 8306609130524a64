"""CTranslate2's folders as runs: the same answers and scores as that library, and our own exports to the bit."""

from __future__ import annotations

import itertools
import json
import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
import tokenizers
import torch
from tests.helpers.exports import TEXTS, run_of
from tests.helpers.recompute import check_every_record

from glassformer.api import load
from glassformer.config import DecodeConfig
from glassformer.data.splits import Split
from glassformer.errors import GlassformerError, UsageError
from glassformer.interop.check import check_import
from glassformer.interop.exported import load_exported
from glassformer.interop.imported import restore_imported
from glassformer.interop.transfer import import_folder, read_source
from glassformer.text.tokenizer import Tokenizer

ROOT = Path(os.environ.get("GLASSFORMER_DATA", "/nowhere")) / "pretrained"
needs_data = pytest.mark.skipif(not (ROOT / "aren-transliteration").is_dir(), reason="GLASSFORMER_DATA has no copy")


LIMIT = 48
"""Tokens of a translation, as many as no name here has."""


def names(folder: Path, n: int) -> list[str]:
    """Return names made of the letters of the source's vocabulary."""
    letters = (folder / "source_vocabulary.txt").read_text(encoding="utf-8").split("\n")[3:-1]
    rng = random.Random(0)
    return ["".join(rng.choice(letters) for _ in range(rng.randint(1, 14))) for _ in range(n)]


def of_their_library(folder: Path, texts: list[str], beam: int, length_penalty: float) -> list[tuple[str, float]]:
    """Return the translations of CTranslate2 in float32, with their scores."""
    translator = ctranslate2.Translator(str(folder), compute_type="float32", inter_threads=1, intra_threads=1)
    options: dict[str, Any] = {"max_decoding_length": LIMIT, "min_decoding_length": 0, "return_scores": True}
    results = translator.translate_batch(
        [list(text) for text in texts],
        beam_size=beam,
        patience=(beam + 1) / beam if beam > 1 else 1,
        length_penalty=length_penalty,
        **options,
    )
    return [("".join(result.hypotheses[0]), result.scores[0]) for result in results]


def scores_of(task: Any, model: Any, texts: list[str], translations: list[str]) -> list[float]:
    """Return our model's mean log-probability of the tokens of given translations, end token included."""
    split = Split(texts, translations, "")
    corpus = task.encode(split, training=False)
    batch = task.make_batch(corpus, np.arange(len(texts)))
    with torch.no_grad():
        log_probs = task.logits(model, batch).log_softmax(dim=-1)
    labels = batch.labels
    found = log_probs.gather(2, labels.clamp(min=0)[..., None])[..., 0] * (labels >= 0)
    return (found.sum(dim=1) / (labels >= 0).sum(dim=1)).tolist()


@needs_data
@pytest.mark.parametrize("precision", ["", "-i16", "-i8"])
def test_a_translator_of_opennmt_answers_as_there(precision: str) -> None:
    """Greedy and beam 4, with scores. Under a length penalty the two beams end at other times: see `choose._BEAM`."""
    folder = ROOT / f"aren-transliteration{precision}"
    task, model = restore_imported(read_source(folder))
    texts = names(folder, 200)
    for beam, length_penalty in ((1, 1.0), (4, 0.0), (4, 1.0)):
        decode = DecodeConfig(beam_size=beam, length_penalty=length_penalty, max_new_tokens=LIMIT)
        ours = [(answer["translation"], answer["score"]) for answer in task.predict(model, texts, decode)]
        theirs = of_their_library(folder, texts, beam, length_penalty)
        equal = [a[0] == b[0] for a, b in zip(ours, theirs, strict=True)]
        assert sum(equal) >= (200 if length_penalty == 0 or beam == 1 else 190)
        for (_, a), (_, b) in itertools.compress(zip(ours, theirs, strict=True), equal):
            assert a == pytest.approx(b, abs=1e-4)
    # Those that differ, too: our model gives their translations their scores.
    again = scores_of(task, model, texts, [translation for translation, _ in theirs])
    assert again == pytest.approx([score for _, score in theirs], abs=1e-4)


def translator_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **config: Any) -> Path:
    """Return an export of ours as others would write it: two vocabularies as lists of tokens, and no tokenizer.

    `config` are values of its `config.json`.
    """
    run_of("translate", monkeypatch).export("ctranslate2", tmp_path / "out")
    folder = tmp_path / "out"
    tokens = json.loads((folder / "shared_vocabulary.json").read_text())
    for name in ("glassformer.json", "manifest.json", "README.md", "tokenizer.json", "shared_vocabulary.json"):
        (folder / name).unlink()
    for side in ("source", "target"):
        (folder / f"{side}_vocabulary.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    _put(folder, **config)
    return folder


def _put(folder: Path, **config: Any) -> None:
    found = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    _write(folder, "config.json", json.dumps(found | config))


def test_without_a_tokenizer_the_letters_are_the_tokens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = run_of("translate", monkeypatch)
    folder = translator_folder(monkeypatch, tmp_path)
    task, model = restore_imported(read_source(folder))
    assert task.tokenizer.special is not None and task.tokenizer.suffix == [3]
    options: dict[str, Any]
    for options in ({"beam_size": 1}, {"beam_size": 3, "n_best": 2}):
        ours = run.predict(TEXTS, max_new_tokens=9, **options)
        theirs = task.predict(model, TEXTS, replace(task.config.decode, max_new_tokens=9, **options))
        assert [answer["translation"] for answer in theirs] == [answer["translation"] for answer in ours]


def test_a_shorter_text_can_be_chosen_and_a_longer_one_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = run_of("translate", monkeypatch, positions="learned")
    run.export("ctranslate2", tmp_path / "out")
    imported = read_source(tmp_path / "out", 5)
    assert imported.max_len == 5 and len(imported.notes) == 1
    assert imported.state["tgt_embedding.positions.weight"].shape[0] == 6
    with pytest.raises(UsageError, match="has positions for texts of") as error:
        read_source(tmp_path / "out", 10_000)
    assert error.value.hint.startswith("use --max-len ")


def _link(folder: Path, name: str) -> None:
    moved = folder.parent / f"elsewhere-{name}"
    (folder / name).rename(moved)
    (folder / name).symlink_to(moved)


def _write(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text, encoding="utf-8")


DAMAGED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no vocabulary": (lambda f: (f / "source_vocabulary.txt").unlink(), "lacks its shared_vocabulary"),
    "few tokens": (lambda f: _write(f, "target_vocabulary.txt", "[UNK]\n[BOS]\n[EOS]\n"), "has 3 tokens, and its"),
    "link": (lambda f: _link(f, "model.bin"), "is a link"),
    "linked vocabulary": (lambda f: _link(f, "source_vocabulary.txt"), "is a link"),
    "folder": (lambda f: ((f / "config.json").unlink(), (f / "config.json").mkdir()), "is a folder"),
    "config": (lambda f: _write(f, "config.json", "[1]"), "expected `object`, got `array`"),
    "type": (lambda f: _put(f, unk_token=5), "unk_token: expected `str`, got `int`"),
    "epsilon": (lambda f: _put(f, layer_norm_epsilon="x"), "layer_norm_epsilon: expected `float"),
    "large epsilon": (lambda f: _put(f, layer_norm_epsilon=2.0), "norm_eps"),
    "roles": (lambda f: _put(f, eos_token="</s>"), "lacks '</s>'"),
    "start": (lambda f: _put(f, decoder_start_token=None), "leaves the first token"),
    "numbers": (lambda f: _put(f, quantization_type=1), "quantization_type is 1"),
    "unknown": (lambda f: _put(f, odd=1), "odd"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_folder_is_one_sentence(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = translator_folder(monkeypatch, tmp_path)
    damage, sentence = DAMAGED[name]
    damage(folder)
    with pytest.raises(GlassformerError, match=sentence) as error:
        read_source(folder)
    assert "\n" not in error.value.message


def test_a_language_model_of_others_needs_its_tokenizer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run_of("lm", monkeypatch).export("ctranslate2", tmp_path / "out")
    for name in ("manifest.json", "glassformer.json", "tokenizer.json"):
        (tmp_path / "out" / name).unlink()
    with pytest.raises(UsageError, match="there is no tokenizer"):
        read_source(tmp_path / "out")


@pytest.mark.parametrize("kind", ["translate", "lm"])
def test_an_import_is_compared_with_the_library(kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run_of(kind, monkeypatch).export("ctranslate2", tmp_path / "out")
    made = import_folder(tmp_path / "out", tmp_path / "run")
    assert made.check is not None and made.check.library == f"ctranslate2 {ctranslate2.__version__}"
    assert made.check.largest_difference < 1e-4 and made.check.equal_answers == 1
    again = load(tmp_path / "run")
    assert again.predict("abc", beam_size=1) if kind == "translate" else again.predict("abc", temperature=0.0)
    with torch.no_grad():
        next(p for n, p in again.model.named_parameters() if n.endswith("q_proj.weight")).mul_(1.5)
    check = check_import(made.model, again.task, again.model, tmp_path / "out")
    assert check is not None and check.largest_difference > 1e-3


def test_the_library_opens_no_file_of_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It would open `vmap.txt`, too, which nothing here checks: a pipe of this name would be waited for."""
    run_of("translate", monkeypatch).export("ctranslate2", tmp_path / "out")
    made, given = ctranslate2.Translator, list[set[str]]()

    def keep(path: str, **options: Any) -> Any:
        given.append({*options["files"]})
        return made(path, **options)

    monkeypatch.setattr(ctranslate2, "Translator", keep)
    assert import_folder(tmp_path / "out", tmp_path / "run").check is not None
    assert load_exported(tmp_path / "out").predict("abc")
    assert given == [{"model.bin", "config.json", "shared_vocabulary.json"}] * 2


def test_a_start_token_can_be_the_end_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in the models of Marian and M2M: nothing else would end a translation."""
    folder = translator_folder(monkeypatch, tmp_path, decoder_start_token="[EOS]")
    made = import_folder(folder, tmp_path / "run")
    assert made.check is not None and made.check.largest_difference < 1e-4
    assert made.check.equal_answers == 1 and made.model.tokenizer.bos_id == made.model.tokenizer.eos_id


def test_an_imported_translator_can_leave_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its special tokens have other ids than ours, and nothing ends a source."""
    folder = translator_folder(monkeypatch, tmp_path, add_source_eos=False)
    run = load(import_folder(folder, tmp_path / "run").out)
    assert run.task.tokenizer.special is not None and run.task.tokenizer.suffix == []
    run.export("ctranslate2", tmp_path / "again")
    model = load_exported(tmp_path / "again")
    options: dict[str, Any]
    for options in ({"beam_size": 1}, {"beam_size": 3}):
        ours, theirs = (one.predict(TEXTS, max_new_tokens=3, **options) for one in (run, model))
        assert [answer["translation"] for answer in theirs] == [answer["translation"] for answer in ours]
    assert tokenizers.Tokenizer.from_file(str(tmp_path / "again" / "tokenizer.json")).get_vocab_size() == 12
    again = read_source(tmp_path / "again")
    assert again.tokenizer.sha256 == run.task.tokenizer.sha256
    assert all(torch.equal(again.state[name], p) for name, p in run.model.named_parameters())


def test_other_tokens_around_a_source_are_refused_for_ctranslate2(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = translator_folder(monkeypatch, tmp_path)
    run = load(import_folder(folder, tmp_path / "run").out)
    special = replace(run.task.tokenizer.special, prefix=(5,))
    run.task.tokenizer = Tokenizer.imported(run.task.tokenizer.to_json(), special)
    with pytest.raises(UsageError, match="puts no a, "):
        run.export("ctranslate2", tmp_path / "again")
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("ends", [True, False])
def test_training_and_explaining_read_a_source_as_prediction_does(
    ends: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = translator_folder(monkeypatch, tmp_path, add_source_eos=ends)
    run = load(import_folder(folder, tmp_path / "run").out)
    t = run.task.tokenizer
    expected = [*t.encode("abc"), *([t.eos_id] if ends else [])]
    corpus = run.task.encode(Split(["abc"], ["cba"], ""), training=True)
    assert corpus.ids[0].tolist() == expected and corpus.targets[0].tolist() == t.encode("cba")
    batch = run.task.make_batch(corpus, np.array([0]))
    assert batch.tgt_in is not None and batch.tgt_in.tolist() == [[t.bos_id, *t.encode("cba")]]
    assert batch.labels.tolist() == [[*t.encode("cba"), t.eos_id]]
    explanation = run.explain("abc", beam_size=1)
    assert explanation.streams[0].ids == expected
    assert explanation.answer["headline"] == run.predict("abc", beam_size=1)["translation"]
    check_every_record(explanation, run.model)
    assert run.explain("", beam_size=1).answer["headline"] == ""
