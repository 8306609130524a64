"""The ladder of a GPU: what each way to train a language model faster gives, each with the loss of the way before it.

    python -m benchmarks.gpu                          the 124M-parameter model on the GPU that is there
    python -m benchmarks.gpu --device meta            sizes and FLOPs alone: every shape is computed, no number is
    python -m benchmarks.gpu --device cpu --tiny      that it runs, in seconds

Made-up documents of several lengths are trained on, the same ones in every row: first each padded to a row of its own,
in four batches an update; at last packed, in one batch. What is measured is the library's own `update`.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from benchmarks.documents import TINY, PackedBatch, Size, batches_of, lengths_of
from benchmarks.speed.__main__ import machine
from benchmarks.speed.table import Section, rounded
from torch import Tensor, nn

from glassformer.config import Config, ModelConfig, TextConfig, TrainConfig
from glassformer.data.batching import Batch
from glassformer.data.corpus import EncodedCorpus
from glassformer.data.ragged import Ragged
from glassformer.data.splits import Split, TextData
from glassformer.models import LanguageModel
from glassformer.models.cost import decoder_flops
from glassformer.runtime import Precision, choose_device, choose_precision, tuned
from glassformer.tasks.lm.task import LanguageModelling
from glassformer.text.tokenizer import Tokenizer
from glassformer.training.context import RunContext
from glassformer.training.loop import update
from glassformer.training.state import TrainState

PIECES = 4
"""Batches of an update before the last row, which has one."""
PEAKS = {
    "H200 NVL": 836e12, "H100 PCIe": 756e12, "H200": 989e12, "H100": 989e12, "A100": 312e12,
}  # fmt: skip
"""Dense bf16 FLOP/s by what a device's name holds, the first that fits (NVIDIA's data sheets)."""
COLUMNS = ("row", "ms an update", "tokens/s", "× eager", "utilisation, full attention", "utilisation, exact",
           "peak memory, GB", "first update, s", "last loss")  # fmt: skip


@dataclass(frozen=True)
class Rung:
    """A row of the ladder: all that the one before it has, and one thing more."""

    name: str
    waits: bool = False
    """Whether the loss of every batch is read as soon as it is computed, as loops do that print it."""
    compiled: bool = False
    packed: bool = False
    chunked: bool = False
    pieces: int = PIECES


LADDER = (
    Rung("eager", waits=True),
    Rung("one synchronisation"),
    Rung("compiled layers", compiled=True),
    Rung("packed", compiled=True, packed=True),
    Rung("loss in chunks", compiled=True, packed=True, chunked=True),
    Rung("larger batch", compiled=True, packed=True, chunked=True, pieces=1),
)


class Packed(LanguageModelling):
    """Language modelling of such rows."""

    waits = False

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        return model(batch.ids, segments=cast(PackedBatch, batch).segments)

    def read(self, model: nn.Module, batch: Batch) -> Tensor:
        return cast(LanguageModel, model).read(batch.ids, segments=cast(PackedBatch, batch).segments)

    def loss_sum(self, model: nn.Module, batch: Batch, label_smoothing: float = 0.0) -> Tensor:
        loss = super().loss_sum(model, batch, label_smoothing)
        if self.waits:
            loss.item()
        return loss

    def build_member(self) -> LanguageModel:
        return LanguageModel(self.config.model, self.config.text.vocab_size, self.config.text.max_len)


def run_of(size: Size, rung: Rung, device: torch.device, precision: Precision) -> RunContext:
    """What `update` wants of a run."""
    model = ModelConfig(
        n_layers=size.n_layers, d_model=size.d_model, n_heads=size.n_heads, dropout=0.0, positions="learned",
        norm="layer", activation="gelu", bias=False, tie_embeddings=True, embedding_std=0.02,
    )  # fmt: skip
    train = TrainConfig(
        steps=1, lr=6e-4, schedule="constant", compile=rung.compiled,
        loss_rows=size.loss_rows if rung.chunked else 0,
    )  # fmt: skip
    text = TextConfig(vocab_size=size.vocab_size, max_len=size.max_len)
    config = Config(task="lm", model=model, train=train, text=text)
    task = Packed(
        config, Tokenizer.train(["a"], TextConfig(tokenizer="char"))
    )  # its special tokens alone are asked for
    task.waits = rung.waits
    nothing, corpus = TextData(Split([]), Split([])), EncodedCorpus(Ragged.of([[0, 0]]))
    return RunContext(nothing, task, corpus, corpus, device, precision)


def measure(
    size: Size, rung: Rung, device: torch.device, n: int, warm_up: int, precision: Precision
) -> dict[str, Any]:
    """Milliseconds of each update, the last loss in nats, peak bytes on the GPU, and seconds of the first update."""
    run = run_of(size, rung, device, precision)
    torch.manual_seed(1)
    state = TrainState.start(run.task.build_model().to(device), run.config.train)
    times, first, loss = list[float](), 0.0, math.nan
    for step in range(warm_up + n):
        batches = [
            cast(Batch, batch.to(device)) for batch in batches_of(size, rung.pieces, rung.packed, step)
        ]
        took, (loss, _) = timed(device, lambda batches=batches: update(state, run, batches, 6e-4))
        state.progress.step += 1
        if step == 0:
            first = took
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
        if step >= warm_up:
            times.append(took)
    peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else None
    del state
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return {"row": rung.name, "ms": [1000 * t for t in times], "loss": loss, "peak": peak, "first": first}


def timed(device: torch.device, work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of some work, on a GPU by its own clock, and what it gave."""
    if device.type != "cuda":
        began = time.perf_counter()
        found = work()
        return time.perf_counter() - began, found
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    found = work()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1000, found


def shapes(size: Size, rung: Rung) -> dict[str, Any]:
    """Forward and backward pass of a batch on the meta device, where tensors have shapes and no numbers."""
    run = run_of(size, replace(rung, waits=False, compiled=False), torch.device("meta"), "fp32")
    with torch.device("meta"):
        model = run.task.build_model()
    batch = next(iter(batches_of(size, rung.pieces, rung.packed, 0))).to("meta")
    run.task.loss_sum(model, cast(Batch, batch)).backward()
    n = sum(p.grad.numel() for p in model.parameters() if p.grad is not None)
    assert n == sum(p.numel() for p in model.parameters()), "every weight has a gradient"
    logits = min(batch.ids.numel(), size.loss_rows if rung.chunked else math.inf) * size.vocab_size * 4
    return {"row": rung.name, "parameters": n, "rows": batch.ids.shape[0], "logits": logits}


def flops_per_token(size: Size) -> tuple[float, float]:
    """FLOPs of an update a real token: attention as if to a whole row, 6 P + 12 L d T; and what is really looked at."""
    model, lengths = run_of(size, LADDER[0], torch.device("cpu"), "fp32").config.model, lengths_of(size)
    typical = float((lengths.astype(float) ** 2).sum() / lengths.sum())  # of the document that a token is in
    full, exact = (
        3 * decoder_flops(model, n, size.vocab_size, cross=False) for n in (2 * size.max_len, typical)
    )
    return full, exact


def peak_of(device: torch.device) -> float | None:
    """Dense bf16 FLOP/s of a device that is known; None of others, for which no utilisation is given."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    return next((peak for part, peak in PEAKS.items() if part in name), None)


def table(size: Size, found: list[dict[str, Any]], peak: float | None) -> Section:
    """The ladder as a table."""
    section, n = Section("The ladder", COLUMNS, facts=found), int(lengths_of(size).sum())
    speeds = [n / statistics.median(row["ms"]) * 1000 for row in found]
    for row, speed in zip(found, speeds, strict=True):
        used = [f"{speed * flops / peak:.1%}" if peak else "–" for flops in flops_per_token(size)]
        memory = rounded(row["peak"] / 1e9) if row["peak"] else "–"
        section.rows.append(
            [row["row"], rounded(statistics.median(row["ms"])), rounded(speed), f"{speed / speeds[0]:.2f}", *used,
             memory, rounded(row["first"]), f"{row['loss']:.4f}"]
        )  # fmt: skip
    section.notes.append(
        f"{n:,} real tokens an update, {size.n_documents} documents; medians. Utilisation counts real tokens: with "
        f"attention to whole rows (6 P + 12 L d T, as peers do), and only what is looked at."
    )
    return section


def main(argv: list[str] | None = None) -> int:
    """Measure, print a table; 1 where a row's loss is not that of the first."""
    parser = argparse.ArgumentParser("python -m benchmarks.gpu", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--device", default="auto", choices=("auto", "cuda", "cpu", "meta"))
    parser.add_argument("--tiny", action="store_true", help="a model of no use, to try it in seconds")
    parser.add_argument("--updates", type=int, default=50, help="updates measured (50)")
    parser.add_argument("--warm-up", type=int, default=10, help="updates before them (10)")
    parser.add_argument("--documents", type=int, help="documents an update (128)")
    parser.add_argument("--json", type=Path, help="write everything measured into this file")
    asked = parser.parse_args(argv)
    size = TINY if asked.tiny else Size()
    size = replace(size, n_documents=asked.documents or size.n_documents)
    full, exact = flops_per_token(size)
    print(
        f"{machine()}\n{asdict(size)}\n{full / 1e9:.4g} GFLOP a token with full attention, {exact / 1e9:.4g} exact"
    )
    if asked.device == "meta":
        for rung in LADDER:
            told = shapes(size, rung)
            bytes_ = f"{16 * told['parameters'] / 1e9:.3g} GB of weights, gradients and Adam's moments"
            print(
                f"{rung.name}: {told['rows']} rows a batch, {told['logits'] / 1e9:.3g} GB of logits, {bytes_}"
            )
        return 0
    device = choose_device(asked.device)
    precision = choose_precision("auto", device)
    with tuned(device):
        found = [measure(size, rung, device, asked.updates, asked.warm_up, precision) for rung in LADDER]
    print(table(size, found, peak_of(device)).markdown())
    if asked.json:
        asked.json.write_text(
            json.dumps({"size": asdict(size), "rows": found}, indent=1) + "\n", encoding="utf-8"
        )
    bound = 2e-2 if precision == "bf16" else 1e-4
    apart = [row["row"] for row in found if not abs(row["loss"] / found[0]["loss"] - 1) < bound]
    print(f"losses apart by more than {bound:g}: {', '.join(apart) or 'none'}")
    return int(bool(apart))


if __name__ == "__main__":
    sys.exit(main())
