"""The models: a text classifier and what it can begin from, a translator, a language model."""

from glassformer.models.classifier import TextClassifier
from glassformer.models.language_model import LanguageModel
from glassformer.models.masked_language_model import MaskedLanguageModel
from glassformer.models.translator import Translator

__all__ = ["LanguageModel", "MaskedLanguageModel", "TextClassifier", "Translator"]
