"""Predict with onnxruntime (https://onnxruntime.ai). No torch is imported; the graphs are those of `onnx_writer.py`.

Beam search and sampling are those of `decode/` in numpy, with the same results; what is computed is described there.
These are shorter: there are no forced prefixes and no log, and a sentence that is done leaves the batch at once, since
the caches are copied at every step as it is.

A tensor may lie in another file, whose path the graph names; and a graph inside a node is a loop or a branch. The
writer makes neither, so that both are refused. The numbers of fields are those of `onnx.proto`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.config import DecodeConfig
from glassformer.errors import UsageError
from glassformer.interop.engine import Engine, Hypotheses, finite, library, log_softmax, not_exported
from glassformer.interop.export_facts import MAX_BYTES, ExportFacts
from glassformer.text.ngrams import LENGTHS, MOST
from glassformer.text.tokenizer import Tokenizer
from glassformer.utils import cpu_threads
from glassformer.utils.safe_read import read_bytes

Step = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""Function of the newest tokens (R,), of the row of the last call that each row continues (R,), and of the sentence of
each row (R,); returns logits (R, V)."""


def beam_search(
    step: Step, n: int, limit: int, decode: DecodeConfig, n_best: int, bos: int, eos: int, suppress: Sequence[int]
) -> list[Hypotheses]:
    """Return the n_best hypotheses of n sentences, best first, those that ended before truncated ones.

    The first call of `step` begins every sentence. `limit` counts the end token, and of the settings `beam_size` and
    `length_penalty` are used.
    """
    width, penalties = max(1, decode.beam_size), [1.0] + [t**decode.length_penalty for t in range(1, limit + 1)]
    finished: list[Hypotheses] = [[] for _ in range(n)]
    n_finished, results = [0] * n, list[Hypotheses]([[] for _ in range(n)])
    active, live = list(range(n)), [[(0.0, list[int]())] for _ in range(n)]  # log-probability and tokens
    newest, rows, sentences = np.full(n, bos), np.arange(n), np.arange(n)
    for t in range(1, limit + 1):
        scores = log_softmax(step(newest, rows, sentences))
        scores[:, list(suppress)] = -np.inf
        first_row, new_live, new_rows = 0, list[list[tuple[float, list[int]]]](), list[list[int]]()
        for i, hypotheses in zip(active, live, strict=True):
            own = scores[first_row : first_row + len(hypotheses)] + np.array([[lp] for lp, _ in hypotheses])
            n_candidates = min(own.size, 1 if width == 1 else 2 * width)
            kept, parents = list[tuple[float, list[int]]](), list[int]()
            for rank, index in enumerate(_largest(own.ravel(), n_candidates)):
                (parent, token), total = divmod(int(index), own.shape[1]), float(own.ravel()[index])
                tokens = [*hypotheses[parent][1], token]
                if total == -np.inf:
                    break
                if token != eos and len(kept) < width:
                    kept.append((total, tokens))
                    parents.append(first_row + parent)
                elif token == eos and rank < width:
                    n_finished[i] += 1
                    finished[i] = sorted([*finished[i], (tokens, total / penalties[t])], key=lambda h: -h[1])[:n_best]
            first_row += len(hypotheses)
            worst = finished[i][-1][1] if len(finished[i]) == n_best else -np.inf
            best_live = kept[0][0] if kept else -np.inf
            enough = n_finished[i] >= width and worst >= best_live / penalties[t]
            if t == limit or enough or worst >= best_live / max(penalties[min(t + 1, limit)], penalties[limit]):
                cut = [(tokens, total / penalties[t]) for total, tokens in kept]
                results[i] = [*finished[i], *cut][:n_best]
            else:
                new_live.append(kept)
                new_rows.append(parents)
        active = [i for i in active if not results[i]]
        if not active:
            break
        live = new_live
        newest = np.array([tokens[-1] for kept in live for _, tokens in kept])
        rows = np.array([row for parents in new_rows for row in parents])
        sentences = np.array([i for i, kept in zip(active, live, strict=True) for _ in kept])
    return results


def sample(
    step: Step,
    first: np.ndarray,
    decode: DecodeConfig,
    n_new: int,
    places: Sequence[tuple[int, int]],
    eos: int,
    suppress: Sequence[int],
) -> list[list[int]]:
    """Return at most n_new sampled tokens of each row; an end token is one of them.

    `step` is the model after the prompts, and `first` (R, V) its logits there. `places` are the row number and the
    number of earlier tokens of each row, of which the random numbers are made.
    """
    written: list[list[int]] = [[] for _ in places]
    active, logits = np.arange(len(places)), first
    # As in `decode.sampling`, a number for each position of a row's text, of which these are the next.
    u = np.stack([np.random.default_rng([decode.decode_seed, row]).random(n + n_new)[n:] for row, n in places])
    for t in range(n_new):
        logits = logits.astype(np.float64)
        logits[:, list(suppress)] = -np.inf
        if decode.temperature == 0:
            tokens = logits.argmax(axis=1)
        else:
            tokens = _sampled(np.exp(log_softmax(logits / decode.temperature)), decode, u[active, t])
        for i, token in zip(active, tokens.tolist(), strict=True):
            written[i].append(token)
        unfinished = np.flatnonzero(tokens != eos)
        if not len(unfinished) or t == n_new - 1:
            break
        active = active[unfinished]
        logits = step(tokens[unfinished], unfinished, active)
    return written


def _sampled(p: np.ndarray, decode: DecodeConfig, u: np.ndarray) -> np.ndarray:
    """Return a token for each row of probabilities (R, V), from those that pass every filter."""
    passes = p > 0
    if decode.min_p > 0:
        passes &= p >= decode.min_p * p.max(axis=1, keepdims=True)
    if 0 < decode.top_k < p.shape[1] or decode.top_p < 1:
        order = (-p).argsort(axis=1, kind="stable")
        ordered = np.take_along_axis(p, order, axis=1)
        good = np.ones_like(passes)
        if decode.top_k > 0:
            good[:, decode.top_k :] = False
        if decode.top_p < 1:
            good &= ordered.cumsum(axis=1) - ordered < decode.top_p
            good[:, 0] = True
        listed = np.zeros_like(passes)
        np.put_along_axis(listed, order, good, axis=1)
        passes &= listed
    cumulative = np.where(passes, p, 0.0).cumsum(axis=1)
    wanted = u * cumulative[:, -1]
    return np.array([np.searchsorted(row, x, side="right") for row, x in zip(cumulative, wanted, strict=True)])


def _largest(values: np.ndarray, k: int) -> np.ndarray:
    """Return the indices of the k largest values, largest first; of equal ones the first."""
    if k == 1:
        return np.array([values.argmax()])
    found = np.sort(np.argpartition(-values, k - 1)[:k])
    return found[(-values[found]).argsort(kind="stable")]


SPELLING = "spelling.json"


def spelling_json(tokenizer: Tokenizer) -> bytes:
    """Return the content of `spelling.json`.

    `ngrams` are in the order of their numbers, of which the first is `first`; numbers 1 to 256 are the bytes of a word
    without a listed n-gram, and 0 is padding. `lengths` are those of n-grams, and a word has at most `most`.
    """
    assert tokenizer.ngrams is not None
    ngrams = tokenizer.ngrams.ngrams
    data = {"first": len(tokenizer.ngrams) - len(ngrams), "lengths": LENGTHS, "most": MOST}
    data |= {"lowercase": tokenizer.lowercases, "ngrams": ngrams}
    return (json.dumps(data, ensure_ascii=False) + "\n").encode("utf-8")


_INNER: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "unknown", 25: "unknown"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "unknown", 10: "tensor", 11: "unknown", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "unknown"},
}
"""Messages inside messages, by the number of their field; "unknown" are those that no export holds."""
_DATA_LOCATION = 14
_LENGTH_DELIMITED = 2
MAX_FIELDS = 4_000_000
"""Most fields of a graph, of which a node has some ten."""
_WIDTHS = {1: 8, 5: 4}
"""Bytes of a number of a fixed width, by its type."""


def check_graph(data: bytes, where: Path) -> None:
    """Refuse a graph that names other files, holds functions or graphs inside nodes, or is no graph.

    Raises:
        CheckpointError: it is refused.
    """
    waiting = [("model", 0, len(data))]
    n_graphs = n_fields = 0
    while waiting:
        kind, start, end = waiting.pop()
        try:
            for field, first, last in _fields(data, start, end):
                n_fields += 1
                if field == 0 or n_fields > MAX_FIELDS:
                    raise ValueError("no field has the number 0, and no graph so many")
                inner = _INNER[kind].get(field)
                if inner == "unknown" or (kind == "tensor" and field == _DATA_LOCATION and first):
                    message = f"{where} names another file, or holds functions or graphs inside of nodes"
                    raise not_exported(message)
                if inner is not None:
                    n_graphs += inner == "graph"
                    waiting.append((inner, first, last))
        except (IndexError, ValueError) as error:
            raise not_exported(f"{where} is not an ONNX graph") from error
    if n_graphs != 1:
        raise not_exported(f"{where} holds {n_graphs} graphs")


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the number of each field of a message, and the start and the end of its content, or its value and 0."""
    while at < end:
        key, at = _number(data, at, end)
        kind = key & 7
        if kind == 0:
            value, at = _number(data, at, end)
            yield key >> 3, value, 0
        elif kind == _LENGTH_DELIMITED:
            size, at = _number(data, at, end)
            if size > end - at:
                raise ValueError("a field is longer than its message")
            yield key >> 3, at, at + size
            at += size
        else:
            at += _WIDTHS.get(kind, end)
            yield key >> 3, 0, 0
    if at != end:
        raise ValueError("a message ends inside a field")


def _number(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return a number of variable length, and the index behind it."""
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
    raise ValueError("a number has no end")


BATCH_TOKENS = 4096
"""Tokens of a batch of a search, padding included, each counted once per hypothesis."""
MAX_RECENT = 15
"""Ids that are kept for n-grams: `max_ngram` is at most 16."""


def load_engine(path: Path, facts: ExportFacts, tokenizer: Tokenizer, device: str) -> OnnxEngine:
    """Return the engine of an exported folder.

    Raises:
        CheckpointError: the library cannot read a graph.
        UsageError: it is not installed, or cannot compute on this device.
    """
    onnxruntime = library("an export for onnx", "onnx", "onnxruntime")
    provider = "CUDAExecutionProvider" if device == "cuda" else "CPUExecutionProvider"
    if provider not in onnxruntime.get_available_providers():
        raise UsageError("this onnxruntime cannot compute on cuda", "install onnxruntime-gpu, or use --device cpu")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = cpu_threads.n_threads(), 3
    # Threads that wait without spinning: a step is short, and other work may want the cores.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    graphs = {}
    for name in sorted(name for name in facts.required_files if name.endswith(".onnx")):
        file = path / name
        data = read_bytes(file, MAX_BYTES[".onnx"])
        check_graph(data, file)
        try:
            graphs[file.stem] = onnxruntime.InferenceSession(data, options, providers=[provider])
        except Exception as error:  # the library raises classes of its own that share no base
            raise not_exported(f"onnxruntime cannot read {file}: {error}") from error
    return OnnxEngine(graphs, tokenizer)


class OnnxEngine(Engine):
    """The graphs of a model by name."""

    def __init__(self, graphs: dict[str, Any], tokenizer: Tokenizer) -> None:
        self._graphs, self._t = graphs, tokenizer

    def outputs(self, ids: list[int], words: Sequence[str] = ()) -> np.ndarray:
        if "decoder_step" in self._graphs:
            return self._decoder(np.array([ids])).logits[0]
        inputs = {"input_ids": np.array([ids or [self._t.pad_id]]), "attention_mask": np.array([[1] * len(ids) or [0]])}
        if (known := self._t.ngrams) is not None:
            rows = [[], *(known.lookup(word) if word else [] for word in dict.fromkeys(words))]
            index = {word: i for i, word in enumerate(dict.fromkeys(words), start=1)}
            most = max(1, *map(len, rows)) if words else 1
            inputs["ngram_index"] = np.array([[index[word] for word in words] or [0]])
            inputs["ngrams"] = np.array([[*row, *[0] * (most - len(row))] for row in rows])
        return self._graphs["model"].run(None, {name: x.astype(np.int64) for name, x in inputs.items()})[0][0]

    def log_probs(self, source: list[int], target: list[int]) -> np.ndarray:
        decoder = self._decoder(np.array([[self._t.bos_id, *target]]), self._memory([source]))
        labels = np.array([*target, self._t.eos_id])
        return np.take_along_axis(log_softmax(decoder.logits[0]), labels[:, None], axis=1)[:, 0]

    def _decoder(self, ids: np.ndarray | None, memory: dict[str, np.ndarray] | None = None) -> _Decoder:
        return _Decoder(self._graphs["decoder_step"], self._t.vocab_size, ids, memory)

    def search(self, sources: Sequence[list[int]], decode: DecodeConfig, limit: int, n_best: int) -> list[Hypotheses]:
        t, found = self._t, dict[int, Hypotheses]()
        longest_first = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
        while longest_first:
            n_rows = max(1, BATCH_TOKENS // (max(1, decode.beam_size) * (len(sources[longest_first[0]]) + 1)))
            batch, longest_first = longest_first[:n_rows], longest_first[n_rows:]
            decoder = self._decoder(None, self._memory([sources[i] for i in batch]))
            never = sorted({t.pad_id, t.bos_id} - {t.eos_id})
            results = beam_search(decoder.step, len(batch), limit, decode, n_best, t.bos_id, t.eos_id, never)
            found |= dict(zip(batch, results, strict=True))
        return [found[i] for i in range(len(sources))]

    def generate(
        self, prompts: Sequence[list[int]], decode: DecodeConfig, n_new: int, places: Sequence[tuple[int, int]]
    ) -> list[list[int]]:
        t, decoder = self._t, self._decoder(np.array(prompts))
        suppress = [i for i in t.without_text if i != t.eos_id]
        return sample(decoder.step, decoder.logits[:, -1], decode, n_new, places, t.eos_id, suppress)

    def _memory(self, sources: Sequence[list[int]]) -> dict[str, np.ndarray]:
        """Return the keys and values of sources, which end with an end token, and the mask of their padding."""
        rows = [self._t.with_end(source) for source in sources]
        longest = max(map(len, rows))
        ids, mask = np.zeros((len(rows), longest), np.int64), np.zeros((len(rows), longest), np.int64)
        for i, row in enumerate(rows):
            ids[i, : len(row)], mask[i, : len(row)] = row, 1
        keys, values = self._graphs["encoder"].run(None, {"input_ids": ids, "attention_mask": mask})
        return {"memory_keys": keys, "memory_values": values, "attention_mask": mask}


class _Decoder:
    """The step graph with the keys and values of what it has read.

    `ids` (R, n) are the first tokens, None if the first step brings them; `memory` are inputs from the encoder, one row
    a sentence.

    Attributes:
        logits: those after the first tokens, (R, n, V).
    """

    def __init__(self, graph: Any, n_tokens: int, ids: np.ndarray | None, memory: dict[str, np.ndarray] | None) -> None:
        self._graph, self._n_tokens, self._memory = graph, n_tokens, memory or {}
        shapes = {one.name: one.shape for one in graph.get_inputs()}
        layers, _, heads, _, width = shapes["past_keys"]
        n_rows = len(self._memory["attention_mask"]) if ids is None else len(ids)
        self._keys = self._values = np.zeros((layers, n_rows, heads, 0, width), np.float32)
        self._recent = np.zeros((n_rows, 0), np.int64) if "recent_ids" in shapes else None
        self._sentences, self._of_rows = np.zeros(0, np.int64), self._memory
        self.logits = np.zeros((0, 0, 0)) if ids is None else self._read(ids, np.arange(n_rows))

    def step(self, newest: np.ndarray, rows: np.ndarray, sentences: np.ndarray) -> np.ndarray:
        """Return the logits (R, V) after new tokens; the arguments are those of `Step`."""
        if not np.array_equal(rows, np.arange(self._keys.shape[1])):
            self._keys, self._values = self._keys[:, rows], self._values[:, rows]
            self._recent = None if self._recent is None else self._recent[rows]
        return self._read(newest[:, None], sentences)[:, -1]

    def _read(self, ids: np.ndarray, sentences: np.ndarray) -> np.ndarray:
        if self._memory and not np.array_equal(sentences, self._sentences):
            mask = self._memory["attention_mask"][sentences]
            self._of_rows = {name: x[:, sentences] for name, x in self._memory.items() if name != "attention_mask"}
            self._of_rows["attention_mask"], self._sentences = mask, sentences
        inputs = {"input_ids": ids.astype(np.int64), "past_keys": self._keys, "past_values": self._values}
        recent = {} if self._recent is None else {"recent_ids": self._recent}
        logits, self._keys, self._values = self._graph.run(None, inputs | self._of_rows | recent)
        if self._recent is not None:
            self._recent = np.concatenate([self._recent, ids], axis=1)[:, -MAX_RECENT:].astype(np.int64)
        if logits.shape != (*ids.shape, self._n_tokens):
            raise not_exported(f"the graph gives logits {logits.shape} for {ids.shape} of {self._n_tokens} tokens")
        return finite(logits)
