"""An imported model is a run like any other; what no part here has, or what is hostile, is refused in one sentence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.helpers.for_each import for_each
from tests.helpers.pretrained import POSITIONS, WORDS, bert_folder, byte_level
from tests.helpers.recompute import check_every_record

import glassformer
from glassformer.errors import CheckpointError, DataError, UsageError
from glassformer.explain.explanation import TraceRequest, explain
from glassformer.interop.sources import read_source
from glassformer.runs.model_folder import tensor_chunks
from glassformer.text.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("unchecked")

TEXT = "The film was not good."


def imported(tmp_path: Path, form: str, **options: Any) -> glassformer.Run:
    return glassformer.import_model(bert_folder(tmp_path / "source", form), tmp_path / "run", **options)


@for_each(("form", "task"), [("classify", "classify"), ("masked", "pretrain"), ("bare", "embed")])
def test_what_a_bert_becomes_follows_its_tensors(form: str, task: str, fresh: Any) -> None:
    place = fresh()
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
    t = again.task.tokenizer
    assert not {*t.encode("[CLS] [SEP] [PAD]")} & {0, 2, 3}, "a text that reads like a special token is text"
    assert t.decode(t.framed(t.encode("the film"))) == "the film"
    assert again.task.tokenizer.sha256 == run.task.tokenizer.sha256


@for_each("form", ["classify", "masked"])
def test_every_number_of_an_explanation_is_recomputed(form: str, fresh: Any) -> None:
    run = imported(fresh(), form)
    e = run.explain("the [MASK] was good" if form == "masked" else TEXT)
    check_every_record(e, run.model)
    assert all(check.ok for check in e.checks)
    if form == "classify":  # whose pooler is edited and attributed through, and leaves no contributions
        for edit in ("embedding.norm[token:2]=0", "pooler_hidden=0"):
            [effect] = e.what_if(edit).effects
            assert abs(effect.log_prob_after - effect.log_prob_before) > 1e-6, edit
        assert any(any(scores) for scores in e.attribute(method="integrated_gradients").scores.values())
        with pytest.raises(UsageError, match="pooler before the head is not linear"):
            e.sweep("contributions")
    else:
        answer = run.predict("the [MASK] was good", top_k=50)
        [guesses] = answer["guesses"]
        assert {one["token"] for one in guesses}.isdisjoint(WORDS[:5]) and len(guesses) == len(WORDS) - 5
        assert sum(one["probability"] for one in guesses) == pytest.approx(1.0)
        assert e.decode.masked == [2] and e.answer["headline"] == answer["filled"]
    [stream] = e.streams
    assert stream.special[0] and stream.special[-1] and stream.words[0] == -1


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


def test_the_command_writes_what_the_function_does_and_what_needs_a_training_is_refused(
    cli: Callable, tmp_path: Path
) -> None:
    source = bert_folder(tmp_path / "source")
    done = cli("import", source, "--out", tmp_path / "run", "--json").ok
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
    done = cli("doctor", run := str(tmp_path / "run"))
    assert done.code == 0 and "(no log is here, only a model)" in done.out
    for command in (["train", "--resume", run], ["compare", run, run]):
        done = cli(*command)
        assert done.code == 4 and not done.out, command
        assert f"{run} holds no run" in done.err and "an import" in done.err and "--init-from" in done.err, command
    done = cli("evaluate", run)
    assert done.code == 3 and "holds a model that has no data of its own" in done.err and "--test-file" in done.err
    with pytest.raises(DataError, match="has no data of its own"):
        glassformer.load(run).evaluate()


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


def test_the_folder_of_another_library_is_to_be_imported_first(cli: Callable, tmp_path: Path) -> None:
    source = str(bert_folder(tmp_path / "source"))
    (tmp_path / "t.csv").write_text("text,label\n" + "a,x\nb,y\n" * 20)
    begin = ["train", "classify", "--train-file", str(tmp_path / "t.csv"), "--init-from", source]
    for command in (["predict", source, "x"], ["explain", source, "x", "--json"], ["evaluate", source], begin):
        done = cli(*command)
        assert done.code == 4 and "is a model of another library" in done.err, command
        assert f"import it: glassformer import {source}" in done.err, command


def test_an_answer_counts_the_tokens_that_are_unknown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    texts = ["zebra film quux", "the film", "zebra " * 9 * POSITIONS]
    for form in ("classify", "bare", "masked"):
        run = glassformer.import_model(bert_folder(tmp_path / form, form), tmp_path / f"run-{form}")
        caplog.clear()
        answers = run.predict(texts)
        n = 9 * POSITIONS if form == "masked" else POSITIONS - 2  # of a text that is cut only what is read counts
        assert [answer.get("unknown") for answer in answers] == [2, None, n]
        assert f"2 of 3 texts are read with {2 + n} tokens unknown to the model" in caplog.messages
        caplog.clear()
        assert [answer.get("unknown") for answer in run.predict_stream(texts[:2])] == [2, None]
        assert "1 of 2 texts is read with 2 tokens unknown to the model" in caplog.messages


@for_each(
    ("longest", "expected"), [(16, 16), (POSITIONS, POSITIONS), (512, POSITIONS), (2, POSITIONS), ("9", POSITIONS)]
)
def test_the_longest_text_is_that_of_the_sentence_encoder(longest: Any, expected: int, fresh: Any) -> None:
    source = bert_folder(fresh() / "source", "bare")
    (source / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": longest}))
    found = read_source(source)
    assert found.max_len == expected and any("max_seq_length" in note for note in found.notes) == (expected == 16)
    assert read_source(source, max_len=20).max_len == 20


@for_each("longest", [1, 2])
def test_a_text_has_room_within_what_is_around_it(longest: int, fresh: Any) -> None:
    folder = fresh()
    with pytest.raises(UsageError, match=f"max_len {longest} leaves 0 tokens for a text, which has 2") as refused:
        glassformer.import_model(bert_folder(folder / "source", "bare"), folder / "run", max_len=longest)
    assert refused.value.hint == "use max_len=3 or more" and not (folder / "run").exists()
    run = glassformer.import_model(folder / "source", folder / "run", max_len=3)
    assert run.predict("the film") != run.predict("film")


def test_auto_resume_needs_no_source_of_a_run_that_began(cli: Callable, tmp_path: Path) -> None:
    begin = glassformer.import_model(bert_folder(tmp_path / "source", "bare"), tmp_path / "base").path
    rows = "".join(f"the film {i},{'ab'[i % 2]}\n" for i in range(40))
    (tmp_path / "t.csv").write_text(f"text,label\n{rows}")
    out = str(tmp_path / "run")
    flags = ["--train-file", str(tmp_path / "t.csv"), "--out", out, "--steps", "2", "--threads", "1", "--auto-resume"]
    command = ["train", "classify", "--init-from", str(begin), *flags]

    def stop(step: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        settings: dict[str, Any] = {"train_file": str(tmp_path / "t.csv"), "steps": 2, "threads": 1}
        glassformer.train("classify", out=out, init_from=str(begin), on_step=stop, **settings)
    shutil.rmtree(begin)
    done = cli(*command).ok
    assert "accuracy" in done.out and "holds a run: resuming it" in done.err


def test_a_bare_encoder_is_explained_up_to_its_vector_and_has_no_answer(cli: Callable, tmp_path: Path) -> None:
    run = glassformer.load(imported(tmp_path, "bare").path, precision="fp32")
    e, other = run.explain(TEXT), run.explain("good film")
    assert [*e][-1] == "pooled" and "logits" not in [*e] and e.predictions == []
    assert e["pooled"].tolist() == pytest.approx(run.predict(TEXT)["vector"], abs=1e-6)
    assert "(24 numbers)" in e.answer["headline"] and "length" in e.answer["detail"]
    check_every_record(e, run.model)
    assert all(check.ok for check in e.checks)
    for edit in (
        "embedding.norm[token:2]=0",
        "encoder.0.self.head1=0",
        "encoder.0.state[token:1]=B[token:2]",
        "pooled*2",
    ):
        result = e.what_if(edit, other=other if "=B" in edit else None)
        assert result.effects == [] and result.answer_after != result.answer_before, edit
        assert result.answer["detail"].startswith("cosine ")
    edited = explain(run, TraceRequest(TEXT, edits=("encoder.0.self.head1=0",)))
    assert edited.answer["headline"] == e.what_if("encoder.0.self.head1=0").answer_after
    assert edited.what_if("pooled*3").answer["detail"] == edited.answer["detail"]  # a factor changes no angle
    sweeps = [partial(e.sweep, kind) for kind in ("contributions", "parts", "keys", "layers")]
    for question in (e.attribute, *sweeps, partial(e.sweep, "states", other), partial(edited.sweep, "checkpoints")):
        with pytest.raises(UsageError, match="a vector, and no answer to explain"):
            question()
    outcome = cli("explain", tmp_path / "run", TEXT, "--json").ok
    found = json.loads(outcome.out)
    assert found["attribution"] is None and found["manifest"]["predictions"] == []
    assert found["manifest"]["nodes"][-1]["id"] == "pooled"
