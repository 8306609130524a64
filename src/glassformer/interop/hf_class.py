"""Classes for models that no class of transformers can hold: import this module, and its Auto classes know them.

    import glassformer.interop.hf_class
    from transformers import AutoModelForSequenceClassification, pipeline

Each wraps the model as it is here, under the prefix `model.`, so that the exported folder holds numbers and settings,
and no code. There is no cache of keys and values.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    GenerationMixin,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.modeling_outputs import (
    BaseModelOutput,
    CausalLMOutput,
    MaskedLMOutput,
    Seq2SeqLMOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)

from glassformer.config import ModelConfig
from glassformer.models import LanguageModel, MaskedLanguageModel, TextClassifier, Translator
from glassformer.models.encoder_models import TokenClassifier
from glassformer.models.ensemble import Ensemble
from glassformer.nn.embeddings import SinusoidalPositions, sinusoidal
from glassformer.nn.ngram_embeddings import BigramEmbedding, NgramBatch
from glassformer.text.tokenizer import SPECIAL_TOKENS


class GlassformerConfig(PreTrainedConfig):
    """Settings of a model and the sizes of its tables, in `config.json`.

    Args:
        settings: fields of `ModelConfig`.
        vocab_size: number of tokens.
        max_position_embeddings: maximum length of a text, in tokens.
        n_members: models of an ensemble.
        n_ngrams: rows of the table of character n-grams; 0 for none.
        n_word_ngrams: most n-grams of a word.
        n_bigrams: pairs of tokens that have an embedding.
        more: settings of every configuration of transformers.
    """

    model_type = "glassformer"

    def __init__(
        self,
        settings: dict[str, Any] | None = None,
        vocab_size: int = 6,
        max_position_embeddings: int = 1,
        n_members: int = 1,
        n_ngrams: int = 0,
        n_word_ngrams: int = 0,
        n_bigrams: int = 0,
        **more: Any,
    ) -> None:
        self.settings = settings or {}
        self.vocab_size, self.max_position_embeddings, self.n_members = vocab_size, max_position_embeddings, n_members
        self.n_ngrams, self.n_word_ngrams, self.n_bigrams = n_ngrams, n_word_ngrams, n_bigrams
        self.use_cache = False
        super().__init__(**more)


class GlassformerModel(PreTrainedModel):
    """Base of the classes: a model under `model`, and tables that the tokenizer holds in a run."""

    config_class = GlassformerConfig
    base_model_prefix = "wrapped"

    def __init__(self, config: GlassformerConfig) -> None:
        super().__init__(config)
        models = [self._build(config) for _ in range(config.n_members)]
        self.model: Any = models[0] if len(models) == 1 else Ensemble(models)
        for part in self.modules():
            if isinstance(part, BigramEmbedding):
                part.register_buffer("keys", torch.arange(config.n_bigrams))  # saved here
        if config.n_ngrams:
            shape = config.vocab_size, config.n_word_ngrams
            self.register_buffer("word_ngrams", torch.zeros(shape, dtype=torch.int32))
        self.post_init()

    def _build(self, config: GlassformerConfig) -> nn.Module:
        raise NotImplementedError

    def _init_weights(self, module: nn.Module) -> None:
        """Compute the sinusoids, which no file holds; all else is read."""
        if isinstance(module, SinusoidalPositions):
            table = sinusoidal(*module.table.shape) * module.amplitude
            module.table = table.to(module.table.device)

    def check_length(self, ids: Tensor) -> None:
        """Raise an IndexError for more tokens than positions; a GPU would end the process instead."""
        if (n := ids.shape[1]) > (most := self.config.max_position_embeddings):
            raise IndexError(f"expected at most {most:,} tokens a text, got {n:,}; pass truncation=True to cut it")

    def _ngram_batch(self, ids: Tensor) -> NgramBatch | None:
        """Return the character n-grams of tokens by id: a word that is not in the vocabulary has none."""
        if not self.config.n_ngrams:
            return None
        tokens, index = ids.unique(return_inverse=True)
        return NgramBatch(index, cast(Tensor, self.word_ngrams)[tokens].long())


MULTI_LABEL = "multi_label_classification"
"""The `problem_type` of texts that may have several labels."""
REGRESSION = "regression"
"""The `problem_type` of answers that are numbers."""


class GlassformerForSequenceClassification(GlassformerModel):
    """A classifier or regressor, or an ensemble of them; it pools over the tokens where `attention_mask` is 1."""

    def _build(self, config: GlassformerConfig) -> nn.Module:
        c, pairs = config, [(0, i) for i in range(config.n_bigrams)]
        n = 1 if c.problem_type == REGRESSION else int(c.num_labels or 2)
        sizes = c.vocab_size, n, c.max_position_embeddings, c.n_ngrams
        return TextClassifier(_settings(c), *sizes, pairs, several=c.problem_type == MULTI_LABEL)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, labels: Tensor | None = None, **_: Any
    ) -> SequenceClassifierOutput:
        """Return logits (B, C), and the cross-entropy if there are labels (B,), or (B, C) of 0 and 1 for several.

        Of a regressor the logits (B, 1) are numbers, and the loss is their mean squared error.
        """
        self.check_length(input_ids)
        logits = self.model(input_ids, _boolean(attention_mask), self._ngram_batch(input_ids))
        if self.config.problem_type == REGRESSION:
            error = None if labels is None else F.mse_loss(logits[:, 0], labels.float().flatten())
            return SequenceClassifierOutput(loss=error, logits=logits)
        several = self.config.problem_type == MULTI_LABEL
        loss = None if labels is None else _cross_entropy(logits, labels.long() if several else labels)
        logits = logits[..., 1] - logits[..., 0] if several else logits
        return SequenceClassifierOutput(loss=loss, logits=logits)


class GlassformerForTokenClassification(GlassformerModel):
    """A tagger of words, or an ensemble of them; the tag of a word is that of its first token."""

    def _build(self, config: GlassformerConfig) -> nn.Module:
        c, pairs = config, [(0, i) for i in range(config.n_bigrams)]
        sizes = c.vocab_size, int(c.num_labels or 2), c.max_position_embeddings, c.n_ngrams
        return TokenClassifier(_settings(c), *sizes, pairs)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, labels: Tensor | None = None, **_: Any
    ) -> TokenClassifierOutput:
        """Return logits (B, S, C), and the cross-entropy of labels (B, S), of which -100 are left out."""
        self.check_length(input_ids)
        logits = self.model(input_ids, _boolean(attention_mask), self._ngram_batch(input_ids))
        loss = None if labels is None else _cross_entropy(logits, labels)
        return TokenClassifierOutput(loss=loss, logits=logits)


class GlassformerForMaskedLM(GlassformerModel):
    """A masked language model."""

    def _build(self, config: GlassformerConfig) -> nn.Module:
        c, pairs = config, [(0, i) for i in range(config.n_bigrams)]
        return MaskedLanguageModel(_settings(c), c.vocab_size, c.max_position_embeddings, c.n_ngrams, pairs)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, labels: Tensor | None = None, **_: Any
    ) -> MaskedLMOutput:
        """Return logits (B, S, V), and the cross-entropy of labels (B, S), of which -100 are left out."""
        self.check_length(input_ids)
        logits = self.model(input_ids, _boolean(attention_mask), self._ngram_batch(input_ids))
        loss = None if labels is None else _cross_entropy(logits, labels)
        return MaskedLMOutput(loss=loss, logits=logits)


class GlassformerForCausalLM(GlassformerModel, GenerationMixin):
    """A language model; texts of a batch may be padded on the left."""

    def _build(self, config: GlassformerConfig) -> nn.Module:
        n_special = len(SPECIAL_TOKENS)
        return LanguageModel(_settings(config), config.vocab_size, config.max_position_embeddings, n_special)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, labels: Tensor | None = None, **_: Any
    ) -> CausalLMOutput:
        """Return logits (B, T, V), zeros at padding, and the cross-entropy of labels (B, T), shifted by one."""
        self.check_length(input_ids)
        if attention_mask is None or bool(attention_mask.all()):
            logits = self.model(input_ids)
        else:
            rows = [self.model(row[real.bool()][None])[0] for row, real in zip(input_ids, attention_mask, strict=True)]
            logits = rows[0].new_zeros(*input_ids.shape, rows[0].shape[-1])
            logits[attention_mask.bool()] = torch.cat(rows)
        loss = None if labels is None else _cross_entropy(logits[:, :-1], labels[:, 1:])
        return CausalLMOutput(loss=loss, logits=logits)


class GlassformerForConditionalGeneration(GlassformerModel, GenerationMixin):
    """A translator; sources end with [EOS], and targets begin with [BOS]."""

    main_input_name = "input_ids"
    _tied_weights_keys: Any = {"model.src_embedding.weight": "model.tgt_embedding.weight"}  # noqa: RUF012

    def _build(self, config: GlassformerConfig) -> nn.Module:
        return Translator(_settings(config), config.vocab_size, config.max_position_embeddings)

    def get_encoder(self, modality: str | None = None) -> nn.Module:
        """Return the encoder as a module of ids, which `generate` calls once."""
        return _Encoder(self)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        encoder_outputs: Any = None,
        labels: Tensor | None = None,
        **_: Any,
    ) -> Seq2SeqLMOutput:
        """Return logits (B, T, V) after each of `decoder_input_ids`, and the cross-entropy of labels (B, T).

        Without `decoder_input_ids` they are the labels shifted by one, after [BOS].
        """
        memory = encoder_outputs[0] if encoder_outputs is not None else self.get_encoder()(input_ids, attention_mask)[0]
        if decoder_input_ids is None:
            if labels is None:
                raise ValueError("expected decoder_input_ids or labels, and neither came")
            shifted = F.pad(labels[:, :-1], (1, 0), value=self.config.decoder_start_token_id)
            decoder_input_ids = shifted.masked_fill(shifted == -100, self.config.pad_token_id)
        self.check_length(decoder_input_ids)
        logits = self.model.decode(decoder_input_ids, memory, _boolean(attention_mask))
        loss = None if labels is None else _cross_entropy(logits, labels)
        return Seq2SeqLMOutput(loss=loss, logits=logits, encoder_last_hidden_state=memory)


class _Encoder(nn.Module):
    """The encoder of a translator, called as transformers calls encoders."""

    main_input_name = "input_ids"

    def __init__(self, wrapper: GlassformerModel) -> None:
        super().__init__()
        self._wrapper = (wrapper,)  # in a tuple, or it would be a part of this module

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: Any) -> BaseModelOutput:
        """Return the memory (B, S, D)."""
        self._wrapper[0].check_length(input_ids)
        memory = self._wrapper[0].model.encode(input_ids, _boolean(attention_mask))
        return BaseModelOutput(last_hidden_state=memory)


def _boolean(attention_mask: Tensor | None) -> Tensor | None:
    return None if attention_mask is None else attention_mask.bool()


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean over all labels (…) of logits (…, C); those of -100 are left out."""
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten())


def _settings(config: GlassformerConfig) -> ModelConfig:
    return ModelConfig(**config.settings)


AutoConfig.register("glassformer", GlassformerConfig, exist_ok=True)
AutoTokenizer.register(GlassformerConfig, fast_tokenizer_class=PreTrainedTokenizerFast, exist_ok=True)
for auto, kind in (
    (AutoModelForSequenceClassification, GlassformerForSequenceClassification),
    (AutoModelForTokenClassification, GlassformerForTokenClassification),
    (AutoModelForMaskedLM, GlassformerForMaskedLM),
    (AutoModelForCausalLM, GlassformerForCausalLM),
    (AutoModelForSeq2SeqLM, GlassformerForConditionalGeneration),
):
    auto.register(GlassformerConfig, kind, exist_ok=True)
