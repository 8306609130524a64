"""Figures of reports that are not drawn: everything may be called of them, and a file of one pixel stands for each."""

import base64
from collections.abc import Iterator

DOT = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==")
"""A PNG file of one pixel."""


class Undrawn:
    """A figure, its axes, or anything that belongs to them."""

    def __getattr__(self, name: str) -> "Undrawn":
        return self

    __call__ = __getitem__ = lambda self, *_, **__: self

    def __iter__(self) -> Iterator[float]:
        return iter((1.0, 1.0))  # its size


UNDRAWN = {"new_figure": lambda *_, **__: (Undrawn(), Undrawn()), "end_labels": Undrawn(), "png": lambda figure: DOT}
"""What stands in the place of `utils/plotting.py`, whose figures were a tenth of the time of a tiny training."""
