"""What `glassformer explain` prints about edits: their effect, sweeps, and findings that are measured again."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from glassformer.utils import console

logger = logging.getLogger(__name__)

N_KEYS = 15
"""Blocked keys in the table, those with the largest effect."""
Rows = list[tuple[object, ...]]
OF_CHANGES = {"nats": "+.3f", "number": "+.4g"}
"""How a change is written, by its unit: numbers are of any size."""
OF_NUMBER = {
    "log p changes by": "number changes by",
    "off: log p changes by": "off: number changes by",
    "alone: log p changes by": "alone: number changes by",
    "predicts": "number",
}
"""Columns of a number in the place of those of classes and tokens."""
NOT_OF_NUMBER = ("differ", "predictions that differ", "position", "log p of the answer", "rank", "KL")
NOT_OF_NUMBER += ("log p before", "log p after")


def show_effect(explanations: Sequence[Any], edits: Sequence[str], as_json: bool) -> None:
    """Print what the model predicts under edits; the second explanation is that of the text for =B."""
    from glassformer.explain.edits.what_if import what_if

    result = what_if(explanations[0], edits, *explanations[1:])
    traced = explanations[0].together
    if as_json:
        console.write_json(result.to_json() | {"member": None if traced is None else traced.member})
        return
    if traced is not None:
        console.write(f"model {traced.member} of the ensemble, alone")
        console.write(f"together  {traced.answer['headline']}, without edits")
    for text in result.edits:
        console.write(f"edit      {text}" + (" (changes no number)" if text in result.unchanged else ""))
    console.write(f"before    {result.answer_before}")
    console.write(f"after     {result.why_not if result.answer_after is None else result.answer_after}")
    numbers_of = ("log p before", "log p after", "logit difference before", "logit difference after")
    rows: Rows = []
    for effect in result.effects:
        numbers = effect.log_prob_before, effect.log_prob_after, effect.difference_before, effect.difference_after
        at = "" if effect.position is None else str(effect.position)
        rows.append((at, effect.target, effect.before, effect.after, *(f"{number:.3f}" for number in numbers)))
    if rows:  # a vector and a number have no logits
        console.write_table(("position", "token", "before", "after", *numbers_of), rows)


def show_sweep(kind: str, explanations: Sequence[Any], edits: Sequence[str], as_json: bool) -> None:
    """Print a sweep: "states" need a second text, "checkpoints" edits; the others are on top of edits."""
    from glassformer.explain.edits import contributions, states, sweeps
    from glassformer.explain.edits.what_if import with_edits

    first, *others = explanations
    if edits:
        first = with_edits(first, edits, *others, again=False)
    result: Any
    if kind == "checkpoints":
        result = sweeps.sweep_checkpoints(first)
        columns = ("step", "checkpoint", "before", "after", "log p before", "log p after")
        rows = [
            (e.step or 0, e.checkpoint, e.answer_before, e.answer_after)
            + tuple("" if number is None else f"{number:.3f}" for number in (e.log_prob_before, e.log_prob_after))
            for e in result.checkpoints
        ]
    elif kind == "states":
        result = states.sweep_states(first, others[0])
        columns, rows = ("stream", "state", "token", "noising", "denoising"), _state_rows(result, first)
    elif kind == "layers":
        result = states.sweep_layers(first)
        columns = ("stack", "layers", "position", "predicts", "log p of the answer", "rank", "KL")
        rows = _layer_rows(result)
    elif kind == "contributions":
        result = contributions.contributions(first)
        columns = ("part", "direct", "off: the difference falls by")
        sign = OF_CHANGES[result.unit]
        rows = [(p.name, f"{p.direct:{sign}}", "" if p.total is None else f"{p.total:{sign}}") for p in result.parts]
    elif kind == "keys":
        result = sweeps.sweep_keys(first)
        columns = ("edit", "log p changes by", "predictions that differ", "before", "after")
        rows = [
            (*e.edits, f"{e.change:{OF_CHANGES[result.unit]}}", e.n_changed, e.before, e.after)
            for e in result.strongest(N_KEYS)
            if e.change < 0 or result.unit == "number"
        ]
    else:
        result = sweeps.sweep_parts(first)
        columns = ("part", "off: log p changes by", "differ", "before", "after", "alone: log p changes by", "differ")
        rows = [_part_row(part, OF_CHANGES[result.unit]) for part in result.parts]
    if as_json:
        console.write_json(asdict(result))
        return
    if result.unit == "number":
        columns, rows = _of_number(columns, rows)
    if kind == "contributions":
        at = "" if result.position is None else f" at position {result.position}"
        what = f"logit of {result.target!r} minus that of {result.contrast!r}{at}: {result.difference:.3f}"
        of_number = f"{result.target} minus {result.contrast}: {result.difference:+.4g}"
        console.write(of_number if result.unit == "number" else what)
    console.write_table(columns, rows)
    if kind == "contributions":
        console.write(f"the direct contributions sum to the difference within {abs(result.error):.1e}")
    if kind == "parts":
        untrained = f"{result.untrained:{OF_CHANGES[result.unit][1:]}}"
        console.write(f"by comparison, with initial weights: at most {untrained} in size")


def _of_number(columns: Sequence[str], rows: Sequence[tuple[object, ...]]) -> tuple[list[str], Rows]:
    """Return the table of a sweep of a number: without columns about classes and tokens."""
    kept = [i for i, name in enumerate(columns) if name not in NOT_OF_NUMBER]
    return [OF_NUMBER.get(columns[i], columns[i]) for i in kept], [tuple(row[i] for i in kept) for row in rows]


def _part_row(part: Any, sign: str) -> tuple[object, ...]:
    name = part.step if part.head is None else f"{part.step.removesuffix('.weights')}.head{part.head}"
    if part.kind == "heads":
        name = f"{part.step.removesuffix('.weights')}: all heads"
    off = (f"{part.off.change:{sign}}", part.off.n_changed, part.off.before, part.off.after)
    alone = ("", "") if part.alone is None else (f"{part.alone.change:{sign}}", part.alone.n_changed)
    return (name, *off, *alone)


def _state_rows(result: Any, explanation: Any) -> Rows:
    """Return the states that carry some of the answer."""
    pieces = {stream.name: stream.pieces for stream in explanation.streams}
    return [
        (grid.stream, row.state, f"{i} {pieces[grid.stream][i]}", f"{lost:.2f}", f"{back:.2f}")
        for grid in result.grids
        for row in grid.rows
        for i, (lost, back) in enumerate(zip(row.noising, row.denoising, strict=True))
        if lost is not None and back is not None and max(abs(lost), abs(back)) >= 0.05
    ]


def _layer_rows(result: Any) -> Rows:
    if result.unit == "number":
        return [(stack.stack, row.layer, "", *row.tokens, "", "", "") for stack in result.stacks for row in stack.rows]
    return [
        (stack.stack, row.layer, "" if position is None else position, token, f"{log_prob:.3f}", rank, f"{kl:.3f}")
        for stack in result.stacks
        for row in stack.rows
        for position, token, log_prob, rank, kl in zip(
            result.positions, row.tokens, row.log_probs, row.ranks, row.kl, strict=True
        )
    ]


def add_finding(trained: Any, path: Path, explanations: Sequence[Any], edits: Sequence[str]) -> None:
    """Measure edits and add them to a file of findings on the same weights, or begin one."""
    from glassformer.errors import UsageError
    from glassformer.explain.edits.findings import make_finding, read_findings, write_findings
    from glassformer.explain.subject import MODEL, checkpoint_sha256

    weights, findings = read_findings(path) if path.exists() else (None, [])
    if findings and weights != checkpoint_sha256(trained, MODEL):
        raise UsageError(f"{path} holds findings on other weights", "name another file")
    write_findings(path, trained, [*findings, make_finding(explanations[0], edits, *explanations[1:])])
    logger.info(f"written: {path}, {len(findings) + 1} in all")


def check_findings(trained: Any, path: Path, as_json: bool) -> int:
    """Measure the findings of a file again; return 1 if one is not as expected, else 0."""
    from glassformer.explain.edits.findings import differences, measure_again, read_findings
    from glassformer.explain.subject import MODEL, checkpoint_sha256

    weights, findings = read_findings(path)
    same = weights == checkpoint_sha256(trained, MODEL)
    measured = [measure_again(trained, finding) for finding in findings]
    of_numbers = trained.task.decision.sd is not None
    differing = [differences(*pair, of_numbers) for pair in zip(findings, measured, strict=True)]
    failed = sum(map(bool, differing))
    if as_json:
        results = [asdict(now) | {"differences": found} for now, found in zip(measured, differing, strict=True)]
        console.write_json({"same_weights": same, "findings": results})
    else:
        for finding, found in zip(findings, differing, strict=True):
            console.write(f"{'differs' if found else 'holds':8}  {finding.name}")
            for sentence in found:
                console.write(f"          {sentence}")
        console.write(f"{len(measured) - failed} of {len(measured)} findings hold")
    if not same:
        logger.warning(f"the findings of {path} are on other weights than those of {trained.path}")
    return int(failed > 0)
