"""Sweeps: the same kind of edit all over a model, in a few batches.

parts: each head and block switched off, each head alone, and all heads of a block together. Single heads can each be
dispensable while all together are not, which only the sum shows.
keys: each head kept from attending to each token.
layers: what the model would answer after each layer, with the later ones skipped. Of a decoder this is the logit lens
(nostalgebraist 2020); of the encoder of a translator, whose decoder then reads an early memory, DecoderLens (Langedijk
et al. 2023, https://arxiv.org/abs/2310.03686). The last norm takes its statistics from the state that it reads. Early
rows are biased: those states were not made for this reader (Belrose et al. 2023, https://arxiv.org/abs/2303.08112).
checkpoints: the edits of an explanation at each checkpoint of its run. Every checkpoint reads the tokens of one model,
the one that the request names (teacher forcing), so that edits of any position fit, and the numbers of all checkpoints
are of the same tokens.

states: where the difference of two texts is. The residual stream of one is put in the place of the other's, state by
state.

Both directions are measured (Heimersheim and Nanda 2024, "How to use and interpret activation patching"): noising puts
the second text's state into the first, and its row gives how much of the first answer is lost; denoising puts the first
text's state into the second, and `back` of the row gives how much of the first answer comes back. A state can be needed
and not suffice, or suffice and not be needed.

contributions: the parts whose sum is a logit difference: embedding, heads, feed-forward blocks, biases.

Of a regressor the sum is its number minus the mean of the training numbers, which is in proportion to its output.

The residual stream is a sum, and a norm with its statistics held is affine, so a logit is a sum over what each part
wrote (Elhage et al. 2021, "A mathematical framework for transformer circuits"). Norms are not folded into weights: each
part goes through every norm after it, divided by the deviation that the norm had in this forward pass; with post-norm
these are several. The walk goes back from the logits, with what a unit of each step adds to them. The sum is checked
against the logits.

A contribution is the direct effect of a part: what later parts make of it is not in it. The total effect, measured by
switching the part off, is given with it; where both have opposite signs, later parts make up for it.

Of an edited pass the parts are those that it computed, and what an edit added to the stream is a part of its own,
"edit of encoder.0.self.out", so that the sum stays whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from os.path import commonprefix
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from glassformer.errors import UsageError
from glassformer.explain.capture.sites import Step
from glassformer.explain.capture.slices import get_parameter
from glassformer.explain.edits.apply import check_whole
from glassformer.explain.edits.effects import (
    Measure,
    Sweep,
    SweepRow,
    base_logits,
    measure_of_answer,
    measure_of_difference,
    prediction_index,
    predictions_of,
    swept,
    what_if,
)
from glassformer.explain.explanation import Explanation
from glassformer.explain.inputs import filled_answer, rows_of
from glassformer.explain.subject import View, list_checkpoints
from glassformer.explain.trace import record
from glassformer.nn.operations import named, row_name, run
from glassformer.utils.device import tuned
from glassformer.utils.process_settings import check_cancelled

MIN_DIFFERENCE = 0.5
"""Smallest difference of the two texts' logit differences of which a share is given."""
MIN_DEVIATIONS = 0.1
"""The same of their numbers, in standard deviations of the training numbers."""


def sweep_states(explanation: Explanation, other: Explanation) -> Sweep:
    """Return what each state of the residual stream changes in the other text, a row for each token of a state."""
    explanation.check_has_answer()
    check_whole(explanation, other)
    measure, (answer, foil), least = _compared(explanation, other)
    m_a, m_b = (measure.of(base_logits(e)).item() for e in (explanation, other))
    if abs(m_a - m_b) < least:
        why = f"the logit difference is {m_a:.2f} in one text and {m_b:.2f} in the other, too similar for shares"
        hint = "choose texts whose answers are more certain"
        if measure.unit == "number":
            why = f"the number is {answer} for one text and {foil} for the other, too similar for shares"
            hint = f"choose a second text whose number is at least {least:.3g} away"
        raise UsageError(why, hint)
    end = None if explanation.decode.masked is not None else measure.positions[0]
    places = [
        (state, i, j)
        for stream, (_, states) in enumerate(states_of(explanation))
        for state in states
        for i, j in _pairs(explanation, other, stream, end)
    ]
    if not places:
        message = "no token of one text stands for one of the other: the texts share no beginning and no end"
        raise UsageError(message, "choose texts of equally many tokens")
    here = [(s, [f"{s}[token:{i}]=B[token:{j}]"]) for s, i, j in places]
    there = [(s, [f"{s}[token:{j}]=B[token:{i}]"]) for s, i, j in places]
    found, back = swept(explanation, here, measure, other=other), swept(other, there, measure, other=explanation)
    rows = [
        replace(row, position=i, back=replace(one, position=j))
        for (_, i, j), row, one in zip(places, found.rows, back.rows, strict=True)
    ]
    return replace(found, rows=rows, target=answer, contrast=foil)


def _compared(a: Explanation, b: Explanation) -> tuple[Measure, tuple[str, str], float]:
    """Return what is compared of two texts, both answers, and the smallest difference of which a share is given."""
    if a.is_number:
        [first], [second] = (measure_of_answer(a).read(base_logits(e), a.subject.task) for e in (a, b))
        return measure_of_difference(a, 0), (first, second), MIN_DEVIATIONS * a.subject.task.decision.scale[1]
    measure = measure_of_difference(a, *_first_difference(a, b))
    return measure, (measure.target, measure.contrast), MIN_DIFFERENCE


def _first_difference(a: Explanation, b: Explanation) -> tuple[int, int, int]:
    """Return the index of the first prediction that differs, and what is predicted there in both texts."""
    if a.labels is not None and b.labels is not None and a.labels.shown != b.labels.shown:
        name = a.labels.each[a.labels.shown].name
        raise UsageError("the two texts are looked at for different labels", f"choose {name!r} for the second, too")
    if a.decode.masked != b.decode.masked:
        raise UsageError("both texts need [MASK] at the same positions", "change other tokens")
    if a.decode.first != b.decode.first:
        raise UsageError("both prompts need equally many tokens", "change a token of the prompt for another")
    for i, j in zip(a.answered, b.answered, strict=False):
        first, second = (p.actual or p.top[0] for p in (a.predictions[i], b.predictions[j]))
        if first.id != second.id:
            return i, first.id, second.id
    raise UsageError("both texts have the same answer", "choose a second text with another answer")


def states_of(explanation: Explanation) -> list[tuple[str, list[str]]]:
    """Return for each stream the stack that reads it, and the names of its states in order of computation."""
    depths = explanation.records.n_layers
    names = ["embedding"] if len(depths) == 1 else ["source", "target"]
    return [
        (stack, [name, *(f"{stack}.{layer}.state" for layer in range(depth))])
        for name, (stack, depth) in zip(names, depths.items(), strict=True)
    ]


def _pairs(a: Explanation, b: Explanation, stream: int, end: int | None) -> list[tuple[int, int]]:
    """Return positions that stand for each other: all of equally long texts, else the common beginning and end.

    Of a generated stream those after the prediction are left out, as it cannot depend on them.
    """
    first, second = a.streams[stream].ids, b.streams[stream].ids
    if end is not None and stream == len(a.streams) - 1:
        first, second = first[: end + 1], second[: end + 1]
    if len(first) == len(second):
        return [(i, i) for i in range(len(first))]
    n_start = len(commonprefix([first, second]))  # noqa: RUF071 - of ids
    n_end = len(commonprefix([first[n_start:][::-1], second[n_start:][::-1]]))  # noqa: RUF071
    start = [(i, i) for i in range(n_start)]
    return start + [(len(first) - i, len(second) - i) for i in range(n_end, 0, -1)]


Part = tuple[str, str, float]
"""The name of a part, the edit that switches it off ("" if there is none), and what it adds to what is followed."""


def contributions(explanation: Explanation, prediction: int | None = None) -> Sweep:
    """Return the parts whose sum is the logit of a prediction minus that of its contrast.

    By default it is the first generated token; the contrast is the most probable other class or token.
    """
    index = prediction_index(explanation, prediction)
    measure, slopes = measure_of_difference(explanation, index), torch.zeros_like(base_logits(explanation))
    if why := why_no_sum(explanation.records):
        raise UsageError(why)
    if measure.foil is None:
        slopes[index] = measure.of(torch.ones_like(slopes))
    else:
        slopes[index, [*measure.ids, measure.foil]] = slopes.new_tensor([1.0, -1.0])
    parts = list(_parts(explanation, "logits", slopes))
    found = swept(explanation, [(name, [edit] if edit else []) for name, edit, _ in parts], measure)
    rows = [replace(row, direct=direct) for row, (*_, direct) in zip(found.rows, parts, strict=True)]
    return replace(found, rows=rows, error=sum(direct for *_, direct in parts) - found.value)


def why_no_sum(steps: Mapping[str, Step]) -> str | None:
    """Return why the output of this model is no sum of parts, as a sentence; None where it is."""
    if (logits := steps.get("logits")) is None:
        return "a bare encoder gives a vector, and has no logit"
    end = steps[(steps[logits.inputs[0]] if logits.op == "pin_zero" else logits).inputs[0]]
    if end.inputs and steps[end.inputs[0]].op == "gelu":
        return "the head of a masked language model is not linear, so the output is no sum of parts"
    if end.op in ("tanh", "relu"):
        return "the pooler before the head is not linear, so the output is no sum of parts"
    return None


def _parts(explanation: Explanation, id: str, slopes: Float[Tensor, "L D"]) -> Iterator[Part]:
    """Yield the parts of a step, given what a unit of each of its numbers adds to what is followed."""
    parts = list(_computed_parts(explanation, id, slopes))
    yield from parts
    edited, result = {id, f"{id.removesuffix('.out')}.concat"}, explanation.edited
    changed = [one.step for one in result.applied if result.edits[one.edit] not in result.unchanged] if result else []
    if (names := edited.intersection(changed)) and len(parts) > 1:  # a single part is the step itself, as it was edited
        total = float((explanation.records[id].value.double() * slopes).sum())
        yield f"edit of {names.pop()}", "", total - sum(direct for *_, direct in parts)


def _computed_parts(explanation: Explanation, id: str, slopes: Float[Tensor, "L D"]) -> Iterator[Part]:
    """Yield the parts that a step computes from its inputs."""
    step = explanation.records[id]

    def parameter(role: str) -> Tensor:
        return get_parameter(explanation.subject.model, step.params[role]).detach()

    def before(slopes: Float[Tensor, "L D"]) -> Iterator[Part]:
        yield from _parts(explanation, step.inputs[0], slopes)

    match step.op:
        case "add":
            for part in step.inputs:
                yield from _parts(explanation, part, slopes)
        case "pool" | "pin_zero":
            op = row_name(step.op, step.attrs)
            read = {name: explanation.records[one].value for name, one in named(op, step.inputs, {}).items()}
            read |= {"x": read["x"].double(), "y": step.value.double(), "g": slopes}
            yield from before(rows_of(run(f"{op}.x", read, step.attrs, tuple(read["x"].shape))))
        case "linear" if step.stack == "head":
            used = slopes.any(dim=0)  # of a large vocabulary two tokens
            yield from before(slopes[:, used] @ parameter("weight")[used].double())
        case "layer_norm" | "rms_norm":  # with its statistics held
            x, inner = explanation.records[step.inputs[0]].value.double(), slopes
            inner = inner * parameter("weight").double() if "weight" in step.params else inner
            if step.op == "layer_norm":
                inner, x = inner - inner.mean(dim=-1, keepdim=True), x - x.mean(dim=-1, keepdim=True)
            yield from before(inner * (x.square().mean(dim=-1, keepdim=True) + float(step.attrs["eps"])).rsqrt())
        case "linear" if step.block != "ff" and step.site == "out":
            block = id.removesuffix(".out")
            context = explanation.records[f"{block}.context"].value.double()
            for h, columns in enumerate(parameter("weight").double().split(context.shape[-1], dim=1)):
                direct = float((context[h] * (slopes @ columns)).sum())
                yield f"{block}.head{h}", f"{block}.context[head:{h}]=0", direct
        case op:
            direct = float((step.value.double() * slopes).sum())
            yield (id.removesuffix(".out"), f"{id}=0", direct) if op == "linear" else (id, "", direct)
            return
    if "bias" in step.params:
        yield step.params["bias"], "", float((parameter("bias").double() * slopes).sum())


SweepKind = Literal["parts", "keys", "layers", "contributions", "states", "checkpoints"]
Variants = list[tuple[str, list[str]]]
"""Names, and the edits of each."""


def sweep(
    explanation: Explanation, kind: SweepKind | str, other: Explanation | None = None, prediction: int | None = None
) -> Sweep:
    """Return the sweep of one kind; arguments as of `Explanation.sweep`."""
    if kind not in SWEEPS:
        raise UsageError(f"there is no sweep of {kind!r}", f"there is {', '.join(SWEEPS)}")
    if (kind == "states") != (other is not None):
        raise UsageError("a sweep of states needs a second text, and no other sweep does")
    if kind != "contributions" and prediction is not None:
        raise UsageError("only contributions are of one prediction")
    return SWEEPS[kind](explanation, *(one for one in (other, prediction) if one is not None))


def _sweep_parts(explanation: Explanation) -> Sweep:
    off, others = Variants(), dict[str, list[str]]()
    for id, step in explanation.records.items():
        block = id.rpartition(".")[0]
        if step.site == "weights":
            heads = {f"{block}.head{h}": f"{block}.context[head:{h}]=0" for h in range(step.shape[0])}
            off += [(head, [edit]) for head, edit in heads.items()]
            off.append((block, [f"{block}.context=0"]))
            others |= {head: [one for one in heads.values() if one != edit] for head, edit in heads.items()}
        elif step.block == "ff" and step.site == "out":
            off.append((block, [f"{id}=0"]))
    alone = [(head, edits) for head, edits in others.items() if edits]
    found = swept(explanation, [*off, *alone], measure_of_answer(explanation))
    of_others = {row.name: row for row in found.rows[len(off) :]}
    rows = [replace(row, alone=of_others.get(row.name)) for row in found.rows[: len(off)]]
    return replace(found, rows=rows)


def _sweep_keys(explanation: Explanation) -> Sweep:
    steps = [step for step in explanation.records.values() if step.site == "weights"]
    blocks = [(step.id.removesuffix(".weights"), step.shape) for step in steps]
    variants = [
        (block, [f"{block}.scores[head:{h};key:{k}]=blocked"])
        for block, (heads, _, keys) in blocks
        for h in range(heads)
        for k in range(keys)
    ]
    return swept(explanation, variants, measure_of_answer(explanation))


def _sweep_layers(explanation: Explanation) -> Sweep:
    variants = [
        (state, [f"{later}=skip" for later in states[n + 1 :]])
        for _, states in states_of(explanation)
        for n, state in enumerate(states)
    ]
    return swept(explanation, variants, measure_of_answer(explanation), each=True)


def _sweep_checkpoints(explanation: Explanation) -> Sweep:
    if explanation.base is None:
        raise UsageError("a sweep of checkpoints needs edits", "as in: explain(run, TraceRequest(text, edits=…))")
    base, other, request = explanation.base, explanation.other, explanation.request
    measure, rows = measure_of_answer(base), list[SweepRow]()
    for info in list_checkpoints(explanation.run):
        check_cancelled()
        view = base.subject.at(info["name"])
        at = _at(base, view)
        result = what_if(at, request.edits, None if other is None else _at(other, view), again=False)
        before, after = (measure.total(one.trace) for one in (at, result))
        was, now = (_answer(base, rows_of(one.trace["logits"].value)) for one in (at, result))
        rows.append(SweepRow(info["name"], [*request.edits], before, after, was, now, int(was != now), None))
    return Sweep(rows, measure.unit, measure.target, "", measure.positions[0], measure.total(base.records))


def _at(explanation: Explanation, subject: View) -> Explanation:
    """Return the explanation of the same tokens by other weights."""
    with tuned(subject.device):
        records = record(subject.model, explanation.model_inputs)
    moved = replace(explanation, subject=subject, records=records)
    return replace(moved, predictions=predictions_of(moved, records["logits"].value))


def _answer(explanation: Explanation, logits: Tensor) -> str:
    """Return what logits (P, C) predict, token by token, or the number of an output."""
    subject, masked, t = explanation.subject, explanation.decode.masked, explanation.subject.task.tokenizer
    if explanation.is_number or explanation.is_classifier:
        return measure_of_answer(explanation).read(logits, subject.task)[0]
    if masked:
        return filled_answer(subject, explanation.request.text, logits[masked])["headline"]
    best = logits[explanation.answered].argmax(dim=-1).tolist()
    return t.decode(best[:-1] if best[-1:] == [t.eos_id] else best)


SWEEPS: dict[str, Callable[..., Any]] = {
    "parts": _sweep_parts,
    "keys": _sweep_keys,
    "layers": _sweep_layers,
    "contributions": contributions,
    "states": sweep_states,
    "checkpoints": _sweep_checkpoints,
}
"""The sweeps by kind."""
