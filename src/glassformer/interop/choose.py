"""The engines that answer for an exported folder, and which of them does.

Pure functions of the settings of a model: nothing is loaded. The tables follow the model definitions of the other
libraries: CTranslate2's `specs/transformer_spec.py`, and the `modeling_*.py` of Hugging Face's transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from glassformer.config import Config, DecodeConfig, ModelConfig
from glassformer.errors import DivergedError, GlassformerError, UsageError
from glassformer.interop.export_facts import FILES, not_exported
from glassformer.interop.hf_settings import CLASSES
from glassformer.text.tokenizer import Tokenizer

Hypotheses = list[tuple[list[int], float]]
"""Tokens and score of each hypothesis, best first; an end token is one of the tokens."""


class Engine:
    """Base class; a library implements the methods of the kinds of models that it can hold.

    Attributes:
        n_tokens: tokens that the model knows; None where only computing shows it.
    """

    n_tokens: int | None = None

    def classify(self, ids: list[int], words: list[str]) -> np.ndarray:
        """Return the probabilities (C,) of the classes of a text, or of each of several labels; a number is (1,).

        Of a tagger those of the tags at each token, (S, C).

        There is one token at least; `words` are the surface forms of the tokens, or "".
        """
        raise NotImplementedError

    def fill(self, ids: list[int], words: list[str]) -> np.ndarray:
        """Return the logits (n, V) of the n masked tokens of a text."""
        raise NotImplementedError

    def embed(self, ids: list[int]) -> np.ndarray:
        """Return the vector (P,) of a text."""
        raise NotImplementedError

    def search(self, sources: Sequence[list[int]], decode: DecodeConfig, limit: int, n_best: int) -> list[Hypotheses]:
        """Return the n_best hypotheses of each source, of at most `limit` tokens."""
        raise NotImplementedError

    def generate(
        self, prompts: Sequence[list[int]], decode: DecodeConfig, n_new: int, places: Sequence[tuple[int, int]]
    ) -> list[list[int]]:
        """Return at most n_new tokens after each of several prompts of equal length; an end token is one of them.

        `places` are the row number and the number of earlier tokens of each, of which a run makes its random numbers. A
        library with random numbers of its own continues them as long as `decode_seed` is the same.
        """
        raise NotImplementedError

    def logits(self, ids: list[int]) -> np.ndarray:
        """Return logits (T, V) of a language model after the last T tokens, up to a constant for each."""
        raise NotImplementedError

    def log_probs(self, source: list[int], target: list[int]) -> np.ndarray:
        """Return the log-probability of each token of a translation, and of the end token after it."""
        raise NotImplementedError


class CheckedEngine(Engine):
    """An engine, called through here.

    Raises:
        CheckpointError: the model knows other tokens than the tokenizer.
    """

    def __init__(self, engine: Engine, path: Path, tokenizer: Tokenizer, n_classes: int) -> None:
        self._engine, self._path, self._n_classes = engine, path, n_classes
        self._n_tokens = self.n_tokens = tokenizer.vocab_size
        if engine.n_tokens not in (None, self._n_tokens):
            message = f"{path}: the tokenizer has {self._n_tokens} tokens, and the model {engine.n_tokens}"
            raise not_exported(message)

    def classify(self, ids: list[int], words: list[str]) -> np.ndarray:
        probabilities = self._numbers(self._engine.classify, ids, words)
        return self._of_shape(probabilities, (self._n_classes,))

    def tag(self, ids: list[int], words: list[str]) -> np.ndarray:
        """Return the probabilities (S, C) of the tags at each token of a text; arguments as of `classify`."""
        probabilities = self._numbers(self._engine.classify, ids, words)
        return self._of_shape(probabilities, (max(1, len(ids)), self._n_classes))

    def fill(self, ids: list[int], words: list[str]) -> np.ndarray:
        logits = self._numbers(self._engine.fill, ids, words)
        return self._of_shape(logits, (len(logits), self._n_tokens))

    def embed(self, ids: list[int]) -> np.ndarray:
        vector = self._numbers(self._engine.embed, ids)
        return self._of_shape(vector, (vector.size,))

    def search(self, sources: Sequence[list[int]], decode: DecodeConfig, limit: int, n_best: int) -> list[Hypotheses]:
        found = self._call(self._engine.search, sources, decode, limit, n_best)
        rows = [ids for hypotheses in found for ids, _ in hypotheses]
        self._check(len(found) == len(sources) and all(found), "search", "a sentence without a translation")
        self._check_ids("search", rows, limit)
        return found

    def generate(
        self, prompts: Sequence[list[int]], decode: DecodeConfig, n_new: int, places: Sequence[tuple[int, int]]
    ) -> list[list[int]]:
        rows = self._call(self._engine.generate, prompts, decode, n_new, places)
        self._check(len(rows) == len(prompts), "generate", f"{len(rows)} texts for {len(prompts)}")
        self._check_ids("generate", rows, n_new)
        return rows

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except (GlassformerError, MemoryError):
            raise
        except Exception as error:  # each library has classes of its own
            message = f"the library of {self._path} cannot compute with it: {str(error)[:300]}"
            raise not_exported(message) from error

    def _numbers(self, function: Callable[..., Any], *arguments: Any) -> np.ndarray:
        numbers = np.asarray(self._call(function, *arguments))
        if not np.isfinite(numbers).all():
            raise DivergedError(f"the model in {self._path} gives numbers that are not finite", "export the run again")
        return numbers

    def _of_shape(self, numbers: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        self._check(numbers.shape == shape, "compute", f"an array {numbers.shape}, where {shape} is expected")
        return numbers

    def _check_ids(self, name: str, rows: Sequence[Sequence[int]], most: int) -> None:
        for row in rows:
            self._check(1 <= len(row) <= most, name, f"{len(row)} tokens, where 1 to {most} are expected")
            self._check(all(0 <= token < self._n_tokens for token in row), name, "a token that is in no vocabulary")

    def _check(self, is_right: bool, name: str, what: str) -> None:
        if not is_right:
            message = f"the library of {self._path} gives {what} when it should {name}"
            raise not_exported(message)


Target: TypeAlias = Literal["ctranslate2", "hf", "onnx"]
TARGETS: tuple[Target, ...] = get_args(Target)
REGISTERED = {
    "classifier": "GlassformerForSequenceClassification",
    "multilabel_classifier": "GlassformerForSequenceClassification",
    "regressor": "GlassformerForSequenceClassification",
    "tagger": "GlassformerForTokenClassification",
    "masked_language_model": "GlassformerForMaskedLM",
    "translator": "GlassformerForConditionalGeneration",
    "language_model": "GlassformerForCausalLM",
}
"""Classes that `glassformer.interop.hf_class` adds to transformers, by kind of model."""
OF_TEXTS = ("classifier", "multilabel_classifier", "tagger", "masked_language_model", "text_embedder")
"""Kinds of models that encode a text."""
OF_IMPORTED = {("ctranslate2", "translator"), ("ctranslate2", "language_model"), ("onnx", "translator")}
OF_IMPORTED |= {("hf", "language_model"), ("onnx", "language_model")} | {
    (target, kind) for target in ("hf", "onnx") for kind in (*OF_TEXTS, "regressor")
}
"""Exports that know the special tokens of an imported tokenizer."""
_SAMPLED = "sampled texts differ, since the random numbers do"
_BEAM = "beam search there ends by another rule, so some translations and n-best lists differ; greedy ones do not"


@dataclass(frozen=True)
class Choice:
    """What a model becomes in another library.

    Attributes:
        architecture: the name of the model class there.
        notes: what differs there, one sentence each.
        approximate: why numbers differ by more than rounding; empty if they do not.
    """

    architecture: str
    notes: tuple[str, ...] = ()
    approximate: str = ""


def choose(kind: str | None, config: Config, n_members: int, target: Target, native: bool = False) -> Choice:
    """Return what a model becomes in the library `target`.

    `kind` is `Task.explain_as`; `n_members` is 1, or all of an ensemble. With `native`, of Hugging Face's transformers
    only classes that it has itself.

    Raises:
        UsageError: it cannot hold the model; the setting is named.
    """
    if kind is None or (kind not in REGISTERED and (target, kind) not in FILES):
        hint = next((f"use --to {library}" for library, its in FILES if its == kind), "")
        raise UsageError(f"{target} holds no model of the task {config.task!r}", hint)
    if config.text.tokenizer == "imported" and (target, kind) in FILES and (target, kind) not in OF_IMPORTED:
        message = f"{target} is not written with the tokenizer of an imported model: text.tokenizer imported"
        targets = [f"--to {library}" for library, its in sorted(OF_IMPORTED) if its == kind]
        raise UsageError(message, f"use {' or '.join(targets) or 'glassformer predict; no target holds it yet'}")
    match target:
        case "ctranslate2":
            return _choose_ctranslate2(kind, config.model, n_members)
        case "hf":
            return _choose_hf(kind, config, n_members, native)
        case "onnx":
            return _choose_onnx(kind, n_members)


def _choose_ctranslate2(kind: str, model: ModelConfig, n_members: int) -> Choice:
    _check_kind("ctranslate2", kind, "use --to onnx or --to hf")
    _check_members("ctranslate2", n_members)
    if model.max_ngram > 1:
        message = f"ctranslate2 has no embeddings of token n-grams: model.max_ngram {model.max_ngram}"
        raise UsageError(message, "use --to onnx or --to hf, or train with --model.max-ngram 0")
    if kind == "language_model":
        return Choice("TransformerDecoderModel", (_SAMPLED,))
    return Choice("Transformer", (_BEAM,))


def _choose_hf(kind: str, config: Config, n_members: int, native: bool) -> Choice:
    if kind in ("translator", "language_model"):
        _check_members("hf", n_members)
    if kind in OF_TEXTS and config.text.tokenizer == "imported":
        model_type, obstacle = hf_encoder_type(kind, config.model, n_members)
        if model_type:
            return Choice(hf_class(model_type, kind), encoder_notes(model_type, kind))
    else:
        model_type, obstacle = hf_model_type(kind, config.model)
    if kind not in REGISTERED:
        message = f"transformers has no class for this {_words(kind)}: {obstacle}"
        raise UsageError(message, "use --to onnx")
    if model_type:
        return Choice(hf_class(model_type, kind), (_BEAM if kind == "translator" else _SAMPLED,))
    if native:
        others = "use --to ctranslate2 or --to onnx" if _fits_ctranslate2(kind, config.model) else "use --to onnx"
        message = f"transformers itself has no class for this {_words(kind)}: {obstacle}"
        raise UsageError(message, f"{others}, or leave out --native, for a class that Glassformer registers")
    notes = [f"transformers itself has no class for it ({obstacle}): import glassformer.interop.hf_class first"]
    if kind not in ("translator", "language_model"):
        notes.append(CUT)
        if config.text.ngrams:
            return Choice(REGISTERED[kind], tuple(notes), "a word that is not in the vocabulary has no n-grams there")
    else:
        notes.append("it keeps no keys and values, so generation is slow")
    return Choice(REGISTERED[kind], tuple(notes))


CUT = "a text longer than the context needs truncation=True there, which cuts its end"
_BLOCK = {"pre_norm": False, "norm": "layer", "positions": "learned", "embedding_norm": True, "bias": True}
"""Settings of the layers of BERT."""
_DISTILBERT_EPS = 1e-12


def hf_class(family: str, kind: str) -> str:
    """Return the class of transformers for a kind of model."""
    kind = kind.removeprefix("multilabel_")
    return next(name for name, its in CLASSES.items() if its == (family, kind))


def hf_encoder_type(kind: str, m: ModelConfig, n_members: int = 1) -> tuple[str, str]:
    """Return the model type of transformers that computes the same, or "" and the setting in the way.

    DistilBERT is a BERT without segments, of a fixed epsilon, and its classifier has ReLU before the head.
    """
    distilled = m.n_segments == 0 and m.norm_eps == _DISTILBERT_EPS
    if obstacle := _in_block(m):
        return "", obstacle
    if n_members > 1:
        return "", f"an ensemble of {n_members}"
    if kind in ("classifier", "multilabel_classifier"):
        if m.pooling != "first" or m.pooler == "none":
            return "", f"model.pooling {m.pooling} with model.pooler {m.pooler}"
        if m.pooler == "relu" and not distilled:
            return "", f"model.pooler relu with model.n_segments {m.n_segments} and model.norm_eps {m.norm_eps}"
        return ("distilbert" if m.pooler == "relu" else "bert"), ""
    if kind == "masked_language_model" and m.activation != "gelu":
        return "", f"model.activation {m.activation}"
    return ("distilbert" if distilled else "bert"), ""


def _in_block(m: ModelConfig) -> str:
    """Return the first setting in which the layers differ from those of BERT, or ""."""
    odd = next((name for name, value in _BLOCK.items() if getattr(m, name) != value), "")
    if odd:
        return f"model.{odd} {str(getattr(m, odd)).lower()}"
    if m.activation == "swiglu":
        return "model.activation swiglu"
    if m.embedding_init_std is None:
        return "no model.embedding_init_std"
    return f"model.d_head {m.d_head}" if m.d_head is not None and m.d_head * m.n_heads != m.d_model else ""


def encoder_notes(model_type: str, kind: str) -> tuple[str, ...]:
    """Return what differs there, one sentence each."""
    if (model_type, kind) == ("bert", "text_embedder"):
        return (CUT, "BertModel has a pooler, which this model lacks: its weights are zeros")
    return (CUT,)


def hf_model_type(kind: str, m: ModelConfig) -> tuple[str, str]:
    """Return the model type of transformers that computes the same, or "" and the setting in the way."""
    if kind not in ("translator", "language_model"):
        return "", "its classes have a norm after the embedding"
    if m.max_ngram > 1:
        return "", f"model.max_ngram {m.max_ngram}"
    if obstacle := _of_own_class(m, but=_OF_DECODERS if kind == "language_model" else ()):
        return "", obstacle
    positions, wide = f"model.positions {m.positions}", m.d_head is not None and m.d_head * m.n_heads != m.d_model
    if kind == "language_model" and not m.pre_norm:
        return "", "model.pre_norm false"
    if kind == "language_model" and m.positions == "rotary":
        if m.norm == "rms":
            return ("llama" if m.activation == "swiglu" else "arcee"), ""
        return ("starcoder2", "") if m.activation != "swiglu" else ("", "model.activation swiglu with model.norm layer")
    # What is left adds positions to the embedding, or has none.
    if m.norm != "layer":
        return "", f"model.norm {m.norm} with {positions}"
    if m.activation == "swiglu":
        return "", f"model.activation swiglu with {positions}"
    if wide:
        return "", f"model.d_head {m.d_head}"
    if kind == "language_model":
        return "gpt2", ""
    if m.positions != "sinusoidal":
        return "", positions
    if m.pre_norm:
        return "pegasus", ""
    return ("marian", "") if m.embedding_init_std is None else ("", f"model.embedding_init_std {m.embedding_init_std}")


_OF_DECODERS = ("norm_eps", "rope_base", "activation")
"""Settings that the decoders of transformers have, too."""


def _of_own_class(m: ModelConfig, but: Sequence[str] = ()) -> str:
    """Return the first setting that only the modules here have in exports, or ""; those of `but` are elsewhere, too."""
    default = ModelConfig()
    names = ("norm_eps", "embedding_norm", "n_segments", "pooler", "rope_base", "output_bias")
    odd = next((name for name in names if name not in but and getattr(m, name) != getattr(default, name)), "")
    if not odd and "activation" not in but and m.activation in ("gelu-tanh", "silu"):
        odd = "activation"
    return f"model.{odd} {str(getattr(m, odd)).lower()}" if odd else ""


def _choose_onnx(kind: str, n_members: int) -> Choice:
    if kind in ("translator", "language_model"):
        _check_members("onnx", n_members)
    return Choice("a step graph with a cache" if kind in ("translator", "language_model") else "one graph")


def _fits_ctranslate2(kind: str, model: ModelConfig) -> bool:
    try:
        _choose_ctranslate2(kind, model, 1)
    except UsageError:
        return False
    return True


def _check_kind(target: str, kind: str, hint: str) -> None:
    if (target, kind) not in FILES:
        it_holds = " or a ".join(_words(its) for library, its in FILES if library == target)
        raise UsageError(f"{target} holds no {_words(kind)}", f"it holds a {it_holds}; {hint}")


def _check_members(target: str, n_members: int) -> None:
    if n_members > 1:
        message = f"{target} holds one model, and this is an ensemble of {n_members}"
        raise UsageError(message, "export one of them: --member 1")


def _words(kind: str) -> str:
    return kind.replace("_", " ")
