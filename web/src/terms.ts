/** Made by `make web` from docs/reference/glossary.md, and the list of terms in web/terms.py: change it there. */

/** The terms that the page explains: the name, a regular expression of what stands for it, and the definition. */
export const TERMS: readonly (readonly [name: string, words: string, definition: string])[] = [
  ["rotary position embedding", "rotary position embedding", "Queries and keys are rotated by an angle that grows with the position, so their product depends only on the distance."],
  ["integrated gradients", "integrated gradients", "Scores from gradients, averaged along the path from the fully masked text to the text."],
  ["positional encoding", "position vector", "Vectors added to the embeddings so that the order of tokens matters."],
  ["feed-forward block", "feed-forward block", "Two linear layers with an activation between them, applied to each token alone."],
  ["comprehensiveness", "comprehensiveness", "How far the quantity falls when the words with the highest scores are masked. Higher is better."],
  ["query, key, value", "query, key, value|quer(?:y|ies)|key", "Three projections of token vectors. A query is compared with keys; the values are averaged."],
  ["cross-attention", "cross-attention", "Attention whose queries come from the decoder and whose keys and values come from the encoder."],
  ["log-probability", "log-probability", "The natural logarithm of a probability: 0 for 1, lower for less."],
  ["residual stream", "residual stream", "The vector of each token that every sublayer adds to."],
  ["leave-one-out", "leave-one-out", "A score of a word: how far the quantity falls when that word alone is masked."],
  ["completeness", "completeness", "A property of integrated gradients: the scores of all words sum to the difference of the quantity between the text and the fully masked text."],
  ["causal mask", "causal mask", "The mask of a decoder: each token attends to itself and to earlier tokens."],
  ["sufficiency", "sufficiency", "How far the quantity falls when only the words with the highest scores are kept. Lower is better."],
  ["LayerNorm", "LayerNorm", "Normalization of a vector to mean 0 and variance 1 over its features, then scaled and shifted by learned weights."],
  ["attention", "attention", "A weighted mean of values. The weights of a query are the softmax of its products with all keys, divided by the square root of the width of a key."],
  ["embedding", "embedding", "The vector of a token: a row of a table of weights."],
  ["quantity", "quantity", "The number that an attribution explains, such as a log-probability or a difference of logits."],
  ["padding", "\\[PAD\\] token", "Tokens that fill a batch to a rectangle. They are masked, so they change no result."],
  ["softmax", "softmax", "Exponentials divided by their sum: scores become positive weights that sum to 1."],
  ["logit", "logit", "A score before the softmax."],
  ["token", "token", "The unit of text that a model reads: a word, a subword or a character."],
  ["head", "head", "One of several attentions side by side, each with its own queries, keys and values."],
];
