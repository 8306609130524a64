"""Figures of a forward pass for papers and slides: attention, positions, alignment of a translation.

Each method returns a matplotlib `Figure`, to be shown, changed or saved. How they look is in
`style.py`; what knows a whole explanation is in `explanation_plots.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from glassformer.errors import UsageError
from glassformer.explain.capture.records import Record
from glassformer.explain.figures import style as fs
from glassformer.explain.figures.matrix_figures import one_matrix, positions_and_likeness, small_multiples

Tokens: TypeAlias = Sequence[str] | Mapping[str, Sequence[str]]
"""The pieces of the only stream, or those of each: {"source": […], "target": […]}."""


class TracePlots:
    """`t.plot`: figures of the records of a trace.

    Args:
        records: by id, as a `Trace` has them.
        tokens: pieces to write beside rows and columns where a method is given none; numbers otherwise.
    """

    def __init__(self, records: Mapping[str, Record], tokens: Tokens | None = None) -> None:
        self._records = records
        self._tokens = tokens

    def attention(
        self,
        layer: int | None = None,
        head: int | None = None,
        block: Literal["self", "cross"] | None = None,
        stack: Literal["encoder", "decoder"] | None = None,
        tokens: Tokens | None = None,
    ) -> Any:
        """Attention weights of one head, or of all heads of a layer side by side.

        Args:
            layer: counted from 1; the last when absent.
            head: counted from 1; all heads when absent.
            block: self-attention or cross-attention; when absent cross-attention if the trace holds it and no
                stack is named, else self-attention.
            stack: where there is self-attention in both: the encoder's when absent.
            tokens: pieces to write beside rows and columns.

        Raises:
            UsageError: the trace holds no such layer or head.
        """
        block = block or ("cross" if stack is None and self._has_cross else "self")
        id, number = self._weights_id(block, stack, layer)
        record = self._records[id]
        weights, masked = _one_text(record), self._masked(id)
        names = self._names(record, tokens)
        heads = _chosen(head, len(weights), "head")
        title, subtitle = _headline(id, number, block), _attention_words(masked)
        if len(heads) == 1:
            title += f", head {heads[0] + 1}" if len(weights) > 1 else ""
            with fs.style():
                return one_matrix(title, subtitle, weights[heads[0]], masked, names)
        with fs.style():
            return small_multiples(f"{title}, all {len(weights)} heads", subtitle, weights, masked, names)

    def positions(self) -> Any:
        """What the model is told about positions, and how alike it makes two of them.

        Raises:
            UsageError: the trace holds no positions.
        """
        id = next((i for i in self._records if i == "positions" or i.endswith(".positions")), None)
        if id is not None:
            record = self._records[id]
            values = np.asarray(record)
            if record.attrs.get("scheme") == "sinusoidal":
                shown, of = values[:, 0::2], "pair of features"
                words = (
                    "Sinusoidal positions",
                    "added to each token; of each pair, sine and cosine, the sine is shown",
                )
            else:
                shown, of = values, "feature"
                words = "Learned positions", "added to each token, as training left them"
            with fs.style():
                return positions_and_likeness(*words, values, shown, of)
        rotated = next((r for r in _by_op(self._records, "rotate") if "base" in r.attrs), None)
        if rotated is None:
            raise UsageError("the trace holds no positions to draw", 'a model with positions = "none" has none to show')
        length, width = rotated.shape[-2:]
        speeds = float(rotated.attrs["base"]) ** (-2 * np.arange(width // 2) / width)
        angles = np.arange(length)[:, None] * speeds
        both = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
        subtitle = "each pair of features of queries and keys is turned by an angle; its cosine is shown"
        with fs.style():
            return positions_and_likeness("Rotary positions", subtitle, both, np.cos(angles), "pair of features")

    def alignment(
        self,
        layer: int | None = None,
        head: int | None = None,
        tokens: Tokens | None = None,
        *,
        shifted: bool | None = None,
    ) -> Any:
        """Which source tokens each target token was aligned with, by cross attention: not why it was written.

        An explanation chooses the layer and the step that agree best with erasing, where none is named; see
        `alignment.Reading`. A bare trace takes the choice of the paper (Chen et al. 2020, arXiv 2004.14837):
        a layer of the lower half, the third of six, and `shifted`.

        Args:
            layer: counted from 1.
            head: counted from 1; the mean of all heads when absent.
            tokens: pieces by stream.
            shifted: read the step at which the token is the decoder's input, not the one that predicted it.

        Raises:
            UsageError: the trace holds no cross attention, or no such layer or head.
        """
        layer, shifted, why = self._reading(layer, shifted)
        id, number = self._weights_id("cross", None, layer, of_all=lambda n: (n + 1) // 2)
        record = self._records[id]
        weights = _one_text(record)
        if weights.shape[1] < 2:
            raise UsageError("there is nothing to align: the translation holds no token")
        heads = _chosen(head, len(weights), "head")
        rows, columns = self._names(record, tokens)
        read = slice(1, None) if shifted else slice(None, -1)  # [BOS] itself is no word of the translation
        masked = self._masked(id)
        where = "where the token is the decoder's input" if shifted else "where the token was predicted"
        of = f"head {heads[0] + 1}" if len(heads) == 1 else f"mean of {len(heads)} heads"
        with fs.style():
            return one_matrix(
                "Alignment",
                f"cross-attention of layer {number}, {of}, read {where}{why}; a dot: the largest of a row",
                weights[heads].mean(axis=0)[read],
                None if masked is None else masked[read],
                (rows[1:], columns),
                words=("translation", "source"),
                best=True,
            )

    @property
    def _has_cross(self) -> bool:
        return any(id.endswith(".cross.weights") for id in self._records)

    def _reading(self, layer: int | None, shifted: bool | None) -> tuple[int | None, bool, str]:
        """The layer, counted from 1, and the step at which an alignment is read, and words on the choice."""
        return layer, shifted is not False, ""

    def _weights_id(
        self, block: str, stack: str | None, layer: int | None, of_all: Callable[[int], int] = lambda n: n
    ) -> tuple[str, int]:
        """The id of the attention weights that were asked for, and the number of their layer.

        Args:
            of_all: the layer of n when `layer` is absent.
        """
        found: list[str] = []
        for id in self._records:
            parts = id.split(".")
            if parts[-1] == "weights" and (block in parts or not {"self", "cross"} & set(parts)):
                found.append(id)
        stacks = [id for id in found if stack is None or id.split(".")[0] == stack]
        if stack is None and block == "self":  # the encoder's, where there are both
            first = found[0].split(".")[0] if found else ""
            stacks = [id for id in found if id.split(".")[0] == first]
        if not stacks:
            where = f" of the {stack}" if stack else ""
            held = ", ".join(i for i in self._records if i.endswith("weights")) or "no attention weights at all"
            raise UsageError(f"the trace holds no {block} attention{where}", f"it holds {held}")
        index = _chosen(of_all(len(stacks)) if layer is None else layer, len(stacks), "layer")[0]
        return stacks[index], index + 1

    def _masked(self, id: str) -> np.ndarray | None:
        """Which cells may not be attended to, as (Q, K); None where everything may."""
        mask_id = id.removesuffix("weights") + "mask"
        if mask_id not in self._records:
            return None
        may = np.asarray(self._records[mask_id]).astype(bool)
        return np.broadcast_to(~may, self._records[id].shape[-2:])

    def _names(self, record: Record, given: Tokens | None) -> tuple[list[str], list[str]]:
        """What to write beside rows and above columns."""
        given = self._tokens if given is None else given
        names: list[list[str]] = []
        for axis, size in zip(record.axes[-2:], record.shape[-2:], strict=True):
            pieces: Sequence[str] | None = None
            if isinstance(given, Mapping):
                pieces = given.get(axis.stream or "text")
            elif given is not None and record.shape[-1] == record.shape[-2]:
                pieces = given
            if pieces is not None and len(pieces) != size:
                raise UsageError(f"{len(pieces)} tokens were given for {axis.name} of {size}", "give one piece a token")
            names.append(list(pieces) if pieces is not None else [str(i + 1) for i in range(size)])
        return names[0], names[1]


def _one_text(record: Record) -> np.ndarray:
    """Weights (H, Q, K) of one text."""
    weights = np.asarray(record)
    if weights.ndim == 2:
        return weights[None]
    if weights.ndim != 3:
        raise UsageError(f"{record.id} holds a batch of {len(weights)} texts", "trace one text to draw it")
    return weights


def _chosen(number: int | None, n: int, what: str) -> list[int]:
    """The 0-based index of a number counted from 1, or all of them."""
    if number is None:
        return list(range(n))
    if not 1 <= number <= n:
        raise UsageError(f"there is no {what} {number}: they are counted from 1 to {n}")
    return [number - 1]


def _by_op(records: Mapping[str, Record], op: str) -> list[Record]:
    """The first record of an operation, looked for where it costs nothing: by the ends of ids."""
    for id in records:
        if id.split(".")[-1] in ("q", "k") and records[id].op == op:
            return [records[id]]
    return []


def _headline(id: str, number: int, block: str) -> str:
    stack = id.split(".")[0]
    where = f"{stack.capitalize()} layer" if stack in ("encoder", "decoder") else "Layer"
    return f"{where} {number}: {block}-attention"


def _attention_words(masked: np.ndarray | None) -> str:
    words = "each row is a token that looks, each column a token looked at; a row sums to 1"
    return words if masked is None or not masked.any() else words + "; hatched: masked"
