"""Compare a model imported from a CTranslate2 folder with that library: log-probabilities and greedy answers."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from glassformer.config import DecodeConfig
from glassformer.decode import Special, translate_ids
from glassformer.errors import UsageError
from glassformer.interop.ctranslate2_binary import in_memory
from glassformer.interop.ctranslate2_reader import files_of
from glassformer.interop.ctranslate2_vocabulary import NEVER_WRITTEN
from glassformer.interop.export_facts import FACTS, library
from glassformer.interop.imported import ImportCheck
from glassformer.models import Translator
from glassformer.runs.folder import TOKENIZER
from glassformer.tasks import Task

logger = logging.getLogger(__name__)

N_TEXTS, LONGEST = 32, 12
"""Texts of tokens drawn at random, and the most tokens of each."""
TOLERANCE = 1e-3
"""Largest difference of a log-probability that rounding explains."""
PLACE = "log-probabilities"


def check_with_ctranslate2(task: Task, model: nn.Module, folder: Path) -> ImportCheck | None:
    """Return the comparison; None where the library is not installed, or cannot read the folder.

    The library computes in float32, also where the file has int8: it undoes the scales as the import does.
    """
    try:
        ctranslate2 = library("a comparison with ctranslate2", "ctranslate2", "ctranslate2")
    except UsageError:
        return None
    is_translator = task.explain_as == "translator"
    kind = ctranslate2.Translator if is_translator else ctranslate2.Generator
    files = in_memory(folder, (name for name in files_of(folder) if name not in (TOKENIZER, FACTS)))
    options = {"device": "cpu", "compute_type": "float32", "inter_threads": 1, "intra_threads": 1}
    try:
        theirs = kind(str(folder), files=files, **options)
        compare = _compare_translations if is_translator else _compare_continuations
        largest, equal = compare(task, model, theirs)
    except (RuntimeError, ValueError) as error:
        logger.warning(f"not compared with ctranslate2, which cannot read the folder: {str(error)[:200]}")
        return None
    if largest > TOLERANCE:
        logger.warning(f"the model differs from that of ctranslate2 by {largest:.1e}")
    return ImportCheck(f"ctranslate2 {ctranslate2.__version__}", N_TEXTS, {PLACE: largest}, equal)


def _drawn(rng: random.Random, ids: list[int], room: int) -> list[int]:
    return [rng.choice(ids) for _ in range(rng.randint(1, max(1, min(LONGEST, room))))]


@torch.no_grad()
def _compare_translations(task: Task, model: nn.Module, theirs: Any) -> tuple[float, float]:
    """Return the largest difference of the log-probability of a token, and the share of equal greedy translations."""
    t, translator, rng, worst = task.tokenizer, cast(Translator, model), random.Random(0), 0.0
    words, bias = t.vocabulary(), translator.output_bias
    ordinary = sorted({*range(t.vocab_size)} - {*t.without_text})
    written = [i for i in ordinary if bias is None or float(bias[i]) > NEVER_WRITTEN / 2]
    room = t.room(task.config.text.max_len)
    plain = [_drawn(rng, ordinary, room) for _ in range(N_TEXTS)]
    targets = [_drawn(rng, written, room) for _ in range(N_TEXTS)]
    sources = [t.with_end(t.framed(ids)) for ids in plain]
    their_sources = [[words[i] for i in ids] for ids in plain]
    scored = theirs.score_batch(their_sources, [[words[i] for i in ids] for ids in targets])
    for source, target, score in zip(sources, targets, scored, strict=True):
        log_probs = translator(torch.tensor([source]), torch.tensor([[t.bos_id, *target]]))[0].log_softmax(dim=-1)
        ours = log_probs.gather(1, torch.tensor([*target, t.eos_id])[:, None])[:, 0]
        worst = max(worst, float(np.abs(np.array(score.log_probs) - ours.numpy()).max()))
    limit = min(2 * LONGEST, room)
    never = [[words[i]] for i in sorted({t.pad_id, t.bos_id} - {t.eos_id})]
    options = {"max_decoding_length": limit, "min_decoding_length": 0, "suppress_sequences": never}
    found = theirs.translate_batch(their_sources, beam_size=1, **options)
    greedy = DecodeConfig(beam_size=1, max_new_tokens=limit)
    ours = translate_ids(translator, sources, greedy, Special(t.pad_id, t.bos_id, t.eos_id))
    same = [
        [words[i] for i in hypotheses[0].ids] == result.hypotheses[0][: len(hypotheses[0].ids)]
        for hypotheses, result in zip(ours, found, strict=True)
    ]
    return worst, sum(same) / N_TEXTS


@torch.no_grad()
def _compare_continuations(task: Task, model: nn.Module, theirs: Any) -> tuple[float, float]:
    """Return the largest difference of a log-probability, and the share of texts with equal most probable tokens."""
    t, rng, worst, same = task.tokenizer, random.Random(0), 0.0, 0
    words, ordinary = t.vocabulary(), sorted({*range(t.vocab_size)} - {*t.without_text})
    for _ in range(N_TEXTS):
        ids = _drawn(rng, ordinary, task.config.text.max_len)
        logits = torch.from_numpy(np.array(theirs.forward_batch([[words[i] for i in ids]])))[0].float()
        ours, found = (x.log_softmax(dim=-1) for x in (model(torch.tensor([ids]))[0], logits))
        worst = max(worst, float((ours - found).abs().max()))
        same += bool((ours.argmax(dim=-1) == found.argmax(dim=-1)).all())
    return worst, same / N_TEXTS
