"""The parameters of a model under the names of Hugging Face's classes, with what has to be computed on the way.

Every function yields names and new tensors. Where a class has always a bias, a missing one is zeros; where it adds
positions to the embedding, missing ones are a table of zeros.

Two identities are used. Scaled embeddings: where a class has no factor √D, the table is multiplied by it, and for a
tied head the last norm is divided by it. Permuted features: some classes compute sinusoids with all sines first; since
nothing in a Transformer depends on the order of the features of its residual stream, all parameters that read or write
it are permuted in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from glassformer.models import LanguageModel, Translator
from glassformer.nn.ngram_embeddings import BigramEmbedding

Tensors = dict[str, Tensor]
Named = Iterator[tuple[str, Tensor]]


def parameters_of(model: LanguageModel | Translator) -> Tensors:
    """Return the parameters of a model by name, as copies in float32; of tied ones one name."""
    return {name: p.detach().cpu().float().clone() for name, p in model.named_parameters()}


def with_scale_folded(model: LanguageModel) -> Tensors:
    """Return the parameters of a pre-norm language model whose embedding is not scaled."""
    p, scale = parameters_of(model), model.embedding.scale
    if scale != 1 and "output.weight" not in p:
        for name in ("decoder.norm.weight", "decoder.norm.bias"):
            if name in p:
                p[name] = p[name] / scale
    p["embedding.weight"] = p["embedding.weight"] * scale
    return p


def registered_names(model: nn.Module, word_ngrams: Tensor | None) -> dict[str, Tensor]:
    """Return the tensors of a registered class: parameters, keys of bigrams, n-grams of words (V, G) if any."""
    names = {f"model.{name}": p.detach().cpu().float() for name, p in model.named_parameters()}
    for name, part in model.named_modules():
        if isinstance(part, BigramEmbedding):
            names[f"model.{name}.keys"] = part.keys.cpu()
    return names | ({} if word_ngrams is None else {"word_ngrams": word_ngrams})


def llama_names(model: LanguageModel) -> Named:
    """Yield the tensors of `llama` and of classes with its names: `arcee`, `starcoder2`."""
    p, kind = with_scale_folded(model), model.config.activation
    yield "model.embed_tokens.weight", p["embedding.weight"]
    yield from with_suffixes("model.norm", p, "decoder.norm")
    inner = {"up_proj": "c_fc", "down_proj": "c_proj"}
    if model.config.norm == "rms":
        inner = {name: name for name in ("gate_proj", "up_proj", "down_proj")}
    for i in range(len(model.decoder.layers)):
        ours, theirs = f"decoder.layers.{i}", f"model.layers.{i}"
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            yield from with_suffixes(f"{theirs}.self_attn.{name}", p, f"{ours}.self_attention.{name}")
        for name, other in inner.items():
            if name != "gate_proj" or kind == "swiglu":
                yield from with_suffixes(f"{theirs}.mlp.{other}", p, f"{ours}.feed_forward.{name}")
        yield from with_suffixes(f"{theirs}.input_layernorm", p, f"{ours}.self_residual.norm")
        yield from with_suffixes(f"{theirs}.post_attention_layernorm", p, f"{ours}.feed_forward_residual.norm")
    if "output.weight" in p:
        yield "lm_head.weight", p["output.weight"]


def gpt2_names(model: LanguageModel) -> Named:
    """Yield the tensors of `gpt2`, whose linear layers are transposed, and queries, keys and values one of them."""
    p = with_scale_folded(model)
    yield "transformer.wte.weight", p["embedding.weight"]
    yield "transformer.wpe.weight", positions_of(model)
    yield from with_suffixes("transformer.ln_f", p, "decoder.norm")
    for i in range(len(model.decoder.layers)):
        ours, theirs = f"decoder.layers.{i}", f"transformer.h.{i}"
        parts = [f"{ours}.self_attention.{name}" for name in ("q_proj", "k_proj", "v_proj")]
        yield f"{theirs}.attn.c_attn.weight", torch.cat([p[f"{part}.weight"] for part in parts]).T.contiguous()
        yield f"{theirs}.attn.c_attn.bias", torch.cat([bias_of(p, part) for part in parts])
        for other, name in (
            ("attn.c_proj", "self_attention.o_proj"),
            ("mlp.c_fc", "feed_forward.up_proj"),
            ("mlp.c_proj", "feed_forward.down_proj"),
        ):
            yield f"{theirs}.{other}.weight", p[f"{ours}.{name}.weight"].T.contiguous()
            yield f"{theirs}.{other}.bias", bias_of(p, f"{ours}.{name}")
        yield from with_suffixes(f"{theirs}.ln_1", p, f"{ours}.self_residual.norm")
        yield from with_suffixes(f"{theirs}.ln_2", p, f"{ours}.feed_forward_residual.norm")
    if "output.weight" in p:
        yield "lm_head.weight", p["output.weight"]


def seq2seq_names(model: Translator) -> Named:
    """Yield the tensors of `pegasus` (pre-norm) and `marian` (post-norm), whose sinusoids have all sines first."""
    d_model, pre_norm = model.config.d_model, model.config.pre_norm
    order = torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])
    p = {name: _permuted(name, tensor, order) for name, tensor in parameters_of(model).items()}
    tables = {"encoder": p.get("src_embedding.weight", p["tgt_embedding.weight"]), "decoder": p["tgt_embedding.weight"]}
    tied = "output.weight" not in p
    if tied:
        yield "model.shared.weight", tables["decoder"]
    else:
        yield "lm_head.weight", p["output.weight"]
        if pre_norm:
            yield "model.shared.weight", tables["decoder"].clone()
    for stack, table in tables.items():
        if not tied:
            yield f"model.{stack}.embed_tokens.weight", table
        if pre_norm:
            yield f"model.{stack}.embed_positions.weight", positions_of(model)[:, order].contiguous()
            yield from with_suffixes(f"model.{stack}.layer_norm", p, f"{stack}.norm")
        for i in range(len(getattr(model, stack).layers)):
            yield from _seq2seq_layer(f"model.{stack}.layers.{i}", p, f"{stack}.layers.{i}")
    yield "final_logits_bias", torch.zeros(1, tables["decoder"].shape[0])


def _seq2seq_layer(theirs: str, p: Tensors, ours: str) -> Named:
    blocks = {"self_attention": ("self_attn", "self_residual"), "cross_attention": ("encoder_attn", "cross_residual")}
    for block, (other, residual) in blocks.items():
        if f"{ours}.{block}.q_proj.weight" not in p:
            continue
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            part = f"{theirs}.{other}.{'out_proj' if name == 'o_proj' else name}"
            yield f"{part}.weight", p[f"{ours}.{block}.{name}.weight"]
            yield f"{part}.bias", bias_of(p, f"{ours}.{block}.{name}")
        yield from with_suffixes(f"{theirs}.{other}_layer_norm", p, f"{ours}.{residual}.norm")
    for name, other in (("up_proj", "fc1"), ("down_proj", "fc2")):
        yield f"{theirs}.{other}.weight", p[f"{ours}.feed_forward.{name}.weight"]
        yield f"{theirs}.{other}.bias", bias_of(p, f"{ours}.feed_forward.{name}")
    yield from with_suffixes(f"{theirs}.final_layer_norm", p, f"{ours}.feed_forward_residual.norm")


def with_suffixes(theirs: str, p: Tensors, ours: str) -> Named:
    """Yield a weight, and the bias if there is one."""
    for name in ("weight", "bias"):
        if f"{ours}.{name}" in p:
            yield f"{theirs}.{name}", p[f"{ours}.{name}"]


def bias_of(p: Tensors, name: str) -> Tensor:
    """Return the bias of a linear layer, or zeros."""
    return p.get(f"{name}.bias", torch.zeros(p[f"{name}.weight"].shape[0]))


def positions_of(model: LanguageModel | Translator) -> Tensor:
    """Return the positions that are added to the embedding, (P, D); zeros if there are none."""
    embedding = model.embedding if isinstance(model, LanguageModel) else model.tgt_embedding
    if embedding.positions is None:
        return torch.zeros(model.max_len, model.config.d_model)
    return embedding.positions(torch.arange(model.max_len)[None])[0].detach().float().clone()


def _permuted(name: str, tensor: Tensor, order: Tensor) -> Tensor:
    """Return a parameter of a model whose residual stream has its features in another order."""
    *_, part, kind = name.split(".")
    if part in ("q_proj", "k_proj", "v_proj", "up_proj"):
        return tensor[:, order] if kind == "weight" else tensor
    if part in ("o_proj", "down_proj", "norm"):
        return tensor[order]
    return tensor[:, order]  # embeddings, and the output projection
