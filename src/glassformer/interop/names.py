"""Tensor names of other libraries: one table for each family, read both ways. An export writes it, an import reads it.

A row is `ours  theirs  [how …]`, of modules with a weight and perhaps a bias. {a,b} are parallel names, a+b the rows of
one matrix there, * is the number of a layer, ~ the prefix of a class with a head, and a|b are names of one tensor, of
which the first is written. Rows after [kind …] belong to these kinds of models (`Task.explain_as`) alone. How:

    T       the weight is transposed there
    zeros   there is a bias in any case: zeros where ours has none
    ?       it may be absent
    whole   the names are those of tensors, without .weight or .bias

An import leaves out what stands beside `-`: buffers that can be computed, and heads that no kind of model here has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from glassformer.errors import CheckpointError
from glassformer.interop.source_folder import SourceTensors

_BERT = """
embedding                                          ~embeddings.word_embeddings
embedding.positions                                ~embeddings.position_embeddings
segments                                           ~embeddings.token_type_embeddings ?
embedding.norm                                     ~embeddings.LayerNorm
encoder.layers.*.self_attention.{q,k,v}_proj       ~encoder.layer.*.attention.self.{query,key,value}
encoder.layers.*.self_attention.o_proj             ~encoder.layer.*.attention.output.dense
encoder.layers.*.self_residual.norm                ~encoder.layer.*.attention.output.LayerNorm
encoder.layers.*.feed_forward.{up,down}_proj       ~encoder.layer.*.{intermediate,output}.dense
encoder.layers.*.feed_forward_residual.norm        ~encoder.layer.*.output.LayerNorm
-                                                  ~embeddings.position_ids whole
"""
_LLAMA = """
embedding                                          ~embed_tokens
decoder.layers.*.self_attention.{q,k,v,o}_proj     ~layers.*.self_attn.{q,k,v,o}_proj
decoder.layers.*.feed_forward.{gate,up,down}_proj  ~layers.*.mlp.{gate,up,down}_proj
decoder.layers.*.{self,feed_forward}_residual.norm ~layers.*.{input,post_attention}_layernorm
decoder.norm                                       ~norm
output                                             lm_head ?
-                                                  ~rotary_emb.inv_freq whole
-                                                  ~layers.*.self_attn.rotary_emb.inv_freq whole
"""
_MARIAN = """
tgt_embedding                                      ~shared|~decoder.embed_tokens
src_embedding                                      ~encoder.embed_tokens ?
output                                             lm_head ?
output_bias                                        final_logits_bias whole ?
{encoder,decoder}.layers.*.self_attention.{q,k,v,o}_proj ~{encoder,decoder}.layers.*.self_attn.{q,k,v,out}_proj zeros
decoder.layers.*.cross_attention.{q,k,v,o}_proj    ~decoder.layers.*.encoder_attn.{q,k,v,out}_proj zeros
{encoder,decoder}.layers.*.self_residual.norm      ~{encoder,decoder}.layers.*.self_attn_layer_norm
decoder.layers.*.cross_residual.norm               ~decoder.layers.*.encoder_attn_layer_norm
{encoder,decoder}.layers.*.feed_forward.{up,down}_proj ~{encoder,decoder}.layers.*.fc{1,2} zeros
{encoder,decoder}.layers.*.feed_forward_residual.norm ~{encoder,decoder}.layers.*.final_layer_norm
"""
_ROBERTA = f"""{_BERT}
[classifier multilabel_classifier]
pooler.dense                                       classifier.dense
head                                               classifier.out_proj
[tagger]
head                                               classifier
[masked_language_model]
mlm_transform                                      lm_head.dense
mlm_norm                                           lm_head.layer_norm
output.weight                                      lm_head.decoder.weight whole ?
output_bias                                        lm_head.bias|lm_head.decoder.bias whole
[other]
-                                                  ~pooler.dense
"""
_CTRANSLATE2 = """
{encoder,decoder}.layers.*.self_attention.q_proj+k_proj+v_proj {encoder,decoder}/layer_*/self_attention/linear_0
{encoder,decoder}.layers.*.self_attention.o_proj      {encoder,decoder}/layer_*/self_attention/linear_1
{encoder,decoder}.layers.*.self_residual.norm         {encoder,decoder}/layer_*/self_attention/layer_norm
{encoder,decoder}.layers.*.feed_forward.up_proj       {encoder,decoder}/layer_*/ffn/linear_0
{encoder,decoder}.layers.*.feed_forward.down_proj     {encoder,decoder}/layer_*/ffn/linear_1
{encoder,decoder}.layers.*.feed_forward_residual.norm {encoder,decoder}/layer_*/ffn/layer_norm
{encoder,decoder}.norm                                {encoder,decoder}/layer_norm ?
output                                                decoder/projection
[translator]
decoder.layers.*.cross_attention.q_proj               decoder/layer_*/attention/linear_0
decoder.layers.*.cross_attention.k_proj+v_proj        decoder/layer_*/attention/linear_1
decoder.layers.*.cross_attention.o_proj               decoder/layer_*/attention/linear_2
decoder.layers.*.cross_residual.norm                  decoder/layer_*/attention/layer_norm
src_embedding                                         encoder/embeddings_0|encoder/embeddings
tgt_embedding                                         decoder/embeddings|decoder/embeddings_0
{src,tgt}_embedding.norm                              {encoder,decoder}/layernorm_embedding ?
[language_model]
embedding                                             decoder/embeddings|decoder/embeddings_0
embedding.norm                                        decoder/layernorm_embedding ?
"""
TABLES = {
    "bert": f"""{_BERT}
[classifier multilabel_classifier]
pooler.dense                                       ~pooler.dense
head                                               classifier
[tagger]
head                                               classifier
[masked_language_model]
mlm_transform                                      cls.predictions.transform.dense
mlm_norm                                           cls.predictions.transform.LayerNorm
output.weight                                      cls.predictions.decoder.weight whole ?
output_bias                                        cls.predictions.bias|cls.predictions.decoder.bias whole
[other]
-                                                  cls.seq_relationship
""",
    "distilbert": """
embedding                                          ~embeddings.word_embeddings
embedding.positions                                ~embeddings.position_embeddings
embedding.norm                                     ~embeddings.LayerNorm
encoder.layers.*.self_attention.{q,k,v,o}_proj     ~transformer.layer.*.attention.{q,k,v,out}_lin
encoder.layers.*.{self,feed_forward}_residual.norm ~transformer.layer.*.{sa,output}_layer_norm
encoder.layers.*.feed_forward.{up,down}_proj       ~transformer.layer.*.ffn.lin{1,2}
[classifier multilabel_classifier]
pooler.dense                                       pre_classifier
head                                               classifier
[tagger]
head                                               classifier
[masked_language_model]
mlm_transform                                      vocab_transform
mlm_norm                                           vocab_layer_norm
output.weight                                      vocab_projector.weight whole ?
output_bias                                        vocab_projector.bias whole
""",
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "gpt2": """
embedding                                          ~wte
embedding.positions                                ~wpe
decoder.layers.*.self_attention.q_proj+k_proj+v_proj ~h.*.attn.c_attn T zeros
decoder.layers.*.self_attention.o_proj             ~h.*.attn.c_proj T zeros
decoder.layers.*.feed_forward.{up,down}_proj       ~h.*.mlp.c_{fc,proj} T zeros
decoder.layers.*.{self,feed_forward}_residual.norm ~h.*.ln_{1,2}
decoder.norm                                       ~ln_f
output                                             lm_head ?
-                                                  ~h.*.attn.bias whole
-                                                  ~h.*.attn.masked_bias whole
""",
    "llama": _LLAMA,
    "marian": _MARIAN,
    "pegasus": f"""{_MARIAN}
{{encoder,decoder}}.norm                           ~{{encoder,decoder}}.layer_norm
-                                                  ~{{encoder,decoder}}.embed_positions
""",
    "ctranslate2": _CTRANSLATE2,
    "ctranslate2-gated": _CTRANSLATE2.replace("feed_forward.up_proj", "feed_forward.{gate,up}_proj").replace(
        "ffn/linear_0", "ffn/linear_{0,0_noact}"
    ),
}
PREFIXES = dict.fromkeys(("roberta", "xlm-roberta"), "roberta.")
PREFIXES |= {"bert": "bert.", "distilbert": "distilbert.", "gpt2": "transformer."}
"""What ~ stands for; "model." of the others."""


class Row(NamedTuple):
    """Names of one tensor there: those of its parts here, and those that it may have there."""

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    how: frozenset[str]
    kinds: frozenset[str]


def rows(family: str, n_layers: int, prefix: str = "") -> Iterator[Row]:
    """Yield the rows of a family, of all kinds of models, a row for each tensor of each layer."""
    kinds = frozenset[str]()
    for line in TABLES[family].split("\n"):
        if line.startswith("["):
            kinds = frozenset(line.strip("[]").split())
        elif line:
            ours, theirs, *how = line.split()
            several = _spread(theirs)
            for one, other in zip(_spread(ours) if ours != "-" else [ours] * len(several), several, strict=True):
                for i in range(n_layers) if "*" in other else (0,):
                    yield from _of_module(one.replace("*", str(i)), other.replace("*", str(i)), prefix, how, kinds)


def _spread(text: str) -> list[str]:
    """Return the names that parallel parts in braces stand for."""
    before, _, rest = text.partition("{")
    if not rest:
        return [text]
    choices, _, after = rest.partition("}")
    return [before + choice + end for choice in choices.split(",") for end in _spread(after)]


def _of_module(ours: str, theirs: str, prefix: str, how: Sequence[str], kinds: frozenset[str]) -> Iterator[Row]:
    first, *more = ours.split("+")
    modules = [first, *(f"{first.rpartition('.')[0]}.{name}" for name in more)]
    names = [name.replace("~", prefix) for name in theirs.split("|")]
    suffixes = {".weight": ".weight", ".bias": ".bias"}
    if "/" in theirs:
        is_norm = theirs.endswith(("layer_norm", "layernorm_embedding"))
        suffixes = {".weight": "/gamma", ".bias": "/beta"} if is_norm else {".weight": "/weight", ".bias": "/bias"}
    for part, its in {"": ""}.items() if "whole" in how else suffixes.items():
        yield Row(tuple(m + part for m in modules), tuple(n + its for n in names), frozenset(how), kinds)


def to_theirs(table: Iterable[Row], kind: str, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a model under their names."""
    found = dict[str, Tensor]()
    for row in table:
        parts = [parameters.get(name) for name in row.ours]
        if "zeros" in row.how and row.ours[0].endswith(".bias"):
            weights = [parameters.get(name.removesuffix(".bias") + ".weight") for name in row.ours]
            pairs = zip(parts, weights, strict=True)
            parts = [torch.zeros(len(w)) if p is None and w is not None else p for p, w in pairs]
        there = [part for part in parts if part is not None]
        if len(there) == len(parts) and (not row.kinds or kind in row.kinds):
            tensor = there[0] if len(there) == 1 else torch.cat(there)
            found[row.theirs[0]] = tensor.T.contiguous() if "T" in row.how and tensor.dim() == 2 else tensor
    return found


def to_ours(table: Iterable[Row], kind: str, tensors: SourceTensors) -> tuple[dict[str, Tensor], list[str]]:
    """Return the tensors of a source under our names, and the names of heads that the kind of model has no use for.

    Args:
        table: the rows of its family.
        kind: of the model, `Task.explain_as`.
        tensors: those of the source, without a prefix; what no row names is left.

    Raises:
        CheckpointError: one is missing, cannot be cut into its parts, or is there twice with other numbers.
    """
    found, unused = dict[str, Tensor](), list[str]()
    for row in sorted(table, key=lambda row: kind not in row.kinds):  # what it takes, no other form leaves out
        names, n_parts = [name for name in row.theirs if name in tensors], len(row.ours)
        if row.ours[0].startswith("-") or (row.kinds and kind not in row.kinds):
            for name in names:
                tensors.leave_out(name)
            unused += names if row.kinds else []
            continue
        if not names and ("?" in row.how or row.ours[0].endswith(".bias")):
            continue  # a bias that a model needs is missed where the model is made
        name, *others = names or row.theirs
        tensor = tensors.take(name)
        if any(not torch.equal(tensors.take(other), tensor) for other in others):
            raise CheckpointError(f"the tensors {' and '.join((name, *others))} should be equal")
        tensor = tensor.T if "T" in row.how and tensor.dim() == 2 else tensor
        if n_parts > 1 and (not tensor.dim() or not len(tensor) or len(tensor) % n_parts):
            raise CheckpointError(f"the tensor {name} of shape {tuple(tensor.shape)} does not hold {n_parts} parts")
        parts = tensor.chunk(n_parts) if n_parts > 1 else [tensor]
        found |= {ours: part.contiguous() for ours, part in zip(row.ours, parts, strict=True)}
    return found, unused
