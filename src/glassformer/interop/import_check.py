"""Compare an imported model with the library that it came from, state by state, where that is installed."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.interop.hf_seq2seq import NEVER_WRITTEN, SEQ2SEQ
from glassformer.interop.hf_writer import sines_first
from glassformer.interop.imported import ImportCheck, ImportedModel
from glassformer.interop.sample_texts import TEXTS, random_ids
from glassformer.models.encoder_models import label_logits
from glassformer.nn.embeddings import TokenEmbedding
from glassformer.nn.layers import Decoder, Encoder
from glassformer.tasks import Task

logger = logging.getLogger(__name__)

N_RANDOM = 4
TOLERANCE = 1e-3
"""Largest difference, relative to the largest value, that rounding explains."""


def check_import(imported: ImportedModel, task: Task, model: nn.Module, folder: Path) -> ImportCheck | None:
    """Return the comparison with the source library; None where it is not installed, or cannot read the folder."""
    if imported.source.library == "ctranslate2":
        from glassformer.interop.ctranslate2_check import check_with_ctranslate2

        return check_with_ctranslate2(task, model, folder)
    if imported.source.library != "transformers":
        return None
    try:
        transformers = importlib.import_module("transformers")
    except ImportError:
        return None
    try:
        with _quiet(transformers):
            theirs = _load(transformers, imported, folder)
    except Exception as error:  # the library has errors of its own
        logger.warning(f"not compared with transformers, which cannot read the folder: {str(error)[:200]}")
        return None
    differences: dict[str, float] = {}
    # Of a classifier the logits are compared up to a constant, since two classes share one logit here.
    answers = (lambda x: x.log_softmax(dim=-1)) if imported.task == "classify" else (lambda x: x)
    equal, n = 0, 0
    for ids in _samples(task):
        rows = [torch.tensor([ids])]
        if imported.task == "translate":  # any target will do: the source, begun as a translation is
            start = [task.tokenizer.bos_id, *ids][: task.config.text.max_len + 1]
            rows = [torch.tensor([task.tokenizer.with_end(ids)]), torch.tensor([start])]
        ours, answer = _our_states(model, rows)
        if imported.task == "multilabel":  # yes or no to each label
            ours["logits"] = label_logits(model, ours["logits"])
            answer = answer.argmax(dim=-1)
        found, their_answer = _their_states(theirs, rows, imported.source.family)
        for place, value in ours.items():
            if (other := found.get(place)) is None:
                continue
            if place == "logits":
                # A token that Marian has only for padding is never written here.
                comparable = value > NEVER_WRITTEN / 2
                value, other = answers(value.where(comparable, 0.0)), answers(other.where(comparable, 0.0))
            difference = float((value - other).abs().max())
            differences[place] = max(differences.get(place, 0.0), difference)
        if imported.task == "multilabel" and their_answer is not None:
            equal += bool((answer == (their_answer > 0)).all())
        else:
            equal += _same_answer(answer, their_answer)
        n += 1
    largest = max(differences.values(), default=0.0)
    if largest > TOLERANCE:
        logger.warning(f"the model differs from that of transformers by {largest:.1e}")
    return ImportCheck(f"transformers {transformers.__version__}", n, differences, equal / n)


def _samples(task: Task) -> Iterator[list[int]]:
    """Yield ids of texts: of sentences, and at random from the vocabulary."""
    t, max_len = task.tokenizer, task.config.text.max_len
    texts = [ids for ids in t.encode_batch(list(TEXTS)) if ids]
    for ids in [*texts, *random_ids(t, N_RANDOM)]:
        yield t.framed(ids[: t.room(max_len)])


def _load(transformers: Any, imported: ImportedModel, folder: Path) -> Any:
    """Return their model, without code of the folder and without the network."""
    kinds = {
        "classify": "AutoModelForSequenceClassification",
        "multilabel": "AutoModelForSequenceClassification",
        "regress": "AutoModelForSequenceClassification",
        "tag": "AutoModelForTokenClassification",
        "pretrain": "AutoModelForMaskedLM",
        "lm": "AutoModelForCausalLM",
        "translate": "AutoModelForSeq2SeqLM",
    }
    if imported.source.family == "glassformer":
        importlib.import_module("glassformer.interop.hf_class")
    kind = "AutoModel" if imported.untrained else kinds.get(imported.task, "AutoModel")
    options = {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True}
    model = getattr(transformers, kind).from_pretrained(str(folder), attn_implementation="eager", **options)
    return model.float().eval()


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Keep what the library says of weights that this form does not use off the screen."""
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    bar = getattr(transformers.logging, "is_progress_bar_enabled", lambda: False)()
    transformers.logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(before)
        if bar:
            transformers.logging.enable_progress_bar()


def _our_states(model: nn.Module, rows: Sequence[Tensor]) -> tuple[dict[str, Tensor], Tensor]:
    """Return the embedding, the output of each layer, and the logits, by place; and the answer."""
    found: dict[str, Tensor] = {}

    def keep(place: str) -> Any:
        return lambda module, args, output: found.__setitem__(place, output.detach())

    handles = []
    for name, stack in model.named_modules():
        if isinstance(stack, TokenEmbedding):
            handles.append(stack.register_forward_hook(keep(name)))
        if isinstance(stack, Encoder | Decoder):
            layers = list(stack.layers)
            for i, layer in enumerate(layers):
                # The last state there is that after the final norm.
                last = i == len(layers) - 1
                handles.append((stack if last else layer).register_forward_hook(keep(f"{name}.{i}")))
    try:
        with torch.no_grad():
            output = model(*rows)
    finally:
        for handle in handles:
            handle.remove()
    return found | {"logits": output.detach()}, output.detach()


def _their_states(model: Any, rows: Sequence[Tensor], family: str) -> tuple[dict[str, Tensor], Tensor | None]:
    """Return their states by our places, and the answer; a registered class has no states but logits."""
    more = {"decoder_input_ids": rows[1]} if len(rows) > 1 else {}
    with torch.no_grad():
        output = model(input_ids=rows[0], attention_mask=torch.ones_like(rows[0]), output_hidden_states=True, **more)
    found, logits = dict[str, Tensor](), getattr(output, "logits", None)
    for key, stack, embedding in (
        ("hidden_states", "", "embedding"),
        ("encoder_hidden_states", "encoder", "src_embedding"),
        ("decoder_hidden_states", "decoder", "tgt_embedding"),
    ):
        states = list(getattr(output, key, None) or [])
        if states and family in SEQ2SEQ:  # with all sines first
            order = sines_first(states[0].shape[-1]).argsort()
            states = [state[..., order] for state in states]
        names = [stack] if stack else ["encoder", "decoder"]
        for i, state in enumerate(states):
            found |= {(f"{name}.{i - 1}" if i else embedding): state for name in names}
    return found | ({} if logits is None else {"logits": logits}), logits


def _same_answer(ours: Tensor | None, theirs: Tensor | None) -> bool:
    if ours is None or theirs is None or ours.shape[-1] != theirs.shape[-1]:
        return True
    return bool((ours.argmax(dim=-1) == theirs.argmax(dim=-1)).all())
