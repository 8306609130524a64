"""From the models of `one_page.py` to those of the library and back, with equal logits.

The parts have the same names on both sides but for those in `RENAMED`; weights are copied and nothing is computed,
except for two classes, which share one logit in the library. Models are told apart by the names of their classes, so
that a copy of `one_page.py` in a notebook can be loaded as well.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import one_page
from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.models import LanguageModel, TextClassifier, Translator

Plain = one_page.EncoderDecoder | one_page.Classifier | one_page.LanguageModel
Library = Translator | TextClassifier | LanguageModel

RENAMED = {
    "encoder.embedding.": "src_embedding.",
    "decoder.embedding.": "tgt_embedding.",
    "self_norm.": "self_residual.norm.",
    "cross_norm.": "cross_residual.norm.",
    "feed_forward_norm.": "feed_forward_residual.norm.",
}
"""Part of a parameter's name in `one_page.py` → the same in the library."""
CHOICES: dict[str, Any] = {
    "norm": "layer",
    "pre_norm": True,
    "activation": "gelu",
    "positions": "sinusoidal",
    "bias": True,
    "tie_embeddings": False,
    "pooling": "mean",
}
"""What the page has chosen among what the library can do."""


def to_library(model: Any) -> Library:
    """Return the library's model with the weights of a model of the page, in the same mode (training or not).

    Raises:
        ValueError: the class of the model has another name than those of the page.
    """
    if (name := type(model).__name__) not in ("EncoderDecoder", "Classifier", "LanguageModel"):
        raise ValueError(f"expected an EncoderDecoder, a Classifier or a LanguageModel, and {name} came")
    config, vocab_size, max_len = _sizes_of(model)
    library: Library
    match name:
        case "EncoderDecoder":
            library = Translator(config, vocab_size, max_len)
        case "Classifier":
            library = TextClassifier(config, vocab_size, model.head.out_features, max_len)
        case _:
            library = LanguageModel(config, vocab_size, max_len)
    weights = {_library_name(name, library): value for name, value in model.state_dict().items()}
    if isinstance(library, TextClassifier) and library.n_classes == 2:  # the other logit is 0: shift both by it
        weights |= {name: weights[name][1:] - weights[name][:1] for name in ("head.weight", "head.bias")}
    library.load_state_dict(weights)
    return library.train(model.training)


def from_library(library: Library) -> Plain:
    """Return the page's model with the weights of a model of the library, in the same mode (training or not).

    Raises:
        ValueError: the model has parts that the page lacks.
    """
    _check(library)
    c = library.config
    config = one_page.Config(
        c.n_layers, c.d_model, c.n_heads, c.d_ff or 4 * c.d_model, dropout=c.dropout, max_len=library.max_len
    )
    state = library.state_dict()
    model: Plain
    match library:
        case Translator():
            model = one_page.EncoderDecoder(config, len(state["tgt_embedding.weight"]))
        case TextClassifier():
            model = one_page.Classifier(config, len(state["embedding.weight"]), library.n_classes)
        case LanguageModel():
            model = one_page.LanguageModel(config, len(state["embedding.weight"]))
    weights = {name: state[_library_name(name, library)] for name in model.state_dict()}
    if isinstance(library, TextClassifier) and library.n_classes == 2:
        weights |= {name: _with_zeros(weights[name]) for name in ("head.weight", "head.bias")}
    model.load_state_dict(weights)
    return model.train(library.training)


def _library_name(name: str, library: Library) -> str:
    """Return the library's name of a parameter; only a translator has two embeddings."""
    for ours, theirs in RENAMED.items():
        name = name.replace(ours, theirs)
    if isinstance(library, Translator):
        return name
    return name.replace("src_embedding.", "embedding.").replace("tgt_embedding.", "embedding.")


def _with_zeros(x: Tensor) -> Tensor:
    """Return the weights of two classes from those of the second (1, ...): the first logit is 0."""
    return x.new_zeros(2, *x.shape[1:]).index_copy(0, x.new_ones(1).long(), x)


def _sizes_of(model: Any) -> tuple[ModelConfig, int, int]:
    """Return the library's configuration, the size of the vocabulary, and the maximum length."""
    stack = model.encoder if hasattr(model, "encoder") else model.decoder
    first, embedding = stack.layers[0], stack.embedding
    vocab_size, d_model = embedding.weight.shape
    config = ModelConfig(
        n_layers=len(stack.layers),
        d_model=d_model,
        n_heads=first.self_attention.n_heads,
        d_ff=first.feed_forward.up_proj.out_features,
        dropout=first.dropout.p,
        **CHOICES,
    )
    return config, vocab_size, len(embedding.positions.table)


def _check(library: Library) -> None:
    """Refuse a model with parts that the page lacks."""
    if not isinstance(library, Library):
        kinds = "Translator, TextClassifier or LanguageModel"
        raise ValueError(f"expected a {kinds}, not {type(library).__name__} (of an ensemble take one of model.members)")
    c, default = library.config, ModelConfig()
    kept = {"n_layers", "d_model", "n_heads", "d_ff", "dropout", "ensemble_size", "ngram_dropout"}
    expected = {f.name: CHOICES.get(f.name, getattr(default, f.name)) for f in fields(c) if f.name not in kept}
    if c.embedding_dropout == c.dropout:
        expected["embedding_dropout"] = c.dropout
    if c.d_head == c.d_model // c.n_heads:
        expected["d_head"] = c.d_head
    for name, value in expected.items():
        if getattr(c, name) != value:
            raise ValueError(f"expected a model with {name} = {value!r}, and it has {getattr(c, name)!r}")
    for name in ("ngrams", "bigrams"):
        if getattr(library, name, None) is not None:
            raise ValueError(f"expected a model without {name}, whose embeddings one_page.py lacks")
