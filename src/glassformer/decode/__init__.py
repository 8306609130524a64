"""How a trained model writes: beam search and sampling over one stepper. Ids in, ids out, no text."""

from glassformer.decode.generate import generate_ids
from glassformer.decode.hypothesis import Hypothesis, Special
from glassformer.decode.sampling import sample
from glassformer.decode.search import beam_search
from glassformer.decode.stepper import LanguageModelStepper, Stepper, TranslatorStepper, translating, writing
from glassformer.decode.translate import translate_ids

__all__ = [
    "Hypothesis",
    "LanguageModelStepper",
    "Special",
    "Stepper",
    "TranslatorStepper",
    "beam_search",
    "generate_ids",
    "sample",
    "translate_ids",
    "translating",
    "writing",
]
