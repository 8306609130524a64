"""Write a model as ONNX graphs.

- `model.onnx`, of a classifier or a masked language model: `input_ids` and `attention_mask` (B, S) give `logits`,
  (B, C) or (B, S, V); of a regressor (B, 1), numbers in the units of the data, in float64; of a bare encoder `vector`,
  (B, D). With character n-grams there are also `ngram_index` (B, S) and `ngrams` (U, G): `NgramBatch`.
Two operations have no good form in ONNX and are computed otherwise here: the mean of n-grams without an
`embedding_bag`, which would become a loop, and the search for a pair of tokens without a `searchsorted`.
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
from glassformer.models.encoder_models import TextEmbedder, TextEncoder, label_logits
from glassformer.models.ensemble import members_of
from glassformer.nn.ngram_embeddings import BigramEmbedding, NgramBatch, NgramEmbedding
from glassformer.text.tokenizer import Tokenizer

OPSET = 20
MAX_BYTES = 1_900_000_000
"""A file of protocol buffers has at most 2 GiB."""
Shapes = dict[str, tuple[str, ...]]
"""The dimensions of each input by name; each may have any size."""


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
    assert isinstance(first, TextEncoder)
    shapes: Shapes = {"input_ids": ("batch", "length"), "attention_mask": ("batch", "length")}
    if first.ngrams is not None:
        shapes |= {"ngram_index": ("batch", "length"), "ngrams": ("words", "most")}
        yield SPELLING, spelling_json(tokenizer)
    output = "vector" if isinstance(first, TextEmbedder) else "logits"
    yield "model.onnx", _graph(_OfTexts(model, scale), shapes, (output,))


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


def _graph(module: nn.Module, shapes: Shapes, outputs: tuple[str, ...]) -> bytes:
    """Return a module as an ONNX file. Sizes in the example are different, and no 0 or 1, which would be fixed."""
    sizes = {"batch": 2, "length": 7, "words": 4, "most": 9}
    example = {name: torch.ones([sizes[dim] for dim in shape], dtype=torch.int64) for name, shape in shapes.items()}
    dims_of = {dim: Dim(dim, min=0) for dim in sizes}
    dynamic = {name: {i: dims_of[dim] for i, dim in enumerate(shape)} for name, shape in shapes.items()}
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
