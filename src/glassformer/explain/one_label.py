"""One label of a classifier of several: a classifier of two classes, which shares all but the last layer's row.

So every screen, edit and attribution of a classifier of two classes is that of the label that is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from torch import nn

from glassformer.config.validation import nearest
from glassformer.data.datasets.labels import normalised_label
from glassformer.errors import UsageError
from glassformer.explain.capture.exact_inference import exact_forward, exact_no_grad
from glassformer.explain.inputs.encoded_text import encode_for_classifier
from glassformer.explain.request import TraceRequest
from glassformer.explain.subject import LoadedSubject, Subject
from glassformer.models.encoder_models import TextClassifier
from glassformer.models.ensemble import Ensemble, members_of
from glassformer.tasks.classify import Classify

NOT = "not "
"""Before the name of a label that a text has not."""


@dataclass(frozen=True)
class LabelChoice:
    """One of several labels, as all models of an ensemble together see it."""

    name: str
    probability: float
    threshold: float
    """From this probability on it is answered."""


@dataclass(frozen=True)
class Labels:
    """The labels of a text, in the order of the model, and which of them is looked at."""

    shown: int
    """Its index."""
    each: list[LabelChoice]


def has_several_labels(subject: Subject) -> bool:
    """Return whether the texts of a subject may have several labels."""
    return subject.task.explain_as == "multilabel_classifier"


def of_one_label(whole: Subject, request: TraceRequest) -> tuple[Subject, Labels | None]:
    """Return the classifier of two classes for the label of a request; any other subject as it is.

    The label is the one that is named, or that of the answer to learn; else the most probable one.

    Raises:
        UsageError: there is no such label.
    """
    if not has_several_labels(whole):
        if request.label is not None:
            raise UsageError("this run's texts have one answer each, so there is no label to choose", "remove label")
        return whole, None
    names, decision = whole.task.label_names or [], whole.task.decision
    encoded = encode_for_classifier(whole, request, whole.task.config.decode)
    with exact_no_grad(whole.model):
        logits = exact_forward(whole.model, **encoded.model_inputs)[0]
    probabilities = logits.double().softmax(dim=-1)[:, 1].cpu().numpy()
    shown = _index(request, names, probabilities)
    thresholds = decision.thresholds_of(names)
    each = [LabelChoice(*facts) for facts in zip(names, probabilities.tolist(), thresholds, strict=True)]
    members = [member.of_label(shown) for member in members_of(whole.model) if isinstance(member, TextClassifier)]
    model: nn.Module = members[0] if len(members) == 1 else Ensemble(members)
    task = Classify(whole.task.config, whole.task.tokenizer, [f"{NOT}{names[shown]}", names[shown]])
    return LoadedSubject(whole, model.eval(), task), Labels(shown, each)


def of_same_label(request: TraceRequest, labels: Labels | None) -> TraceRequest:
    """Return the request of a second text, which is looked at for the label of the first."""
    return request if labels is None else replace(request, label=labels.each[labels.shown].name)


def _index(request: TraceRequest, names: list[str], probabilities: np.ndarray) -> int:
    known = {normalised_label(name): i for i, name in enumerate(names)}
    if request.label is None and request.answer is not None:
        answer = normalised_label(request.answer)
        wanted = answer if answer in known else answer.removeprefix(NOT)
    elif request.label is not None:
        wanted = normalised_label(request.label)
    else:
        return int(probabilities.argmax())
    if wanted not in known:
        shown = ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
        raise UsageError(f"{wanted[:60]!r} is not a label of this model", f"{nearest(wanted, known)}they are {shown}")
    return known[wanted]
