"""How a model writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from glassformer.config.fields import number


@dataclass(frozen=True)
class DecodeConfig:
    """How a translator or a language model writes."""

    beam_size: int = number(5, "[1, 1000]")
    """Hypotheses kept a step; 1 is greedy."""
    length_penalty: float = number(1.0, "[0, inf)")
    """Scores are divided by length ** this."""
    n_best: int = number(1, "[1, 1000]")
    """Hypotheses returned for each input."""
    max_new_tokens: int = number(256, "[1, inf)")
    """Most tokens to write."""
    bleu_tokenize: Literal["auto", "13a", "intl", "zh", "char", "none"] = "auto"
    """How sacreBLEU parts translations into words; auto goes by the script (13a, or zh, or char)."""
    sample: bool = False
    """Sample instead of searching (a language model always samples)."""
    temperature: float = number(1.0, "[0, inf)")
    """Logits are divided by this before sampling; 0 is greedy."""
    top_k: int = number(0, "[0, inf)")
    """Sample among the k most probable tokens; 0 for all."""
    top_p: float = number(1.0, "(0, 1]")
    """Sample among the fewest tokens that hold this share of the probability."""
    min_p: float = number(0.0, "[0, 1]")
    """Drop tokens less probable than this share of the most probable one's."""
    decode_seed: int = number(0, "[0, 4294967295]")
    """Seed of sampling; the text for one prompt does not depend on the others."""
