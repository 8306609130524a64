"""Compare a model with what it is in another library: the numbers that `predict` prints, and the answers.

An import is compared with the library that it came from, an export with the run: both on texts that two models read.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from glassformer.errors import ChangedDataError, DataError, UsageError
from glassformer.interop.choose import Engine
from glassformer.interop.export_facts import CheckResult, facts_of
from glassformer.interop.exported import ExportedModel, load_exported
from glassformer.interop.imported import ImportedModel
from glassformer.interop.sample_texts import TEXTS, sample_texts
from glassformer.interop.source_folder import SourceFolder
from glassformer.runs.folder import TOKENIZER, RunFolder
from glassformer.runs.run_data import load_run_data
from glassformer.tasks import Task
from glassformer.text.tokenizer import MASK

logger = logging.getLogger(__name__)

N_TEXTS, N_SAMPLES, N_SCORED, N_UNKNOWN = 100, 32, 16, 20
"""Texts that are answered, those of an import, those of which logits are compared too, and more of unknown words."""
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
    "regressor": "number",
    "masked_language_model": "filled",
    "text_embedder": "vector",
}
"""The key of an answer, by kind of model."""
SAME_NUMBER = 1e-4
"""Standard deviations of the training numbers by which equal answers may differ."""


def texts_to_compare(task: Task, run: Path | None, allow_changed: bool = False) -> tuple[list[str], bool]:
    """Return texts of the validation split of a run, and whether they were made, where the model has no data.

    They are prompts for a language model, and have masks for a masked one.

    Raises:
        DataError, UsageError: the data is not there, or, unless that is allowed, has changed.
    """
    kind, data = task.explain_as, task.config.data
    named = [value for name, value in vars(data.files).items() if name.endswith("_file") and value]
    is_sample = run is None or RunFolder(run).imported or (data.dataset == "files" and not named)
    if is_sample:
        texts = sample_texts(task.tokenizer, N_TEXTS)
        texts = [f"{text} {MASK}" for text in texts] if kind == "masked_language_model" else texts
    else:
        assert run is not None
        texts = load_run_data(run, task.schema, data, allow_changed=allow_changed).text.valid.text
    if kind == "language_model":
        whole = "".join(texts)
        starts = np.linspace(0, max(0, len(whole) - PROMPT_CHARS), N_TEXTS).astype(int)
        return [whole[start : start + PROMPT_CHARS] for start in dict.fromkeys(starts.tolist())], is_sample
    texts = texts[:N_TEXTS]
    if kind != "translator" and not task.tokenizer.separator:
        texts += [" ".join(word[::-1] for word in text.split()) for text in texts[:N_UNKNOWN]]
    if kind == "masked_language_model":
        texts = [text for text in map(_with_masks, texts) if MASK in text]
    return [text for text in texts if text.strip()], is_sample


def check_export(task: Task, model: nn.Module, out: Path, run: Path, allow_changed: bool = False) -> CheckResult | str:
    """Return the comparison of an export with its run, or why it was not made.

    With `allow_changed` even on data that has changed since training.
    """
    try:
        texts, is_sample = texts_to_compare(task, run, allow_changed)
        exported = load_exported(out, "cpu")
        if exported.facts.target == "hf":
            from glassformer.interop.hf_engine import load_theirs

            engine: Engine = load_theirs(out, task, model)
            exported = ExportedModel(out, exported.facts, "cpu", task.tokenizer, engine)
        exported.engine  # noqa: B018  (so that a missing library is noticed here)
    except (DataError, UsageError) as error:
        if isinstance(error, ChangedDataError):
            logger.warning(f"{error.message}: the export is not compared with the run")
        return f"not checked: {error}"
    if not texts:
        return "not checked: the validation split has no texts"
    return _compared(task, model, exported, texts, exported.facts.target, is_sample)


def check_import(imported: ImportedModel, task: Task, model: nn.Module, folder: Path) -> CheckResult | None:
    """Return the comparison with the source library; None where it is not installed, or cannot read the folder."""
    name, family = imported.source.library, imported.source.family
    try:
        library = importlib.import_module(name)
        if name == "ctranslate2":
            from glassformer.interop.ctranslate2_engine import CTranslate2Engine
            from glassformer.interop.ctranslate2_reader import library_files

            kind = str(task.explain_as)
            engine: Engine = CTranslate2Engine(folder, library_files(folder), kind, task.tokenizer, "cpu", "float32")
        else:
            from glassformer.interop.hf_engine import load_theirs

            engine = load_theirs(folder, task, model, imported.source.files)
    except ImportError:
        return None
    except Exception as error:  # the library has errors of its own
        logger.warning(f"not compared with {name}, which cannot hold this model: {str(error)[:200]}")
        return None
    facts = facts_of(task, name, family, folder, int(getattr(model, "max_len", imported.max_len)), dtype="float32")
    theirs = ExportedModel(folder, facts, "cpu", task.tokenizer, engine)
    writes = task.explain_as in ("translator", "language_model")
    texts = texts_to_compare(task, None)[0][: N_SCORED if writes else N_SAMPLES]
    found = _compared(task, model, theirs, texts, f"{name} {library.__version__}", True)
    if found.largest_difference > TOLERANCE:
        logger.warning(f"the model differs from that of {name} by {found.largest_difference:.1e}")
    if name == "transformers" and SourceFolder(folder).has(TOKENIZER) and family != "glassformer":
        from glassformer.interop.hf_engine import their_tokens

        ours = [task.tokenizer.framed(task.tokenizer.encode(text)) for text in TEXTS]
        try:
            others = their_tokens(SourceFolder(folder), family, TEXTS)
        except Exception as error:  # of a tokenizer that needs a package more
            logger.warning(f"its tokens are not compared with {name}, which cannot read them: {str(error)[:100]}")
            others = ours
        if odd := next((text for text, a, b in zip(TEXTS, ours, others, strict=True) if a != b), None):
            logger.warning(f"{name} cuts texts into other tokens, such as {odd!r}: its tokenizer_config.json decides")
    return found


def _compared(
    task: Task, model: nn.Module, theirs: ExportedModel, texts: Sequence[str], library: str, is_sample: bool
) -> CheckResult:
    """Return how the answers and the numbers of a model of another library agree with ours."""
    facts, kind = theirs.facts, theirs.facts.kind
    decode = replace(theirs.config.decode, n_best=1)
    if kind == "language_model":
        decode = replace(decode, temperature=0.0, max_new_tokens=NEW_TOKENS)
    if facts.target in ("hf", "transformers"):
        decode = replace(decode, beam_size=1)
    answers, others = task.predict(model, texts, decode), theirs.answers(texts, 0, decode)
    key, pairs = ANSWERS[kind], [*zip(answers, others, strict=True)]
    equal = sum(a[key] == b[key] for a, b in pairs) / len(texts)
    match kind:
        case "text_embedder":
            vectors, their_vectors = (np.array([answer[key] for answer in both]) for both in (answers, others))
            equal, worst = _of_vectors(vectors, their_vectors)
        case "translator":
            worst = _translator_difference(task, model, theirs, texts[:N_SCORED], [a[key] for a in answers[:N_SCORED]])
            if facts.target not in ("hf", "transformers"):  # whose search gives none
                worst = max(
                    [
                        worst,
                        *(
                            abs(a["score"] - b["score"])
                            for a, b in pairs
                            if a == b | {"score": a["score"]} and "unfinished" not in a
                        ),
                    ]
                )
        case "language_model":
            worst = _language_model_difference(task, model, theirs, texts[:N_SCORED])
        case "regressor":
            differences = [abs(a[key] - b[key]) / task.decision.scale[1] for a, b in pairs]
            equal, worst = sum(x <= SAME_NUMBER for x in differences) / len(texts), max(differences)
        case "classifier" | "multilabel_classifier":
            worst = max(abs(p - b["probabilities"][name]) for a, b in pairs for name, p in a["probabilities"].items())
        case "tagger":
            spans = [(_of_spans(a), _of_spans(b)) for a, b in pairs]
            worst = max(abs(a[span] - b[span]) for a, b in spans for span in (*(a.keys() & b.keys()), None))
        case _:
            worst = max(abs(p - q) for a, b in pairs for p, q in zip(*map(_probabilities, (a, b)), strict=True))
    return CheckResult(library, "sample" if is_sample else "validation", len(texts), equal, float(worst))


def _of_vectors(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float]:
    """Return of vectors (N, P) how often the nearest other text is the same, and the largest difference."""
    nearest = []
    for vectors in (ours, theirs):
        unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(float).tiny)
        cosines = unit @ unit.T
        np.fill_diagonal(cosines, -np.inf)
        nearest.append(cosines.argmax(axis=1))
    return float((nearest[0] == nearest[1]).mean()), float(abs(ours - theirs).max())


def _with_masks(text: str) -> str:
    """Return a text with every seventh word masked, the third first."""
    words = text.split()
    words[2::7] = [MASK] * len(words[2::7])
    return " ".join(words)


def _of_spans(answer: dict[str, Any]) -> dict[Any, float]:
    """Return the probability of each span of a text by its place and label, and 0 for None."""
    return {None: 0.0} | {(s["start"], s["end"], s["label"]): s["probability"] for s in answer["spans"]}


def _probabilities(answer: dict[str, Any]) -> list[float]:
    """Return the probabilities of all tokens predicted for a text."""
    return [token["probability"] for guesses in answer["guesses"] for token in guesses]


@torch.no_grad()
def _language_model_difference(task: Task, model: Any, exported: ExportedModel, texts: Sequence[str]) -> float:
    """Return the largest difference of the log-probability of a token."""
    worst, device = 0.0, next(model.parameters()).device
    for text in texts:
        ids = task.tokenizer.encode(text)[: task.config.text.max_len] or [task.tokenizer.eos_id]
        theirs = torch.from_numpy(exported.engine.logits(ids)).double().log_softmax(dim=-1)
        ours = model(torch.tensor([ids], device=device))[0, -len(theirs) :].cpu().double().log_softmax(dim=-1)
        worst = max(worst, float((theirs - ours).abs().max()))
    return worst


@torch.no_grad()
def _translator_difference(
    task: Task, model: Any, exported: ExportedModel, texts: Sequence[str], answers: Sequence[str]
) -> float:
    """Return the largest difference of the log-probability of a token of an answer."""
    t, worst, device = task.tokenizer, 0.0, next(model.parameters()).device
    for text, answer in zip(texts, answers, strict=True):
        room = t.room(task.config.text.max_len - 1)
        source, target = t.framed(t.encode(text)[:room]), t.of_targets.encode(answer)[:room]
        inputs = (torch.tensor([ids], device=device) for ids in (t.with_end(source), [t.bos_id, *target]))
        logits = model(*inputs)[0].cpu().float()
        labels = torch.tensor([*target, t.eos_id])
        ours = logits.log_softmax(dim=-1).gather(1, labels[:, None])[:, 0].numpy()
        worst = max(worst, float(np.abs(exported.engine.log_probs(source, target) - ours).max()))
    return worst
