"""Normalisation of each token over its features."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F


class LayerNorm(nn.Module):
    """(x - mean) / √(var + eps) · weight + bias over the features (Ba et al. 2016); the paper's norm."""

    def __init__(self, d_model: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight, self.bias = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model))

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class RMSNorm(nn.Module):
    """x / √(mean(x²) + eps) · weight (Zhang and Sennrich 2019): LayerNorm without mean and bias."""

    def __init__(self, d_model: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
        mean_square = x.float().square().mean(dim=-1, keepdim=True)
        return (x * torch.rsqrt(mean_square + self.eps)).to(x.dtype) * self.weight.to(x.dtype)
