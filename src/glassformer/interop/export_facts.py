"""What each library holds; the description and the files of an exported folder, checked before a library sees it.

Whoever made the folder can have made the manifest, too, so that nothing here relies on it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args

from msgspec import Meta

from glassformer.config import Config, DecodeConfig, ModelConfig
from glassformer.config.recipes import TASK_NAMES, build, config_from_dict
from glassformer.data.datasets.columns import Columns
from glassformer.errors import CheckpointError, UsageError
from glassformer.interop.engine import not_exported
from glassformer.interop.hf_settings import CLASSES, FORMS, POOLERS
from glassformer.runs.folder import EXPORT_FACTS, TOKENIZER
from glassformer.text.answers import Decision
from glassformer.utils.safe_read import check_regular, from_json, read_json_object

KIND, FACTS, CARD = "glassformer export", EXPORT_FACTS, "README.md"
RUN_TOKENIZER = "run_tokenizer.json"
"""The tokenizer of the run as it is; `tokenizer.json` is what other libraries can read of it."""
_HF = {"model.safetensors", "config.json", "tokenizer_config.json"}
_ENCODERS = ("classifier", "multilabel_classifier", "tagger", "masked_language_model")
FILES: dict[tuple[str, str], set[str]] = {
    # One vocabulary is written where both are equal, as they are here.
    ("ctranslate2", "translator"): {"model.bin", "config.json", "shared_vocabulary.json"},
    ("ctranslate2", "language_model"): {"model.bin", "config.json", "vocabulary.json"},
    **{("hf", kind): _HF for kind in _ENCODERS},
    **{("hf", kind): _HF | {"generation_config.json"} for kind in ("translator", "language_model")},
    **{("onnx", kind): {"model.onnx"} for kind in (*_ENCODERS, "regressor", "text_embedder")},
}
"""The kinds of models that each library holds, and the files of the library."""
SIDE_FILES = ("source_tokenizer.json", "target_tokenizer.json")
"""How the two sides of a translator are cut where each has a model of its own; `tokenizer.json` gives the ids."""
CLASSIFIERS = ("classifier", "multilabel_classifier", "tagger")
"""Kinds of models that have labels."""
MAX_BYTES = {".json": 128 << 20, ".onnx": 2 << 30, ".md": 16 << 20}
"""Largest size of a file of an export by the end of its name."""
MAX_WEIGHTS = 16 << 30
"""Largest size of any other file: that of a model of four thousand million parameters."""

Text = Annotated[str, Meta(max_length=10_000)]
Size = Annotated[int, Meta(ge=1, le=1 << 24)]
"""Tokens of a text; the limit is far more than any model here reads."""


@dataclass(frozen=True)
class CheckResult:
    """How a model of another library agrees with ours.

    Attributes:
        library: its name, with its version of an import.
        texts: "validation" of the validation split of a run, or "sample", made for a model without data.
        n_texts: number of these texts that both answered.
        equal_answers: share of all texts with equal answers, from 0 to 1; numbers are equal but for rounding.
        largest_difference: largest difference of the log-probability of a token that a language model or a translator
            predicts, of the score of a translation, of the probability of a class or of a masked token, of a number of
            a vector, or of an answer that is a number, in standard deviations of the training numbers.
        n_reversed: number of further texts, whose words are spelled backwards and so unknown.
    """

    library: Text
    texts: Literal["validation", "sample"]
    n_texts: Annotated[int, Meta(ge=0)]
    equal_answers: Annotated[float, Meta(ge=0, le=1)]
    largest_difference: Annotated[float, Meta(ge=0)]
    n_reversed: Annotated[int, Meta(ge=0)] = 0

    @property
    def words(self) -> str:
        """Return the result in words."""
        agreement = f"{100 * self.equal_answers:.1f}% equal answers, largest difference {self.largest_difference:.1e}"
        more = f" and {self.n_reversed} of unknown words" if self.n_reversed else ""
        return f"{self.n_texts} {self.texts} texts{more} compared with {self.library}: {agreement}"


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
        decision: how their probabilities become answers (`text/answers.py`); None for the most probable class.
        notes: what differs from the run, one sentence each.
        columns: those that the run was trained on; None if its data was no table.
        check: the comparison with the run, fields of `CheckResult`; None if it was not made.
    """

    target: Literal["ctranslate2", "hf", "onnx"]
    architecture: Text
    task: str
    kind: str
    run: Text
    max_len: Size
    context: Size
    dtype: Literal["float32", "float16", "bfloat16", "int8"]
    decode: dict[str, Any]
    truncate: Literal["head", "tail", "head+tail"] = "head"
    labels: list[Text] = field(default_factory=list)
    notes: list[Text] = field(default_factory=list)
    columns: Columns | None = None
    check: dict[str, Any] | None = None
    decision: dict[str, Any] | None = None

    def to_json(self) -> bytes:
        """Return the content of the file."""
        return (json.dumps(asdict(self), ensure_ascii=False, indent=2) + "\n").encode("utf-8")

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


def read_facts(folder: Path) -> ExportFacts:
    """Return the description of an exported folder, every value of its type and within its bounds.

    Raises:
        CheckpointError: the file is missing or not regular, or a value is not one that an export writes.
    """
    path = folder / FACTS
    try:
        facts = build(ExportFacts, read_json_object(path), "", str(path))
        config_from_dict({"task": facts.task, "decode": facts.decode}, str(path))
    except UsageError as error:
        raise CheckpointError(error.message, "export the run again, with this version") from error
    if facts.task not in TASK_NAMES or (facts.target, facts.kind) not in FILES:
        raise not_exported(f"{path}: {facts.target} holds no {facts.kind.replace('_', ' ')[:40]}")
    if (facts.kind in CLASSIFIERS) != bool(facts.labels) or len({*facts.labels}) < len(facts.labels):
        raise not_exported(f"{path}: a {facts.kind} with {len(facts.labels)} labels, some of which may be equal")
    if facts.check is not None:
        from_json(CheckResult, facts.check, path)
    Decision.from_json(facts.decision, facts.labels, path)
    return facts


def check_files(folder: Path, facts: ExportFacts, names: set[str]) -> None:
    """Refuse files that an export of this library does not hold, and those that are not regular or far too large.

    Raises:
        CheckpointError: a file is missing, unknown, no file, or too large.
    """
    if odd := sorted((facts.required_files - names) | (names - facts.possible_files)):
        raise not_exported(f"{folder} should {'hold' if odd[0] in facts.required_files else 'not hold'} {odd[0]}")
    for name in sorted(names):
        check_regular(folder / name, MAX_BYTES.get(Path(name).suffix, MAX_WEIGHTS))


def facts_of(task: Any, target: Any, architecture: str, run: Path, context: int, **more: Any) -> ExportFacts:
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


Target: TypeAlias = Literal["ctranslate2", "hf", "onnx"]
TARGETS: tuple[Target, ...] = get_args(Target)
WRITERS = ("translator", "language_model")
"""Kinds of models that write texts."""
_SAMPLED = "sampled texts differ, since the random numbers do"
_BEAM = "beam search there ends by another rule, so some translations and n-best lists differ; greedy ones do not"
_CUT = "a text longer than the context needs truncation=True there, which cuts its end"


def choose(
    kind: str | None, config: Config, n_members: int, target: Target, tokenizer: Any = None
) -> tuple[str, tuple[str, ...]]:
    """Return the model class that a model becomes in the library `target`, and what differs there, a sentence each.

    `kind` is `Task.explain_as`; `n_members` is 1, or all of an ensemble; `tokenizer` is the model's `Tokenizer`.

    Raises:
        UsageError: it cannot hold the model; the setting is named.
    """
    m, words = config.model, str(kind).replace("_", " ")
    if kind is None:
        raise UsageError(f"{target} holds no model of the task {config.task!r}")
    hint = "use --to onnx" if ("onnx", kind) in FILES else "use --to ctranslate2"
    if m.max_ngram > 1 and kind == "language_model":
        raise UsageError(f"no library has embeddings of token n-grams: model.max_ngram {m.max_ngram}", "use the run")
    if (target, kind) not in FILES:
        raise UsageError(f"{target} holds no {words}", hint)
    is_lm, imported = kind == "language_model", config.text.tokenizer == "imported"
    found: tuple[str, tuple[str, ...]] = "one graph", ()
    if target == "ctranslate2":
        check_frame(tokenizer)
        found = ("TransformerDecoderModel", (_SAMPLED,)) if is_lm else ("Transformer", (_BEAM,))
    if target == "hf":
        if tokenizer is not None and tokenizer.separator:
            raise UsageError("hf is not written of a model that reads pairs of texts", hint)
        family, obstacle = hf_family(kind, m)
        if not obstacle and not is_lm and imported == (kind == "translator"):
            obstacle = f"text.tokenizer {config.text.tokenizer}"
        if obstacle:
            raise UsageError(f"transformers has no class for this {words}: {obstacle}", hint)
        notes = {"translator": (_BEAM,), "language_model": (_SAMPLED,)}.get(kind, (_CUT,))
        found = CLASSES_OF[family, kind.removeprefix("multilabel_")], notes
    if n_members > 1 and (target == "hf" or kind in WRITERS):  # the last refusal: one of them can be written
        what = f"{target} holds one model, and this is an ensemble of {n_members}"
        raise UsageError(what, "export one of them: --member 0")
    return found


def check_frame(tokenizer: Any) -> None:
    """Refuse what CTranslate2 cannot put around a source by itself: other tokens than the start and the end token."""
    special = tokenizer and tokenizer.special
    if special and (special.prefix not in ((), (special.bos,)) or special.suffix not in ((), (special.eos,))):
        around = ", ".join(tokenizer.tokens([*special.prefix, *special.suffix]))
        raise UsageError(f"ctranslate2 puts no {around} around a text", "use the run itself")


CLASSES_OF = {its: name for name, its in reversed(CLASSES.items())}
"""The class of each family and kind of model; of several the first."""


def hf_family(kind: str, m: ModelConfig) -> tuple[str, str]:
    """Return the family of transformers that computes the same, and the first setting in the way, or ""."""
    values = {one.name: getattr(m, one.name) for one in fields(m)}
    values["d_head"] = None if m.d_head is None or m.d_head * m.n_heads == m.d_model else m.d_head
    found = dict[str, list[str]]()
    for family, needs in FORMS.items():
        if (family, kind.removeprefix("multilabel_")) not in CLASSES_OF:
            continue
        if kind.endswith("classifier"):
            needs = needs | {"pooling": ("first",), "pooler": (POOLERS[family],)}
        if kind == "masked_language_model":
            needs = needs | {"activation": ("gelu",)}
        odd = ["embedding_init_std"] if kind not in WRITERS and m.embedding_init_std is None else []
        found[family] = [name for name, allowed in needs.items() if values[name] not in allowed] + odd
    family = min(found, key=lambda one: len(found[one]))
    return family, "".join(f"model.{name} {str(values[name]).lower()}" for name in found[family][:1])
