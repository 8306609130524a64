"""Settings of decoding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from glassformer.config.fields import number


@dataclass(frozen=True)
class DecodeConfig:
    """Decoding of a translator or a language model."""

    beam_size: int = number(5, "[1, 1000]")
    """Beam size; 1 is greedy."""
    length_penalty: float = number(1.0, "[0, inf)")
    """Exponent of the length by which scores are divided."""
    n_best: int = number(1, "[1, 1000]")
    """Number of hypotheses returned per input."""
    max_new_tokens: int = number(256, "[1, inf)")
    """Maximum number of generated tokens."""
    bleu_tokenize: Literal["auto", "13a", "intl", "zh", "char", "none"] = "auto"
    """Tokenizer of sacreBLEU; auto selects 13a, zh or char by the script."""
    sample: bool = False
    """Sample instead of beam search (a language model always samples)."""
    temperature: float = number(1.0, "[0, inf)")
    """Divisor of the logits before sampling; 0 is greedy."""
    top_k: int = number(0, "[0, inf)")
    """Number of most probable tokens to sample from; 0 for all."""
    top_p: float = number(1.0, "(0, 1]")
    """Probability mass of the most probable tokens to sample from (nucleus sampling)."""
    min_p: float = number(0.0, "[0, 1]")
    """Minimum probability of a token, relative to the most probable one."""
    decode_seed: int = number(0, "[0, 4294967295]")
    """Seed of sampling; the text for a prompt does not depend on the other prompts."""
