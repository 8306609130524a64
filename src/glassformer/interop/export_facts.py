"""The description of an exported folder, and which files it may hold: both checked before a library sees the folder.

Whoever made the folder can have made the manifest, too, so that nothing here relies on it.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from io import BufferedReader
from pathlib import Path
from typing import Any

from glassformer.config import DecodeConfig
from glassformer.config.recipes import config_from_dict
from glassformer.config.validation import TASK_NAMES, build
from glassformer.errors import CheckpointError, UsageError
from glassformer.runs.folder import EXPORT_FACTS, TOKENIZER
from glassformer.text.decision import Decision
from glassformer.text.paired_tokenizer import PairedTokenizer
from glassformer.text.pairs import PairTokenizer
from glassformer.text.special_tokens import SIDES, SpecialTokens
from glassformer.text.tokenizer import Tokenizer
from glassformer.utils.safe_read import LIMITS, check_regular, open_regular, read_json_object

KIND, FACTS, CARD = "glassformer export", EXPORT_FACTS, "README.md"
ENGINES = {
    "ctranslate2": "glassformer.interop.ctranslate2_engine",
    "hf": "glassformer.interop.hf_engine",
    "onnx": "glassformer.interop.onnx_engine",
}
"""Modules with a function `load_engine(path, facts, device)`, imported when needed."""
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


class FieldReader:
    """Reads the fields of a binary file one by one; little-endian."""

    def __init__(self, file: BufferedReader) -> None:
        self.file, self.size = file, os.fstat(file.fileno()).st_size

    def numbers(self, layout: str) -> tuple[Any, ...]:
        """Return numbers in a layout of `struct`."""
        layout = f"<{layout}"
        return struct.unpack(layout, self.file.read(struct.calcsize(layout)))

    def text(self, length: str, most: int) -> str:
        """Return a text after its length in bytes, a number in a layout of `struct`."""
        [n_bytes] = self.numbers(length)
        require(n_bytes <= most, f"a text of {n_bytes} bytes")
        return self.file.read(n_bytes).decode("utf-8")


def require(is_right: bool, what: str) -> None:
    """Say what is wrong with a file that `checked_fields` reads."""
    if not is_right:
        raise ValueError(what)


@contextmanager
def checked_fields(path: Path) -> Iterator[FieldReader]:
    """Open a file of weights; whatever `require` or reading finds wrong is a CheckpointError of this file."""
    with open_regular(path, MAX_WEIGHTS) as file:
        try:
            yield FieldReader(file)
        except (struct.error, ValueError, OverflowError) as error:
            raise not_exported(f"{path} is not a model of this export: {error}") from error


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
        check: the comparison with the run (`interop/check.py`); None if it was not made. With `"texts": "sample"` its
            texts were made for it, since the run has no data.
        special: special tokens of an imported tokenizer, by role (`text/special_tokens.py`); None for those of ours.
        pairs: whether each text is a pair of texts (`text/pairs.py`).
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
    special: dict[str, Any] | None = None
    decision: dict[str, Any] | None = None
    pairs: bool = False

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
        return FILES[self.target, self.kind] | {FACTS, TOKENIZER}

    @property
    def possible_files(self) -> set[str]:
        """Return the names of the files that the folder may hold."""
        spelling = {"spelling.json"} if self.target == "onnx" else set[str]()
        sides = {*SIDE_FILES} if self.kind == "translator" and self.special is not None else set[str]()
        return self.required_files | {CARD} | spelling | sides


def agreement(check: dict[str, Any]) -> tuple[str, str]:
    """Return in words what an export was compared on, and how it agrees with its run."""
    equal, difference = 100 * check["equal_answers"], check["largest_difference"]
    texts = f"{check['n_texts']} {check.get('texts', 'validation')} texts"
    return texts, f"{equal:.1f}% equal answers, largest difference {difference:.1e}"


_MAY_BE_ABSENT = {"truncate", "labels", "notes", "check", "special", "decision", "pairs"}


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
    if facts.special is not None:
        SpecialTokens.from_json(facts.special, path)
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


def tokenizer_of(folder: Path, facts: ExportFacts) -> Tokenizer:
    """Return the tokenizer of an exported folder; special tokens of an imported one are in its description."""
    path = folder / TOKENIZER
    if facts.special is None:
        tokenizer = Tokenizer.load(path)
    else:
        special = SpecialTokens.from_json(facts.special, folder / FACTS)
        names = [TOKENIZER, *(name for name in SIDE_FILES if (folder / name).exists())]
        content, *sides = (read_json_object(folder / name, LIMITS["tokenizer"]) for name in names)
        tokenizer = imported_tokenizer(content, sides, special, path)
    return PairTokenizer.of(tokenizer) if facts.pairs else tokenizer


def imported_tokenizer(
    content: dict[str, Any], sides: list[dict[str, Any]], special: SpecialTokens, where: Path
) -> Tokenizer:
    """Return an imported tokenizer of its parsed `tokenizer.json`, and of its `SIDE_FILES` where it has some."""
    if sides:
        return PairedTokenizer({**content, SIDES: sides}, special, where)
    return Tokenizer.imported(json.dumps(content), special, where)


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
    if not isinstance(value, dict) or value.get("texts", "sample") != "sample":
        return False
    value = {name: x for name, x in value.items() if name != "texts"}
    if value.keys() != {"n_texts", "equal_answers", "largest_difference"}:
        return False
    if not all(type(x) in (int, float) and math.isfinite(x) and x >= 0 for x in value.values()):
        return False
    return type(value["n_texts"]) is int and value["equal_answers"] <= 1


def _one_of(*choices: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and value in choices


_IS_VALID: dict[str, Callable[[Any], bool]] = {
    "target": _one_of(*ENGINES),
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
    "special": lambda value: value is None or isinstance(value, dict),
    "decision": lambda value: value is None or isinstance(value, dict),
    "pairs": lambda value: isinstance(value, bool),
}
"""Test of each field."""
