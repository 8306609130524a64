"""How each kind of tokenizer cuts text, and how it is trained: word, char, byte-bpe, bpe.

Each kind is one function that builds and trains a `tokenizers.Tokenizer`; what is common to them is around it.
Encoding, saving and loading are in `tokenizer.py`.

Characters stand alone, and the splitting rules of words and of byte-level BPE never join a single newline to the text
on either side of it, nor a word to the one before its space. Merged characters (`bpe`) know no such place.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers

from glassformer.config import TextConfig
from glassformer.errors import DataError, UsageError
from glassformer.text.ngrams import UNSPACED

_LINE_BEGINS = re.compile(r"(?<=\S\n)(?=\S)")
_WORD_ENDS = re.compile(r"(?<=\w)(?= \w)")  # the space goes with the word behind it


def split_text(text: str, size: int) -> list[str]:
    """Split a text at starts of lines, else ends of words, into parts of about `size` characters, or more."""
    parts, begins, at = list[str](), 0, size
    while at < len(text):
        if found := _LINE_BEGINS.search(text, at, at + size) or _WORD_ENDS.search(text, at, at + size):
            parts.append(text[begins : found.start()])
            begins = at = found.start()
        at += size
    return [*parts, text[begins:]]


logger = logging.getLogger(__name__)

PAD, UNK, BOS, EOS, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[BOS]", "[EOS]", "[MASK]")
MOST_CHARACTERS, MAX_PART = 1 << 10, 1 << 20
"""Characters of a word that merges are trained on at a time: each merge visits the whole of a word that holds it.
And characters of a text: a longer one is given to the backend in parts, cut between words."""
_SPACES = re.compile(r"(\s+)")
SPACE = "▁"  # U+2581, the mark for a space inside a token
BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]  # they spell a character that has no token of its own

BREAKS = r"<[bB][rR]\s*/?>"  # of HTML
# A word may hold apostrophes ("don't"); any other mark is a token of its own, and so is a character of a script
# without spaces, which would make one word of a whole clause. White space is only a border.
WORDS = rf"[{UNSPACED}]\p{{M}}*|[\w&&[^{UNSPACED}]]+(?:['’][\w&&[^{UNSPACED}]]+)*|[^\w\s]"
# Letters, digits and marks never share a token; one space before them belongs to it. This also keeps a merge
# from ever spelling a special token, whose brackets are marks and whose name is letters.
PIECES = (
    rf"{SPACE}?[\p{{L}}\p{{M}}]+|{SPACE}?\p{{N}}+|{SPACE}?[^\s\p{{L}}\p{{M}}\p{{N}}{SPACE}]+"
    rf"|{SPACE}+(?={SPACE})|{SPACE}|\s+"
)


def train_backend(texts: Sequence[str], config: TextConfig, extra_tokens: tuple[str, ...]) -> tokenizers.Tokenizer:
    """Train the kind `config.tokenizer` names, with the errors of `Tokenizer.train`; extra tokens come last."""
    if not any(map(str.strip, texts)):
        raise DataError("there is no text to train the tokenizer on", "check that the training texts are not empty")
    size, mark_start = config.vocab_size - len(extra_tokens), config.tokenizer == "bpe" and not extra_tokens
    parts = list(_parts(texts, extra_tokens, mark_start))
    if config.tokenizer == "imported":
        message = "text.tokenizer imported is that of a pretrained model, and none is named"
        raise UsageError(message, "add --init-from with a folder that glassformer import wrote")
    kinds = {"word": _train_word, "char": _train_char, "byte-bpe": _train_byte_bpe, "bpe": _train_bpe}
    backend = kinds[config.tokenizer](parts, config, size, mark_start)
    backend.add_tokens([AddedToken(token, normalized=False, special=False) for token in extra_tokens])
    n_tokens = backend.get_vocab_size(with_added_tokens=True)
    if config.tokenizer != "char" and n_tokens > config.vocab_size:
        hint = "raise --text.vocab-size: every subword vocabulary holds 5 special tokens and 256 bytes"
        what = f"text.vocab_size {config.vocab_size} is less than the {n_tokens} tokens that the alphabet alone needs"
        raise UsageError(what, hint)
    return backend


def kind_of(backend: tokenizers.Tokenizer, imported: bool = False) -> str:
    """Return the kind of a backend, derived from its parts; of a pretrained model's that is no kind here "imported"."""
    if isinstance(backend.model, models.WordPiece):
        return "wordpiece"
    if imported and not isinstance(backend.decoder, decoders.ByteLevel):
        return "imported"
    if isinstance(backend.model, models.WordLevel):
        return "word" if backend.decoder is None else "char"
    return "byte-bpe" if isinstance(backend.decoder, decoders.ByteLevel) else "bpe"


def readable_bytes(token: str) -> str:
    """Return a byte-level token as text, or as "<E282>" if its bytes are not whole characters."""
    table = _byte_of_character()
    if any(character not in table for character in token):  # an extra token is stored as it is
        return token
    raw = bytes(table[character] for character in token)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return f"<{raw.hex().upper()}>"


def _train_word(texts: Iterable[str], config: TextConfig, size: int, *_: bool) -> tokenizers.Tokenizer:
    """Train on the most frequent words and punctuation marks; the line breaks of HTML reviews count as spaces."""
    backend = tokenizers.Tokenizer(models.WordLevel({token: i for i, token in enumerate(SPECIAL_TOKENS)}, UNK))
    backend.normalizer = normalizers.Sequence([normalizers.Replace(Regex(BREAKS), " "), *_lowercase(config)])
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(WORDS), "removed", invert=True)
    trainer = trainers.WordLevelTrainer(
        vocab_size=size, min_frequency=1, special_tokens=list(SPECIAL_TOKENS), show_progress=False
    )
    backend.train_from_iterator(texts, trainer)
    return backend


def _train_char(texts: Iterable[str], config: TextConfig, *_: int) -> tokenizers.Tokenizer:
    """Train on every character of the texts, in the order of Unicode."""
    alphabet = {character for text in texts for character in (text.lower() if config.lowercase else text)}
    vocabulary = {token: i for i, token in enumerate([*SPECIAL_TOKENS, *sorted(alphabet)])}
    backend = tokenizers.Tokenizer(models.WordLevel(vocabulary, UNK))
    backend.normalizer = normalizers.Sequence(_lowercase(config))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens(list(SPECIAL_TOKENS))
    return backend


def _train_byte_bpe(texts: Sequence[str], config: TextConfig, size: int, *_: bool) -> tokenizers.Tokenizer:
    """Train merges over bytes, as in GPT-2: every text can be encoded, nothing is unknown."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.normalizer = normalizers.Sequence(_lowercase(config))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    backend.decoder = decoders.ByteLevel()
    return _with_merges(backend, texts, size, SPECIAL_TOKENS, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def _train_bpe(texts: Sequence[str], config: TextConfig, size: int, mark_start: bool) -> tokenizers.Tokenizer:
    """Train merges over characters (Sennrich et al. 2016), spaces written into the tokens as "▁".

    No character is ever unknown: one that training saw less than twice is spelled in UTF-8, a token a byte, as
    in SentencePiece (Kudo and Richardson 2018). Two make the bytes known to training, too.

    With `mark_start` a text begins with a mark too, so that a word is the same token there as after a space.
    Not with extra tokens: they cut the text into parts, each of which would get a mark of its own.
    """
    backend = tokenizers.Tokenizer(models.BPE(unk_token=UNK, byte_fallback=True))
    marks = [normalizers.Prepend(SPACE)] if mark_start else []
    backend.normalizer = normalizers.Sequence([*_lowercase(config), *marks, normalizers.Replace(" ", SPACE)])
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(PIECES), "isolated")
    strip = [decoders.Strip(" ", 1, 0)] if mark_start else []
    backend.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Replace(SPACE, " "), decoders.Fuse(), *strip]
    )
    n_letters = _n_letters(map(backend.normalizer.normalize_str, texts), size - len(SPECIAL_TOKENS) - 256)
    # As special tokens the bytes are never found in text, like the five.
    return _with_merges(backend, texts, size, [*SPECIAL_TOKENS, *BYTE_TOKENS], limit_alphabet=n_letters)


def _with_merges(
    backend: tokenizers.Tokenizer, texts: Sequence[str], size: int, special: Sequence[str], **alphabet: Any
) -> tokenizers.Tokenizer:
    """Train merges. A pair must occur twice to be merged, since a single occurrence does not generalise."""
    pieces = backend.pre_tokenizer
    if any(len(run) > MOST_CHARACTERS for text in texts for run in _SPACES.split(text)):
        logger.warning(f"words of more than {MOST_CHARACTERS:,} characters are cut while the tokenizer is trained")
        short = pre_tokenizers.Split(Regex(rf"[\s\S]{{1,{MOST_CHARACTERS}}}"), "isolated")
        backend.pre_tokenizer = pre_tokenizers.Sequence([pieces, short])
    settings = {"vocab_size": max(size, 0), "min_frequency": 2, "special_tokens": list(special)}
    backend.train_from_iterator(texts, trainers.BpeTrainer(**settings, **alphabet, show_progress=False))
    backend.pre_tokenizer = pieces
    return backend


def _n_letters(texts: Iterable[str], max_letters: int) -> int:
    """Return the number of characters that get a token: the frequent ones; of equally frequent ones all or none."""
    counts = sorted(Counter(character for text in texts for character in text).values(), reverse=True)
    least = max(2, counts[max_letters] + 1 if 0 <= max_letters < len(counts) else 0)
    return sum(count >= least for count in counts)


def _lowercase(config: TextConfig) -> list[normalizers.Normalizer]:
    return [normalizers.Lowercase()] if config.lowercase else []


def _parts(texts: Sequence[str], extra_tokens: tuple[str, ...], mark_start: bool) -> Iterator[str]:
    """Yield texts without extra tokens, which need no letters; a long one in parts that are cut before single spaces.

    With `mark_start` the backend puts a mark for a space before each text: it is that of the space, which is left out.
    """
    extra = re.compile("|".join(map(re.escape, extra_tokens))) if extra_tokens else None
    for text in texts:
        for part in [text] if extra is None else extra.split(text):
            begin = 0
            while len(part) - begin > MAX_PART and (found := _WORD_ENDS.search(part, begin + MAX_PART // 2)):
                yield part[begin : found.start()]
                begin = found.start() + mark_start
            yield part[begin:]


@cache
def _byte_of_character() -> dict[str, int]:
    """Return the inverse of GPT-2's mapping of the 256 bytes to visible characters.

    Bytes that print as Latin-1 stand for themselves; the others follow from U+0100 on.
    """
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(0x100 + i): byte for i, byte in enumerate(hidden)}
