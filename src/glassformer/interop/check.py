"""Compare a model with what it is in another library: the answers, and the numbers that `predict` prints.

An import is compared with the library that it came from, an export with the run: both on texts that two models read.
"""

from __future__ import annotations

import importlib
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from glassformer.errors import ChangedDataError, DataError, UsageError
from glassformer.interop.choose import WRITERS
from glassformer.interop.engine import Engine, log_softmax
from glassformer.interop.export_facts import CheckResult, facts_of
from glassformer.interop.exported import ExportedModel
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
    named = [value for name, value in vars(data.files).items() if name.endswith("_file") and value]
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
            from glassformer.interop.hf_engine import load_theirs

            vars(exported)["engine"] = load_theirs(exported.path, task, model)
        exported.engine  # noqa: B018  (so that a missing library is noticed here)
    except (DataError, UsageError) as error:
        if isinstance(error, ChangedDataError):
            logger.warning(f"{error.message}: the export is not compared with the run")
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
            from glassformer.interop.ctranslate2_reader import OF_LIBRARY

            kind, files = str(task.explain_as), [file for file in OF_LIBRARY if (folder / file).exists()]
            engine: Engine = CTranslate2Engine(folder, files, kind, task.tokenizer, "cpu", "float32")
        else:
            from glassformer.interop.hf_engine import load_theirs

            engine = load_theirs(folder, task, model, imported.source.files)
    except ImportError:
        return None
    except Exception as error:  # the library has errors of its own
        logger.warning(f"not compared with {name}, which cannot hold this model: {' '.join(str(error).split())[:200]}")
        return None
    facts = facts_of(task, name, family, folder, int(getattr(model, "max_len", imported.max_len)), dtype="float32")
    theirs = ExportedModel(folder, facts, "cpu", task.tokenizer, engine)
    texts = texts_to_compare(task, None)[0][: N_SCORED if task.explain_as in WRITERS else N_SAMPLES]
    found = _compared(task, model, theirs, texts, f"{name} {library.__version__}", True)
    if found.largest_difference > TOLERANCE:
        logger.warning(f"the model differs from that of {name} by {found.largest_difference:.1e}")
    if name == "transformers" and (source := SourceFolder(folder)).has(TOKENIZER):
        from glassformer.interop.hf_engine import compare_tokens

        compare_tokens(task, source, family, TEXTS)
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
        numbers, their_numbers = [*_numbers(a)], [*_numbers(b)]
        if kind in ANSWERS:
            are_equal.append(a[ANSWERS[kind]] == b[ANSWERS[kind]])
        else:
            pairs = zip(numbers, their_numbers, strict=True)
            are_equal.append(all(math.isclose(x, y, rel_tol=TOLERANCE, abs_tol=TOLERANCE * scale) for x, y in pairs))
        # Another translation has another score, and other tags have the probabilities of other spans.
        if (are_equal[-1] or kind not in ("translator", "tagger")) and "unfinished" not in a:
            worst = max([worst, *(abs(x - y) / scale for x, y in zip(numbers, their_numbers, strict=True))])
    for i, (text, answer) in enumerate(zip(texts, answers, strict=True)):
        if kind in WRITERS and (by_token or i < N_SCORED):
            ours, log_probs = _log_probs(task, model, theirs.engine, text, answer[ANSWERS[kind]])
            worst = max(worst, float(np.abs(ours - log_probs)[np.isfinite(log_probs)].max()))
            are_equal[i] &= not by_token or bool((ours.argmax(axis=-1) == log_probs.argmax(axis=-1)).all())
    shares = sum(are_equal) / len(texts)
    return CheckResult(library, "sample" if is_sample else "validation", len(texts), shares, worst)


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
def _log_probs(task: Task, model: Any, engine: Engine, text: str, answer: str) -> tuple[np.ndarray, np.ndarray]:
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
