"""From text to ids and back: one thin wrapper around Hugging Face `tokenizers`, for the four kinds here.

A tokenizer is trained on the training split alone and lives in one `tokenizer.json`, from which everything,
its kind included, is restored. How each kind cuts text is in `backends.py`; [BOS] and [EOS] are put around
sequences where batches are made, not here.

What the library cannot follow in a file is one kind of error, and ids are checked. Padding and truncation that a file
sets by itself are cleared, and so are the tokens that it puts around a text: those are kept as ids (`SpecialTokens`).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import tokenizers
from msgspec import Meta

from glassformer.config import TextConfig
from glassformer.errors import CheckpointError, DataError, UsageError
from glassformer.text import backends
from glassformer.text.backends import BOS, EOS, MASK, PAD, SPECIAL_TOKENS, UNK
from glassformer.text.long_text import CutText, truncate
from glassformer.text.ngrams import NgramVocabulary, common_bigrams, surface_forms
from glassformer.utils import safe_read
from glassformer.utils.safe_read import LIMITS, from_json

__all__ = ["BOS", "EOS", "MASK", "PAD", "SPECIAL_TOKENS", "UNK", "Tokenizer"]

KEY = "glassformer"
"""The key of the special tokens in the `tokenizer.json` of an imported model; the library never sees it."""
SIDES = "sides"
"""The key of the tokenizers of source and target in the `tokenizer.json` of a translator that has two."""
PAIRS = "pairs"
"""The key that says, in the `tokenizer.json` of a run, that each text is a pair of texts."""
SPELLING = "spelling"
"""The key of n-grams and pairs of words in the model of a `tokenizer.json` that has some; the library ignores it."""
NONE = -1
"""The id of a role that no token has; it is never the id of a token."""
MOST_IDS = 10_000_000
Around = Annotated[tuple[int, ...], Meta(max_length=8)]
"""Ids before or after a text."""
ROLES = ("pad", "unk", "bos", "eos", "mask")
Span = tuple[int, int]
"""Characters of a text, from the first to before the second."""


@dataclass(frozen=True)
class SpecialTokens:
    """The ids of special tokens by role; two roles may share one.

    Attributes:
        n_ids: number of ids, which is the number of rows of the embedding; some may have no token.
        pad: fills a batch. Without one some other token does, since what fills is masked.
        unk: stands for what has no token; `NONE` where there is nothing unknown.
        bos: begins a text, or a translation.
        eos: ends a text, a document or a translation.
        mask: stands for a token to predict.
        prefix: ids before each text, such as [CLS] in BERT.
        suffix: ids after each text, such as [SEP] in BERT.
    """

    n_ids: Annotated[int, Meta(ge=1, le=MOST_IDS)]
    pad: int = NONE
    unk: int = NONE
    bos: int = NONE
    eos: int = NONE
    mask: int = NONE
    prefix: Around = ()
    suffix: Around = ()

    @property
    def ids(self) -> frozenset[int]:
        """Return the ids of all of them."""
        roles = {getattr(self, role) for role in ROLES}
        return frozenset(roles | {*self.prefix, *self.suffix}) - {NONE}

    @staticmethod
    def from_json(value: Any, where: object) -> SpecialTokens:
        """Return the value of which `asdict` gave the JSON data.

        Raises:
            CheckpointError: a field is missing, of another type, or no id.
        """
        special = from_json(SpecialTokens, value, f"{where}: special tokens")
        for name in (*ROLES, "prefix", "suffix"):
            ids = getattr(special, name)
            if wrong := [one for one in (ids if isinstance(ids, tuple) else [ids]) if not NONE <= one < special.n_ids]:
                raise CheckpointError(f"{where}: {name} holds {wrong[0]}, which is none of the {special.n_ids:,} ids")
        return special


@dataclass(frozen=True)
class Spelling:
    """The character n-grams of a word tokenizer, and its pairs of words as ids, most frequent first."""

    ngrams: list[Annotated[str, Meta(min_length=1)]] = field(default_factory=list)
    bigrams: list[tuple[int, int]] = field(default_factory=list)

    @staticmethod
    def from_json(value: Any, n_ids: int, where: object) -> Spelling:
        """Return the value of the key SPELLING; raise CheckpointError where it is none, or a pair is not of ids."""
        spelling = from_json(Spelling, value, f"{where}: {SPELLING}")
        if any(not 0 <= i < n_ids for pair in spelling.bigrams for i in pair):
            raise CheckpointError(f"{where}: the bigrams of a tokenizer should be pairs of its words")
        return spelling


@contextmanager
def readable(where: object) -> Iterator[None]:
    """Raise CheckpointError for what the library cannot read or follow: it raises a bare Exception, or panics."""
    try:
        yield
    except BaseException as error:  # a panic is not even an Exception
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        message = f"{where}: this is not a readable tokenizer ({str(error)[:200]})"
        raise CheckpointError(message, "restore it from a copy, or train or import again") from error


def read_backend(content: dict[str, Any], where: object) -> tokenizers.Tokenizer:
    """Return the library's tokenizer of the JSON data of a file, without what it does around a text.

    Raises:
        CheckpointError: it is not readable.
    """
    if not isinstance(model := content.get("model"), dict):
        raise CheckpointError(f"{where}: this is not a readable tokenizer (no model)")
    if model.get("dropout"):
        raise CheckpointError(f"{where}: its model drops merges at random (dropout), which no answer may depend on")
    content = {name: value for name, value in content.items() if name not in (KEY, SIDES)}
    content |= {"padding": None, "truncation": None, "post_processor": None}
    with readable(where):
        return tokenizers.Tokenizer.from_str(json.dumps(content, ensure_ascii=False))


def check_ids(backend: tokenizers.Tokenizer, n_ids: int | None, special: Iterable[int], where: object) -> None:
    """Refuse ids that are not below `n_ids`, by default the number of tokens, or belong to two tokens.

    Raises:
        CheckpointError: that, or one of the `special` ids has no token.
    """
    ids = list(backend.get_vocab(with_added_tokens=True).values())
    n_ids, distinct = len(ids) if n_ids is None else n_ids, {*ids}
    if any(i >= n_ids for i in distinct):
        raise CheckpointError(f"{where}: a token has an id for which the embedding of {n_ids:,} rows has none")
    if len(distinct) != len(ids):
        raise CheckpointError(f"{where}: two tokens have one id")
    if missing := sorted({*special} - distinct):
        raise CheckpointError(f"{where}: the special token with the id {missing[0]} is not in the vocabulary")


def encoded(backend: tokenizers.Tokenizer, texts: Sequence[str], offsets: bool = True) -> list[tokenizers.Encoding]:
    """Return what a backend gives for texts; without `offsets` faster.

    Raises:
        DataError: one of them holds half a surrogate pair.
    """
    encode = backend.encode_batch if offsets else backend.encode_batch_fast
    try:
        with readable("the tokenizer"):
            return encode(texts, add_special_tokens=False)
    except (TypeError, UnicodeEncodeError):
        for number, text in enumerate(texts, start=1):
            if half := re.search("[\ud800-\udfff]", text):
                where = f"text {number}, character {half.start() + 1}"
                message = f"{where}: half a surrogate pair, so this is not Unicode text"
                raise DataError(message, "save the text as UTF-8") from None
        raise


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
    def imported(content: dict[str, Any], special: SpecialTokens, where: object = "the tokenizer") -> Tokenizer:
        """Return the tokenizer of a pretrained model from the JSON data of its `tokenizer.json`.

        Raises:
            CheckpointError: a part is none that is known, or an id has no row in the embedding.
        """
        backend = read_backend(content, where)
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
            trained.ngrams = NgramVocabulary([])
            words = (word for _, some in trained.read(texts) for word in some)
            spelling.ngrams.extend(NgramVocabulary.train(words, config.ngrams).ngrams)
        if config.bigrams:
            chunks = (texts[start : start + 1024] for start in range(0, len(texts), 1024))
            ids = itertools.chain.from_iterable(map(trained.encode_batch, chunks))
            spelling.bigrams.extend(common_bigrams(ids, trained.vocab_size, len(SPECIAL_TOKENS), config.bigrams))
        return Tokenizer(trained._backend, None, spelling)

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`, without special tokens around them."""
        return self.encode_batch([text])[0]

    def encode_with_offsets(self, texts: Sequence[str], offsets: bool = True) -> list[tuple[list[int], list[Span]]]:
        """Return the ids of each of a few texts, and the characters that each token covers (`offsets`).

        Without `offsets` there are none, which is faster.

        Raises:
            DataError: a text holds half a surrogate pair, so it is not Unicode text.
        """
        return [(each.ids, each.offsets if offsets else []) for each in encoded(self._backend, texts, offsets)]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, computed in parallel; raise as `encode_with_offsets`."""
        return [ids for ids, _ in self.encode_with_offsets(texts, offsets=False)]

    def encode_cut(self, texts: Sequence[str], max_len: int, keep: str = "head") -> list[CutText]:
        """Return the ids of each text cut to `max_len`, as `long_text.truncate` cuts, and whether there were more.

        What belongs around a text is counted and there.

        Raises:
            DataError: as in `encode_batch`.
        """
        results, room = list[CutText](), self.room(max_len)
        for ids, words in self.read(texts):
            kept, forms = self.truncate(ids, room, keep), self.truncate(ids, room, keep, words)
            results.append(CutText(self.framed(kept), forms, self.mark(kept, len(kept) < len(ids))))
        return results

    def truncate(self, ids: list[int], max_len: int, keep: str, values: list[Any] | None = None) -> list[Any]:
        """Return of the tokens of a text what `long_text.truncate` keeps, or of other values of theirs."""
        return truncate(ids if values is None else values, max_len, keep)

    def text_fields(self, text: str) -> dict[str, str]:
        """Return a text as an answer names it: {"text"}, of a pair {"text", "pair"}."""
        return {"text": text}

    def mark(self, ids: Sequence[int], was_cut: bool = False) -> dict[str, bool | int]:
        """Return what an answer says of a text that was cut, or whose `ids` hold tokens that the vocabulary lacks.

        Where n-grams spell these, they are counted if there are no others.
        """
        n = 0 if self.unk_id < 0 else ids.count(self.unk_id)
        unknown: dict[str, bool | int] = {"unknown": n} if n and not (self.ngrams and n < len(ids)) else {}
        return {"truncated": True} | unknown if was_cut else unknown

    def read(self, texts: Sequence[str]) -> Iterator[tuple[list[int], list[str]]]:
        """Yield the ids of each text, and the surface form of each token; "" if the tokenizer has no n-grams."""
        spelled = self.ngrams is not None
        for start in range(0, len(texts), 1024):  # offsets take far more memory than ids
            some = texts[start : start + 1024]
            for text, (ids, offsets) in zip(some, self.encode_with_offsets(some, spelled), strict=True):
                yield ids, self.surfaces(text, ids, offsets) if spelled else [""] * len(ids)

    def surfaces(self, text: str, ids: Sequence[int], offsets: Sequence[Span]) -> list[str]:
        """Return the surface form of each token (`surface_forms`); "" of what divides the two texts of a pair."""
        write = str.lower if self.lowercases else str
        forms = zip(ids, surface_forms(text, offsets), strict=True)
        return ["" if i in self.separator else write(form) for i, form in forms]

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

    def offsets(self, text: str) -> list[Span]:
        """Return for each token of `encode(text)` the characters text[start:end] that it covers.

        Bytes of one character share its span; a marker that is not in the text has an empty one.
        """
        return self.encode_with_offsets([text])[0][1]

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
        content = safe_read.read_json(path, LIMITS["tokenizer"], dict[str, Any])
        pairs = content.pop(PAIRS, False) is True
        if KEY in content:
            special = SpecialTokens.from_json(content[KEY], path)
            imported = PairedTokenizer if SIDES in content else Tokenizer.imported
            tokenizer = imported(content, special, path)
        else:
            backend = read_backend(content, path)
            check_ids(backend, None, (), path)
            if (tokens := [*map(backend.id_to_token, range(len(SPECIAL_TOKENS)))]) != list(SPECIAL_TOKENS):
                expected = ", ".join(SPECIAL_TOKENS)
                raise CheckpointError(f"{path}: the first tokens should be {expected}, but are {tokens}")
            spelling = Spelling.from_json(content["model"].get(SPELLING, {}), backend.get_vocab_size(), path)
            tokenizer = Tokenizer(backend, None, spelling)
        return import_module("glassformer.text.pairs").PairTokenizer.of(tokenizer) if pairs else tokenizer

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


class PairedTokenizer(Tokenizer):
    """That of a translator whose two sides are cut by models of their own, and share one list of ids: Marian's.

    A text is cut into pieces by the model of its side, and each piece has the id that the list gives to its string;
    what has none is unknown. A language code at the start of a source, ">>fr<<", is a piece. Texts are sources, unless
    it is that `of_targets`.

    In `tokenizer.json` the list is a WordLevel model, whose decoder joins pieces to text, and the models of the two
    sides are under the key "sides". The library never sees that key.

    Args:
        content: a `tokenizer.json` whose key "sides" holds those of source and target.
        special: the special tokens by role.
        where: the file, for messages.
    """

    def __init__(self, content: dict[str, Any], special: SpecialTokens, where: object) -> None:
        sides = content.get(SIDES)
        if not isinstance(sides, list) or len(sides) != 2 or not all(isinstance(side, dict) for side in sides):
            raise CheckpointError(f"{where}: {SIDES} should be two tokenizers, of the source and of the target")
        super().__init__(read_backend(content, where), special)
        check_ids(self._backend, special.n_ids, special.ids, where)
        self._sides, self._side = [read_backend(side, where) for side in sides], 0
        for side in self._sides:
            side.encode_special_tokens = True
        self._ids = self._backend.get_vocab(with_added_tokens=True)

    @property
    def of_targets(self) -> Tokenizer:
        other = object.__new__(PairedTokenizer)
        other.__dict__.update(self.__dict__)
        other._side = 1
        return other

    def encode_with_offsets(self, texts: Sequence[str], offsets: bool = True) -> list[tuple[list[int], list[Span]]]:
        # The characters of a language code before each text.
        codes = [text.find("<<") + 2 if text.startswith(">>") and "<<" in text else 0 for text in texts]
        rest, found = [text[n:] for text, n in zip(texts, codes, strict=True)], []
        for text, n, encoding in zip(texts, codes, encoded(self._sides[self._side], rest), strict=True):
            pieces = [text[:n]] * bool(n) + encoding.tokens
            spans = [(0, n)] * bool(n) + [(start + n, end + n) for start, end in encoding.offsets]
            found.append(([self._ids.get(piece, self.unk_id) for piece in pieces], spans))
        return found

    def _content(self) -> dict[str, Any]:
        return super()._content() | {SIDES: [json.loads(side.to_str()) for side in self._sides]}
