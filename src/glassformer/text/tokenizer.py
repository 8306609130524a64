"""From text to ids and back: one thin wrapper around Hugging Face `tokenizers`, for the four kinds here.

A tokenizer is trained on the training split alone and lives in one `tokenizer.json`, from which everything,
its kind included, is restored. How each kind cuts text is in `backends.py`; [BOS] and [EOS] are put around
sequences where batches are made, not here.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import tokenizers

from glassformer.config import TextConfig
from glassformer.errors import CheckpointError, DataError, UsageError
from glassformer.text import backends
from glassformer.text.backends import BOS, EOS, MASK, PAD, SPECIAL_TOKENS, UNK
from glassformer.text.long_text import CutText, truncate
from glassformer.text.ngrams import NgramVocabulary, common_bigrams, surface_forms
from glassformer.text.special_tokens import KEY, PAIRS, SIDES, SPELLING, SpecialTokens, Spelling
from glassformer.text.tokenizer_file import check_ids, encoded, read_backend
from glassformer.utils import safe_read
from glassformer.utils.safe_read import LIMITS

__all__ = ["BOS", "EOS", "MASK", "PAD", "SPECIAL_TOKENS", "UNK", "Tokenizer"]


class Tokenizer:
    """Text to ids and back.

    The five special tokens always have ids 0 to 4. They are never found in text: a review that contains
    "[PAD]" is encoded as the ordinary characters it is made of. Extra tokens (locale tags) are found.

    What `decode(encode(text))` gives back, by kind:

    - `byte-bpe`: the text, whatever it is;
    - `char`: the text, if all its characters were in training (others are [UNK], which decodes to nothing);
    - `bpe`: the text, whatever it is, except that "▁" itself comes back as a space;
    - `word`: the words joined by single spaces; one that lower-cases gives the lower-cased text back.

    That of a pretrained model has special tokens of its own (`special`), of any ids, and may have none for a role,
    whose id is -1 then; its `prefix` and `suffix` belong around each text (`framed`).
    """

    separator: Sequence[int] = ()
    """The ids between the two texts of a pair, where each text is one; see `pairs.py`."""

    def __init__(
        self, backend: tokenizers.Tokenizer, special: SpecialTokens | None = None, spelling: Spelling | None = None
    ) -> None:
        """Wrap a trained backend whose first five ids are the special tokens, or `special`; see `train` and `load`.

        `ngrams` holds the n-grams of a word tokenizer, if it has some, and `bigrams` its pairs of ids.
        """
        _keep_threads_quiet()
        backend.encode_special_tokens = True  # "[PAD]" in a text is text; not stored in the file, so set here
        self._backend, self.special = backend, special
        self.kind: str = backends.kind_of(backend, imported=special is not None)
        tokens = special or SpecialTokens(backend.get_vocab_size(with_added_tokens=True), 0, 1, 2, 3, 4)
        self.vocab_size, self.special_ids = tokens.n_ids, tokens.ids
        self.prefix, self.suffix = list(tokens.prefix), list(tokens.suffix)
        self.pad_id = tokens.pad if tokens.pad >= 0 else max(0, tokens.eos)
        self.unk_id, self.bos_id, self.eos_id, self.mask_id = tokens.unk, tokens.bos, tokens.eos, tokens.mask
        self._spelling = spelling or Spelling()
        self.ngrams = NgramVocabulary(self._spelling.ngrams) if self._spelling.ngrams else None
        self.bigrams: list[tuple[int, int]] = self._spelling.bigrams

    @staticmethod
    def imported(text: str, special: SpecialTokens, where: object = "the tokenizer") -> Tokenizer:
        """Return the tokenizer of a pretrained model from the content of its `tokenizer.json`.

        Raises:
            CheckpointError: a part is none that is known, or an id has no row in the embedding.
        """
        backend = read_backend(safe_read.from_json(dict[str, Any], text.encode(), str(where)), where)
        check_ids(backend, special.n_ids, special.ids, where)
        return Tokenizer(backend, special)

    @property
    def of_targets(self) -> Tokenizer:
        """Return the tokenizer of the other side of a translation; it is this one, unless that has one of its own."""
        return self

    def framed(self, ids: Sequence[int]) -> list[int]:
        """Return the ids of a text with what the model expects around it; as they are where that is nothing."""
        return [*self.prefix, *ids, *self.suffix]

    def with_end(self, framed: Sequence[int]) -> list[int]:
        """Return what `framed` gave as the source of a translation: with an end token, if that is not in `suffix`."""
        return [*framed, self.eos_id] if self.special is None else [*framed]

    def room(self, max_len: int) -> int:
        """Return how many tokens of a text fit into `max_len` with what is around it."""
        return max(0, max_len - len(self.prefix) - len(self.suffix))

    @staticmethod
    def train(texts: Iterable[str], config: TextConfig, extra_tokens: Sequence[str] = ()) -> Tokenizer:
        """Train a tokenizer; the same texts in the same order always give the same one.

        A joint vocabulary is trained on both sides. `extra_tokens` are kept whole wherever they stand, such as
        "[de_DE]".

        Raises:
            DataError: there is no text.
            UsageError: `vocab_size` cannot hold the alphabet; n-grams or pairs of what are not words.
        """
        _keep_threads_quiet()
        texts = list(texts)
        trained = Tokenizer(backends.train_backend(texts, config, tuple(extra_tokens)))
        for name in ("ngrams", "bigrams"):
            if getattr(config, name) and trained.kind != "word":
                message = f"text.{name} are of words, and text.tokenizer is {config.tokenizer}"
                raise UsageError(message, f"use --text.tokenizer word, or --text.{name} 0")
        spelling = Spelling()
        if config.ngrams:
            words = (word for _, some in trained.encode_with_surfaces(texts) for word in some)
            spelling.ngrams.extend(NgramVocabulary.train(words, config.ngrams).ngrams)
        if config.bigrams:
            chunks = (texts[start : start + 1024] for start in range(0, len(texts), 1024))
            ids = itertools.chain.from_iterable(map(trained.encode_batch, chunks))
            spelling.bigrams.extend(common_bigrams(ids, trained.vocab_size, len(SPECIAL_TOKENS), config.bigrams))
        return Tokenizer(trained._backend, None, spelling)

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`, without special tokens around them."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, computed in parallel.

        Raises:
            DataError: a text holds half a surrogate pair, so it is not Unicode text.
        """
        return [encoding.ids for encoding in encoded(self._backend, texts, offsets=False)]

    def encode_cut(self, texts: Sequence[str], max_len: int, keep: str = "head") -> list[CutText]:
        """Return the ids of each text cut to `max_len`, as `long_text.truncate` cuts, and whether there were more.

        What belongs around a text is counted and there.

        Raises:
            DataError: as in `encode_batch`.
        """
        found = self.encode_with_surfaces(texts) if self.ngrams else ((ids, []) for ids in self.encode_batch(texts))
        results, room = list[CutText](), self.room(max_len)
        for ids, words in found:
            kept, forms = self.truncate(ids, room, keep), self.truncate(ids, room, keep, words)
            results.append(CutText(self.framed(kept), forms, len(kept) < len(ids), self.n_unknown(kept)))
        return results

    def truncate(self, ids: list[int], max_len: int, keep: str, values: list[Any] | None = None) -> list[Any]:
        """Return of the tokens of a text what `long_text.truncate` keeps, or of other values of theirs."""
        return truncate(ids if values is None else values, max_len, keep)

    def text_fields(self, text: str) -> dict[str, str]:
        """Return a text as an answer names it: {"text"}, of a pair {"text", "pair"}."""
        return {"text": text}

    def pair(self, first: str, second: str) -> str:
        """Return two texts as the one that a model of pairs reads; raise UsageError where it reads one text."""
        raise UsageError("this model reads one text, and a second one was given", "leave it out")

    def n_unknown(self, ids: Sequence[int]) -> int:
        """Return how many tokens of a text are not in the vocabulary; where n-grams spell them, if all are not."""
        n = 0 if self.unk_id < 0 else ids.count(self.unk_id)
        return 0 if self.ngrams and n < len(ids) else n

    def encode_with_surfaces(self, texts: Sequence[str]) -> Iterator[tuple[list[int], list[str]]]:
        """Yield the ids of each text, and the surface form of each token (`ngrams.surface_forms`)."""
        for start in range(0, len(texts), 1024):  # offsets take far more memory than ids
            some = texts[start : start + 1024]
            for text, encoding in zip(some, encoded(self._backend, some), strict=True):
                surfaces = surface_forms(text, encoding.offsets)
                yield encoding.ids, [word.lower() for word in surfaces] if self.lowercases else surfaces

    def encode_with_offsets(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Return the ids of each of a few texts, and the characters that each token covers (`offsets`)."""
        return [(encoding.ids, encoding.offsets) for encoding in encoded(self._backend, texts)]

    def id_of(self, role: str) -> int:
        """Return the id of a role ("pad", "unk", "bos", "eos", "mask"); negative where no token has it."""
        return getattr(self, f"{role}_id")

    @property
    def start_id(self) -> int:
        """Return the id that an empty prompt starts with: that between documents, where there is one."""
        return self.eos_id if self.eos_id >= 0 else self.pad_id

    @cached_property
    def without_text(self) -> list[int]:
        """Return the ids that stand for no text, in order: of special tokens, and those that have no token."""
        if self.special is None:
            return sorted(self.special_ids)
        missing = {i for i in range(self.vocab_size) if self._backend.id_to_token(i) is None}
        return sorted(self.special_ids | missing)

    @cached_property
    def lowercases(self) -> bool:
        """Return True if texts are lowercased first."""
        normalizer = self._backend.normalizer
        return normalizer is not None and normalizer.normalize_str("A").removeprefix(backends.SPACE) == "a"

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of `ids` without special tokens. How exact it is depends on the kind (see the class)."""
        kept = [i for i in map(int, ids) if i not in self.special_ids]
        return self._backend.decode(kept, skip_special_tokens=False)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        r"""Return each token as a person would write it in a table: "▁" for a space, "\n" for a line break.

        A byte-level token that is part of a character is shown as its bytes, "<E282>".
        """
        return [self._piece(int(i)) for i in ids]

    def vocabulary(self) -> list[str]:
        """Return the token of each id, as it is stored."""
        named = map(self._backend.id_to_token, range(self.vocab_size))
        return [f"<no token {i}>" if token is None else token for i, token in enumerate(named)]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Return for each token of `encode(text)` the characters text[start:end] that it covers.

        Bytes of one character share its span; a marker that is not in the text has an empty one.
        """
        return encoded(self._backend, [text])[0].offsets

    def save(self, path: Path) -> None:
        """Write `tokenizer.json`, atomically."""
        from glassformer.utils.atomic_io import atomic_write_text

        atomic_write_text(Path(path), self.to_json())

    def to_json(self) -> str:
        """Return the content of `tokenizer.json`."""
        return json.dumps(self._content(), ensure_ascii=False, indent=2)

    def _content(self) -> dict[str, Any]:
        """Return the content of `tokenizer.json` as JSON data."""
        content = json.loads(self._backend.to_str(pretty=False))
        if self.ngrams or self.bigrams:
            content["model"][SPELLING] = asdict(self._spelling)
        return content if self.special is None else content | {KEY: asdict(self.special)}

    @staticmethod
    def load(path: Path) -> Tokenizer:
        """Read a `tokenizer.json` that `save` wrote.

        Raises:
            CheckpointError: it is missing, damaged, or has other special tokens than the five.
        """
        path = Path(path)
        if not path.exists():
            raise CheckpointError(f"{path}: there is no tokenizer here", "check that this is a run folder")
        content = safe_read.read_json(path, LIMITS["tokenizer"])
        pairs = isinstance(content, dict) and content.pop(PAIRS, False) is True
        tokenizer = Tokenizer._of_content(content, path)
        return import_module("glassformer.text.pairs").PairTokenizer.of(tokenizer) if pairs else tokenizer

    @staticmethod
    def _of_content(content: Any, where: object) -> Tokenizer:
        if isinstance(content, dict) and KEY in content:
            special = SpecialTokens.from_json(content[KEY], where)
            if SIDES in content:
                return import_module("glassformer.text.paired_tokenizer").PairedTokenizer(content, special, where)
            return Tokenizer.imported(json.dumps(content), special, where)
        backend = read_backend(content, where)
        check_ids(backend, None, (), where)
        if (tokens := [backend.id_to_token(i) for i in range(len(SPECIAL_TOKENS))]) != list(SPECIAL_TOKENS):
            raise CheckpointError(f"{where}: the first tokens should be {', '.join(SPECIAL_TOKENS)}, but are {tokens}")
        spelling = Spelling.from_json(content["model"].get(SPELLING, {}), backend.get_vocab_size(), where)
        return Tokenizer(backend, None, spelling)

    @cached_property
    def sha256(self) -> str:
        """Hash of the tokenizer's content, whatever the layout of its file."""
        canonical = json.dumps(self._content(), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(canonical.encode("utf-8")).hexdigest()

    def _piece(self, token_id: int) -> str:
        token = self._backend.id_to_token(token_id)
        if token is None and 0 <= token_id < self.vocab_size:
            return f"<no token {token_id}>"
        if token is None:
            raise DataError(f"id {token_id} is not in this vocabulary of {self.vocab_size} tokens")
        if token_id in self.special_ids:
            return token
        if self.kind == "byte-bpe":
            token = backends.readable_bytes(token)
        return token.replace(" ", backends.SPACE).replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


@cache
def _keep_threads_quiet() -> None:
    """Let the backend use its threads here, and none after a fork, where they would wait forever.

    Unset, the variable makes the backend warn at every fork. It may be set because a process that started this one has
    set it here, so a forked child never keeps it.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork either
        os.register_at_fork(after_in_child=lambda: os.environ.update(TOKENIZERS_PARALLELISM="false"))
