"""Cross-entropy as a sum, so that whoever divides does it once, over all tokens."""

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from glassformer.nn.fused import CrossEntropySum, is_faster

IGNORE_INDEX = -100
"""The label of a position that is not scored."""


def cross_entropy_sum(
    logits: Float[Tensor, "... V"], labels: Int[Tensor, "..."], label_smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Return the sum over all positions of -Σ q(v) log softmax(logits)(v), in nats and fp32.

    q is the label's one-hot; with label smoothing ε (paper, 5.4) it is ε/V for every token and 1 - ε more for the
    label. Positions labelled IGNORE_INDEX count 0.
    """
    rows, labels = logits.flatten(0, -2), labels.flatten()
    if is_faster(rows):
        return CrossEntropySum.apply(rows, labels, label_smoothing, IGNORE_INDEX)  # pyright: ignore
    kwargs = {"ignore_index": IGNORE_INDEX, "reduction": "sum", "label_smoothing": label_smoothing}
    return F.cross_entropy(rows.float(), labels, **kwargs)
