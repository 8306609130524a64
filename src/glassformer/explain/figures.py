"""Figures of a forward pass for papers and slides: attention of one head or of all, word weights, the effect of edits.

Each method of `ExplanationPlots` returns a matplotlib `Figure`, made without pyplot, so that drawing
needs no display. Layers and heads are counted from 0, as in the ids of steps. Orange supports a prediction, blue with
hatching opposes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from glassformer.errors import UsageError
from glassformer.explain.attribution import METHODS, Method
from glassformer.explain.capture.sites import BLOCKED, Step
from glassformer.explain.edits.effects import measure_of_answer
from glassformer.explain.explanation import Explanation
from glassformer.utils import plotting
from glassformer.utils.atomic_io import atomic_write_bytes
from glassformer.utils.formatting import shortened

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, QUIET, RULE, PAPER = plotting.INK, plotting.QUIET, plotting.RULE, "#ffffff"
POSITIVE, NEGATIVE = "#d9730d", "#2166c4"
"""Orange and blue, as on the page: distinct with any colour vision, never the only sign."""
WEIGHTS = "#ffffff #cfe3dc #86bcab #3c9079 #0b5a47".split()
OTHER_SCRIPTS = (
    "Noto Serif CJK SC, Noto Sans CJK SC, Noto Sans CJK JP, Source Han Sans SC, PingFang SC, Hiragino Sans, "
    "Microsoft YaHei, Yu Gothic, Malgun Gothic, WenQuanYi Zen Hei, Noto Sans Devanagari, Noto Sans Thai, "
    "Noto Sans Bengali, Noto Sans Tamil, Noto Sans Symbols2, Segoe UI Symbol, Segoe UI Emoji, Arial Unicode MS"
).split(", ")
"""Fallbacks for scripts that the first fonts lack, where installed."""
METADATA: dict[str, Any] = {"pdf": {"CreationDate": None}, "png": {"Software": None}, "svg": {"Date": None}}
"""Of each format what is left out, so that equal figures give equal bytes."""
WIDTH, ROW, MARGIN = 6.6, 0.22, 1.6
"""Inches: of figures with rows their width and a row; of all figures the room for titles, labels and notes."""
MAX_SIDE, MAX_ROWS = 8.0, 40
"""Longest side of a matrix in inches; most rows of words or positions, those with the largest numbers."""
MIN_FONT_SIZE, MAX_VECTOR_CELLS = 3.6, 64 * 64
"""Smallest legible font size in points; most cells that are drawn as vectors, not as an image."""


@contextmanager
def style() -> Iterator[None]:
    """Return a context in which matplotlib draws in this style, and says nothing."""
    import matplotlib

    settings: Any = {
        "font.family": [*plotting.STYLE["font.family"], *OTHER_SCRIPTS],
        "font.size": 10.0,
        "figure.facecolor": PAPER,
        "axes.facecolor": PAPER,
        "savefig.facecolor": PAPER,
        "axes.grid": False,
        "hatch.linewidth": 0.5,
        "text.parse_math": False,
        # Whole glyphs, so that the text of a file can be searched and copied.
        "pdf.fonttype": 42,
        "svg.fonttype": "none",
        "svg.hashsalt": "glassformer",
    }
    with plotting.style(), matplotlib.rc_context(settings):
        yield


def printable(text: str) -> str:
    """Return a token with "␣" for a space, and control characters as codes: U+0000."""
    symbols = {"▁": "␣", "\n": "↵", "\t": "⇥"}
    return "".join(symbols.get(c, c if c.isprintable() else f"U+{ord(c):04X}") for c in text)


def new_figure(width: float, height: float, title: str, notes: Sequence[str]) -> Figure:
    """Return a figure of a size in inches with a title, and with notes below."""
    from matplotlib.figure import Figure

    figure = Figure((width, height), plotting.DPI, layout="constrained")
    figure.suptitle(printable(title), x=0.0, ha="left", fontsize=13, color=INK)
    figure.supxlabel("\n".join(map(printable, notes)), x=0.0, ha="left", fontsize=9, color=QUIET)
    return figure


def _rows(title: str, notes: Sequence[str], names: Sequence[str]) -> tuple[Figure, Any]:
    """Return a figure with a row for each name, and its axes."""
    figure = new_figure(WIDTH, MARGIN + ROW * len(names), title, notes)
    axes = figure.subplots()
    axes.set_ylim(max(1, len(names)) - 0.5, -0.5)
    axes.set_yticks(range(len(names)), list(map(printable, names)), fontsize=9.5)
    axes.tick_params(axis="y", length=0)
    axes.spines[:].set_visible(False)
    return figure, axes


def _most(rows: Sequence[Any], sizes: Sequence[float]) -> list[Any]:
    """Return the rows with the largest sizes, in their order."""
    kept = sorted(sorted(range(len(rows)), key=lambda i: -abs(sizes[i]))[:MAX_ROWS])
    return [rows[i] for i in kept]


def _signed(value: float) -> str:
    """Return a number with three significant digits and its sign."""
    text = f"{value:+.3g}" if abs(value) < 1000 else f"{value:+.0f}"
    return (text if float(text) else "0").replace("-", "−")


def _index(number: int | None, n: int, name: str) -> list[int]:
    """Return the layer or head that an argument names, or all n for None."""
    if number is None:
        return list(range(n))
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < n:
        raise UsageError(f"there is no {name} {number!r}: they are counted from 0 to {n - 1}")
    return [number]


class ExplanationPlots:
    """Figures of an explanation, as `explanation.plot`: attention, the weights of words, the effect of edits."""

    def __init__(self, explanation: Explanation) -> None:
        self._explanation = explanation

    def __repr__(self) -> str:
        return "<figures of an explanation: attention, attribution, effect>"

    @style()
    def attention(
        self,
        layer: int | None = None,
        head: int | None = None,
        of: Literal["encoder.self", "decoder.self", "decoder.cross"] | None = None,
    ) -> Figure:
        """Return a figure of the attention weights of one head, or of all heads of a layer side by side, on one scale.

        Row 0 is on top; through a masked cell the hatching behind it is seen.

        Args:
            layer: counted from 0; the last by default.
            head: counted from 0; all heads by default.
            of: which attention; by default cross-attention if there is any.
        """
        from matplotlib.colors import LinearSegmentedColormap

        records, found = self._explanation.records, dict[str, list[Step]]()
        for step in records.values():
            if step.site == "weights":
                found.setdefault(f"{step.stack}.{step.block}", []).append(step)
        which = of or ("decoder.cross" if "decoder.cross" in found else next(iter(found), ""))
        if which not in found:
            raise UsageError(f"there is no attention {which!r} here", f"there is {', '.join(found)}")
        number = _index(layer, len(found[which]), "layer")[-1]
        record = found[which][number]
        weights, before = np.asarray(record), record.id.removesuffix("weights")
        heads, hidden = _index(head, len(weights), "head"), np.zeros(weights.shape, dtype=bool)
        if f"{before}mask" in records:
            hidden |= ~np.asarray(records[f"{before}mask"]).astype(bool)
        hidden |= np.asarray(records[f"{before}scores"]) < -BLOCKED
        (rows, columns), sides = self._labels(record), weights.shape[1:]
        cells = np.ma.masked_array(weights, hidden)

        across, down = min(len(heads), 4), math.ceil(len(heads) / 4)
        cell = min(0.26, MAX_SIDE / max(sides)) if len(heads) == 1 else (1.55 if len(heads) > 2 else 2.4) / max(sides)
        points = min(9.5, 72 * cell * 0.82)
        width, height = MARGIN + across * (cell * sides[1] + 0.4), MARGIN + down * (cell * sides[0] + 0.4)
        several = f"head {heads[0]}" if len(heads) == 1 else f"all {len(heads)} heads"
        title = f"{record.stack.capitalize()} layer {number}: {record.block}-attention, {several}"
        of_rows = "queries, token read → token predicted" if record.stack == "decoder" else "queries"
        hatched = "; hatched: masked or blocked" if hidden.any() else ""
        figure = new_figure(width, height, title, [f"rows: {of_rows}; columns: keys; each row sums to 1{hatched}"])
        panels = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
        # Where cells are too small for all tokens, every n-th, and with several heads none.
        alone = len(heads) == 1 or points >= MIN_FONT_SIZE
        every = max(1, math.ceil(MIN_FONT_SIZE / points)) if alone else max(sides)
        look: Any = {"fontsize": max(points, MIN_FONT_SIZE), "color": INK}
        mesh: Any = {
            "cmap": LinearSegmentedColormap.from_list("glassformer", WEIGHTS),
            "vmin": 0.0,
            "vmax": max(float(weights[heads].max()), 1e-12),
            "edgecolor": "face",  # against hairlines between cells in PDF viewers
            "linewidth": 0.1,
            "rasterized": math.prod(sides) > MAX_VECTOR_CELLS,
        }
        for axes, one in zip(panels.flat, heads, strict=False):
            axes.pcolormesh(*(np.arange(n + 1) - 0.5 for n in sides[::-1]), cells[one], **mesh)
            axes.patch.set(hatch="//////" if hidden[one].any() else "", edgecolor="#b9b3a8")
            axes.set(ylim=(sides[0] - 0.5, -0.5), box_aspect=sides[0] / sides[1])
            axes.set_title(f"head {one}" if len(heads) > 1 else "", fontsize=9, color=QUIET, loc="left")
            axes.spines[:].set(visible=True, color=RULE)
            axes.tick_params(length=0, pad=2, top=True, labeltop=True, bottom=False, labelbottom=False)
            axes.set_yticks(range(0, len(rows), every), list(map(printable, rows[::every])), **look)
            axes.set_xticks(range(0, len(columns), every), list(map(printable, columns[::every])), rotation=90, **look)
        for axes in panels.flat[len(heads) :]:
            axes.set_visible(False)
        bar = figure.colorbar(panels[0, 0].collections[0], ax=panels, shrink=0.6, aspect=16)
        bar.ax.tick_params(length=0, labelsize=8)
        bar.ax.set_title("weight", fontsize=8, color=QUIET, loc="left")
        figure.draw_without_rendering()  # so that ticks that are created late have this style too
        return figure

    def _labels(self, record: Step) -> tuple[list[str], list[str]]:
        """Return the labels of rows and columns; of a decoder the token that is read and the one predicted."""
        pieces = {stream.name: stream.pieces for stream in self._explanation.streams}
        rows, columns = (pieces[axis.stream or "text"] for axis in record.axes[-2:])
        if record.stack != "decoder":
            return rows, columns
        last = self._explanation.predictions[-1]
        after = [*rows[1:], (last.actual or last.top[0]).piece]
        return [f"{a} → {b}" for a, b in zip(rows, after, strict=True)], columns

    @style()
    def attribution(self, method: Method = "erase") -> Figure:
        """Return a figure of the score of each word, for the prediction of `attribute`, and how faithful they are."""
        found, streams = self._explanation.attribute(method), self._explanation.streams
        words = list[tuple[str, float]]()
        for stream in streams:
            totals = np.bincount(np.array(stream.words) + 1, found.scores[stream.name], len(stream.word_texts) + 1)[1:]
            texts = found.word_texts[stream.name]
            of = f"  ({stream.name})" if len(streams) > 1 else ""
            words += [(text + of, float(total)) for text, total in zip(texts, totals, strict=True) if text]
        words = _most(words, [score for _, score in words])
        names, scores = [word for word, _ in words], [score for _, score in words]
        of_all = f"{_signed(found.value)}; all words erased: {_signed(found.baseline_value)}"
        notes = [f"{found.quantity} = {of_all}; {METHODS[found.method]}"]
        tests = {"the top-ranked words are erased": found.comprehensiveness, "only they are kept": found.sufficiency}
        for meaning, test in tests.items():
            low, mean, high = map(_signed, (test.random_low, test.random_mean, test.random_high))
            rankings = f"Mean of {found.n_random} random rankings: {mean} (95% between {low} and {high})"
            notes.append(f"Drop when {meaning}: {_signed(test.value)}. {rankings}.")
        if (sums := found.completeness) is not None:
            notes.append(f"After {sums.n_steps} steps the sum of scores is off by {sums.relative:.1%} of the range.")
        pieces = [f"“{c.piece.removeprefix('▁') or '␣'}”" for c in (found.target, found.foil) if c is not None]
        figure, axes = _rows(f"Attribution of {' rather than '.join(pieces)}", notes, names)
        colors = [POSITIVE if score > 0 else NEGATIVE for score in scores]
        hatch: Any = ["/////" if score < 0 else "" for score in scores]
        bars = axes.barh(range(len(scores)), scores, height=0.62, edgecolor=PAPER, color=colors, hatch=hatch)
        axes.bar_label(bars, list(map(_signed, scores)), padding=3, fontsize=8.5, color=QUIET)
        axes.axvline(0, color=QUIET, linewidth=0.7)
        axes.set_xticks([])
        axes.margins(x=0.15)
        figure.draw_without_rendering()
        return figure

    @style()
    def effect(self) -> Figure:
        """Return a figure of what edits change: of each prediction the logit difference, or the number.

        A ring is without edits, a point with them, blue where another class or token wins or the number falls.
        """
        explanation, result = self._explanation, self._explanation.edited
        if result is None or explanation.base is None:
            hint = "as in: explain(run, TraceRequest(text, edits=…))"
            raise UsageError("this explanation has no edits whose effect could be drawn", hint)
        explanation.check_has_answer()
        if explanation.is_number:
            measure = measure_of_answer(explanation)
            zero, now = (measure.total(e.records) for e in (explanation.base, explanation))
            rows, quantity = [("number", zero, now, now < zero)], "number"
        else:
            rows, quantity, zero = [], "logit of the token minus logit of its contrast", 0.0
            for e in _most(result.effects, [e.difference_after - e.difference_before for e in result.effects]):
                name = f"{shortened(e.target, 20)} against {shortened(e.contrast, 20)}"
                name = name if e.position is None else f"{e.position}: {name}"
                rows.append((name, e.difference_before, e.difference_after, e.before != e.after))
        after = result.why_not if result.answer_after is None else result.answer_after
        title, edits = shortened(f"{result.answer_before} → {after}", 70), shortened("; ".join(result.edits), 100)
        notes = [edits, f"{quantity}; ring: without edits, point: with them"]
        figure, axes = _rows(title, notes, [name for name, *_ in rows])
        axes.axvline(zero, color=RULE, linewidth=1)
        for row, (_, before, now, worse) in enumerate(rows):
            colour = NEGATIVE if worse else POSITIVE
            axes.plot([before, now], [row, row], color=colour, linewidth=1.6)
            axes.plot(before, row, "o", markerfacecolor=PAPER, markeredgecolor=QUIET, markersize=5)
            axes.plot(now, row, "o", color=colour, markersize=5)
        figure.draw_without_rendering()
        return figure


@style()
def save(figure: Any, path: Path) -> None:
    """Write a figure as PDF, PNG or SVG, by the suffix; equal figures give equal bytes."""
    kind, buffer = path.suffix.lower()[1:], BytesIO()
    figure.savefig(buffer, format=kind, metadata=METADATA[kind], bbox_inches="tight")
    # Browsers have no STIXGeneral; these fonts have the same widths.
    fonts = b"'STIXGeneral', 'STIX Two Text', 'Times New Roman', "
    atomic_write_bytes(path, buffer.getvalue().replace(b"'STIXGeneral', ", fonts))


def save_figure(
    explanation: Explanation,
    kind: str,
    path: Path,
    *,
    layer: int | None = None,
    head: int | None = None,
    method: Method = "erase",
) -> None:
    """Write the figure "attention", "attribution" or "effect"; layers and heads are counted from 0."""
    plots, arguments = explanation.plot, {"attention": (layer, head), "attribution": (method,), "effect": ()}
    if kind not in arguments:
        raise UsageError(f"there is no figure called {kind!r}", f"one of: {', '.join(arguments)}")
    save(getattr(plots, kind)(*arguments[kind]), path)
