"""Text of any size into shards of ids, in bounded memory and as many processes as one likes, going on after a kill.

The input is cut into blocks, and a block becomes a shard, whoever encodes it: so the outcome is the same to the byte
for any number of processes, and after any number of interruptions. A shard is written under another name, forced to
the disk, renamed and then recorded; what has no record is made again, and the index is written when all have one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from glassformer import files
from glassformer.config import TextConfig
from glassformer.data.corpus import pieces_of
from glassformer.data.shards import FORMAT, INDEX, TOKENIZER, UNFINISHED, Shard, Shards
from glassformer.data.sources import Part, Source, cut_into_blocks, is_held_out
from glassformer.data.stream import Layout, Unit, units_of
from glassformer.errors import DataError, Interrupted, UsageError
from glassformer.files import atomic_write_chunks, read_json, remove_leftovers, write_json
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.word_cache import WordCache

CHUNK_CHARS = 1 << 20
"""Characters tokenized at a time."""
SAMPLE_BYTES, SAMPLE_BLOCKS = 16 << 20, 64
"""A tokenizer is trained on so much of the text, drawn by seed from so many places."""
VALID_SHARE, VALID_BYTES = 0.1, 4 << 20
"""Without being asked, a tenth is held out, and of large text about this much."""


@dataclass(frozen=True)
class Encoding:
    """How a text becomes shards: all that decides their bytes, beside the text.

    Args:
        layout: how documents lie in the files. seed: of the sample and of what is held out.
        valid_fraction: share of the units that are held out; None for the usual one, until the text is known.
        shard_bytes: of text in a shard, about.
        text: what tokenizer to train: its `tokenizer`, `vocab_size` and `lowercase`.
        tokenizer: the SHA-256 of one that is given; "" for one to train.
    """

    layout: Layout = field(default_factory=Layout)
    seed: int = 0
    valid_fraction: float | None = None
    shard_bytes: int = 64 << 20
    text: TextConfig = field(default_factory=TextConfig)
    tokenizer: str = ""

    def settings(self) -> dict[str, Any]:
        """The same as JSON."""
        trained = {name: getattr(self.text, name) for name in ("tokenizer", "vocab_size", "lowercase")}
        own = {name: getattr(self, name) for name in ("seed", "valid_fraction", "shard_bytes")}
        return asdict(self.layout) | own | ({"tokenizer": self.tokenizer} if self.tokenizer else trained)


def share_to_hold_out(sources: list[Source]) -> float:
    """The share of a text that is held out where nobody says: a tenth, and of large text less."""
    return min(VALID_SHARE, VALID_BYTES / max(1, sum(source.size for source in sources)))


class BlockEncoder:
    """Makes the shard of a block, whichever process it is in.

    Args:
        out: the folder. sources: all the input. encoding: how. tokenizer: with what.
    """

    def __init__(self, out: Path, sources: list[Source], encoding: Encoding, tokenizer: Tokenizer) -> None:
        self.out, self.encoding, self.tokenizer = out, encoding, tokenizer
        self.blocks = cut_into_blocks(sources, encoding.shard_bytes)
        self.dtype = "<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4"
        self.words = WordCache(tokenizer, self.dtype)
        self.stopping: Callable[[], bool] = lambda: False

    def record(self, number: int) -> Path:
        """The file that says that a block is done."""
        return self.out / f"shard-{number:05}.json"

    def is_sealed(self, number: int) -> bool:
        """Whether a block has its record, and the shard the size that it says."""
        shard = self.out / f"shard-{number:05}.bin"
        if not (self.record(number).is_file() and shard.is_file()):
            return False
        tokens = read_json(self.record(number))["shard"]["tokens"]
        return shard.stat().st_size == tokens * np.dtype(self.dtype).itemsize

    def seal(self, number: int) -> Counter[str]:
        """Write the shard of a block, what of it is held out, and last the record; returns the counts."""
        counts, held_out = Counter[str](), list[str]()
        name, aside = f"shard-{number:05}.bin", f"held-out-{number:05}.jsonl"
        _, sha256 = atomic_write_chunks(self.out / name, self._ids(self.blocks[number], counts, held_out))
        facts = Shard(name, counts["tokens"], counts["documents"], sha256)
        if held_out:
            lines = (json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n" for text in held_out)
            size, sha256 = atomic_write_chunks(self.out / aside, lines)
            facts = Shard(
                name, facts.tokens, facts.documents, facts.sha256, aside, len(held_out), size, sha256
            )
        write_json(self.record(number), {"shard": asdict(facts), "counts": counts})
        return counts

    def _ids(self, block: list[Part], counts: Counter[str], held_out: list[str]) -> Iterator[bytes]:
        """The ids of a block, an end token before each document and after each gap, a chunk at a time."""
        waiting, size = list[tuple[bool, str]](), 0
        for part in block:
            for unit in units_of(part, self.encoding.layout):
                if not unit.text:
                    counts["empty"] += 1
                elif self._aside(part.source, unit.place):
                    held_out.append(unit.text)
                else:
                    begins = unit.begins or self._aside(part.source, unit.place - 1)
                    counts["documents"] += begins
                    for piece in chain.from_iterable(pieces_of(unit.text, self.tokenizer.kind)):
                        waiting.append((begins, piece))
                        begins, size = False, size + len(piece)
                        if size >= CHUNK_CHARS:
                            yield self._encoded(waiting, counts)
                            waiting, size = [], 0
        if waiting:
            yield self._encoded(waiting, counts)

    def _encoded(self, pieces: list[tuple[bool, str]], counts: Counter[str]) -> bytes:
        """The ids of pieces, as they stand in a file; each begins a document, or goes on."""
        if self.stopping():
            raise Interrupted("encoding was interrupted", "give the same command again: it goes on")
        end = np.array([self.tokenizer.eos_id], self.dtype).tobytes()
        encoded = self.words.encode([text for _, text in pieces])
        data = b"".join(end * begins + ids for (begins, _), ids in zip(pieces, encoded, strict=True))
        flat = np.frombuffer(data, self.dtype)
        counts["tokens"] += len(flat)
        counts["unknown"] += int((flat == self.tokenizer.unk_id).sum())
        return data

    def _aside(self, source: Source, place: int) -> bool:
        return is_held_out(self.encoding.seed, source, place, self.encoding.valid_fraction or 0.0)


def prepare_folder(
    out: Path, sources: list[Source], encoding: Encoding, given: Tokenizer | None
) -> Tokenizer:
    """The folder to encode into, begun or as it was left, and the tokenizer, trained unless it is given.

    Raises:
        UsageError: the folder holds something else, or what was begun with other settings.
        DataError: the input has changed since, or holds no text.
    """
    asked = {"settings": encoding.settings(), "sources": [_facts(source) for source in sources]}
    for name in (INDEX, UNFINISHED):
        if (out / name).is_file():
            _check_same(out, read_json(out / name), asked)
            return Tokenizer.load(out / TOKENIZER)
    if out.exists() and (
        not out.is_dir() or any(p.name != TOKENIZER and p.name[0] != "." for p in out.iterdir())
    ):
        raise UsageError(f"{out} holds something already", "name a new or empty folder: --out")
    tokenizer = given or Tokenizer.train(sample(sources, encoding), encoding.text)
    tokenizer.save(out / TOKENIZER)
    write_json(out / UNFINISHED, asked)
    return tokenizer


def finish_folder(encoder: BlockEncoder, sources: list[Source]) -> Shards:
    """Write the index of a folder whose blocks are all sealed, and clear away what led to it.

    Raises:
        DataError: the input has changed while it was read, or nothing is left to train on.
    """
    out, counts, shards = encoder.out, Counter[str](), list[dict[str, Any]]()
    if changed := next((source for source in sources if source.now() != source), None):
        told = f"{changed.path} changed while it was encoded"
        raise DataError(told, f"remove {out} and encode again, when it no longer changes")
    for number in range(len(encoder.blocks)):
        record = read_json(encoder.record(number))
        shards.append(record["shard"])
        counts.update(record["counts"])
    if counts["tokens"] < 3:
        raise DataError("too little text is left to train on", "give more, or a smaller --valid-fraction")
    t = encoder.tokenizer
    text = {"tokenizer": t.kind, "vocab_size": t.vocab_size, "lowercase": t.lowercases}
    begun = read_json(out / UNFINISHED)
    for source in begun["sources"]:
        del source["changed"]  # the same text encoded elsewhere shall have the same index
    index = {"format": FORMAT, "dtype": encoder.dtype, "tokenizer": t.sha256, "text": text, "counts": counts}
    write_json(out / INDEX, index | begun | {"shards": shards})
    clear(out)
    return Shards.read(out)


def clear(out: Path) -> None:
    """Remove what only an unfinished encoding needs."""
    for path in [*sorted(out.glob("shard-*.json")), out / UNFINISHED]:
        if path.exists():
            files.fs.remove(path)
    remove_leftovers(out)


def sample(sources: list[Source], encoding: Encoding) -> list[str]:
    """Some of the training text, the same for the same seed: SAMPLE_BYTES at most, of up to SAMPLE_BLOCKS blocks.

    Raises:
        DataError: there is none.
    """
    rng = np.random.default_rng([encoding.seed, len(sources)])
    blocks = cut_into_blocks(sources, encoding.shard_bytes)
    chosen = np.sort(rng.permutation(len(blocks))[:SAMPLE_BLOCKS])
    texts: list[str] = []
    for number in chosen:
        parts = [small for part in blocks[number] for small in part.in_small_parts()]
        left = SAMPLE_BYTES // len(chosen)
        for i in rng.permutation(len(parts)):
            for unit in _units_to_train_on(parts[i], encoding):
                texts.append(unit.text)
                left -= len(unit.text)
                if left <= 0:
                    break
            if left <= 0:
                break
    if not texts:
        raise DataError("there is no text to train a tokenizer on", "are the files empty?")
    return texts


def _units_to_train_on(part: Part, encoding: Encoding) -> Iterator[Unit]:
    for unit in units_of(part, encoding.layout):
        share = encoding.valid_fraction or 0.0
        if unit.text and not is_held_out(encoding.seed, part.source, unit.place, share):
            yield unit


def _facts(source: Source) -> dict[str, Any]:
    return {"name": source.name, "size": source.size, "changed": source.changed}


def _check_same(out: Path, begun: dict[str, Any], asked: dict[str, Any]) -> None:
    """Refuse to go on with what was begun on other text or with other settings."""
    old, new = ({s["name"]: s for s in facts["sources"]} for facts in (begun, asked))
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new or new[name] | old[name] != new[name]:
            what = "is new" if name not in old else "is gone" if name not in new else "has changed"
            told = f"{name} {what} since {out} was begun"
            raise DataError(told, "restore it, or encode into a new folder: --out")
    for name, value in asked["settings"].items():
        if (was := begun["settings"].get(name)) != value:
            told = f"{out} was begun with {name.replace('_', ' ')} {was}, not {value}"
            raise UsageError(told, "give the settings it was begun with, or name a new folder: --out")
