"""The training loop of every peer that is a torch module: the plain one of torch's own tutorials.

All begin alike (`start_alike`), so that losses can be compared; mean cross-entropy, AdamW, gradients clipped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from benchmarks.speed.peers.serving import ArrayBatch, Spec, keep_large_blocks
from benchmarks.speed.workloads import IGNORE_INDEX, PAD
from torch import Tensor, nn
from torch.nn import functional as F

WARM_UP_UPDATES = 12


@dataclass(frozen=True)
class Batch:
    """Tensors of a batch; `mask` is True at real tokens of `ids`, None when all are."""

    ids: Tensor
    mask: Tensor | None
    tgt_in: Tensor | None
    labels: Tensor


class TorchTrainer:
    """A model whose call on a `Batch` gives logits, (B, C) or (B, T, V).

    Args:
        model: the model, initialised here.
        spec: the row.
    """

    def __init__(self, model: nn.Module, spec: Spec) -> None:
        torch.manual_seed(spec.seed)
        keep_large_blocks()
        if spec.settings.medium:
            torch.set_float32_matmul_precision("medium")
        start_alike(model, embedding_std=0.02 if spec.workload.kind != "translate" else spec.workload.d_model**-0.5)
        self.model, self.spec, self.step = model.train(), spec, 0
        self.n_parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
        self.optimizer = torch.optim.AdamW(  # weight decay as in glassformer's recipes
            model.parameters(), spec.workload.lr, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.01, fused=True
        )

    def prepare(self, batch: ArrayBatch) -> Batch:
        """Return the batch as tensors."""
        ids, labels = torch.from_numpy(batch.ids), torch.from_numpy(batch.labels)
        mask = ids != PAD
        tgt_in = None if batch.tgt_in is None else torch.from_numpy(batch.tgt_in)
        return Batch(ids, None if bool(mask.all()) else mask, tgt_in, labels)

    def update(self, prepared: Batch) -> float:
        """Run forward, backward, clipping and a step."""
        self.step += 1
        lr = self.spec.workload.lr * min(1.0, self.step / WARM_UP_UPDATES)
        loss = torch_step(self.model, self.optimizer, prepared, lr, self.spec.settings.precision)
        return loss.item()


def torch_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch, lr: float, precision: str, smoothing: float = 0.0
) -> Tensor:
    """Run forward, backward, clipping at 1 and a step; return the mean loss."""
    for group in optimizer.param_groups:
        group["lr"] = lr
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
        logits = model(batch)
    labels = batch.labels.flatten()
    loss = F.cross_entropy(logits.flatten(0, -2).float(), labels, ignore_index=IGNORE_INDEX, label_smoothing=smoothing)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss


class TorchCurve:
    """The plain training loop of a torch module, with the process settings of Glassformer (`tuned`).

    Args:
        model: gives logits (B, T, V) for what `batch` returns.
        spec: "precision" of autocast, "threads" of torch (its own choice if absent),
            "seed", "betas", "weight_decay" of the matrices, and "label_smoothing".
    """

    def __init__(self, model: nn.Module, spec: dict[str, Any]) -> None:
        torch.set_float32_matmul_precision("medium")
        if "threads" in spec:
            torch.set_num_threads(spec["threads"])
        keep_large_blocks()
        self.model, self.spec, self.n_steps = model.train(), spec, 0
        self.rng = np.random.default_rng(spec["seed"])
        matrices = [p for p in model.parameters() if p.ndim > 1]
        vectors = [p for p in model.parameters() if p.ndim <= 1]
        groups = [{"params": matrices, "weight_decay": spec["weight_decay"]}, {"params": vectors, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, spec["lr"], betas=tuple(spec["betas"]), eps=1e-9, fused=True)

    def lr(self, seconds: float) -> float:
        """Return the learning rate of the next step."""
        raise NotImplementedError

    def batch(self) -> Batch:
        """Return the next batch."""
        raise NotImplementedError

    def step(self, seconds: float) -> bool:
        """Run forward, backward, clipping and a step."""
        how = self.lr(seconds), self.spec["precision"], self.spec["label_smoothing"]
        torch_step(self.model.train(), self.optimizer, self.batch(), *how)
        self.n_steps += 1
        return True


def start_alike(model: nn.Module, embedding_std: float) -> None:
    """Initialise as the others: Xavier-uniform matrices, zero biases, embeddings N(0, std²); norms as they are.

    A matrix that computes queries, keys and values counts as three.
    """
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    norms = {id(p) for m in model.modules() if "norm" in type(m).__name__.lower() for p in m.parameters()}
    with torch.no_grad():
        for name, p in model.named_parameters():
            if id(p) in embeddings or ("embedding" in name and p.ndim == 2):
                nn.init.normal_(p, std=embedding_std)
            elif p.ndim == 2:
                for part in _blocks(p):
                    nn.init.xavier_uniform_(part)
            elif name.endswith("bias") and id(p) not in norms:
                p.zero_()


def mean_pool(x: Tensor, mask: Tensor | None) -> Tensor:
    """Average (B, S, D) to (B, D), padding excluded."""
    if mask is None:
        return x.mean(dim=1)
    return (x * mask[:, :, None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)


def build(kinds: dict[str, Callable[[Spec], nn.Module]]) -> Callable[[Spec], TorchTrainer]:
    """Return a peer from a model for each kind of workload that it has."""

    def make(spec: Spec) -> TorchTrainer:
        if spec.workload.kind not in kinds:
            raise SystemExit(f"it has no model for workload {spec.workload.name}")
        torch.manual_seed(spec.seed)
        return TorchTrainer(kinds[spec.workload.kind](spec), spec)

    return make


def sinusoids(n_positions: int, d_model: int) -> Tensor:
    """Return the paper's table of positions, (L, D)."""
    angle = np.arange(n_positions)[:, None] / 10000 ** (np.arange(0, d_model, 2) / d_model)
    return torch.from_numpy(np.stack([np.sin(angle), np.cos(angle)], axis=2).reshape(n_positions, d_model)).float()


def _blocks(p: Tensor) -> Any:
    """Return the square parts of a matrix that is three of them, else the matrix."""
    for dim in (0, 1):
        if p.shape[dim] == 3 * p.shape[1 - dim]:
            return p.chunk(3, dim)
    return [p]
