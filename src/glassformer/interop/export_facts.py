"""The description of an exported folder, and which files it may hold: both checked before a library sees the folder.

Whoever made the folder can have made the manifest, too, so that nothing here relies on it.
"""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from glassformer.config import DecodeConfig
from glassformer.config.recipes import config_from_dict
from glassformer.config.validation import TASK_NAMES, build
from glassformer.errors import CheckpointError, UsageError
from glassformer.runs.folder import EXPORT_FACTS, TOKENIZER
from glassformer.text.decision import Decision
from glassformer.utils.safe_read import check_regular, open_regular, read_json_object

KIND, FACTS, CARD = "glassformer export", EXPORT_FACTS, "README.md"
ENGINES = {"ctranslate2": "glassformer.interop.ctranslate2_engine", "onnx": "glassformer.interop.onnx_engine"}
"""Modules with a function `load_engine(path, facts, tokenizer, device)`, imported when needed."""
RUN_TOKENIZER = "run_tokenizer.json"
"""The tokenizer of the run as it is; `tokenizer.json` is what other libraries can read of it."""
_HF = {"model.safetensors", "config.json", "tokenizer_config.json"}
FILES: dict[tuple[str, str], set[str]] = {
    # One vocabulary is written where both are equal, as they are here.
    ("ctranslate2", "translator"): {"model.bin", "config.json", "shared_vocabulary.json"},
    ("ctranslate2", "language_model"): {"model.bin", "config.json", "vocabulary.json"},
    ("hf", "classifier"): _HF,
    ("hf", "multilabel_classifier"): _HF,
    ("hf", "regressor"): _HF,
    ("hf", "tagger"): _HF,
    ("hf", "masked_language_model"): _HF,
    ("hf", "text_embedder"): _HF | {"modules.json", "sentence_bert_config.json", "1_Pooling/config.json"},
    ("hf", "translator"): _HF | {"generation_config.json"},
    ("hf", "language_model"): _HF | {"generation_config.json"},
    ("onnx", "classifier"): {"model.onnx"},
    ("onnx", "multilabel_classifier"): {"model.onnx"},
    ("onnx", "tagger"): {"model.onnx"},
    ("onnx", "regressor"): {"model.onnx"},
    ("onnx", "masked_language_model"): {"model.onnx"},
    ("onnx", "text_embedder"): {"model.onnx"},
    ("onnx", "translator"): {"encoder.onnx", "decoder_step.onnx"},
    ("onnx", "language_model"): {"decoder_step.onnx"},
}
"""The kinds of models that each library holds, and the files of the library."""
SIDE_FILES = ("source_tokenizer.json", "target_tokenizer.json")
"""How the two sides of a translator are cut where each has a model of its own; `tokenizer.json` gives the ids."""
CLASSIFIERS = ("classifier", "multilabel_classifier", "tagger")
"""Kinds of models that have labels."""
POOLED = ("classifier", "multilabel_classifier", "regressor")
"""Kinds of models that answer once for a text."""
MAX_BYTES = {".json": 128 << 20, ".onnx": 2 << 30, ".md": 16 << 20}
"""Largest size of a file of an export by the end of its name."""
MAX_WEIGHTS = 16 << 30
"""Largest size of any other file: that of a model of four thousand million parameters."""
MAX_LENGTH = 1 << 24
"""Most tokens of a text, far more than any model here reads."""
_STARTS = {
    ".safetensors": lambda data: 2 <= int.from_bytes(data[:8], "little") <= 16 << 20 and data[8:9] == b"{",
    ".bin": lambda data: 1 <= int.from_bytes(data[:4], "little") <= 64,
}
"""Tests of the first bytes of a file, cheap enough to come before a sum over all of them; ONNX has no mark."""


def library(purpose: str, extra: str, *packages: str) -> Any:
    """Import the packages of a library, and return the first; the error says how to install what is missing."""
    try:
        modules = [importlib.import_module(package) for package in packages]
    except ImportError as error:
        one, it = ("package", "it") if len(packages) == 1 else ("packages", "them")
        hint = f'install {it}: pip install "glassformer[{extra}]"'
        raise UsageError(f"{purpose} needs the {one} {' and '.join(packages)}", hint) from error
    return modules[0]


def not_exported(message: str) -> CheckpointError:
    """Return the error of a folder that holds what no export writes."""
    return CheckpointError(message, "export the run again")


@dataclass(frozen=True)
class CheckResult:
    """How a model of another library agrees with ours.

    Attributes:
        library: its name, with its version of an import.
        texts: "validation" of the validation split of a run, or "sample", made for a model without data.
        n_texts: number of texts that both answered.
        equal_answers: share of them with equal answers, from 0 to 1; of a bare encoder of those whose nearest other
            text is the same, by the cosine of their vectors.
        largest_difference: largest difference of the log-probability of a token that a language model or a translator
            predicts, of the score of a translation, of the probability of a class or of a masked token, of a number of
            a vector, or of an answer that is a number, in standard deviations of the training numbers.
    """

    library: str
    texts: str
    n_texts: int
    equal_answers: float
    largest_difference: float

    @property
    def words(self) -> str:
        """Return the result in words."""
        agreement = f"{100 * self.equal_answers:.1f}% equal answers, largest difference {self.largest_difference:.1e}"
        return f"{self.n_texts} {self.texts} texts compared with {self.library}: {agreement}"


@dataclass(frozen=True)
class ExportFacts:
    """The description of an exported folder, in `glassformer.json`.

    Attributes:
        target: the library: "ctranslate2", "hf" or "onnx".
        architecture: the name of the model class there.
        task: the task of the run.
        kind: its kind of model, `Task.explain_as`.
        run: the name of the run's folder.
        max_len: maximum tokens of a text that the tokenizer's output is truncated to.
        context: positions of the model.
        dtype: numbers of the weights: "float32", "float16", "bfloat16", "int8".
        decode: settings of decoding of the run.
        truncate: which part of a text that is too long is kept: "head", "tail" or "head+tail".
        labels: the classes or labels of a classifier, in the order of the logits.
        decision: how their probabilities become answers (`text/decision.py`); None for the most probable class.
        notes: what differs from the run, one sentence each.
        check: the comparison with the run, fields of `CheckResult`; None if it was not made.
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
    decision: dict[str, Any] | None = None

    def to_json(self) -> bytes:
        """Return the content of the file."""
        return (json.dumps(asdict(self), ensure_ascii=False, indent=2) + "\n").encode("utf-8")

    @property
    def precision(self) -> str:
        """Return the numbers of the weights as a run calls its precision."""
        return {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}.get(self.dtype, self.dtype)

    @property
    def required_files(self) -> set[str]:
        """Return the names of the files that the folder holds."""
        return FILES[self.target, self.kind] | {FACTS, TOKENIZER, RUN_TOKENIZER}

    @property
    def possible_files(self) -> set[str]:
        """Return the names of the files that the folder may hold."""
        spelling = {"spelling.json"} if self.target == "onnx" else set[str]()
        sides = {*SIDE_FILES} if self.kind == "translator" else set[str]()
        return self.required_files | {CARD} | spelling | sides


_MAY_BE_ABSENT = {"truncate", "labels", "notes", "check", "decision"}


def read_facts(folder: Path) -> ExportFacts:
    """Return the description of an exported folder, every value of its type and within its bounds.

    Raises:
        CheckpointError: the file is missing or not regular, or a value is not one that an export writes.
    """
    path = folder / FACTS
    values = read_json_object(path)
    known = {one.name: one for one in fields(ExportFacts)}
    if unknown := values.keys() - known.keys():
        raise CheckpointError(f"{path} names {min(unknown)!r}, which this version does not know", "update Glassformer")
    for name in known:
        if name not in values and name not in _MAY_BE_ABSENT:
            raise not_exported(f"{path} lacks {name}")
    facts = ExportFacts(**values)
    for name in known:
        if not _IS_VALID[name](getattr(facts, name)):
            shown = repr(getattr(facts, name))
            hint = "update Glassformer" if name == "target" else "export the run again"
            raise CheckpointError(f"{path}: {name} is {shown[:80]}, as in no export", hint)
    if (facts.target, facts.kind) not in FILES:
        raise not_exported(f"{path}: {facts.target} holds no {facts.kind.replace('_', ' ')}")
    if (facts.kind in CLASSIFIERS) != bool(facts.labels):
        raise not_exported(f"{path}: a {facts.kind} with {len(facts.labels)} labels")
    Decision.from_json(facts.decision, facts.labels, path)
    try:
        config_from_dict({"task": facts.task, "decode": facts.decode}, str(path))
    except UsageError as error:
        raise CheckpointError(error.message, error.hint) from error
    return facts


def check_files(folder: Path, facts: ExportFacts, names: set[str]) -> None:
    """Refuse files that an export of this library does not hold, and those that are not regular or far too large.

    Raises:
        CheckpointError: a file is missing, unknown, no file, too large, or does not begin as one of its kind.
    """
    if missing := facts.required_files - names:
        raise not_exported(f"{folder} should hold {min(missing)}")
    if unknown := names - facts.possible_files:
        raise not_exported(f"{folder} should not hold {min(unknown)}")
    for name in sorted(names):
        path, suffix = folder / name, Path(name).suffix
        most = MAX_BYTES.get(suffix, MAX_WEIGHTS)
        check_regular(path, most)
        if begins := _STARTS.get(suffix):
            with open_regular(path, most) as file:
                if not begins(file.read(16)):
                    raise not_exported(f"{path} is not a file of {facts.target}")


def facts_of(task: Any, target: str, architecture: str, run: Path, context: int, **more: Any) -> ExportFacts:
    """Return the description of a model of a task (`Task`), before it is compared; `more` are further fields of it."""
    c = task.config
    return ExportFacts(
        target=target,
        architecture=architecture,
        task=task.name,
        kind=str(task.explain_as),
        run=run.resolve().name,
        max_len=c.text.max_len,
        context=context,
        decode=asdict(c.decode),
        truncate=c.text.truncate,
        labels=list(task.label_names or []),
        decision=task.decision.to_json() or None,
        **more,
    )


def decode_of(facts: ExportFacts) -> DecodeConfig:
    """Return the settings of decoding."""
    return build(DecodeConfig, facts.decode, "decode", FACTS)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= 10_000


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_size(value: Any) -> bool:
    return type(value) is int and 1 <= value <= MAX_LENGTH


def _is_check(value: Any) -> bool:
    if value is None:
        return True
    if not isinstance(value, dict) or value.keys() != {one.name for one in fields(CheckResult)}:
        return False
    numbers = [value[name] for name in ("n_texts", "equal_answers", "largest_difference")]
    if not all(type(x) in (int, float) and math.isfinite(x) and x >= 0 for x in numbers):
        return False
    words = _is_text(value["library"]) and value["texts"] in ("validation", "sample")
    return words and type(value["n_texts"]) is int and value["equal_answers"] <= 1


def _one_of(*choices: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and value in choices


_IS_VALID: dict[str, Callable[[Any], bool]] = {
    "target": _one_of(*{target for target, _ in FILES}),
    "architecture": _is_text,
    "task": lambda value: isinstance(value, str) and value in TASK_NAMES,
    "kind": _one_of(*{kind for _, kind in FILES}),
    "run": _is_text,
    "max_len": _is_size,
    "context": _is_size,
    "dtype": _one_of("float32", "float16", "bfloat16", "int8"),
    "decode": lambda value: isinstance(value, dict),
    "truncate": _one_of("head", "tail", "head+tail"),
    "labels": lambda value: _are_texts(value) and len(set(value)) == len(value),
    "notes": _are_texts,
    "check": _is_check,
    "decision": lambda value: value is None or isinstance(value, dict),
}
"""Test of each field."""
