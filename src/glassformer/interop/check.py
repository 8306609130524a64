"""Compare an exported model with its run: the numbers, and the answers to texts of the validation split."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from glassformer.errors import ChangedDataError, DataError, UsageError
from glassformer.interop.exported import ExportedModel, load_exported
from glassformer.interop.sample_texts import sample_texts
from glassformer.runs.folder import RunFolder
from glassformer.runs.run_data import load_run_data
from glassformer.tasks import Task
from glassformer.text.tokenizer import MASK

if TYPE_CHECKING:
    from collections.abc import Sequence

logger = logging.getLogger(__name__)

N_TEXTS, N_SCORED = 100, 16
"""Texts that are answered, and those of which logits are compared too."""
PROMPT_CHARS, NEW_TOKENS = 60, 24
"""Length of the prompts of a language model, and of their continuations, which are greedy."""

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


@dataclass(frozen=True)
class CheckResult:
    """How an exported model agrees with its run.

    Attributes:
        n_texts: number of texts that both answered.
        equal_answers: share of them with equal answers, from 0 to 1; of a bare encoder of those whose nearest other
            text is the same, by the cosine of their vectors.
        largest_difference: largest difference of the log-probability of a token that a language model or a translator
            predicts, of the probability of a class or of a masked token, of a number of a vector, or of an answer that
            is a number, in standard deviations of the training numbers.
        is_sample: whether the texts were made for it, as the run has none.
    """

    n_texts: int
    equal_answers: float
    largest_difference: float
    is_sample: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as `ExportFacts.check` holds it."""
        found = asdict(self)
        return found | {"texts": "sample"} if found.pop("is_sample") else found


def validation_texts(task: Task, run: Path, allow_changed: bool = False) -> list[str]:
    """Return texts of the validation split of a run, as prompts for a language model; of an imported one sample texts.

    Raises:
        DataError, UsageError: the data is not there, or, unless that is allowed, has changed.
    """
    if RunFolder(run).imported:
        end = f" {MASK}" if task.explain_as == "masked_language_model" else ""
        texts = [text + end for text in sample_texts(task.tokenizer, N_TEXTS)]
    else:
        texts = load_run_data(run, task.schema, task.config.data, allow_changed=allow_changed).text.valid.text
    if task.explain_as == "masked_language_model":
        return [text for text in map(_with_masks, texts[:N_TEXTS]) if MASK in text]
    if task.explain_as != "language_model":
        return texts[:N_TEXTS]
    whole = "".join(texts)
    starts = np.linspace(0, max(0, len(whole) - PROMPT_CHARS), N_TEXTS).astype(int)
    return [whole[start : start + PROMPT_CHARS] for start in dict.fromkeys(starts.tolist())]


def check_export(task: Task, model: nn.Module, out: Path, run: Path, allow_changed: bool = False) -> CheckResult | str:
    """Return the comparison, or why it was not made.

    With `allow_changed` even on data that has changed since training.
    """
    try:
        texts = [text for text in validation_texts(task, run, allow_changed) if text.strip()]
        exported = load_exported(out, "cpu")
        exported.engine  # noqa: B018  (so that a missing library is noticed here)
    except (DataError, UsageError) as error:
        if isinstance(error, ChangedDataError):
            logger.warning(f"{error.message}: the export is not compared with the run")
        return f"not checked: {error}"
    if not texts:
        return "not checked: the validation split has no texts"
    decode = replace(exported.config.decode, n_best=1)
    if task.explain_as == "language_model":
        decode = replace(decode, temperature=0.0, max_new_tokens=NEW_TOKENS)
    ours = task.predict(model, texts, decode)
    theirs = exported.predict(texts, **asdict(decode))
    key = ANSWERS[exported.facts.kind]
    if key == "vector":
        vectors, others = (np.array([answer[key] for answer in answers]) for answers in (ours, theirs))
        return _of_vectors(vectors, others, RunFolder(run).imported)
    pairs = [(a[key], b[key]) for a, b in zip(ours, theirs, strict=True)]
    of_numbers = [abs(a - b) / task.decision.scale[1] for a, b in pairs] if key == "number" else []
    equal = sum(a == b for a, b in pairs) / len(texts)
    match exported.facts.kind:
        case "translator":
            answers = [answer[key] for answer in ours[:N_SCORED]]
            worst = _translator_difference(task, model, exported, texts[:N_SCORED], answers)
        case "language_model":
            worst = _language_model_difference(task, model, exported, texts[:N_SCORED])
        case "regressor":
            equal, worst = sum(x <= SAME_NUMBER for x in of_numbers) / len(texts), max(of_numbers)
        case "classifier" | "multilabel_classifier":
            pairs = [(a["probabilities"], b["probabilities"]) for a, b in zip(ours, theirs, strict=True)]
            worst = max(abs(a[name] - b[name]) for a, b in pairs for name in a)
        case "tagger":
            pairs = zip(map(_of_spans, ours), map(_of_spans, theirs), strict=True)
            worst = max(abs(a[span] - b[span]) for a, b in pairs for span in (*(a.keys() & b.keys()), None))
        case _:
            pairs = zip(map(_probabilities, ours), map(_probabilities, theirs), strict=True)
            worst = max(abs(p - q) for a, b in pairs for p, q in zip(a, b, strict=True))
    return CheckResult(len(texts), equal, float(worst), RunFolder(run).imported)


def _of_vectors(ours: np.ndarray, theirs: np.ndarray, is_sample: bool) -> CheckResult:
    """Return the comparison of the vectors (N, P) of texts."""
    nearest = []
    for vectors in (ours, theirs):
        unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(float).tiny)
        cosines = unit @ unit.T
        np.fill_diagonal(cosines, -np.inf)
        nearest.append(cosines.argmax(axis=1))
    return CheckResult(len(ours), float((nearest[0] == nearest[1]).mean()), float(abs(ours - theirs).max()), is_sample)


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
