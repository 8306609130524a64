"""How words are spelled, as numbers: character n-grams, and pairs of neighbouring words.

"not good" says more than "not" and "good" do. Attention has to learn that from examples; a bag of words and pairs
has it in its features (Wang and Manning 2012, "Baselines and Bigrams"), and so has a model with rows for pairs (Joulin
et al. 2017, "Bag of Tricks for Efficient Text Classification", which hashes them; here they are listed, so that they
can be read).

A bag of n-grams says what a word looks like: "refunding" shares most of its n-grams with "refund" and "funding"
(Bojanowski et al. 2017, "Enriching Word Vectors with Subword Information"). Unlike there the n-grams are not
hashed: those of the training texts are listed, and their number bounded. A word none of whose n-grams is listed
(an emoji, a name in another script) is spelled by its UTF-8 bytes, so nothing at all is ever unknown.

Scripts without spaces have no words to spell. Each character there is a token, spelled by what begins with it:
itself with the next one, and with the next two.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

FEWEST = 3
"""Texts that a pair must be in: what is in fewer says little of other texts."""


def common_bigrams(
    texts: Iterable[Sequence[int]], vocab_size: int, special: int, max_bigrams: int
) -> list[tuple[int, int]]:
    """Return the pairs of adjacent ids that occur in the most texts, and in at least `FEWEST`, most frequent first.

    Ids below `special` are special tokens, which are in no pair.
    """
    found = [np.zeros(0, np.int64)]
    for text in texts:
        ids = np.asarray(text, np.int64)
        first, second = ids[:-1], ids[1:]
        found.append(np.unique((first * vocab_size + second)[(first >= special) & (second >= special)]))
    keys, counts = np.unique(np.concatenate(found), return_counts=True)
    order = np.argsort(-counts, kind="stable")[:max_bigrams]
    return [divmod(int(key), vocab_size) for key in keys[order[counts[order] >= FEWEST]]]


LENGTHS = (3, 4, 5)
"""Characters of an n-gram of a word, the marks "<" and ">" at its ends counted."""
AHEAD = 2
"""Characters that an n-gram of a script without spaces reaches beyond the one it begins with."""
MOST = 24
"""Most n-grams of a word: those it begins with."""
MOST_CHARACTERS = 1 << 12
"""Characters of a word that are spelled: those it begins with."""
FIRST = 1 + 256
"""Number of the first n-gram: 0 stands for none, and 1 to 256 are the bytes."""

UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff"
)
"""Thai, Lao, Burmese, Khmer, Japanese kana and Chinese characters, as the inside of a character class."""
_UNSPACED = re.compile(f"[{UNSPACED}]")
_WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+|[^\w\s]")


def mean_words(texts: Sequence[str]) -> float:
    """Return the mean number of words per text, estimated on about 2,000 texts.

    Without spaces each character is one.
    """
    some = texts[:: max(1, len(texts) // 2000)]
    return sum(len(_WORD.findall(text)) for text in some) / max(1, len(some))


class NgramVocabulary:
    """The n-grams there are, in the order of their numbers.

    Args:
        ngrams: of words with their marks ("<re", "fund", "ing>"), and of scripts without spaces ("好吃").
    """

    def __init__(self, ngrams: Sequence[str]) -> None:
        self.ngrams = list(ngrams)
        self._number = {ngram: FIRST + i for i, ngram in enumerate(self.ngrams)}

    def __len__(self) -> int:
        """Return the number of ids, with those of none and of the bytes."""
        return FIRST + len(self.ngrams)

    @property
    def looks_ahead(self) -> list[bool]:
        """Return for each id whether its n-gram is of a script without spaces, and so reveals later tokens."""
        return [False] * FIRST + [_UNSPACED.match(ngram) is not None for ngram in self.ngrams]

    @staticmethod
    def train(surfaces: Iterable[str], max_ngrams: int) -> NgramVocabulary:
        """Train on the most frequent n-grams that are in two different words, or begin at two positions.

        An n-gram of a single word adds nothing to that word's own embedding. `surfaces` is every token of the training
        texts, as returned by `surface_forms`.
        """
        counts: Counter[str] = Counter()
        for surface, n in Counter(surfaces).items():
            for ngram in dict.fromkeys(ngrams_of(surface)):
                counts[ngram] += 1 if surface[0] == "<" else n
        shared = sorted((-n, ngram) for ngram, n in counts.items() if n > 1)
        return NgramVocabulary([ngram for _, ngram in shared[:max_ngrams]])

    def lookup(self, surface: str) -> list[int]:
        """Return the ids of the n-grams of one surface form, or of its bytes if none is listed."""
        known = [self._number[ngram] for ngram in ngrams_of(surface) if ngram in self._number]
        characters = surface[1:-1][:MOST] if surface[0] == "<" else surface[0]
        return known[:MOST] or [1 + byte for byte in characters.encode("utf-8", "replace")[:MOST]]


def surface_forms(text: str, spans: Iterable[tuple[int, int]]) -> list[str]:
    """Return the surface form of each token.

    It is a word with its boundary marks, "<refund>", or a character and what follows. `spans` are the characters of
    each token, in order.
    """
    places = list(spans)
    surfaces = []
    for i, (start, end) in enumerate(places):
        if not _UNSPACED.match(text, start):
            surfaces.append(f"<{text[start:end]}>")
            continue
        for later, stop in places[i + 1 : i + 1 + AHEAD]:
            if later != end or not _UNSPACED.match(text, later):
                break
            end = stop
        surfaces.append(text[start:end])
    return surfaces


def ngrams_of(surface: str) -> Iterator[str]:
    """Yield all n-grams of one surface form, listed or not; of a very long one those it begins with."""
    surface = surface[:MOST_CHARACTERS]
    if surface[0] == "<":
        for start in range(len(surface)):
            yield from (surface[start : start + n] for n in LENGTHS if start + n <= len(surface))
    else:
        yield from (surface[:n] for n in range(2, len(surface) + 1))


def mostly_unspaced(texts: Sequence[str]) -> bool:
    """Return True if most letters are of scripts that do not separate words by spaces."""
    letters = sum(character.isalpha() for line in texts for character in line)
    return 2 * sum(len(_UNSPACED.findall(line)) for line in texts) > letters > 0
