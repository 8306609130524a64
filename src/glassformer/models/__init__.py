"""The models: a text classifier and what it can begin from, a translator, a language model."""

from glassformer.models.decoder_models import LanguageModel, Translator
from glassformer.models.encoder_models import MaskedLanguageModel, TextClassifier

__all__ = ["LanguageModel", "MaskedLanguageModel", "TextClassifier", "Translator"]
