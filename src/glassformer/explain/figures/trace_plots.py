"""Plot a trace for papers and slides: attention, positions, alignment of a translation.

Each method returns a matplotlib `Figure`. `explanation_plots.py` adds what needs a whole explanation. Layers and heads
are counted from 0, as in the ids of records and in edits. The titles of figures, the page and the flags of the command
line count them from 1: `attention(layer=1)` draws "layer 2".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from jaxtyping import Bool, Float

from glassformer.errors import UsageError
from glassformer.explain.capture.tape import BLOCKED, Step
from glassformer.explain.figures import style as fs

if TYPE_CHECKING:
    from matplotlib.figure import Figure


MAX_SIDE = 8.0
"""Maximum length of the longer side of a matrix, in inches."""

HEADER, FOOTER, MARGIN = 0.72, 0.16, 0.12
"""Inches above the drawing (title and subtitle), below it and on either side."""


def matrix_figure(
    title: str,
    subtitle: str,
    values: Float[np.ndarray, "Q K"],
    masked: Bool[np.ndarray, "Q K"] | None,
    labels: tuple[Sequence[str], Sequence[str]],
    *,
    axis_labels: tuple[str, str] = ("query", "key"),
    mark_maxima: bool = False,
) -> Figure:
    """Return a figure of one matrix of weights, with tokens beside the rows and above the columns."""
    rows, columns = labels
    n_rows, n_columns = values.shape
    cell = min(0.26, MAX_SIDE / max(n_rows, n_columns, 1))
    width, height = cell * n_columns, cell * n_rows
    probe = fs.new_figure(4, 4, "", "")
    points = fs.label_points(cell)
    left = MARGIN + 0.3 + max(fs.text_width(probe, rows, points))
    top = HEADER + 0.22 + max(fs.text_width(probe, columns, points))
    needed = 2 * MARGIN + max(fs.text_width(probe, [title], 13) + fs.text_width(probe, [subtitle], 9.5))
    figure = fs.new_figure(max(left + width + 0.75, needed), top + max(height, 1.0) + FOOTER, title, subtitle)
    axes = fs.inset(figure, left, top, width, height)
    limits = (0.0, max(float(values.max()), 1e-12))
    drawn = fs.draw_matrix(axes, values, limits=limits, masked=masked)
    fs.label_cells(axes, rows, columns, cell)
    axes.set_ylabel(axis_labels[0], color=fs.QUIET, fontsize=8.5, labelpad=4)
    axes.set_xlabel(axis_labels[1], color=fs.QUIET, fontsize=8.5, labelpad=4)
    axes.xaxis.set_label_position("top")
    if mark_maxima:
        maxima = values.argmax(axis=1)
        dark = values[np.arange(n_rows), maxima] > 0.55 * limits[1]
        for shade, colour in ((dark, fs.PAPER), (~dark, fs.INK)):
            axes.scatter(maxima[shade], np.flatnonzero(shade), s=(72 * cell * 0.22) ** 2, color=colour, linewidth=0)
    fs.scale_bar(figure, drawn, (left + width + 0.16, top, 0.09, min(max(height, 0.8), 1.6)), "weight")
    return fs.finish(figure)


def heads_figure(
    title: str,
    subtitle: str,
    weights: Float[np.ndarray, "H Q K"],
    masked: Bool[np.ndarray, "H Q K"] | None,
    labels: tuple[Sequence[str], Sequence[str]],
) -> Figure:
    """Return a figure of the heads of a layer side by side on one scale, with tokens where there is room."""
    n_heads, n_rows, n_columns = weights.shape
    across = min(n_heads, 4)
    down = math.ceil(n_heads / across)
    side = 1.55 if n_heads > 2 else 2.4
    cell = side / max(n_rows, n_columns)
    width, height = cell * n_columns, cell * n_rows
    labelled = fs.label_points(cell) >= fs.MIN_FONT_SIZE
    probe = fs.new_figure(4, 4, "", "")
    points = fs.label_points(cell)
    left = MARGIN + 0.06 + (max(fs.text_width(probe, labels[0], points)) if labelled else 0)
    above = 0.08 + (max(fs.text_width(probe, labels[1], points)) if labelled else 0)
    gap, line = 0.22, 0.24 + above
    needed = 2 * MARGIN + max(fs.text_width(probe, [title], 13) + fs.text_width(probe, [subtitle], 9.5))
    figure = fs.new_figure(
        max(left + across * (width + gap) + 0.55, needed),
        HEADER + down * (line + height + 0.1) + FOOTER,
        title,
        subtitle,
    )
    limits = (0.0, max(float(weights.max()), 1e-12))
    drawn: Any = None
    for head in range(n_heads):
        row, column = divmod(head, across)
        top = HEADER + row * (line + height + 0.1) + line
        axes = fs.inset(figure, left + column * (width + gap), top, width, height)
        drawn = fs.draw_matrix(axes, weights[head], limits=limits, masked=None if masked is None else masked[head])
        axes.set_xticks([])
        axes.set_yticks([])
        if labelled:
            fs.label_cells(axes, labels[0] if column == 0 else [""] * n_rows, labels[1], cell)
        axes.annotate(
            f"head {head + 1}",
            (0, 1),
            (0, 72 * (above + 0.02)),
            xycoords="axes fraction",
            textcoords="offset points",
            fontsize=9,
            color=fs.QUIET,
        )
    box = (left + across * (width + gap) - gap + 0.14, HEADER + line, 0.09, min(max(height, 0.8), 1.6))
    fs.scale_bar(figure, drawn, box, "weight")
    return fs.finish(figure)


def positions_figure(
    title: str, subtitle: str, values: Float[np.ndarray, "L D"], columns: Float[np.ndarray, "L N"], label: str
) -> Figure:
    """Return a figure of the encoding of each position (some `columns` of `values`), and of their cosine similarity."""
    side, left, gap, top = 2.35, 0.62, 1.25, HEADER + 0.28
    figure = fs.new_figure(left + 2 * side + gap + 0.72, top + side + 0.52, title, subtitle)
    limit = max(float(np.abs(columns).max()), 1e-12)
    unit = values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)
    panels = [
        (columns.T, (-limit, limit), label, "value", left),
        (unit @ unit.T, (-1.0, 1.0), "position", "cosine similarity", left + side + gap),
    ]
    for matrix, limits, name, title, x in panels:
        axes = fs.inset(figure, x, top, side, side)
        drawn = fs.draw_matrix(axes, matrix, limits=limits, signed=True)
        axes.set_xlabel("position", color=fs.QUIET, fontsize=9)
        axes.set_ylabel(name, color=fs.QUIET, fontsize=9)
        axes.set_title(title, loc="left", fontsize=9, color=fs.QUIET, pad=5)
        fs.integer_ticks(axes)
        fs.scale_bar(figure, drawn, (x + side + 0.12, top, 0.09, 1.6), "")
    return fs.finish(figure)


Tokens: TypeAlias = Sequence[str] | Mapping[str, Sequence[str]]
"""The tokens of the only stream, or those of each: {"source": […], "target": […]}."""


class TracePlots:
    """Figures of the records of a trace, as `t.plot`.

    Args:
        records: the records by id, as a `Trace` has them.
        tokens: default labels of rows and columns; numbers if None.
        first: the number of the first layer and head in arguments: 0, and 1 for the flags of the command line.
    """

    def __init__(self, records: Mapping[str, Step], tokens: Tokens | None = None, *, first: int = 0) -> None:
        self._records = records
        self._tokens, self._first = tokens, first

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
            block: self-attention or cross-attention; by default cross-attention if the trace holds it and no
                stack is given, else self-attention.
            stack: where both have self-attention; the encoder by default.
            tokens: labels of rows and columns.
        """
        block = block or ("cross" if stack is None and self._has_cross else "self")
        id, number = self._weights_id(block, stack, layer)
        record = self._records[id]
        weights, masked = _head_weights(record), self._masked(id)
        labels = self._labels(record, tokens)
        heads = self._indices(head, len(weights), "head")
        title, subtitle = _attention_title(id, number, block), _attention_subtitle(masked, record.stack)
        with fs.style():
            if len(heads) == 1:
                title += f", head {heads[0] + 1}" if len(weights) > 1 else ""
                of_head = None if masked is None else masked[heads[0]]
                return matrix_figure(title, subtitle, weights[heads[0]], of_head, labels)
            return heads_figure(f"{title}, all {len(weights)} heads", subtitle, weights, masked, labels)

    def positions(self) -> Figure:
        """Return a figure of the position encoding, and of the cosine similarity of any two positions."""
        id = next((i for i in self._records if i == "positions" or i.endswith(".positions")), None)
        if id is not None:
            record = self._records[id]
            values = np.asarray(record)
            if record.attrs.get("scheme") == "sinusoidal":
                columns, label = values[:, 0::2], "pair of features"
                titles = (
                    "Sinusoidal positions",
                    "added to each token; of each pair, sine and cosine, the sine is shown",
                )
            else:
                columns, label = values, "feature"
                titles = "Learned positions", "added to each token, as learned in training"
            with fs.style():
                return positions_figure(*titles, values, columns, label)
        # Reading other records may cost a forward pass.
        queries = (id for id in self._records if id.split(".")[-1] in ("q", "k"))
        rotated = next((self._records[id] for id in queries if self._records[id].op == "rotate"), None)
        if rotated is None:
            raise UsageError("the trace holds no positions to draw", 'a model with positions = "none" has none to show')
        length, width = rotated.shape[-2:]
        frequencies = float(rotated.attrs["base"]) ** (-2 * np.arange(width // 2) / width)
        angles = np.arange(length)[:, None] * frequencies
        both = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
        subtitle = "each pair of features of queries and keys is rotated by an angle; its cosine is shown"
        with fs.style():
            return positions_figure("Rotary positions", subtitle, both, np.cos(angles), "pair of features")

    def alignment(
        self,
        layer: int | None = None,
        head: int | None = None,
        tokens: Tokens | None = None,
        *,
        shifted: bool | None = None,
    ) -> Figure:
        """Return a figure of the cross-attention weights that align target tokens with source tokens.

        The default of `layer` and `shifted` is the reading that agrees best with erasing words, see
        `alignment.Reading`; for a bare trace it is that of the paper (Chen et al. 2020, arXiv 2004.14837): a layer of
        the lower half, the third of six, shifted.

        Args:
            layer: counted from 0.
            head: counted from 0; the mean of all heads by default.
            tokens: tokens by stream.
            shifted: True for the step at which the token is the decoder's input, False for that which predicts it.
        """
        layer, shifted, reason = self._reading(layer, shifted)
        id, number = self._weights_id("cross", None, layer, default_layer=lambda n: (n + 1) // 2 - 1)
        record = self._records[id]
        weights = _head_weights(record)
        if weights.shape[1] < 2:
            raise UsageError("there is nothing to align: the translation has no token")
        heads = self._indices(head, len(weights), "head")
        rows, columns = self._labels(record, tokens)
        # [BOS] is not aligned.
        steps = slice(1, None) if shifted else slice(None, -1)
        masked = self._masked(id)
        step = "for the token read" if shifted else "for the token predicted"
        averaged = f"head {heads[0] + 1}" if len(heads) == 1 else f"mean of {len(heads)} heads"
        with fs.style():
            return matrix_figure(
                "Alignment",
                f"cross-attention of layer {number}, {averaged}, read {step}{reason}; a dot: the largest of a row",
                weights[heads].mean(axis=0)[steps],
                None if masked is None else np.all(masked[heads], axis=0)[steps],
                (rows[steps], columns),
                axis_labels=("token read → token predicted", "source"),
                mark_maxima=True,
            )

    @property
    def _has_cross(self) -> bool:
        return any(id.endswith(".cross.weights") for id in self._records)

    def _reading(self, layer: int | None, shifted: bool | None) -> tuple[int | None, bool, str]:
        """Return the layer as arguments count it, the step to read an alignment from, and the reason in words."""
        return layer, shifted is not False, ""

    def _weights_id(
        self, block: str, stack: str | None, layer: int | None, default_layer: Callable[[int], int] = lambda n: n - 1
    ) -> tuple[str, int]:
        """Return the id of the weights of a layer, and its number from 1; `default_layer` is a function of n."""
        ids: list[str] = []
        for id in self._records:
            parts = id.split(".")
            if parts[-1] == "weights" and (block in parts or not {"self", "cross"} & set(parts)):
                ids.append(id)
        if stack is None and block == "self" and ids:
            stack_ids = [id for id in ids if id.split(".")[0] == ids[0].split(".")[0]]
        else:
            stack_ids = [id for id in ids if stack is None or id.split(".")[0] == stack]
        if not stack_ids:
            where = f" of the {stack}" if stack else ""
            existing = ", ".join(i for i in self._records if i.endswith("weights")) or "no attention weights at all"
            raise UsageError(f"the trace holds no {block} attention{where}", f"it holds {existing}")
        n = len(stack_ids)
        index = default_layer(n) if layer is None else self._indices(layer, n, "layer")[0]
        return stack_ids[index], index + 1

    def _indices(self, number: int | None, n: int, name: str) -> list[int]:
        """Return the index from 0 of a layer or head that an argument names, or all n indices for None."""
        if number is None:
            return list(range(n))
        first, last = self._first, self._first + n - 1
        if not isinstance(number, int) or isinstance(number, bool):
            raise UsageError(f"{name} must be a whole number from {first} to {last}, not {number!r}")
        if not first <= number <= last:
            raise UsageError(f"there is no {name} {number}: they are counted from {first} to {last}")
        return [number - first]

    def _masked(self, id: str) -> np.ndarray | None:
        """Return True for the masked cells, and those blocked by an edit, (H, Q, K); None where there is none."""
        block = id.removesuffix("weights")
        masked = np.zeros(_head_weights(self._records[id]).shape, dtype=bool)
        if f"{block}mask" in self._records:
            masked |= ~np.asarray(self._records[f"{block}mask"]).astype(bool)
        if f"{block}scores" in self._records:
            masked |= np.asarray(self._records[f"{block}scores"]) < -BLOCKED
        return masked if masked.any() else None

    def _row_labels(self, record: Step, texts: list[str]) -> list[str]:
        """Return the labels of rows: of a decoder the token that is read and, behind an arrow, the one predicted."""
        if record.stack != "decoder":
            return texts
        return [f"{text} → {following}" for text, following in zip(texts, self._following(texts), strict=True)]

    def _following(self, texts: list[str]) -> list[str]:
        """Return the token that is predicted at each position of the last stream; "…" where it is not known."""
        return [*texts[1:], "…"]

    def _labels(self, record: Step, tokens: Tokens | None) -> tuple[list[str], list[str]]:
        """Return the labels of rows and columns."""
        tokens = self._tokens if tokens is None else tokens
        labels: list[list[str]] = []
        for axis, size in zip(record.axes[-2:], record.shape[-2:], strict=True):
            texts: Sequence[str] | None = None
            if isinstance(tokens, Mapping):
                texts = tokens.get(axis.stream or "text")
            elif tokens is not None and record.shape[-1] == record.shape[-2]:
                texts = tokens
            if texts is not None and len(texts) != size:
                raise UsageError(
                    f"{len(texts)} tokens were given for {axis.name} of {size}", "give one string per token"
                )
            labels.append(list(texts) if texts is not None else [str(i + 1) for i in range(size)])
        return self._row_labels(record, labels[0]) if tokens is not None else labels[0], labels[1]


def _head_weights(record: Step) -> np.ndarray:
    """Return the weights (H, Q, K) of one text."""
    weights = np.asarray(record)
    if weights.ndim == 2:
        return weights[None]
    if weights.ndim != 3:
        raise UsageError(f"{record.id} holds a batch of {len(weights)} texts", "trace one text to draw it")
    return weights


def _attention_title(id: str, number: int, block: str) -> str:
    stack = id.split(".")[0]
    where = f"{stack.capitalize()} layer" if stack in ("encoder", "decoder") else "Layer"
    return f"{where} {number}: {block}-attention"


def _attention_subtitle(masked: np.ndarray | None, stack: str) -> str:
    rows = "rows: queries, token read → token predicted" if stack == "decoder" else "rows: queries"
    subtitle = f"{rows}; columns: keys; each row sums to 1"
    return subtitle if masked is None or not masked.any() else subtitle + "; hatched: masked or blocked"
