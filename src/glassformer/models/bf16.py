"""A trained model's copy for answering: weights cast to bf16 once, instead of at every product.

Training never sees these copies, and `explain` looks at the fp32 model itself.
"""

from __future__ import annotations

import copy

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.models.decoder_models import LanguageModel, Translator
from glassformer.models.encoder_models import MaskedLanguageModel
from glassformer.models.ensemble import Ensemble
from glassformer.utils.device import Precision

ROWS_EXPECTED = 64
"""Rows x of a product for which W is laid out; others are multiplied as well."""


class Bf16Linear(nn.Module):
    """W x + b, with W, b and x cast to bf16, W and b once; what comes out is fp32 again.

    On a CPU oneDNN multiplies, whose kernels read W in blocks: `F.linear` lays it out again at every product, which
    for the few rows of a step of decoding costs as much as the product. Here that is done once; the bits are the same.
    A CPU without such kernels multiplies the rounded numbers in fp64 and rounds the result: several times as fast as
    what torch does there, equal but for the order of the sums, and with sums so exact that no batch changes a row.

    Args:
        weight: W (N, D). bias: b (N,), or None.
    """

    weight: Tensor
    bias: Tensor | None

    def __init__(self, weight: Float[Tensor, "N D"], bias: Float[Tensor, " N"] | None = None) -> None:
        super().__init__()
        weight, bias = weight.detach().bfloat16(), None if bias is None else bias.detach().bfloat16()
        # Operations that torch's compiler makes of linear layers; a layer that is moved to a GPU later cannot use them.
        able = weight.device.type == "cpu" and torch.backends.mkldnn.is_available()
        able = able and torch.ops.mkldnn._is_mkldnn_bf16_supported()
        self._blocks = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS_EXPECTED) if able else None
        self._in_fp64 = weight.device.type == "cpu" and not able
        self.register_buffer("weight", weight.double() if self._in_fp64 else weight)
        self.register_buffer("bias", bias.double() if self._in_fp64 and bias is not None else bias)

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... N"]:
        x = x.bfloat16()
        if self._in_fp64:
            return F.linear(x.double(), self.weight, self.bias).bfloat16().float()
        if self._blocks is None:
            return F.linear(x, self.weight, self.bias).float()
        return torch.ops.mkldnn._linear_pointwise(x, self._blocks, self.bias, "none", [], "").float()


def cast_for_inference(model: nn.Module, precision: Precision) -> nn.Module:
    """Return the model for inference at a precision: itself in fp32, otherwise a copy without gradients.

    Linear layers and the projection to the vocabulary are cast; everything else stays fp32.
    """
    if precision == "fp32":
        return model
    if isinstance(model, Ensemble):
        return Ensemble([cast_for_inference(member, precision) for member in model.members]).train(model.training)
    model = copy.deepcopy(model).requires_grad_(False)
    for parent in list(model.modules()):
        if isinstance(parent, MaskedLanguageModel):
            continue  # its own layers are asked for their weights; those of its encoder are not
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                setattr(parent, name, Bf16Linear(child.weight, child.bias))
    match model:
        case Translator(output=None):
            tied = model.tgt_embedding.weight
        case LanguageModel(output=None):
            tied = model.embedding.weight
        case _:
            return model
    del model.output  # None, in whose place a layer of its own comes
    model.add_module("output", Bf16Linear(tied))
    return model
