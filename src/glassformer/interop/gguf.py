"""Write a language model as a GGUF file, check what such a file holds, and predict with llama.cpp (package xllamacpp).

Checked are the names and the kinds of the settings, those that have to agree with the description of the folder, and
that every tensor lies inside the file. The format is that of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.

The architectures and the names of their tensors are those of https://github.com/ggml-org/llama.cpp (`src/models`,
`gguf-py/gguf/constants.py`). `llama` rotates neighbouring features where the models here rotate j and j + E/2, so the
rows of its queries and keys are permuted. `starcoder2` and `gpt2` expect a bias in every linear layer.

The package has no other way to give tokens than its HTTP server. That answers on this machine alone, and nothing to
anyone without a key that is made for each engine and that only this process knows: no page of llama.cpp's own, no list
of models or slots; the paths themselves are unknown to others, and no web page may read an answer.
"""

from __future__ import annotations

import json
import math
import secrets
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer.config import DecodeConfig
from glassformer.errors import UsageError
from glassformer.interop.choose import Engine
from glassformer.interop.export_facts import (
    MAX_LENGTH,
    ExportFacts,
    FieldReader,
    checked_fields,
    library,
    not_exported,
    require,
)
from glassformer.interop.hf_writer import Named, Tensors, bias_of, positions_of, with_scale_folded, with_suffixes
from glassformer.models import LanguageModel
from glassformer.models.build import d_ff_of, d_head_of
from glassformer.runs.folder import TOKENIZER
from glassformer.text.tokenizer import Tokenizer

ARCHITECTURES = ("llama", "starcoder2", "gpt2")
MAX_TENSORS, MAX_SETTINGS, MAX_TEXT = 100_000, 100, 1 << 16
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_WIDTHS = {0: 4, 1: 2}
"""Bytes of a weight by the type of its tensor: float32 and float16."""
_OF_ARCHITECTURE = """context_length embedding_length block_count feed_forward_length attention.head_count
    attention.head_count_kv vocab_size attention.layer_norm_rms_epsilon attention.layer_norm_epsilon rope.freq_base
    rope.dimension_count attention.key_length attention.value_length""".split()
_OTHERS = """general.architecture general.name general.file_type general.quantization_version general.alignment
    tokenizer.ggml.model tokenizer.ggml.pre tokenizer.ggml.tokens tokenizer.ggml.token_type tokenizer.ggml.merges
    tokenizer.ggml.bos_token_id tokenizer.ggml.eos_token_id tokenizer.ggml.padding_token_id
    tokenizer.ggml.unknown_token_id tokenizer.ggml.add_bos_token""".split()


def check_gguf(path: Path, facts: ExportFacts, tokens: Sequence[str]) -> None:
    """Check the header of a GGUF file.

    Raises:
        CheckpointError: it is not one that an export writes.
    """
    with checked_fields(path) as fields:
        _check(fields, facts, tokens)


def _check(fields: FieldReader, facts: ExportFacts, tokens: Sequence[str]) -> None:
    magic, version, n_tensors, n_settings = fields.numbers("4sIQQ")
    require(magic == b"GGUF" and version == 3, f"version {version}")
    require(n_tensors <= MAX_TENSORS and n_settings <= MAX_SETTINGS, f"{n_tensors} tensors, {n_settings} settings")
    settings: dict[str, Any] = {}
    for _ in range(n_settings):
        name = fields.text("Q", MAX_TEXT)
        settings[name] = _value(fields, fields.numbers("I")[0])
    kind = facts.architecture
    require(kind in ARCHITECTURES and settings.get("general.architecture") == kind, "another architecture")
    known = {*_OTHERS, *(f"{kind}.{name}" for name in _OF_ARCHITECTURE)}
    require(settings.keys() <= known, f"the setting {min(settings.keys() - known, default='')[:80]!r}")
    require(settings.get("tokenizer.ggml.tokens") == [*tokens], "its tokens are not those of tokenizer.json")
    types = settings.get("tokenizer.ggml.token_type")
    require(isinstance(types, list) and len(types) == len(tokens), "types for other tokens")
    c = {name: settings.get(f"{kind}.{name}") for name in _OF_ARCHITECTURE}
    for name, value in c.items():
        whole = isinstance(value, int) and 1 <= value <= MAX_LENGTH
        require(value is None or isinstance(value, float) or whole, f"{name} {value}")
    require(c["context_length"] == facts.context + 1, f"a context of {c['context_length']}")
    require(settings.get("general.alignment", 32) == 32, "another alignment")
    shapes, ends = _read_shapes(fields, n_tensors)
    start = -(-fields.file.tell() // 32) * 32
    require(start + max(ends, default=0) <= fields.size, "it ends before its tensors do")
    require(shapes.get("token_embd.weight") == [c["embedding_length"], len(tokens)], "an embedding of another shape")
    require(isinstance(c["block_count"], int) and c["block_count"] <= n_tensors, f"{c['block_count']} blocks")


def _read_shapes(fields: FieldReader, n: int) -> tuple[dict[str, list[int]], list[int]]:
    """Return the shape of each tensor, and where each ends."""
    shapes, ends = dict[str, list[int]](), list[int]()
    for _ in range(n):
        name, [n_axes] = fields.text("Q", MAX_TEXT), fields.numbers("I")
        require(1 <= n_axes <= 4, f"a tensor of {n_axes} axes")
        shape = [*fields.numbers(f"{n_axes}Q")]
        kind, offset = fields.numbers("IQ")
        require(kind in _WIDTHS and offset % 32 == 0, f"the tensor {name[:80]!r}")
        shapes[name] = shape
        ends.append(offset + _WIDTHS[kind] * math.prod(shape))
    return shapes, ends


def _value(fields: FieldReader, kind: int) -> Any:
    """Return the value of a setting; in an array there is no other."""
    if kind == _ARRAY:
        inner, n = fields.numbers("IQ")
        require(n <= fields.size and (inner in _NUMBERS or inner == _STRING), f"an array of {n}")
        return (
            [fields.text("Q", MAX_TEXT) for _ in range(n)]
            if inner == _STRING
            else [*fields.numbers(f"{n}{_NUMBERS[inner]}")]
        )
    if kind == _STRING:
        return fields.text("Q", MAX_TEXT)
    require(kind in _NUMBERS, f"a setting of the kind {kind}")
    return fields.numbers(_NUMBERS[kind])[0]


FILE = "model.gguf"
PARTS = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output"}
INNER = {"gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4
"""Types of tokens there."""


def write_gguf(
    model: LanguageModel, tokenizer: Tokenizer, architecture: str, dtype: str, name: str
) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of the file.

    The tokenizer is of the kind "byte-bpe". In "float16", norms, biases and positions stay float32.

    Raises:
        UsageError: the package gguf is not installed.
    """
    gguf = library("writing for llama.cpp", "gguf", "gguf")
    c, half = model.config, dtype == "float16"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / FILE
        writer = gguf.GGUFWriter(str(path), architecture)
        writer.add_name(name)
        writer.add_context_length(model.max_len)
        writer.add_embedding_length(c.d_model)
        writer.add_block_count(len(model.decoder.layers))
        writer.add_feed_forward_length(d_ff_of(c))
        writer.add_head_count(c.n_heads)
        writer.add_head_count_kv(c.n_heads)
        writer.add_vocab_size(tokenizer.vocab_size)
        writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16 if half else gguf.LlamaFileType.ALL_F32)
        if c.norm == "rms":
            writer.add_layer_norm_rms_eps(1e-6)
        else:
            writer.add_layer_norm_eps(1e-5)
        if c.positions == "rotary":
            writer.add_rope_freq_base(10_000.0)
            writer.add_rope_dimension_count(d_head_of(c))
            writer.add_key_length(d_head_of(c))
            writer.add_value_length(d_head_of(c))
        _add_tokenizer(writer, tokenizer)
        for tensor_name, tensor in _tensors(model, architecture):
            matrix = half and tensor.ndim > 1 and not tensor_name.startswith("position")
            writer.add_tensor(tensor_name, tensor.numpy().astype(np.float16 if matrix else np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        yield FILE, path.read_bytes()


def _add_tokenizer(writer: object, tokenizer: Tokenizer) -> None:
    data = json.loads(tokenizer.to_json())
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in data["model"]["merges"]]
    added = {token["id"] for token in data["added_tokens"]}
    types = [
        CONTROL if i <= tokenizer.mask_id else USER_DEFINED if i in added else NORMAL
        for i in range(tokenizer.vocab_size)
    ]
    w: "gguf.GGUFWriter" = writer  # type: ignore[name-defined]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(tokenizer.vocabulary())
    w.add_token_types(types)
    w.add_token_merges(merges)
    w.add_bos_token_id(tokenizer.eos_id)
    w.add_eos_token_id(tokenizer.eos_id)
    w.add_pad_token_id(tokenizer.pad_id)
    w.add_unk_token_id(tokenizer.unk_id)
    w.add_add_bos_token(False)


def _tensors(model: LanguageModel, architecture: str) -> Named:
    """Yield the tensors under the names of the architecture."""
    p = with_scale_folded(model)
    if architecture == "llama":
        _rotate_neighbours(p, model.config.n_heads)
    yield "token_embd.weight", p["embedding.weight"]
    if architecture == "gpt2":
        yield "position_embd.weight", positions_of(model)
    yield from with_suffixes("output_norm", p, "decoder.norm")
    if "output.weight" in p:
        yield "output.weight", p["output.weight"]
    for i in range(len(model.decoder.layers)):
        ours, theirs = f"decoder.layers.{i}", f"blk.{i}"
        yield from with_suffixes(f"{theirs}.attn_norm", p, f"{ours}.self_residual.norm")
        yield from with_suffixes(f"{theirs}.ffn_norm", p, f"{ours}.feed_forward_residual.norm")
        linears = {f"self_attention.{name}": other for name, other in PARTS.items()}
        linears |= {f"feed_forward.{name}": other for name, other in INNER.items()}
        if architecture == "gpt2":
            own = [f"{ours}.self_attention.{name}" for name in ("q_proj", "k_proj", "v_proj")]
            yield f"{theirs}.attn_qkv.weight", torch.cat([p[f"{name}.weight"] for name in own])
            yield f"{theirs}.attn_qkv.bias", torch.cat([bias_of(p, name) for name in own])
        for name, other in linears.items():
            fused = architecture == "gpt2" and other in ("attn_q", "attn_k", "attn_v")
            if fused or f"{ours}.{name}.weight" not in p:
                continue
            yield f"{theirs}.{other}.weight", p[f"{ours}.{name}.weight"]
            if architecture != "llama" or f"{ours}.{name}.bias" in p:
                yield f"{theirs}.{other}.bias", bias_of(p, f"{ours}.{name}")


def _rotate_neighbours(p: Tensors, n_heads: int) -> None:
    """Permute the rows of queries and keys, in place: features j and j + E/2 of a head become neighbours."""
    for name, tensor in p.items():
        if ".q_proj." in name or ".k_proj." in name:
            heads: Tensor = tensor.unflatten(0, (n_heads, 2, -1))
            p[name] = heads.transpose(1, 2).reshape(tensor.shape).contiguous()


N_POSITIONS = 4
"""Positions of a text whose logits are computed, each by a request of its own."""
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def load_engine(path: Path, facts: ExportFacts, device: str) -> GgufEngine:
    """Return the engine of an exported folder; keys and values are float32, where llama.cpp's default is float16.

    Raises:
        CheckpointError: the library cannot read the file.
        UsageError: it is not installed.
    """
    xllamacpp = library("an export for gguf", "gguf", "xllamacpp")
    p = xllamacpp.CommonParams()
    p.model.path = str(path / FILE)
    p.n_ctx, p.n_parallel, p.warmup, p.verbosity = facts.context + 1, 1, False, -1
    # Its threads spin while they wait for each other: while another program ran, two took 25 times as long as one.
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 1
    p.n_gpu_layers = 0 if device == "cpu" else -1
    p.cache_type_k = p.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    p.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    key, prefix = secrets.token_urlsafe(32), f"/{secrets.token_urlsafe(32)}"
    p.hostnames, p.port, p.reuse_port = ["127.0.0.1"], 0, False
    p.api_keys, p.api_prefix = [key], prefix
    p.ui = p.ui_mcp_proxy = p.endpoint_metrics = p.endpoint_props = p.endpoint_slots = False
    p.cors_origins, p.cors_origins_explicit, p.cors_credentials = "http://localhost:0", True, False
    p.use_jinja = p.enable_chat_template = False
    tokenizer = Tokenizer.load(path / TOKENIZER)
    check_gguf(path / FILE, facts, tokenizer.vocabulary())
    try:
        server = xllamacpp.Server(p)
    except RuntimeError as error:
        raise not_exported(f"llama.cpp cannot read {path / FILE}: {error}") from error
    return GgufEngine(server, tokenizer, key, prefix)


class GgufEngine(Engine):
    """A server of llama.cpp in this process.

    It is given ids; `key` is what it asks for, and `prefix` what its paths begin with.
    """

    def __init__(self, server: Any, tokenizer: Tokenizer, key: str, prefix: str) -> None:
        self._server, self._t, self._prefix = server, tokenizer, prefix
        self._headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        self.n_tokens = tokenizer.vocab_size

    def generate(
        self, prompts: Sequence[list[int]], decode: DecodeConfig, n_new: int, places: Sequence[tuple[int, int]]
    ) -> list[list[int]]:
        t, generated = self._t, list[list[int]]()
        settings = {"temperature": decode.temperature, "top_k": decode.top_k, "top_p": decode.top_p}
        settings |= {"min_p": decode.min_p, "samplers": ["top_k", "top_p", "min_p", "temperature"]}
        for prompt, (row, n_before) in zip(prompts, places, strict=True):
            answer = self._complete(
                prompt,
                n_predict=n_new,
                seed=(decode.decode_seed + 1_000_003 * row + n_before) % 2**31,
                logit_bias=[[token, False] for token in (t.pad_id, t.unk_id, t.bos_id, t.mask_id)],
                **settings,
            )
            ids = answer["tokens"]
            ended = answer.get("stop_type") == "eos" and ids[-1:] != [t.eos_id]
            generated.append([*ids, t.eos_id] if ended else ids)
        return generated

    def logits(self, ids: list[int]) -> np.ndarray:
        """Return log-probabilities after the last positions."""
        rows = np.zeros((min(N_POSITIONS, len(ids)), self._t.vocab_size))
        # Of a token that is part of a character llama.cpp reports nothing, so that another is made sure of.
        letter = [[self._t.encode("e")[0], 1000.0]]
        for row, end in enumerate(range(len(ids) - len(rows) + 1, len(ids) + 1)):
            answer = self._complete(ids[:end], n_predict=1, n_probs=rows.shape[1], temperature=0, logit_bias=letter)
            for one in answer["completion_probabilities"][0]["top_logprobs"]:
                rows[row, one["id"]] = one["logprob"]
        return rows

    def _complete(self, prompt: list[int], **settings: Any) -> dict[str, Any]:
        data = json.dumps({"prompt": prompt, "return_tokens": True, **settings}).encode("utf-8")
        url = f"{self._server.listening_address}{self._prefix}/completion"
        try:
            # Without the proxies of the environment, which would receive the key.
            with _OPENER.open(urllib.request.Request(url, data, self._headers)) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            reason = error.read().decode("utf-8", "replace")
            raise UsageError(f"llama.cpp refuses a request: {reason}") from error
