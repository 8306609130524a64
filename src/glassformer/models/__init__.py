"""The three models: a text classifier, a translator, a language model."""

from glassformer.models.classifier import TextClassifier
from glassformer.models.language_model import LanguageModel
from glassformer.models.translator import Translator

__all__ = ["LanguageModel", "TextClassifier", "Translator"]
