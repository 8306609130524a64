"""The vocabularies of CTranslate2's folders: read as they are, and joined to one without changing an answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from glassformer.errors import CheckpointError, UsageError
from glassformer.interop.ctranslate2_model import Roles, character_tokenizer, join, read_vocabulary

SOURCE, TARGET = ["<blank>", "<s>", "</s>", "a", "b", ".", "<unk>"], ["<blank>", "<s>", "</s>", "x", ".", "<unk>"]
ROLES: Roles = ("<unk>", "<s>", "</s>", (), ())


def test_vocabularies_are_read_as_the_library_does(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("a\nb\u2028\r\nc".encode())
    (tmp_path / "b.txt").write_bytes(b"a\r\n<unk>\r\n")
    (tmp_path / "c.json").write_text(json.dumps(["a", "<unk>", "\n"]))
    assert read_vocabulary(tmp_path, "a", "<unk>") == ["a", "b\u2028\r", "c", "<unk>"]
    assert read_vocabulary(tmp_path, "b", "<unk>") == ["a", "<unk>"]
    assert read_vocabulary(tmp_path, "c", "<unk>") == ["a", "<unk>", "\n"]
    assert read_vocabulary(tmp_path, "d", "<unk>") is None


@pytest.mark.parametrize(
    ("name", "data", "sentence"),
    [
        ("v.txt", b"a\nb\na\n", "'a' is in it twice"),
        ("v.txt", b"\xff\xfe", "is not UTF-8"),
        ("v.json", b'{"a": 1}', "a list of tokens"),
        ("v.json", b'["a", 1]', "a list of tokens"),
        ("v.json", b"[" * 100_000, "not the JSON"),
    ],
)
def test_a_damaged_vocabulary_is_one_sentence(name: str, data: bytes, sentence: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(CheckpointError, match=sentence) as error:
        read_vocabulary(tmp_path, "v", "<unk>")
    assert "\n" not in error.value.message


def test_two_vocabularies_become_one_in_which_what_cannot_be_written_has_no_probability() -> None:
    torch.manual_seed(0)
    output, x = torch.randn(len(TARGET), 4), torch.randn(3, 4)
    weights = {"src_embedding.weight": torch.arange(len(SOURCE)), "tgt_embedding.weight": torch.arange(len(TARGET))}
    weights, settings = weights | {"output.weight": output}, dict[str, Any]()
    tokens, special, notes = join(SOURCE, TARGET, ROLES, weights, settings)
    assert tokens == ["<blank>", "<s>", "</s>", "x", ".", "<unk>", "a", "b"] and len(notes) == 1
    rows = [[side[i] for i in weights[f"{name}_embedding.weight"]] for name, side in (("src", SOURCE), ("tgt", TARGET))]
    assert rows[0] == ["<blank>", "<s>", "</s>", "<unk>", ".", "<unk>", "a", "b"]
    assert rows[1] == ["<blank>", "<s>", "</s>", "x", ".", "<unk>", "<unk>", "<unk>"]
    ours = (x @ weights["output.weight"].T + weights["output_bias"]).log_softmax(dim=-1)
    torch.testing.assert_close(ours[:, :6], (x @ output.T).log_softmax(dim=-1))
    assert (ours[:, 6:].exp() < 1e-30).all() and settings == {"output_bias": True}
    tokenizer = character_tokenizer(tokens, special, Path())
    assert (tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id) == (0, 1, 2, 5)
    assert tokenizer.encode("ab.xy") == [6, 7, 4, 3, tokenizer.unk_id] and tokenizer.decode([1, 3, 4, 2]) == "x."


def test_equal_vocabularies_stay_as_they_are() -> None:
    table = torch.randn(len(SOURCE), 4)
    weights = {"tgt_embedding.weight": table}
    tokens, special, notes = join(SOURCE, SOURCE, ("<unk>", "</s>", "</s>", (), ("</s>",)), weights, {})
    assert tokens == SOURCE and torch.equal(weights["tgt_embedding.weight"], table)
    assert not notes and "output_bias" not in weights
    assert special.bos == special.eos == 2 and special.suffix == (2,)


@pytest.mark.parametrize(
    ("roles", "missing"),
    [(("<unk>", "<go>", "</s>", (), ()), "<go>"), (("<unk>", "<s>", "</s>", (), ("<2de>",)), "<2de>")],
)
def test_vocabularies_that_do_not_fit_are_refused(roles: Roles, missing: str) -> None:
    with pytest.raises(CheckpointError, match=f"lacks '{missing}'"):
        join(SOURCE, TARGET, roles, {}, {})


def test_pieces_of_words_need_their_tokenizer() -> None:
    tokens = [*SOURCE, "\u2581the"]
    with pytest.raises(UsageError, match="are not characters") as error:
        character_tokenizer(tokens, join(tokens, tokens, ROLES, {}, {})[1], Path("folder"))
    assert "tokenizer.json" in error.value.hint
