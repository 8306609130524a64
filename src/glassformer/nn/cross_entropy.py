"""Cross-entropy as a sum and a count, so that whoever divides does it once, over everything."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from glassformer.nn.fused.cross_entropy import CrossEntropySum, is_faster

IGNORE_INDEX = -100
"""The label of a position that is not scored."""


def cross_entropy_sum(
    logits: Float[Tensor, "... V"], labels: Int[Tensor, "..."], label_smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Sum over all positions of -Σ q(v) log softmax(logits)(v), in nats.

    q is the label's one-hot, or with smoothing ε (paper, 5.4) ε/V spread over all V and 1 - ε more on
    the label. Positions labelled IGNORE_INDEX count nothing. Logits are summed in fp32.
    """
    rows, labels = logits.flatten(0, -2), labels.flatten()
    if is_faster(rows):
        return CrossEntropySum.apply(rows, labels, label_smoothing, IGNORE_INDEX)  # pyright: ignore
    kwargs = {"ignore_index": IGNORE_INDEX, "reduction": "sum", "label_smoothing": label_smoothing}
    return F.cross_entropy(rows.float(), labels, **kwargs)
