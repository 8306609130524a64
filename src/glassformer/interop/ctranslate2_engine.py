"""Predict with CTranslate2 (https://opennmt.net/CTranslate2/), whose files are checked before. No torch is imported.

The library trusts what stands in its files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.config import DecodeConfig
from glassformer.errors import UsageError
from glassformer.interop.ctranslate2_binary import FILE, open_variables
from glassformer.interop.engine import Hypotheses, library, not_exported
from glassformer.interop.export_facts import MAX_WEIGHTS, RUN_TOKENIZER, ExportFacts
from glassformer.interop.hf_settings import read_keys
from glassformer.text.tokenizer import Tokenizer
from glassformer.utils import cpu_threads
from glassformer.utils.safe_read import read_bytes, read_json, read_json_object

CONFIG = "config.json"
SPECS = {"translator": "TransformerSpec", "language_model": "TransformerDecoderSpec"}
VOCABULARIES = {"translator": "shared_vocabulary.json", "language_model": "vocabulary.json"}
KEYS = """
= null 0 : quantization_type
. bos_token eos_token unk_token decoder_start_token add_source_bos add_source_eos layer_norm_epsilon
. quantization_bits quantization_group_size alignment_heads alignment_layer multi_query_attention
"""
"""The keys of its `config.json`, as those of `hf_settings.py`."""


def check_export(folder: Path, kind: str, tokens: Sequence[str]) -> None:
    """Check the files of an exported model.

    Raises:
        CheckpointError: they are not those that an export writes.
    """
    vocabulary = folder / VOCABULARIES[kind]
    if read_json(vocabulary) != [*tokens]:
        raise not_exported(f"{vocabulary} does not hold the tokens of {RUN_TOKENIZER}")
    try:
        read_keys(KEYS, read_json_object(folder / CONFIG), f"{folder / CONFIG}")
    except UsageError as error:
        raise not_exported(error.message) from error
    with open_variables(folder / FILE) as variables:
        if variables.spec != SPECS[kind]:
            raise not_exported(f"{folder / FILE} is a {variables.spec}")
        for name in variables.names():
            if name.endswith(("embeddings/weight", "embeddings_0/weight", "projection/weight")):
                shape = variables.shape(name)
                if len(shape) != 2 or shape[0] != len(tokens):
                    raise not_exported(f"{folder / FILE}: {name} has the shape {shape} for {len(tokens)} tokens")


BATCH_TOKENS = 1024
"""Tokens of a batch, few enough that a chunk of texts gives every worker some."""


def load_engine(path: Path, facts: ExportFacts, tokenizer: Tokenizer, device: str) -> CTranslate2Engine:
    """Return the engine of an exported folder, which computes with the numbers of the file.

    Raises:
        CheckpointError: the library cannot read the folder.
        UsageError: it is not installed.
    """
    check_export(path, facts.kind, tokenizer.vocabulary())
    return CTranslate2Engine(path, (FILE, CONFIG, VOCABULARIES[facts.kind]), facts.kind, tokenizer, device)


class CTranslate2Engine:
    """A `ctranslate2.Translator` or a `ctranslate2.Generator`; it is given the content of the files alone."""

    def __init__(
        self, path: Path, files: Sequence[str], kind: str, tokenizer: Tokenizer, device: str, numbers: str = "default"
    ) -> None:
        self.path, self._files, self._kind, self._device, self._numbers = path, files, kind, device, numbers
        # A worker a core, each with one thread: on two cores, models of this size translate a sentence alone as fast
        # with one thread as with two, which wait for each other at every step, and in bulk 1.3 times as many.
        self._workers, self._seed = cpu_threads.n_threads(), 0
        self._tokenizer = tokenizer
        self._tokens = tokenizer.vocabulary()
        self._ids = {token: id for id, token in enumerate(self._tokens)}
        self.model  # noqa: B018  (so that an error comes now)

    @cached_property
    def model(self) -> Any:
        """Return the library's object."""
        ctranslate2 = library("an export for ctranslate2", "ctranslate2", "ctranslate2")
        ctranslate2.set_random_seed(self._seed)
        kind = ctranslate2.Translator if self._kind == "translator" else ctranslate2.Generator
        # Given these, the library opens no other file of the folder, such as `vmap.txt`.
        files = {name: read_bytes(self.path / name, MAX_WEIGHTS) for name in self._files}
        options = {"inter_threads": self._workers, "intra_threads": 1, "files": files}
        try:
            return kind(str(self.path), device=self._device, compute_type=self._numbers, **options)
        except (RuntimeError, ValueError) as error:
            raise not_exported(f"ctranslate2 cannot read {self.path}: {error}") from error

    def search(self, sources: Sequence[list[int]], decode: DecodeConfig, limit: int, n_best: int) -> list[Hypotheses]:
        beam, t = max(1, decode.beam_size), self._tokenizer
        given = self._words(map(self._unframed, sources))
        options: dict[str, Any] = {"batch_type": "tokens", "max_input_length": 0}
        results = self.model.translate_batch(
            given,
            max_batch_size=BATCH_TOKENS,
            beam_size=beam,
            # It ends a search at a number of finished hypotheses, whatever the others score. With one more than the
            # beam holds, 97% of the translations of Multi30k's validation split are the run's, and 95% without.
            patience=1 if beam == 1 else (beam + 1) / beam,
            num_hypotheses=n_best,
            length_penalty=decode.length_penalty,
            max_decoding_length=limit,
            min_decoding_length=0,
            suppress_sequences=[[self._tokens[i]] for i in sorted({t.pad_id, t.bos_id} - {t.eos_id})],
            return_scores=True,
            return_end_token=True,
            **options,
        )
        # Its own scores are of the tokens that may be written alone, a run's of all. A translation that did not end
        # keeps that score, since there may be no position behind its last token.
        end, options["max_batch_size"] = self._tokens[t.eos_id], BATCH_TOKENS
        pairs = zip(given, results, strict=True)
        ended = [(source, words) for source, r in pairs for words in r.hypotheses if words[-1:] == [end]]
        scored = iter(self.model.score_batch([s for s, _ in ended], [words[:-1] for _, words in ended], **options))
        found = list[Hypotheses]()
        for r in results:
            found.append([])
            for words, score in zip(r.hypotheses, r.scores, strict=True):
                if words[-1:] == [end]:
                    score = sum(next(scored).log_probs) / len(words) ** decode.length_penalty
                found[-1].append(([self._ids[word] for word in words], score))
        return found

    def generate(self, prompts: Sequence[list[int]], decode: DecodeConfig, n_new: int) -> list[list[int]]:
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

    def outputs(self, ids: list[int], words: Sequence[str] = ()) -> np.ndarray:
        return np.array(self.model.forward_batch(self._words([ids])))[0]

    def log_probs(self, source: list[int], target: list[int]) -> np.ndarray:
        [score] = self.model.score_batch(self._words([self._unframed(source)]), self._words([target]))
        return np.array(score.log_probs)

    def _unframed(self, ids: list[int]) -> list[int]:
        """Return a source without the tokens around it, which the library adds itself."""
        t = self._tokenizer
        return ids[len(t.prefix) : len(ids) - len(t.suffix)]

    def _words(self, texts: Iterable[list[int]]) -> list[list[str]]:
        return [[self._tokens[i] for i in ids] for ids in texts]
