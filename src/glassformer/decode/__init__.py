"""Generate token ids from a trained model by beam search or sampling, through one incremental decoder."""

from glassformer.decode.incremental import (
    IncrementalDecoder,
    LanguageModelDecoder,
    TranslationDecoder,
    lm_decoder,
    translation_decoder,
)
from glassformer.decode.sampling import generate_ids, sample
from glassformer.decode.search import Hypothesis, Special, beam_search
from glassformer.decode.translate import translate_ids

__all__ = [
    "Hypothesis",
    "IncrementalDecoder",
    "LanguageModelDecoder",
    "Special",
    "TranslationDecoder",
    "beam_search",
    "generate_ids",
    "lm_decoder",
    "sample",
    "translate_ids",
    "translation_decoder",
]
