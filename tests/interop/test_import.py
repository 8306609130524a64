"""An imported model is a run like any other; what no part here has, or what is hostile, is refused in one sentence.

Licence, base model and source stay with the weights: through fine-tuning, seeds and exports.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.helpers.for_each import for_each
from tests.helpers.pretrained import POSITIONS, WORDS, bert_folder, byte_level, put_keys
from tests.helpers.recompute import check_every_record
from tests.helpers.small_runs import write_table

import glassformer
from glassformer.errors import CheckpointError, DataError, UsageError
from glassformer.explain.explanation import TraceRequest, explain
from glassformer.interop.hf_tokenizer import read_tokenizer
from glassformer.interop.source_folder import SourceFolder
from glassformer.interop.sources import read_source
from glassformer.runs.model_folder import read_origin
from glassformer.runs.records import Origin
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
    path = place / "run" / "model" / "tokenizer.json"
    special = json.loads(path.read_text(encoding="utf-8"))["glassformer"]
    for name, value in (("pad", 99), ("n_ids", 0), ("prefix", [99]), ("suffix", list(range(9))), ("mask", "4")):
        put_keys(path, glassformer=special | {name: value})
        with pytest.raises(CheckpointError, match=name):
            Tokenizer.load(path)


@for_each("form", ["classify", "masked"])
def test_every_number_of_an_explanation_is_recomputed(form: str, fresh: Any) -> None:
    run = imported(fresh(), form)
    e = run.explain("the [MASK] was good" if form == "masked" else TEXT)
    check_every_record(e, run.model)
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


def test_weights_in_shards_and_in_half_precision_are_read(tmp_path: Path) -> None:
    source = bert_folder(tmp_path / "whole")
    whole, tensors = read_source(source), load_file(source / "model.safetensors")
    halved = {name: tensor.half() for name, tensor in tensors.items() if tensor.is_floating_point()}
    half = read_source(bert_folder(tmp_path / "half", change=lambda tensors, config: tensors.update(halved)))
    for name, tensor in whole.state.items():
        assert half.state[name].dtype == torch.float32
        torch.testing.assert_close(half.state[name], tensor, atol=2e-3, rtol=2e-3)
    names = sorted(tensors)
    for shard, some in (("a.safetensors", names[::2]), ("b.safetensors", names[1::2])):
        save_file({name: tensors[name] for name in some}, source / shard)
    places = {name: ("a.safetensors", "b.safetensors")[i % 2] for i, name in enumerate(names)}
    (source / "model.safetensors").unlink()
    (source / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    sharded = read_source(source)
    assert all(torch.equal(sharded.state[name], tensor) for name, tensor in whole.state.items())


def test_the_command_writes_what_the_function_does_and_others_name_it(cli: Callable, tmp_path: Path) -> None:
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
    begin = ["train", "classify", "--train-file", write_table(tmp_path), "--init-from", source]
    for command in (["predict", source, "x"], ["explain", source, "x", "--json"], ["evaluate", source], begin):
        done = cli(*command)
        assert done.code == 4 and "is a model of another library" in done.err, command
        assert f"import it: glassformer import {source}" in done.err, command


def test_a_byte_level_tokenizer_reads_any_text(tmp_path: Path) -> None:
    byte_level(tmp_path, ["<|endoftext|>"])
    tokenizer = read_tokenizer(SourceFolder(tmp_path), {}, 300)
    assert tokenizer.kind == "byte-bpe" and tokenizer.unk_id == -1
    assert tokenizer.pad_id == tokenizer.eos_id == tokenizer.bos_id == 0
    for text in ("the film was not good.", "naïve 東京 😀\r\n", "<|endoftext|>"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.without_text == [0, *range(270, 300)]


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
    table, out = str(write_table(tmp_path)), str(tmp_path / "run")
    flags = ["--train-file", table, "--out", out, "--steps", "2", "--threads", "1", "--auto-resume"]
    with pytest.raises(KeyboardInterrupt):
        settings: dict[str, Any] = {"train_file": table, "steps": 2, "threads": 1}
        stop = mock.Mock(side_effect=KeyboardInterrupt)
        glassformer.train("classify", out=out, init_from=str(begin), on_step=stop, **settings)
    shutil.rmtree(begin)
    done = cli("train", "classify", "--init-from", begin, *flags).ok
    assert "accuracy" in done.out and "holds a run: resuming it" in done.err


def test_a_bare_encoder_is_explained_up_to_its_vector_and_has_no_answer(cli: Callable, tmp_path: Path) -> None:
    run = glassformer.load(imported(tmp_path, "bare").path, precision="fp32")
    e, other = run.explain(TEXT), run.explain("good film")
    assert [*e][-1] == "pooled" and "logits" not in [*e] and e.predictions == []
    assert e["pooled"].tolist() == pytest.approx(run.predict(TEXT)["vector"], abs=1e-6)
    assert "(24 numbers)" in e.answer["headline"] and "length" in e.answer["detail"]
    check_every_record(e, run.model)
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


CARD = "---\nlicense: apache-2.0\nbase_model:\n- lab/first-model\ntags: [x]\n---\n\n# A model\n"


def card_of(run: Path) -> str:
    return (run / "model" / "README.md").read_text(encoding="utf-8")


def says_where_from(card: str) -> None:
    """Assert that a card names licence, base model and source, once each in its metadata."""
    front, _, rest = card.removeprefix("---\n").partition("\n---\n")
    assert front.split("\n").count("license: apache-2.0") == 1
    assert front.split("\n").count("base_model: lab/first-model") == 1
    assert "`tiny-bert` (bert in the format of transformers)" in rest
    assert "a bare encoder: a text is the pooling of its vectors" in rest
    assert "`model.safetensors`: SHA-256 " in rest and "Licence of the source: apache-2.0." in rest


def test_the_record_stays_with_a_run_fine_tuned_twice(tmp_path: Path) -> None:
    source = bert_folder(tmp_path / "tiny-bert", "bare")
    (source / "README.md").write_text(CARD, encoding="utf-8")
    begun = glassformer.import_model(source, tmp_path / "begun").path
    shutil.rmtree(source)
    settings: dict[str, Any] = {"train_file": str(write_table(tmp_path)), "steps": 2, "lr": 1e-3, "threads": 1}
    says_where_from(card_of(begun))
    record = json.loads((begun / "import.json").read_text(encoding="utf-8"))
    first = read_origin(begun / "model")
    assert first is not None and asdict(first) == record
    for number, source in ((1, begun), (2, tmp_path / "tuned-1")):
        out = tmp_path / f"tuned-{number}"
        glassformer.train("classify", out=out, init_from=str(source), **settings)
        says_where_from(card_of(out))
        assert "fine-tuned with Glassformer" in card_of(out) and "from scratch" not in card_of(out)
        assert read_origin(out / "model") == first
    data = json.loads((tmp_path / "tuned-2" / "data.json").read_text(encoding="utf-8"))
    assert data["base"]["path"].endswith("tuned-1")  # the run before, and what that one began from
    assert data["base"]["import"] == record


@pytest.mark.parametrize(("task", "target", "license"), [("translate", "ctranslate2", None), ("lm", "hf", "mit")])
def test_an_export_has_it(task: str, target: Any, license: str | None, tmp_path: Path, make: Any) -> None:
    first = make(task).export("ctranslate2", tmp_path / "first").out
    (first / "README.md").write_text(CARD, encoding="utf-8")
    run = glassformer.import_model(first, tmp_path / "run")
    out = run.export(target, tmp_path / "out", license=license).out
    card = (out / "README.md").read_text(encoding="utf-8")
    assert f"\nlicense: {license or 'apache-2.0'}\nbase_model: lab/first-model\n" in card
    assert "imported with Glassformer" in card and "from scratch" not in card
    assert "in the format of ctranslate2" in card and "Licence of the source: apache-2.0." in card
    if target != "ctranslate2":
        return
    again = glassformer.import_model(out, tmp_path / "again")
    assert "\nlicense: apache-2.0\nbase_model: lab/first-model\n" in card_of(again.path)


def test_a_record_of_a_stranger_puts_nothing_into_the_metadata(tmp_path: Path) -> None:
    odd = Origin("transformers", "bert", "x", license="mit\nevil: true", base_model="a/b\nc", notes=["<b>\n# Head"])
    assert odd.front_matter() == []
    assert "<b>" not in odd.source()[1] and "\n" not in odd.source()[1]  # what was changed
    assert Origin("transformers", "bert", "org/name", base_model="lab/x").front_matter() == ["base_model: lab/x"]
    with pytest.raises(CheckpointError, match="import"):
        Origin.from_json({"library": 1, "family": "bert", "name": "x"}, tmp_path)


FACTS: list[tuple[str, dict[str, str]]] = [
    ("---\nlicense: mit\n---\n", {"license": "mit"}),
    ("---\r\nlicense: 'mit'\r\nbase_model: a/b\r\n---\r\n", {"license": "mit", "base_model": "a/b"}),
    ("---\nbase_model:\n  - a/b\n  - c/d\n---\n", {"base_model": "a/b"}),
    ("# No metadata\nlicense: mit\n", {}),
    ("---\nlicense: two words\n---\nlicense: mit\n", {}),
]


@pytest.mark.parametrize(("text", "facts"), FACTS)
def test_the_metadata_of_a_card_is_read(text: str, facts: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "README.md").write_bytes(text.encode())
    assert SourceFolder(tmp_path).card_facts() == facts
