"""The tokenizers of Marian and XLM-RoBERTa: SentencePiece files, tables of characters, and ids of a third list."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tests.helpers import sentencepiece as spm
from tests.helpers.for_each import for_each
from tests.helpers.pretrained import put_keys
from tests.helpers.sentencepiece import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, charsmap
from tests.interop.test_import_refusals import folder_of, put

import glassformer
from glassformer.errors import CheckpointError, UsageError
from glassformer.interop.exported import load_exported
from glassformer.interop.hf_tokenizer import read_spm
from glassformer.interop.transfer import export
from glassformer.text.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("unchecked")

SOURCE = {"▁": -2.0, "a": -3.0, "b": -3.5, "c": -3.2, "▁a": -2.5, "ab": -3.1, "▁ab": -3.9, "bc": -4.0, "é": -5.0}
TARGET = {"▁": -2.0, "x": -3.0, "y": -3.5, "▁x": -2.1, "xy": -2.9, "a": -4.0, "ab": -9.0, "b": -4.1}
TABLE = charsmap({"ﬁ": "fi", "Ａ": "a", "\t": " "})
"""Tokens by their ids, which are neither file's; the piece "bc" of the source has none."""
TOKENS = ["</s>", "<unk>", *"a b c x y ▁ é f i".split(), "▁a", "ab", "▁ab", "▁x", "xy", ">>de<<", "<pad>"]


def pieces(scores: dict[str, float]) -> list[tuple[str, float, int]]:
    head = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]
    return head + [(text, score, NORMAL) for text, score in scores.items()]


def marian(folder: Path) -> Path:
    """Write a Marian folder of random weights with its two SentencePiece files."""
    change = [put(".pad_token_id", 17), put(".eos_token_id", 0), put(".decoder_start_token_id", 17)]
    folder_of("marian", folder, lambda tensors, config: [each(tensors, config) for each in change])
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(TOKENS)}), encoding="utf-8")
    (folder / "source.spm").write_bytes(spm.model(pieces(SOURCE), TABLE))
    (folder / "target.spm").write_bytes(spm.model(pieces(TARGET)))
    return folder


def best(text: str, scores: dict[str, float]) -> list[str]:
    """Return the pieces with the largest sum of scores, of all ways to cut a text; what is unknown is one piece."""
    unknown = min(scores.values()) - 10

    def cuts(rest: str) -> Iterator[tuple[float, list[str]]]:
        if not rest:
            yield 0.0, []
        for n in range(1, len(rest) + 1):
            if rest[:n] in scores or (n == 1 and rest[0] not in scores):
                for score, following in cuts(rest[n:]):
                    yield scores.get(rest[:n], unknown) + score, [rest[:n], *following]

    found = list[str]()
    for piece in max(cuts(text))[1]:
        if found and piece not in scores and found[-1] not in scores:
            found[-1] += piece
        else:
            found.append(piece)
    return found


def test_a_run_of_marian_cuts_sources_and_targets_by_their_own_files(tmp_path: Path) -> None:
    """And its tokenizer is checked again when it is read."""
    run = glassformer.import_model(marian(tmp_path / "source"), tmp_path / "run")
    loaded = glassformer.load(tmp_path / "run").task.tokenizer
    for t in (run.task.tokenizer, loaded):
        ids = {token: i for i, token in enumerate(TOKENS)}
        assert (t.pad_id, t.bos_id, t.eos_id, t.unk_id) == (17, 17, 0, 1)
        for text in ("abc ab", "a\tＡb  bc ", "ﬁ é", "zz a", "</s> b", "", "bc", "<unk>"):
            plain = text.replace("\t", " ").replace("Ａ", "a").replace("ﬁ", "fi").strip()
            plain = "▁" + "▁".join(plain.split()) if plain else ""
            expected = [ids.get(piece, 1) for piece in best(plain, SOURCE)]
            assert t.encode(text) == expected, text
            assert len(t.offsets(text)) == len(expected)
            assert t.framed(t.encode(text)) == [*expected, 0]
        for text in ("xy ab", "ax", "z"):
            expected = [ids.get(piece, 1) for piece in best("▁" + text.replace(" ", "▁"), TARGET)]
            assert t.of_targets.encode(text) == expected
        assert t.encode(">>de<< ab") == [ids[">>de<<"], *t.encode("ab")]
        assert t.encode(">>fr<<ab") == [1, *t.encode("ab")]
        assert t.decode([ids["▁x"], ids["y"], ids["▁"], ids["ab"], 0]) == "xy ab"
    assert loaded.sha256 == run.task.tokenizer.sha256
    long = "ab " * 60_000
    assert run.predict(long)["truncated"] and isinstance(run.predict("ab a")["text"], str)
    e = run.explain("ab a", target="xy ab")
    assert all(check.ok for check in e.checks)
    with pytest.raises(UsageError, match=r"text\.tokenizer imported"):
        export(run, "hf", tmp_path / "out")
    path = tmp_path / "run" / "model" / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    for sides in (None, [], [3, 4], content["sides"][:1], [{**content["sides"][0], "pre_tokenizer": 5}] * 2):
        put_keys(path, sides=sides)
        with pytest.raises(CheckpointError):
            Tokenizer.load(path)


def test_both_files_of_a_marian_go_along(fresh: Any) -> None:
    """The folder cuts sources by their own file, translates as its run, and comes back from CTranslate2."""
    place = fresh()
    run = glassformer.load(glassformer.import_model(marian(place / "source"), place / "run").path, precision="fp32")
    done = export(run, "ctranslate2", place / "out")
    assert done.facts.check is not None and done.facts.check["equal_answers"] == 1, done
    assert done.facts.check["largest_difference"] < 3e-5
    exported, texts = load_exported(place / "out"), ["abc ab", ">>de<< ab", "zz a", "", "a " * 40]
    ours, theirs = run.predict(texts, beam_size=1), exported.predict(texts, beam_size=1)
    assert [a["translation"] for a in ours] == [a["translation"] for a in theirs]
    t = run.task.tokenizer
    assert exported.tokenizer.of_targets.encode("xy ab") == t.of_targets.encode("xy ab")
    pieces = tokenizers.Tokenizer.from_file(str(place / "out/source_tokenizer.json")).encode("abc ab").tokens
    listed = tokenizers.Tokenizer.from_file(str(place / "out/tokenizer.json"))
    assert [listed.token_to_id(piece) or t.unk_id for piece in pieces] == t.encode("abc ab")
    card = (place / "out/README.md").read_text(encoding="utf-8")
    assert 'Tokenizer.from_file("source_tokenizer.json")' in card
    assert glassformer.import_model(place / "out", place / "again").task.tokenizer.sha256 == t.sha256
    (place / "out/source_tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"source_tokenizer\.json is damaged"):
        load_exported(place / "out")


FILES: list[tuple[Any, str]] = [
    (b"", "no pieces"),
    (b"\xff" * 40, "not a readable model"),
    (spm.model(pieces(SOURCE))[:-3], "not a readable model"),
    (spm.model([*pieces(SOURCE), ("a", -1.0, NORMAL)]), "one twice"),
    (spm.model([*pieces(SOURCE), ("q", float("nan"), NORMAL)]), "the piece 'q'"),
    (spm.model([*pieces(SOURCE), ("", -1.0, NORMAL)]), "the piece ''"),
    (spm.model([*pieces(SOURCE), ("q", -1.0, USER_DEFINED)]), "user-defined piece 'q'"),
    (spm.model([*pieces(SOURCE), ("q", -1.0, UNUSED)]), "unused piece"),
    (spm.model([*pieces(SOURCE), ("<0x41>", -1.0, BYTE)]), "byte piece"),
    (spm.model(pieces(SOURCE), trainer={3: 2}), "model_type 2"),
    (spm.model(pieces(SOURCE), trainer={35: 1}), "byte_fallback 1"),
    (spm.model(pieces(SOURCE), normalizer={3: 0}), "add_dummy_prefix 0"),
    (spm.model(pieces(SOURCE)) + spm.field(5, spm.field(2, b"table")), "denormalizer_spec"),
    (spm.model(pieces(SOURCE)) + spm.field(1, 7), "not a readable model"),
    (spm.model(pieces(SOURCE)) + spm.field(1, spm.field(1, 1 << 40)), "not a readable model"),
    (spm.model(pieces(SOURCE)) + spm.field(3, spm.field(2, 1 << 40)), "not a readable model"),  # no memory of that size
]


@for_each(("data", "words"), FILES)
def test_a_model_of_sentencepiece_that_is_damaged_or_of_another_kind_is_refused(data: bytes, words: str) -> None:
    with pytest.raises((CheckpointError, UsageError)) as caught:
        read_spm(data, "x.spm")
    assert words in caught.value.message


def test_every_cut_and_changed_byte_of_a_model_is_one_sentence() -> None:
    data = spm.model(pieces(SOURCE), TABLE[:40])
    for n in range(len(data)):
        for damaged in (data[:n], data[:n] + bytes([data[n] ^ 0x5A]) + data[n + 1 :]):
            try:
                read_spm(damaged, "x.spm")
            except (CheckpointError, UsageError) as error:
                assert "\n" not in error.message


@for_each(
    ("name", "content", "words"),
    [
        ("vocab.json", {"a": 0}, "lacks the token <unk>"),
        ("vocab.json", dict.fromkeys(TOKENS, "1"), "a number"),
        ("vocab.json", {token: i + 40 for i, token in enumerate(TOKENS)}, "decoder_start_token_id"),
        ("vocab.json", {token: min(i, 16) if i != 17 else 17 for i, token in enumerate([*TOKENS, "z"])}, "one id"),
        ("target_vocab.json", {}, "separate_vocabs"),
    ],
)
def test_a_list_of_ids_that_does_not_fit_is_refused(name: str, content: Any, words: str, fresh: Any) -> None:
    place = fresh()
    (marian(place / "source") / name).write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises((CheckpointError, UsageError)) as caught:
        glassformer.import_model(place / "source", place / "run")
    assert words in caught.value.message
    assert not (place / "run").exists()
