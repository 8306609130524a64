"""A model exported for another library, loaded with that library: it predicts as the run does. No torch is imported.

    model = glassformer.load("exported")
    model.predict(["[en_US] March 5, 2021"], beam_size=1)

The folder is sealed: a file that changed is an error. Texts are encoded and decoded here, the search or sampling in
between is the other library's.
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from glassformer.config import Config, DecodeConfig
from glassformer.config.limits import length_limit, window_start
from glassformer.config.recipes import override
from glassformer.errors import CheckpointError, UsageError
from glassformer.runs.folder import TOKENIZER
from glassformer.runs.sealed_folder import MANIFEST, check_sealed_folder
from glassformer.text.answers import continuation_lines, translation_lines
from glassformer.text.tokenizer import BOS, EOS, MASK, PAD, UNK, Tokenizer
from glassformer.utils import cpu_threads

KIND, FACTS = "glassformer export", "glassformer.json"
CHUNK = 256
"""Texts of a stream that are answered together."""
BATCH_TOKENS = 4096


@dataclass(frozen=True)
class ExportFacts:
    """The description of an exported folder, in `glassformer.json`.

    Attributes:
        target: the library: "ctranslate2".
        architecture: the name of the model class there.
        task: the task of the run.
        kind: its kind of model, `Task.explain_as`: "translator" or "language_model".
        run: the name of the run's folder.
        max_len: maximum tokens of a text that the tokenizer's output is truncated to.
        context: positions of the model.
        dtype: numbers of the weights: "float32", "float16", "bfloat16", "int8".
        decode: settings of decoding of the run.
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
    return ExportedModel(path, facts, device)


class ExportedModel:
    """An exported translator or language model, used through CTranslate2.

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
        self._seed = 0
        self.config = replace(Config(), task=facts.task, decode=DecodeConfig(**facts.decode))

    def __repr__(self) -> str:
        return f"ExportedModel({str(self.path)!r}: {self.facts.target}, {self.facts.task}, {self.facts.dtype})"

    def predict(self, texts: str | Sequence[str], **options: Any) -> list[dict[str, Any]]:
        """Return one dictionary per text, with the keys of the run's `predict`.

        Args:
            texts: the texts.
            options: fields of `DecodeConfig`. Sampling continues its sequence of random numbers from call to call,
                and restarts it with another `decode_seed`.

        Raises:
            UsageError: an option does not exist, or the library has no such setting.
        """
        texts = [texts] if isinstance(texts, str) else list(texts)
        decode = override(self.config, {"decode": options}, "options").decode
        return self._translate(texts, decode) if self.facts.kind == "translator" else self._continue(texts, decode)

    def predict_stream(self, lines: Iterable[str], **options: Any) -> Iterator[dict[str, Any]]:
        """Yield `predict` of any number of texts, in order, at bounded memory."""
        rest = iter(lines)
        while chunk := list(itertools.islice(rest, CHUNK)):
            yield from self.predict(chunk, **options)

    def answer_lines(self, answer: dict[str, Any]) -> list[str]:
        """Return a prediction as lines without line breaks, its fields apart by tabs."""
        return translation_lines(answer) if self.facts.kind == "translator" else continuation_lines(answer)

    @cached_property
    def engine(self) -> Any:
        """Return the `ctranslate2.Translator` or `ctranslate2.Generator`, with the numbers of the file."""
        try:
            import ctranslate2
        except ImportError as error:
            hint = 'install it: pip install "glassformer[ctranslate2]"'
            raise UsageError(f"{self.path} needs the package ctranslate2", hint) from error
        ctranslate2.set_random_seed(self._seed)
        kind = ctranslate2.Translator if self.facts.kind == "translator" else ctranslate2.Generator
        try:
            return kind(
                str(self.path), device=self.device, compute_type="default", intra_threads=len(cpu_threads.cores())
            )
        except (RuntimeError, ValueError) as error:
            raise CheckpointError(f"ctranslate2 cannot read {self.path}: {error}", "export the run again") from error

    @cached_property
    def _tokens(self) -> list[str]:
        """Return the token of each id, as in the vocabulary of the exported model."""
        return self.tokenizer.vocabulary()

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {token: id for id, token in enumerate(self._tokens)}

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
        results = self._search([sources[i] for i in wanted], decode, max(limits, default=1), decode.n_best)
        found = dict(zip(wanted, results, strict=True))
        for i in wanted:
            # The limit was that of the batch. A search that reached its own ends in other hypotheses, and those that
            # ended come first, also where the library scores others higher.
            if any(len(tokens) > limits[i] or tokens[-1:] != [EOS] for tokens, _ in found[i]):
                [found[i]] = self._search([sources[i]], decode, limits[i], max(1, decode.beam_size))
        return [self._answer(text, found.get(i), decode) for i, text in enumerate(texts)]

    def _search(
        self, sources: Sequence[list[int]], decode: DecodeConfig, limit: int, n_best: int
    ) -> list[list[tuple[list[str], float]]]:
        """Return the tokens and the score of each hypothesis, best first; an end token is one of them."""
        if not sources:
            return []
        results = self.engine.translate_batch(
            [[self._tokens[i] for i in ids] for ids in sources],
            max_batch_size=BATCH_TOKENS,
            batch_type="tokens",
            beam_size=max(1, decode.beam_size),
            num_hypotheses=n_best,
            length_penalty=decode.length_penalty,
            max_decoding_length=limit,
            min_decoding_length=0,
            max_input_length=0,
            suppress_sequences=[[PAD], [BOS]],
            return_scores=True,
            return_end_token=True,
        )
        return [list(zip(result.hypotheses, result.scores, strict=True)) for result in results]

    def _answer(
        self, text: str, hypotheses: list[tuple[list[str], float]] | None, decode: DecodeConfig
    ) -> dict[str, Any]:
        """Return the answer to one text; an empty one has none."""
        found = hypotheses or [([EOS], 0.0)]
        found = sorted(found, key=lambda h: (h[0][-1:] != [EOS], -h[1]))[: decode.n_best]
        ranked = [{"translation": self._text(tokens), "score": score} for tokens, score in found]
        best = ranked[0] | ({} if found[0][0][-1:] == [EOS] else {"unfinished": True})
        return {"text": text} | best | ({"n_best": ranked} if decode.n_best > 1 else {})

    def _text(self, tokens: Sequence[str]) -> str:
        return self.tokenizer.decode(self._ids[token] for token in tokens)

    def _continue(self, texts: Sequence[str], decode: DecodeConfig) -> list[dict[str, Any]]:
        if decode.min_p > 0:
            raise UsageError(f"{self.facts.target} has no min_p", "use --top-p or --top-k")
        if decode.temperature > 0 and decode.decode_seed != self._seed:
            self._seed = decode.decode_seed
            self.__dict__.pop("engine", None)  # its threads take the seed when they start
        prompts = [ids or [self.tokenizer.eos_id] for ids in self.tokenizer.encode_batch(texts)]
        written: list[list[int]] = [[] for _ in prompts]
        active = list(range(len(prompts)))
        while active:
            groups: dict[tuple[int, int], dict[int, list[int]]] = defaultdict(dict)
            for i in active:
                # A window of the text, as far as its positions reach: `limits.window_start`.
                text = [*prompts[i], *written[i]]
                window = text[window_start(len(text), self.facts.context) :]
                room = min(self.facts.context - len(window) + 1, decode.max_new_tokens - len(written[i]))
                groups[len(window), room][i] = window
            active = []
            # Of windows of different lengths the library counts new tokens from the shortest.
            for (_, room), windows in groups.items():
                for i, tokens in zip(windows, self._generate([*windows.values()], decode, room), strict=True):
                    ended = tokens[-1:] == [EOS]
                    written[i] += [self._ids[token] for token in tokens[: len(tokens) - ended]]
                    if not ended and len(written[i]) < decode.max_new_tokens:
                        active.append(i)
        answers = zip(texts, written, strict=True)
        return [{"prompt": text, "text": self.tokenizer.decode(ids)} for text, ids in answers]

    def _generate(self, windows: Sequence[list[int]], decode: DecodeConfig, n_new: int) -> list[list[str]]:
        """Return at most n_new tokens after each window; an end token is one of them."""
        greedy = decode.temperature == 0
        results = self.engine.generate_batch(
            [[self._tokens[i] for i in ids] for ids in windows],
            max_batch_size=BATCH_TOKENS,
            batch_type="tokens",
            max_length=n_new,
            end_token=EOS,
            return_end_token=True,
            include_prompt_in_result=False,
            suppress_sequences=[[PAD], [UNK], [BOS], [MASK]],
            sampling_topk=1 if greedy else decode.top_k,
            sampling_topp=1.0 if greedy else decode.top_p,
            sampling_temperature=1.0 if greedy else decode.temperature,
        )
        return [result.sequences[0] for result in results]
