"""Settings of training: budget, batches, optimizer, validation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from glassformer.config.fields import BY_OPTIMIZER, number


@dataclass(frozen=True)
class AdamConfig:
    """Adam, the paper's (5.3). It has no weight decay."""

    beta1: float = number(0.9, "[0, 1)")
    """Decay rate of the gradients' mean."""
    beta2: float = number(0.98, "[0, 1)")
    """Decay rate of the squared gradients' mean; the paper's 0.98."""
    eps: float = number(1e-9, "(0, inf)")
    """Term added to the denominator; the paper's 1e-9."""


@dataclass(frozen=True)
class AdamWConfig(AdamConfig):
    """AdamW: Adam with weight decay apart from the gradient."""

    weight_decay: float = number(0.01, "[0, inf)")
    """Decoupled weight decay of matrices; biases, norms and embeddings have none."""


@dataclass(frozen=True)
class SGDConfig:
    """Stochastic gradient descent, optionally with momentum and weight decay."""

    momentum: float = number(0.0, "[0, 1)")
    """Momentum; 0 is plain SGD."""
    weight_decay: float = number(0.0, "[0, inf)")
    """Weight decay of matrices."""


@dataclass(frozen=True)
class MuonConfig(AdamConfig):
    """Muon for the matrices of the layers, AdamW (`lr`, beta, eps) for embeddings, norms, biases and heads."""

    matrix_lr: float = number(0.02, "(0, inf)")
    """Peak learning rate of the matrices; their steps do not depend on the size of gradients."""
    momentum: float = number(0.95, "[0, 1)")
    """Momentum of the matrices."""
    weight_decay: float = number(0.0, "[0, inf)")
    """Decoupled weight decay of the matrices of the layers."""


@dataclass(frozen=True)
class TrainConfig:
    """Training. The first of epochs, steps and minutes that is reached ends it."""

    epochs: float | None = number(None, "(0, inf)")
    """Number of epochs."""
    steps: int | None = number(None, "[1, inf)")
    """Number of optimizer steps."""
    minutes: float | None = number(None, "(0, inf)")
    """Time budget of training and validation in minutes, converted to steps once; the final test comes on top."""
    max_tokens: int = number(4096, "[1, inf)")
    """Maximum number of tokens per batch, padding included (translation: of the longer side)."""
    batch_size: int | None = number(None, "[1, inf)")
    """Examples per batch, instead of `max_tokens`."""
    accumulate: int = number(1, "[1, inf)")
    """Number of batches whose gradients are accumulated into one step."""
    init_from: str | None = None
    """Run to initialise from (fine-tuning); its tokenizer and sizes are used."""
    optimizer: Literal["adamw", "adam", "sgd", "muon"] = "adamw"
    """Optimizer; each has its own settings."""
    lr: float = number(1e-3, "(0, inf)")
    """Peak learning rate."""
    schedule: Literal["constant", "linear", "cosine", "inverse-sqrt"] = "cosine"
    """Learning rate after warm-up: constant, linear or cosine decay from its end to zero, or the paper's 1/√step."""
    warmup: float = number(0.05, "[0, inf)")
    """Warm-up in steps, or below 1 as a share of the run."""
    max_grad_norm: float = number(1.0, "[0, inf)")
    """Gradient norm above which gradients are clipped; 0 for no clipping."""
    label_smoothing: float = number(0.0, "[0, 1)")
    """Share of the target probability that is spread over all classes (paper, 5.4)."""
    word_mask_prob: float = number(0.0, "[0, 1)")
    """Probability of replacing an input token by [MASK] in training (word dropout), for later attribution."""
    word_unknown_prob: float = number(0.0, "[0, 1)")
    """Probability of replacing an input token by [UNK] in training, with its n-grams kept."""
    adversarial: float = number(0.0, "[0, 1)")
    """Adversarial training: perturbation size relative to the embeddings, 0 for none; 1.5 to 2 times the cost."""
    ema_decay: float = number(0.0, "[0, 1)")
    """Decay of the exponential moving average of the weights, which is validated and saved; 0 for none."""
    patience: int | None = number(None, "[1, inf)")
    """Number of validations without improvement after which training stops; without it, never."""
    validate_every: float = number(1.0, "(0, inf)")
    """Epochs between validations."""
    validate_min_steps: int = number(1, "[1, inf)")
    """Minimum number of steps between validations, for small data."""
    score_train: bool = False
    """Score the training split at each validation too."""
    save_every: int = number(1000, "[1, inf)")
    """Steps between checkpoints, besides those at validations."""
    snapshots: bool = False
    """Keep the weights of steps 0, 16, 32, 64 …, to show how the model forms (`explain`, Compare)."""
    seed: int = number(1, "[0, 4294967295]")
    """Seed of initialisation, data order and dropout."""
    activation_checkpointing: bool = False
    """Recompute activations in the backward pass: a third more computation, far less memory."""
    compile: bool = False
    """Compile each layer with torch.compile: a minute or more at the start, for long runs on a GPU."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Device; auto prefers CUDA, then MPS, then the CPU."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Precision; bf16 is autocast over fp32 weights, and auto uses it where the processor has it."""
    deterministic: bool = False
    """Use deterministic kernels, also on CUDA (slower), and a fixed number of threads."""
    threads: int | None = number(None, "[1, inf)")
    """Number of threads on a CPU; without it, as many as other programs leave room for."""
    adamw: AdamWConfig = field(default_factory=AdamWConfig, metadata=BY_OPTIMIZER)
    """For `optimizer = "adamw"`."""
    adam: AdamConfig = field(default_factory=AdamConfig, metadata=BY_OPTIMIZER)
    """For `optimizer = "adam"`."""
    sgd: SGDConfig = field(default_factory=SGDConfig, metadata=BY_OPTIMIZER)
    """For `optimizer = "sgd"`."""
    muon: MuonConfig = field(default_factory=MuonConfig, metadata=BY_OPTIMIZER)
    """For `optimizer = "muon"`."""
