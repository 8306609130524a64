"""The page as one file that runs the model: weights, tokenizer and program, without a server or a connection.

The steps that are recorded of one text are the program of all texts: operations, inputs and constants, and the size of
every axis that is not one of tokens. The loss and the backward pass follow as steps of the same table of operations.
`web/src/engine` executes them. Nothing in the file is executed but the script of the page.
"""

from __future__ import annotations

import base64
import copy
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import msgspec
import torch
from torch import nn

from glassformer.errors import UsageError
from glassformer.explain.attribution import erase_id, uses_mask_token
from glassformer.explain.capture.slices import get_parameter, to_numpy
from glassformer.explain.inputs import FAMILIES, encode
from glassformer.explain.learn.backward import backward_pass, loss_steps
from glassformer.explain.learn.learning import EncodedAnswer, Learner, learning_facts, training_settings
from glassformer.explain.one_label import looked_at
from glassformer.explain.page.manifest import model_info, pack, plain, run_info
from glassformer.explain.page.saved_page import WHOLE, asset, inline_page
from glassformer.explain.request import TraceRequest
from glassformer.explain.subject import Subject, View, examples
from glassformer.explain.trace import Trace, record
from glassformer.models import LanguageModel
from glassformer.models.ensemble import members_of
from glassformer.tasks import Task

NumberAlike = Callable[[Any, nn.Module, nn.Module], tuple[int, int]]
OPTIMIZERS = ("adamw", "adam", "sgd", "muon")
MOST_BYTES, EXACT_BYTES = 60_000_000, 1_000_000
"""Most bytes of weights in a file, and up to how many they are stored as 32-bit floats."""
KNOWN = {
    "normalizer": {"Sequence", "Lowercase", "Prepend", "Replace", "BertNormalizer", "NFC", "NFD", "NFKC", "NFKD"},
    "pre_tokenizer": {"Sequence", "Split", "ByteLevel", "BertPreTokenizer"},
    "model": {"WordLevel", "WordPiece", "BPE"},
    "decoder": {"Sequence", "Fuse", "ByteLevel", "ByteFallback", "Replace", "Strip", "WordPiece"},
}
"""The parts of a tokenizer that the page reads."""


def model_page(
    subject: Subject, requests: Sequence[TraceRequest], n_alike: NumberAlike, exact: bool = False
) -> tuple[str, list[str]]:
    """Return the page as text, which opens with these requests, and notes on it.

    Weights are rounded to 16 bits, unless they take at most 1 MB or all are wanted `exact`. `n_alike` counts the
    answers that are then those of the run.

    Raises:
        UsageError: the page cannot read the run's tokenizer, or its weights take more than 60 MB.
    """
    first = requests[0] if requests else TraceRequest(next(iter(examples(subject)), "a"))
    view = looked_at(subject, TraceRequest(first.text, checkpoint=first.checkpoint, member=first.member))
    task, tokenizers = view.run.task, tokenizers_of(view.run.task)
    with torch.no_grad():
        trace, learn = _program(view)
    members = members_of(view.weights)
    weights, packed = _weights(members, trace, exact)
    notes = list[str]()
    if any(place["dtype"] == "f16" for places in weights for place in places.values()):
        rounded = copy.deepcopy(view.weights).half().float()
        n, n_texts = n_alike(view.run, view.weights, rounded)
        notes.append(f"The weights are rounded to 16 bits: {n} of {n_texts} texts get the same answer as without.")
    data = {
        "run": run_info(subject) | {"model": model_info(view, view.checkpoint), "checkpoints": []},
        "task": _task(task, view),
        "learn": learn,
        "nodes": [step.without_value() for step in trace.values()],
        "params": {name: {"axes": axes} for name, axes in trace.params.items()},
        "tokenizers": tokenizers,
        "weights": weights,
        "start": [request.to_json() for request in requests],
    }
    parts = (base64.b64encode(zlib.compress(part, 9)).decode() for part in (msgspec.json.encode(plain(data)), packed))
    return inline_page(asset("index.html"), asset(WHOLE), asset("app.css"), [notes, *parts]), notes


def tokenizers_of(task: Task) -> list[Any]:
    """Return the content of the run's tokenizers, one or those of source and target."""
    content = msgspec.json.decode(task.tokenizer.to_json())
    found = content.get("sides") or [content]
    for part, known in KNOWN.items():
        for one in found:
            types = re.findall('"type":"([^"]+)"', msgspec.json.encode(one.get(part)).decode())
            if unknown := {*types} - known:
                message = f"this page cannot read the tokenizer's {part} {unknown.pop()}"
                raise UsageError(message, "--no-model writes a page of the texts alone, without the model")
    return found


def _program(view: View) -> tuple[Trace, dict[str, Any]]:
    """Return the trace of a text with the loss and the gradients of some answer, and how the run learns."""
    task, stacks = view.task, FAMILIES[view.task.explain_as][0]
    text = "a [SEP] b" if task.tokenizer.separator else "a b c"
    encoded = encode(view, TraceRequest(text, target=text if stacks == "encoder-decoder" else None))
    inputs = dict(encoded.model_inputs)
    if stacks == "encoder":  # so that each mask is a step; it hides nothing
        inputs["padding_mask"] = torch.ones_like(inputs["ids"], dtype=torch.bool)
    trace = record(view.model, inputs)
    if "logits" not in trace:
        return trace, {}
    number = 0.0 if task.explain_as == "regressor" else None
    labels = [0] * trace["logits"].value.reshape(-1, trace["logits"].shape[-1]).shape[0] if number is None else []
    answer = EncodedAnswer(encoded, [*labels], "", number)
    learned = {}
    for optimizer in OPTIMIZERS:
        settings = training_settings(view, TraceRequest("a", optimizer=optimizer))
        learned[optimizer] = learning_facts(Learner(view, answer, settings), 0.0, None)
    facts = learned[OPTIMIZERS[0]]
    added = loss_steps(trace["logits"], answer.labels, facts.smoothing, number)
    backward = backward_pass({**trace, **added}, lambda name: get_parameter(view.model, name).detach(), trace.params)
    trace.add(added | backward)
    how = {"smoothing": facts.smoothing, "max_grad_norm": facts.max_grad_norm, "left_out": facts.left_out}
    return trace, how | {"groups": {name: [asdict(group) for group in one.groups] for name, one in learned.items()}}


def _weights(members: Sequence[nn.Module], trace: Trace, exact: bool) -> tuple[list[dict[str, Any]], bytes]:
    """Return where each parameter of each member stands among the bytes, and the bytes."""
    values = [{name: to_numpy(get_parameter(member, name).detach()) for name in trace.params} for member in members]
    exact = exact or sum(4 * value.size for one in values for value in one.values()) <= EXACT_BYTES
    found, packed = list[dict[str, Any]](), bytearray()
    for one in values:
        places: dict[str, Any] = {}
        for name, value in one.items():
            packed += bytes(-len(packed) % 4)
            data, dtype = pack(value, half=not exact)
            places[name] = {"dtype": dtype, "shape": value.shape, "start": len(packed)}
            packed += data
        found.append(places)
    if len(packed) > MOST_BYTES:
        message = f"the weights take {len(packed) / 1e6:.0f} MB, and a page holds at most {MOST_BYTES / 1e6:.0f} MB"
        raise UsageError(message, "--no-model writes a page of the texts alone, without the model")
    return found, bytes(packed)


def _task(task: Task, view: View) -> dict[str, Any]:
    """Return what the texts and answers of a run need."""
    t, config, decision, model = task.tokenizer, task.config, task.decision, members_of(view.whole)[0]
    roles = {role: t.id_of(role) for role in ("pad", "unk", "bos", "eos", "mask")} | {"pad": t.pad_id}
    around = {"ids": sorted(t.special_ids), "prefix": t.prefix, "suffix": t.suffix, "separator": list(t.separator)}
    ngrams = model.ngrams if isinstance(model, LanguageModel) else None
    hashed = ngrams and {"max_ngram": ngrams.max_ngram, "special": ngrams.n_special, "rows": ngrams.n_rows}
    return {
        "kind": task.explain_as,
        "labels": task.label_names,
        "max_len": min(config.text.max_len, int(model.max_len)),  # pyright: ignore[reportArgumentType]
        "truncate": config.text.truncate,
        "decode": asdict(config.decode),
        "special": roles | around | {"imported": t.special is not None},
        "suppressed": task.suppress_tokens,
        "without_text": t.without_text,
        "scale": decision.scale,
        "thresholds": decision.thresholds,
        "temperature": decision.temperature if view.together is None else None,
        "erase": erase_id(task),
        "masks": uses_mask_token(task),
        "hashed": hashed,
    }
