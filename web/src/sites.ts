/** Made by `make web` from explain/capture/sites.py, where steps and operations are described: change it there. */

/**
 * Every operation there is, with how it is computed from `inputs` (nodes) and `params`. L = positions.
 *
 *   ids                                      token ids (L)
 *   lookup [ids] {weight}                    weight[ids]
 *   scale [x] attrs.factor                   x · factor
 *   ngram_ids []                             ids of each token's n-grams (L, G), padded with 0
 *   bigram_ids []                            row of the word bigram that ends at each token (L); 0 for none
 *   segment_ids []                           segment of each token (L): 0, the first
 *   embedding_bag [ngram_ids] {weight} attrs.how"mean" or "sum" of weight[ngram_ids], without 0; zeros if there are none
 *   positions [] attrs.scheme, {weight?}     "sinusoidal" (paper 3.5) times attrs.amplitude, or rows 0…L-1 of "learned" weight
 *   add [a, b]                               a + b
 *   layer_norm [x] {weight, bias} attrs.eps  over the last axis, biased variance
 *   rms_norm [x] {weight} attrs.eps          x / √(mean x² + eps) · weight, over the last axis
 *   linear [x] {weight (out, in), bias?}     x Wᵀ + b
 *   split_heads [x (L, H·E)]                 (H, L, E): feature h·E + e goes to head h
 *   rotate [x (H, L, E)] attrs.base          feature j is paired with j + E/2, angle pos · base^(-2j/E)
 *   dot [q (H, Q, E), k (H, K, E)]           q kᵀ per head
 *   mask [] attrs.kind                       booleans (Q, K) or (1, K), true = may attend: "causal" | "padding"
 *   softmax [scores, mask?]                  over the last axis; masked keys get 0; a row with no key is 0
 *   mix [weights (H, Q, K), v (H, K, E)]     weights · v
 *   concat_heads [x (H, L, E)]               (L, H·E)
 *   relu [x]                                 max(0, x)
 *   gelu [x]                                 with erf
 *   gelu_tanh [x]                            x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))
 *   silu [x]                                 x / (1 + e^-x)
 *   tanh [x]                                 tanh x
 *   swiglu [gate, x]                         silu(gate) · x
 *   pool [x, mask?] attrs.how                "mean" | "max" | "mean+max" | "first", over real tokens
 *   pin_zero [head (1)]                      (0, head): two classes share one logit
 */
export type Op = "ids" | "lookup" | "scale" | "ngram_ids" | "bigram_ids" | "segment_ids" | "embedding_bag" | "positions" | "add" | "layer_norm" | "rms_norm" | "linear" | "split_heads" | "rotate" | "dot" | "mask" | "softmax" | "mix" | "concat_heads" | "relu" | "gelu" | "gelu_tanh" | "silu" | "tanh" | "swiglu" | "pool" | "pin_zero";

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
