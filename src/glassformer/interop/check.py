"""Compare an exported model with its run: the logits, and the answers to texts of the validation split."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from glassformer.data.datasets.loading import load_text_data
from glassformer.errors import DataError, UsageError
from glassformer.interop.exported import ExportedModel
from glassformer.models import LanguageModel, Translator
from glassformer.tasks import Task
from glassformer.text.tokenizer import BOS, EOS

if TYPE_CHECKING:
    from collections.abc import Sequence

N_TEXTS, N_SCORED = 100, 16
"""Texts that are answered, and those of which logits are compared too."""
PROMPT_CHARS, NEW_TOKENS = 60, 24
"""Length of the prompts of a language model, and of their continuations, which are greedy."""


@dataclass(frozen=True)
class CheckResult:
    """How an exported model agrees with its run.

    Attributes:
        n_texts: number of texts that both answered.
        equal_answers: share of them with equal answers, from 0 to 1.
        largest_difference: largest difference of a logit (translator: of a token's log-probability).
    """

    n_texts: int
    equal_answers: float
    largest_difference: float

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON data."""
        return asdict(self)

    @property
    def is_exact(self) -> bool:
        """Return True if all answers are equal and no number differs by more than rounding explains."""
        return self.equal_answers == 1 and self.largest_difference < 1e-3


def validation_texts(task: Task) -> list[str]:
    """Return texts of the validation split of a run, as prompts for a language model.

    Raises:
        DataError, UsageError: the data is not there.
    """
    texts = load_text_data(task.schema, task.config.data).valid.text
    if task.explain_as != "language_model":
        return texts[:N_TEXTS]
    whole = "".join(texts)
    starts = np.linspace(0, max(0, len(whole) - PROMPT_CHARS), N_TEXTS).astype(int)
    return [whole[start : start + PROMPT_CHARS] for start in dict.fromkeys(starts.tolist())]


def check_export(task: Task, model: Translator | LanguageModel, exported: ExportedModel) -> CheckResult | str:
    """Return the comparison, or why it was not made.

    Args:
        task: the task of the run.
        model: the model that was exported.
        exported: the result.
    """
    try:
        texts = [text for text in validation_texts(task) if text.strip()]
    except (DataError, UsageError) as error:
        return f"not checked: {error}"
    if not texts:
        return "not checked: the validation split has no texts"
    decode = replace(exported.config.decode, n_best=1)
    if task.explain_as == "language_model":
        decode = replace(decode, temperature=0.0, max_new_tokens=NEW_TOKENS)
    ours = task.predict(model, texts, decode)
    theirs = exported.predict(texts, **asdict(decode))
    key = "text" if task.explain_as == "language_model" else "translation"
    equal = sum(a[key] == b[key] for a, b in zip(ours, theirs, strict=True)) / len(texts)
    answers = [answer[key] for answer in ours[:N_SCORED]]
    return CheckResult(len(texts), equal, _largest_difference(task, model, exported, texts[:N_SCORED], answers))


@torch.no_grad()
def _largest_difference(
    task: Task, model: Translator | LanguageModel, exported: ExportedModel, texts: Sequence[str], answers: Sequence[str]
) -> float:
    """Return the largest difference of a logit, or of the log-probability of a token of an answer."""
    t, words, worst = task.tokenizer, task.tokenizer.vocabulary(), 0.0
    for text, answer in zip(texts, answers, strict=True):
        ids = t.encode(text)[: task.config.text.max_len]
        if isinstance(model, LanguageModel):
            ids = ids or [t.eos_id]
            theirs = np.array(exported.engine.forward_batch([[words[i] for i in ids]]))[0]
            difference = np.abs(theirs - model(torch.tensor([ids]))[0].float().numpy()).max()
        else:
            target = t.encode(answer)[: task.config.text.max_len]
            [score] = exported.engine.score_batch([[words[i] for i in ids]], [[words[i] for i in target]])
            decoder_input = torch.tensor([[words.index(BOS), *target]])
            logits = model(torch.tensor([[*ids, words.index(EOS)]]), decoder_input)[0].float()
            labels = torch.tensor([*target, t.eos_id])
            ours = logits.log_softmax(dim=-1).gather(1, labels[:, None])[:, 0]
            difference = np.abs(np.array(score.log_probs) - ours.numpy()).max()
        worst = max(worst, float(difference))
    return worst
