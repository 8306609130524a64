"""An imported model is a run like any other; what no part here has, or what is hostile, is refused in one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.helpers.for_each import for_each
from tests.helpers.pretrained import WORDS, bert_folder, byte_level
from tests.helpers.recompute import check_every_record

import glassformer
from glassformer.errors import CheckpointError, UsageError
from glassformer.explain.explanation import explain
from glassformer.explain.request import TraceRequest
from glassformer.interop.sources import read_source
from glassformer.runs.model_folder import tensor_chunks
from glassformer.text.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("unchecked")

TEXT = "The film was not good."


def imported(tmp_path: Path, form: str, **options: Any) -> glassformer.Run:
    return glassformer.import_model(bert_folder(tmp_path / "source", form), tmp_path / "run", **options)


@for_each(("form", "task"), [("classify", "classify"), ("masked", "pretrain"), ("bare", "embed")])
def test_what_a_bert_becomes_follows_its_tensors(
    form: str, task: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp(form)
    run = imported(place, form)
    assert run.task.name == task
    assert run.task.tokenizer.framed([5]) == [2, 5, 3]
    record = json.loads((place / "run" / "import.json").read_text(encoding="utf-8"))
    assert record["family"] == "bert" and len(record["files"]["model.safetensors"]) == 64 and record["check"] is None
    card = (place / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert "Not compared" in card and record["files"]["model.safetensors"] in card
    assert (" pooler.dense" in card) == (form != "classify")
    again = glassformer.load(place / "run")
    assert again.predict(TEXT) == run.predict(TEXT)
    assert again.task.tokenizer.sha256 == run.task.tokenizer.sha256


def test_a_mask_is_filled_with_a_token_that_is_no_special_one(tmp_path: Path) -> None:
    run = imported(tmp_path, "masked")
    [guesses] = run.predict("the [MASK] was good", top_k=50)["guesses"]
    assert {one["token"] for one in guesses}.isdisjoint(WORDS[:5]) and len(guesses) == len(WORDS) - 5
    assert sum(one["probability"] for one in guesses) == pytest.approx(1.0)
    e = run.explain("the [MASK] was good")
    assert e.generation.masked == [2]
    assert e.answer["headline"] == run.predict("the [MASK] was good")["filled"]


def test_a_text_that_reads_like_a_special_token_is_text(tmp_path: Path) -> None:
    tokenizer = imported(tmp_path, "classify").task.tokenizer
    assert not {*tokenizer.encode("[CLS] [SEP] [PAD]")} & {0, 2, 3}
    assert tokenizer.decode(tokenizer.framed(tokenizer.encode("the film"))) == "the film"


@for_each("form", ["classify", "masked"])
def test_every_number_of_an_explanation_is_recomputed(form: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    run = imported(tmp_path_factory.mktemp(form), form)
    e = run.explain("the [MASK] was good" if form == "masked" else TEXT)
    check_every_record(e, run.model)
    assert all(check.ok for check in e.checks)
    [stream] = e.streams
    assert stream.special[0] and stream.special[-1] and stream.words[0] == -1


def test_a_pooler_is_edited_and_attributed_through_and_leaves_no_contributions(tmp_path: Path) -> None:
    e = imported(tmp_path, "classify").explain(TEXT)
    for edit in ("embedding.norm[token:2]=0", "pooler_hidden=0"):
        [effect] = e.what_if(edit).effects
        assert abs(effect.log_prob_after - effect.log_prob_before) > 1e-6, edit
    assert any(any(scores) for scores in e.attribute(method="integrated_gradients").scores.values())
    with pytest.raises(UsageError, match="pooler before the head is not linear"):
        e.sweep("contributions")


def test_a_bare_encoder_is_explained_up_to_its_vector(cli: Callable, tmp_path: Path) -> None:
    run = glassformer.load(imported(tmp_path, "bare").path, precision="fp32")
    e = run.explain(TEXT)
    check_every_record(e, run.model)
    assert all(check.ok for check in e.checks) and [*e][-1] == "pooled" and "logits" not in [*e]
    assert e["pooled"].tolist() == pytest.approx(run.predict(TEXT)["vector"], abs=1e-6)
    assert e.predictions == [] and "(24 numbers)" in e.answer["headline"] and "length" in e.answer["detail"]
    padded = explain(run, TraceRequest(TEXT, pad=3))
    np.testing.assert_allclose(padded["pooled"], e["pooled"], atol=1e-6)
    check_every_record(padded, run.model)
    outcome = cli("explain", tmp_path / "run", TEXT, "--json")
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert found["attribution"] is None and found["manifest"]["predictions"] == []
    assert found["manifest"]["nodes"][-1]["id"] == "pooled"


def test_edits_of_a_bare_encoder_change_its_vector(tmp_path: Path) -> None:
    run = imported(tmp_path, "bare")
    e = run.explain(TEXT)
    for edit in (
        "embedding.norm[token:2]=0",
        "encoder.0.self.head1=0",
        "encoder.0.state[token:1]=B[token:2]",
        "pooled*2",
    ):
        result = e.what_if(edit, other=run.explain("good film") if "=B" in edit else None)
        assert result.effects == [] and result.answer_after != result.answer_before, edit
        assert result.answer["detail"].startswith("cosine ")
    edited = explain(run, TraceRequest(TEXT, edits=("encoder.0.self.head1=0",)))
    assert edited.answer["headline"] == e.what_if("encoder.0.self.head1=0").answer_after
    again = edited.what_if("pooled*3").answer["detail"]
    assert again == edited.answer["detail"]  # a factor changes no angle


def test_a_bare_encoder_says_that_it_has_no_answer(tmp_path: Path) -> None:
    run = imported(tmp_path, "bare")
    e, other = run.explain(TEXT), run.explain("a film")
    questions: list[Callable[[], object]] = [
        e.attribute,
        *(partial(e.sweep, kind) for kind in ("contributions", "parts", "keys", "layers")),
        lambda: e.sweep("states", other),
        partial(explain(run, TraceRequest(TEXT, edits=("pooled=0",))).sweep, "checkpoints"),
    ]
    for answer in questions:
        with pytest.raises(UsageError, match="a vector, and no answer to explain"):
            answer()


def test_special_tokens_in_a_run_are_checked(tmp_path: Path) -> None:
    imported(tmp_path, "classify")
    path = tmp_path / "run" / "model" / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    for name, value in (("pad", 99), ("n_ids", 0), ("prefix", [99]), ("suffix", list(range(9))), ("mask", "4")):
        wrong = {**content, "glassformer": {**content["glassformer"], name: value}}
        path.write_text(json.dumps(wrong), encoding="utf-8")
        with pytest.raises(CheckpointError, match=name):
            Tokenizer.load(path)


def test_weights_in_shards_and_in_half_precision_are_read(tmp_path: Path) -> None:
    source = bert_folder(tmp_path / "whole")
    whole = read_source(source)

    def halved(tensors: dict[str, torch.Tensor], config: object) -> None:
        for name in [*tensors]:
            if tensors[name].is_floating_point():
                tensors[name] = tensors[name].half()

    half = read_source(bert_folder(tmp_path / "half", change=halved))
    for name, tensor in whole.state.items():
        assert half.state[name].dtype == torch.float32
        torch.testing.assert_close(half.state[name], tensor, atol=2e-3, rtol=2e-3)
    from safetensors.torch import load_file

    tensors = load_file(source / "model.safetensors")
    names = sorted(tensors)
    for shard, some in (("a.safetensors", names[::2]), ("b.safetensors", names[1::2])):
        (source / shard).write_bytes(b"".join(tensor_chunks({name: tensors[name] for name in some})))
    places = {name: ("a.safetensors", "b.safetensors")[i % 2] for i, name in enumerate(names)}
    (source / "model.safetensors").unlink()
    (source / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    sharded = read_source(source)
    assert all(torch.equal(sharded.state[name], tensor) for name, tensor in whole.state.items())


def test_max_len_keeps_the_first_positions(tmp_path: Path) -> None:
    source = bert_folder(tmp_path / "source")
    run = glassformer.import_model(source, tmp_path / "run", max_len=9)
    assert run.model.embedding.positions.weight.shape[0] == run.config.text.max_len == 9
    assert run.predict("a film " * 20)["truncated"]
    with pytest.raises(UsageError, match="from 1 to 32"):
        glassformer.import_model(source, tmp_path / "other", max_len=33)


def test_the_command_writes_what_the_function_does(cli: Callable, tmp_path: Path) -> None:
    source = bert_folder(tmp_path / "source")
    done = cli("import", source, "--out", tmp_path / "run", "--json")
    assert done.code == 0, done.err
    facts = json.loads(done.out)
    assert facts["task"] == "classify" and facts["out"] == str(tmp_path / "run")
    assert cli("import", source, "--out", tmp_path / "run").code == 2
    assert cli("import", source).code == 2
    more = bert_folder(tmp_path / "more")
    (more / "config.json").write_text("{")
    assert cli("import", more, "--out", tmp_path / "other").code == 4
    assert cli("import", tmp_path / "nothing", "--out", tmp_path / "other").code == 2
    assert cli("import", tmp_path / "run", "--out", tmp_path / "other").code == 2
    assert not (tmp_path / "other").exists()


def test_a_byte_level_tokenizer_reads_any_text(tmp_path: Path) -> None:
    from glassformer.interop.hf_tokenizer import read_tokenizer
    from glassformer.interop.source_folder import SourceFolder

    byte_level(tmp_path, ["<|endoftext|>"])
    tokenizer = read_tokenizer(SourceFolder(tmp_path), {}, 300)
    assert tokenizer.kind == "byte-bpe" and tokenizer.unk_id == -1
    assert tokenizer.pad_id == tokenizer.eos_id == tokenizer.bos_id == 0
    for text in ("the film was not good.", "naïve 東京 😀\r\n", "<|endoftext|>"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.without_text == [0, *range(270, 300)]
