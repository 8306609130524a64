"""The settings of an encoder that suit the size of its training data, as a recipe names them in `auto`.

Small sets are lost by too few steps as easily as by too many. The rules come from ablations on sets of 500 to 15,000
texts with 2 to 150 classes; RESULTS.md has those that were measured with this code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from glassformer.config import Config
from glassformer.data.splits import Split
from glassformer.text.ngrams import mean_words

LONG = 60
"""Words in the mean from which texts are long: reviews, not sentences."""
LONGEST = 512
"""Words of a text that count: longer ones are cut."""
STEPS, MIN_STEPS = 1000, 600
"""About how many steps a small set needs, and at least, where it is soon learned by heart, in batches that small."""
FROM_PRETRAINED = 600
"""About how many steps a pretrained model needs; fewer passes than 3 are not made, nor more than 15."""
BIGRAMS = 100_000
"""Most pairs of words with vectors of their own."""
MAX_TOKENS, MAX_STEPS = 4_500_000, 6000
"""Tokens that all members together read in a run, and their steps: about three minutes on two cores, adversarial
training counted. One member reads what its passes take, though it be more."""
CLASSES_ALIKE = 3
"""Numbers, and labels of which a text may have several, have the settings of so many classes at least: more than two,
whose texts are soon learned by heart."""


def suggest(n_texts: int, n_classes: int, n_words: float, twice: bool = False) -> dict[str, Any]:
    """Return the suggested settings by field, for texts of `n_words` words in the mean.

    - Passes: ten over a small set, fewer the larger it is. Two classes of short texts are soon
      learned by heart; so they get six passes at most, at half the rate, and more dropout.
    - Batches of 8 to 32 texts, so that there are about a thousand steps; of short ones in several classes up to 64.
    - Three members where they are quickly trained, one of long texts in numbers.
    - Pairs of words for long texts and for two classes: opinions are said in pairs ("not good"), topics in words.
    - With `twice`, twice the passes: what two texts of a pair have in common is learned late, and of several labels
      each is met in few texts. On validation that gained 6 points on 6,000 pairs, and 2 of micro F1 on 6,000 texts of
      150 labels.
    """
    n, long = max(1, n_texts), n_words >= LONG
    two_short = n_classes <= 2 and not long
    by_size = 10 * (500 / n) ** 0.4 if long else 10 * (15_000 / n) ** 0.5
    epochs = max(1.0, min(6.0, STEPS * 32 / n) if two_short else min(10.0, by_size))
    steps = MIN_STEPS if two_short else STEPS
    tokens = epochs * n * max(1.0, min(n_words, LONGEST))
    batch_size = int(min(32 if long or two_short else 64, max(8, n * epochs / steps)))
    members = min(MAX_TOKENS // tokens, MAX_STEPS * batch_size // (n * epochs))
    return {
        "epochs": min(20.0, 2 * round(epochs, 1)) if twice else round(epochs, 1),
        "batch_size": batch_size,
        "lr": 5e-4 if two_short else 1e-3,
        "dropout": 0.2,
        "embedding_dropout": 0.3 if two_short else 0.2,
        "bigrams": BIGRAMS if long or n_classes <= 2 else 0,
        "ensemble_size": int(min(3, max(1, members))),
    }


def suggest_from_pretrained(n_texts: int, n_classes: int) -> dict[str, Any]:
    """Return the suggested settings by field that differ where the weights come from another library.

    A tenth of the learning rate of random weights, and fewer passes: what is new is learned soon, what the model
    knows is soon lost. Adversarial training for two classes alone: on validation it gained 2.2 and 0.8 points on tweets
    of two classes (two seeds), and lost 1.6 on tweets of four, for twice the time.
    """
    epochs = max(3.0, min(15.0, FROM_PRETRAINED * 32 / max(1, n_texts)))
    return {
        "epochs": round(epochs, 1),
        "batch_size": 32 if n_texts >= 1000 else 16,
        "lr": 1e-4,
        "dropout": 0.1,
        "embedding_dropout": 0.1,
        "ensemble_size": 1,
        "adversarial": 0.03 if n_classes <= 2 else 0.0,
    }


def suggest_for_texts(train: Split, config: Config, names: Sequence[str], several: bool) -> tuple[dict[str, Any], str]:
    """Return the settings of a head that answers once a text, and what was counted."""
    n, n_words = len(train), mean_words(train.text)
    n_classes = max(len(names), CLASSES_ALIKE if several or not names else 0)
    suggested = suggest(n, n_classes, n_words, several or config.data.pair_column is not None)
    if several:
        suggested["batch_size"] = min(32, suggested["batch_size"])
    if config.text.tokenizer != "word":
        suggested["bigrams"] = 0
    if config.train.init_from and config.text.tokenizer == "imported":
        suggested |= suggest_from_pretrained(n, n_classes)
    answers = f"of {len(names)} classes" if names else "with a number each"
    return suggested, f"{n:,} texts {answers}, {n_words:.0f} words each"


def suggest_for_words(train: Split, config: Config, names: Sequence[str]) -> tuple[dict[str, Any], str]:
    """Return settings for about 2,500 steps; a pretrained model needs fewer, at a tenth of the rate."""
    n = max(1, len(train))
    batch_size = 32 if n >= 3000 else 16 if n >= 800 else 8
    pretrained = config.train.init_from and config.text.tokenizer == "imported"
    steps, lr, dropout, embedding_dropout = (1000, 2e-4, 0.1, 0.1) if pretrained else (2500, 1e-3, 0.2, 0.3)
    epochs = round(min(30.0, max(3.0, steps * batch_size / n)), 1)
    rates = {"lr": lr, "dropout": dropout, "embedding_dropout": embedding_dropout}
    return {"epochs": epochs, "batch_size": batch_size} | rates, f"{n:,} sentences, {len(names)} tags"
