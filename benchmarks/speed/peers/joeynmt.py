"""JoeyNMT: its `build_model` from a configuration, its own cross-entropy, in the plain loop.

JoeyNMT's log-probabilities go through one more softmax in the loop's cross-entropy, which leaves them as they are. For
part i: its greedy search; Adam, inverse square root of the step, label smoothing 0.1.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from benchmarks.speed.peers.serving import Settings, Spec, make_batch, serve
from benchmarks.speed.peers.training import Batch, TorchCurve, build
from benchmarks.speed.workloads import BOS, EOS, PAD, UNK, Texts, Workload
from joeynmt.model import build_model
from joeynmt.search import transformer_greedy
from joeynmt.vocabulary import Vocabulary
from torch import Tensor, nn

ITS_UNK, ITS_PAD = PAD, UNK
"""JoeyNMT numbers these two the other way round; no text here has an unknown word."""
SPECIAL = {"pad_id": ITS_PAD, "unk_id": ITS_UNK, "bos_id": BOS, "eos_id": EOS, "sep_id": None, "sep_token": None}

SENTENCES = 128
"""Translated at a time."""


def vocabulary(size: int) -> Vocabulary:
    """Return a vocabulary of the workload's size."""
    names = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    words = [*names.values(), *(f"w{i}" for i in range(size - len(names)))]
    return Vocabulary(words, SimpleNamespace(**SPECIAL, **names, lang_tags=[]))


class Translator(nn.Module):
    """`joeynmt.model.Model`, its norms after ("post") or before ("pre") each sublayer."""

    def __init__(self, spec: Spec, layer_norm: str = "post") -> None:
        super().__init__()
        w = spec.workload
        half: dict[str, Any] = {
            "type": "transformer",
            "num_layers": w.n_layers,
            "num_heads": w.n_heads,
            "hidden_size": w.d_model,
            "ff_size": w.d_ff,
            "dropout": w.dropout,
            "layer_norm": layer_norm,
            "activation": "relu",
            "embeddings": {"embedding_dim": w.d_model, "scale": True, "dropout": w.dropout},
        }
        words = vocabulary(w.vocab_size)
        config = {"encoder": dict(half), "decoder": dict(half), "tied_embeddings": True, "tied_softmax": True}
        self.model = build_model(config, words, words)

    def forward(self, batch: Batch) -> Tensor:
        assert batch.tgt_in is not None
        real = (batch.ids != PAD)[:, None, :]  # (B, 1, S)
        src, tgt_in = (ids.masked_fill(ids == PAD, ITS_PAD) for ids in (batch.ids, batch.tgt_in))
        out, *_ = self.model._encode_decode(
            src=src,
            trg_input=tgt_in,
            src_mask=real,
            src_length=real.sum(dim=(1, 2)),
            trg_mask=torch.ones_like(tgt_in, dtype=torch.bool)[:, None, :],
        )
        return out


class JoeyNMTCurve(TorchCurve):
    """JoeyNMT on the batches of Glassformer's sampler, in its order.

    Args:
        spec: beside what `TorchCurve` reads, "workload"; "layer_norm", "pre" or "post"; "warmup" steps; "data", a file
            with the fields of `Texts`, `plan` and `plan_sizes`, the examples of each batch, and `valid` and
            `valid_offsets`, the sources.
    """

    def __init__(self, spec: dict[str, Any]) -> None:
        torch.manual_seed(spec["seed"])
        self.workload = Workload(**spec["workload"])
        super().__init__(Translator(Spec(self.workload, spec["data"], Settings()), spec["layer_norm"]), spec)
        with np.load(spec["data"]) as arrays:
            self.texts = Texts(*(arrays[name] for name in Texts.__dataclass_fields__))
            self.plan = np.split(arrays["plan"], arrays["plan_sizes"].cumsum()[:-1])
            self.sources = np.split(arrays["valid"], arrays["valid_offsets"][1:-1])

    def lr(self, seconds: float) -> float:
        """Return linear warm-up, then the inverse square root of the step."""
        step, warmup = self.n_steps + 1, self.spec["warmup"]
        return self.spec["lr"] * min(step / warmup, (warmup / step) ** 0.5)

    def batch(self) -> Batch:
        """Return the next batch of the plan."""
        arrays = make_batch(self.workload, self.texts, self.plan[self.n_steps % len(self.plan)])
        assert arrays.tgt_in is not None
        labels, ids = torch.from_numpy(arrays.labels), torch.from_numpy(arrays.ids)
        return Batch(ids, ids != PAD, torch.from_numpy(arrays.tgt_in), labels)

    @torch.no_grad()
    def score(self) -> dict[str, list[list[int]]]:
        """Return the translations, as ids, of the validation sentences, in their order."""
        model: Any = self.model.model.eval()
        order = sorted(range(len(self.sources)), key=lambda i: len(self.sources[i]))
        found: dict[int, list[int]] = {}
        for begin in range(0, len(order), SENTENCES):
            some = order[begin : begin + SENTENCES]
            width = max(len(self.sources[i]) for i in some)
            ids = np.stack(
                [np.pad(self.sources[i], (0, width - len(self.sources[i])), constant_values=PAD) for i in some]
            )
            src = torch.from_numpy(ids)
            mask = (src != PAD)[:, None, :]
            memory = model._encode(src.masked_fill(src == PAD, ITS_PAD), mask.sum(dim=(1, 2)), mask)[0]
            rows = transformer_greedy(mask, 2 * width, model, memory, None)[0]
            for i, row in zip(some, rows.tolist(), strict=True):
                found[i] = row[: row.index(EOS)] if EOS in row else row
        return {"translations": [found[i] for i in range(len(order))]}


if __name__ == "__main__":
    serve(build({"translate": Translator}), JoeyNMTCurve)
