"""JoeyNMT: its `build_model` from a configuration, its own cross-entropy, in the plain loop.

JoeyNMT's log-probabilities go through one more softmax in the loop's cross-entropy, which leaves them as they are.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from benchmarks.speed.peers.serving import Spec, serve
from benchmarks.speed.peers.training import Batch, build
from benchmarks.speed.workloads import BOS, EOS, PAD, UNK
from joeynmt.model import build_model
from joeynmt.vocabulary import Vocabulary
from torch import Tensor, nn

ITS_UNK, ITS_PAD = PAD, UNK
"""JoeyNMT numbers these two the other way round; no text here has an unknown word."""
SPECIAL = {"pad_id": ITS_PAD, "unk_id": ITS_UNK, "bos_id": BOS, "eos_id": EOS, "sep_id": None, "sep_token": None}


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


if __name__ == "__main__":
    serve(build({"translate": Translator}))
