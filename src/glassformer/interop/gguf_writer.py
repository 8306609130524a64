"""Write a language model as one GGUF file, the form of llama.cpp.

The architectures and the names of their tensors are those of https://github.com/ggml-org/llama.cpp (`src/models`,
`gguf-py/gguf/constants.py`). `llama` rotates neighbouring features where the models here rotate j and j + E/2, so the
rows of its queries and keys are permuted. `starcoder2` and `gpt2` expect a bias in every linear layer.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from glassformer.errors import UsageError
from glassformer.interop.hf_names import Named, Tensors, bias_of, positions_of, with_scale_folded, with_suffixes
from glassformer.models import LanguageModel
from glassformer.models.build import d_ff_of, d_head_of
from glassformer.text.tokenizer import Tokenizer

FILE = "model.gguf"
PARTS = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output"}
INNER = {"gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4
"""Types of tokens there."""


def write_gguf(
    model: LanguageModel, tokenizer: Tokenizer, architecture: str, dtype: str, name: str
) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of the file.

    Args:
        model: the model.
        tokenizer: its tokenizer, of the kind "byte-bpe".
        architecture: "llama", "starcoder2" or "gpt2".
        dtype: numbers of the matrices, "float32" or "float16"; norms, biases and positions are float32.
        name: the name of the model in the file.

    Raises:
        UsageError: the package gguf is not installed.
    """
    try:
        import gguf
    except ImportError as error:
        hint = 'install it: pip install "glassformer[gguf]"'
        raise UsageError("writing for llama.cpp needs the package gguf", hint) from error
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
