"""A model folder takes no more memory than its weights, and its tokenizer has the parts that training writes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.attack.conftest import TEXT, Victims
from tests.helpers.hostile import Attack, forge, query

from glassformer.config import TextConfig
from glassformer.models.build import without_memory
from glassformer.text.tokenizer import Tokenizer

Edit = Callable[[dict[str, Any]], Any]


def forged(victims: Victims, folder: Path, file: str, edit: Edit) -> Path:
    def change(path: Path) -> None:
        content = json.loads(path.read_text("utf-8"))
        edit(content)
        path.write_text(json.dumps(content), "utf-8")

    return forge(victims.run, folder / "forged", Attack(file, "", change), seal=True)


def normalizer(**values: Any) -> Edit:
    return lambda content: content.update(normalizer=values)


TOKENIZERS: dict[str, Edit] = {
    "a precompiled map": normalizer(type="Precompiled", precompiled_charsmap="AAAA"),
    "merges dropped by chance": lambda c: c["model"].update(dropout=0.5),
    "an id beyond the vocabulary": lambda c: c["model"]["vocab"].update(film=10**6),
    "a negative id": lambda c: c["model"]["vocab"].update(film=-1),
    "an id twice": lambda c: c["model"]["vocab"].update(film=5),
    "a token more": lambda c: c["model"]["vocab"].update(extra=len(c["model"]["vocab"])),
    "a bigram of unknown words": lambda c: c["model"]["spelling"]["bigrams"].append([5, 10**6]),
    "a bigram of three words": lambda c: c["model"]["spelling"]["bigrams"].append([5, 6, 7]),
    "an n-gram more": lambda c: c["model"]["spelling"]["ngrams"].append("<xy"),
    "an n-gram of nothing": lambda c: c["model"]["spelling"].update(ngrams=[""]),
    "a spelling of another type": lambda c: c["model"].update(spelling=5),
    "an added token beyond": lambda c: c["added_tokens"].append({"id": 10**9, "content": "[x]"}),
    "an added token without text": lambda c: c["added_tokens"].append({"id": 5, "content": ""}),
    "two names of one id": lambda c: c["added_tokens"].append({"id": 5, "content": "[x]"}),
    "other special tokens": lambda c: c["added_tokens"][0].update(content="[NONE]"),
}


@pytest.mark.parametrize("edit", TOKENIZERS.values(), ids=TOKENIZERS)
def test_a_tokenizer_of_other_parts_or_ids_is_refused(victims: Victims, tmp_path: Path, edit: Edit) -> None:
    answer = query("predict", forged(victims, tmp_path, "model/tokenizer.json", edit), "aaaa")
    assert answer.code == 4, answer.err


def test_what_a_file_does_around_a_text_is_left_out(victims: Victims, tmp_path: Path) -> None:
    def edit(content: dict[str, Any]) -> None:
        content.update(truncation={"max_length": 1}, padding={"strategy": {"Fixed": 10**9}})
        content.update(post_processor={"type": "ByteLevel"})

    sound = query("predict", forged(victims, tmp_path / "sound", "model/tokenizer.json", lambda content: None), TEXT)
    found = query("predict", forged(victims, tmp_path / "edited", "model/tokenizer.json", edit), TEXT)
    assert (found.code, found.out) == (0, sound.out)


def test_positions_are_bounded_by_their_table(victims: Victims, tmp_path: Path) -> None:
    """A table of 10⁶ positions of this width has 64 MB, and of a wider model it is refused."""
    from glassformer.tasks import restoring

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(restoring, "MAX_POSITIONS", 1 << 20)
        path = forged(victims, tmp_path, "model/config.json", lambda c: c["text"].update(max_len=1_000_000))
        assert query("predict", path, TEXT).code == 4


def test_numbers_that_overflow_are_no_answer(victims: Victims, tmp_path: Path) -> None:
    path = forged(victims, tmp_path, "model/config.json", lambda c: c["model"].update(embedding_init_std=1e308))
    answer = query("predict", path, TEXT)
    assert answer.code == 5 and "logits are NaN" in answer.err


def test_shapes_take_no_memory_and_draw_no_number() -> None:
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    with without_memory():
        layer = torch.nn.Linear(1 << 20, 1 << 20)
        torch.nn.init.xavier_uniform_(layer.weight)
        torch.nn.init.normal_(layer.bias)
    assert layer.weight.is_meta and torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize("kind", ["byte-bpe", "word"])
def test_a_tokenizer_of_64k_entries_still_loads(tmp_path: Path, kind: str) -> None:
    trained = Tokenizer.train(["a b"], TextConfig(tokenizer=kind, vocab_size=300))
    content = json.loads(trained.to_json())
    vocabulary = content["model"]["vocab"]
    vocabulary |= {f"token{i}": i for i in range(len(vocabulary), 65536)}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content, indent=2), "utf-8")
    began = time.perf_counter()
    assert Tokenizer.load(path).vocab_size == 65536
    assert time.perf_counter() - began < 60


@pytest.mark.slow
def test_a_model_of_100_million_weights_still_loads(tmp_path: Path) -> None:
    from dataclasses import asdict, replace

    from tests.helpers.small import config_of, data_of, small_run

    from glassformer import load
    from glassformer.config import ModelConfig
    from glassformer.runs.model_folder import save_model
    from glassformer.training.finalize import model_metadata

    config = replace(config_of("lm"), model=ModelConfig(n_layers=14, d_model=768, n_heads=12))
    task = small_run(config, data_of("lm")).task
    model = task.build_model()
    weights = dict(model.named_parameters())
    assert sum(p.numel() for p in weights.values()) > 99e6 and asdict(config)
    tokenizer = {"tokenizer.json": task.tokenizer.to_json().encode()}
    save_model(tmp_path / "model", model_metadata(task), weights, tokenizer, "")
    assert load(tmp_path / "model", device="cpu").predict("a", max_new_tokens=1)
