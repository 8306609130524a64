"""A trained model's copy for answering: weights cast once to bf16 or fp16, or cut to int8, instead of at every product.

Training never sees these copies, and `explain` looks at the fp32 model itself.
"""

from __future__ import annotations

import copy
import warnings
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.errors import UsageError
from glassformer.models.ensemble import Ensemble
from glassformer.models.language_model import LanguageModel
from glassformer.models.masked_language_model import MaskedLanguageModel
from glassformer.models.translator import Translator
from glassformer.utils.device import Precision

ROWS_EXPECTED = 64
"""Rows x of a product for which W is laid out; others are multiplied as well."""


class Bf16Linear(nn.Module):
    """W x + b, with W, b and x cast to bf16, W and b once; what comes out is fp32 again.

    On a CPU oneDNN multiplies, whose kernels read W in blocks: `F.linear` lays it out anew at every product, which
    for the few rows of a step of decoding costs as much as the product. Here that is done once; the bits are the same.

    Args:
        weight: W (N, D). bias: b (N,), or None.
    """

    weight: Tensor
    bias: Tensor | None

    def __init__(self, weight: Float[Tensor, "N D"], bias: Float[Tensor, " N"] | None = None) -> None:
        super().__init__()
        self.register_buffer("weight", weight.detach().bfloat16())
        self.register_buffer("bias", None if bias is None else bias.detach().bfloat16())
        # Operations that torch's compiler makes of linear layers; a layer that is moved to a GPU later cannot use them.
        able = weight.device.type == "cpu" and torch.backends.mkldnn.is_available()
        able = able and torch.ops.mkldnn._is_mkldnn_bf16_supported()
        self._blocks = torch.ops.mkldnn._reorder_linear_weight(self.weight, ROWS_EXPECTED) if able else None

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... N"]:
        x = x.bfloat16()
        if self._blocks is None:
            return F.linear(x, self.weight, self.bias).float()
        return torch.ops.mkldnn._linear_pointwise(x, self._blocks, self.bias, "none", [], "").float()


class Fp16Linear(nn.Module):
    """W x + b, with W cast to fp16 once; x, b and the sums are fp32.

    The kernel (FBGEMM's) computes as many FLOPs as in fp32 and reads half as many bytes, which is what the few rows of
    a sentence that is translated alone wait for; and it costs least to call. As in fp32, an x has the same output in
    every batch up to the rounding of fp32 sums: with AVX2 the kernels for one and two rows add in another order.

    Args:
        weight: W (N, D), no element beyond fp16's largest, 65,504. bias: b (N,), or None.

    Raises:
        UsageError: an element of W is too large.
    """

    weight: Tensor
    bias: Tensor | None

    def __init__(self, weight: Float[Tensor, "N D"], bias: Float[Tensor, " N"] | None = None) -> None:
        super().__init__()
        if float(weight.detach().abs().max()) > torch.finfo(torch.float16).max:
            raise UsageError("a weight of this model is too large for fp16", "use --precision bf16 or fp32")
        self.register_buffer("weight", weight.detach().half())
        self.register_buffer("bias", None if bias is None else bias.detach().float())
        # The kernel always adds something.
        self._added = weight.new_zeros(len(weight)) if bias is None else self.bias
        with warnings.catch_warnings():
            # torch says once of each kernel that it may go one day; `choose_precision` looks whether it is there.
            warnings.simplefilter("ignore")
            self._blocks = torch.fbgemm_pack_gemm_matrix_fp16(self.weight.float())
            self(weight.new_zeros(1, weight.shape[1]))

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... N"]:
        return torch.fbgemm_linear_fp16_weight_fp32_activation(x, self._blocks, self._added)


class Int8Linear(nn.Module):
    """W x + b, with W in int8 beside a scale for each of its rows, and x cut to int8 by its own largest value.

    Every x has its own scale, and sums of integers are exact: what comes out for one does not depend on which
    others share the batch. (Dynamic quantization in torch takes one scale for a whole batch, and does.) On a
    processor whose sums would saturate, W has 7 bits (`largest_int8_weight`).

    Args:
        weight: W (N, D). bias: b (N,), or None.
    """

    integers: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(self, weight: Float[Tensor, "N D"], bias: Float[Tensor, " N"] | None = None) -> None:
        super().__init__()
        integers, scale = quantize_int8(weight.detach().float(), largest_int8_weight())
        self.register_buffer("integers", integers.t())  # (D, N)
        self.register_buffer("scale", scale.t())  # (1, N)
        self.register_buffer("bias", None if bias is None else bias.detach().float())

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... N"]:
        integers, scale = quantize_int8(x.flatten(0, -2))
        sums = torch._int_mm(integers, self.integers)  # (rows, N), int32  # pyright: ignore[reportPrivateImportUsage]
        y = sums.float().mul_(self.scale)
        y = y.mul_(scale) if self.bias is None else torch.addcmul(self.bias, y, scale)
        return y.view(*x.shape[:-1], -1)


def quantize_int8(x: Float[Tensor, "R D"], largest: int = 127) -> tuple[Tensor, Float[Tensor, "R 1"]]:
    """Quantize each row to integers from -largest to largest, (R, D) int8, times a scale, (R, 1)."""
    scale = x.abs().amax(dim=1, keepdim=True).clamp_(min=1e-30) / largest
    return (x / scale).round_().to(torch.int8), scale


@cache
def largest_int8_weight() -> int:
    """Return the largest whole number a weight may have for `_int_mm` to sum exactly on this processor: 127, or 64.

    Without VNNI oneDNN adds two products (x + 128) w in 16 bits, which saturate; 255 * 64 * 2 still fits.
    """
    largest = torch.full((32, 32), 127, dtype=torch.int8)
    sums = torch._int_mm(largest, largest)  # pyright: ignore[reportPrivateImportUsage]
    return 127 if bool((sums == 32 * 127 * 127).all()) else 64


def quantize_for_inference(model: nn.Module, precision: Precision) -> nn.Module:
    """Return the model for inference at a precision: itself in fp32, otherwise a copy without gradients.

    Linear layers and the projection to the vocabulary are quantized; everything else stays fp32.
    """
    if precision == "fp32":
        return model
    if isinstance(model, Ensemble):
        return Ensemble([quantize_for_inference(member, precision) for member in model.members]).train(model.training)
    model = copy.deepcopy(model).requires_grad_(False)
    linear = {"bf16": Bf16Linear, "fp16": Fp16Linear, "int8": Int8Linear}[precision]
    for parent in list(model.modules()):
        if isinstance(parent, MaskedLanguageModel):
            continue  # its own layers are asked for their weights; those of its encoder are not
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                setattr(parent, name, linear(child.weight, child.bias))
    match model:
        case Translator(output=None):
            tied = model.tgt_embedding.weight
        case LanguageModel(output=None):
            tied = model.embedding.weight
        case _:
            return model
    del model.output  # None, in whose place a layer of its own comes
    model.add_module("output", linear(tied))
    return model
