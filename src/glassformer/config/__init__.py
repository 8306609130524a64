"""Configuration of a run as frozen dataclasses: data, text, model, training, decoding, one section each.

A recipe is a configuration in TOML; the flags of `train` are its fields. Settings of a single data set or optimizer
have an effect only while it is selected. The limits of a value are in its type, where msgspec checks them. No torch is
imported here, so that `--help` is fast.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Annotated, Any, Literal

from msgspec import Meta

Whole = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
Seed = Annotated[int, Meta(ge=0, le=2**32 - 1)]
Share = Annotated[float, Meta(ge=0, lt=1)]
Positive = Annotated[float, Meta(gt=0)]
NonNegative = Annotated[float, Meta(ge=0)]


@cache
def docstrings(cls: type) -> dict[str, str]:
    """Return the docstring under each field of a dataclass or `TypedDict`, with inherited fields."""
    docs: dict[str, str] = {}
    for base in reversed([c for c in cls.__mro__ if "__annotations__" in vars(c)]):
        tree: Any = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        for line, after in itertools.pairwise(tree.body):
            if isinstance(line, ast.AnnAssign) and isinstance(after, ast.Expr):
                docs[ast.unparse(line.target)] = ast.literal_eval(after.value)
    return docs


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Architecture of the Transformer. The paper is Vaswani et al. 2017, "Attention Is All You Need"."""

    n_layers: Annotated[int, Meta(ge=1, le=1000)] = 4
    """Number of layers, of the encoder and of the decoder; the paper's N."""
    d_model: Annotated[int, Meta(ge=1, le=65536)] = 256
    """Width of the residual stream."""
    n_heads: Annotated[int, Meta(ge=1, le=1024)] = 4
    """Number of attention heads."""
    d_head: Annotated[int, Meta(ge=1, le=65536)] | None = None
    """Width of a head; without it, d_model / n_heads."""
    d_ff: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    """Inner width of the feed-forward block; without it, 4 · d_model."""
    embedding_init_std: Positive | None = None
    """Initial standard deviation of embeddings, positions scaled alike; without it, the paper's 1."""
    ensemble_size: Annotated[int, Meta(ge=1, le=100)] = 1
    """Number of models trained together from different initial weights; they answer by the mean of their outputs."""
    dropout: Share = 0.1
    """Dropout probability on embeddings and on the output of every sublayer."""
    embedding_dropout: Share | None = None
    """Dropout probability on embeddings; without it, the same as `dropout`."""
    norm: Literal["layer", "rms"] = "layer"
    """LayerNorm (the paper's) or RMSNorm."""
    norm_eps: Annotated[float, Meta(gt=0, lt=1)] | None = None
    """Term added to the variance in each norm; without it, 1e-5 (LayerNorm) or 1e-6 (RMSNorm)."""
    pre_norm: bool = True
    """Norm before each sublayer, which trains more stably, instead of after the residual (the paper's)."""
    activation: Literal["relu", "gelu", "gelu-tanh", "silu", "swiglu"] = "relu"
    """Activation of the feed-forward block; ReLU is the paper's, GELU through tanh is GPT-2's."""
    positions: Literal["sinusoidal", "learned", "rotary", "none"] = "sinusoidal"
    """Positional encoding; sinusoidal is the paper's."""
    rope_base: Annotated[float, Meta(ge=1, le=10**12)] = 10_000.0
    """Base of the wavelengths of rotary positions."""
    embedding_norm: bool = False
    """Norm after the sum of the embeddings, as in BERT."""
    n_segments: Annotated[int, Meta(ge=0, le=16)] = 0
    """Number of segment embeddings, as BERT has for pairs of texts; a single text is of the first. 0 for none."""
    bias: bool = True
    """Biases in linear layers."""
    tie_embeddings: bool = True
    """Share the weights of input embedding and output projection (of the source embedding too if translating)."""
    pooling: Literal["mean", "max", "mean+max", "first"] = "mean"
    """Pooling of token vectors into one per text (classifier), padding excluded."""
    pooler: Literal["none", "tanh", "relu"] = "none"
    """Linear layer and activation between the pooled vector and the head (classifier), as in BERT (tanh)."""
    output_bias: bool = False
    """Bias of the output projection (translator)."""
    max_ngram: Annotated[int, Meta(ge=0, le=16)] = 0
    """Length of the longest token n-grams whose embeddings are added to that of their last token (language model)."""
    ngram_dropout: Share = 0.5
    """Probability of dropping such an n-gram in training, since rare ones would be memorised."""


@dataclass(frozen=True, kw_only=True)
class FilesConfig:
    """Your own files; the task says what they contain."""

    train_file: str | None = None
    """Training data: CSV, TSV or JSONL (classify, translate), columns or JSONL (tag), or text files
    (lm, pretrain)."""
    valid_file: str | None = None
    """Validation data in the same format; without it, a seeded share of the training data is held out."""
    test_file: str | None = None
    """Test data in the same format."""
    src_file: str | None = None
    """Source sentences, one per line, parallel to --tgt-file."""
    tgt_file: str | None = None
    """Target sentences, one per line."""
    valid_src_file: str | None = None
    """Source sentences of the validation split."""
    valid_tgt_file: str | None = None
    """Target sentences of the validation split."""
    test_src_file: str | None = None
    """Source sentences of the test split."""
    test_tgt_file: str | None = None
    """Target sentences of the test split."""
    header: Literal["yes", "no"] | None = None
    """Whether the first row of a CSV or TSV is its header; without it, its names and the rows below decide."""
    delimiter: str | None = None
    """What parts the fields of a CSV or TSV, one character; without it, what parts its first hundred rows alike."""
    quotes: Literal["yes", "no"] | None = None
    """Whether quotes hold fields; without it, those of a CSV do, and those of a TSV are characters."""
    encoding: str = "utf-8"
    """Encoding of all files, by Python's name, such as cp1252."""
    text_column: str | None = None
    """Name of the text column, or its number from 1; without it, a usual name or the position decides."""
    pair_column: str | None = None
    """Name of the column of second texts (hypothesis, answer), where each text is a pair; without it, none is."""
    label_column: str | None = None
    """Name of the label column, or its number from 1; without it, a usual name or the position decides."""
    label_separator: Annotated[str, Meta(min_length=1, max_length=8)] = ";"
    """What parts the labels of a cell, where a text may have several; JSONL may hold lists instead."""
    src_column: str | None = None
    """Name of the source column of a TSV or JSONL of pairs."""
    tgt_column: str | None = None
    """Name of the target column of a TSV or JSONL of pairs."""


@dataclass(frozen=True, kw_only=True)
class DataConfig(FilesConfig):
    """Data: a built-in data set, or your own files."""

    dataset: Literal["files", "dates", "imdb", "imdb-texts", "multi30k", "shakespeare"] = "files"
    """Built-in data set, or `files` for your own."""
    data_dir: str | None = None
    """Folder of the built-in data set, searched before GLASSFORMER_DATA, the cache and a download."""
    valid_fraction: Annotated[float, Meta(gt=0, lt=1)] = 0.1
    """Share of the training data held out for validation if there is no validation split."""
    split_seed: Seed = 0
    """Seed of the held-out split."""
    use_test_as_validation: bool = False
    """Validate on the test split, only to restate published work that did so; every report says it."""
    limit: Count | None = None
    """Number of training examples to use, drawn by seed; without it, all."""
    src_lang: str = "en"
    """Source language of Multi30k: en, de or fr."""
    tgt_lang: str = "de"
    """Target language of Multi30k: en, de or fr."""
    n_dates: Annotated[int, Meta(ge=1, le=1_000_000)] = 40_000
    """Number of training pairs of dates to generate."""
    locales: str | None = None
    """Locales of the dates, separated by commas, as in en_US,de_DE; without it, all 40."""


@dataclass(frozen=True, kw_only=True)
class TextConfig:
    """Tokenizer and truncation."""

    tokenizer: Literal["word", "char", "byte-bpe", "bpe", "imported"] = "byte-bpe"
    """Tokenizer: words and punctuation, characters, byte-level BPE (GPT-2), or BPE (joint in translation); `imported`
    is that of a pretrained model, which --init-from names."""
    vocab_size: Annotated[int, Meta(ge=6, le=10_000_000)] = 8000
    """Maximum vocabulary size, special tokens included (char: all characters of the training split)."""
    lowercase: bool = False
    """Lowercase the text; decoding cannot restore the case."""
    ngrams: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    """Maximum number of character n-grams, whose embeddings are added to those of their words; 0 for none."""
    max_len: Annotated[int, Meta(ge=1, le=1_000_000)] = 256
    """Maximum sequence length in tokens (language model: the context); what is truncated is counted and printed."""
    truncate: Literal["head", "tail", "head+tail"] = "head"
    """Part kept of a text that is too long for the classifier: its first tokens, its last, or half of each."""
    bigrams: Annotated[int, Meta(ge=0, le=10_000_000)] = 0
    """Maximum number of word bigrams with an embedding, so that "not good" is not "not" and "good"; 0 for none."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Training. The first of epochs, steps and minutes that is reached ends it."""

    epochs: Positive | None = None
    """Number of epochs."""
    steps: Count | None = None
    """Number of optimizer steps."""
    minutes: Positive | None = None
    """Time budget of training and validation in minutes, converted to steps once; the final test comes on top."""
    max_tokens: Count = 4096
    """Maximum number of tokens per batch, padding included (translation: of the longer side)."""
    batch_size: Count | None = None
    """Examples per batch, instead of `max_tokens`."""
    accumulate: Count = 1
    """Number of batches whose gradients are accumulated into one step."""
    init_from: str | None = None
    """Run to initialise from (fine-tuning); its tokenizer and sizes are used."""
    frozen_layers: Whole = 0
    """Number of lower layers that keep the weights of `init_from`, and with them the embeddings; 0 for none."""
    optimizer: Literal["adamw", "adam", "sgd", "muon"] = "adamw"
    """Optimizer: AdamW, Adam (the paper's, without weight decay), SGD, or Muon for the matrices of layers and AdamW
    for embeddings, norms, biases and heads."""
    lr: Positive = 1e-3
    """Peak learning rate."""
    beta1: Share = 0.9
    """Decay rate of the gradients' mean (adamw, adam, muon)."""
    beta2: Share = 0.98
    """Decay rate of the squared gradients' mean (adamw, adam, muon); the paper's 0.98."""
    eps: Positive = 1e-9
    """Term added to the denominator (adamw, adam, muon); the paper's 1e-9."""
    weight_decay: NonNegative | None = None
    """Decay of matrices, apart from the gradient but of sgd; without it, 0.01 of adamw and 0 of sgd and muon."""
    momentum: Share | None = None
    """Momentum (sgd, muon); without it, 0 of sgd, which is plain SGD, and 0.95 of muon."""
    matrix_lr: Positive = 0.02
    """Peak learning rate of the matrices of muon; their steps do not depend on the size of gradients."""
    schedule: Literal["constant", "linear", "cosine", "inverse-sqrt"] = "cosine"
    """Learning rate after warm-up: constant, linear or cosine decay from its end to zero, or the paper's 1/√step."""
    warmup: NonNegative = 0.05
    """Warm-up in steps, or below 1 as a share of the run."""
    max_grad_norm: NonNegative = 1.0
    """Gradient norm above which gradients are clipped; 0 for no clipping."""
    label_smoothing: Share = 0.0
    """Share of the target probability that is spread over all classes (paper, 5.4)."""
    word_mask_prob: Share = 0.0
    """Probability of replacing an input token by [MASK] in training (word dropout), for later attribution."""
    word_unknown_prob: Share = 0.0
    """Probability of replacing an input token by [UNK] in training, with its n-grams kept."""
    adversarial: Share = 0.0
    """Adversarial training: perturbation size relative to the embeddings, 0 for none; 1.5 to 2 times the cost."""
    ema_decay: Share = 0.0
    """Decay of the exponential moving average of the weights, which is validated and saved; 0 for none."""
    patience: Count | None = None
    """Number of validations without improvement after which training stops; without it, never."""
    validate_every: Positive = 1.0
    """Epochs between validations."""
    validate_min_steps: Count = 1
    """Minimum number of steps between validations, for small data."""
    score_train: bool = False
    """Score the training split at each validation too."""
    save_every: Count = 1000
    """Steps between checkpoints, besides those at validations."""
    snapshots: bool = False
    """Keep the weights of steps 0, 16, 32, 64 …, to show how the model forms (`explain`, Compare)."""
    tensorboard: bool = False
    """Write event files of TensorBoard into the run folder."""
    seed: Seed = 1
    """Seed of initialisation, data order and dropout."""
    compile: bool = False
    """Compile each layer with torch.compile: a minute or more at the start, for long runs on a GPU."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Device; auto prefers CUDA, then MPS, then the CPU."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Precision; bf16 is autocast over fp32 weights, auto what is faster in a trial of two seconds on this machine."""
    products: Literal["auto", "blas", "onednn"] = "auto"
    """What multiplies fp32 matrices on a CPU: torch's default, such as MKL, or oneDNN; auto by the same trial."""
    attention: Literal["auto", "fused", "explicit"] = "auto"
    """Attention on a CPU: torch's fused kernel, or explicit products; auto by the same trial."""
    deterministic: bool = False
    """Use deterministic kernels, also on CUDA (slower), a fixed number of threads, and no trial: auto is fp32."""
    threads: Count | None = None
    """Number of threads on a CPU; without it, as many as other programs leave room for."""


@dataclass(frozen=True, kw_only=True)
class DecodeConfig:
    """Decoding of a translator or a language model."""

    beam_size: Annotated[int, Meta(ge=1, le=1000)] = 5
    """Beam size; 1 is greedy."""
    length_penalty: NonNegative = 1.0
    """Exponent of the length by which scores are divided."""
    n_best: Annotated[int, Meta(ge=1, le=1000)] = 1
    """Number of hypotheses returned per input."""
    max_new_tokens: Count = 256
    """Maximum number of generated tokens."""
    bleu_tokenize: Literal["auto", "13a", "intl", "zh", "char", "none"] = "auto"
    """Tokenizer of sacreBLEU; auto selects 13a, zh or char by the script."""
    sample: bool = False
    """Sample instead of beam search (a language model always samples)."""
    temperature: NonNegative = 1.0
    """Divisor of the logits before sampling; 0 is greedy."""
    top_k: Whole = 0
    """Number of most probable tokens to sample from; 0 for all."""
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    """Probability mass of the most probable tokens to sample from (nucleus sampling)."""
    min_p: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Minimum probability of a token, relative to the most probable one."""
    decode_seed: Seed = 0
    """Seed of sampling; the text for a prompt does not depend on the other prompts."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Configuration of a run."""

    task: str = ""
    """Name of the task."""
    recipe: str = ""
    """Name of the recipe; empty if it was made in Python."""
    note: str = ""
    """Note for the report."""
    auto: tuple[str, ...] = ()
    """Settings that are chosen from the size of the training data, unless they are given."""
    data: DataConfig = field(default_factory=DataConfig)
    text: TextConfig = field(default_factory=TextConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)


ONLY_FOR = dict.fromkeys((f.name for f in fields(FilesConfig)), ("files",))
ONLY_FOR |= dict.fromkeys(("src_lang", "tgt_lang"), ("multi30k",)) | dict.fromkeys(("n_dates", "locales"), ("dates",))
ONLY_FOR |= dict.fromkeys(("beta1", "beta2", "eps"), ("adamw", "adam", "muon"))
ONLY_FOR |= {"weight_decay": ("adamw", "sgd", "muon"), "momentum": ("sgd", "muon"), "matrix_lr": ("muon",)}
"""Settings that only some data sets or optimizers have, and which."""


def idle(section: Any) -> set[str]:
    """Return the names of the settings of a section that do nothing: of other data sets or optimizers than it names."""
    chosen = getattr(section, "dataset", getattr(section, "optimizer", None))
    return {name for name, of in ONLY_FOR.items() if hasattr(section, name) and chosen not in of}
