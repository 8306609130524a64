"""Write a translator or a language model in the form of CTranslate2 (https://opennmt.net/CTranslate2/).

Every array is copied: quantizing works in place, and must not reach the model that is exported. Positions are written
as a table, since the sinusoids of CTranslate2 have another order. Tied weights are found there by equal values.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from glassformer.interop.export_facts import library
from glassformer.models import LanguageModel, Translator
from glassformer.models.build import d_head_of
from glassformer.nn.attention import MultiHeadAttention
from glassformer.nn.embeddings import LearnedPositions, SinusoidalPositions, TokenEmbedding
from glassformer.nn.layers import Decoder, DecoderLayer, Encoder, EncoderLayer, FeedForward, LayerNorm, RMSNorm, SwiGLU
from glassformer.text.special_tokens import SpecialTokens
from glassformer.text.tokenizer import BOS, EOS, UNK


def write_ctranslate2(
    model: Translator | LanguageModel,
    tokens: Sequence[str],
    quantization: str | None,
    special: SpecialTokens | None = None,
) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each file of a CTranslate2 model.

    `quantization` is "int8", "float16", "bfloat16", or None for float32; `special` are those of an imported tokenizer.

    Raises:
        UsageError: the package ctranslate2 is not installed.
    """
    library("writing for CTranslate2", "ctranslate2", "ctranslate2")
    from ctranslate2.specs import transformer_spec as specs

    spec: Any
    options = _options(model)
    unk, bos, eos = UNK, BOS, EOS
    if special is not None:
        eos = tokens[special.eos]
        unk, bos = (eos if i < 0 else tokens[i] for i in (special.unk, special.bos))
    if isinstance(model, LanguageModel):
        spec = specs.TransformerDecoderModelSpec.from_config(len(model.decoder.layers), model.config.n_heads, **options)
        _fill_decoder(spec.decoder, model.decoder, model.embedding, model.lm_head_weight, model.max_len)
        spec.register_vocabulary(list(tokens))
        spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = unk, eos, eos
    else:
        encoder = specs.TransformerEncoderSpec(len(model.encoder.layers), model.config.n_heads, **options)
        decoder = specs.TransformerDecoderSpec(len(model.decoder.layers), model.config.n_heads, **options)
        spec = specs.TransformerSpec(encoder, decoder)
        output = model.tgt_embedding.weight if model.output is None else model.output.weight
        _fill_encoder(spec.encoder, model.encoder, model.src_embedding, model.max_len)
        _fill_decoder(spec.decoder, model.decoder, model.tgt_embedding, output, model.max_len)
        if model.output_bias is not None:
            spec.decoder.projection.bias = _array(model.output_bias)
        spec.register_source_vocabulary(list(tokens))
        spec.register_target_vocabulary(list(tokens))
        spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = unk, bos, eos
        spec.config.decoder_start_token = bos
        spec.config.add_source_bos = special is not None and bool(special.prefix)
        spec.config.add_source_eos = special is None or bool(special.suffix)
    spec.config.layer_norm_epsilon = model.config.norm_eps
    spec.validate()
    spec.optimize(quantization=quantization)
    with tempfile.TemporaryDirectory() as folder:
        spec.save(folder)
        for path in sorted(Path(folder).iterdir()):
            yield path.name, path.read_bytes()


def _options(model: Translator | LanguageModel) -> dict[str, Any]:
    """Return the options that encoder and decoder share."""
    from ctranslate2.specs.common_spec import Activation

    c = model.config
    activations = {"relu": Activation.RELU, "gelu": Activation.GELU, "gelu-tanh": Activation.GELUTanh}
    activation = activations.get(c.activation, Activation.SWISH)  # of silu, and of the gate of swiglu
    options = {"pre_norm": c.pre_norm, "activation": activation, "ffn_glu": c.activation == "swiglu"}
    options |= {"rms_norm": c.norm == "rms", "head_dim": d_head_of(c), "layernorm_embedding": c.embedding_norm}
    if c.positions == "rotary":
        options |= {"rotary_dim": 0, "rotary_interleave": False, "rotary_base": c.rope_base}
    return options


def _fill_encoder(spec: Any, encoder: Encoder, embedding: TokenEmbedding, max_len: int) -> None:
    _fill_embedding(spec, spec.embeddings[0], embedding, max_len)
    for layer_spec, layer in zip(spec.layer, encoder.layers, strict=True):
        assert isinstance(layer, EncoderLayer)
        _fill_layer(layer_spec, layer)
    _fill_last_norm(spec, encoder.norm)


def _fill_decoder(spec: Any, decoder: Decoder, embedding: TokenEmbedding, output: Tensor, max_len: int) -> None:
    _fill_embedding(spec, spec.embeddings, embedding, max_len)
    for layer_spec, layer in zip(spec.layer, decoder.layers, strict=True):
        assert isinstance(layer, DecoderLayer)
        _fill_layer(layer_spec, layer)
        if layer.cross_attention is not None and layer.cross_residual is not None:
            query, *key_and_value, out = _projections(layer.cross_attention)
            linears = layer_spec.attention.linear
            for linear, parts in zip(linears, ([query], key_and_value, [out]), strict=True):
                _fill_linear(linear, *parts)
            _fill_norm(layer_spec.attention.layer_norm, layer.cross_residual.norm)
    _fill_last_norm(spec, decoder.norm)
    spec.projection.weight = _array(output)


def _fill_embedding(spec: Any, table: Any, embedding: TokenEmbedding, max_len: int) -> None:
    """Fill a token embedding and its positions: rotary ones are not added, "none" is a table of zeros."""
    table.weight = _array(embedding.weight)
    spec.scale_embeddings = embedding.scale != 1
    if embedding.norm is not None:
        _fill_norm(spec.layernorm_embedding, embedding.norm)
    if hasattr(spec.layer[0].self_attention, "rotary_dim"):
        return
    match embedding.positions:
        case SinusoidalPositions():
            spec.position_encodings.encodings = _array(embedding.positions.table)
        case LearnedPositions():
            spec.position_encodings.encodings = _array(embedding.positions.weight)
        case _:
            spec.position_encodings.encodings = np.zeros((max_len, embedding.weight.shape[1]), np.float32)


def _fill_layer(spec: Any, layer: EncoderLayer | DecoderLayer) -> None:
    *inputs, out = _projections(layer.self_attention)
    _fill_linear(spec.self_attention.linear[0], *inputs)
    _fill_linear(spec.self_attention.linear[1], out)
    _fill_norm(spec.self_attention.layer_norm, layer.self_residual.norm)
    block = layer.feed_forward
    if isinstance(block, SwiGLU):
        _fill_linear(spec.ffn.linear_0, block.gate_proj)
        _fill_linear(spec.ffn.linear_0_noact, block.up_proj)
    else:
        assert isinstance(block, FeedForward)
        _fill_linear(spec.ffn.linear_0, block.up_proj)
    _fill_linear(spec.ffn.linear_1, block.down_proj)
    _fill_norm(spec.ffn.layer_norm, layer.feed_forward_residual.norm)


def _projections(attention: MultiHeadAttention) -> list[nn.Linear]:
    return [attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj]


def _fill_linear(spec: Any, *linears: nn.Linear) -> None:
    """Fill one linear layer with the rows of several."""
    spec.weight = np.concatenate([_array(linear.weight) for linear in linears])
    if linears[0].bias is not None:
        spec.bias = np.concatenate([_array(linear.bias) for linear in linears])


def _fill_norm(spec: Any, norm: nn.Module) -> None:
    assert isinstance(norm, LayerNorm | RMSNorm)
    spec.gamma = _array(norm.weight)
    if isinstance(norm, LayerNorm):
        spec.beta = _array(norm.bias)


def _fill_last_norm(spec: Any, norm: nn.Module) -> None:
    if not isinstance(norm, nn.Identity):
        _fill_norm(spec.layer_norm, norm)


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().float().numpy().copy()
