"""The operations of the loss and of the backward pass: inputs, parameters, constants and result of each, in words."""

from __future__ import annotations

GRADIENT = ".grad"


def is_gradient(id: str) -> bool:
    """Return whether an id is that of a gradient, or of a part of one: "x.grad", "x.grad.q_proj"."""
    return id.endswith(GRADIENT) or f"{GRADIENT}." in id


LEARNING_OPERATIONS: dict[str, tuple[str, str]] = {
    "targets": ("[] attrs.labels, attrs.smoothing", "1 - ε for the label and ε/V for each; zeros without a label"),
    "cross_entropy": ("[logits, targets]", "-Σ targets · log softmax(logits) of each row"),
    "mean_loss": ("[x] attrs.labels", "Σ x / number of labels"),
    "error": ("[output] attrs.number", "output - number, which is the right one in standard deviations from the mean"),
    "square": ("[x]", "x²"),
    "one": ("[]", "1: the gradient of the loss with respect to itself"),
    "sum": ("[g, …]", "sum of what all uses of a step pass back"),
    "lookup_backward": ("[ids, g]", "(V, D): g of each token is added to the row of its id"),
    "embedding_bag_backward": ("[ngram_ids, g] attrs.how", "(V, D): g of each token, divided by its n-grams, in each"),
    "positions_backward": ("[g]", "rows 0…L-1 are g, the others 0"),
    "layer_norm_backward": ("[x, g] {weight} attrs.eps", "(ĝ - mean ĝ - x̂ · mean(ĝ x̂)) / σ, ĝ = g · weight"),
    "layer_norm_weight_backward": ("[x, g] attrs.eps", "Σ over tokens of g · x̂"),
    "rms_norm_backward": ("[x, g] {weight} attrs.eps", "(ĝ - x̂ · mean(ĝ x̂)) / σ, ĝ = g · weight"),
    "rms_norm_weight_backward": ("[x, g] attrs.eps", "Σ over tokens of g · x̂"),
    "linear_backward": ("[g] {weight (out, in)}", "g W"),
    "linear_weight_backward": ("[x, g]", "gᵀ x, (out, in)"),
    "bias_backward": ("[g]", "Σ over tokens of g"),
    "rotate_backward": ("[g (H, L, E)] attrs.base", "g rotated by the negative angles"),
    "transposed_mix": ("[weights (H, Q, K), x (H, Q, E)]", "weightsᵀ x per head"),
    "softmax_backward": ("[y, g]", "y · (g - Σ g y), over the last axis"),
    "relu_backward": ("[x, g]", "g where x > 0, else 0"),
    "gelu_backward": ("[x, g]", "g · (Φ(x) + x φ(x))"),
    "gelu_tanh_backward": ("[x, g]", "g · ((1 + t)/2 + x/2 · (1 - t²) · √(2/π) (1 + 0.134145 x²)), t as in gelu_tanh"),
    "silu_backward": ("[x, g]", "g · s (1 + x (1 - s)), s = 1 / (1 + e^-x)"),
    "tanh_backward": ("[x, g]", "g · (1 - tanh² x)"),
    "swiglu_gate_backward": ("[gate, x, g]", "g · x · s (1 + gate (1 - s)), s the sigmoid of the gate"),
    "swiglu_backward": ("[gate, g]", "g · silu(gate)"),
    "pool_backward": ("[x, g, mask?] attrs.how", "(L, D): each token's share; of a maximum the largest, ties share"),
    "pin_zero_backward": ("[g]", "g of the second class"),
    "cross_entropy_backward": ("[probabilities, targets, g]", "(probabilities - targets) · g of the row"),
    "square_backward": ("[x, g]", "g · 2x"),
    "mean_loss_backward": ("[g] attrs.labels", "g / number of labels at each position with a label, else 0"),
}
"""Those of a forward pass are in `capture/sites.py`."""
