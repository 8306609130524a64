"""How it is trained: budget, batches, optimizer, validation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from glassformer.config.fields import BY_OPTIMIZER, number


@dataclass(frozen=True)
class AdamConfig:
    """Adam, the paper's (5.3). It has no weight decay."""

    beta1: float = number(0.9, "[0, 1)")
    """Decay of the mean of the gradients."""
    beta2: float = number(0.98, "[0, 1)")
    """Decay of the mean of their squares (the paper's 0.98)."""
    eps: float = number(1e-9, "(0, inf)")
    """Added to the root of that mean (the paper's 1e-9)."""


@dataclass(frozen=True)
class AdamWConfig(AdamConfig):
    """AdamW: Adam with weight decay apart from the gradient."""

    weight_decay: float = number(0.01, "[0, inf)")
    """Decoupled weight decay, of matrices only: biases, norms and embeddings are never decayed."""


@dataclass(frozen=True)
class SGDConfig:
    """Stochastic gradient descent: plain, unless it is given momentum or weight decay."""

    momentum: float = number(0.0, "[0, 1)")
    """Share of the last update that is carried into the next; 0 is plain SGD."""
    weight_decay: float = number(0.0, "[0, inf)")
    """Weights added to the gradient, times this; of matrices only."""


@dataclass(frozen=True)
class MuonConfig(AdamConfig):
    """Muon for the matrices of the layers, AdamW for the rest: embeddings, norms, biases and heads (`lr`, beta, eps)."""

    matrix_lr: float = number(0.02, "(0, inf)")
    """Peak learning rate of the matrices: every update turns them by about so much, whatever the gradient's size."""
    momentum: float = number(0.95, "[0, 1)")
    """Decay of the mean of the matrices' gradients."""
    weight_decay: float = number(0.0, "[0, inf)")
    """Decoupled weight decay, of the matrices of the layers only."""


@dataclass(frozen=True)
class TrainConfig:
    """The optimisation. One of epochs, steps or minutes bounds it; the first reached ends it."""

    epochs: float | None = number(None, "(0, inf)")
    """Passes over the training data."""
    steps: int | None = number(None, "[1, inf)")
    """Optimizer updates."""
    minutes: float | None = number(None, "(0, inf)")
    """Wall-clock budget of updates and validations, measured once and from there so many updates; saving and the final test come on top."""
    max_tokens: int = number(4096, "[1, inf)")
    """Tokens in a batch, padding included (translation: the longer side counts)."""
    batch_size: int | None = number(None, "[1, inf)")
    """Examples in a batch instead of a token budget."""
    accumulate: int = number(1, "[1, inf)")
    """Batches summed into one update."""
    init_from: str | None = None
    """Run to begin from instead of random weights (fine-tuning): its tokenizer and sizes are taken over."""
    optimizer: Literal["adamw", "adam", "sgd", "muon"] = "adamw"
    """How a gradient becomes an update; each has settings of its own."""
    lr: float = number(1e-3, "(0, inf)")
    """Peak learning rate."""
    schedule: Literal["constant", "linear", "cosine", "inverse-sqrt"] = "cosine"
    """After warm-up: constant, down to zero in a line or a half cosine, or the paper's 1/√step."""
    warmup: float = number(0.05, "[0, inf)")
    """Warm-up: a share of the run below 1, otherwise updates."""
    max_grad_norm: float = number(1.0, "[0, inf)")
    """Gradient norm above which gradients are scaled down; 0 never clips."""
    label_smoothing: float = number(0.0, "[0, 1)")
    """Share of the target probability spread over all classes (paper, 5.4)."""
    word_mask_prob: float = number(0.0, "[0, 1)")
    """Share of input tokens replaced by [MASK] while training (word dropout); makes erasing words meaningful later."""
    word_unknown_prob: float = number(0.0, "[0, 1)")
    """Share of input tokens read as [UNK] while training, their spelling kept: so an unknown word has a vector that was trained."""
    adversarial: float = number(0.0, "[0, 1)")
    """Adversarial training: how far the text's vectors are moved to raise the loss, as a share of their length; about twice the time."""
    ema_decay: float = number(0.0, "[0, 1)")
    """Exponential moving average of the weights, used for validation and the final model; 0 for none."""
    patience: int | None = number(None, "[1, inf)")
    """Stop after so many validations without a better metric."""
    validate_every: float = number(1.0, "(0, inf)")
    """Epochs between validations."""
    validate_min_steps: int = number(1, "[1, inf)")
    """Fewest updates between validations: an epoch of little data is over in a few, and patience with it."""
    score_train: bool = False
    """Score the training split too at each validation, for a table of both."""
    save_every: int = number(1000, "[1, inf)")
    """Updates between checkpoints besides those at each validation."""
    snapshots: bool = False
    """Keep the weights of the start and of updates 16, 32, 64 … too, to watch the model form (`explain`, Compare)."""
    seed: int = number(1, "[0, 4294967295]")
    """Seed of initialisation, data order and dropout."""
    activation_checkpointing: bool = False
    """Keep only what goes into each layer and compute the rest again for its gradient: a third more work, far less memory."""
    compile: bool = False
    """Compile each layer (torch.compile): a minute or more at the start, for long runs on a GPU."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """bf16 autocast over fp32 masters, where the processor has it (auto)."""
    deterministic: bool = False
    """Deterministic kernels, also on CUDA (slower)."""
    adamw: AdamWConfig = field(default_factory=AdamWConfig, metadata=BY_OPTIMIZER)
    """For `optimizer = "adamw"`."""
    adam: AdamConfig = field(default_factory=AdamConfig, metadata=BY_OPTIMIZER)
    """For `optimizer = "adam"`."""
    sgd: SGDConfig = field(default_factory=SGDConfig, metadata=BY_OPTIMIZER)
    """For `optimizer = "sgd"`."""
    muon: MuonConfig = field(default_factory=MuonConfig, metadata=BY_OPTIMIZER)
    """For `optimizer = "muon"`."""
