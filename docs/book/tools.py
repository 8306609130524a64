"""What the cells of the book share: printing of small matrices, figures for light and dark pages, expected errors."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import matplotlib
import torch
from drawings import ACCENT, INK, STYLE, draw_mask, draw_values, draw_weights, drawing, plain_axes
from matplotlib.patches import Rectangle
from torch import Tensor

__all__ = ["draw_mask", "draw_weights"]  # drawn in drawings.py, and imported from here by chapters
BOOK = Path(__file__).parent
RESULTS = next(
    p for p in (BOOK / "results" / "all.json", BOOK.parents[1] / "benchmarks" / "results.json") if p.exists()
)
"""Scores of trained recipes with their commands, from which the page of results is written as well."""


def read_record(name: str) -> dict[str, Any]:
    """Return what was recorded of a training that takes too long for a chapter, from results/NAME.json."""
    return json.loads((BOOK / "results" / f"{name}.json").read_text(encoding="utf-8"))


def show_matrix(name: str, x: Tensor, rows: Sequence[str] = (), columns: Sequence[str] = ()) -> None:
    """Print a matrix with its name and shape, and optionally labels of rows and columns."""
    values = [[f"{value:.3f}".rstrip("0").rstrip(".") or "0" for value in row] for row in x.tolist()]
    width = max(len(text) for text in [*columns, *(cell for row in values for cell in row)]) + 2
    label = max((len(row) for row in rows), default=0)
    print(f"{name}  {tuple(x.shape)}")
    if columns:
        print(" " * label + "".join(f"{column:>{width}}" for column in columns))
    for i, row in enumerate(values):
        print((rows[i] if rows else "").rjust(label) + "".join(f"{cell:>{width}}" for cell in row))


def show_trace(records: Mapping[str, Any], *skip: str) -> None:
    """Print the steps of a trace with operation and shape; steps whose ids begin with one of `skip` are left out."""
    shown = [record for id, record in records.items() if not id.startswith(skip)] if skip else [*records.values()]
    widths = [max(len(getattr(record, name)) for record in shown) for name in ("id", "op")]
    for record in shown:
        print(f"{record.id:{widths[0]}}  {record.op:{widths[1]}}  {record.shape}")


def show_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns; the first row is their head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def find_date(run: Any, dates: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], list[str]]:
    """Return the first American date that heads of the encoder decide, and the edits under which it is read otherwise.

    Each head is kept from attending to the tag, token 0, on all dates at once. Where no head alone decides a date, the
    heads under which most dates are lost are blocked together, one more each time: at most 15 passes over the dates,
    whatever the model has learned.

    Raises:
        ValueError: No date is read the British way even without all heads.
    """
    texts = [f"[en_US] {month:02}/{day:02}/2026" for month, day in dates]
    right = [f"2026-{month:02}-{day:02}" for month, day in dates]
    swapped = [f"2026-{day:02}-{month:02}" for month, day in dates]

    def read(edits: list[str]) -> list[str]:
        return [answer["translation"] for answer in run.predict(texts, edits=edits)]

    unchanged = read([])
    n_layers, n_heads = run.config.model.n_layers, run.config.model.n_heads
    edits = [f"encoder.{i}.self.scores[head:{h};key:0]=blocked" for i in range(n_layers) for h in range(n_heads)]
    answers = {(edit,): read([edit]) for edit in edits}
    lost = {edit: sum(a != b for a, b in zip(read, unchanged, strict=True)) for (edit,), read in answers.items()}
    together = sorted(edits, key=lambda edit: -lost[edit])
    for blocked in [(edit,) for edit in edits] + [(*together[:n],) for n in range(2, len(edits) + 1)]:
        changed = answers.get(blocked) or read([*blocked])
        for date, before, after, *both in zip(dates, unchanged, changed, right, swapped, strict=True):
            if [before, after] == both:
                return date, [*blocked]
    raise ValueError("no date is read the British way, whichever heads are kept from the tag")


def recorded_scores(names: Sequence[str]) -> list[list[str]]:
    """Return rows for `show_table` of recorded runs: what they were tested on, score, its spread, and time."""
    recorded = json.loads(RESULTS.read_text(encoding="utf-8"))
    rows = [["test", "score", "95% CI or seeds", "minutes"]]
    for name in names:
        one = recorded[name]
        score, interval = one["score"], one["ci95"]
        scale, unit = (100, "%") if one["metric"] == "accuracy" else (1, "")
        kind = {"bleu": "BLEU", "accuracy": "accuracy", "bits_per_char": "bits per character"}[one["metric"]]
        low, high = interval or (score["min"], score["max"])
        spread = f"{scale * low:.1f} to {scale * high:.1f}" + ("" if interval else f", {score['n']} seeds")
        minutes = f"{one['seconds'] / 60:.0f}"
        rows.append([one["section"], f"{kind} {scale * score['mean']:.1f}{unit}", spread, minutes])
    return rows


def recorded_baselines(name: str) -> list[list[str]]:
    """Return rows for `show_table` of the baselines of a recorded run."""
    recorded = json.loads(RESULTS.read_text(encoding="utf-8"))[name]
    return [["baseline", "score"], *([name, score] for name, score in recorded["baselines"].items())]


@contextmanager
def fails(error: type[BaseException], message: str = "") -> Iterator[None]:
    """Expect an error of this type whose message matches: print its first line, or fail if none is raised."""
    try:
        yield
    except error as raised:
        first = str(raised).split("\n")[0]
        assert re.search(message, str(raised)), f"the message is {first!r}, which does not match {message!r}"
        print(f"{type(raised).__name__}: {first}")
    else:
        raise AssertionError(f"no {error.__name__} was raised")


def draw_tokens(tokens: Sequence[str], ids: Sequence[int], title: str) -> Any:
    """Return a figure of a text's tokens as boxes in a row, each with its id below."""
    widths = [0.17 * max(len(token), len(str(id))) + 0.25 for token, id in zip(tokens, ids, strict=True)]
    with drawing(sum(widths) * 0.8 + 0.3, 1.3) as (figure, axes):
        x = 0.0
        for token, id, width in zip(tokens, ids, widths, strict=True):
            axes.add_patch(Rectangle((x, 0), width - 0.08, 0.6, facecolor="none", edgecolor=ACCENT))
            middle = x + (width - 0.08) / 2
            axes.text(middle, 0.3, token, ha="center", va="center", color=INK, family="monospace")
            axes.text(middle, -0.3, str(id), ha="center", va="center", color=INK, fontsize=9)
            x += width
        axes.set_xlim(-0.05, x)
        axes.set_ylim(-0.5, 0.7)
        axes.axis("off")
        axes.set_title(title, color=INK, fontsize=12, loc="left")
        return figure


def draw_points(points: Tensor, names: Sequence[str], groups: Sequence[str], title: str, axis: str) -> Any:
    """Return a figure of points (N, 2); each group has its own marker and the names of its points next to it. `axis`
    labels both axes, each with its number."""
    with drawing(6.4, 4.2) as (figure, axes):
        for group, marker in zip(dict.fromkeys(groups), "os^Dv", strict=False):
            rows = [i for i, each in enumerate(groups) if each == group]
            colour = ACCENT if marker in "oD" else INK
            axes.scatter(points[rows, 0], points[rows, 1], marker=marker, color=colour, s=26, label=group)
            right, middle = points[rows, 0].max().item(), points[rows, 1].mean().item()
            style = {"textcoords": "offset points", "va": "center", "fontsize": 9}
            axes.annotate("\n".join(names[i] for i in rows), (right, middle), (8, 0), color=INK, **style)
        axes.margins(0.22)
        plain_axes(axes, title, f"{axis} 1", f"{axis} 2")
        legend = axes.legend(frameon=False, labelcolor=INK)
        legend.get_frame().set_edgecolor(INK)
        return figure


def draw_bars(names: Sequence[str], groups: Mapping[str, Sequence[float]], title: str, label: str) -> Any:
    """Return a figure of bars, a row per name and a column of bars per group; a bar of 0 is drawn as a dash."""
    most, size = max(map(max, groups.values())), (2.2 * len(groups) + 1.2, 0.28 * len(names) + 1.1)
    with drawing(*size, 1, len(groups), sharey=True) as (figure, panels):
        for axes, (group, values) in zip(panels.flat, groups.items(), strict=True):
            axes.barh(range(len(names)), values, color=ACCENT, alpha=0.7)
            for i, value in enumerate(values):
                axes.text(value, i, f" {value:.2f}" if value else " –", va="center", color=INK, fontsize=9)
            axes.set_xlim(0, 1.3 * most)
            axes.set_xticks([])
            plain_axes(axes, group, label, "")
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
        figure.suptitle(title, color=INK, fontsize=12, x=0.01, ha="left")
        return figure


def draw_panels(
    panels: Mapping[str, Mapping[str, Sequence[float]]], x: Sequence[float], title: str, rule: float, rule_name: str
) -> Any:
    """Return a figure with a small panel per name, three in a row, each with the same kinds of lines and a rule."""
    n_rows = math.ceil(len(panels) / 3)
    with drawing(7.2, 1.9 * n_rows + 0.5, n_rows, 3, sharex=True, sharey=True) as (figure, grid):
        for axes, (name, lines) in zip(grid.flat, panels.items(), strict=True):
            for (kind, values), style in zip(lines.items(), ("-", "--"), strict=True):
                axes.plot(x, values, style, color=ACCENT if style == "-" else INK, label=kind)
            axes.axhline(rule, color=INK, lw=0.6, ls=(0, (1, 3)))
            axes.set_ylim(0, 2 * rule)
            plain_axes(axes, name, "", "")
        grid.flat[0].legend(frameon=False, labelcolor=INK, fontsize=8, loc="upper right")
        grid.flat[0].annotate(rule_name, (x[-1], rule), (0, -9), textcoords="offset points", color=INK, fontsize=8)
        figure.suptitle(title, color=INK, fontsize=12, x=0.01, ha="left")
        return figure


def draw_lines(
    x: Sequence[float],
    lines: dict[str, Sequence[float]],
    title: str,
    x_label: str,
    y_label: str,
    most: float,
    logarithmic: bool = True,
    names: Sequence[str] = (),
) -> Any:
    """Return a figure of lines with their names at their ends, and a rule at `most`; x may be logarithmic, and `names`
    are written at x instead of its values."""
    with drawing(6.4, 3.2) as (figure, axes):
        for (name, values), style in zip(lines.items(), ("-", "--", ":"), strict=False):
            colour = ACCENT if style == "-" else INK
            axes.plot(x, values, style, color=colour, marker="o", markersize=4)
            axes.annotate(name, (x[-1], values[-1]), (8, 0), textcoords="offset points", color=colour, va="center")
        axes.axhline(most, color=INK, lw=0.6, ls=(0, (1, 3)))
        if logarithmic:
            axes.set_xscale("log", base=2)
            axes.minorticks_off()
        axes.set_xticks(x, names or [f"{value:,}" for value in x])
        axes.set_ylim(0, 1.12 * most)
        plain_axes(axes, title, x_label, y_label)
        return figure


class InlineSvg:
    """A figure as an inline SVG in the text's colour, with a text for those who do not see it; notebooks show it.

    Args:
        figure: figure of matplotlib, drawn in `INK`.
        alt: what the figure shows, as a sentence.
        links: whether boxes with a page lead to it. A large figure without links can be a file, which makes the
            chapter lighter (`docs/light_pages.py`).
    """

    def __init__(self, figure: Any, alt: str, links: bool = True) -> None:
        output = StringIO()
        with matplotlib.rc_context(STYLE):
            figure.savefig(output, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        svg = output.getvalue()
        svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
        svg = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\d\.\d\d)\d+", r"\1", path[0]), svg)  # hundredths of a point
        if not links:
            svg = re.sub(r"</?a\b[^>]*>", "", svg)
        svg = svg.replace(INK, "currentColor")
        label = html.escape(alt, quote=True)
        self.data = svg.replace("<svg", f'<svg role="img" aria-label="{label}" class="figure"', 1)

    def _repr_html_(self) -> str:
        return self.data


class StepFrame:
    """A step of a trained model, with its formula and numbers, which the reader's browser computes again.

    A page shows it as a frame (`docs/light_pages.py`); print and notebooks show the matrix as a figure.

    Args:
        name: a function of `runs`, which returns a trained run.
        text: what the run reads.
        step: id of the step.
        head: head to show, counted from 0.
        more: ids of other steps that the reader can go to.
        options: fields of `DecodeConfig`.
    """

    def __init__(
        self, name: str, text: str, step: str, head: int = 0, more: Sequence[str] = (), **options: Any
    ) -> None:
        import runs
        from step_frame import step_address, step_frame_html

        explanation = getattr(runs, name)().explain(text, **options)
        record = explanation.trace[step]
        self.caption = f"{step} of the model {name!r}, for: {text}"
        page = step_frame_html(explanation, [step, *more], "../../_static/glassformer")
        values = record.value[head] if record.axes[0].name == "head" else record.value
        self.figure = InlineSvg(draw_values(values), f"The values of {self.caption}").data
        self.frame = framed(page, step_address(step, head), self.caption)

    def _repr_html_(self) -> str:
        caption = f"<figcaption>{html.escape(self.caption)}</figcaption>"
        return f'<figure class="step">{self.frame}<div class="step-print">{self.figure}</div>{caption}</figure>'


class LearnFrame(StepFrame):
    """What steps of learning changed: the screen Learn for one parameter, whose update the reader's browser computes.

    Args:
        after: what `run.learn` returned.
        parameter: name of the parameter, of which print shows the change by the last step.
    """

    def __init__(self, after: Any, parameter: str) -> None:
        from step_frame import LEARN_ADDRESS, learn_frame_html

        self.caption = f"Steps on the answer {after.request.answer!r} for: {after.request.text}"
        change = torch.tensor(after[parameter] - after[f"{parameter}.before"])
        title = f"Change of {parameter} by the last step"
        self.figure = InlineSvg(draw_values(change), title).data
        page = learn_frame_html(after, [parameter], "../../_static/glassformer")
        self.frame = framed(page, LEARN_ADDRESS, self.caption)


def framed(page: str, address: str, title: str) -> str:
    """Return the frame of a page, from which `docs/light_pages.py` makes a file."""
    address, page, title = (html.escape(text, quote=True) for text in (address, page, title))
    return (
        f'<iframe class="step-frame" data-address="{address}" srcdoc="{page}" title="{title}" loading="lazy"></iframe>'
    )


def describe(run: Any) -> str:
    """Return task, recipe, size and score of a run, without its path, which differs between machines."""
    return repr(run).partition("': ")[2].rstrip(")")


def versions() -> str:
    """Return the versions that a chapter ran with."""
    import glassformer

    return f"glassformer {glassformer.__version__}, torch {torch.__version__.partition('+')[0]}"
