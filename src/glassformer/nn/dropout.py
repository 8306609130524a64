"""Dropout (Srivastava et al. 2014) as a module; how elements are chosen is in `nn/fused/dropout.py`."""

from __future__ import annotations

from torch import Tensor, nn

from glassformer.nn.fused.dropout import dropout


class Dropout(nn.Module):
    """`dropout` while training, nothing otherwise."""

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0.0 <= p < 1.0:
            raise ValueError(f"dropout must be in [0, 1), not {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p) if self.training else x

    def extra_repr(self) -> str:
        return f"p={self.p}"
