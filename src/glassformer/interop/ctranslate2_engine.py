"""Predict with CTranslate2 (https://opennmt.net/CTranslate2/), whose files are checked before. No torch is imported.

The library trusts what stands in its files.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.config import DecodeConfig
from glassformer.errors import CheckpointError, UsageError
from glassformer.interop.choose import Engine, Hypotheses
from glassformer.interop.ctranslate2_binary import in_memory
from glassformer.interop.export_facts import (
    ExportFacts,
    FieldReader,
    checked_fields,
    library,
    not_exported,
    require,
    tokenizer_of,
)
from glassformer.utils import cpu_threads
from glassformer.utils.safe_read import read_json, read_json_object

MODEL, CONFIG = "model.bin", "config.json"
SPECS = {"translator": "TransformerSpec", "language_model": "TransformerDecoderSpec"}
VOCABULARIES = {"translator": "shared_vocabulary.json", "language_model": "vocabulary.json"}
SETTINGS = {
    "add_source_bos": bool,
    "add_source_eos": bool,
    "bos_token": str,
    "decoder_start_token": str,
    "eos_token": str,
    "layer_norm_epsilon": (float, type(None)),
    "multi_query_attention": bool,
    "quantization_type": type(None),
    "quantization_bits": type(None),
    "quantization_group_size": type(None),
    "unk_token": str,
}
"""Settings of `config.json`, and their types."""
VERSION, MAX_VARIABLES = 6, 100_000
_WIDTHS = {0: 4, 1: 1, 2: 2, 3: 4, 4: 2, 5: 2}
"""Bytes of a number, by the id of its type: float32, int8, int16, int32, float16, bfloat16."""


def check_ctranslate2(folder: Path, facts: ExportFacts, tokens: Sequence[str]) -> None:
    """Check the files of a model.

    Raises:
        CheckpointError: they are not those that an export writes.
    """
    vocabulary = folder / VOCABULARIES[facts.kind]
    if read_json(vocabulary) != [*tokens]:
        raise not_exported(f"{vocabulary} does not hold the tokens of tokenizer.json")
    for name, value in read_json_object(folder / CONFIG).items():
        if name not in SETTINGS or not isinstance(value, SETTINGS[name]):
            raise CheckpointError(f"{folder / CONFIG}: {name[:80]} {str(value)[:80]!r} is in no export")
    with checked_fields(folder / MODEL) as fields:
        _check_variables(fields, SPECS[facts.kind], len(tokens))


def _check_variables(fields: FieldReader, spec: str, n_tokens: int) -> None:
    """Check that the variables fill the file, and that those of tokens have as many rows as there are tokens."""
    [version] = fields.numbers("I")
    require(version == VERSION, f"version {version}")
    found = _name(fields)
    require(found == spec, f"it is a {found[:80]!r}")
    _, n_variables = fields.numbers("II")
    require(n_variables <= MAX_VARIABLES, f"{n_variables} variables")
    names = set[str]()
    for _ in range(n_variables):
        name, [rank] = _name(fields), fields.numbers("B")
        require(rank <= 4, f"{name[:80]!r} has {rank} axes")
        shape = fields.numbers(f"{rank}I")
        kind, n_bytes = fields.numbers("BI")
        require(kind in _WIDTHS and n_bytes == _WIDTHS[kind] * math.prod(shape), f"{name[:80]!r} has another size")
        require(fields.file.tell() + n_bytes <= fields.size, f"it ends inside of {name[:80]!r}")
        fields.file.seek(n_bytes, os.SEEK_CUR)
        names.add(name)
        if name.endswith(("embeddings/weight", "embeddings_0/weight", "projection/weight")):
            require(rank == 2 and shape[0] == n_tokens, f"{name[:80]!r} has {shape} numbers for {n_tokens} tokens")
    [n_aliases] = fields.numbers("I")
    require(n_aliases <= MAX_VARIABLES, f"{n_aliases} second names")
    for _ in range(n_aliases):
        _name(fields)
        require(_name(fields) in names, "a second name of nothing")
    require(fields.file.tell() == fields.size, "something follows its variables")


def _name(fields: FieldReader) -> str:
    return fields.text("H", 1 << 16).removesuffix("\0")


BATCH_TOKENS = 1024
"""Tokens of a batch, few enough that a chunk of texts gives every worker some."""


def load_engine(path: Path, facts: ExportFacts, device: str) -> CTranslate2Engine:
    """Return the engine of an exported folder, which computes with the numbers of the file.

    Raises:
        CheckpointError: the library cannot read the folder.
        UsageError: it is not installed.
    """
    engine = CTranslate2Engine(path, facts, device)
    engine.model  # noqa: B018  (so that an error comes now)
    return engine


class CTranslate2Engine(Engine):
    """A `ctranslate2.Translator` or a `ctranslate2.Generator`."""

    def __init__(self, path: Path, facts: ExportFacts, device: str) -> None:
        self.path, self.facts, self.device, self._seed = path, facts, device, 0
        # A worker a core, each with one thread: on two cores, models of this size translate a sentence alone as fast
        # with one thread as with two, which wait for each other at every step, and in bulk 1.3 times as many.
        self._workers = cpu_threads.n_threads()
        self._tokenizer = tokenizer_of(path, facts)
        self._tokens = self._tokenizer.vocabulary()
        self._ids = {token: id for id, token in enumerate(self._tokens)}
        self.n_tokens = len(self._tokens)

    @cached_property
    def model(self) -> Any:
        """Return the library's object."""
        ctranslate2 = library("an export for ctranslate2", "ctranslate2", "ctranslate2")
        check_ctranslate2(self.path, self.facts, self._tokens)
        ctranslate2.set_random_seed(self._seed)
        kind = ctranslate2.Translator if self.facts.kind == "translator" else ctranslate2.Generator
        threads = {"inter_threads": self._workers, "intra_threads": 1}
        files = in_memory(self.path, (MODEL, CONFIG, VOCABULARIES[self.facts.kind]))
        try:
            return kind(str(self.path), device=self.device, compute_type="default", files=files, **threads)
        except (RuntimeError, ValueError) as error:
            raise not_exported(f"ctranslate2 cannot read {self.path}: {error}") from error

    def search(self, sources: Sequence[list[int]], decode: DecodeConfig, limit: int, n_best: int) -> list[Hypotheses]:
        beam, t = max(1, decode.beam_size), self._tokenizer
        results = self.model.translate_batch(
            self._words([self._unframed(ids) for ids in sources]),
            max_batch_size=BATCH_TOKENS,
            batch_type="tokens",
            beam_size=beam,
            # It ends a search at a number of finished hypotheses, whatever the others score. With one more than the
            # beam holds, 97% of the translations of Multi30k's validation split are the run's, and 95% without.
            patience=1 if beam == 1 else (beam + 1) / beam,
            num_hypotheses=n_best,
            length_penalty=decode.length_penalty,
            max_decoding_length=limit,
            min_decoding_length=0,
            max_input_length=0,
            suppress_sequences=[[self._tokens[i]] for i in sorted({t.pad_id, t.bos_id} - {t.eos_id})],
            return_scores=True,
            return_end_token=True,
        )
        return [
            [([self._ids[word] for word in words], score) for words, score in zip(r.hypotheses, r.scores, strict=True)]
            for r in results
        ]

    def generate(
        self, prompts: Sequence[list[int]], decode: DecodeConfig, n_new: int, places: Sequence[tuple[int, int]]
    ) -> list[list[int]]:
        if decode.min_p > 0:
            raise UsageError("ctranslate2 has no min_p", "use --top-p or --top-k")
        greedy = decode.temperature == 0
        if not greedy and (decode.decode_seed, 1) != (self._seed, self._workers):
            # Workers take the seed when they start, and one of several would take a batch as it comes.
            self._seed, self._workers = decode.decode_seed, 1
            self.__dict__.pop("model", None)
        results = self.model.generate_batch(
            self._words(prompts),
            max_batch_size=BATCH_TOKENS,
            batch_type="tokens",
            max_length=n_new,
            end_token=self._tokens[self._tokenizer.eos_id],
            return_end_token=True,
            include_prompt_in_result=False,
            suppress_sequences=[[self._tokens[i]] for i in self._tokenizer.without_text if i != self._tokenizer.eos_id],
            sampling_topk=1 if greedy else decode.top_k,
            sampling_topp=1.0 if greedy else decode.top_p,
            sampling_temperature=1.0 if greedy else decode.temperature,
        )
        return [[self._ids[word] for word in result.sequences[0]] for result in results]

    def logits(self, ids: list[int]) -> np.ndarray:
        return np.array(self.model.forward_batch(self._words([ids])))[0]

    def log_probs(self, source: list[int], target: list[int]) -> np.ndarray:
        [score] = self.model.score_batch(self._words([self._unframed(source)]), self._words([target]))
        return np.array(score.log_probs)

    def _unframed(self, ids: list[int]) -> list[int]:
        """Return a source without the tokens around it, which the library adds itself."""
        t = self._tokenizer
        return ids[len(t.prefix) : len(ids) - len(t.suffix)]

    def _words(self, texts: Sequence[list[int]]) -> list[list[str]]:
        return [[self._tokens[i] for i in ids] for ids in texts]
