"""Scores of a translator: BLEU and chrF with their signatures and bootstrap intervals, and exact matches.

sacreBLEU does the counting, so the numbers are comparable with published ones. Decoding is `decode/`'s work;
this file sees plain sentences, as a reader would.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from glassformer.errors import UsageError
from glassformer.evaluate.scoring import Predictions, Scoring, bootstrap_interval, wilson_interval
from glassformer.text.ngrams import UNSPACED, mostly_unspaced

SHORT = 6.0
"""Mean reference length, in BLEU's tokens, below which an answer is right or wrong, as a date is: BLEU, which
counts runs of four, says nothing then."""

HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_UNSPACED = re.compile(f"[{UNSPACED}]")


class SummedMetric:
    """A metric of sacreBLEU as counts of each sentence, and the corpus score of their sum.

    sacreBLEU's own significance tests stand on the same two underscored methods; a test holds this sum to its public
    `corpus_score`, so an update that moves them is noticed.
    """

    def __init__(self, metric: Any) -> None:
        self.metric = metric

    def counts(self, hypotheses: Sequence[str], references: Sequence[str]) -> np.ndarray:
        """Return what is counted of each sentence (N, k); of BLEU the first two are the lengths of both sides."""
        return np.asarray(self.metric._extract_corpus_statistics(hypotheses, [references]), dtype=np.float64)

    def score(self, sums: np.ndarray) -> float:
        return float(self.metric._compute_score_from_stats(sums).score)


def score(
    hypotheses: Sequence[str], references: Sequence[str], *, n_bootstrap: int = 1000, tokenize: str = "auto"
) -> dict[str, Any]:
    """Score translations against one reference each.

    Args:
        hypotheses: the system's sentences, detokenised unless `tokenize` is none.
        references: the true ones, in the same order.
        n_bootstrap: resamples behind the intervals; 0 leaves them out (quick validations).
        tokenize: sacreBLEU's tokenizer; `none` for references that are tokenised already, `auto` for what
            suits their script (`tokenizer_for`).

    Returns:
        n; bleu, chrf (both 0–100) with *_signature and *_ci95; exact_match (share of sentences right to the
        last character, outer spaces apart) with its Wilson interval; headline, the score to quote:
        bleu, or exact_match for answers shorter than SHORT.

    Raises:
        UsageError: an unknown `tokenize`.
    """
    from sacrebleu.metrics.chrf import CHRF

    n_exact = sum(h.strip() == r.strip() for h, r in zip(hypotheses, references, strict=True))
    n, found = len(references), dict[str, Any]()
    nothing = [re.sub(r"\S", "\ue000", line) for line in references]  # as long, and with nothing in common
    for name, metric in (("bleu", bleu_for(references, tokenize)), ("chrf", SummedMetric(CHRF()))):
        counts = metric.counts(hypotheses, references)
        found |= {name: metric.score(counts.sum(axis=0)), f"{name}_signature": str(metric.metric.get_signature())}
        if name == "bleu":
            found["headline"] = "exact_match" if counts[:, 1].sum() / n < SHORT else "bleu"
        if n_bootstrap:
            extremes = np.stack([metric.counts(each, references).mean(axis=0) for each in (references, nothing)])
            found[f"{name}_ci95"] = bootstrap_interval(counts, metric.score, extremes, n_bootstrap)
    return {"n": n, "exact_match": n_exact / n, "exact_match_ci95": wilson_interval(n_exact, n)} | found


def bleu_scoring(signature: str = "") -> Scoring:
    """Return what BLEU counts of stored translations, by the tokenizer of sacreBLEU that a signature names.

    Without one that which suits the references.
    """
    named = re.search(r"tok:([^|]+)", signature)
    tokenize = named[1] if named else "auto"

    def counts(predictions: Predictions) -> np.ndarray:
        answers, references = ([str(row[key]) for row in predictions] for key in ("translation", "reference"))
        return bleu_for(references, tokenize).counts(answers, references)

    # The tokenizer matters where sentences are counted, and not where counts are summed.
    return Scoring("bleu", counts, bleu_for((), "none").score, settings=f"sacreBLEU's tokenizer {tokenize}")


def tokenizer_for(references: Sequence[str]) -> str:
    """Return the sacreBLEU tokenizer for the script of most letters.

    `13a`, the usual one, splits at spaces, so that a Chinese sentence is one word and BLEU 0 by definition. `zh` splits
    Chinese characters; `char` splits everything, for scripts that would need a dictionary (Japanese, Thai …).
    """
    if not mostly_unspaced(references):
        return "13a"
    han, unspaced = (sum(len(script.findall(line)) for line in references) for script in (HAN, _UNSPACED))
    return "zh" if han > 0.9 * unspaced else "char"


def headline_of(references: Sequence[str], tokenize: str = "auto") -> str:
    """Return the headline score of such translations: `bleu`, or `exact_match` for short targets."""
    lengths = bleu_for(references, tokenize).counts(references, references)[:, 1]
    return "exact_match" if lengths.mean() < SHORT else "bleu"


def bleu_for(references: Sequence[str], tokenize: str) -> SummedMetric:
    """Return BLEU with a tokenizer, `auto` for what suits the references; raise UsageError for an unknown one."""
    from sacrebleu.metrics.bleu import BLEU

    if tokenize == "auto":
        tokenize = tokenizer_for(references)
    if tokenize not in BLEU.TOKENIZERS:
        raise UsageError(f"sacreBLEU has no tokenizer {tokenize!r}", f"choose one of {', '.join(BLEU.TOKENIZERS)}")
    return SummedMetric(BLEU(tokenize=tokenize, force=True))  # force: no warning about tokenised full stops on stderr
