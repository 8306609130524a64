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
from jaxtyping import Bool, Float

from glassformer.errors import UsageError
from glassformer.explain.attribution import METHODS, Attribution, Method
from glassformer.explain.capture.sites import BLOCKED, Step
from glassformer.explain.edits.effects import measure_of_answer
from glassformer.explain.explanation import Explanation
from glassformer.explain.streams import Stream
from glassformer.utils import plotting
from glassformer.utils.atomic_io import atomic_write_bytes
from glassformer.utils.formatting import shortened

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, QUIET, RULE, PAPER = plotting.INK, plotting.QUIET, plotting.RULE, "#ffffff"
POSITIVE, NEGATIVE = "#d9730d", "#2166c4"
"""Orange and blue, as on the page: distinct with any colour vision, never the only sign."""
WEIGHTS = ["#ffffff", "#cfe3dc", "#86bcab", "#3c9079", "#0b5a47"]
OTHER_SCRIPTS = [
    *("Noto Serif CJK SC", "Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "PingFang SC"),
    *("Hiragino Sans", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic", "WenQuanYi Zen Hei"),
    *("Noto Sans Devanagari", "Noto Sans Thai", "Noto Sans Bengali", "Noto Sans Tamil", "Noto Sans Symbols2"),
    *("Segoe UI Symbol", "Segoe UI Emoji", "Arial Unicode MS"),
]
"""Fallbacks for scripts that the first fonts lack, where installed."""
FIGURES = ("attention", "attribution", "effect")
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
    with plotting.style():
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
        with matplotlib.rc_context(settings):
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


@style()
def draw_attention(
    title: str,
    notes: Sequence[str],
    weights: Float[np.ndarray, "H Q K"],
    names: Sequence[str],
    masked: Bool[np.ndarray, "H Q K"],
    labels: tuple[Sequence[str], Sequence[str]],
) -> Figure:
    """Return a figure of the weights of some heads, side by side on one scale, with tokens where they fit.

    Row 0 is on top; through a masked cell the hatching behind it is seen.
    """
    from matplotlib.colors import LinearSegmentedColormap

    n_heads, *sides = weights.shape
    across, down = min(n_heads, 4), math.ceil(n_heads / 4)
    cell = min(0.26, MAX_SIDE / max(sides)) if n_heads == 1 else (1.55 if n_heads > 2 else 2.4) / max(sides)
    points = min(9.5, 72 * cell * 0.82)
    width, height = MARGIN + across * (cell * sides[1] + 0.4), MARGIN + down * (cell * sides[0] + 0.4)
    figure = new_figure(width, height, title, notes)
    panels = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    # Where cells are too small for all tokens, every n-th, and beside several heads none.
    every = max(1, math.ceil(MIN_FONT_SIZE / points)) if n_heads == 1 or points >= MIN_FONT_SIZE else max(sides)
    ticks = [(range(0, len(texts), every), list(map(printable, texts[::every]))) for texts in labels]
    look: Any = {"fontsize": max(points, MIN_FONT_SIZE), "color": INK}
    mesh: Any = {
        "cmap": LinearSegmentedColormap.from_list("glassformer", WEIGHTS),
        "vmin": 0.0,
        "vmax": max(float(weights.max()), 1e-12),
        "edgecolor": "face",  # against hairlines between cells in PDF viewers
        "linewidth": 0.1,
        "rasterized": math.prod(sides) > MAX_VECTOR_CELLS,
    }
    for axes, name, head in zip(panels.flat, names, np.ma.masked_array(weights, masked), strict=False):
        axes.pcolormesh(*(np.arange(n + 1) - 0.5 for n in sides[::-1]), head, **mesh)
        axes.patch.set(hatch="//////" if np.ma.getmaskarray(head).any() else "", edgecolor="#b9b3a8")
        axes.set(ylim=(sides[0] - 0.5, -0.5), box_aspect=sides[0] / sides[1])
        axes.set_title(name, fontsize=9, color=QUIET, loc="left")
        axes.spines[:].set(visible=True, color=RULE)
        axes.tick_params(length=0, pad=2, top=True, labeltop=True, bottom=False, labelbottom=False)
        axes.set_yticks(*ticks[0], **look)
        axes.set_xticks(*ticks[1], rotation=90, **look)
    for axes in panels.flat[n_heads:]:
        axes.set_visible(False)
    bar = figure.colorbar(panels[0, 0].collections[0], ax=panels, shrink=0.6, aspect=16)
    bar.ax.tick_params(length=0, labelsize=8)
    bar.ax.set_title("weight", fontsize=8, color=QUIET, loc="left")
    figure.draw_without_rendering()  # so that ticks that are created late have this style too
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


def scored_words(streams: Sequence[Stream], attribution: Attribution) -> list[tuple[str, float]]:
    """Return the words that the prediction reads with their scores, in the order of the text."""
    found = []
    for stream in streams:
        of_words: dict[int, float] = {}
        for score, word in zip(attribution.scores[stream.name], stream.words, strict=True):
            of_words[word] = of_words.get(word, 0.0) + score
        texts = attribution.word_texts.get(stream.name, stream.word_texts)
        several = f"  ({stream.name})" if len(streams) > 1 else ""
        found += [(text + several, of_words[i]) for i, text in enumerate(texts) if text]
    return found


@style()
def draw_attribution(streams: Sequence[Stream], attribution: Attribution) -> Figure:
    """Return a figure of the score of each word, and of how faithful their ranking is."""
    words = scored_words(streams, attribution)
    words = _most(words, [score for _, score in words])
    scores = [score for _, score in words]
    pieces = [f"“{c.piece.removeprefix('▁') or '␣'}”" for c in (attribution.target, attribution.foil) if c is not None]
    of_all = f"{_signed(attribution.value)}; all words erased: {_signed(attribution.baseline_value)}"
    notes = [f"{attribution.quantity} = {of_all}; {METHODS[attribution.method]}"]
    tests = {
        "Drop when the top-ranked words are erased": attribution.comprehensiveness,
        "Drop when only they are kept": attribution.sufficiency,
    }
    for meaning, test in tests.items():
        low, mean, high = map(_signed, (test.random_low, test.random_mean, test.random_high))
        rankings = f"Mean of {attribution.n_random} random rankings: {mean} (95% between {low} and {high})"
        notes.append(f"{meaning}: {_signed(test.value)}. {rankings}.")
    if (error := attribution.completeness) is not None:
        off = f"{100 * error.relative:.1f}% of the range"
        notes.append(f"After {error.n_steps} steps the sum of scores is off by {off}.")
    figure, axes = _rows(f"Attribution of {' rather than '.join(pieces)}", notes, [word for word, _ in words])
    colors = [POSITIVE if score > 0 else NEGATIVE for score in scores]
    hatch: Any = ["/////" if score < 0 else "" for score in scores]
    bars = axes.barh(range(len(scores)), scores, height=0.62, edgecolor=PAPER, color=colors, hatch=hatch)
    axes.bar_label(bars, list(map(_signed, scores)), padding=3, fontsize=8.5, color=QUIET)
    axes.axvline(0, color=QUIET, linewidth=0.7)
    axes.set_xticks([])
    axes.margins(x=0.15)
    figure.draw_without_rendering()
    return figure


def _signed(value: float) -> str:
    """Return a number with three significant digits and its sign."""
    text = f"{value:+.3g}" if abs(value) < 1000 else f"{value:+.0f}"
    return (text if float(text) else "0").replace("-", "−")


@style()
def draw_effect(explanation: Explanation) -> Figure:
    """Return a figure of what edits change: of each prediction the logit difference, or the number.

    A ring is without edits, a point with them, blue where another class or token wins or the number falls.
    """
    result = explanation.edited
    if result is None:
        hint = "as in: explain(run, TraceRequest(text, edits=…))"
        raise UsageError("this explanation has no edits whose effect could be drawn", hint)
    explanation.check_has_answer()
    rows, quantity, zero = list[tuple[str, float, float, bool]](), "logit of the token minus logit of its contrast", 0.0
    for e in _most(result.effects, [e.difference_after - e.difference_before for e in result.effects]):
        name = f"{shortened(e.target, 20)} against {shortened(e.contrast, 20)}"
        name = name if e.position is None else f"{e.position}: {name}"
        rows.append((name, e.difference_before, e.difference_after, e.before != e.after))
    if explanation.is_number and explanation.base is not None:
        measure = measure_of_answer(explanation)
        zero, now = (measure.total(e.records) for e in (explanation.base, explanation))
        rows, quantity = [("number", zero, now, now < zero)], "number"
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


class ExplanationPlots:
    """Figures of an explanation, as `explanation.plot`: attention, the weights of words, the effect of edits."""

    def __init__(self, explanation: Explanation) -> None:
        self._explanation, self._records = explanation, explanation.records

    def __repr__(self) -> str:
        return "<figures of an explanation: attention, attribution, effect>"

    def attention(
        self,
        layer: int | None = None,
        head: int | None = None,
        block: Literal["self", "cross"] | None = None,
        stack: Literal["encoder", "decoder"] | None = None,
    ) -> Figure:
        """Return a figure of the attention weights of one head, or of all heads of a layer side by side.

        Args:
            layer: counted from 0; the last by default.
            head: counted from 0; all heads by default.
            block: by default cross-attention if there is any and no stack is given, else self-attention.
            stack: where both have self-attention; the encoder by default.
        """
        found = [s for s in self._records.values() if s.site == "weights"]
        block = block or ("cross" if stack is None and any(s.block == "cross" for s in found) else "self")
        of_block = [s for s in found if (s.block or "self") == block]
        of_stack = stack or next((s.stack for s in of_block), "")
        layers = [s for s in of_block if s.stack == of_stack]
        if not layers:
            where = f" of the {stack}" if stack else ""
            raise UsageError(f"there is no {block} attention{where}", f"there is {', '.join(s.id for s in found)}")
        number = _index(layer, len(layers), "layer")[-1]
        record = layers[number]
        weights = np.asarray(record)
        heads, masked = _index(head, len(weights), "head"), np.zeros(weights.shape, dtype=bool)
        before = record.id.removesuffix("weights")
        if f"{before}mask" in self._records:
            masked |= ~np.asarray(self._records[f"{before}mask"]).astype(bool)
        if f"{before}scores" in self._records:
            masked |= np.asarray(self._records[f"{before}scores"]) < -BLOCKED
        which = f"head {heads[0]}" if len(heads) == 1 else f"all {len(heads)} heads"
        title = f"{of_stack.capitalize()} layer {number}: {block}-attention, {which}"
        rows = "rows: queries, token read → token predicted" if of_stack == "decoder" else "rows: queries"
        notes = [f"{rows}; columns: keys; each row sums to 1{'; hatched: masked or blocked' if masked.any() else ''}"]
        names = [f"head {h}" if len(heads) > 1 else "" for h in heads]
        return draw_attention(title, notes, weights[heads], names, masked[heads], self._labels(record))

    def _labels(self, record: Step) -> tuple[list[str], list[str]]:
        """Return the labels of rows and columns; of a decoder the token that is read and the one predicted."""
        pieces = {stream.name: stream.pieces for stream in self._explanation.streams}
        rows, columns = (pieces[axis.stream or "text"] for axis in record.axes[-2:])
        if record.stack != "decoder":
            return rows, columns
        last = self._explanation.predictions[-1]
        after = [*rows[1:], (last.actual or last.top[0]).piece]
        return [f"{a} → {b}" for a, b in zip(rows, after, strict=True)], columns

    def attribution(self, method: Method = "erase") -> Figure:
        """Return a figure of the attribution of a prediction to the words, by default the one of `attribute`."""
        return draw_attribution(self._explanation.streams, self._explanation.attribute(method))

    def effect(self) -> Figure:
        """Return a figure of what the edits of this explanation change at each position."""
        return draw_effect(self._explanation)


def _index(number: int | None, n: int, name: str) -> list[int]:
    """Return the layer or head that an argument names, or all n for None."""
    if number is None:
        return list(range(n))
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < n:
        raise UsageError(f"there is no {name} {number!r}: they are counted from 0 to {n - 1}")
    return [number]


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
    """Write the figure of one of `FIGURES`; layers and heads are counted from 0."""
    if kind not in FIGURES:
        raise UsageError(f"there is no figure called {kind!r}", f"one of: {', '.join(FIGURES)}")
    arguments = {"attention": (layer, head), "attribution": (method,)}.get(kind, ())
    save(getattr(ExplanationPlots(explanation), kind)(*arguments), path)
