"""Apply edits in a forward pass: `Edits` is a tap for `trace`.

    with trace(model, tap=Edits(["decoder.1.cross.head2=0"], records, means)) as t:
        model(src, tgt_in)

No weight is changed, and no tensor is written in place: the pass continues with a copy.

=mean takes the mean of a step over reference texts: what a part writes on average, without this text.

The references are texts of the validation split, in the form of training: a translator reads the true translation, a
masked language model a text with masked tokens. The mean is over texts and their tokens, without padding, so that all
positions get one value. Of several labels or words the whole model reads the texts, so that only steps before its head
have a mean.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from glassformer.data.splits import Split
from glassformer.errors import ChangedDataError, DataError, UsageError
from glassformer.explain.capture.sites import Step
from glassformer.explain.capture.slices import axis_indices
from glassformer.explain.edits.grammar import KINDS, Edit, resolve, state_before
from glassformer.explain.explanation import Explanation
from glassformer.explain.request import MAX_EDITED_TOKENS, MAX_EDITS
from glassformer.explain.subject import View
from glassformer.explain.trace import trace
from glassformer.runs.run_data import load_run_data
from glassformer.tasks import Task
from glassformer.utils.device import tuned

logger = logging.getLogger(__name__)

N_TEXTS = 128
"""Most reference texts, spread evenly over the lengths that occur; the error of their mean is small enough."""
Means = Mapping[str, Tensor]
_known: WeakKeyDictionary[nn.Module, Means] = WeakKeyDictionary()


def means_of_run(view: View, records: Mapping[str, Step]) -> Callable[[], Means]:
    """Return a function that returns the means of a run's steps, which are computed once for each model."""

    def means() -> Means:
        if view.whole in _known:
            return _known[view.whole]
        run, allowed = view.run, bool(getattr(view.run, "allow_changed_data", False))
        try:
            split = load_run_data(run.path, run.task.schema, run.task.config.data, allow_changed=allowed).valid
        except ChangedDataError:
            raise
        except (DataError, UsageError) as error:
            message = f"=mean averages over the validation texts of the run, which cannot be read: {error}"
            raise UsageError(message, "use =0, or =B with a second text") from error
        logger.info(f"averaging {min(len(split), N_TEXTS)} validation texts for =mean")
        return _known.setdefault(view.whole, reference_means(run.task, view.whole, split, records))

    return means


def reference_means(task: Task, model: nn.Module, split: Split, records: Mapping[str, Step]) -> Means:
    """Return the mean of each step over texts and tokens, by id: its tensor without token axes.

    Steps over pairs of tokens, such as scores, have no mean, as their axes differ from text to text.
    """
    wanted = {id for id, record in records.items() if has_mean(record)}
    device = next(model.parameters()).device
    totals: dict[str, Tensor] = {}  # without token axes
    counts: dict[str, int] = {}  # of tokens, or of texts for steps without tokens
    by_length = sorted(range(len(split)), key=lambda i: len(split.text[i]))
    split = split.take(by_length[:: -(-len(split) // N_TEXTS) or 1])
    with tuned(device), torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)  # for the masked tokens
        corpus = task.encode(split, training=False)
        plan = [row[None] for rows in task.eval_batches(corpus, 1) for row in rows]
        for row in plan[:: -(-len(plan) // N_TEXTS) or 1]:  # one text at a time, so that there is no padding
            with trace(model, wanted.__contains__) as steps:
                task.logits(model, task.make_batch(corpus, row).to(device))
            for id, step in steps.items():
                tokens = [i for i, axis in enumerate(step.axes) if axis.name == "token"]
                total = step.value.double().sum(dim=tokens) if tokens else step.value.double()
                totals[id] = totals[id] + total if id in totals else total
                counts[id] = counts.get(id, 0) + (step.shape[tokens[0]] if tokens else 1)
    return {id: (total / counts[id]).float() for id, total in totals.items()}


def has_mean(record: Step) -> bool:
    """Return True if a mean over texts can replace a step: it can be edited, and has no axis of keys."""
    names = [axis.name for axis in record.axes]
    return record.editable and record.value.is_floating_point() and "key" not in names


@dataclass(frozen=True)
class AppliedEdit:
    """An edit of one step, as it was applied; aliases and wildcards are resolved."""

    edit: int
    """Index into `WhatIf.edits`."""
    step: str
    """Id of the step."""
    slice: str
    """Part of the step by axis names; all of it if empty."""
    kind: Annotated[str, " | ".join(f'"{name}"' for name in KINDS)]
    """As in `KINDS`. Weights that follow blocked scores are "set" to 0."""
    number: float
    """The number of "set" and "scale"."""
    source: str
    """The step whose values are used: of "skip" the state before the layer, else the step itself."""


class Edits:
    """A tap that applies edits, in the order of computation; at one step in the order given.

    Args:
        edits: texts of edits.
        records: the steps of an unedited pass, by which names and slices are checked.
        other: the steps of a second text, for =B.
        means: returns the means of steps over reference texts, for =mean; called if an edit needs them.
        first: edits that act before these at each step, those of an explanation that is edited further, each with the
            steps of its own second text.

    Attributes:
        ids: ids of the steps that the tap wants.
        edits: the edits, without those of `first`.
        unchanged: texts of the edits that have not changed any number so far.
    """

    def __init__(
        self,
        edits: Sequence[str],
        records: Mapping[str, Step],
        means: Callable[[], Means],
        other: Mapping[str, Step] | None = None,
        first: Sequence[tuple[Edit, Mapping[str, Step]]] = (),
    ) -> None:
        edits = [edits] if isinstance(edits, str) else edits
        if not 1 <= len(edits) <= MAX_EDITS:
            raise UsageError(f"from 1 to {MAX_EDITS} edits can be applied together, not {len(edits)}")
        self.edits = list(map(Edit.parse, edits))
        self.records, self.means = records, means
        self._all = [*first, *((edit, other or {}) for edit in self.edits)]
        self._n_first = len(first)
        self.ids: set[str] = set()
        self._plan: dict[str, list[tuple[int, Edit]]] = {}
        self._states: dict[str, Tensor] = {}
        self._blocked: dict[str, Tensor] = {}
        self._before: dict[str, str] = {}
        self._fired: set[int] = set()
        self._changed: set[int] = set()
        for number, (edit, theirs) in enumerate(self._all):
            for one in resolve(edit, records):
                self._check(one, theirs)
                self._plan.setdefault(one.step, []).append((number, one))
                if one.kind == "skip":
                    self._before[one.step] = state_before(one.step, records)
                elif one.kind == "blocked":
                    self.ids.add(_weights_of(one.step))
        self.ids |= {*self._plan, *self._before.values()}

    @property
    def unchanged(self) -> list[str]:
        own = enumerate(self.edits, start=self._n_first)
        return [str(edit) for number, edit in own if number not in self._changed]

    @property
    def never_acted(self) -> list[str]:
        """Return the texts of the edits whose step was not reached so far."""
        return [str(edit) for number, (edit, _) in enumerate(self._all) if number not in self._fired]

    def at_positions_of(self, stream: str) -> list[str]:
        """Return the texts of edits that name positions of a stream, which fit only a pass over all its tokens."""
        found = {}
        for planned in self._plan.values():
            for number, edit in planned:
                axes = [axis.name for axis in self.records[edit.step].axes if axis.stream == stream]
                if axes and (edit.kind == "B" or any(item.partition(":")[0] in axes for item in edit.slice.split(";"))):
                    found[str(self._all[number][0])] = None
        return list(found)

    def applied(self) -> list[AppliedEdit]:
        """Return the edits by step, in the order of application, without those of `first`."""
        found, blocked = [], []
        for step, planned in self._plan.items():
            for number, edit in ((n - self._n_first, edit) for n, edit in planned if n >= self._n_first):
                source = self._before[step] if edit.kind == "skip" else step
                found.append(AppliedEdit(number, step, edit.slice, edit.kind, edit.number, source))
                if edit.kind == "blocked":
                    weights = _weights_of(step)
                    blocked.append(AppliedEdit(number, weights, edit.slice, "set", 0.0, weights))
        return found + blocked

    def check_fired(self) -> None:
        """Check that every edit has acted."""
        for edit in self.never_acted:
            raise UsageError(f"the edit {edit} never acted: the forward pass did not reach its step")

    def __call__(self, id: str, x: Tensor) -> Tensor:
        """Return the tensor to use for a step; a later call of the same module is edited like the first."""
        id = id.partition("@")[0]
        for number, edit in self._plan.get(id, ()):
            edited = self._apply(edit, x, self._all[number][1])
            self._fired.add(number)
            if not torch.equal(edited, x):
                self._changed.add(number)
            x = edited
        if id in self._before.values():
            self._states[id] = x
        blocked = self._blocked.pop(id, None)
        # Weights of blocked keys: all zero in rows where no key is left, as in `nn.attention`.
        return x if blocked is None else x.masked_fill(blocked.expand_as(x), 0.0)

    def _apply(self, edit: Edit, x: Tensor, other: Mapping[str, Step]) -> Tensor:
        if edit.kind == "skip":
            return self._states[self._before[edit.step]]
        grid, x = (..., *_places(self.records[edit.step], edit.slice, x)), x.clone()
        if edit.kind == "B":
            theirs = other[edit.step]
            x[grid] = theirs.value[_places(theirs, edit.other or edit.slice, theirs.value)].to(x)
        elif edit.kind == "mean":
            x[grid] = self._mean(edit.step, x)[grid]
        elif (change := KINDS[edit.kind].change) is not None:
            x[grid] = change(x[grid], edit.number)
        if edit.kind == "blocked":
            where = torch.zeros_like(x, dtype=torch.bool)
            where[grid] = True
            weights = _weights_of(edit.step)
            self._blocked[weights] = self._blocked.get(weights, torch.zeros_like(where)) | where
        return x

    def _mean(self, step: str, x: Tensor) -> Tensor:
        """Return the mean of a step, in the shape of its tensor: the same at every token."""
        mean = self.means()[step].to(x)
        for i, axis in enumerate(self.records[step].axes):
            if axis.name == "token":
                mean = mean.unsqueeze(i)
        return mean.expand_as(x)

    def _check(self, edit: Edit, other: Mapping[str, Step]) -> None:
        """Refuse an edit that does not fit its step, before any pass."""
        record = self.records[edit.step]
        axes = [axis.name for axis in record.axes]
        here = _places(record, edit.slice, record.value)
        if edit.kind != "set" and not record.value.is_floating_point():
            raise UsageError(f"{edit.step} holds no decimal numbers, so it can only be set", "as in: …=0")
        if edit.kind == "mean":
            if not has_mean(record):
                hint = "name a step with features, as in: encoder.0.self.context[head:2]=mean"
                raise UsageError(f"{edit}: this step has no mean over texts", hint)
            mean, sizes = self.means().get(edit.step), zip(axes, record.shape, strict=True)
            if mean is None or mean.shape != tuple(size for axis, size in sizes if axis != "token"):
                raise UsageError(f"{edit}: no reference text reaches this step", "use =0")
        if edit.kind == "B":
            if edit.step not in other:
                hint = "give a second text, whose values are taken"
                raise UsageError(f"{edit}: there is no second text with the step {edit.step}", hint)
            theirs = other[edit.step]
            taken = _places(theirs, edit.other or edit.slice, theirs.value)
            if [*map(len, here)] != [*map(len, taken)]:
                sizes, others = (" × ".join(map(str, map(len, some))) for some in (here, taken))
                message = f"{edit}: the slice is {sizes} here and {others} in the second text"
                raise UsageError(message, "name a slice of the second text that is as large: =B[token:0-3]")


def edits_on(explanation: Explanation, edits: Sequence[str], other: Explanation | None = None) -> Edits:
    """Return the tap of edits of an explanation: its own act first, each with the values of its own second text."""
    base = explanation.base or explanation
    own, theirs = (None if one is None else one.records for one in (explanation.other, other))
    first = [(Edit.parse(edit), own or {}) for edit in (explanation.edited.edits if explanation.edited else ())]
    return Edits(edits, base.records, means_of_run(base.subject, base.records), theirs, first)


def check_whole(explanation: Explanation, other: Explanation | None = None) -> None:
    """Check that these explanations can be edited, and that they are of the same weights."""
    explanations = [explanation] if other is None else [explanation, other]
    if len({e.subject.model for e in explanations}) > 1:
        one, two = (e.subject.model.state_dict() for e in explanations)
        if one.keys() != two.keys() or not all(torch.equal(one[name], two[name]) for name in one):
            message = "the second text was explained by another model, whose values do not fit this one"
            raise UsageError(message, "explain both texts by the same run, checkpoint and member")
    for e in explanations:
        if why := why_no_edits(e):
            raise UsageError(why, "shorten the text")


def why_no_edits(explanation: Explanation) -> str | None:
    """Return why a text can neither be edited nor swept, as a sentence; None where it can."""
    count = max(map(len, explanation.streams))
    if count <= MAX_EDITED_TOKENS:
        return None
    return f"edits need a text of at most {MAX_EDITED_TOKENS} tokens, and this one has {count}"


def _places(step: Step, part: str, x: Tensor) -> tuple[Tensor, ...]:
    """Return the indices of a slice of a step in a tensor x of its numbers, whose last axes are those of the step."""
    axes = [axis.name for axis in step.axes]
    sizes = x.shape[x.dim() - len(axes) :]
    indices = [torch.tensor(i, device=x.device) for i in axis_indices(axes, sizes, part)]
    return tuple(index.view(-1, *[1] * later) for later, index in enumerate(indices[::-1]))[::-1]


def _weights_of(scores: str) -> str:
    """Return the id of the weights that follow some scores."""
    return f"{scores.rpartition('.')[0]}.weights"
