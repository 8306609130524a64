"""Write a model as ONNX graphs.

- `model.onnx`, of a classifier or a masked language model: `input_ids` and `attention_mask` (B, S) give `logits`,
  (B, C) or (B, S, V); of a regressor (B, 1), numbers in the units of the data, in float64; of a bare encoder `vector`,
  (B, D). With character n-grams there are also `ngram_index` (B, S) and `ngrams` (U, G): `NgramBatch`.
- `decoder_step.onnx`, of a language model: `input_ids` (B, n), `past_keys` and `past_values` (L, B, H, p, E) give
  `logits` (B, n, V), `keys` and `values` (L, B, H, p + n, E). With token n-grams there are also `recent_ids` (B, r),
  the last ids of the past.
- `encoder.onnx`, of a translator: `input_ids` and `attention_mask` (B, S) give `memory_keys` and `memory_values`
  (L, B, H, S, E). Its `decoder_step.onnx` takes these and the mask, too.

Past and new may have any length: a prompt, or the first step, has an empty past. Two operations have no good form in
ONNX and are computed otherwise here: the mean of n-grams without an `embedding_bag`, which would become a loop, and the
search for a pair of tokens without a `searchsorted`.
"""

from __future__ import annotations

import copy
import logging
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional as F

from glassformer.errors import UsageError
from glassformer.interop.engine import library
from glassformer.interop.onnx_engine import SPELLING, spelling_json
from glassformer.models import LanguageModel, Translator
from glassformer.models.build import d_head_of
from glassformer.models.encoder_models import TextEmbedder, TextEncoder, label_logits
from glassformer.models.ensemble import members_of
from glassformer.nn.cache import DecoderCache
from glassformer.nn.ngram_embeddings import BigramEmbedding, NgramBatch, NgramEmbedding
from glassformer.text.tokenizer import Tokenizer

OPSET = 20
MAX_BYTES = 1_900_000_000
"""A file of protocol buffers has at most 2 GiB."""
Shapes = dict[str, tuple[str | int, ...]]
"""The dimensions of each input: a name for one that may have any size."""
MODEL, ENCODER, DECODER = "model.onnx", "encoder.onnx", "decoder_step.onnx"


def write_onnx(
    model: nn.Module, tokenizer: Tokenizer, scale: tuple[float, float] | None = None
) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each file.

    `scale` are mean and standard deviation of the numbers of a regressor. An ensemble of classifiers, regressors or
    masked language models becomes one graph. The n-grams of the tokenizer are written too.

    Raises:
        UsageError: the packages onnx and onnxscript are not installed, or the model is too large.
    """
    library("writing for ONNX", "onnx", "onnx", "onnxscript")
    if (size := 4 * sum(p.numel() for p in model.parameters())) > MAX_BYTES:
        message = f"a graph in one file holds weights of at most {MAX_BYTES:,} bytes, and this model has {size:,}"
        raise UsageError(message, "use --to hf")
    model = copy.deepcopy(model).cpu().float().eval()
    first = members_of(model)[0]
    _replace_operations(model)
    if isinstance(first, LanguageModel):
        yield DECODER, _graph(_LanguageModelStep(first), _lm_shapes(first), ("logits", "keys", "values"))
    elif isinstance(first, Translator):
        yield ENCODER, _graph(_Encode(first), _encoder_shapes(), ("memory_keys", "memory_values"))
        yield DECODER, _graph(_TranslatorStep(first), _translator_shapes(first), ("logits", "keys", "values"))
    else:
        assert isinstance(first, TextEncoder)
        with_ngrams = first.ngrams is not None
        shapes: Shapes = {"input_ids": ("batch", "length"), "attention_mask": ("batch", "length")}
        if with_ngrams:
            shapes |= {"ngram_index": ("batch", "length"), "ngrams": ("words", "most")}
            yield SPELLING, spelling_json(tokenizer)
        output = "vector" if isinstance(first, TextEmbedder) else "logits"
        yield MODEL, _graph(_OfTexts(model, scale), shapes, (output,))


class _OfTexts(nn.Module):
    """A classifier, regressor, masked language model or bare encoder, or several of one kind."""

    def __init__(self, model: nn.Module, scale: tuple[float, float] | None = None) -> None:
        super().__init__()
        self.model = model
        self.scale = None if scale is None else nn.Buffer(torch.tensor(scale, dtype=torch.float64))

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, ngram_index: Tensor | None = None, ngrams: Tensor | None = None
    ) -> Tensor:
        if isinstance(self.model, TextEmbedder):
            return self.model(input_ids, attention_mask == 1)
        batch = None if ngram_index is None or ngrams is None else NgramBatch(ngram_index, ngrams)
        logits = label_logits(self.model, self.model(input_ids, attention_mask == 1, batch))
        return logits if self.scale is None else self.scale[0] + self.scale[1] * logits.double()


class _LanguageModelStep(nn.Module):
    """The next logits of a language model, and the keys and values of old and new positions."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: Tensor, past_keys: Tensor, past_values: Tensor, recent_ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        cache = _StepCache(past_keys, past_values, recent_ids=recent_ids)
        return self.model(input_ids, cache), *cache.stacked()


class _Encode(nn.Module):
    """The keys and values that the decoder's layers make of a source."""

    def __init__(self, model: Translator) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        memory = self.model.encode(input_ids, attention_mask == 1)
        attentions = [cast(Any, layer).cross_attention for layer in self.model.decoder.layers]
        keys = [a._split_heads(a.k_proj(memory)) for a in attentions]
        values = [a._split_heads(a.v_proj(memory)) for a in attentions]
        return torch.stack(keys), torch.stack(values)


class _TranslatorStep(nn.Module):
    """The next logits of a translator, and the keys and values of old and new positions."""

    def __init__(self, model: Translator) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        memory_keys: Tensor,
        memory_values: Tensor,
        past_keys: Tensor,
        past_values: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        cache = _StepCache(past_keys, past_values, memory_keys, memory_values)
        # The memory itself is not read, since its keys and values are there.
        memory = memory_keys[0, :, 0]
        return self.model.decode(input_ids, memory, attention_mask == 1, cache), *cache.stacked()


class _Attention:
    """Stands in for a `KVCache`: keys and values are inputs, and `append` gives new tensors."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys, self.values = keys, values

    @property
    def length(self) -> int:
        return self.keys.shape[2]

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        self.keys, self.values = torch.cat([self.keys, k], dim=2), torch.cat([self.values, v], dim=2)
        return self.keys, self.values


class _Layer:
    """Stands in for a `LayerCache`."""

    def __init__(self, self_attention: _Attention, cross_attention: _Attention | None) -> None:
        self.self_attention, self.cross_attention = self_attention, cross_attention


class _StepCache(DecoderCache):
    """A cache made of the inputs of a graph; arguments (L, B, H, length, E)."""

    def __init__(
        self,
        keys: Tensor,
        values: Tensor,
        memory_keys: Tensor | None = None,
        memory_values: Tensor | None = None,
        recent_ids: Tensor | None = None,
    ) -> None:
        super().__init__(0)
        n, self._recent, self._start = keys.shape[0], recent_ids, keys.shape[3]
        own = [_Attention(keys[i], values[i]) for i in range(n)]
        cross: list[_Attention | None] = [None] * n
        if memory_keys is not None and memory_values is not None:
            cross = [_Attention(memory_keys[i], memory_values[i]) for i in range(n)]
        self.layers = cast(Any, [_Layer(*pair) for pair in zip(own, cross, strict=True)])

    @property
    def length(self) -> int:
        return self._start

    def stacked(self) -> tuple[Tensor, Tensor]:
        """Return keys and values of all positions, (L, B, H, length, E)."""
        attentions = [layer.self_attention for layer in self.layers]
        return torch.stack([a.keys for a in attentions]), torch.stack([a.values for a in attentions])


class _GatheredNgrams(nn.Module):
    """`NgramEmbedding` without an `embedding_bag`."""

    def __init__(self, original: NgramEmbedding) -> None:
        super().__init__()
        self.weight, self.mode = original.weight, original.mode

    def forward(self, batch: NgramBatch) -> Tensor:
        real = (batch.ngrams != 0)[:, :, None].to(self.weight.dtype)  # (U, G, 1)
        total = (F.embedding(batch.ngrams, self.weight) * real).sum(dim=1)
        vectors = total if self.mode == "sum" else total / real.sum(dim=1).clamp(min=1)
        return F.embedding(batch.index, vectors)


def lookup_by_halving(part: BigramEmbedding) -> Any:
    """Return `part.lookup_ids` without a `searchsorted`: the first key that is not below the wanted one."""
    n = len(part.keys)
    steps = [1 << i for i in reversed(range(n.bit_length()))]
    highest = torch.iinfo(torch.int64).max
    keys = torch.cat([part.keys, torch.full((2 * steps[0] - n,), highest)])
    part.register_buffer("padded_keys", keys, persistent=False)

    def lookup_ids(ids: Tensor) -> Tensor:
        padded = cast(Tensor, part.padded_keys)
        key = F.pad(ids[:, :-1], (1, 0)) * part.vocab_size + ids
        position = torch.zeros_like(key)
        for step in steps:
            position = torch.where(padded[position + step - 1] < key, position + step, position)
        return torch.where(padded[position] == key, position + 1, 0)

    return lookup_ids


def _replace_operations(model: nn.Module) -> None:
    """Replace what has no good form in ONNX, in place."""
    for part in model.modules():
        if isinstance(part, TextEncoder) and part.ngrams is not None:
            part.ngrams = cast(Any, _GatheredNgrams(part.ngrams))
        if isinstance(part, TextEncoder) and part.bigrams is not None:
            cast(Any, part.bigrams).lookup_ids = lookup_by_halving(part.bigrams)
        if isinstance(part, LanguageModel) and part.ngrams is not None:
            hashed, gathered = part.ngrams, _GatheredNgrams(part.ngrams)
            cast(Any, hashed).forward = gathered.forward


def _cache_shapes(model: LanguageModel | Translator) -> Shapes:
    c = model.config
    shape = (len(model.decoder.layers), "batch", c.n_heads, "past", d_head_of(c))
    return {"past_keys": shape, "past_values": shape}


def _lm_shapes(model: LanguageModel) -> Shapes:
    recent: Shapes = {"recent_ids": ("batch", "recent")} if model.ngrams is not None else {}
    return {"input_ids": ("batch", "new")} | _cache_shapes(model) | recent


def _encoder_shapes() -> Shapes:
    return {"input_ids": ("batch", "length"), "attention_mask": ("batch", "length")}


def _translator_shapes(model: Translator) -> Shapes:
    c = model.config
    shape = (len(model.decoder.layers), "batch", c.n_heads, "length", d_head_of(c))
    memory: Shapes = {"memory_keys": shape, "memory_values": shape}
    return {"input_ids": ("batch", "new"), "attention_mask": ("batch", "length")} | memory | _cache_shapes(model)


def _graph(module: nn.Module, shapes: Shapes, outputs: tuple[str, ...]) -> bytes:
    """Return a module as an ONNX file. Sizes in the example are different, and no 0 or 1, which would be fixed."""
    sizes = {"batch": 2, "length": 7, "new": 5, "past": 6, "recent": 3, "words": 4, "most": 9}
    example = {}
    for name, shape in shapes.items():
        dims = [sizes[dim] if isinstance(dim, str) else dim for dim in shape]
        example[name] = torch.zeros(dims) if "keys" in name or "values" in name else torch.ones(dims, dtype=torch.int64)
    dims_of = {dim: Dim(dim, min=0) for shape in shapes.values() for dim in shape if isinstance(dim, str)}
    dynamic = {
        name: {i: dims_of[dim] for i, dim in enumerate(shape) if isinstance(dim, str)} for name, shape in shapes.items()
    }
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), torch.no_grad(), tempfile.TemporaryDirectory() as folder:
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                module,
                kwargs=example,
                dynamo=True,
                verbose=False,
                opset_version=OPSET,
                input_names=list(shapes),
                output_names=outputs,
                dynamic_shapes=dynamic,
            )
            assert program is not None
            path = Path(folder) / "graph.onnx"
            program.save(path)
            return path.read_bytes()
    finally:
        logging.disable(level)
