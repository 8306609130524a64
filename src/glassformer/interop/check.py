"""Compare a model with what it is in another library: the answers, and the numbers that `predict` prints.

An import is compared with the library that it came from, an export with the run: both on texts that two models read.

Transformers reads far more from a folder than sizes and tensors: names of Python code, of files elsewhere and of
kernels to download. It is given a configuration of the values that were read, checked tensors, and for its tokenizer
a folder of checked files alone. That it reads the folder alike, as its users have it do, is for the tests.
"""

from __future__ import annotations

import importlib
import json
import logging
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from glassformer.errors import CheckpointError, DataError, UsageError
from glassformer.interop.engine import library, log_softmax
from glassformer.interop.export_facts import CLASSES_OF, WRITERS, CheckResult, facts_of
from glassformer.interop.exported import ExportedModel
from glassformer.interop.hf_model import NEVER_WRITTEN, SEQ2SEQ
from glassformer.interop.hf_settings import passed_on
from glassformer.interop.imported import ImportedModel
from glassformer.interop.source_folder import SourceFolder
from glassformer.runs.folder import TOKENIZER
from glassformer.runs.run_data import load_run_data
from glassformer.tasks import Task
from glassformer.text.tokenizer import MASK, Tokenizer

logger = logging.getLogger(__name__)

N_TEXTS, N_SAMPLES, N_SCORED, N_REVERSED = 100, 32, 16, 20
"""Texts that are answered, those of an import, those of which logits are compared too, and more of reversed words."""
PROMPT_CHARS, NEW_TOKENS = 60, 24
"""Length of the prompts of a language model, and of their continuations, which are greedy."""
TOLERANCE = 1e-3
"""Largest difference of an import that rounding explains."""
ANSWERS = {
    "translator": "translation",
    "language_model": "text",
    "classifier": "label",
    "multilabel_classifier": "labels",
    "tagger": "tags",
    "masked_language_model": "filled",
}
"""The key of an answer by kind of model; the answers of others are numbers."""


def texts_to_compare(task: Task, run: Path | None, allow_changed: bool = False) -> tuple[list[str], int, bool]:
    """Return texts of the validation split of a run, and more of its words spelled backwards, which are unknown.

    They are prompts for a language model, and have masks for a masked one. The number of the latter follows, and
    whether the texts were made, where the model has no data.

    Raises:
        DataError, UsageError: the data is not there, or, unless that is allowed, has changed.
    """
    kind, data = task.explain_as, task.config.data
    named = any(value for name, value in vars(data).items() if name.endswith("_file"))
    if run is None or (data.dataset == "files" and not named):
        texts, is_sample = sample_texts(task.tokenizer, N_TEXTS), True
        texts = [f"{text} {MASK}" for text in texts] if kind == "masked_language_model" else texts
    else:
        texts, is_sample = load_run_data(run, task.schema, data, allow_changed=allow_changed).valid.text, False
    if kind == "language_model":
        whole = "".join(texts)
        starts = np.linspace(0, max(0, len(whole) - PROMPT_CHARS), N_TEXTS).astype(int)
        return [whole[start : start + PROMPT_CHARS] for start in dict.fromkeys(starts.tolist())], 0, is_sample
    more = [" ".join(word[::-1] for word in text.split()) for text in texts[:N_REVERSED]]
    parts = [texts[:N_TEXTS], [] if kind == "translator" or task.tokenizer.separator else more]
    if kind == "masked_language_model":
        parts = [[text for text in map(_with_masks, part) if MASK in text] for part in parts]
    texts, more = ([text for text in part if text.strip()] for part in parts)
    return [*texts, *more], len(more), is_sample


def check_export(
    task: Task, model: nn.Module, exported: ExportedModel, run: Path, allow_changed: bool = False
) -> CheckResult | str:
    """Return the comparison of an export with its run, or why it was not made.

    With `allow_changed` even on data that has changed since training.
    """
    try:
        texts, n_more, is_sample = texts_to_compare(task, run, allow_changed)
        if exported.facts.target == "hf":
            vars(exported)["engine"] = load_theirs(exported.path, task, model)
        exported.engine  # noqa: B018  (so that a missing library is noticed here)
    except (DataError, UsageError) as error:
        return f"not checked: {error}"
    if not texts:
        return "not checked: the validation split has no texts"
    found = _compared(task, model, exported, texts, exported.facts.target, is_sample)
    return replace(found, n_texts=len(texts) - n_more, n_reversed=n_more)


def check_import(imported: ImportedModel, task: Task, model: nn.Module, folder: Path) -> CheckResult | None:
    """Return the comparison with the source library; None where it is not installed, or cannot read the folder."""
    name, family = imported.source.library, imported.source.family
    try:
        library = importlib.import_module(name)
        if name == "ctranslate2":
            from glassformer.interop.ctranslate2_engine import CTranslate2Engine
            from glassformer.interop.ctranslate2_model import OF_LIBRARY

            kind, files = str(task.explain_as), [file for file in OF_LIBRARY if (folder / file).exists()]
            engine: Any = CTranslate2Engine(folder, files, kind, task.tokenizer, "cpu", "float32")
        else:
            engine = load_theirs(folder, task, model, imported.source.files)
    except ImportError:
        return None
    except Exception as error:  # the library has errors of its own
        logger.warning(f"not compared with {name}, which cannot hold this model: {str(error)[:200]!r}")
        return None
    facts = facts_of(task, name, family, folder, int(getattr(model, "max_len", imported.max_len)), dtype="float32")
    theirs = ExportedModel(folder, facts, "cpu", task.tokenizer, engine)
    texts = texts_to_compare(task, None)[0][: N_SCORED if task.explain_as in WRITERS else N_SAMPLES]
    found = _compared(task, model, theirs, texts, f"{name} {library.__version__}", True)
    if found.largest_difference > TOLERANCE:
        logger.warning(f"the model differs from that of {name} by {found.largest_difference:.1e}")
    if name == "transformers" and (source := SourceFolder(folder)).has(TOKENIZER):
        compare_tokens(task, source, family)
    return found


def _compared(
    task: Task, model: nn.Module, theirs: ExportedModel, texts: Sequence[str], library: str, is_sample: bool
) -> CheckResult:
    """Return how the answers and the numbers of a model of another library agree with ours.

    Transformers is given what our model writes: its next token has to be the same after each one of that.
    """
    kind, scale = theirs.facts.kind, task.decision.scale[1]
    by_token = kind in WRITERS and theirs.facts.target in ("hf", "transformers")
    decode = replace(theirs.config.decode, n_best=1)
    if kind == "language_model":
        decode = replace(decode, temperature=0.0, max_new_tokens=NEW_TOKENS)
    answers = task.predict(model, texts, replace(decode, beam_size=1) if by_token else decode)
    others = answers if by_token else theirs.answers(texts, 0, decode)
    are_equal, worst = list[bool](), 0.0
    for a, b in zip(answers, others, strict=True):
        are_equal.append(same_answer(task, a, b))
        # Another translation has another score, and other tags have the probabilities of other spans.
        if (are_equal[-1] or kind not in ("translator", "tagger")) and "unfinished" not in a:
            worst = max([worst, *(abs(x - y) / scale for x, y in zip(_numbers(a), _numbers(b), strict=True))])
    for i, (text, answer) in enumerate(zip(texts, answers, strict=True)):
        if kind in WRITERS and (by_token or i < N_SCORED):
            ours, log_probs = _log_probs(task, model, theirs.engine, text, answer[ANSWERS[kind]])
            worst = max(worst, float(np.abs(ours - log_probs)[np.isfinite(log_probs)].max()))
            are_equal[i] &= not by_token or bool((ours.argmax(axis=-1) == log_probs.argmax(axis=-1)).all())
    n = len(texts)
    return CheckResult(library, "sample" if is_sample else "validation", n, sum(are_equal) / n, worst)


def same_answer(task: Task, a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Return whether two answers are equal, or their numbers but for rounding."""
    if key := ANSWERS.get(str(task.explain_as)):
        return a[key] == b[key]
    pairs, unit = zip(_numbers(a), _numbers(b), strict=True), task.decision.scale[1]
    return all(math.isclose(x, y, rel_tol=TOLERANCE, abs_tol=TOLERANCE * unit) for x, y in pairs)


def n_alike(run: Any, model: nn.Module, other: nn.Module) -> tuple[int, int]:
    """Return how many texts get the same answer from two models of a run's task, and of how many."""
    task, texts = run.task, sample_texts(run.task.tokenizer, N_TEXTS)
    with suppress(DataError, UsageError):
        texts = texts_to_compare(task, run.path, True)[0][:N_TEXTS]
    answers = (task.predict(one, texts, replace(task.config.decode, n_best=1)) for one in (model, other))
    return sum(same_answer(task, *pair) for pair in zip(*answers, strict=True)), len(texts)


def _numbers(value: Any) -> Iterator[float]:
    """Yield the numbers in an answer, which are no counts, in its order."""
    if isinstance(value, float):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _numbers(part)


def _with_masks(text: str) -> str:
    """Return a text with every seventh word masked, the third first."""
    words = text.split()
    words[2::7] = [MASK] * len(words[2::7])
    return " ".join(words)


@torch.no_grad()
def _log_probs(task: Task, model: Any, engine: Any, text: str, answer: str) -> tuple[np.ndarray, np.ndarray]:
    """Return ours and theirs: of each token of a translation, or of all tokens after each of a text or translation."""
    t, device = task.tokenizer, next(model.parameters()).device
    if task.explain_as == "language_model":
        ids = t.encode(text + answer)[: task.config.text.max_len] or [t.eos_id]
        theirs = log_softmax(engine.outputs(ids).astype(np.float64))
        logits = model(torch.tensor([ids], device=device))[0, -len(theirs) :]
        return logits.cpu().double().log_softmax(dim=-1).numpy(), theirs
    room = t.room(task.config.text.max_len - 1)
    source, target = t.framed(t.encode(text)[:room]), t.of_targets.encode(answer)[:room]
    logits = model(*(torch.tensor([ids], device=device) for ids in (t.with_end(source), [t.bos_id, *target])))[0]
    ours, theirs = logits.cpu().float().log_softmax(dim=-1), engine.log_probs(source, target)
    ours = ours if theirs.ndim == 2 else ours.gather(1, torch.tensor([*target, t.eos_id])[:, None])[:, 0]
    return ours.numpy(), theirs


TEXTS = (
    "The film was not good.",
    "An unusually long sentence, with numbers such as 1,234.5 and a name: Zürich!",
    "naïve café 東京 😀",
    "a",
)
RANDOM_TOKENS = 12


def random_ids(t: Tokenizer, n: int) -> Iterator[list[int]]:
    """Yield n rows of ids at random from the vocabulary, the same at every call."""
    words = sorted({*range(t.vocab_size)} - {*t.without_text})
    generator = torch.Generator().manual_seed(0)
    for _ in range(n):
        places = torch.randint(len(words), (RANDOM_TOKENS,), generator=generator)
        yield [words[i] for i in places.tolist()]


def sample_texts(t: Tokenizer, n: int) -> list[str]:
    """Return n texts of which a model can be compared that has no data: sentences, and tokens at random."""
    return [*TEXTS, *map(t.decode, random_ids(t, n - len(TEXTS)))]


def load_theirs(folder: Path, task: Task, model: Any, hashes: Mapping[str, str] | None = None) -> HfEngine:
    """Return the engine of a folder that was read as `model`; `hashes` are those of its files then.

    Raises:
        CheckpointError: a file was changed since.
        UsageError: transformers is not installed.
    """
    transformers, source = library("a comparison with transformers", "hf", "transformers"), SourceFolder(folder)
    config, tensors = source.json("config.json"), {n.removeprefix("module."): t for n, t in source.weights().items()}
    if hashes is not None and not source.hashes.items() <= hashes.items():
        raise CheckpointError(f"{folder} was changed since it was read", "import it again")
    family, kind = config["model_type"], str(task.explain_as)
    settings = passed_on(family, config)
    if model.config.positions == "rotary":
        settings["rope_parameters"] = {"rope_type": "default", "rope_theta": model.config.rope_base}
    if family in SEQ2SEQ:  # whose table of positions is computed number by number
        tables = [tensor for name, tensor in tensors.items() if name.endswith("embed_positions.weight")]
        settings["max_position_embeddings"] = len(tables[0]) if tables else model.max_len + 1
    settings |= {"vocab_size": task.tokenizer.vocab_size, "num_labels": len(task.label_names or ()) or 2}
    form = getattr(transformers, CLASSES_OF[family, kind.removeprefix("multilabel_")])
    safe = {"trust_remote_code": False, "use_safetensors": True, "local_files_only": True}
    with quiet(transformers):
        made = transformers.AutoConfig.for_model(family, **settings)
        theirs = form.from_pretrained(
            None, config=made, state_dict=tensors, dtype="float32", attn_implementation="eager", **safe
        )
    return HfEngine(theirs.eval(), task, model)


def compare_tokens(task: Task, source: SourceFolder, family: str) -> None:
    """Warn where transformers cuts a text into other tokens."""
    transformers, t = library("a comparison with transformers", "hf", "transformers"), task.tokenizer
    ours = [t.framed(t.encode(text)) for text in TEXTS]
    ours = [t.with_end(ids) for ids in ours] if task.explain_as == "translator" else ours
    try:
        with tempfile.TemporaryDirectory() as folder, quiet(transformers):
            for name in (TOKENIZER, "tokenizer_config.json", "special_tokens_map.json"):
                if source.has(name):
                    (Path(folder) / name).write_bytes(source.bytes(name, "tokenizer"))
            (Path(folder) / "config.json").write_text(json.dumps({"model_type": family}), encoding="utf-8")
            safe = {"trust_remote_code": False, "local_files_only": True}
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **safe)
            others = [tokenizer(text)["input_ids"] for text in TEXTS]
    except Exception as error:  # of a tokenizer that needs a package more
        logger.warning(f"its tokens are not compared with transformers, which cannot read them: {str(error)[:100]}")
        return
    if odd := next((text for text, a, b in zip(TEXTS, ours, others, strict=True) if a != b), None):
        logger.warning(f"transformers cuts texts into other tokens, such as {odd!r}: its tokenizer_config.json decides")


@contextmanager
def quiet(transformers: Any) -> Iterator[None]:
    """Show no progress bar, and nothing of weights that a form does not use, of the library meanwhile."""
    logging = transformers.utils.logging
    before, shown = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if shown:
            logging.enable_progress_bar()


class HfEngine:
    """A model of transformers with the tokens of a task; it writes nothing: what ours writes is compared by token."""

    def __init__(self, model: Any, task: Task, ours: Any) -> None:
        self.model, self._t, self._kind, self._pooling = model, task.tokenizer, task.explain_as, ours.config.pooling
        bias = getattr(ours, "output_bias", None) if self._kind == "translator" else None
        # A token that Marian has only for padding is never written here.
        self._never = [] if bias is None else (bias < NEVER_WRITTEN / 2).nonzero().flatten().tolist()

    def outputs(self, ids: list[int], words: Sequence[str] = ()) -> np.ndarray:
        if self._kind != "text_embedder":
            pad = [max(0, self._t.pad_id)]
            return self._run(input_ids=[ids or pad], attention_mask=[[1] * len(ids) or [0]]).numpy()
        states = self._run("last_hidden_state", input_ids=[ids]).numpy()
        return {"first": states[0], "mean": states.mean(axis=0), "max": states.max(axis=0)}[self._pooling]

    def log_probs(self, source: list[int], target: list[int]) -> np.ndarray:
        """Return the log-probabilities of all tokens after each one of a translation, (T + 1, V)."""
        t = self._t
        logits = self._run(input_ids=[t.with_end(source)], decoder_input_ids=[[t.bos_id, *target]])
        logits[:, self._never] = -torch.inf
        return logits.log_softmax(dim=-1).numpy()

    def _run(self, output: str = "logits", **rows: list[list[int]]) -> torch.Tensor:
        inputs = {name: torch.tensor(ids) for name, ids in rows.items()}
        mask = torch.ones_like(inputs["input_ids"])
        with torch.no_grad():
            return getattr(self.model(**({"attention_mask": mask} | inputs)), output)[0].float()
