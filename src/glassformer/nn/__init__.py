"""The paper in a few hundred lines: attention, positions, norms, feed-forward, layers. Imports torch only.

Letters of shapes: B texts of a batch, R rows of a decoder (B times the width of a beam), L, S, T positions of a text, a
source, a target, Q queries, K keys, D width of the model, H heads, E width of a head, F of a feed-forward block, V
tokens of the vocabulary, U distinct tokens of a batch, G n-grams of a token. Tests check them at every call.
"""
