"""An imported model is a run like any other; what no part here has, or what is hostile, is refused in one sentence."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.helpers.for_each import for_each
from tests.helpers.pretrained import WORDS, bert_folder, byte_level, sentence_encoder
from tests.helpers.recompute import check_every_record

import glassformer
from glassformer.data.splits import Split
from glassformer.errors import CheckpointError, UsageError
from glassformer.explain.explanation import explain
from glassformer.explain.request import TraceRequest
from glassformer.interop import read
from glassformer.interop.sources import read_source
from glassformer.runs.model_folder import tensor_chunks
from glassformer.text.tokenizer import Tokenizer
from glassformer.training.examine import activity_of

TEXT = "The film was not good."


@pytest.fixture(autouse=True)
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the comparison with transformers, which takes seconds to import; test_import_families.py has it."""
    monkeypatch.setattr(read, "check_import", lambda *_: None)


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


def test_pooling_is_that_of_a_sentence_encoder(tmp_path: Path) -> None:
    source = bert_folder(tmp_path / "source", "bare")
    sentence_encoder(source, {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True})
    glassformer.import_model(source, tmp_path / "run")
    run = glassformer.load(tmp_path / "run", precision="fp32")
    ids = torch.tensor([run.task.tokenizer.framed(run.task.tokenizer.encode(TEXT))])
    expected = run.model.encode(ids, None, None).mean(dim=1)[0].detach()
    torch.testing.assert_close(torch.tensor(run.predict(TEXT)["vector"]), expected, atol=1e-6, rtol=1e-5)
    (source / "1_Pooling" / "config.json").write_text('{"pooling_mode_weightedmean_tokens": true}')
    with pytest.raises(UsageError, match="pools in a way that is not read"):
        read_source(source)


def test_two_classes_keep_their_probabilities(tmp_path: Path) -> None:
    source = bert_folder(tmp_path / "source", n_labels=2)
    glassformer.import_model(source, tmp_path / "run")
    run = glassformer.load(tmp_path / "run", precision="fp32")
    from safetensors.torch import load_file

    tensors = load_file(source / "model.safetensors")
    ids = torch.tensor([run.task.tokenizer.framed(run.task.tokenizer.encode(TEXT))])
    with torch.no_grad():
        pooled = run.model.pooler(run.model.encode(ids, None, None)[:, 0])
        logits = pooled @ tensors["classifier.weight"].T + tensors["classifier.bias"]
    expected = dict(zip(["class 0", "class 1"], logits.softmax(-1)[0].tolist(), strict=True))
    assert run.predict(TEXT)["probabilities"] == pytest.approx(expected, abs=1e-6)


def test_padding_and_the_batch_change_nothing(tmp_path: Path) -> None:
    run = imported(tmp_path, "classify")
    texts = [TEXT, "good", "", "a film, an film, the film. " * 9]
    together = run.predict(texts)
    for text, answer in zip(texts, together, strict=True):
        assert run.predict(text)["probabilities"] == pytest.approx(answer["probabilities"], abs=1e-6)
    assert together[-1]["truncated"] is True and "truncated" not in together[0]


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


def test_edits_sweeps_and_attributions_act_on_it(tmp_path: Path) -> None:
    run = imported(tmp_path, "classify")
    e = run.explain(TEXT)
    for edit in ("embedding.norm[token:2]=0", "encoder.0.self.head1=0", "pooler_hidden=0", "embedding=0"):
        [effect] = e.what_if(edit).effects
        assert abs(effect.log_prob_after - effect.log_prob_before) > 1e-6, edit
    assert all(e.sweep(kind).rows for kind in ("parts", "layers", "keys"))
    for method in ("erase", "integrated_gradients"):
        assert any(any(scores) for scores in e.attribute(method=method).scores.values())
    with pytest.raises(UsageError, match="pooler before the head is not linear"):
        e.sweep("contributions")


def test_a_bare_encoder_is_explained_up_to_its_vector(tmp_path: Path) -> None:
    run = glassformer.load(imported(tmp_path, "bare").path, precision="fp32")
    e = run.explain(TEXT)
    check_every_record(e, run.model)
    assert all(check.ok for check in e.checks) and [*e][-1] == "pooled" and "logits" not in [*e]
    assert e["pooled"].tolist() == pytest.approx(run.predict(TEXT)["vector"], abs=1e-6)
    assert e["encoder.1.self.weights"].shape == (3, 8, 8)
    assert e.predictions == [] and "(24 numbers)" in e.answer["headline"] and "length" in e.answer["detail"]
    manifest = e.manifest()
    assert manifest["predictions"] == [] and manifest["nodes"][-1]["id"] == "pooled"
    padded = explain(run, TraceRequest(TEXT, pad=3))
    np.testing.assert_allclose(padded["pooled"], e["pooled"], atol=1e-6)
    check_every_record(padded, run.model)


def test_the_command_prints_the_numbers_of_a_bare_encoder(cli: Callable, tmp_path: Path) -> None:
    imported(tmp_path, "bare")
    outcome = cli("explain", tmp_path / "run", TEXT, "--json")
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert found["attribution"] is None and found["manifest"]["nodes"][-1]["id"] == "pooled"


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
    page = tmp_path / "page.html"
    edited.save(page)
    assert "cosine" in page.read_text(encoding="utf-8")


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


def test_an_export_is_refused_in_one_sentence(tmp_path: Path) -> None:
    run = imported(tmp_path, "classify")
    with pytest.raises(UsageError, match="ctranslate2 holds no classifier"):
        run.export("ctranslate2", tmp_path / "out")


def test_a_classifier_is_fine_tuned_from_each_form(tmp_path: Path) -> None:
    pairs = (("a good film", "pos"), ("not good", "neg"))
    rows = [f"{text}{' .' * i},{label}" for text, label in pairs for i in range(20)]
    (tmp_path / "data.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    for form in ("masked", "bare"):
        begun = glassformer.import_model(bert_folder(tmp_path / form, form), tmp_path / f"{form}-run")
        settings: dict[str, Any] = {"train_file": str(tmp_path / "data.csv"), "steps": 2, "lr": 1e-8, "threads": 1}
        out = tmp_path / f"{form}-tuned"
        run = glassformer.train("classify", out=out, init_from=str(tmp_path / f"{form}-run"), **settings)
        assert run is not None and run.config.model.ensemble_size == 1
        assert run.task.tokenizer.sha256 == begun.task.tokenizer.sha256
        before, after = dict(begun.model.named_parameters()), dict(run.model.named_parameters())
        assert after.keys() - before.keys() == {"head.weight", "head.bias"}
        for name in before.keys() & after.keys():
            torch.testing.assert_close(after[name], before[name], atol=1e-6, rtol=1e-6)
        check_every_record(run.explain("a good film"), run.model)


def changed(name: str, value: Any) -> Callable[..., None]:
    """Return a change of one tensor, or of the configuration where the name begins with a dot."""

    def change(tensors: dict[str, torch.Tensor], config: dict[str, Any]) -> None:
        if name.startswith("."):
            config[name[1:]] = value
        elif value is None:
            del tensors[name]
        else:
            tensors[name] = value

    return change


QUERY = "bert.encoder.layer.1.attention.self.query.weight"
REFUSED = [
    ("an extra tensor", changed("bert.adapter.weight", torch.zeros(3, 4)), "adapter.weight"),
    ("a missing tensor", changed(QUERY, None), "encoder.layer.1.attention.self.query.weight"),
    ("another shape", changed(QUERY, torch.zeros(24, 23)), "q_proj.weight should have shape"),
    ("NaN", changed(QUERY, torch.full((24, 24), torch.nan)), "NaN or infinity in encoder.layers.1"),
    ("whole numbers", changed(QUERY, torch.zeros(24, 24, dtype=torch.int8)), "numbers of the type int8"),
    ("another number of layers", changed(".num_hidden_layers", 1), "encoder.layer.1"),
    ("more layers than tensors", changed(".num_hidden_layers", 900), "900 layers"),
    ("too many layers", changed(".num_hidden_layers", 10**12), "n_layers must be a whole number in"),
    ("a width that is no number", changed(".hidden_size", "24"), "hidden_size should be a number"),
    ("heads that do not divide", changed(".num_attention_heads", 5), "describes no model"),
    ("code", changed(".auto_map", {"AutoModel": "evil.Model"}), "auto_map"),
    ("quantized weights", changed(".quantization_config", {}), "quantization_config"),
    ("another family", changed(".model_type", "t5"), "model type 't5'"),
    ("no family", changed(".model_type", None), "model type"),
    ("a decoder", changed(".is_decoder", True), "is_decoder"),
    ("relative positions", changed(".position_embedding_type", "relative_key"), "relative_key"),
    ("an activation", changed(".hidden_act", "mish"), "'mish'"),
    ("no activation", changed(".hidden_act", None), "'None'"),
    ("a regression", changed(".id2label", {"0": "x"}), "one output"),
    ("a number", changed(".problem_type", "regression"), "'regression' does not choose classes"),
    ("classes without names", changed(".num_labels", 10**9), "num_labels is 1000000000, and id2label names 3 classes"),
    ("classes that are no number", changed(".num_labels", "3"), "num_labels is 3"),
]


@for_each(("name", "change", "words"), REFUSED)
def test_what_no_part_here_has_is_refused_and_named(
    name: str, change: Callable, words: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("refused")
    source = bert_folder(place / "source", change=change)
    with pytest.raises((UsageError, CheckpointError)) as caught:
        glassformer.import_model(source, place / "run")
    assert words in caught.value.message, name
    assert [path.name for path in place.iterdir()] == ["source"], "something half written is left"


def damage(source: Path, what: str) -> None:
    weights = source / "model.safetensors"
    data = weights.read_bytes()
    match what:
        case "truncated":
            weights.write_bytes(data[:-100])
        case "a header of 10^12 rows":
            header = json.dumps(
                {"x": {"dtype": "F32", "shape": [10**12, 24], "data_offsets": [0, 96 * 10**12]}}
            ).encode()
            weights.write_bytes(len(header).to_bytes(8, "little") + header)
        case "a pickle alone":
            weights.rename(source / "pytorch_model.bin")
        case "no weights":
            weights.unlink()
        case "a link":
            weights.rename(source.parent / "elsewhere.safetensors")
            weights.symlink_to(source.parent / "elsewhere.safetensors")
        case "a pipe":
            weights.unlink()
            os.mkfifo(weights)
        case "an index that leads out":
            weights.rename(source.parent / "x.safetensors")
            index = {"weight_map": {"a": "../x.safetensors"}}
            (source / "model.safetensors.index.json").write_text(json.dumps(index))
        case "an index of a missing file":
            weights.rename(source / "b.safetensors")
            index = {"weight_map": {"a": "a.safetensors"}}
            (source / "model.safetensors.index.json").write_text(json.dumps(index))
        case "no tokenizer":
            (source / "tokenizer.json").unlink()
            (source / "run_tokenizer.json").unlink(missing_ok=True)
        case "a config that is no JSON":
            (source / "config.json").write_text("{")
        case "no config":
            (source / "config.json").unlink()


DAMAGE = [
    ("truncated", "not a sound safetensors file"),
    ("a header of 10^12 rows", "not a sound safetensors file"),
    ("a pickle alone", "is a pickle"),
    ("no weights", "holds no model.safetensors"),
    ("a link", "is a link"),
    ("a pipe", "should be a file, and is a pipe"),
    ("an index that leads out", "no file of the same folder"),
    ("an index of a missing file", "cannot be read"),
    ("no tokenizer", "holds no tokenizer.json"),
    ("a config that is no JSON", "not the JSON"),
    ("no config", "holds no config.json"),
]
"""What `damage` does, and what the refusal says."""


@for_each(("what", "words"), DAMAGE)
def test_a_hostile_or_damaged_folder_is_refused(
    what: str, words: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("hostile")
    damage(bert_folder(place / "source"), what)
    with pytest.raises(CheckpointError) as caught:
        glassformer.import_model(place / "source", place / "run")
    assert words in caught.value.message, what
    assert not (place / "run").exists() and not [*place.glob(".tmp*")]


def tampered(content: dict[str, Any], what: str) -> None:
    match what:
        case "an id without a row":
            content["model"]["vocab"]["zebra"] = 10**6
        case "two tokens of one id":
            content["model"]["vocab"]["zebra"] = 7
        case "another end":
            content["post_processor"] = {"type": "Evil"}


@for_each(
    ("what", "words"),
    [
        ("an id without a row", "rows has none"),
        ("two tokens of one id", "two tokens have one id"),
        ("another end", "PostProcessor"),
    ],
)
def test_a_tokenizer_that_does_not_fit_is_refused(
    what: str, words: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("tokenizer")
    source = bert_folder(place / "source")
    content = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    tampered(content, what)
    (source / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(CheckpointError) as caught:
        glassformer.import_model(source, place / "run")
    assert words in caught.value.message, what
    # In a run folder, whose tokenizer somebody changed, the same.
    if what != "another end":
        glassformer.import_model(bert_folder(place / "sound"), place / "run")
        path = place / "run" / "model" / "tokenizer.json"
        own = json.loads(path.read_text(encoding="utf-8"))
        tampered(own, what)
        path.write_text(json.dumps(own), encoding="utf-8")
        with pytest.raises(CheckpointError):
            Tokenizer.load(path)


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


@pytest.mark.parametrize("form", ["bare", "classify", "masked"])
def test_the_doctor_looks_into_it(form: str, tmp_path: Path) -> None:
    """Its heads are found, and their scores are those of an explanation."""
    run = imported(tmp_path, form)
    text = "the film was not good . an a"
    corpus = run.task.encode(Split([text], None), training=False)
    seen = activity_of(run.model, run.task, corpus).scores
    assert [*seen] == ["encoder.0.self", "encoder.1.self"]
    if form != "masked":  # which explains another text, with a mask
        e = run.explain(text)
        for name, scores in seen.items():
            assert scores.tolist() == pytest.approx(np.abs(e[f"{name}.scores"]).max(axis=(-2, -1)).tolist(), rel=1e-4)


def test_the_command_writes_what_the_function_does(cli: Callable, tmp_path: Path) -> None:
    source = bert_folder(tmp_path / "source")
    done = cli("import", source, "--out", tmp_path / "run", "--json")
    assert done.code == 0, done.err
    facts = json.loads(done.out)
    assert facts["task"] == "classify" and facts["out"] == str(tmp_path / "run")
    assert cli("import", source, "--out", tmp_path / "run").code == 2
    assert cli("import", source).code == 2
    more = bert_folder(tmp_path / "more", change=changed(".num_labels", 10**9))
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
