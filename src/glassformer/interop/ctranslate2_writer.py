"""Write a translator or a language model in the form of CTranslate2 (https://opennmt.net/CTranslate2/).

Every array is copied: quantizing works in place, and must not reach the model that is exported. Positions are written
as a table, since the sinusoids of CTranslate2 have another order. Tied weights are found there by equal values.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from glassformer.interop.engine import library
from glassformer.interop.hf_writer import positions_of
from glassformer.interop.names import rows, to_theirs
from glassformer.models import LanguageModel, Translator
from glassformer.models.build import d_head_of
from glassformer.text.tokenizer import BOS, EOS, UNK, SpecialTokens


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
        _fill(spec, model)
        spec.register_vocabulary(list(tokens))
        bos = eos
    else:
        encoder = specs.TransformerEncoderSpec(len(model.encoder.layers), model.config.n_heads, **options)
        decoder = specs.TransformerDecoderSpec(len(model.decoder.layers), model.config.n_heads, **options)
        spec = specs.TransformerSpec(encoder, decoder)
        _fill(spec, model)
        if model.output_bias is not None:
            spec.decoder.projection.bias = model.output_bias.detach().cpu().float().numpy().copy()
        spec.register_source_vocabulary(list(tokens))
        spec.register_target_vocabulary(list(tokens))
        spec.config.decoder_start_token = bos
        spec.config.add_source_bos = special is not None and bool(special.prefix)
        spec.config.add_source_eos = special is None or bool(special.suffix)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = unk, bos, eos
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


def _fill(spec: Any, model: Translator | LanguageModel) -> None:
    """Fill a specification with the parameters of a model, and its positions."""
    c = model.config
    parameters = {name: p.detach().cpu().float() for name, p in model.named_parameters()}
    if isinstance(model, Translator):
        embeddings, kind = {"encoder": model.src_embedding, "decoder": model.tgt_embedding}, "translator"
        for name in [name for name in parameters if name.startswith("tgt_embedding.")]:  # where both are one
            parameters.setdefault(name.replace("tgt", "src", 1), parameters[name])
    else:
        embeddings, kind = {"decoder": model.embedding}, "language_model"
    parameters.setdefault("output.weight", embeddings["decoder"].weight.detach().cpu().float())
    table = rows("ctranslate2-gated" if c.activation == "swiglu" else "ctranslate2", c.n_layers)
    for name, tensor in to_theirs(table, kind, parameters).items():
        *path, last = name.split("/")
        setattr(_part(spec, path), last, tensor.numpy().copy())
    for scope, embedding in embeddings.items():
        part = getattr(spec, scope)
        part.scale_embeddings = embedding.scale != 1
        if c.positions != "rotary":
            part.position_encodings.encodings = positions_of(embedding, model.max_len).numpy().copy()


def _part(spec: Any, path: list[str]) -> Any:
    """Return the part of a specification under a path, in which `layer_0` is the first of a list `layer`."""
    for name in path:
        several, _, number = name.rpartition("_")
        spec = getattr(spec, name) if hasattr(spec, name) else getattr(spec, several)[int(number)]
    return spec
