"""Reading CTranslate2's `model.bin`: our exports come back to the bit; what is damaged or lacking is one sentence."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.helpers.exports import CONTEXT, PRETRAINED, SOME, TOKENS, V, random_model

from glassformer.config import ModelConfig
from glassformer.config.recipes import build
from glassformer.errors import CheckpointError, GlassformerError, UsageError
from glassformer.interop.ctranslate2_binary import open_variables
from glassformer.interop.ctranslate2_model import read_weights, write_ctranslate2
from glassformer.models import LanguageModel, Translator
from glassformer.models.build import without_memory
from glassformer.runs.model_folder import check_shapes, shapes_of

F32, I8, I16, I32, F16, BF16 = range(6)


def read(folder: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor], list[str], int]:
    """Return settings, weights, notes and positions of a folder whose shapes are checked as an import does."""
    config = folder / "config.json"
    with open_variables(folder / "model.bin") as variables:
        name, settings, weights, notes = read_weights(
            variables, json.loads(config.read_text()) if config.exists() else {}
        )
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
    for name, data in write_ctranslate2(model, TOKENS, quantization):
        (folder / name).write_bytes(data)
    return folder


HELD = [form for form in [*SOME, *PRETRAINED] if form.get("positions") != "rotary" and form.get("d_head") is None]


@pytest.mark.parametrize("form", HELD, ids=str)
@pytest.mark.parametrize("kind", [Translator, LanguageModel])
def test_an_export_comes_back_to_the_bit(kind: Any, form: dict[str, Any], tmp_path: Path) -> None:
    """Positions that were computed come back as the table that they are."""
    biased = {"output_bias": True} if form in PRETRAINED and kind is Translator else {}
    model = random_model(kind, form | biased)
    settings, weights, notes, n_positions = read(written(model, tmp_path))
    assert not notes and n_positions == CONTEXT
    expected = dict(model.named_parameters())
    assert expected.keys() == {name for name in weights if "positions" not in name or name in expected}
    assert all(torch.equal(weights[name], tensor) for name, tensor in expected.items())
    again = kind(ModelConfig(**settings), V, n_positions).eval()
    again.load_state_dict(weights, strict=False)
    ids = torch.randint(5, V, (2, 9), generator=torch.Generator().manual_seed(0))
    rows = (ids,) if kind is LanguageModel else (ids, ids[:, :7])
    with torch.no_grad():
        torch.testing.assert_close(again(*rows), model(*rows), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("quantization", "error"), [("int8", 1 / 127), ("int16", 1 / 1024), ("float16", 1e-3)])
def test_scales_are_undone(quantization: str, error: float, tmp_path: Path) -> None:
    model = random_model(Translator, SOME[0])
    _, weights, *_ = read(written(model, tmp_path, quantization))
    for name, parameter in model.named_parameters():
        tensor = parameter.detach()
        largest = float(tensor.abs().max())
        assert float((weights[name] - tensor).abs().max()) <= 0.51 * error * largest + 1e-3 * error, name


# A file of our own making: the smallest language model, D 4, two heads, V 6.


def small(**changes: Any) -> dict[str, np.ndarray]:
    """Return the variables of a language model of one layer; None takes one away."""
    rng = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {"embeddings/weight": (6, 4), "projection/weight": (6, 4)}
    shapes |= {"position_encodings/encodings": (7, 4), "layer_norm/gamma": (4,), "layer_norm/beta": (4,)}
    for block, sizes in {
        "self_attention": {"linear_0": (12, 4), "linear_1": (4, 4)},
        "ffn": {"linear_0": (10, 4), "linear_1": (4, 10)},
    }.items():
        for linear, size in sizes.items():
            shapes |= {f"layer_0/{block}/{linear}/weight": size, f"layer_0/{block}/{linear}/bias": size[:1]}
        shapes |= {f"layer_0/{block}/layer_norm/gamma": (4,), f"layer_0/{block}/layer_norm/beta": (4,)}
    found = {f"decoder/{name}": rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    found |= {"decoder/num_heads": np.int16(2), "decoder/pre_norm": np.int8(1), "decoder/activation": np.int8(0)}
    found |= {"decoder/scale_embeddings": np.int8(1)}
    found |= {f"decoder/{name}": value for name, value in changes.items()}
    return {name: np.asarray(value) for name, value in found.items() if value is not None}


def name_of(text: str) -> bytes:
    data = text.encode() + b"\0"
    return struct.pack("<H", len(data)) + data


def variable(name: str, values: Any, kind: int | None = None) -> bytes:
    types = {"float32": F32, "int8": I8, "int16": I16, "int32": I32, "float16": F16, "uint16": BF16}
    head = name_of(name) + struct.pack(f"<B{values.ndim}I", values.ndim, *values.shape)
    return (
        head + struct.pack("<BI", types[str(values.dtype)] if kind is None else kind, values.nbytes) + values.tobytes()
    )


def binary(variables: Mapping[str, Any], aliases: Mapping[str, str] | None = None, **changes: Any) -> bytes:
    head = {"version": 6, "spec": "TransformerDecoderSpec", "revision": 8, "n": len(variables)} | changes
    data = struct.pack("<I", head["version"]) + name_of(head["spec"]) + struct.pack("<II", head["revision"], head["n"])
    data += b"".join(variable(name, values) for name, values in variables.items())
    pairs = (aliases or {}).items()
    return data + struct.pack("<I", len(pairs)) + b"".join(name_of(a) + name_of(b) for a, b in pairs)


def test_a_file_of_our_own_making_is_read(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(binary(small()))
    settings, weights, *_ = read(tmp_path)
    assert (settings["n_heads"], settings["d_ff"], settings["positions"]) == (2, 10, "learned")
    assert LanguageModel(ModelConfig(**settings), 6, 7).load_state_dict(weights)


def test_second_names_and_half_precision(tmp_path: Path) -> None:
    variables = small(**{"projection/weight": None})
    table = variables["decoder/embeddings/weight"]
    variables["decoder/embeddings/weight"] = (table.view(np.uint32) >> 16).astype(np.uint16)  # bfloat16
    (tmp_path / "model.bin").write_bytes(binary(variables, {"decoder/projection/weight": "decoder/embeddings/weight"}))
    settings, weights, *_ = read(tmp_path)
    assert settings["tie_embeddings"] and "output.weight" not in weights
    np.testing.assert_allclose(weights["embedding.weight"].numpy(), table, rtol=1e-2)


def test_other_factors_are_multiplied_into_embeddings(tmp_path: Path) -> None:
    variables = small(scale_embeddings=np.float32(3))
    (tmp_path / "model.bin").write_bytes(binary(variables))
    settings, weights, *_ = read(tmp_path)
    assert settings["embedding_init_std"] == 1
    np.testing.assert_array_equal(weights["embedding.weight"], 3 * variables["decoder/embeddings/weight"])


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


@pytest.mark.parametrize("name", LACKING)
def test_what_our_modules_lack_is_refused_by_name(name: str, tmp_path: Path) -> None:
    changes, sentence = LACKING[name]
    (tmp_path / "model.bin").write_bytes(binary(small(**changes)))
    with pytest.raises(UsageError, match=sentence) as error:
        read(tmp_path)
    assert error.value.hint and "\n" not in error.value.message


@pytest.mark.parametrize("spec", ["WhisperSpec", "TransformerEncoderSpec", "Wav2Vec2Spec"])
def test_other_architectures_are_refused(spec: str, tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(binary(small(), spec=spec))
    with pytest.raises(UsageError, match=f"is a {spec}, which is neither"):
        read(tmp_path)


def _nan(variables: dict[str, np.ndarray]) -> bytes:
    variables[WEIGHT] = variables[WEIGHT].copy()
    variables[WEIGHT][1, 2] = np.nan
    return binary(variables)


def _rows(variables: dict[str, np.ndarray], n: int) -> bytes:
    data, head = binary(variables), name_of(WEIGHT) + b"\2"
    return data.replace(head + struct.pack("<I", 4), head + struct.pack("<I", n))


HOSTILE: dict[str, tuple[Callable[[dict[str, np.ndarray]], bytes], str]] = {
    "empty": (lambda v: b"", "ends too early"),
    "text": (lambda v: b"hello world, this is text", "its version is"),
    "version 1": (lambda v: binary(v, version=1), "its version is 1"),
    "later version": (lambda v: binary(v, version=7), "its version is 7"),
    "truncated in a variable": (lambda v: binary(v)[:900], "ends inside of|ends too early"),
    "truncated at the end": (lambda v: binary(v)[:-1], "ends too early"),
    "extra bytes": (lambda v: binary(v) + b"x" * 9, "9 bytes follow"),
    "twice": (lambda v: binary(v, n=len(v) + 1)[:-4] + variable(WEIGHT, v[WEIGHT]) + bytes(4), "is in it twice"),
    "missing": (lambda v: binary({k: x for k, x in v.items() if k != WEIGHT}), f"lacks the tensor {WEIGHT}"),
    "more than there are": (lambda v: binary(v, n=4_000_000_000), "names 4,000,000,000 variables"),
    "unknown type": (lambda v: binary(v, n=len(v) + 1)[:-4] + variable("x", v[WEIGHT], 9) + bytes(4), "unknown type 9"),
    "many rows": (lambda v: _rows(v, 4_000_000_000), r"and \[4000000000, 10\] needs"),
    "many axes": (lambda v: binary(v | {"decoder/x": np.zeros((1,) * 9, np.float32)}), "has 9 axes"),
    "another shape": (lambda v: binary(v | {WEIGHT: np.zeros((10, 4), np.float32)}), r"should have shape"),
    "not a number": (_nan, "NaN or infinity"),
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


def test_no_cut_of_a_file_is_anything_else(tmp_path: Path) -> None:
    data = binary(small())
    for length in range(0, len(data), 13):
        (tmp_path / "model.bin").write_bytes(data[:length])
        with pytest.raises(GlassformerError):
            read(tmp_path)


def test_no_changed_byte_of_a_header_is_anything_else(tmp_path: Path) -> None:
    """Every byte of names, shapes and types, changed in several ways, is a sound file or a deliberate error."""
    data, rng = binary(small()), np.random.default_rng(0)
    for place in rng.choice(len(data), 400, replace=False):
        changed = bytearray(data)
        changed[place] ^= int(rng.integers(1, 256))
        (tmp_path / "model.bin").write_bytes(changed)
        try:
            read(tmp_path)
        except GlassformerError as error:
            assert "\n" not in error.message
