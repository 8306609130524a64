"""CTranslate2: exports give its library our numbers and answers; its folders and files are read, or one sentence."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import ctranslate2
import numpy as np
import pytest
import tokenizers
import torch
from tests.helpers.exports import CONTEXT, PRETRAINED, SOME, TEXTS, TOKENS, V, random_model, run_of
from tests.helpers.pretrained import put_keys
from tests.helpers.recompute import check_every_record

from glassformer.api import load
from glassformer.config import ModelConfig
from glassformer.config.recipes import build
from glassformer.data.splits import Split
from glassformer.errors import CheckpointError, GlassformerError, UsageError
from glassformer.interop import ctranslate2_model
from glassformer.interop.check import check_import
from glassformer.interop.ctranslate2_binary import open_variables
from glassformer.interop.ctranslate2_model import character_tokenizer, join, read_vocabulary
from glassformer.interop.exported import load_exported
from glassformer.interop.transfer import export, import_folder, read_source
from glassformer.models import LanguageModel, Translator
from glassformer.models.build import without_memory
from glassformer.models.ensemble import Ensemble
from glassformer.run import Run
from glassformer.runs.model_folder import check_shapes, shapes_of
from glassformer.text.answers import answer_lines
from glassformer.text.tokenizer import Tokenizer


@pytest.mark.parametrize("form", [*SOME, *PRETRAINED], ids=str)
@pytest.mark.parametrize("kind", [Translator, LanguageModel])
@torch.no_grad()
def test_numbers_are_those_of_the_model_which_comes_back_to_the_bit(
    kind: Any, form: dict[str, Any], tmp_path: Path
) -> None:
    """Positions that were computed come back as the table that they are; rotary ones and wide heads are not read."""
    model = random_model(kind, form | ({"output_bias": True} if form in PRETRAINED and kind is Translator else {}))
    source, target = torch.randint(5, V, (1, 7)), torch.randint(5, V, (1, CONTEXT - 1))
    given, written_there = ([[TOKENS[i] for i in ids[0]]] for ids in (source, target))
    folder = str(written(model, tmp_path))
    if kind is LanguageModel:
        rows = (target,)
        theirs = np.array(ctranslate2.Generator(folder, compute_type="float32").forward_batch(written_there))
        expected = model(*rows)
        assert expected.std() > 0.1
    else:
        end, begin = torch.tensor([[3]]), torch.tensor([[2]])
        rows = torch.cat([source, end], 1), torch.cat([begin, target], 1)
        [score] = ctranslate2.Translator(folder, compute_type="float32").score_batch(given, written_there)
        theirs, log_probs = score.log_probs, model(*rows).log_softmax(dim=-1)[0]
        expected = log_probs.gather(1, torch.cat([target, end], 1)[0][:, None])[:, 0]
    np.testing.assert_allclose(theirs, expected.numpy(), atol=1e-4)
    if form.get("positions") == "rotary" or form.get("d_head") is not None:
        return
    settings, weights, notes, n_positions = read(tmp_path)
    assert not notes and n_positions == CONTEXT
    parameters = dict(model.named_parameters())
    assert parameters.keys() == {name for name in weights if "positions" not in name or name in parameters}
    assert all(torch.equal(weights[name], tensor) for name, tensor in parameters.items())
    again = kind(ModelConfig(**settings), V, n_positions).eval()
    again.load_state_dict(weights, strict=False)
    torch.testing.assert_close(again(*rows), model(*rows), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_a_translator_answers_as_its_run(positions: str, make: Any, tmp_path: Path, printed: Any) -> None:
    run = make("translate", positions=positions)
    together = Run(run.path, run.task, Ensemble([run.model, run.model]).eval(), run.device)
    result = export(together, "ctranslate2", tmp_path / "out", member=1)
    assert result.facts.check is not None and result.facts.check["largest_difference"] < 1e-4
    card = (tmp_path / "out/README.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlibrary_name: ctranslate2") and "license:" not in card, "it is never guessed"
    model = load_exported(tmp_path / "out")
    # Greedy, since beams of random weights end at the limit of length, where the two searches differ.
    for max_new_tokens in (256, 3):
        options: dict[str, Any] = {"beam_size": 1, "max_new_tokens": max_new_tokens}
        ours, theirs = (one.predict(TEXTS, **options) for one in (run, model))
        for a, b in zip(ours, theirs, strict=True):
            assert a.keys() == b.keys()
            assert (a["translation"], a.get("unfinished")) == (b["translation"], b.get("unfinished"))
            assert answer_lines(b) == answer_lines(a)
    assert [*model.predict_stream(iter(TEXTS))] == model.predict(TEXTS)
    assert printed(tmp_path / "out")
    assert [len(answer["n_best"]) for answer in model.predict(["abc", "de"], beam_size=3, n_best=2)] == [2, 2]
    with pytest.raises(UsageError, match="does not sample"):
        model.predict("a", sample=True)
    with pytest.raises(UsageError, match="quantization 'int4'"):
        export(run, "ctranslate2", tmp_path / "other", quantization="int4")
    assert not (tmp_path / "other").exists()


def test_a_language_model_continues_as_its_run(make: Any, tmp_path: Path, printed: Any) -> None:
    """Also beyond its context of 24 tokens, in the same windows, and for prompts longer than that."""
    run = make("lm", positions="learned")
    result = run.export("ctranslate2", tmp_path / "out")
    assert result.facts.check is not None and result.facts.check["equal_answers"] == 1
    model = load_exported(tmp_path / "out")
    for n in (1, 10, 60):
        options: dict[str, Any] = {"temperature": 0.0, "max_new_tokens": n}
        assert model.predict(TEXTS, **options) == run.predict(TEXTS, **options)
    assert printed(tmp_path / "out")
    first, again, other = (
        load_exported(tmp_path / "out").predict(["abc"] * 4, top_k=5, decode_seed=seed) for seed in (3, 3, 4)
    )
    assert first == again != other
    with pytest.raises(UsageError, match="no min_p"):
        model.predict("a", min_p=0.1)
    with pytest.raises(UsageError, match="cpu or cuda, not on mps"):
        load_exported(tmp_path / "out", "mps")


ROOT = Path(os.environ.get("GLASSFORMER_DATA", "/nowhere")) / "pretrained"
needs_data = pytest.mark.skipif(not (ROOT / "aren-transliteration").is_dir(), reason="GLASSFORMER_DATA has no copy")


@needs_data
@pytest.mark.parametrize("precision", ["", "-i16", "-i8"])
def test_a_translator_of_opennmt_answers_as_there(precision: str, tmp_path: Path) -> None:
    check = import_folder(ROOT / f"aren-transliteration{precision}", tmp_path / "run").check
    assert check is not None and check.equal_answers > 0.9 and check.largest_difference < 1e-4


@pytest.fixture(scope="module")
def of_others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of ours as others would write it: two vocabularies as lists of tokens, and no tokenizer."""
    folder = tmp_path_factory.mktemp("others") / "out"
    with pytest.MonkeyPatch.context() as patch:
        run_of("translate", patch).export("ctranslate2", folder)
    tokens = json.loads((folder / "shared_vocabulary.json").read_text())
    for name in ("glassformer.json", "manifest.json", "README.md", "tokenizer.json", "shared_vocabulary.json"):
        (folder / name).unlink()
    for side in ("source", "target"):
        _write(folder, f"{side}_vocabulary.txt", "\n".join(tokens) + "\n")
    return folder


@pytest.fixture
def folder(of_others: Path, tmp_path: Path) -> Path:
    return shutil.copytree(of_others, tmp_path / "others")


def _write(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text, encoding="utf-8")


DAMAGED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no vocabulary": (lambda f: (f / "source_vocabulary.txt").unlink(), "lacks its shared_vocabulary"),
    "few tokens": (lambda f: _write(f, "target_vocabulary.txt", "[UNK]\n[BOS]\n[EOS]\n"), "has 3 tokens, and its"),
    "link": (lambda f: (f / "model.bin").symlink_to((f / "model.bin").rename(f.parent / "elsewhere")), "is a link"),
    "folder": (lambda f: ((f / "config.json").unlink(), (f / "config.json").mkdir()), "is a folder"),
    "config": (lambda f: _write(f, "config.json", "[1]"), "expected `object`, got `array`"),
    "type": (lambda f: put_keys(f / "config.json", unk_token=5), "unk_token: expected `str`, got `int`"),
    "epsilon": (lambda f: put_keys(f / "config.json", layer_norm_epsilon="x"), "layer_norm_epsilon: expected `float"),
    "large epsilon": (lambda f: put_keys(f / "config.json", layer_norm_epsilon=2.0), "norm_eps"),
    "roles": (lambda f: put_keys(f / "config.json", eos_token="</s>"), "lacks '</s>'"),
    "start": (lambda f: put_keys(f / "config.json", decoder_start_token=None), "leaves the first token"),
    "numbers": (lambda f: put_keys(f / "config.json", quantization_type=1), "quantization_type is 1"),
    "unknown": (lambda f: put_keys(f / "config.json", odd=1), "odd"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_folder_is_one_sentence(name: str, folder: Path) -> None:
    damage, sentence = DAMAGED[name]
    damage(folder)
    with pytest.raises(GlassformerError, match=sentence) as error:
        read_source(folder)
    assert "\n" not in error.value.message


@pytest.mark.parametrize(
    ("kind", "engine", "vocabulary"),
    [("translate", "Translator", "shared_vocabulary"), ("lm", "Generator", "vocabulary")],
)
def test_an_import_is_compared_with_the_library_which_opens_no_file(
    kind: str, engine: str, vocabulary: str, make: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It would open `vmap.txt`, too, which nothing here checks: a pipe of this name would be waited for."""
    out = make(kind, positions="learned").export("ctranslate2", tmp_path / "out").out
    opened = mock.Mock(wraps=getattr(ctranslate2, engine))
    monkeypatch.setattr(ctranslate2, engine, opened)
    made = import_folder(out, tmp_path / "run")
    assert load_exported(out).predict("abc")
    files = {"model.bin", "config.json", f"{vocabulary}.json"}
    assert [call.kwargs["files"].keys() for call in opened.call_args_list] == [files] * 2
    assert made.check is not None and made.check.library == f"ctranslate2 {ctranslate2.__version__}"
    assert made.check.largest_difference < 1e-4 and made.check.equal_answers == 1
    again = load(tmp_path / "run")
    assert again.predict("abc", beam_size=1) if kind == "translate" else again.predict("abc", temperature=0.0)
    with torch.no_grad():
        next(p for n, p in again.model.named_parameters() if n.endswith("q_proj.weight")).mul_(1.5)
    check = check_import(made.model, again.task, again.model, out)
    assert check is not None and check.largest_difference > 1e-3
    shorter = read_source(out, 5)  # can be chosen, and a longer one not
    assert shorter.max_len == 5 and len(shorter.notes) == 1
    with pytest.raises(UsageError, match="has positions for texts of") as error:
        read_source(out, 10_000)
    assert error.value.hint.startswith("use --max-len ")
    if kind == "translate":
        assert shorter.state["tgt_embedding.positions.weight"].shape[0] == 6
        return
    for name in ("manifest.json", "glassformer.json", "tokenizer.json"):
        (out / name).unlink()
    with pytest.raises(UsageError, match="there is no tokenizer"):
        read_source(out)


@pytest.mark.parametrize("config", [{}, {"add_source_eos": False}, {"decoder_start_token": "[EOS]"}], ids=str)
def test_a_translator_of_others_is_read_used_explained_and_written_again(
    config: dict[str, Any], folder: Path, make: Any, tmp_path: Path
) -> None:
    """Without a tokenizer the letters are the tokens; nothing may end a source, and an end token begin a target."""
    put_keys(folder / "config.json", **config)
    made = import_folder(folder, tmp_path / "run")
    assert made.check is not None and made.check.largest_difference < 1e-4 and not made.model.notes
    assert "output_bias" not in made.model.state and made.check.n_texts == 16
    assert made.check.equal_answers == 1 or "decoder_start_token" not in config  # else no random text ends
    run = load(made.out)
    t, suffix = run.task.tokenizer, [3] if config.get("add_source_eos", True) else []
    assert t.special is not None and t.suffix == suffix and (t.bos_id == t.eos_id) == ("decoder_start_token" in config)
    corpus = run.task.encode(Split(["abc"], ["cba"], ""), training=True)
    assert corpus.ids[0].tolist() == [*t.encode("abc"), *suffix] and corpus.targets[0].tolist() == t.encode("cba")
    batch = run.task.make_batch(corpus, np.array([0]))
    assert batch.tgt_in is not None and batch.tgt_in.tolist() == [[t.bos_id, *t.encode("cba")]]
    assert batch.labels.tolist() == [[*t.encode("cba"), t.eos_id]]
    explanation = run.explain("abc", beam_size=1)
    assert explanation.streams[0].ids == [*t.encode("abc"), *suffix]
    assert explanation.answer["headline"] == run.predict("abc", beam_size=1)["translation"]
    check_every_record(explanation, run.model)
    assert run.explain("", beam_size=1).answer["headline"] == ""
    run.export("ctranslate2", tmp_path / "again")
    other = load_exported(tmp_path / "again") if config else make("translate")
    options: dict[str, Any]
    for options in ({"beam_size": 1}, {"beam_size": 3}):
        ours, theirs = (one.predict(TEXTS, max_new_tokens=3 if config else 9, **options) for one in (run, other))
        assert [answer["translation"] for answer in theirs] == [answer["translation"] for answer in ours]
    assert tokenizers.Tokenizer.from_file(str(tmp_path / "again" / "tokenizer.json")).get_vocab_size() == 12
    again = read_source(tmp_path / "again")
    assert again.tokenizer.sha256 == t.sha256
    assert all(torch.equal(again.state[name], p) for name, p in run.model.named_parameters())
    run.task.tokenizer = Tokenizer.imported(json.loads(t.to_json()), replace(t.special, prefix=(5,)))
    with pytest.raises(UsageError, match="puts no a, " if suffix else "puts no a around"):
        run.export("ctranslate2", tmp_path / "refused")
    assert not (tmp_path / "refused").exists()


TYPES = ["float32", "int8", "int16", "int32", "float16", "uint16"]
"""By their numbers in a file; the last stands for bfloat16."""


def read(folder: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor], list[str], int]:
    """Return settings, weights, notes and positions of a folder whose shapes are checked as an import does."""
    path = folder / "config.json"
    config = json.loads(path.read_text()) if path.exists() else {}
    with open_variables(folder / "model.bin") as variables:
        name, settings, weights, notes = ctranslate2_model.read_weights(variables, config)
    kind = LanguageModel if name == "language_model" else Translator
    n_rows, n_positions = (
        len(next(x for name, x in weights.items() if name.endswith(f"{end}.weight")))
        for end in ("embedding", "positions")
    )
    with without_memory():
        expected = shapes_of(kind(build(ModelConfig, settings, "model", "config"), n_rows, n_positions))
    check_shapes(expected, {name: tuple(tensor.shape) for name, tensor in weights.items()})
    return settings, weights, notes, n_positions


def written(model: Any, folder: Path, quantization: str | None = None) -> Path:
    for name, data in ctranslate2_model.write_ctranslate2(model, TOKENS, quantization):
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize(("quantization", "error"), [("int8", 1 / 127), ("int16", 1 / 1024), ("float16", 1e-3)])
def test_scales_are_undone(quantization: str, error: float, tmp_path: Path) -> None:
    model = random_model(Translator, SOME[0])
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    _, weights, *_ = read(written(model, tmp_path, quantization))
    for name, parameter in model.named_parameters():
        tensor = parameter.detach()
        assert torch.equal(tensor, before[name]), "the model is as it was"
        largest = float(tensor.abs().max())
        assert float((weights[name] - tensor).abs().max()) <= 0.51 * error * largest + 1e-3 * error, name


# A file of our own making: the smallest language model, D 4, two heads, V 6.


def small(**changes: Any) -> dict[str, np.ndarray]:
    """Return the variables of a language model of one layer; None takes one away."""
    rng = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {"embeddings/weight": (6, 4), "projection/weight": (6, 4)}
    shapes["position_encodings/encodings"] = (7, 4)
    sizes = {"self_attention/linear_0": (12, 4), "self_attention/linear_1": (4, 4)}
    for linear, size in (sizes | {"ffn/linear_0": (10, 4), "ffn/linear_1": (4, 10)}).items():
        shapes |= {f"layer_0/{linear}/weight": size, f"layer_0/{linear}/bias": size[:1]}
    for norm in ("layer_norm", "layer_0/self_attention/layer_norm", "layer_0/ffn/layer_norm"):
        shapes |= {f"{norm}/gamma": (4,), f"{norm}/beta": (4,)}
    found = {f"decoder/{name}": rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    found |= {"decoder/num_heads": np.int16(2), "decoder/pre_norm": np.int8(1), "decoder/activation": np.int8(0)}
    found |= {"decoder/scale_embeddings": np.int8(1)}
    found |= {f"decoder/{name}": value for name, value in changes.items()}
    return {name: np.asarray(value) for name, value in found.items() if value is not None}


def name_of(text: str) -> bytes:
    data = text.encode() + b"\0"
    return struct.pack("<H", len(data)) + data


def variable(name: str, values: Any, kind: int | None = None) -> bytes:
    head = name_of(name) + struct.pack(f"<B{values.ndim}I", values.ndim, *values.shape)
    kind = TYPES.index(str(values.dtype)) if kind is None else kind
    return head + struct.pack("<BI", kind, values.nbytes) + values.tobytes()


def binary(variables: Mapping[str, Any], aliases: Mapping[str, str] | None = None, **changes: Any) -> bytes:
    head = {"version": 6, "spec": "TransformerDecoderSpec", "revision": 8, "n": len(variables)} | changes
    data = struct.pack("<I", head["version"]) + name_of(head["spec"]) + struct.pack("<II", head["revision"], head["n"])
    data += b"".join(variable(name, values) for name, values in variables.items())
    pairs = (aliases or {}).items()
    return data + struct.pack("<I", len(pairs)) + b"".join(name_of(a) + name_of(b) for a, b in pairs)


def test_second_names_half_precision_and_factors_of_embeddings(tmp_path: Path) -> None:
    variables = small(scale_embeddings=np.float32(3), **{"projection/weight": None})
    table = variables["decoder/embeddings/weight"]
    (tmp_path / "model.bin").write_bytes(binary(variables, {"decoder/projection/weight": "decoder/embeddings/weight"}))
    settings, weights, *_ = read(tmp_path)
    assert (settings["n_heads"], settings["d_ff"], settings["positions"]) == (2, 10, "learned")
    assert settings["embedding_init_std"] == 1 and not settings["tie_embeddings"]  # a factor, which no output has
    assert LanguageModel(ModelConfig(**settings), 6, 7).load_state_dict(weights)
    np.testing.assert_array_equal(weights["embedding.weight"], 3 * table)
    variables = small(
        **{"projection/weight": None, "embeddings/weight": (table.view(np.uint32) >> 16).astype("uint16")}
    )
    (tmp_path / "model.bin").write_bytes(binary(variables, {"decoder/projection/weight": "decoder/embeddings/weight"}))
    settings, weights, *_ = read(tmp_path)
    assert settings["tie_embeddings"] and "output.weight" not in weights
    np.testing.assert_allclose(weights["embedding.weight"].numpy(), table, rtol=1e-2)  # bfloat16


WEIGHT = "decoder/layer_0/ffn/linear_1/weight"
LACKING: dict[str, tuple[dict[str, Any], str]] = {
    "relative": (
        {"layer_0/self_attention/relative_position_keys": np.zeros((3, 2), np.float32)},
        "self_attention/relative_position_keys",
    ),
    "qk norm": ({"layer_0/self_attention/q_norm/gamma": np.ones(2, np.float32)}, "self_attention/q_norm/gamma"),
    "alibi": ({"alibi": np.int8(1)}, "decoder/alibi"),
    "window": ({"sliding_window": np.int32(8)}, "decoder/sliding_window"),
    "parallel": ({"layer_0/input_layer_norm/gamma": np.ones(4, np.float32)}, "layer_0/input_layer_norm/gamma"),
    "tanh": ({"activation": np.int8(5)}, "the activation 5"),
    "rotary": ({"layer_0/self_attention/rotary_dim": np.int32(0)}, "self_attention/rotary_dim"),
    "grouped": ({"layer_0/self_attention/num_heads_kv": np.int32(1)}, "self_attention/num_heads_kv"),
    "wide": ({"layer_0/self_attention/head_dim": np.int32(4)}, "heads of another width"),
    "bias": ({"projection/bias": np.zeros(6, np.float32)}, "a bias of the output projection"),
    "unknown": ({"layer_0/ffn/gadget": np.ones(4, np.float32)}, "decoder/layer_0/ffn/gadget"),
}


@pytest.mark.parametrize("name", [*LACKING, "spec"])
def test_what_our_modules_lack_is_refused_by_name(name: str, tmp_path: Path) -> None:
    changes, sentence = LACKING.get(name, ({}, "is a WhisperSpec, which is neither"))
    spec = "WhisperSpec" if name == "spec" else "TransformerDecoderSpec"
    (tmp_path / "model.bin").write_bytes(binary(small(**changes), spec=spec))
    with pytest.raises(UsageError, match=sentence) as error:
        read(tmp_path)
    assert error.value.hint and "\n" not in error.value.message


ROWS = name_of(WEIGHT) + b"\2"
HOSTILE: dict[str, tuple[Callable[[dict[str, np.ndarray]], bytes], str]] = {
    "empty": (lambda v: b"", "ends too early"),
    "version 1": (lambda v: binary(v, version=1), "its version is 1"),
    "later version": (lambda v: binary(v, version=7), "its version is 7"),
    "extra bytes": (lambda v: binary(v) + b"x" * 9, "9 bytes follow"),
    "twice": (lambda v: binary(v, n=len(v) + 1)[:-4] + variable(WEIGHT, v[WEIGHT]) + bytes(4), "is in it twice"),
    "missing": (lambda v: binary({k: x for k, x in v.items() if k != WEIGHT}), f"lacks the tensor {WEIGHT}"),
    "more than there are": (lambda v: binary(v, n=4_000_000_000), "names 4,000,000,000 variables"),
    "unknown type": (lambda v: binary(v, n=len(v) + 1)[:-4] + variable("x", v[WEIGHT], 9) + bytes(4), "unknown type 9"),
    "many rows": (lambda v: binary(v).replace(ROWS + b"\4\0\0\0", ROWS + b"\xff" * 4), r"and \[4294967295, 10\] needs"),
    "many axes": (lambda v: binary(v | {"decoder/x": np.zeros((1,) * 9, np.float32)}), "has 9 axes"),
    "another shape": (lambda v: binary(v | {WEIGHT: np.zeros((10, 4), np.float32)}), r"should have shape"),
    "not a number": (
        lambda v: binary(v | {WEIGHT: np.where(v[WEIGHT] == v[WEIGHT].max(), np.float32("nan"), v[WEIGHT])}),
        "NaN or infinity",
    ),
    "whole numbers": (lambda v: binary(v | {WEIGHT: np.zeros((4, 10), np.int32)}), "whole numbers"),
    "no scale": (lambda v: binary(v | {WEIGHT: np.zeros((4, 10), np.int8)}), "_scale' is missing"),
    "a scale of zero": (
        lambda v: binary(v | {WEIGHT: np.ones((4, 10), np.int8), f"{WEIGHT}_scale": np.zeros(4, np.float32)}),
        "holds no scales",
    ),
    "a name of nothing": (lambda v: binary(v, {"decoder/x": "decoder/y"}), "second name of 'decoder/y'"),
    "a name of control characters": (lambda v: binary(v | {"a\x1b[2J": np.zeros(1, np.float32)}), "is no name"),
    "names without end": (
        lambda v: binary(v, {f"decoder/x{i}": WEIGHT for i in range(100)}),
        "second names repeat its",
    ),
    "no layers": (lambda v: binary({k: x for k, x in v.items() if "layer_0" not in k}), "are not numbered from 0"),
    "heads": (lambda v: binary(v | {"decoder/num_heads": np.int16(3)}), "3 heads do not divide"),
    "no heads": (lambda v: binary(v | {"decoder/num_heads": np.int16(0)}), "0 heads do not divide"),
    "a matrix as a number": (lambda v: binary(v | {"decoder/num_heads": v[WEIGHT]}), "where one number is expected"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_one_sentence(name: str, tmp_path: Path) -> None:
    make, sentence = HOSTILE[name]
    (tmp_path / "model.bin").write_bytes(make(small()))
    with pytest.raises(CheckpointError, match=sentence) as error:
        read(tmp_path)
    assert error.value.hint or name == "another shape"
    assert "\n" not in error.value.message and len(error.value.message) < 400


def test_no_cut_of_a_file_and_no_changed_byte_is_anything_else(tmp_path: Path) -> None:
    """Every byte of names, shapes and types, changed in several ways, is a sound file or a deliberate error."""
    data, rng = binary(small()), np.random.default_rng(0)
    for length in range(0, len(data), 13):
        (tmp_path / "model.bin").write_bytes(data[:length])
        with pytest.raises(GlassformerError):
            read(tmp_path)
    for place in rng.choice(len(data), 400, replace=False):
        changed = bytearray(data)
        changed[place] ^= int(rng.integers(1, 256))
        (tmp_path / "model.bin").write_bytes(changed)
        try:
            read(tmp_path)
        except GlassformerError as error:
            assert "\n" not in error.message


SOURCE, TARGET = ["<blank>", "<s>", "</s>", "a", "b", ".", "<unk>"], ["<blank>", "<s>", "</s>", "x", ".", "<unk>"]
ROLES = ("<unk>", "<s>", "</s>", (), ())


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


def test_a_token_that_the_source_lacks_and_pieces_of_words_are_refused() -> None:
    with pytest.raises(CheckpointError, match="lacks '<2de>'"):
        join(SOURCE, TARGET, ("<unk>", "<s>", "</s>", (), ("<2de>",)), {}, {})
    tokens = [*SOURCE, "\u2581the"]
    with pytest.raises(UsageError, match="are not characters") as error:
        character_tokenizer(tokens, join(tokens, tokens, ROLES, {}, {})[1], Path("folder"))
    assert "tokenizer.json" in error.value.hint
