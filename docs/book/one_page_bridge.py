"""From the models of the chapter `one-page` to those of the library, with equal logits.

The parts have the same names on both sides but for those in `RENAMED`; weights are copied and nothing is computed,
except for two classes, which share one logit in the library. Models differ by the names of their classes.
"""

from __future__ import annotations

from typing import Any

from glassformer.config import ModelConfig
from glassformer.models import LanguageModel, TextClassifier, Translator

RENAMED = {
    "self_norm.": "self_residual.norm.",
    "cross_norm.": "cross_residual.norm.",
    "feed_forward_norm.": "feed_forward_residual.norm.",
}
"""Part of a parameter's name in the chapter → the same in the library."""
CHOICES: dict[str, Any] = {
    "norm": "layer",
    "pre_norm": True,
    "activation": "gelu",
    "positions": "sinusoidal",
    "bias": True,
    "tie_embeddings": False,
    "pooling": "mean",
}
"""What the chapter has chosen among what the library can do."""


def to_library(model: Any) -> Translator | TextClassifier | LanguageModel:
    """Return the library's model with the weights of a model of the chapter, in the same mode (training or not).

    Raises:
        ValueError: the class of the model has another name than those of the chapter.
    """
    if (name := type(model).__name__) not in ("EncoderDecoder", "Classifier", "LanguageModel"):
        raise ValueError(f"expected an EncoderDecoder, a Classifier or a LanguageModel, and {name} came")
    stack = model.encoder if hasattr(model, "encoder") else model.decoder
    first, (vocab_size, d_model) = stack.layers[0], stack.embedding.weight.shape
    max_len = len(stack.embedding.positions.table)
    config = ModelConfig(
        n_layers=len(stack.layers),
        d_model=d_model,
        n_heads=first.self_attention.n_heads,
        d_ff=first.feed_forward.up_proj.out_features,
        dropout=first.dropout.p,
        **CHOICES,
    )
    renamed = RENAMED | {"encoder.embedding.": "embedding.", "decoder.embedding.": "embedding."}
    match name:
        case "EncoderDecoder":
            library = Translator(config, vocab_size, max_len)
            renamed |= {"encoder.embedding.": "src_embedding.", "decoder.embedding.": "tgt_embedding."}
        case "Classifier":
            library = TextClassifier(config, vocab_size, model.head.out_features, max_len)
        case _:
            library = LanguageModel(config, vocab_size, max_len)
    weights = {}
    for parameter, value in model.state_dict().items():
        for ours, theirs in renamed.items():
            parameter = parameter.replace(ours, theirs)
        weights[parameter] = value
    if isinstance(library, TextClassifier) and library.n_classes == 2:  # the other logit is 0: shift both by it
        weights |= {name: weights[name][1:] - weights[name][:1] for name in ("head.weight", "head.bias")}
    library.load_state_dict(weights)
    return library.train(model.training)
