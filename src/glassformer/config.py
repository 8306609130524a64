"""Every choice of a run, as frozen dataclasses: a recipe is this in TOML, the flags of `train` this on a command line.

What belongs to one data set or optimizer stands in a section of its own, which counts only while it is chosen; a
number's interval stands at its field. Reading, writing and checking are in `recipes/`; this module imports only the
standard library, so that `--help` is quick.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal


def number(default: Any, interval: str) -> Any:
    """A field for a number in an interval, written as in mathematics; a None that is allowed is exempt."""
    return field(default=default, metadata={"interval": interval})


BY_DATASET, BY_OPTIMIZER = {"chooser": "dataset"}, {"chooser": "optimizer"}
"""What marks a section that counts only while the field named here, beside it, says its name."""


def idle(section: Any) -> list[str]:
    """Names of the sections inside this one that do not count, since something else is chosen."""
    own = [f for f in fields(section) if "chooser" in f.metadata]
    return [f.name for f in own if getattr(section, f.metadata["chooser"]) != f.name]


@dataclass(frozen=True)
class FilesConfig:
    """Files of your own: what they hold is for the task to say."""

    train_file: str | None = None
    """Own data: CSV, TSV or JSONL to classify; TSV or JSONL of pairs to translate; .txt or a folder of them for a language model."""
    valid_file: str | None = None
    """Own validation data in the same form; without it a seeded share of the training data is set aside."""
    test_file: str | None = None
    """Own test data in the same form."""
    src_file: str | None = None
    """Own source sentences, one a line (parallel to --tgt-file)."""
    tgt_file: str | None = None
    """Own target sentences, one a line."""
    valid_src_file: str | None = None
    """Source sentences to validate on."""
    valid_tgt_file: str | None = None
    """Target sentences to validate on."""
    test_src_file: str | None = None
    """Source sentences to test on."""
    test_tgt_file: str | None = None
    """Target sentences to test on."""
    text_column: str | None = None
    """Column with the text (guessed, and announced, when absent)."""
    label_column: str | None = None
    """Column with the label (guessed, and announced, when absent)."""
    src_column: str | None = None
    """Column with the source sentence of a TSV or JSONL of pairs."""
    tgt_column: str | None = None
    """Column with the target sentence of a TSV or JSONL of pairs."""


@dataclass(frozen=True)
class Multi30kConfig:
    """Multi30k: which languages, in which form."""

    src_lang: str = "en"
    """Language to translate from (en, de, fr)."""
    tgt_lang: str = "de"
    """Language to translate into (en, de, fr)."""
    multi30k_version: Literal["raw", "lc.norm.tok"] = "raw"
    """Cased raw text, or lowercased, normalised and tokenised."""


@dataclass(frozen=True)
class DatesConfig:
    """Dates, which are generated."""

    n_dates: int = number(40_000, "[1, 1000000]")
    """How many training pairs to generate."""


@dataclass(frozen=True)
class DataConfig:
    """Which text: a built-in data set, or files of your own."""

    dataset: Literal["files", "dates", "imdb", "multi30k", "shakespeare"] = "files"
    """Built-in data set, or `files` for your own."""
    data_dir: str | None = None
    """Folder (or archive) that holds the built-in data set; before GLASSFORMER_DATA, the cache and a download."""
    valid_fraction: float = number(0.1, "(0, 1)")
    """Share of the training data set aside for validation where no validation split is given."""
    split_seed: int = number(0, "[0, 4294967295]")
    """Seed of that split."""
    use_test_as_validation: bool = False
    """Validate on the test split. Only to restate published work that did so; every report says it."""
    limit: int | None = number(None, "[1, inf)")
    """Use only so many training examples, drawn by seed (a quick look; the report says it)."""
    files: FilesConfig = field(default_factory=FilesConfig, metadata=BY_DATASET)
    """For `dataset = "files"`."""
    multi30k: Multi30kConfig = field(default_factory=Multi30kConfig, metadata=BY_DATASET)
    """For `dataset = "multi30k"`."""
    dates: DatesConfig = field(default_factory=DatesConfig, metadata=BY_DATASET)
    """For `dataset = "dates"`."""


@dataclass(frozen=True)
class TextConfig:
    """From text to ids."""

    tokenizer: Literal["word", "char", "byte-bpe", "bpe"] = "byte-bpe"
    """word: words and punctuation; char: characters; byte-bpe: GPT-2's; bpe: merged characters, joint when translating."""
    vocab_size: int = number(8000, "[6, 10000000]")
    """Largest vocabulary, special tokens included (char: every character of the training split)."""
    lowercase: bool = False
    """Lower-case the text first (word tokenizers usually do; decoding cannot restore the case)."""
    max_len: int = number(256, "[1, 1000000]")
    """Most tokens of a sequence; a language model's context. What is cut is counted and printed."""
    truncate: Literal["head", "tail", "head+tail"] = "head"
    """Which part of a longer text to keep when classifying: the first tokens, the last, or half of each."""


@dataclass(frozen=True)
class ModelConfig:
    """The Transformer. The paper is Vaswani et al. 2017, "Attention Is All You Need"."""

    n_layers: int = number(4, "[1, 1000]")
    """Layers of the encoder (and of the decoder), the paper's N."""
    n_decoder_layers: int | None = number(None, "[1, 1000]")
    """Layers of a translator's decoder where they differ from the encoder's."""
    d_model: int = number(256, "[1, 65536]")
    """Width of the residual stream."""
    n_heads: int = number(4, "[1, 1024]")
    """Attention heads."""
    d_head: int | None = number(None, "[1, 65536]")
    """Width of a head; d_model / n_heads when absent. Narrow and wide heads are allowed."""
    d_ff: int | None = number(None, "[1, 1000000]")
    """Inner width of the feed-forward block; 4 · d_model when absent."""
    dropout: float = number(0.1, "[0, 1)")
    """Dropout on embeddings and on every sublayer's output."""
    attention_dropout: float = number(0.0, "[0, 1)")
    """Dropout on attention weights (the paper has none)."""
    embedding_dropout: float | None = number(None, "[0, 1)")
    """Dropout on embeddings alone, where it differs from `dropout`."""
    norm: Literal["layer", "rms"] = "layer"
    """LayerNorm (the paper's) or RMSNorm."""
    pre_norm: bool = True
    """Norm before each sublayer (trains more stably) or after the residual (the paper's)."""
    activation: Literal["relu", "gelu", "swiglu"] = "relu"
    """Feed-forward activation; ReLU is the paper's."""
    positions: Literal["sinusoidal", "learned", "rotary", "none"] = "sinusoidal"
    """How positions are told apart; sinusoidal is the paper's."""
    bias: bool = True
    """Biases in linear layers."""
    qk_norm: bool = False
    """RMS-normalise each head's queries and keys."""
    tie_embeddings: bool = True
    """Share input and output embeddings (source too when translating with one vocabulary)."""
    pooling: Literal["mean", "max", "mean+max", "first"] = "mean"
    """Classifier: how token vectors become one, padding excluded."""


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
class TrainConfig:
    """The optimisation. One of epochs, steps or minutes bounds it; the first reached ends it."""

    epochs: float | None = number(None, "(0, inf)")
    """Passes over the training data."""
    steps: int | None = number(None, "[1, inf)")
    """Optimizer updates."""
    minutes: float | None = number(None, "(0, inf)")
    """Wall-clock budget, validations included and the final test not: measured once, and from there so many updates."""
    max_tokens: int = number(4096, "[1, inf)")
    """Tokens in a batch, padding included (translation: the longer side counts)."""
    batch_size: int | None = number(None, "[1, inf)")
    """Examples in a batch instead of a token budget."""
    accumulate: int = number(1, "[1, inf)")
    """Batches summed into one update."""
    optimizer: Literal["adamw", "adam", "sgd"] = "adamw"
    """How a gradient becomes an update; each has settings of its own."""
    lr: float = number(1e-3, "(0, inf)")
    """Peak learning rate."""
    schedule: Literal["constant", "linear", "cosine", "inverse-sqrt"] = "cosine"
    """After warm-up: constant, down to zero in a line or a half cosine, or the paper's 1/√step."""
    warmup: float = number(0.05, "[0, inf)")
    """Warm-up: a share of the run below 1, otherwise updates."""
    clip: float = number(1.0, "[0, inf)")
    """Gradient norm above which gradients are scaled down; 0 never clips."""
    label_smoothing: float = number(0.0, "[0, 1)")
    """Share of the target probability spread over all classes (paper, 5.4)."""
    word_mask_prob: float = number(0.0, "[0, 1)")
    """Share of input tokens replaced by [MASK] while training (word dropout); makes erasing words meaningful later."""
    ema_decay: float = number(0.0, "[0, 1)")
    """Exponential moving average of the weights, used for validation and the final model; 0 for none."""
    average_last: int = number(1, "[1, inf)")
    """Average the weights of the last so many validations, and keep the average if it validates better."""
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
    keep: int = number(2, "[1, inf)")
    """Newest checkpoints to keep, the best apart."""
    snapshots: bool = False
    """Keep the weights of the start and of updates 16, 32, 64 … too, to watch the model form (`explain`, Compare)."""
    seed: int = number(1, "[0, 4294967295]")
    """Seed of initialisation, data order and dropout."""
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


@dataclass(frozen=True)
class DecodeConfig:
    """How a translator or a language model writes."""

    beam_size: int = number(5, "[1, 1000]")
    """Hypotheses kept a step; 1 is greedy."""
    length_penalty: float = number(1.0, "[0, inf)")
    """Scores are divided by length ** this."""
    n_best: int = number(1, "[1, 1000]")
    """Hypotheses returned for each input."""
    max_new_tokens: int = number(256, "[1, inf)")
    """Most tokens to write."""
    bleu_tokenize: Literal["auto", "13a", "intl", "zh", "char", "none"] = "auto"
    """How sacreBLEU parts translations into words; auto goes by the script (13a, or zh, or char)."""
    sample: bool = False
    """Sample instead of searching (a language model always samples)."""
    temperature: float = number(1.0, "[0, inf)")
    """Logits are divided by this before sampling; 0 is greedy."""
    top_k: int = number(0, "[0, inf)")
    """Sample among the k most probable tokens; 0 for all."""
    top_p: float = number(1.0, "(0, 1]")
    """Sample among the fewest tokens that hold this share of the probability."""
    min_p: float = number(0.0, "[0, 1]")
    """Drop tokens less probable than this share of the most probable one's."""
    decode_seed: int = number(0, "[0, 4294967295]")
    """Seed of sampling; the text for one prompt does not depend on the others."""


@dataclass(frozen=True)
class Config:
    """A whole run."""

    task: str = ""
    """What is learned: the name of a task."""
    recipe: str = ""
    """The recipe this came from; empty where it was made in Python."""
    note: str = ""
    """What a recipe wants said in the report."""
    data: DataConfig = field(default_factory=DataConfig)
    text: TextConfig = field(default_factory=TextConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)
