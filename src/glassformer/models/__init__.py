"""The models: a text classifier and what it can begin from, a translator, a language model."""

from glassformer.models.encoder_models import MaskedLanguageModel, TextClassifier
from glassformer.models.language_model import LanguageModel
from glassformer.models.translator import Translator

__all__ = ["LanguageModel", "MaskedLanguageModel", "TextClassifier", "Translator"]
