"""Every choice of a run, as frozen dataclasses: the one description of what can be set.

A recipe is this in TOML, the flags of `glassformer train` are this on the command line, and a
run folder's `config.toml` is this written out in full. Reading, writing and checking them is in
`recipes/__init__.py`; this module imports nothing but the standard library, so that `--help` is quick.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

TaskName = Literal["classify", "translate", "lm"]


@dataclass(frozen=True)
class DataConfig:
    """Which text: a built-in data set, or files of your own."""

    dataset: Literal["files", "dates", "imdb", "multi30k", "shakespeare"] = "files"
    """Built-in data set, or `files` for your own."""
    data_dir: str | None = None
    """Folder (or archive) that holds the built-in data set; before GLASSFORMER_DATA, the cache and a download."""
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
    src_lang: str = "en"
    """Multi30k: language to translate from (en, de, fr)."""
    tgt_lang: str = "de"
    """Multi30k: language to translate into (en, de, fr)."""
    multi30k_version: Literal["raw", "lc.norm.tok"] = "raw"
    """Multi30k: cased raw text, or lowercased, normalised and tokenised."""
    valid_fraction: float = 0.1
    """Share of the training data set aside for validation where no validation split is given."""
    split_seed: int = 0
    """Seed of that split."""
    use_test_as_validation: bool = False
    """Validate on the test split. Only to restate published work that did so; every report says it."""
    limit: int | None = None
    """Use only the first so many training examples (a quick look; the report says it)."""
    n_dates: int = 40_000
    """`dates`: how many training pairs to generate."""


@dataclass(frozen=True)
class TextConfig:
    """From text to ids."""

    tokenizer: Literal["word", "char", "byte-bpe", "bpe"] = "byte-bpe"
    """word: words and punctuation; char: characters; byte-bpe: GPT-2's; bpe: merged characters, joint when translating."""
    vocab_size: int = 8000
    """Largest vocabulary, special tokens included (char: every character of the training split)."""
    lowercase: bool = False
    """Lower-case the text first (word tokenizers usually do; decoding cannot restore the case)."""
    max_len: int = 256
    """Most tokens of a sequence; a language model's context. What is cut is counted and printed."""
    truncate: Literal["head", "tail", "head+tail"] = "head"
    """Which part of a longer text to keep when classifying: the first tokens, the last, or half of each."""


@dataclass(frozen=True)
class ModelConfig:
    """The Transformer. The paper is Vaswani et al. 2017, "Attention Is All You Need"."""

    n_layers: int = 4
    """Layers of the encoder (and of the decoder), the paper's N."""
    n_decoder_layers: int | None = None
    """Layers of a translator's decoder where they differ from the encoder's."""
    d_model: int = 256
    """Width of the residual stream."""
    n_heads: int = 4
    """Attention heads."""
    d_head: int | None = None
    """Width of a head; d_model / n_heads when absent. Narrow and wide heads are allowed."""
    d_ff: int | None = None
    """Inner width of the feed-forward block; 4 · d_model when absent."""
    dropout: float = 0.1
    """Dropout on embeddings and on every sublayer's output."""
    attention_dropout: float = 0.0
    """Dropout on attention weights (the paper has none)."""
    embedding_dropout: float | None = None
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
class TrainConfig:
    """The optimisation. One of epochs, steps or minutes bounds it; the first reached ends it."""

    epochs: float | None = None
    """Passes over the training data."""
    steps: int | None = None
    """Optimizer updates."""
    minutes: float | None = None
    """Wall-clock budget, validation included and the final test not; the schedule fits itself to it."""
    max_tokens: int = 4096
    """Tokens in a batch, padding included (translation: the longer side counts)."""
    batch_size: int | None = None
    """Examples in a batch instead of a token budget."""
    accumulate: int = 1
    """Batches summed into one update."""
    optimizer: Literal["adamw", "adam", "sgd"] = "adamw"
    """AdamW decays matrices only; biases, norms and embeddings are never decayed."""
    lr: float = 1e-3
    """Peak learning rate."""
    schedule: Literal["constant", "linear", "cosine", "inverse-sqrt"] = "cosine"
    """After warm-up: constant, down to zero in a line or a half cosine, or the paper's 1/√step."""
    warmup: float = 0.05
    """Warm-up: a share of the run below 1, otherwise updates."""
    weight_decay: float = 0.01
    """Decoupled weight decay."""
    beta1: float = 0.9
    """Adam's first decay."""
    beta2: float = 0.98
    """Adam's second decay (the paper's 0.98)."""
    eps: float = 1e-9
    """Adam's epsilon (the paper's 1e-9)."""
    clip: float = 1.0
    """Gradient norm above which gradients are scaled down; 0 never clips."""
    label_smoothing: float = 0.0
    """Share of the target probability spread over all classes (paper, 5.4)."""
    word_mask_prob: float = 0.0
    """Share of input tokens replaced by [MASK] while training (word dropout); makes erasing words meaningful later."""
    ema_decay: float = 0.0
    """Exponential moving average of the weights, used for validation and the final model; 0 for none."""
    average_last: int = 1
    """Average the weights of the last so many validations, and keep the average if it validates better."""
    patience: int | None = None
    """Stop after so many validations without a better metric."""
    validate_every: float = 1.0
    """Epochs between validations."""
    validate_min_steps: int = 1
    """Fewest updates between validations: an epoch of little data is over in a few, and patience with it."""
    score_train: bool = False
    """Score the training split too at each validation, for a table of both."""
    save_every: int = 1000
    """Updates between checkpoints besides those at each validation."""
    keep: int = 2
    """Newest checkpoints to keep, the best apart."""
    snapshots: bool = False
    """Keep the weights of the start and of updates 16, 32, 64 … too, to watch the model form (`explain`, Compare)."""
    seed: int = 1
    """Seed of initialisation, data order and dropout."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """bf16 autocast over fp32 masters, where the processor has it (auto)."""
    deterministic: bool = False
    """Deterministic kernels, also on CUDA (slower)."""


@dataclass(frozen=True)
class DecodeConfig:
    """How a translator or a language model writes."""

    beam_size: int = 5
    """Hypotheses kept a step; 1 is greedy."""
    length_penalty: float = 1.0
    """Scores are divided by length ** this."""
    n_best: int = 1
    """Hypotheses returned for each input."""
    max_new_tokens: int = 256
    """Most tokens to write."""
    bleu_tokenize: Literal["auto", "13a", "intl", "zh", "char", "none"] = "auto"
    """How sacreBLEU parts translations into words; auto goes by the script (13a, or zh, or char)."""
    sample: bool = False
    """Sample instead of searching (a language model always samples)."""
    temperature: float = 1.0
    """Logits are divided by this before sampling; 0 is greedy."""
    top_k: int = 0
    """Sample among the k most probable tokens; 0 for all."""
    top_p: float = 1.0
    """Sample among the fewest tokens that hold this share of the probability."""
    min_p: float = 0.0
    """Drop tokens less probable than this share of the most probable one's."""
    decode_seed: int = 0
    """Seed of sampling; the text for one prompt does not depend on the others."""


@dataclass(frozen=True)
class Config:
    """A whole run."""

    task: TaskName = "classify"
    """classify, translate or lm."""
    recipe: str = "classify"
    """The recipe this came from."""
    note: str = ""
    """What a recipe wants said in the report."""
    data: DataConfig = field(default_factory=DataConfig)
    text: TextConfig = field(default_factory=TextConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)
