"""A model exported for another library, loaded with that library: it predicts as the run does.

    model = glassformer.load("exported")
    model.predict(["[en_US] March 5, 2021"], beam_size=1)

The folder is sealed: a file that changed is an error. Texts are encoded and decoded here, and limits of length kept;
what is in between is the library's, in a module of its own that is an `Engine`. Nothing here imports torch.
"""

from __future__ import annotations

import importlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from glassformer.config import Config, DecodeConfig
from glassformer.config.limits import length_limit, truncate, window_start
from glassformer.config.recipes import override
from glassformer.errors import CheckpointError, UsageError
from glassformer.interop.engine import Engine, Hypotheses
from glassformer.runs.folder import TOKENIZER
from glassformer.runs.sealed_folder import MANIFEST, check_sealed_folder
from glassformer.text import masked as masked_text
from glassformer.text.answers import (
    checked_texts,
    class_answer,
    class_lines,
    continuation_lines,
    masked_lines,
    translation_lines,
)
from glassformer.text.lines import chunks_of
from glassformer.text.tokenizer import Tokenizer

KIND, FACTS = "glassformer export", "glassformer.json"
CHUNK = 256
"""Texts of a stream that are answered together."""
ENGINES = {
    "ctranslate2": "glassformer.interop.ctranslate2_engine",
    "hf": "glassformer.interop.hf_engine",
    "onnx": "glassformer.interop.onnx_engine",
    "gguf": "glassformer.interop.gguf_engine",
}
"""Modules with a function `load_engine(path, facts, device)`, imported when needed."""


@dataclass(frozen=True)
class ExportFacts:
    """The description of an exported folder, in `glassformer.json`.

    Attributes:
        target: the library: "ctranslate2", "hf", "onnx" or "gguf".
        architecture: the name of the model class there.
        task: the task of the run.
        kind: its kind of model, `Task.explain_as`.
        run: the name of the run's folder.
        max_len: maximum tokens of a text that the tokenizer's output is truncated to.
        context: positions of the model.
        dtype: numbers of the weights: "float32", "float16", "bfloat16", "int8".
        decode: settings of decoding of the run.
        truncate: which part of a text that is too long is kept: "head", "tail" or "head+tail".
        labels: the classes of a classifier, in the order of the logits.
        notes: what differs from the run, one sentence each.
        check: the comparison with the run (`interop/check.py`); None if it was not made.
    """

    target: str
    architecture: str
    task: str
    kind: str
    run: str
    max_len: int
    context: int
    dtype: str
    decode: dict[str, Any]
    truncate: str = "head"
    labels: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    check: dict[str, Any] | None = None

    def to_json(self) -> bytes:
        """Return the content of the file."""
        return (json.dumps(asdict(self), ensure_ascii=False, indent=2) + "\n").encode("utf-8")


def is_exported(path: Path) -> bool:
    """Return True if a folder is an exported model; nothing of it is checked."""
    return (path / FACTS).is_file() and (path / MANIFEST).is_file()


def load_exported(path: Path | str, device: str = "auto") -> ExportedModel:
    """Return the model of an exported folder.

    Args:
        path: the folder.
        device: "auto", "cpu" or "cuda".

    Raises:
        CheckpointError: a file is missing or damaged.
        UsageError: the library is not installed.
    """
    path = Path(path)
    check_sealed_folder(path, KIND)
    try:
        facts = ExportFacts(**json.loads((path / FACTS).read_bytes()))
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path / FACTS} is not that of an export of this version: {error}") from error
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(f"{facts.target} computes on cpu or cuda, not on {device}", "leave out --device")
    if facts.target not in ENGINES:
        raise CheckpointError(f"{path / FACTS} names the library {facts.target!r}", "update Glassformer")
    return ExportedModel(path, facts, device)


class ExportedModel:
    """An exported model, used through the library that it was exported for.

    Args:
        path: the folder.
        facts: its description.
        device: "auto", "cpu" or "cuda".

    Attributes:
        config: settings of the run that predictions depend on.
    """

    def __init__(self, path: Path, facts: ExportFacts, device: str) -> None:
        self.path, self.facts, self.device = path, facts, device
        self.tokenizer = Tokenizer.load(path / TOKENIZER)
        self.config = replace(Config(), task=facts.task, decode=DecodeConfig(**facts.decode))

    def __repr__(self) -> str:
        return f"ExportedModel({str(self.path)!r}: {self.facts.target}, {self.facts.task}, {self.facts.dtype})"

    def predict(self, texts: str | Sequence[str], *, first: int = 0, **options: Any) -> list[dict[str, Any]]:
        """Return one dictionary per text, with the keys of the run's `predict`.

        Args:
            texts: the texts.
            first: row number of the first text, for callers that pass texts in parts.
            options: fields of `DecodeConfig`.

        Raises:
            UsageError: an option does not exist, or the library has no such setting.
        """
        texts = checked_texts(texts)
        decode = override(self.config, {"decode": options}, "options").decode
        match self.facts.kind:
            case "translator":
                return self._translate(texts, decode)
            case "language_model":
                return self._continue(texts, decode, first)
            case "classifier":
                return self._classify(texts)
            case _:
                return self._fill(texts, decode)

    def predict_stream(self, lines: Iterable[str], **options: Any) -> Iterator[dict[str, Any]]:
        """Yield `predict` of any number of texts, in order, at bounded memory."""
        first = 0
        for chunk in chunks_of(lines, CHUNK):
            yield from self.predict(chunk, first=first, **options)
            first += len(chunk)

    def answer_lines(self, answer: dict[str, Any]) -> list[str]:
        """Return a prediction as lines without line breaks, its fields apart by tabs."""
        lines = {"translator": translation_lines, "language_model": continuation_lines, "classifier": class_lines}
        return lines.get(self.facts.kind, masked_lines)(answer)

    @cached_property
    def engine(self) -> Engine:
        """Return what computes, loaded at the first use."""
        return importlib.import_module(ENGINES[self.facts.target]).load_engine(self.path, self.facts, self.device)

    def _classify(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        facts, answers = self.facts, []
        for text, (ids, words) in zip(texts, masked_text.encode(self.tokenizer, texts), strict=True):
            ids, words = (truncate(each, facts.max_len, facts.truncate) for each in (ids, words))
            answers.append(class_answer(text, self.engine.classify(ids, words), facts.labels))
        return answers

    def _fill(self, texts: Sequence[str], decode: DecodeConfig) -> list[dict[str, Any]]:
        masked_text.warn_without_mask(texts)
        return [self._filled(text, decode.top_k or masked_text.N_PREDICTIONS) for text in texts]

    def _filled(self, text: str, k: int) -> dict[str, Any]:
        """Return the k most probable tokens for each [MASK], and the text with the first of each."""
        guesses, length, t = list[list[dict[str, Any]]](), self.facts.max_len, self.tokenizer
        all_ids, all_words = masked_text.encode_masked(t, text)
        for start in range(0, len(all_ids), length):
            ids, words = all_ids[start : start + length], all_words[start : start + length]
            if t.mask_id in ids:
                guesses += masked_text.top_predictions(t, self.engine.fill(ids, words), k)
        return {"text": text, "filled": masked_text.filled(text, [g[0]["token"] for g in guesses]), "guesses": guesses}

    def _translate(self, texts: Sequence[str], decode: DecodeConfig) -> list[dict[str, Any]]:
        if decode.sample:
            raise UsageError("an exported translator searches, and does not sample", "leave out --sample")
        if decode.n_best > max(1, decode.beam_size):
            hint = f"use --beam-size {decode.n_best} or more"
            raise UsageError(f"a beam of {decode.beam_size} has no {decode.n_best} hypotheses", hint)
        encoded = zip(texts, self.tokenizer.encode_batch(texts), strict=True)
        sources = [ids[: self.facts.max_len] if text.strip() else [] for text, ids in encoded]
        limits = [length_limit(len(ids) + 1, self.facts.context, decode.max_new_tokens) for ids in sources]
        wanted = [i for i, ids in enumerate(sources) if ids]
        limit = max((limits[i] for i in wanted), default=1)
        results = self.engine.search([sources[i] for i in wanted], decode, limit, decode.n_best) if wanted else []
        found = dict(zip(wanted, results, strict=True))
        for i in wanted:
            # The limit was that of the batch. A search that reached its own ends in other hypotheses, and those that
            # ended come first, also where the library scores others higher.
            if any(len(ids) > limits[i] or ids[-1:] != [self.tokenizer.eos_id] for ids, _ in found[i]):
                [found[i]] = self.engine.search([sources[i]], decode, limits[i], max(1, decode.beam_size))
        return [self._answer(text, found.get(i), decode) for i, text in enumerate(texts)]

    def _answer(self, text: str, hypotheses: Hypotheses | None, decode: DecodeConfig) -> dict[str, Any]:
        """Return the answer to one text; an empty one has none."""
        eos = self.tokenizer.eos_id
        found = hypotheses or [([eos], 0.0)] * decode.n_best  # a blank line has as many rows as another
        found = sorted(found, key=lambda h: (h[0][-1:] != [eos], -h[1]))[: decode.n_best]
        ranked = [{"translation": self.tokenizer.decode(ids), "score": score} for ids, score in found]
        best = ranked[0] | ({} if found[0][0][-1:] == [eos] else {"unfinished": True})
        return {"text": text} | best | ({"n_best": ranked} if decode.n_best > 1 else {})

    def _continue(self, texts: Sequence[str], decode: DecodeConfig, first: int) -> list[dict[str, Any]]:
        eos, context = self.tokenizer.eos_id, self.facts.context
        prompts = [ids or [eos] for ids in self.tokenizer.encode_batch(texts)]
        written: list[list[int]] = [[] for _ in prompts]
        active = list(range(len(prompts)))
        while active:
            groups: dict[tuple[int, int], dict[int, list[int]]] = defaultdict(dict)
            for i in active:
                # A window of the text, as far as its positions reach: `limits.window_start`.
                text = [*prompts[i], *written[i]]
                window = text[window_start(len(text), context) :]
                room = min(context - len(window) + 1, decode.max_new_tokens - len(written[i]))
                groups[len(window), room][i] = window
            active = []
            # Libraries pad prompts of different lengths, or count new tokens from the shortest.
            for (_, room), windows in groups.items():
                places = [(first + i, len(prompts[i]) + len(written[i])) for i in windows]
                generated = self.engine.generate([*windows.values()], decode, room, places)
                for i, ids in zip(windows, generated, strict=True):
                    ended = ids[-1:] == [eos]
                    written[i] += ids[: len(ids) - ended]
                    if not ended and len(written[i]) < decode.max_new_tokens:
                        active.append(i)
        answers = zip(texts, written, strict=True)
        return [{"prompt": text, "text": self.tokenizer.decode(ids)} for text, ids in answers]
