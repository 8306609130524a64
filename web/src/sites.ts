/** Made by `make web` from explain/capture/sites.py, where steps and operations are described: change it there. */

/**
 * Every operation there is, with how it is computed from `inputs` (nodes) and `params`. L = positions.
 *
 *   ids                                                 token ids (L)
 *   lookup [ids] {weight}                               weight[ids]
 *   scale [x] attrs.factor                              x · factor
 *   ngram_ids []                                        ids of each token's n-grams (L, G), padded with 0
 *   bigram_ids []                                       row of the word bigram that ends at each token (L); 0 for none
 *   segment_ids [] attrs.separator?                     segment of each token (L): 1 after the separator of a pair, else 0
 *   embedding_bag [ngram_ids] {weight} attrs.how        "mean" or "sum" of weight[ngram_ids], without 0; zeros if there are none
 *   positions [] attrs.scheme, {weight?}                "sinusoidal" (paper 3.5) times attrs.amplitude, or rows 0…L-1 of "learned" weight
 *   add [a, b]                                          a + b
 *   layer_norm [x] {weight, bias} attrs.eps             over the last axis, biased variance
 *   rms_norm [x] {weight} attrs.eps                     x / √(mean x² + eps) · weight, over the last axis
 *   linear [x] {weight (out, in), bias?}                x Wᵀ + b
 *   split_heads [x (L, H·E)]                            (H, L, E): feature h·E + e goes to head h
 *   rotate [x (H, L, E)] attrs.base                     feature j is paired with j + E/2, angle pos · base^(-2j/E)
 *   dot [q (H, Q, E), k (H, K, E)]                      q kᵀ per head
 *   mask [] attrs.kind                                  booleans (Q, K) or (1, K), true = may attend: "causal" | "padding"
 *   softmax [scores, mask?]                             over the last axis; masked keys get 0; a row with no key is 0
 *   mix [weights (H, Q, K), v (H, K, E)]                weights · v
 *   concat_heads [x (H, L, E)]                          (L, H·E)
 *   relu [x]                                            max(0, x)
 *   gelu [x]                                            with erf
 *   gelu_tanh [x]                                       x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))
 *   silu [x]                                            x / (1 + e^-x)
 *   tanh [x]                                            tanh x
 *   swiglu [gate, x]                                    silu(gate) · x
 *   pool [x, mask?] attrs.how                           "mean" | "max" | "mean+max" | "first", over real tokens; attrs.token, the one of a word
 *   pin_zero [head (1)]                                 (0, head): two classes share one logit
 *   targets [] attrs.labels, attrs.smoothing            1 - ε for the label and ε/V for each; zeros without a label
 *   cross_entropy [logits, targets]                     -Σ targets · log softmax(logits) of each row
 *   mean_loss [x] attrs.labels                          Σ x / number of labels
 *   error [output] attrs.number                         output - number, which is the right one in standard deviations from the mean
 *   square [x]                                          x²
 *   one []                                              1: the gradient of the loss with respect to itself
 *   sum [g, …]                                          sum of what all uses of a step pass back
 *   lookup_backward [ids, g]                            (V, D): g of each token is added to the row of its id
 *   embedding_bag_backward [ngram_ids, g] attrs.how     (V, D): g of each token, divided by its n-grams, in each
 *   positions_backward [g]                              rows 0…L-1 are g, the others 0
 *   layer_norm_backward [x, g] {weight} attrs.eps       (ĝ - mean ĝ - x̂ · mean(ĝ x̂)) / σ, ĝ = g · weight
 *   layer_norm_weight_backward [x, g] attrs.eps         Σ over tokens of g · x̂
 *   rms_norm_backward [x, g] {weight} attrs.eps         (ĝ - x̂ · mean(ĝ x̂)) / σ, ĝ = g · weight
 *   rms_norm_weight_backward [x, g] attrs.eps           Σ over tokens of g · x̂
 *   linear_backward [g] {weight (out, in)}              g W
 *   linear_weight_backward [x, g]                       gᵀ x, (out, in)
 *   bias_backward [g]                                   Σ over tokens of g
 *   rotate_backward [g (H, L, E)] attrs.base            g rotated by the negative angles
 *   transposed_mix [weights (H, Q, K), x (H, Q, E)]     weightsᵀ x per head
 *   softmax_backward [y, g]                             y · (g - Σ g y), over the last axis
 *   relu_backward [x, g]                                g where x > 0, else 0
 *   gelu_backward [x, g]                                g · (Φ(x) + x φ(x))
 *   gelu_tanh_backward [x, g]                           g · ((1 + t)/2 + x/2 · (1 - t²) · √(2/π) (1 + 0.134145 x²)), t as in gelu_tanh
 *   silu_backward [x, g]                                g · s (1 + x (1 - s)), s = 1 / (1 + e^-x)
 *   tanh_backward [x, g]                                g · (1 - tanh² x)
 *   swiglu_gate_backward [gate, x, g]                   g · x · s (1 + gate (1 - s)), s the sigmoid of the gate
 *   swiglu_backward [gate, g]                           g · silu(gate)
 *   pool_backward [x, g, mask?] attrs.how               (L, D): each token's share; of a maximum the largest, ties share
 *   pin_zero_backward [g]                               g of the second class
 *   cross_entropy_backward [probabilities, targets, g]  (probabilities - targets) · g of the row
 *   square_backward [x, g]                              g · 2x
 *   mean_loss_backward [g] attrs.labels                 g / number of labels at each position with a label, else 0
 */
export type Op = "ids" | "lookup" | "scale" | "ngram_ids" | "bigram_ids" | "segment_ids" | "embedding_bag" | "positions" | "add" | "layer_norm" | "rms_norm" | "linear" | "split_heads" | "rotate" | "dot" | "mask" | "softmax" | "mix" | "concat_heads" | "relu" | "gelu" | "gelu_tanh" | "silu" | "tanh" | "swiglu" | "pool" | "pin_zero" | "targets" | "cross_entropy" | "mean_loss" | "error" | "square" | "one" | "sum" | "lookup_backward" | "embedding_bag_backward" | "positions_backward" | "layer_norm_backward" | "layer_norm_weight_backward" | "rms_norm_backward" | "rms_norm_weight_backward" | "linear_backward" | "linear_weight_backward" | "bias_backward" | "rotate_backward" | "transposed_mix" | "softmax_backward" | "relu_backward" | "gelu_backward" | "gelu_tanh_backward" | "silu_backward" | "tanh_backward" | "swiglu_gate_backward" | "swiglu_backward" | "pool_backward" | "pin_zero_backward" | "cross_entropy_backward" | "square_backward" | "mean_loss_backward";

/** Operation and axes of every step, by its name with its kind where there are several. */
export const SITES: Record<string, [Op, ...string[]]> = {
  "ids": ["ids", "token"],
  "rows": ["lookup", "token", "feature"],
  "rows:last": ["lookup", "token", "feature"],
  "scaled": ["scale", "token", "feature"],
  "scaled:last": ["scale", "token", "feature"],
  "ngram_ids": ["ngram_ids", "token", "ngram"],
  "ngram_ids:hashed": ["ngram_ids", "token", "ngram"],
  "ngrams": ["embedding_bag", "token", "feature"],
  "bigram_ids": ["bigram_ids", "token"],
  "bigrams": ["lookup", "token", "feature"],
  "with_ngrams": ["add", "token", "feature"],
  "with_ngrams:last": ["add", "token", "feature"],
  "with_bigrams": ["add", "token", "feature"],
  "with_bigrams:last": ["add", "token", "feature"],
  "segment_ids": ["segment_ids", "token"],
  "segments": ["lookup", "token", "feature"],
  "with_segments": ["add", "token", "feature"],
  "with_segments:last": ["add", "token", "feature"],
  "positions:sinusoidal": ["positions", "token", "feature"],
  "positions:amplitude": ["positions", "token", "feature"],
  "positions:learned": ["positions", "token", "feature"],
  "positions:other": ["positions", "token", "feature"],
  "sum": ["add", "token", "feature"],
  "embedding_norm:layer_norm": ["layer_norm", "token", "feature"],
  "embedding_norm:rms_norm": ["rms_norm", "token", "feature"],
  "norm:layer_norm": ["layer_norm", "token", "feature"],
  "norm:rms_norm": ["rms_norm", "token", "feature"],
  "q_proj": ["linear", "token", "heads_features"],
  "k_proj": ["linear", "memory", "heads_features"],
  "v_proj": ["linear", "memory", "heads_features"],
  "q_heads": ["split_heads", "head", "token", "head_feature"],
  "q": ["split_heads", "head", "token", "head_feature"],
  "q:rotate": ["rotate", "head", "token", "head_feature"],
  "k_heads": ["split_heads", "head", "memory", "head_feature"],
  "k": ["split_heads", "head", "memory", "head_feature"],
  "k:rotate": ["rotate", "head", "memory", "head_feature"],
  "v": ["split_heads", "head", "memory", "head_feature"],
  "products": ["dot", "head", "token", "key"],
  "scores": ["scale", "head", "token", "key"],
  "mask:causal": ["mask", "head", "token", "key"],
  "mask:padding": ["mask", "head", "token", "key"],
  "mask:word": ["mask", "head", "token", "key"],
  "mask:given": ["mask", "head", "token", "key"],
  "weights": ["softmax", "head", "token", "key"],
  "context": ["mix", "head", "token", "head_feature"],
  "concat": ["concat_heads", "token", "heads_features"],
  "out": ["linear", "token", "feature"],
  "residual:pre": ["add", "token", "feature"],
  "residual:post": ["add", "token", "feature"],
  "w_gate:SwiGLU": ["linear", "token", "hidden"],
  "w_in:SwiGLU": ["linear", "token", "hidden"],
  "w_in:FeedForward": ["linear", "token", "hidden"],
  "hidden:relu": ["relu", "token", "hidden"],
  "hidden:gelu": ["gelu", "token", "hidden"],
  "hidden:gelu-tanh": ["gelu_tanh", "token", "hidden"],
  "hidden:silu": ["silu", "token", "hidden"],
  "hidden:swiglu": ["swiglu", "token", "hidden"],
  "out:SwiGLU": ["linear", "token", "feature"],
  "out:FeedForward": ["linear", "token", "feature"],
  "pooled:mean": ["pool", "pooled"],
  "pooled:max": ["pool", "pooled"],
  "pooled:mean+max": ["pool", "pooled"],
  "pooled:first": ["pool", "pooled"],
  "pooler": ["linear", "pooled"],
  "pooler_hidden:tanh": ["tanh", "pooled"],
  "pooler_hidden:relu": ["relu", "pooled"],
  "head": ["linear", "class"],
  "logits:class": ["linear", "class"],
  "logits:pin_zero": ["pin_zero", "class"],
  "logits:LanguageModel": ["linear", "token", "vocab"],
  "logits:Translator": ["linear", "token", "vocab"],
  "mlm_transform": ["linear", "token", "out"],
  "mlm_hidden": ["gelu", "token", "out"],
  "logits:MaskedLanguageModel": ["linear", "token", "vocab"],
  "linear:token": ["linear", "token", "out"],
  "linear:class": ["linear", "class"],
};
