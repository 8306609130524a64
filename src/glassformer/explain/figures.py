"""Figures of a forward pass for papers and slides: attention of one head or of all, word weights, the effect of edits.

Each method of `TracePlots` and `ExplanationPlots` returns a matplotlib `Figure`, made without pyplot, so that drawing
needs no display. Layers and heads are counted from 0, as in the ids of steps. Orange supports a prediction, blue with
hatching opposes it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import numpy as np
from jaxtyping import Bool, Float

from glassformer.errors import UsageError
from glassformer.explain.attribution.attribute import Attribution, attribute_fields
from glassformer.explain.attribution.value_function import Method
from glassformer.explain.capture.tape import BLOCKED, Step
from glassformer.explain.edits.measure import base_logits, measure_of_answer
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
FONTS = ["STIXGeneral", "DejaVu Serif", "DejaVu Sans"]
"""Fonts that come with matplotlib."""
OTHER_SCRIPTS = [
    *("Noto Serif CJK SC", "Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "PingFang SC"),
    *("Hiragino Sans", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic", "WenQuanYi Zen Hei"),
    *("Noto Sans Devanagari", "Noto Sans Thai", "Noto Sans Bengali", "Noto Sans Tamil", "Noto Sans Symbols2"),
    *("Segoe UI Symbol", "Segoe UI Emoji", "Arial Unicode MS"),
]
"""Fallbacks for scripts that the first fonts lack, where installed."""
FIGURES = ("attention", "attribution", "effect")
SUFFIXES = (".pdf", ".png", ".svg")
WIDTH, ROW, HEADER, FOOTER, MARGIN = 6.6, 0.22, 0.72, 0.62, 0.12
"""Inches: of figures with rows their width and a row; of all figures what is above, below and beside the drawing."""
MAX_SIDE, MAX_ROWS = 8.0, 40
"""Longest side of a matrix in inches; most rows of words or positions, those with the largest numbers."""
MIN_FONT_SIZE, MAX_VECTOR_CELLS = 3.6, 64 * 64
"""Smallest legible font size in points; most cells that are drawn as vectors, not as an image."""
METHODS = {"erase": "leave-one-out", "integrated_gradients": "integrated gradients"}
Tokens: TypeAlias = Sequence[str] | Mapping[str, Sequence[str]]
"""The tokens of the only stream, or those of each: {"source": […], "target": […]}."""


@contextmanager
def style() -> Iterator[None]:
    """Return a context in which matplotlib draws in this style, and says nothing."""
    with plotting.style():
        import matplotlib

        settings: Any = {
            "font.family": [*FONTS, *OTHER_SCRIPTS],
            "font.size": 10.0,
            "figure.facecolor": PAPER,
            "axes.facecolor": PAPER,
            "savefig.facecolor": PAPER,
            "axes.grid": False,
            "hatch.linewidth": 0.5,
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


def new_figure(width: float, height: float, title: str, subtitle: str) -> Figure:
    """Return a figure of a size in inches, wide enough for its title and its muted subtitle, both flush left."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=plotting.DPI)
    FigureCanvasAgg(figure)
    needed = 2 * MARGIN + max(*_widths(figure, [title], 13), *_widths(figure, [subtitle], 9.5))
    figure.set_size_inches(max(width, needed), height)
    for drop, text, size, colour in ((0.24, title, 13, INK), (0.46, subtitle, 9.5, QUIET)):
        place = MARGIN / figure.get_size_inches()[0], 1 - drop / height
        figure.text(*place, printable(text), fontsize=size, color=colour, va="center", parse_math=False)
    return figure


def _widths(figure: Any, texts: Sequence[str], points: float) -> list[float]:
    """Return the widths of texts in inches."""
    from matplotlib.font_manager import FontProperties

    font, renderer = FontProperties(size=points), figure.canvas.get_renderer()
    return [renderer.get_text_width_height_descent(printable(t), font, ismath=False)[0] / figure.dpi for t in texts]


def _inset(figure: Any, left: float, top: float, width: float, height: float) -> Any:
    """Return new axes at a position in inches from the upper left corner of the figure."""
    across, down = figure.get_size_inches()
    return figure.add_axes((left / across, 1 - (top + height) / down, width / across, height / down))


def _draw_matrix(axes: Any, values: np.ndarray, largest: float, masked: np.ndarray | None) -> Any:
    """Draw a matrix of weights as coloured cells, row 0 on top, and hatch the masked ones."""
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import LinearSegmentedColormap

    n_rows, n_columns = values.shape
    cells = np.ma.masked_array(values, masked) if masked is not None else values
    drawn = axes.pcolormesh(
        *(np.arange(n + 1) - 0.5 for n in (n_columns, n_rows)),
        cells,
        cmap=LinearSegmentedColormap.from_list("glassformer", WEIGHTS),
        vmin=0.0,
        vmax=largest,
        edgecolor="face",  # against hairlines between cells in PDF viewers
        linewidth=0.1,
        rasterized=values.size > MAX_VECTOR_CELLS,
    )
    axes.set_ylim(n_rows - 0.5, -0.5)
    axes.spines[:].set_visible(True)
    axes.spines[:].set_color(RULE)
    axes.tick_params(length=0, pad=2)
    if masked is not None and masked.any():
        boxes = [
            [(x - 0.5, y - 0.5), (x + 0.5, y - 0.5), (x + 0.5, y + 0.5), (x - 0.5, y + 0.5)]
            for y, x in np.argwhere(masked)
        ]
        look: Any = {"facecolor": "none", "edgecolor": "#b9b3a8", "hatch": "//////", "linewidth": 0}
        axes.add_collection(PolyCollection(boxes, **look), autolim=False)
    return drawn


def _label_cells(axes: Any, rows: Sequence[str], columns: Sequence[str], points: float) -> None:
    """Write tokens beside rows and above columns, only every n-th where cells are too small for all."""
    every = 1 if points >= MIN_FONT_SIZE else math.ceil(MIN_FONT_SIZE / points)
    options: Any = {"fontsize": max(points, MIN_FONT_SIZE), "color": INK, "parse_math": False}
    axes.set_yticks(range(0, len(rows), every), [printable(t) for t in rows[::every]], **options)
    axes.xaxis.tick_top()
    axes.set_xticks(range(0, len(columns), every), [printable(t) for t in columns[::every]], rotation=90, **options)


def draw_attention(
    title: str,
    subtitle: str,
    weights: Mapping[str, Float[np.ndarray, "Q K"]],
    masked: Sequence[Bool[np.ndarray, "Q K"] | None],
    labels: tuple[Sequence[str], Sequence[str]],
) -> Figure:
    """Return a figure of weights by the name of their head, side by side on one scale, with tokens where they fit."""
    n_heads, (n_rows, n_columns) = len(weights), next(iter(weights.values())).shape
    across = min(n_heads, 4)
    cell = (1.55 if n_heads > 2 else 2.4) / max(n_rows, n_columns)
    cell = min(0.26, MAX_SIDE / max(n_rows, n_columns)) if n_heads == 1 else cell
    points = min(9.5, 72 * cell * 0.82)
    written = labels if n_heads == 1 or points >= MIN_FONT_SIZE else ([""], [""])
    width, height = cell * n_columns, cell * n_rows
    probe = new_figure(1, 1, "", "")
    left, above = (0.2 + max(_widths(probe, texts, max(points, MIN_FONT_SIZE))) for texts in written)
    line = height + above + 0.3
    full = left + across * (width + 0.22) + 0.6, HEADER + math.ceil(n_heads / across) * line + 0.3
    figure, drawn = new_figure(*full, title, subtitle), cast(Any, None)
    largest = max(*(float(each.max()) for each in weights.values()), 1e-12)
    for i, (name, values) in enumerate(weights.items()):
        row, column = divmod(i, across)
        axes = _inset(figure, left + column * (width + 0.22), HEADER + row * line + above + 0.24, width, height)
        drawn = _draw_matrix(axes, values, largest, masked[i])
        axes.set_xticks([])
        axes.set_yticks([])
        if written is labels:
            _label_cells(axes, labels[0] if column == 0 else [], labels[1], points)
        place: Any = {"xycoords": "axes fraction", "textcoords": "offset points", "color": QUIET, "fontsize": 9}
        axes.annotate(name, (0, 1), (0, 72 * above), **place)
    bar_place = left + across * (width + 0.22) - 0.08, HEADER + above + 0.24, 0.09, min(max(height, 0.8), 1.6)
    bar = figure.colorbar(drawn, cax=_inset(figure, *bar_place))
    bar.ax.tick_params(length=0, labelsize=8, pad=2)
    bar.ax.set_title("weight", fontsize=8, color=QUIET, loc="left", pad=8)
    figure.draw_without_rendering()  # so that ticks that are created late have this style too
    return figure


def _rows(title: str, subtitle: str, names: Sequence[str], notes: Sequence[str]) -> tuple[Figure, Any]:
    """Return a figure with a row for each name, and its axes; the notes stand below."""
    height = HEADER + ROW * max(1, len(names)) + FOOTER + 0.19 * len(notes)
    figure = new_figure(WIDTH, height, title, subtitle)
    left = min(3.0, 0.25 + max(_widths(figure, [*names, ""], 9.5)))
    axes = _inset(figure, left, HEADER, WIDTH - left - 0.5, ROW * max(1, len(names)))
    axes.set_ylim(max(1, len(names)) - 0.5, -0.5)
    axes.set_yticks(range(len(names)), [printable(name) for name in names], fontsize=9.5, parse_math=False)
    axes.tick_params(axis="y", length=0)
    axes.spines[:].set_visible(False)
    for i, note in enumerate(notes):
        place = MARGIN / figure.get_size_inches()[0], (0.12 + 0.19 * (len(notes) - 1 - i)) / height
        figure.text(*place, note, fontsize=8.5, color=QUIET, va="center", parse_math=False)
    return figure, axes


def _most(rows: Sequence[Any], sizes: Sequence[float]) -> list[Any]:
    """Return the rows with the largest sizes, in their order."""
    kept = sorted(sorted(range(len(rows)), key=lambda i: -abs(sizes[i]))[:MAX_ROWS])
    return [rows[i] for i in kept]


def scored_words(streams: Sequence[Stream], attribution: Attribution) -> list[tuple[str, float]]:
    """Return the words that the prediction reads with their scores, in the order of the text."""
    found = []
    for stream in streams:
        scores, several = attribution.scores[stream.name], f"  ({stream.name})" if len(streams) > 1 else ""
        for i, text in enumerate(attribution.word_texts.get(stream.name, stream.word_texts)):
            if text:
                found.append(
                    (text + several, sum(s for s, word in zip(scores, stream.words, strict=True) if word == i))
                )
    return found


def draw_attribution(streams: Sequence[Stream], attribution: Attribution) -> Figure:
    """Return a figure of the score of each word, and of how faithful their ranking is."""
    words = scored_words(streams, attribution)
    words = _most(words, [score for _, score in words])
    names = [f"“{c.piece.removeprefix('▁') or '␣'}”" for c in (attribution.target, attribution.foil) if c is not None]
    of_all = f"{_signed(attribution.value)}; all words erased: {_signed(attribution.baseline_value)}"
    notes = [
        f"{meaning}: {_signed(test.value)}. Mean of {attribution.n_random} random rankings: "
        f"{_signed(test.random_mean)} (95% between {_signed(test.random_low)} and {_signed(test.random_high)})."
        for meaning, test in (
            ("Drop when the top-ranked words are erased", attribution.comprehensiveness),
            ("Drop when only they are kept", attribution.sufficiency),
        )
    ]
    if (error := attribution.completeness) is not None:
        off = f"{100 * error.relative:.1f}% of the range"
        notes.append(f"After {error.n_steps} steps the sum of scores is off by {off}.")
    title, subtitle = f"Attribution of {' rather than '.join(names)}", f"{attribution.quantity} = {of_all}"
    with style():
        figure, axes = _rows(title, f"{subtitle}; {METHODS[attribution.method]}", [word for word, _ in words], notes)
        scores = [score for _, score in words]
        colours = [POSITIVE if score > 0 else NEGATIVE for score in scores]
        for bar, score in zip(axes.barh(range(len(scores)), scores, height=0.62, color=colours), scores, strict=True):
            bar.set_hatch("/////" if score < 0 else "")
            bar.set_edgecolor(PAPER)
        axes.bar_label(axes.containers[0], [_signed(s) for s in scores], padding=3, fontsize=8.5, color=QUIET)
        axes.axvline(0, color=QUIET, linewidth=0.7)
        axes.set_xticks([])
        axes.margins(x=0.15)
        figure.draw_without_rendering()
    return figure


def _signed(value: float) -> str:
    """Return a number with three significant digits and its sign."""
    text = f"{value:+.3g}" if abs(value) < 1000 else f"{value:+.0f}"
    return (text if float(text) else "0").replace("-", "−")


def draw_effect(explanation: Explanation) -> Figure:
    """Return a figure of what edits change: of each prediction the logit difference, or the number.

    A ring is without edits, a point with them, blue where another class or token wins or the number falls.
    """
    result = explanation.edited
    if result is None:
        hint = "as in: explain(run, TraceRequest(text, edits=…))"
        raise UsageError("this explanation has no edits whose effect could be drawn", hint)
    explanation.check_has_answer()
    rows = [
        (
            f"{e.position}: "[: 0 if e.position is None else None] + _pair(e.target, e.contrast),
            (e.difference_before, e.difference_after),
            e.before != e.after,
        )
        for e in _most(result.effects, [e.difference_after - e.difference_before for e in result.effects])
    ]
    quantity, zero = "logit of the token minus logit of its contrast", 0.0
    if explanation.is_number and explanation.base is not None:
        measure = measure_of_answer(explanation)
        numbers = [measure.of(base_logits(e)).item() for e in (explanation.base, explanation)]
        rows, quantity, zero = [("number", numbers, numbers[1] < numbers[0])], "number", numbers[0]
    after = result.why_not if result.answer_after is None else result.answer_after
    title, edits = shortened(f"{result.answer_before} → {after}", 70), shortened("; ".join(result.edits), 100)
    with style():
        figure, axes = _rows(title, edits, [name for name, *_ in rows], [])
        axes.axvline(zero, color=RULE, linewidth=1)
        for row, (_, (before, now), worse) in enumerate(rows):
            colour = NEGATIVE if worse else POSITIVE
            axes.plot([before, now], [row, row], color=colour, linewidth=1.6)
            axes.plot(before, row, "o", markerfacecolor=PAPER, markeredgecolor=QUIET, markersize=5)
            axes.plot(now, row, "o", color=colour, markersize=5)
        axes.set_xlabel(f"{quantity}; ring: without edits, point: with them")
        figure.draw_without_rendering()
    return figure


def _pair(target: str, contrast: str) -> str:
    return f"{shortened(target, 20)} against {shortened(contrast, 20)}"


class TracePlots:
    """Figures of the records of a trace: `TracePlots(t).attention(layer=1)`; `tokens` label rows and columns."""

    def __init__(self, records: Mapping[str, Step], tokens: Tokens | None = None) -> None:
        self._records, self._tokens = records, tokens

    def attention(
        self,
        layer: int | None = None,
        head: int | None = None,
        block: Literal["self", "cross"] | None = None,
        stack: Literal["encoder", "decoder"] | None = None,
        tokens: Tokens | None = None,
    ) -> Figure:
        """Return a figure of the attention weights of one head, or of all heads of a layer side by side.

        Args:
            layer: counted from 0; the last by default.
            head: counted from 0; all heads by default.
            block: by default cross-attention if the trace holds it and no stack is given, else self-attention.
            stack: where both have self-attention; the encoder by default.
            tokens: labels of rows and columns.
        """
        found = [s for s in self._records.values() if s.site == "weights"]
        block = block or ("cross" if stack is None and any(s.block == "cross" for s in found) else "self")
        of_block = [s for s in found if (s.block or "self") == block]
        stack_name = stack or next((s.stack for s in of_block), "")
        layers = [s for s in of_block if s.stack == stack_name]
        if not layers:
            existing = ", ".join(s.id for s in found) or "no attention weights at all"
            of_stack = f" of the {stack}" if stack else ""
            raise UsageError(f"the trace holds no {block} attention{of_stack}", f"it holds {existing}")
        number = _index(layer, len(layers), "layer")[-1]
        record = layers[number]
        weights = np.asarray(record)
        if weights.ndim != 3:
            raise UsageError(f"{record.id} holds a batch of {len(weights)} texts", "trace one text to draw it")
        heads = _index(head, len(weights), "head")
        masked = self._masked(record, weights.shape)
        where = f"{stack_name.capitalize()} layer {number}: {block}-attention"
        which = f", head {heads[0]}" if len(heads) == 1 else f", all {len(heads)} heads"
        rows = "rows: queries, token read → token predicted" if stack_name == "decoder" else "rows: queries"
        hatched = "" if masked is None else "; hatched: masked or blocked"
        subtitle = f"{rows}; columns: keys; each row sums to 1{hatched}"
        names = {f"head {h}" if len(heads) > 1 else "": weights[h] for h in heads}
        of_heads = [None if masked is None else masked[h] for h in heads]
        with style():
            return draw_attention(where + which, subtitle, names, of_heads, self._labels(record, tokens))

    def _masked(self, weights: Step, shape: tuple[int, ...]) -> np.ndarray | None:
        """Return True for the masked cells, and those blocked by an edit, (H, Q, K); None where there is none."""
        block, masked = weights.id.removesuffix("weights"), np.zeros(shape, dtype=bool)
        if f"{block}mask" in self._records:
            masked |= ~np.asarray(self._records[f"{block}mask"]).astype(bool)
        if f"{block}scores" in self._records:
            masked |= np.asarray(self._records[f"{block}scores"]) < -BLOCKED
        return masked if masked.any() else None

    def _following(self, texts: list[str]) -> list[str]:
        """Return the token that is predicted at each position of the last stream; "…" where it is not known."""
        return [*texts[1:], "…"]

    def _labels(self, record: Step, tokens: Tokens | None) -> tuple[list[str], list[str]]:
        """Return the labels of rows and columns; of a decoder the token that is read and the one predicted."""
        tokens = self._tokens if tokens is None else tokens
        labels: list[list[str]] = []
        for axis, size in zip(record.axes[-2:], record.shape[-2:], strict=True):
            texts = tokens.get(axis.stream or "text") if isinstance(tokens, Mapping) else tokens
            if texts is not None and len(texts) != size:
                raise UsageError(f"{len(texts)} tokens were given for {axis.name} of {size}", "give one per token")
            labels.append(list(map(str, range(size))) if texts is None else [*texts])
        if tokens is not None and record.stack == "decoder":
            labels[0] = [f"{a} → {b}" for a, b in zip(labels[0], self._following(labels[0]), strict=True)]
        return labels[0], labels[1]


class ExplanationPlots(TracePlots):
    """Figures of an explanation, as `explanation.plot`: with tokens as labels, attributions, the effect of edits."""

    def __init__(self, explanation: Explanation) -> None:
        super().__init__(explanation.records, {stream.name: stream.pieces for stream in explanation.streams})
        self._explanation = explanation

    def __repr__(self) -> str:
        return f"<Figures of {self._explanation!r}>"

    def _following(self, texts: list[str]) -> list[str]:
        last = self._explanation.predictions[-1]
        return [*texts[1:], (last.actual or last.top[0]).piece]

    def attribution(self, method: Method = "erase", *, attribution: Attribution | None = None) -> Figure:
        """Return a figure of the attribution of a prediction to the words, by default the one of `attribute`."""
        attribution = attribution or attribute_fields(self._explanation, method=method)
        return draw_attribution(self._explanation.streams, attribution)

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


def check_suffix(path: Path) -> None:
    """Raise UsageError for a file name of another format, before anything is drawn."""
    if path.suffix.lower() not in SUFFIXES:
        message = f"a figure is written as {', '.join(SUFFIXES)}; {path.name} is none of them"
        raise UsageError(message, f"for example: {path.with_suffix('.pdf').name}")


def save(figure: Any, path: Path) -> None:
    """Write a figure as PDF, PNG or SVG, by the suffix; equal figures give equal bytes."""
    check_suffix(path)
    kind, buffer = path.suffix.lower()[1:], BytesIO()
    metadata: dict[str, Any] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {"Software": None}}
    with style(), warnings.catch_warnings():
        figure.savefig(buffer, format=kind, metadata=metadata[kind])
    data = buffer.getvalue()
    # Browsers have no STIXGeneral; these fonts have the same widths.
    data = data.replace(b"'STIXGeneral', ", b"'STIXGeneral', 'STIX Two Text', 'Times New Roman', ")
    atomic_write_bytes(path, data)


def save_figure(
    explanation: Explanation,
    kind: str,
    path: Path,
    *,
    layer: int | None = None,
    head: int | None = None,
    method: Method = "erase",
) -> None:
    """Write one of `FIGURES`; layers and heads are counted from 0."""
    check_suffix(path)
    if kind not in FIGURES:
        raise UsageError(f"there is no figure called {kind!r}", f"one of: {', '.join(FIGURES)}")
    arguments = {"attention": (layer, head), "attribution": (method,)}.get(kind, ())
    save(getattr(ExplanationPlots(explanation), kind)(*arguments), path)
