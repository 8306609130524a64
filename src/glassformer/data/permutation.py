"""A random order of any number of things in no memory: each place is computed when it is asked for."""

from __future__ import annotations

import numpy as np

ROUNDS = 6
"""Rounds of the network; four already pass for random (Luby and Rackoff 1988), and the halves here are short."""


class Permutation:
    """A permutation of 0 … n-1, drawn from `rng`: the same draws always give the same one.

    A Feistel network with a key a round permutes the numbers of 2h bits, the fewest that hold n; what falls outside
    0 … n-1 is permuted again until it falls inside ("cycle walking", Black and Rogaway 2002), fewer than four times
    on average. So there is no table, and place i costs the same wherever it is.
    """

    def __init__(self, n: int, rng: np.random.Generator) -> None:
        self.n = n
        self.half = np.uint64(max(1, -(-(n - 1).bit_length() // 2)))
        self.keys = rng.integers(0, 2**64, ROUNDS, np.uint64)

    def __call__(self, places: np.ndarray) -> np.ndarray:
        """Which thing stands at each of the places, int64 in [0, n)."""
        found = self._permute(places.astype(np.uint64))
        while (outside := found >= self.n).any():
            found[outside] = self._permute(found[outside])
        return found.astype(np.int64)

    def _permute(self, x: np.ndarray) -> np.ndarray:
        """The network, on numbers of 2h bits; whatever `_mixed` is, it is one to one."""
        mask = (np.uint64(1) << self.half) - np.uint64(1)
        left, right = x >> self.half, x & mask
        for key in self.keys:
            left, right = right, left ^ (_mixed(right ^ key) & mask)
        return left << self.half | right


def _mixed(x: np.ndarray) -> np.ndarray:
    """Every bit of the outcome depends on all bits of x (the finisher of SplitMix64, Steele et al. 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
