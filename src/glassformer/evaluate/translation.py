"""Scores of a translator: BLEU and chrF with their signatures and bootstrap intervals, and exact matches.

sacreBLEU does the counting, so the numbers are comparable with published ones. Decoding is `decode/`'s work;
this file sees plain sentences, as a reader would.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from glassformer.data.splits import Published
from glassformer.errors import DataError, UsageError
from glassformer.evaluate.scoring import Predictions, Scoring
from glassformer.evaluate.significance import bootstrap_interval, wilson_interval
from glassformer.text.ngrams import UNSPACED, mostly_unspaced

LENGTH_EDGES = (1, 6, 11, 16, 21, 31, 51)
"""First reference length, in BLEU's tokens, of each bucket of `length_buckets`."""
MIN_BUCKET = 20
"""Fewest sentences for which a bucket's BLEU is worth drawing."""
SHORT = 6.0
"""Mean reference length, in BLEU's tokens, below which an answer is right or wrong, as a date is: BLEU, which
counts runs of four, says nothing then."""

HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_UNSPACED = re.compile(f"[{UNSPACED}]")


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
        last character, outer spaces apart) with its Wilson interval; length_ratio and brevity_penalty;
        n_empty hypotheses; length_buckets, BLEU by length of reference; headline, the score to quote: bleu, or
        exact_match for answers shorter than SHORT; notes, where a score means nothing.

    Raises:
        DataError: no sentences, or unequal numbers of them.
        UsageError: an unknown `tokenize`.
    """
    _check(hypotheses, references)
    from sacrebleu.metrics.chrf import CHRF

    n, bleu, chrf = len(references), _bleu(tokenize, references), CHRF()
    bleu_stats, chrf_stats = (segment_statistics(metric, hypotheses, references) for metric in (bleu, chrf))
    result = bleu._compute_score_from_stats(bleu_stats.sum(axis=0))
    n_exact = sum(h.strip() == r.strip() for h, r in zip(hypotheses, references, strict=True))
    scores = {
        "n": n,
        "bleu": float(result.score),
        "bleu_signature": str(bleu.get_signature()),
        "chrf": float(_corpus(chrf)(chrf_stats.sum(axis=0))),
        "chrf_signature": str(chrf.get_signature()),
        "exact_match": n_exact / n,
        "exact_match_ci95": wilson_interval(n_exact, n),
        "length_ratio": float(result.sys_len / max(result.ref_len, 1)),
        "brevity_penalty": float(result.bp),
        "n_empty": sum(not h.strip() for h in hypotheses),
        "length_buckets": _by_length(bleu, bleu_stats),
        "headline": _headline(bleu_stats[:, 1]),
        "notes": [],
    }
    if bleu_stats[:, 1].max() < bleu.max_ngram_order:
        why = "No reference has four tokens, and BLEU counts runs of four: it is 0 by definition."
        scores["notes"].append(f"{why} Read exact match and chrF.")
    if n_bootstrap > 0:
        nothing = [re.sub(r"\S", "\ue000", line) for line in references]  # as long, and with nothing in common
        for name, metric, stats in (("bleu", bleu, bleu_stats), ("chrf", chrf, chrf_stats)):
            extremes = [segment_statistics(metric, each, references).mean(axis=0) for each in (references, nothing)]
            scores[f"{name}_ci95"] = bootstrap_interval(stats, _corpus(metric), np.stack(extremes), n_bootstrap)
        scores["n_bootstrap"] = n_bootstrap
    return scores


def published_score(hypotheses: Sequence[str], references: Published, *, n_bootstrap: int = 1000) -> dict[str, Any]:
    """Compute BLEU as papers on Multi30k report it: on lowercased, normalised, tokenised references.

    Hypotheses that are plain text are converted by Moses's rules, as `sacremoses` implements them. These reproduce the
    published references from the raw ones, except for 2 of 3,042 validation lines.

    Returns:
        bleu_lc (0–100) with bleu_lc_signature and bleu_lc_ci95, and bleu_lc_words, the words of the references.
    """
    if references.language is not None:
        hypotheses = [tokenised(line, references.language) for line in hypotheses]
    scores = score(hypotheses, references.answers, n_bootstrap=n_bootstrap, tokenize="none")
    kept = {f"bleu_lc{name[4:]}": scores[name] for name in scores if name.startswith("bleu")}
    return kept | {"bleu_lc_words": sum(len(line.split()) for line in references.answers)}


def tokenised(line: str, language: str) -> str:
    """Lowercase a line, normalise its punctuation, and tokenise it by Moses's rules."""
    normaliser, tokeniser = _moses(language)
    return tokeniser.tokenize(normaliser.normalize(line.lower()), return_str=True).lower()


@cache
def _moses(language: str) -> tuple[Any, Any]:
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    return MosesPunctNormalizer(language), MosesTokenizer(language)


def bleu_scoring(signature: str | None = None) -> Scoring:
    """Return what BLEU counts of stored translations, by the tokenizer of sacreBLEU that a signature names.

    Without one that which suits the references.
    """
    named = re.search(r"tok:([^|]+)", signature or "")
    tokenize = named[1] if named else "auto"

    def counts(predictions: Predictions) -> np.ndarray:
        answers, references = ([str(row[key]) for row in predictions] for key in ("translation", "reference"))
        return segment_statistics(_bleu(tokenize, references), answers, references)

    # The tokenizer matters where sentences are counted, and not where counts are summed.
    return Scoring("bleu", counts, _corpus(_bleu("none", ())), best=100.0, settings=f"sacreBLEU's tokenizer {tokenize}")


def copy_baseline(sources: Sequence[str], references: Sequence[str], *, tokenize: str = "auto") -> dict[str, Any]:
    """Score the laziest translator there is, which repeats its input.

    Names, numbers and cognates make it score above zero; it shows where a scale begins.
    """
    scores = score(sources, references, n_bootstrap=0, tokenize=tokenize)
    settings = {"settings": "the source sentence, unchanged, taken for a translation"}
    return {name: scores[name] for name in ("bleu", "chrf", "exact_match")} | settings


def segment_statistics(metric: Any, hypotheses: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """Count what a sacreBLEU metric counts, a row a sentence; the corpus score is a function of their sum.

    sacreBLEU's own significance tests stand on the same two underscored methods; a test holds this sum to
    its public `corpus_score`, so an update that moves them is noticed.
    """
    return np.asarray(metric._extract_corpus_statistics(hypotheses, [references]), dtype=np.float64)


def _corpus(metric: Any) -> Callable[[np.ndarray], float]:
    """Return the function from summed statistics to a corpus score."""
    return lambda sums: float(metric._compute_score_from_stats(sums).score)


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
    bleu = _bleu(tokenize, references)
    return _headline(segment_statistics(bleu, references, references)[:, 1])


def _headline(reference_lengths: np.ndarray) -> str:
    return "exact_match" if reference_lengths.mean() < SHORT else "bleu"


def _bleu(tokenize: str, references: Sequence[str]) -> Any:
    from sacrebleu.metrics.bleu import BLEU

    if tokenize == "auto":
        tokenize = tokenizer_for(references)
    if tokenize not in BLEU.TOKENIZERS:
        hint = f"Choose one of {', '.join(sorted(BLEU.TOKENIZERS))}."
        raise UsageError(f"sacreBLEU has no tokenizer {tokenize!r}.", hint)
    return BLEU(tokenize=tokenize, force=True)  # force: no warning about tokenised full stops on stderr


def _by_length(bleu: Any, stats: np.ndarray) -> list[dict[str, Any]]:
    """Return BLEU of the sentences of each length of reference, buckets of few sentences left out."""
    lengths, rows = stats[:, 1], []
    for low, after in zip(LENGTH_EDGES, (*LENGTH_EDGES[1:], np.inf), strict=True):
        inside = (lengths >= low) & (lengths < after)
        if (count := int(inside.sum())) >= MIN_BUCKET:
            last, score = int(min(after - 1, lengths.max())), _corpus(bleu)(stats[inside].sum(axis=0))
            rows.append({"min": low, "max": last, "n": count, "bleu": score})
    return rows


def _check(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references):
        raise DataError(
            f"Expected one hypothesis for each reference, got {len(hypotheses)} and {len(references)}.",
            hint="Both files need the same number of lines; an empty translation is an empty line.",
        )
    if not references:
        raise DataError("There are no sentences to score.", hint="Check that the reference file has lines.")
