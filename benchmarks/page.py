"""How soon the page answers for a large model, over HTTP, as a browser asks.

    python benchmarks/page.py [--layers 12] [--d-model 768] [--tokens 128] [--threads 2] [--repeats 5]

A language model and a classifier of random weights are written as model folders, loaded, and served on this machine.
Measured, in seconds, each the median and the range of the repeats, and beside them the median of the processor
seconds that server and reader took, which hang less on what else a machine is busy with:

    first answer    from opening the address to the answer to the first text: the page's files, the run, the trace
    next answer     another text, from the question to its answer
    a layer         every step of one layer of what was traced, one read after the other
    its weights     the parameters of that layer, which a step that is opened is computed from again

Targets on two cores, for 12 layers, d 768 and 128 tokens: an answer within 3 s, a layer within 1 s. A language model
writes the last of its tokens itself (40, or what is left of 128), a step each; a classifier reads all of them.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import torch

import glassformer
from glassformer.config import Config, ModelConfig, TextConfig
from glassformer.data.splits import Split, TextData
from glassformer.explain.page.server import HOST, PageServer
from glassformer.runs.model_folder import save_model
from glassformer.tasks import task_class
from glassformer.training.finalize import model_metadata

FILES = ("app.js", "shared.js", "app.css")
VOCABULARY = 8000
PROMPT_LEFT = 40
"""Tokens that a language model is left to write."""


def made_up(n: int, seed: int) -> list[str]:
    """Return n words of a random vocabulary."""
    return [f"w{i}" for i in np.random.default_rng(seed).integers(0, VOCABULARY - 100, n)]


def folder_of(kind: str, sizes: ModelConfig, place: Path, max_len: int) -> Path:
    """Write a model folder with random weights."""
    texts = [" ".join(f"w{i}" for i in range(start, start + 100)) for start in range(0, VOCABULARY, 100)]
    labels = list(itertools.islice(itertools.cycle(["bad", "good"]), len(texts)))
    split = Split(texts, labels if kind == "classify" else None, "made up")
    text = TextConfig(tokenizer="word", vocab_size=VOCABULARY, max_len=max_len)
    config = Config(task=kind, text=text, model=sizes)
    task = task_class(kind).from_data(config, TextData(split, split, split))
    torch.manual_seed(0)
    task.tokenizer.save(place / "tokenizer.json")
    tokenizer = {"tokenizer.json": (place / "tokenizer.json").read_bytes()}
    weights = {name: p.detach().contiguous() for name, p in task.build_model().named_parameters()}
    save_model(place / kind / "model", model_metadata(task), weights, tokenizer, "Random weights.")
    return place / kind


class Reader:
    """One that reads over one connection, with the cookie it was given."""

    def __init__(self, server: PageServer) -> None:
        self.connection = http.client.HTTPConnection(HOST, server.port, timeout=120)
        self.headers: dict[str, str] = {}
        self.connection.request("GET", f"/?token={server.door.once()}")
        entered = self.connection.getresponse()
        entered.read()
        self.headers["Cookie"] = str(entered.headers["Set-Cookie"]).split(";")[0]
        self.place = str(entered.headers["Location"])

    def read(self, path: str, question: dict[str, Any] | None = None) -> bytes:
        """Return the response of a path, or to a request."""
        body = None if question is None else json.dumps(question)
        headers = self.headers | ({} if body is None else {"Content-Type": "application/json"})
        method = "GET" if body is None else "POST"
        self.connection.request(method, f"{self.place}{path}", body, headers)
        answer = self.connection.getresponse()
        body = answer.read()
        assert answer.status == 200, body[:300]
        return body

    def trace(self, text: str) -> dict[str, Any]:
        """Return the manifest of a text."""
        return json.loads(self.read("api/trace", {"text": text}))


@contextmanager
def timed(found: list[tuple[float, float]]) -> Iterator[None]:
    """Append the wall-clock and CPU seconds of the block to `found`."""
    began = time.perf_counter(), time.process_time()
    yield
    found.append((time.perf_counter() - began[0], time.process_time() - began[1]))


def measure(folder: Path, n_typed: int, repeats: int) -> tuple[dict[str, list[tuple[float, float]]], int, int]:
    """Return seconds by request, the tokens of a text, and the bytes of a layer."""
    found: dict[str, list[tuple[float, float]]] = {
        "first answer": [],
        "next answer": [],
        "a layer": [],
        "its weights": [],
    }
    n_tokens = n_bytes = 0
    for i in range(repeats):
        run = glassformer.load(folder)
        with PageServer(run, port=0) as server:
            with timed(found["first answer"]):
                reader = Reader(server)
                for name in ("", *FILES):
                    reader.read(name)
                reader.read("api/run")
                reader.trace(" ".join(made_up(n_typed, seed=2 * i)))
            with timed(found["next answer"]):
                manifest = reader.trace(" ".join(made_up(n_typed, seed=2 * i + 1)))
            nodes = [n for n in manifest["nodes"] if n["layer"] == run.config.model.n_layers // 2]
            params = dict.fromkeys(p for n in nodes for p in n["params"].values())
            n_tokens = len(manifest["streams"][-1]["ids"])
            for what, names in (("a layer", [n["id"] for n in nodes]), ("its weights", [*params])):
                with timed(found[what]):
                    read = [reader.read(f"api/trace/{manifest['id']}/t/{quote(name)}") for name in names]
                n_bytes = sum(map(len, read)) if what == "a layer" else n_bytes
    return found, n_tokens, n_bytes


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Seconds until the page answers for a large model.")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--d-model", type=int, default=768)
    parser.add_argument("--tokens", type=int, default=128, help="of a text, with what is written")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    heads = max(1, options.d_model // 64)
    sizes = ModelConfig(n_layers=options.layers, d_model=options.d_model, n_heads=heads, d_ff=4 * options.d_model)
    with tempfile.TemporaryDirectory() as place:
        for kind, left in (("lm", PROMPT_LEFT), ("classify", 0)):
            folder = folder_of(kind, sizes, Path(place), 2 * options.tokens)
            found, n_tokens, n_bytes = measure(folder, options.tokens - left, options.repeats)
            print(f"{kind}: {options.layers} layers, d {options.d_model}, {n_tokens} tokens, {options.threads} threads")
            for what, both in found.items():
                size = f", {n_bytes / 1e6:.1f} MB" if what == "a layer" else ""
                seconds, of_processors = ([each[i] for each in both] for i in (0, 1))
                middle, low, high = statistics.median(seconds), min(seconds), max(seconds)
                cpu = statistics.median(of_processors)
                print(
                    f"  {what:14} {middle:6.2f} s   ({low:.2f} – {high:.2f}, n = {len(seconds)}), CPU {cpu:.2f} s{size}"
                )


if __name__ == "__main__":
    main()
