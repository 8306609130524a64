"""Make inferences without a trace, as attributions need them, for small tasks and random models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from tests.helpers.small import CPU, config_of, data_of
from torch import nn

from glassformer.explain.explanation import Explanation
from glassformer.explain.inputs import DecodeLog, GenerationInfo, top_predictions
from glassformer.explain.request import TraceRequest
from glassformer.explain.streams import Stream, make_stream
from glassformer.explain.subject import View
from glassformer.explain.trace import Trace
from glassformer.tasks import TASKS, Task


@dataclass(frozen=True)
class Subject:
    task: Task
    model: nn.Module
    path: Path = Path()
    device: torch.device = CPU


def run_model(subject: Subject, model_inputs: dict[str, Any], streams: list[Stream]) -> Explanation:
    """Return the explanation of a model for one text."""
    n_given, task = streams[-1].n_given, subject.task
    wrote = GenerationInfo(n_given - 1, n_given, []) if task.name == "lm" else GenerationInfo(0, 0, [])
    with torch.inference_mode():
        logits = subject.model.eval()(**model_inputs)[0]
    ids = streams[-1].ids
    rows, positions, following = logits, [*range(len(ids))], [*ids[1:], None]
    if task.name == "classify":
        rows, positions, following = logits[None], [None], [None]
    predictions = top_predictions(task, rows, positions, following)
    return Explanation(
        subject=View(subject, "model", subject.model),
        request=TraceRequest(streams[0].text),
        id="",
        model_inputs=model_inputs,
        streams=streams,
        positions=positions,
        following=following,
        predictions=predictions,
        generation=wrote,
        decode=DecodeLog("none", task.config.decode),
        answer={"headline": "", "detail": ""},
        together=None,
        records=cast(Trace, None),
        checks=[],
        warnings=[],
        seconds=0.0,
    )


def untrained(name: str, word_mask_prob: float = 0.1, seed: int = 0, **model: Any) -> Subject:
    """Return a task on synthetic data with a random model whose predictions depend strongly on its input."""
    config = config_of(name, word_mask_prob=word_mask_prob)
    config = replace(config, model=replace(config.model, **({"dropout": 0.0} | model)))
    task = TASKS[config.task].from_data(config, data_of(name))
    torch.manual_seed(seed)
    network = task.build_model()
    with torch.no_grad():
        for p in network.parameters():
            p.mul_(2.0) if p.ndim > 1 else p.add_(0.3 * torch.randn_like(p))
    return Subject(task, network.eval())


def infer(subject: Subject, text: str, target: str = "", n_pad: int = 0) -> Explanation:
    """Return what `explain(subject, text)` would infer; the target of a translator is an argument."""
    t = subject.task.tokenizer
    name = subject.task.name
    ids, spans = t.encode(text), list(t.offsets(text))
    if name == "lm":
        return run_model(subject, {"ids": torch.tensor([ids])}, [make_stream(t, "text", ids, spans, text)])
    if name == "translate":
        ids, spans = [*ids, t.eos_id], [*spans, None]
    stream = make_stream(t, "text" if name == "classify" else "source", ids, spans, text, n_pad=n_pad)
    padding = torch.tensor([[not p for p in stream.padding]])
    ids_tensor = torch.tensor([stream.ids])
    if name == "classify":
        return run_model(subject, {"ids": ids_tensor, "padding_mask": padding}, [stream])
    tgt_ids, tgt_spans = [t.bos_id, *t.encode(target)], [None, *t.offsets(target)]
    target_stream = make_stream(t, "target", tgt_ids, tgt_spans, target, n_given=1)
    inputs = {"src": ids_tensor, "tgt_in": torch.tensor([tgt_ids]), "src_padding_mask": padding}
    return run_model(subject, inputs, [stream, target_stream])
