"""Classes of transformers for encoders of texts like BERT: which one computes the same as a model, if any does.

They are for models with a tokenizer that puts a start token before each text, as those of pretrained models do: the
classes read the first token of a text even where there is none.
"""

from __future__ import annotations

from glassformer.config import ModelConfig

OF_TEXTS = ("classifier", "multilabel_classifier", "masked_language_model", "text_embedder")
"""Kinds of models that encode a text."""
ENCODER_CLASSES = {
    ("bert", "classifier"): "BertForSequenceClassification",
    ("bert", "multilabel_classifier"): "BertForSequenceClassification",
    ("bert", "masked_language_model"): "BertForMaskedLM",
    ("bert", "text_embedder"): "BertModel",
    ("distilbert", "classifier"): "DistilBertForSequenceClassification",
    ("distilbert", "multilabel_classifier"): "DistilBertForSequenceClassification",
    ("distilbert", "masked_language_model"): "DistilBertForMaskedLM",
    ("distilbert", "text_embedder"): "DistilBertModel",
}
"""Class by model type and kind of model."""
POOLING_MODES = {"first": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}
"""Pooling as sentence-transformers names it, after `pooling_mode_`."""
CUT = "a text longer than the context needs truncation=True there, which cuts its end"
_BLOCK = {"pre_norm": False, "norm": "layer", "positions": "learned", "embedding_norm": True, "bias": True}
"""Settings of the layers of BERT."""
_DISTILBERT_EPS = 1e-12


def hf_encoder_type(kind: str, m: ModelConfig, n_members: int = 1) -> tuple[str, str]:
    """Return the model type of transformers that computes the same, or "" and the setting in the way.

    DistilBERT is a BERT without segments, of a fixed epsilon, and its classifier has ReLU before the head.
    """
    distilled = m.n_segments == 0 and m.norm_eps == _DISTILBERT_EPS
    if obstacle := _in_block(m):
        return "", obstacle
    if n_members > 1:
        return "", f"an ensemble of {n_members}"
    if kind in ("classifier", "multilabel_classifier"):
        if m.pooling != "first" or m.pooler == "none":
            return "", f"model.pooling {m.pooling} with model.pooler {m.pooler}"
        if m.pooler == "relu" and not distilled:
            return "", f"model.pooler relu with model.n_segments {m.n_segments} and model.norm_eps {m.norm_eps}"
        return ("distilbert" if m.pooler == "relu" else "bert"), ""
    if kind == "masked_language_model" and m.activation != "gelu":
        return "", f"model.activation {m.activation}"
    return ("distilbert" if distilled else "bert"), ""


def _in_block(m: ModelConfig) -> str:
    """Return the first setting in which the layers differ from those of BERT, or ""."""
    odd = next((name for name, value in _BLOCK.items() if getattr(m, name) != value), "")
    if odd:
        return f"model.{odd} {str(getattr(m, odd)).lower()}"
    if m.activation == "swiglu":
        return "model.activation swiglu"
    if m.embedding_init_std is None:
        return "no model.embedding_init_std"
    return f"model.d_head {m.d_head}" if m.d_head is not None and m.d_head * m.n_heads != m.d_model else ""


def encoder_notes(model_type: str, kind: str) -> tuple[str, ...]:
    """Return what differs there, one sentence each."""
    if (model_type, kind) == ("bert", "text_embedder"):
        return (CUT, "BertModel has a pooler, which this model lacks: its weights are zeros")
    return (CUT,)
