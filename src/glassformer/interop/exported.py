"""A model exported for another library, loaded with that library: it predicts as the run does.

    model = glassformer.load("exported")
    model.predict("[en_US] March 5, 2021", beam_size=1)

The folder is sealed: a file that changed is an error. Texts are encoded and decoded here, and limits of length kept;
what is in between is the library's, in a module of its own: `engine.py`. Nothing here imports torch.
"""

from __future__ import annotations

import importlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from glassformer.config import Config, DecodeConfig
from glassformer.config.recipes import override
from glassformer.data.datasets.columns import SOURCE, ColumnSpecs, text_specs
from glassformer.errors import UsageError
from glassformer.interop.engine import Hypotheses, computing, finite, log_softmax, not_exported
from glassformer.interop.export_facts import FACTS, KIND, RUN_TOKENIZER, ExportFacts, check_files, decode_of, read_facts
from glassformer.runs.sealed_folder import read_manifest, read_sealed_file
from glassformer.text import answers as masked_text
from glassformer.text.answers import PREDICTED_TOGETHER, AnswerRule, Decision, encoder_answer, warn_at_end
from glassformer.text.long_text import chunks_of, length_limit, window_start
from glassformer.text.pairs import GivenText, given_texts
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.words import encoded_words, read_running


def load_exported(path: Path | str, device: str = "auto") -> ExportedModel:
    """Return the model of an exported folder.

    `device` is "auto", "cpu" or "cuda".

    Raises:
        CheckpointError: a file is missing or damaged.
        UsageError: the library is not installed.
    """
    path = Path(path)
    entries = read_manifest(path, KIND)
    if FACTS in entries:  # damage is to be called that, and not a wrong value
        read_sealed_file(path / FACTS, entries[FACTS])
    facts = read_facts(path)
    check_files(path, facts, {*entries})
    for name, entry in entries.items():
        read_sealed_file(path / name, entry)
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(f"{facts.target} computes on cpu or cuda, not on {device}", "leave out --device")
    return ExportedModel(path, facts, device)


class ExportedModel:
    """An exported model, used through the library that it was exported for; a folder of transformers by our own model.

    Attributes:
        config: settings of the run that predictions depend on.
    """

    def __init__(
        self, path: Path, facts: ExportFacts, device: str, tokenizer: Tokenizer | None = None, engine: Any = None
    ) -> None:
        self.path, self.facts, self.device = path, facts, device
        self.precision = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}.get(facts.dtype, facts.dtype)
        if engine is not None:
            vars(self)["engine"] = engine
        self.tokenizer = tokenizer or Tokenizer.load(path / RUN_TOKENIZER)
        self.config = replace(Config(), task=facts.task, decode=decode_of(facts))

    def __repr__(self) -> str:
        return f"ExportedModel({str(self.path)!r}: {self.facts.target}, {self.facts.task}, {self.facts.dtype})"

    def predict(self, texts: GivenText | Iterable[GivenText], *, first: int = 0, **options: Any) -> Any:
        """Return the answer to a text as a dictionary with the keys of the run's `predict`, or the list for a list.

        `first` is the row number of the first text, for callers that pass texts in parts; options are fields of
        `DecodeConfig`, and of a classifier `calibrated` and `min_probability`, as of the run.

        Raises:
            UsageError: an option does not exist, or the library has no such setting.
        """
        given: Any = given_texts(self.tokenizer, texts)
        answers = [*self._answered([given] if isinstance(given, str) else given, first, options)]
        return answers[0] if isinstance(given, str) else answers

    def predict_stream(self, lines: Iterable[GivenText], *, first: int = 0, **options: Any) -> Iterator[dict[str, Any]]:
        """Yield `predict` of any number of texts, in order, at bounded memory; `first` as of `predict`."""
        return self._answered(given_texts(self.tokenizer, lines, several=True), first, options)

    def _answered(self, given: Iterable[str], first: int, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
        rule, options = AnswerRule.of(self.facts.kind, self._decision, options)
        decode = override(self.config, {"decode": options}, "options").decode

        def answers(first: int) -> Iterator[dict[str, Any]]:
            for chunk in chunks_of(given, PREDICTED_TOGETHER):
                yield from self.answers(chunk, first, decode)
                first += len(chunk)

        # A language model reads as many tokens as it has positions.
        most = self.facts.context if self.facts.kind == "language_model" else self.facts.max_len
        return warn_at_end(iter(rule.apply(answers(first))), most)

    @cached_property
    def _decision(self) -> Decision:
        return Decision.from_json(self.facts.decision, self.facts.labels, self.path)

    def text_columns(self, requested: tuple[str | None, str | None]) -> ColumnSpecs:
        """Return the columns of a table to answer; see `text_specs`."""
        columns = (SOURCE,) if self.facts.kind == "translator" else None
        return text_specs(columns, self.facts.columns, requested, bool(self.tokenizer.separator))

    def explain(self, text: str, **options: Any) -> NoReturn:
        """Refuse to explain a text: the library computes without showing its steps.

        Raises:
            UsageError: always.
        """
        message = f"{self.path} is an exported model, whose steps inside {self.facts.target} cannot be looked into"
        raise UsageError(message, "load the run that it was exported from")

    def learn(self, text: str, answer: str, **options: Any) -> NoReturn:
        """Refuse to learn an answer, as `explain` does."""
        self.explain(text)

    def answers(self, texts: Sequence[str], first: int, decode: DecodeConfig) -> list[dict[str, Any]]:
        """Return `predict` of texts, without its options and its warnings."""
        if self.facts.target == "hf" and "engine" not in vars(self):
            task, model = self._restored
            return task.predict(model, texts, decode, first)
        with computing(self.path):
            match self.facts.kind:
                case "translator":
                    return self._translate(texts, decode)
                case "language_model":
                    return self._continue(texts, decode)
                case "tagger":
                    return self._tag(texts)
                case "masked_language_model":
                    masked_text.warn_without_mask(texts)
                    return [self._filled(text, decode.top_k or masked_text.N_PREDICTIONS) for text in texts]
                case _:
                    return self._encode(texts)

    @cached_property
    def engine(self) -> Any:
        """Return what computes, loaded at the first use."""
        load = importlib.import_module(f"glassformer.interop.{self.facts.target}_engine").load_engine
        return load(self.path, self.facts, self.tokenizer, self.device)

    @cached_property
    def _restored(self) -> tuple[Any, Any]:
        """Return the task and the model of a folder of transformers, which is read as an import reads it."""
        from glassformer.interop.imported import restore_imported
        from glassformer.interop.sources import read_source
        from glassformer.utils.device import choose_device

        try:
            task, model = restore_imported(read_source(self.path))
        except UsageError as error:
            raise not_exported(error.message) from error
        return task, model.to(choose_device(self.device))

    def _outputs(self, ids: list[int], words: Sequence[str], *shape: int) -> np.ndarray:
        """Return what the model gives for a text, of one of the kinds that encode: probabilities where it has any.

        Raises:
            CheckpointError: the library cannot compute it, or gives another shape.
            DivergedError: a number is not finite.
        """
        found = finite(self.engine.outputs(ids, words))
        if shape and found.shape != shape:
            raise not_exported(f"the library of {self.path} gives an array {found.shape}, where {shape} is expected")
        if self.facts.kind in ("classifier", "tagger"):
            return np.exp(log_softmax(found.astype(np.float64)))
        return 1 / (1 + np.exp(-found.astype(np.float64))) if self.facts.kind == "multilabel_classifier" else found

    def _encode(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """Return the answers of an encoder, once a text."""
        facts, t, answers = self.facts, self.tokenizer, []
        shape = () if facts.kind == "text_embedder" else (len(facts.labels) or 1,)
        for text, cut in zip(texts, t.encode_cut(texts, facts.max_len, facts.truncate), strict=True):
            outputs = self._outputs(cut.ids, cut.surfaces, *shape)
            outputs = outputs[0] if facts.kind == "regressor" else outputs
            answer = encoder_answer(facts.kind, t.text_fields(text), outputs, facts.labels, self._decision)
            answers.append(answer | cut.mark)
        return answers

    def _tag(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        facts, t, answers = self.facts, self.tokenizer, []
        several = [read_running(text) for text in texts]
        for read, found in zip(several, encoded_words(t, several, facts.max_len), strict=True):
            kept = found.ids[: t.room(facts.max_len)]
            ids = t.framed(kept)
            shares = self._outputs(ids, found.surfaces, max(1, len(ids)), len(facts.labels))
            outputs = np.eye(len(facts.labels))[[0] * len(found.places)]
            at = np.array(found.places, np.int64)
            outputs[at >= 0] = shares[at[at >= 0]]
            answer = encoder_answer(facts.kind, read, outputs, facts.labels, self._decision)
            answers.append(answer | t.mark(kept, len(found.ids) > len(kept)))
        return answers

    def _filled(self, text: str, k: int) -> dict[str, Any]:
        """Return the k most probable tokens for each [MASK], and the text with the first of each."""
        guesses, t = list[list[dict[str, Any]]](), self.tokenizer
        length = t.room(self.facts.max_len)
        all_ids, all_words = masked_text.encode_masked(t, text)
        for start in range(0, len(all_ids), length):
            ids, words = t.framed(all_ids[start : start + length]), all_words[start : start + length]
            if masked := [i for i, token in enumerate(ids) if token == t.mask_id]:
                logits = self._outputs(ids, words, len(ids), t.vocab_size)[masked]
                guesses += masked_text.top_predictions(t, logits, k)
        answer = {"text": text, "filled": masked_text.filled(text, [g[0]["token"] for g in guesses])}
        return answer | {"guesses": guesses} | t.mark(all_ids)

    def _translate(self, texts: Sequence[str], decode: DecodeConfig) -> list[dict[str, Any]]:
        if decode.sample:
            raise UsageError("an exported translator searches, and does not sample", "leave out --sample")
        if decode.n_best > max(1, decode.beam_size):
            hint = f"use --beam-size {decode.n_best} or more"
            raise UsageError(f"a beam of {decode.beam_size} has no {decode.n_best} hypotheses", hint)
        encoded = self.tokenizer.encode_cut(texts, self.facts.max_len)
        sources = [cut.ids if text.strip() else [] for text, cut in zip(texts, encoded, strict=True)]
        lengths = [len(self.tokenizer.with_end(ids)) for ids in sources]
        limits = [length_limit(n, self.facts.context, decode.max_new_tokens) for n in lengths]
        wanted = [i for i, ids in enumerate(sources) if ids]
        limit = max((limits[i] for i in wanted), default=1)
        results = self.engine.search([sources[i] for i in wanted], decode, limit, decode.n_best) if wanted else []
        found = dict(zip(wanted, results, strict=True))
        for i in wanted:
            # The limit was that of the batch. A search that reached its own ends in other hypotheses, and those that
            # ended come first, also where the library scores others higher.
            if any(len(ids) > limits[i] or ids[-1:] != [self.tokenizer.eos_id] for ids, _ in found[i]):
                [found[i]] = self.engine.search([sources[i]], decode, limits[i], max(1, decode.beam_size))
        marks = [cut.mark if text.strip() else {} for text, cut in zip(texts, encoded, strict=True)]
        return [self._answer(text, found.get(i), decode, marks[i]) for i, text in enumerate(texts)]

    def _answer(
        self, text: str, hypotheses: Hypotheses | None, decode: DecodeConfig, mark: dict[str, bool | int]
    ) -> dict[str, Any]:
        """Return the answer to one text; an empty one has none."""
        eos = self.tokenizer.eos_id
        found = hypotheses or [([eos], 0.0)] * decode.n_best  # a blank line has as many rows as another
        found = sorted(found, key=lambda h: (h[0][-1:] != [eos], -h[1]))[: decode.n_best]
        ranked = [{"translation": self.tokenizer.decode(ids), "score": score} for ids, score in found]
        best = ranked[0] | ({} if found[0][0][-1:] == [eos] else {"unfinished": True}) | mark
        return {"text": text} | best | ({"n_best": ranked} if decode.n_best > 1 else {})

    def _continue(self, texts: Sequence[str], decode: DecodeConfig) -> list[dict[str, Any]]:
        eos, context = self.tokenizer.eos_id, self.facts.context
        prompts = [self.tokenizer.framed(ids) or [eos] for ids in self.tokenizer.encode_batch(texts)]
        written: list[list[int]] = [[] for _ in prompts]
        active = list(range(len(prompts)))
        while active:
            groups: dict[tuple[int, int], dict[int, list[int]]] = defaultdict(dict)
            for i in active:
                # A window of the text, as far as its positions reach: `window_start`.
                text = [*prompts[i], *written[i]]
                window = text[window_start(len(text), context) :]
                room = min(context - len(window) + 1, decode.max_new_tokens - len(written[i]))
                groups[len(window), room][i] = window
            active = []
            # Libraries pad prompts of different lengths, or count new tokens from the shortest.
            for (_, room), windows in groups.items():
                generated = self.engine.generate([*windows.values()], decode, room)
                for i, ids in zip(windows, generated, strict=True):
                    ended = ids[-1:] == [eos]
                    written[i] += ids[: len(ids) - ended]
                    if not ended and len(written[i]) < decode.max_new_tokens:
                        active.append(i)
        return [
            {"prompt": text, "text": self.tokenizer.decode(ids)} | self.tokenizer.mark(prompt, len(prompt) > context)
            for text, prompt, ids in zip(texts, prompts, written, strict=True)
        ]
