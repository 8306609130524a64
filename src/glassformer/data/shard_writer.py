"""Tokenize text of any size into shards, in bounded memory and in several processes, and continue after a kill.

The text is read in order, in batches of about a million characters, and a shard is a fixed number of batches: so the
files are the same for any number of processes. Each shard is written atomically and then recorded in index.json. After
a kill the text is read again from its beginning, and encoded from the first shard that has no record.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, fields, replace
from heapq import heappop, heappush
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.config import TextConfig
from glassformer.data.shard_documents import Segment, encode_batches, find_files, find_source_files, read_segments
from glassformer.data.shards import FORMAT, INDEX, TOKENIZER, PretokenizeConfig, Shard, load_tokenizer, read_unfinished
from glassformer.data.sources import not_read_record
from glassformer.errors import DataError, UsageError
from glassformer.text.tokenizer import Tokenizer
from glassformer.utils.atomic_io import atomic_write_chunks, remove_leftovers, write_json

BATCH_CHARS = 1 << 20
SAMPLE_CHARS = 16 << 20
"""Characters that a tokenizer is trained on, at most."""
VALID_FRACTION, VALID_BYTES = 0.1, 4 << 20
"""By default so much of the text is held out, whichever is less."""


class PretokenizedWriter:
    """Writes a folder of shards, or continues one.

    Without a tokenizer one is trained on a sample of the text.

    Raises:
        UsageError: the folder holds something else, or was begun with other text or settings.
        DataError: there is no text.
    """

    def __init__(
        self, out: Path, paths: Sequence[str | Path], config: PretokenizeConfig, tokenizer: Tokenizer | None
    ) -> None:
        self.out, self.paths, (self.sources, self.others) = out, paths, find_files(paths)
        if not (size := sum(source.size for source in self.sources)):
            raise DataError(f"{paths[0]}: there is no text, every file is empty")
        if config.valid_fraction is None:
            config = replace(config, valid_fraction=min(VALID_FRACTION, VALID_BYTES / size))
        self.config = config
        self.at_spaces = tokenizer.marks_start if tokenizer else config.kind == "bpe"
        settings = {field.name: getattr(config, field.name) for field in fields(PretokenizeConfig)}
        request = {
            "settings": settings | {"tokenizer": tokenizer.sha256 if tokenizer else None},
            "sources": {source.name: source.size for source in self.sources},
        }
        remove_leftovers(out)
        if (out / INDEX).is_file():
            self.tokenizer, self.index = load_tokenizer(out), read_unfinished(out)
            self._check_same(request)
        else:
            if out.exists() and not (out.is_dir() and {path.name for path in out.iterdir()} <= {TOKENIZER}):
                raise UsageError(f"{out} exists and is not empty", "give a new or empty folder: --out")
            self.tokenizer = t = tokenizer or self._train_tokenizer()
            text = {"tokenizer": t.kind, "vocab_size": t.vocab_size, "lowercase": t.lowercases}
            dtype = "<u2" if t.vocab_size <= 1 << 16 else "<u4"
            about = {"format": FORMAT, "finished": False, "dtype": dtype, "tokenizer": t.sha256, "text": text}
            about["not_read"] = not_read_record(self.others)
            self.index: dict[str, Any] = about | request | {"counts": {}, "shards": []}
            t.save(out / TOKENIZER)
            write_json(out / INDEX, self.index)
        self.dtype = np.dtype(self.index["dtype"])
        self.shards = [Shard(**shard) for shard in self.index["shards"]]

    def write(self, jobs: int = 1) -> Iterator[Shard]:
        """Write the shards that are missing, and yield each of them; the folder is finished after the last.

        Raises:
            DataError: the input is not text, or too little, or changed while it was read.
            ResourceError: the disk is full, or a worker process died; finished shards remain.
        """
        if self.index["finished"]:
            return
        per_shard, tokenizer = self.config.shard_mb, self.out / TOKENIZER
        batches = islice(self._batches(), len(self.shards) * per_shard, None)
        with closing(encode_batches(batches, tokenizer, self.dtype.str, jobs)) as encoded:
            for first in encoded:
                yield self._write_shard(chain([first], islice(encoded, per_shard - 1)))
        if changed := set(self.sources) ^ set(find_source_files(self.paths)):
            hint = f"remove {self.out}, and encode again when the text no longer changes"
            raise DataError(f"{min(changed).path} changed while it was encoded", hint)
        if sum(shard.tokens for shard in self.shards) < 3:
            raise DataError("too little text is left to train on", "add text, or lower --valid-fraction")
        self._write_index(finished=True)

    def _check_same(self, request: dict[str, Any]) -> None:
        """Refuse to continue what was begun with other settings, or with text of another size."""
        for kind, values in request.items():
            for name in sorted({**values, **self.index[kind]}):
                before, now = self.index[kind].get(name), values.get(name)
                if before != now:
                    what = f"{name} of {before} bytes" if kind == "sources" else f"{name} {before}"
                    hint = "restore that, or encode into a new folder: --out"
                    raise UsageError(f"{self.out} was begun with {what}, not {now}", hint)

    def _train_tokenizer(self) -> Tokenizer:
        """Train a tokenizer on segments drawn by seed."""
        drawn, size = list[tuple[int, str]](), 0  # a heap: the first has the largest number
        for segment in self._segments():
            if not segment.held_out:
                heappush(drawn, (-segment.random, segment.text))
                size += len(segment.text)
                while size > SAMPLE_CHARS and len(drawn) > 1:
                    size -= len(heappop(drawn)[1])
        if not drawn:
            raise DataError("there is no text to train a tokenizer on", "check that the files are not empty")
        c = self.config
        text = TextConfig(tokenizer=c.kind, vocab_size=c.vocab_size, lowercase=c.lowercase)
        return Tokenizer.train([text for _, text in sorted(drawn)], text)

    def _segments(self) -> Iterator[Segment]:
        return chain.from_iterable(read_segments(source, self.config, self.at_spaces) for source in self.sources)

    def _batches(self) -> Iterator[list[Segment]]:
        """Yield the text in batches of about BATCH_CHARS characters."""
        batch, size = list[Segment](), 0
        for segment in self._segments():
            batch.append(segment)
            size += len(segment.text)
            if size >= BATCH_CHARS:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def _write_shard(self, encoded: Iterator[tuple[list[Segment], bytes]]) -> Shard:
        """Write one shard, with what is held out beside it, and record it in the index."""
        counts, held_out = dict.fromkeys(("tokens", "documents", "unknown"), 0), list[str]()

        def chunks() -> Iterator[bytes]:
            for batch, data in encoded:
                ids = np.frombuffer(data, self.dtype)
                counts["tokens"] += len(ids)
                counts["unknown"] += int((ids == self.tokenizer.unk_id).sum())
                counts["documents"] += sum(s.starts_document and not s.held_out for s in batch)
                held_out.extend(s.text for s in batch if s.held_out)
                yield data

        number = f"{len(self.shards):05}"
        _, sha256 = atomic_write_chunks(self.out / f"shard-{number}.bin", chunks())
        shard = Shard(f"shard-{number}.bin", sha256=sha256, **counts)
        if held_out:
            name = f"held-out-{number}.jsonl"
            lines = (json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n" for text in held_out)
            size, sha256 = atomic_write_chunks(self.out / name, lines)
            shard = replace(
                shard, held_out=name, held_out_documents=len(held_out), held_out_bytes=size, held_out_sha256=sha256
            )
        self.shards.append(shard)
        self._write_index(finished=False)
        return shard

    def _write_index(self, finished: bool) -> None:
        counts = {n: sum(getattr(s, n) for s in self.shards) for n in ("tokens", "documents", "unknown")}
        shards = [asdict(shard) for shard in self.shards]
        self.index |= {"finished": finished, "counts": counts, "shards": shards}
        write_json(self.out / INDEX, self.index)
