"""What is computed: sizes, lengths and made-up texts of each training workload. Numpy alone, a pure function of a seed.

No data set is needed. Lengths are drawn from tables of quantiles of the real ones, tokens are Zipf-like, and there is
something to learn in them, so that a loss falls, and falls alike in two implementations of one model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

PAD, UNK, BOS, EOS, MASK = range(5)
FIRST_WORD = 5
IGNORE_INDEX = -100

IMDB_LENGTHS = (30, 75, 105, 127, 138, 146, 155, 164, 175, 188, 202, 219, 238, 263, 292, 328, 375, 436, 512, 512, 512)
"""Words of an IMDB training review, cut to 512: quantiles 0, 5, …, 100%. (The shortest has 11 words; 30 here.)"""
GERMAN_LENGTHS = (4, 9, 10, 11, 11, 12, 13, 13, 14, 14, 15, 16, 16, 17, 18, 19, 20, 21, 23, 26, 54)
"""Tokens of a German training sentence of Multi30k, joint BPE of 8,000, its end token included: the same quantiles."""
TARGET_RATIO, TARGET_SPREAD = 0.917, 0.173
"""An English sentence has so many tokens a German one's: median, and standard deviation of the logarithm."""


def word_of(token: int) -> str:
    """Return the word of an id, for implementations that take text; words are in the order of the ids."""
    return f"w{token - FIRST_WORD:06d}"


@dataclass(frozen=True)
class Workload:
    """One kind of training. Every implementation has these sizes and this dropout.

    Args:
        name, title: how it is asked for, and what the table calls it.
        kind: an encoder with mean pooling and two classes, an encoder–decoder, or a decoder alone.
        d_model, n_layers, n_heads, vocab_size, max_len: sizes; an encoder–decoder has n_layers of both.
        max_tokens: slots of a batch, padding included (translation: the longer side counts).
        n_batches: batches of one measured round.
        n_curve: updates after which losses are compared.
        curve_share: their batches have so small a share of the slots: an eighth, or enough for several texts. With two
            texts a batch, or a larger rate, a classifier that norms after its sublayers swings by whole nats.
        tolerance: how far the mean loss of the last quarter of those updates may be from the plain loop's, in nats.
            More for a classifier, whose implementations start their heads differently: from .75 they fall to .3 to .5.
        dropout: on embeddings and on every sublayer's output; none on attention weights.
        hidden: the width of the feed-forward blocks; 4 · d_model where absent.
    """

    name: str
    title: str
    kind: Literal["classify", "translate", "lm"]
    d_model: int
    n_layers: int
    n_heads: int
    vocab_size: int
    max_len: int
    max_tokens: int
    n_batches: int
    n_curve: int = 32
    curve_share: int = 8
    tolerance: float = 0.15
    dropout: float = 0.1
    lr: float = 5e-4
    hidden: int | None = None

    @property
    def d_ff(self) -> int:
        """Return the width of the feed-forward blocks: `hidden`, or the paper's 4 · d_model."""
        return self.hidden or 4 * self.d_model

    @property
    def pre_norm(self) -> bool:
        """Return the norm's position of the peers.

        Post-norm for BERT, Marian and torch's layers, pre-norm for GPT-2.
        """
        return self.kind == "lm"

    @property
    def counted(self) -> str:
        """Return which tokens a figure counts."""
        return "target tokens" if self.kind == "translate" else "tokens"


WORKLOADS = {
    w.name: w
    for w in (
        Workload(
            "a",
            "encoder classifier, d 256, 4 layers, IMDB's lengths",
            "classify",
            256,
            4,
            4,
            20_000,
            512,
            max_tokens=4096,
            n_batches=8,
            n_curve=32,
            curve_share=1,
            tolerance=0.2,
            lr=5e-5,
        ),
        Workload(
            "b",
            "encoder–decoder 3+3, d 256, Multi30k's lengths",
            "translate",
            256,
            3,
            4,
            8_000,
            64,
            max_tokens=2048,
            n_batches=12,
        ),
        Workload(
            "c",
            "language model, d 384, 6 layers, context 256",
            "lm",
            384,
            6,
            6,
            8_000,
            256,
            max_tokens=4096,
            n_batches=6,
        ),
    )
}


def tiny(workload: Workload) -> Workload:
    """Return the same kind of workload at a size that takes seconds, for tests."""
    small = replace(workload, d_model=16, n_layers=1, n_heads=2, vocab_size=300, max_tokens=512)
    return replace(small, n_batches=2, n_curve=4, max_len=min(workload.max_len, 64), tolerance=1.0)


@dataclass(frozen=True)
class Texts:
    """Examples, and which of them make the batches of a round and of the curve.

    Args:
        ids, offsets: sources, texts, or the one running text, flat; example i is ids[offsets[i]:offsets[i + 1]].
        target, target_offsets: translations, bare, where there are some.
        labels: (N,) classes, where there are some.
    """

    ids: np.ndarray
    offsets: np.ndarray
    target: np.ndarray
    target_offsets: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def costs(self) -> np.ndarray:
        """Return the (N,) width that each example needs in its batch."""
        own = np.diff(self.offsets)
        return np.maximum(own, np.diff(self.target_offsets) + 1) if len(self.target_offsets) > 1 else own


def make_texts(w: Workload, n: int, seed: int = 0) -> Texts:
    """Generate n examples of a workload."""
    rng = np.random.default_rng([seed, n])
    none, flat = np.zeros(0, np.int64), np.zeros(1, np.int64)
    if w.kind == "lm":
        ids = _running_text(rng, n * w.max_len + 1, w.vocab_size)
        return Texts(ids, np.arange(n + 1) * w.max_len, none, flat, none)
    table = IMDB_LENGTHS if w.kind == "classify" else GERMAN_LENGTHS
    lengths = np.minimum(_lengths(rng, table, n), w.max_len)
    offsets = np.concatenate([flat, lengths.cumsum()])
    ids = _words(rng, int(offsets[-1]), w.vocab_size)
    if w.kind == "classify":
        labels = rng.integers(2, size=n)
        # A tenth of the words speaks for a class, and nine in ten of those for the right one.
        speaks = rng.random(len(ids)) < 0.1
        signal = np.where(rng.random(len(ids)) < 0.9, labels.repeat(lengths), 1 - labels.repeat(lengths))
        ids = np.where(speaks, FIRST_WORD + 20 + 2 * rng.integers(50, size=len(ids)) + signal, ids)
        return Texts(ids, offsets, none, flat, labels)
    ids[offsets[1:] - 1] = EOS
    ratio = TARGET_RATIO * np.exp(TARGET_SPREAD * rng.standard_normal(n))
    target_lengths = np.clip(np.rint(lengths * ratio), 2, w.max_len - 1).astype(np.int64)
    target_offsets = np.concatenate([flat, target_lengths.cumsum()])
    # Word for word another word, from the source's beginning over again where the target is longer.
    column = np.arange(int(target_offsets[-1])) - target_offsets[:-1].repeat(target_lengths)
    source = offsets[:-1].repeat(target_lengths) + column % (lengths - 1).clip(1).repeat(target_lengths)
    n_words = w.vocab_size - FIRST_WORD
    target = FIRST_WORD + (ids[source] - FIRST_WORD) % n_words * 7 % n_words
    return Texts(ids, offsets, target, target_offsets, none)


def save_data(w: Workload, path: Path) -> None:
    """Write examples and plans where peers, which may have another numpy, read them alike."""
    from glassformer.config import TrainConfig
    from glassformer.data.batches import shuffled_length_buckets

    mean = {"classify": np.mean(IMDB_LENGTHS), "translate": np.mean(GERMAN_LENGTHS), "lm": w.max_len}[w.kind]
    # Enough for batches as well sorted by length as those of a real epoch.
    n = 2 * max(w.n_batches, 30) * max(1, round(w.max_tokens / min(mean, w.max_len)))
    texts = make_texts(w, n, 0)
    tie = np.zeros(n, np.int64)
    bucketed = shuffled_length_buckets(texts.costs, tie, TrainConfig(max_tokens=w.max_tokens), 0)[: w.n_batches]
    curve = shuffled_length_buckets(texts.costs, tie, TrainConfig(max_tokens=w.max_tokens // w.curve_share), 1)[
        : w.n_curve
    ]
    arrays: dict[str, Any] = {**vars(texts)}
    for name, plan in {"bucketed": bucketed, "curve": curve}.items():
        arrays |= {name: np.concatenate(plan), f"{name}_sizes": np.array([len(index) for index in plan])}
    np.savez(path, **arrays)


def load_data(path: str | Path) -> tuple[Texts, dict[str, list[np.ndarray]]]:
    """Load what `save_data` wrote: the examples, and for each plan the examples of each batch."""
    with np.load(path) as arrays:
        texts = Texts(*(arrays[name] for name in Texts.__dataclass_fields__))
        return texts, {
            name: np.split(arrays[name], arrays[f"{name}_sizes"].cumsum()[:-1]) for name in ("bucketed", "curve")
        }


def padded(flat: np.ndarray, start: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Return (B, L) spans of a flat array, padded on the right with PAD."""
    column = np.arange(max(1, int(length.max(initial=1))))
    real = column < length[:, None]
    rows = np.full(real.shape, PAD, np.int64)
    rows[real] = flat[(start[:, None] + column)[real]]
    return rows


def _lengths(rng: np.random.Generator, table: tuple[int, ...], n: int) -> np.ndarray:
    at = np.interp(rng.random(n), np.linspace(0, 1, len(table)), table)
    return np.rint(at).astype(np.int64)


def _words(rng: np.random.Generator, n: int, vocab_size: int) -> np.ndarray:
    """Draw n words whose frequency falls as 1 / (rank + 2.7) (Mandelbrot's form of Zipf's law)."""
    weight = 1 / (np.arange(vocab_size - FIRST_WORD) + 2.7)
    return FIRST_WORD + np.searchsorted(np.cumsum(weight) / weight.sum(), rng.random(n)).clip(max=len(weight) - 1)


def _running_text(rng: np.random.Generator, n: int, vocab_size: int) -> np.ndarray:
    """Draw words of which every other one depends on the word before it."""
    words = _words(rng, n, vocab_size)
    n_words = vocab_size - FIRST_WORD
    follows = (words[:-1:2] - FIRST_WORD) * 3 % n_words + FIRST_WORD
    words[1::2] = np.where(rng.random(len(words[1::2])) < 0.7, follows[: len(words[1::2])], words[1::2])
    return words
