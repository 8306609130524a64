"""One label of a classifier of several, and the tag of one word: classifiers that share the parameters of the model.

One label is a classifier of two classes, which has one row of the last layer. The tag of a word is a classifier whose
pooled vector is that of the word's first token. So every screen, edit and attribution of a classifier is that of the
label, or of the word, that is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
from jaxtyping import Float
from torch import Tensor

from glassformer.config.recipes import nearest
from glassformer.data.datasets.labels import normalised_label
from glassformer.errors import UsageError
from glassformer.explain.capture.exact_inference import exact_forward, exact_no_grad
from glassformer.explain.inputs import EncodedText, encode_for_classifier
from glassformer.explain.request import TraceRequest
from glassformer.explain.subject import LabelChoice, Labels, Look, Subject, View, weights_at
from glassformer.models.encoder_models import TextClassifier, TokenClassifier
from glassformer.tasks import Task
from glassformer.tasks.encoder import Classify, EncoderTask
from glassformer.tasks.heads import CLASSIFY
from glassformer.text.answers import THRESHOLD
from glassformer.text.words import OUTSIDE, first_tokens, read_running

WORD_TAG = EncoderTask.of(replace(CLASSIFY, kind="tagger"))
"""The tag of one word as a class; the texts are read as those of a tagger."""
NOT = "not "
"""Before the name of a label that a text has not."""


def looked_at(run: Subject, request: TraceRequest) -> View:
    """Return what a request looks at: where a model gives several answers, one of them.

    The label is the one that is named, or that of the answer to learn; else the most probable one. A word is named by
    its number, counted from 1, or by itself; else it is the first whose tag is not O.

    Raises:
        UsageError: there is no such checkpoint, member, label or word.
    """
    view = View(run, request.checkpoint, weights_at(run, request.checkpoint), request.member)
    task, names = run.task, run.task.label_names or []
    choose = _of_one_word if isinstance(view.whole, TokenClassifier) else None
    choose = _of_one_label if task.explain_as == "multilabel_classifier" else choose
    if choose is None and request.label is not None:
        raise UsageError("this run's texts have one answer each, so there is no label to choose", "remove label")
    if choose is None:
        return view
    encoded = encode_for_classifier(view, request)
    with exact_no_grad(view.weights):
        shares = exact_forward(view.weights, **encoded.model_inputs)[0].double().softmax(dim=-1)
    return replace(view, look=choose(task, names, request, encoded, shares))


def _of_one_label(
    task: Task, names: list[str], request: TraceRequest, encoded: EncodedText, shares: Float[Tensor, "C 2"]
) -> Look:
    probabilities = shares[:, 1].tolist()
    shown = _index(request, names, probabilities)
    thresholds = map(float, task.decision.thresholds or [THRESHOLD] * len(names))
    each = list(map(LabelChoice, names, probabilities, thresholds))
    one = Classify(task.config, task.tokenizer, [f"{NOT}{names[shown]}", names[shown]])
    return Look(names[shown], one, lambda model: cast(TextClassifier, model).of_label(shown), Labels(shown, each))


def _of_one_word(
    task: Task, names: list[str], request: TraceRequest, encoded: EncodedText, shares: Float[Tensor, "L C"]
) -> Look:
    words, places = _words_of(encoded, request.text)
    if not words:
        raise UsageError("the text holds no word that the model reads", "give a text with words")
    probabilities, best = shares.max(dim=-1)
    tags = [names[0 if place < 0 else int(best[place])] for place in places]
    shown = _word(request.label, words, tags)
    if (place := places[shown]) < 0:
        raise UsageError(f"the model has no token for word {shown + 1}, {words[shown][:40]!r}", "choose another word")
    known = [1.0 if place < 0 else float(probabilities[place]) for place in places]
    choices = enumerate(zip(words, tags, known, strict=True), start=1)
    each = [LabelChoice(f"{n} {word} {tag}", share, None, word) for n, (word, tag, share) in choices]
    one = WORD_TAG(task.config, task.tokenizer, names)
    return Look(str(shown + 1), one, lambda model: cast(TokenClassifier, model).at_token(place), Labels(shown, each))


def _words_of(encoded: EncodedText, text: str) -> tuple[list[str], list[int]]:
    """Return the words of a text that the model reads, and the place of each one's first token."""
    read = read_running(text)
    spans = [span or (0, 0) for span in encoded.streams[0].spans]
    places = first_tokens([start for start, _ in read.spans], read.words, spans)
    n = next((i for i in range(len(places), 0, -1) if places[i - 1] >= 0), 0)
    return read.words[:n], places[:n]


def _word(wanted: str | None, words: Sequence[str], tags: Sequence[str]) -> int:
    """Return the index of the word that is named: by its number, by itself, or as a choice of `Labels` is."""
    if wanted is None:
        return next((i for i, tag in enumerate(tags) if tag != OUTSIDE), 0)
    number = re.fullmatch(r"(\d{1,9})( .*)?", wanted.strip(), re.DOTALL)
    if number and 1 <= int(number[1]) <= len(words):
        return int(number[1]) - 1
    for spelled in (str, str.casefold):
        for i, word in enumerate(words):
            if spelled(word) == spelled(wanted.strip()):
                return i
    hint = f"name one of them, or its number from 1 to {len(words)}"
    raise UsageError(f"{wanted[:60]!r} is not a word of this text that the model reads", hint)


def of_same_label(request: TraceRequest, explained: Subject) -> TraceRequest:
    """Return the request of another text, or of other weights, that looks at the label or word of an explanation."""
    look = explained.look if isinstance(explained, View) else None
    return request if look is None else replace(request, label=look.name)


def _index(request: TraceRequest, names: list[str], probabilities: Sequence[float]) -> int:
    named = request.answer if request.label is None else request.label
    if named is None:
        return int(np.argmax(probabilities))
    if request.label is None and normalised_label(named) not in map(normalised_label, names):
        named = normalised_label(named).removeprefix(NOT)
    return label_index(names, named, "label")


def label_index(names: list[str], named: str, what: str) -> int:
    """Return the index of the name that is meant; raise UsageError of one that is none."""
    known, wanted = list(map(normalised_label, names)), normalised_label(named)
    if wanted not in known:
        shown = ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
        hint = f"{nearest(wanted, known)}there are {shown}"
        raise UsageError(f"{wanted[:60]!r} is not a {what} of this model", hint)
    return known.index(wanted)
