"""Dropout (Srivastava et al. 2014)."""

from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.nn.fused import cpu_dropout


class Dropout(nn.Module):
    """In training, zero each element with probability p and scale the rest by 1 / (1 - p)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0.0 <= p < 1.0:
            raise ValueError(f"dropout must be in [0, 1), not {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return x
        return cpu_dropout(x, self.p) if x.device.type == "cpu" else F.dropout(x, self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}"
