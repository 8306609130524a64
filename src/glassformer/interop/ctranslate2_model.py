"""A translator or a language model in the form of CTranslate2, read and written (https://opennmt.net/CTranslate2/).

    model.bin  config.json  source_vocabulary.txt  target_vocabulary.txt       (or shared_vocabulary, vocabulary; .json)

Files before version 6 have no `config.json`. A folder has no tokenizer of its own, since CTranslate2 is given tokens: a
`tokenizer.json` beside the model is used, as in an export of ours; without one the tokens have to be characters.

What our modules lack is refused by name, in one sentence. Every variable is used, or known to mean nothing here; one
that is neither is refused, too. Names and defaults are those of CTranslate2's `specs/transformer_spec.py` and
`layers/transformer.cc`.

In writing every array is copied: quantizing works in place, and must not reach the model that is exported. Positions
are a table, since the sinusoids of CTranslate2 have another order. Tied weights are found there by equal values.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from glassformer.config import DecodeConfig, ModelConfig
from glassformer.config.recipes import build
from glassformer.errors import CheckpointError, UsageError
from glassformer.interop.ctranslate2_binary import FILE, HINT, Variables, open_variables
from glassformer.interop.ctranslate2_engine import CONFIG, KEYS
from glassformer.interop.engine import library
from glassformer.interop.export_facts import FACTS, RUN_TOKENIZER, decode_of
from glassformer.interop.hf_model import positions_of
from glassformer.interop.hf_settings import read_keys
from glassformer.interop.hf_tokenizer import check_growth
from glassformer.interop.imported import ImportedModel, own_export
from glassformer.interop.names import rows, to_ours, to_theirs
from glassformer.interop.source_folder import SourceFolder, SourceTensors
from glassformer.models import LanguageModel, Translator
from glassformer.models.build import d_head_of
from glassformer.runs.folder import TOKENIZER
from glassformer.runs.records import Origin
from glassformer.tasks import task_of_kind
from glassformer.text.tokenizer import BOS, EOS, NONE, UNK, SpecialTokens, Tokenizer
from glassformer.utils.safe_read import LIMITS, check_types, read_json, read_text, sha256_regular

Kind = Literal["translator", "language_model"]
Roles = tuple[str, str, str, tuple[str, ...], tuple[str, ...]]
"""Names of the tokens that stand for an unknown one, begin and end a translation, and are before and after a source."""
SPECS: dict[str, tuple[Kind, int, int]] = {
    "TransformerBase": ("translator", 2, 8),
    "TransformerBig": ("translator", 2, 16),
    "TransformerSpec": ("translator", 7, 8),
    "TransformerDecoderSpec": ("language_model", 8, 8),
}
"""Of each specification the kind of model, the last revision that is known, and the heads where no number is given."""
DEFAULT_POSITIONS = 512
"""Positions of a model whose file has no table of them."""
NAMES = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
FLAGS = {"with_source_bos": 0, "with_source_eos": 0, "with_target_bos": 1, "user_decoder_start_tokens": 0}
"""Settings of a file before version 6, which are variables, and their defaults."""
_OFF = {"alibi", "scale_alibi", "sliding_window", "start_from_zero_embedding", "layer_norm_use_residual"}
"""Numbers that have to be 0, for what they turn on is not here."""
_NUMBERS = {"num_heads", "pre_norm", "activation", "scale_embeddings", "multiply_by_sqrt_depth", "head_dim", *_OFF}
_NUMBERS |= {"alignment_layer", "alignment_heads", "alibi_use_positive_positions", "embeddings_merge"}
_NUMBERS |= {"multi_query_attention", *NAMES, *FLAGS}
"""Numbers and texts that are read, or that mean nothing for what is imported."""
_ACTIVATIONS = {0: "relu", 1: "gelu-tanh", 2: "silu", 3: "gelu"}
_WEIGHTS = ("/weight", "/bias", "/gamma", "/beta", "/encodings")
_LAYER = re.compile(r"(encoder|decoder)/layer_([0-9]{1,6})/")


def read_weights(
    v: Variables, config: Mapping[str, Any], max_positions: int | None = None
) -> tuple[Kind, dict[str, Any], dict[str, Tensor], list[str]]:
    """Return the kind of model, its fields of `ModelConfig`, its weights by our names, and notes.

    The fields are without those that keep their defaults; of weights that are tied there is one; the notes say what
    was made, folded or cut, a sentence each.

    Args:
        v: variables of an open file; all are taken.
        config: `config.json`, empty for files before version 6.
        max_positions: rows of a table of positions to keep, or to make where there is none.

    Raises:
        UsageError: our modules cannot compute what the model computes.
        CheckpointError: a variable is missing, of another shape, not finite, or unknown.
    """
    if v.spec not in SPECS:
        what = f"{v.path} is a {v.spec}, which is neither a translator nor a language model"
        raise UsageError(what, "import a TransformerSpec or a TransformerDecoderSpec")
    kind, last, default_heads = SPECS[v.spec]
    if not (2 if kind == "translator" else 1) <= v.revision <= last:
        raise UsageError(f"{v.path} has revision {v.revision} of {v.spec}, and {last} is known")
    scopes = ["encoder", "decoder"] if kind == "translator" else ["decoder"]
    s = _settings(v, config, scopes, default_heads)
    notes, n_layers = list[str](), s["n_layers"]
    factors = {_factor(v, scope, s["d_model"]) for scope in scopes}
    table = rows("ctranslate2-gated" if s["activation"] == "swiglu" else "ctranslate2", n_layers)
    table = [row for row in table if (not row.kinds or kind in row.kinds) and row.theirs[0].split("/")[0] in scopes]
    _check_names(v, {name for row in table for name in row.theirs})
    tensors = {name: torch.from_numpy(np.array(v.take(name))) for name in v.names() if name.endswith(_WEIGHTS)}
    tables = [_positions(tensors, scope, s["d_model"], max_positions, notes) for scope in scopes]
    n = min(map(len, tables))
    taken = SourceTensors(tensors, v.path)
    w, _ = to_ours(table, kind, taken)
    taken.finish()
    ours = ["src_embedding", "tgt_embedding"] if kind == "translator" else ["embedding"]
    for name, its in zip(ours, tables, strict=True):
        w[f"{name}.positions.weight"] = its[:n].clone()
    if factors != {math.sqrt(s["d_model"])}:
        s["embedding_init_std"] = 1.0
        if factors != {1.0}:
            notes.append("the factors of the token embeddings were multiplied into them")
            for scope, name in zip(scopes, ours, strict=True):
                w[f"{name}.weight"] = w[f"{name}.weight"] * _factor(v, scope, s["d_model"])
    _tie(w, ours, s, notes)
    if (bias := w.pop("output.bias", None)) is not None:
        if kind == "language_model":
            raise _lacks(v, "a bias of the output projection", "decoder/projection/bias")
        w["output_bias"], s["output_bias"] = bias, True
    return kind, s, w, notes


def _check_names(v: Variables, weights: set[str]) -> None:
    """Refuse what our modules lack, before any weight is read: a variable that is no weight and no known number."""
    for name in v.names():
        *_, last = name.split("/")
        is_known = name in weights or last == "encodings" or last in _NUMBERS or last.endswith("_scale")
        if not is_known or (last in _OFF and v.number(name) != 0):
            raise _lacks(v, "a part", name)


def _lacks(v: Variables, what: str, name: str) -> UsageError:
    return UsageError(f"{v.path} has {what} ({name}), which Glassformer does not", "import another model")


def _settings(v: Variables, config: Mapping[str, Any], scopes: list[str], default_heads: int) -> dict[str, Any]:
    """Return the fields of `ModelConfig`, each of which is the same in all parts of a model."""

    def same(name: str, values: list[Any]) -> Any:
        if len(set(values)) > 1:
            raise _lacks(v, f"different {name} in its parts ({', '.join(map(str, dict.fromkeys(values)))})", name)
        return values[0]

    def number(name: str, default: float) -> int:
        """Return a whole number of the stacks, which older files have once, without a scope."""
        found = same(name, [v.number(f"{scope}/{name}", v.number(name, default)) for scope in scopes])
        if found != int(found):
            raise v.error(f"{name} is {found}")
        return int(found)

    layers = [{int(m[2]) for name in v.names() if (m := _LAYER.match(name)) and m[1] == scope} for scope in scopes]
    if not all(found and found == {*range(len(found))} for found in layers):
        raise v.error("the layers of a stack are not numbered from 0")
    n_layers, d_model = same("numbers of layers", [*map(len, layers)]), v.shape("decoder/embeddings/weight")[-1]
    blocks = [f"{scope}/layer_{i}" for scope in scopes for i in range(n_layers)]
    n_heads, activation = number("num_heads", default_heads), number("activation", 0)
    if n_heads < 1 or d_model % n_heads:
        raise v.error(f"{n_heads} heads do not divide a width of {d_model}")
    if odd := [x for x in v.names() if x.endswith("/head_dim") and v.number(x) != d_model // n_heads]:
        raise _lacks(v, "heads of another width than d_model / n_heads", odd[0])
    gated = same("feed-forward blocks", [f"{block}/ffn/linear_0_noact/weight" in v for block in blocks])
    name = _ACTIVATIONS.get(activation)
    if name is None or (gated and name != "silu"):
        raise _lacks(v, f"the activation {activation}{' in a gated block' if gated else ''}", "activation")
    norm = "layer" if any(name.endswith("layer_norm/beta") for name in v.names()) else "rms"
    epsilon = config.get("layer_norm_epsilon")
    return {
        "n_layers": n_layers,
        "d_model": d_model,
        "n_heads": n_heads,
        "d_ff": same("widths of feed-forward blocks", [v.shape(f"{block}/ffn/linear_0/weight")[0] for block in blocks]),
        "pre_norm": bool(number("pre_norm", 1)),
        "activation": "swiglu" if gated else name,
        "norm": norm,
        "norm_eps": None if epsilon in (None, 1e-5 if norm == "layer" else 1e-6) else float(epsilon),
        "bias": any(name.endswith("/bias") and "/layer_" in name for name in v.names()),
        "embedding_norm": same("embeddings", [f"{scope}/layernorm_embedding/gamma" in v for scope in scopes]),
        "positions": "learned",
    }


def _factor(v: Variables, scope: str, d_model: int) -> float:
    """Return the factor of a token embedding: a number, or whether it is √d_model."""
    first = next(name for name in (f"{scope}/embeddings", f"{scope}/embeddings_0") if f"{name}/weight" in v)
    name = f"{scope}/scale_embeddings"
    scale = v.number(name, v.number(f"{first}/multiply_by_sqrt_depth", 1))
    is_flag = name not in v or v.is_whole(name)
    return (math.sqrt(d_model) if scale else 1.0) if is_flag else scale


def _positions(tensors: dict[str, Tensor], scope: str, d_model: int, most: int | None, notes: list[str]) -> Tensor:
    """Take the table of positions (P, D) of a stack, or make the one that CTranslate2 computes where there is none.

    Its sines fill the first half of the features and its cosines the second; positions count from 1; and the
    frequencies are a geometric series whose last is 1/10000, where the paper's ends before it.
    """
    table = tensors.pop(f"{scope}/position_encodings/encodings", None)
    if table is None:
        half = d_model // 2
        step = np.float32(math.log(10_000)) / np.float32(max(half - 1, 1))
        frequency = np.exp(-step * np.arange(half, dtype=np.float32))
        angle = np.arange(1, (most or DEFAULT_POSITIONS) + 1, dtype=np.float32)[:, None] * frequency
        table = torch.from_numpy(np.concatenate([np.sin(angle), np.cos(angle)], axis=1))
        note = "the sinusoids of CTranslate2, which are not the paper's, became learned positions"
    else:
        note = f"{len(table) - (most or 0):,} positions after the first {most or 0:,} were left out"
        note = note if most is not None and len(table) > most else ""
    notes += [note] if note and note not in notes else []
    return table[:most]


def _tie(w: dict[str, Tensor], ours: list[str], s: dict[str, Any], notes: list[str]) -> None:
    """Make equal matrices one, in place: those that are tied here share their positions and norms, too."""
    output, embeddings = w["output.weight"], [w[f"{name}.weight"] for name in ours]
    equal = [torch.equal(output, weight) for weight in embeddings]
    shared = torch.equal(w[f"{ours[0]}.positions.weight"], w[f"{ours[-1]}.positions.weight"])
    s["tie_embeddings"] = all(equal) and shared and (len(ours) == 1 or not s["embedding_norm"])
    if s["tie_embeddings"]:
        for name in ["output.weight", *(name for name in w if name.startswith("src_embedding."))]:
            del w[name]
    elif any(equal):
        notes.append("embeddings and output projection that are one matrix there can differ here after training")


VOCABULARIES = ("source_vocabulary", "target_vocabulary", "shared_vocabulary", "vocabulary")
OF_LIBRARY = [FILE, CONFIG, *(f"{name}.{end}" for name in VOCABULARIES for end in ("json", "txt"))]
"""Files that CTranslate2 itself reads, where they are there."""
CTRANSLATE2_BEAM = 2
"""The default beam size of CTranslate2."""


def read_ctranslate2(folder: SourceFolder, config: Mapping[str, Any], max_len: int | None) -> ImportedModel:
    """Return the model in a CTranslate2 folder, in float32.

    Args:
        folder: the folder, with `model.bin` and a vocabulary.
        config: its `config.json`, empty where it has none.
        max_len: the most tokens of a text; None for as many as the file has positions for.

    Raises:
        CheckpointError: a file is missing, damaged or a link.
        UsageError: our modules cannot compute what the model computes, or its texts cannot be split.
    """
    path, files = folder.path, [*OF_LIBRARY, TOKENIZER, RUN_TOKENIZER, FACTS]
    hashes = {name: sha256_regular(folder.file(name)) for name in files if folder.has(name)}
    check_types(config, {"layer_norm_epsilon": float | None}, path / CONFIG)
    read_keys(KEYS, config, CONFIG)
    with open_variables(path / FILE) as variables:
        roles, spec = read_roles(path, config, variables), variables.spec
        # A translator has a position more than its longest text has tokens: of an end token, or of a start token.
        is_translator = spec != "TransformerDecoderSpec"
        own = own_export(folder, "ctranslate2", "translator" if is_translator else "language_model")
        most = own[0].context if own else None
        kept = most if max_len is None else max_len + is_translator
        kind, settings, weights, notes = read_weights(variables, config, kept)
    tokens, special, more = join(*_vocabularies(path, weights, roles[0]), roles, weights, settings)
    if own:
        tokenizer = own[1]
    elif TOKENIZER in hashes:
        check_growth(content := folder.json(TOKENIZER, "tokenizer"))
        tokenizer = Tokenizer.imported(content, special, path / TOKENIZER)
    elif is_translator:
        tokenizer = character_tokenizer(tokens, special, path)
    else:
        message = f"there is no {TOKENIZER} in {path}, and the tokens of a language model are pieces of words"
        raise UsageError(message, f"put the {TOKENIZER} into the folder that its texts are split with")
    if tokenizer.vocabulary() != tokens:
        raise CheckpointError(f"{path / TOKENIZER} has other tokens than the model", "copy the folder whole")
    table = next(weight for name, weight in weights.items() if name.endswith("positions.weight"))
    positions = len(table) - is_translator
    if max_len is not None and max_len > positions:
        message = f"{path} has positions for texts of {positions:,} tokens, not of {max_len:,}"
        raise UsageError(message, f"use --max-len {positions} or less")
    return ImportedModel(
        task=task_of_kind(kind),
        model=build(ModelConfig, settings, "model", str(path / FILE)),
        tokenizer=tokenizer,
        max_len=positions,
        state=weights,
        source=Origin("ctranslate2", spec, folder.name, hashes, **folder.card_facts()),
        notes=(*notes, *more),
        decode=decode_of(own[0]) if own else DecodeConfig(beam_size=CTRANSLATE2_BEAM),
    )


def _vocabularies(folder: Path, weights: Mapping[str, Tensor], unk: str) -> tuple[list[str], list[str]]:
    """Return the tokens of source and target, each with a row of its embedding."""
    is_lm = "embedding.weight" in weights
    shared = read_vocabulary(folder, "vocabulary" if is_lm else "shared_vocabulary", unk)
    target_rows = weights["embedding.weight" if is_lm else "tgt_embedding.weight"]
    sides = list[list[str]]()
    for name, its in (("source", weights.get("src_embedding.weight", target_rows)), ("target", target_rows)):
        tokens = shared if shared or is_lm else read_vocabulary(folder, f"{name}_vocabulary", unk)
        if tokens is None:
            wanted = "vocabulary" if is_lm else "shared_vocabulary, or one of source and target"
            raise CheckpointError(f"{folder} lacks its {wanted} (.json or .txt)", "copy the folder whole")
        if len(tokens) != len(its):
            what = f"{len(tokens):,} tokens, and its embedding {len(its):,} rows"
            raise CheckpointError(f"{folder}: the vocabulary of the {name} has {what}", HINT)
        sides.append(tokens)
    return sides[0], sides[1]


NEVER_WRITTEN = -100.0
"""Added to the logit of a token that a model cannot write: its probability is 0 in float32."""
PADDING, MASKS = ("<blank>", "<pad>", "[PAD]"), ("<mask>", "[MASK]")
"""Names of the padding token and of the mask, where a vocabulary has one."""
_NAMED = re.compile(r"<[^<>]+>|\[[A-Z]+\]")
"""A token that no text holds, such as "<s>" where it has no role."""


def read_vocabulary(folder: Path, name: str, unk: str) -> list[str] | None:
    """Return the tokens of `NAME.json` or `NAME.txt` by id, or None without either.

    The unknown token is added at the end where it is missing, as CTranslate2 does.

    Raises:
        CheckpointError: it is no list of tokens, or has one twice.
    """
    for path in (folder / f"{name}.json", folder / f"{name}.txt"):
        if not path.is_symlink() and not path.exists():
            continue
        if path.suffix == ".json":
            tokens = read_json(path, LIMITS["tokenizer"])
        else:
            tokens = read_text(path, LIMITS["tokenizer"]).split("\n")
            tokens = tokens[:-1] if tokens[-1] == "" else tokens
            if all(token.endswith("\r") for token in tokens):
                tokens = [token[:-1] for token in tokens]
        if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
            raise CheckpointError(f"{path} should hold a list of tokens", HINT)
        tokens = tokens if unk in tokens else [*tokens, unk]
        if twice := next((token for token, n in Counter(tokens).items() if n > 1), None):
            raise CheckpointError(f"{path}: the token {twice[:40]!r} is in it twice", HINT)
        return tokens
    return None


def read_roles(folder: Path, config: Mapping[str, Any], variables: Variables) -> Roles:
    """Return the tokens with a role: those of `config.json`, or of a file before version 6 its variables.

    Raises:
        CheckpointError: a value is of another type.
        UsageError: the first token of a translation is left to the caller, or is none of the others.
    """
    if variables.version < 6:
        flags = {name: bool(variables.number(name, default)) for name, default in FLAGS.items()}
        config = dict[str, Any]((name, variables.text(name, text)) for name, text in NAMES.items())
        start = None if flags["user_decoder_start_tokens"] else "bos_token" if flags["with_target_bos"] else "eos_token"
        config |= {"decoder_start_token": config[start] if start else None}
        config |= {f"add_source_{end}": flags[f"with_source_{end}"] for end in ("bos", "eos")}
    kinds = dict.fromkeys(NAMES, str) | {"add_source_bos": bool, "add_source_eos": bool}
    check_types(config, kinds, folder / "config.json")
    texts = {name: config.get(name, text) for name, text in NAMES.items()}
    start = config.get("decoder_start_token", texts["bos_token"])
    if not isinstance(start, str):
        message = f"{folder} leaves the first token of a translation to its caller (decoder_start_token null)"
        raise UsageError(message, "import a model of one pair of languages")
    before, after = ((texts[f"{end}_token"],) if config.get(f"add_source_{end}") else () for end in ("bos", "eos"))
    return texts["unk_token"], start, texts["eos_token"], before, after


def join(
    source: Sequence[str], target: Sequence[str], roles: Roles, weights: dict[str, Tensor], settings: dict[str, Any]
) -> tuple[list[str], SpecialTokens, list[str]]:
    """Return one vocabulary for both sides, its special tokens, and a note; where both are equal, it is theirs.

    The tokens of the target have their ids there, and those of the source alone follow, which the model cannot write.
    The rows of the weights of a translator, and its settings, are arranged by these ids in place.

    Raises:
        CheckpointError: a token with a role is missing.
    """
    unk, bos, eos, prefix, suffix = roles
    of_source, of_target = ({token: i for i, token in enumerate(side)} for side in (source, target))
    tokens = [*target, *(token for token in source if token not in of_target)]
    ids = {token: i for i, token in enumerate(tokens)}
    needed = [(bos, of_target), (eos, of_target), *((token, of_source) for token in (*prefix, *suffix))]
    if missing := [token for token, side in needed if token not in side]:
        raise CheckpointError(f"the vocabulary lacks {missing[0][:40]!r}, which begins or ends a text", HINT)
    # No model reads what it is padded with. The token is never written, nor is the one that begins a translation.
    pad = next((token for token in PADDING if token in of_target), bos)
    mask = next((ids[token] for token in MASKS if token in of_target), NONE)
    around = (tuple(ids[token] for token in some) for some in (prefix, suffix))
    special = SpecialTokens(len(tokens), ids[pad], ids[unk], ids[bos], ids[eos], mask, *around)
    rows_of = [torch.tensor([side.get(token, side[unk]) for token in tokens]) for side in (of_source, of_target)]
    for name, index in zip(("src_embedding", "tgt_embedding", "output"), (*rows_of, rows_of[1]), strict=True):
        if f"{name}.weight" in weights:
            weights[f"{name}.weight"] = weights[f"{name}.weight"][index]
    if not (n_more := len(tokens) - len(target)):
        return tokens, special, []
    bias = weights["output_bias"][rows_of[1]] if "output_bias" in weights else torch.zeros(len(tokens))
    bias[len(target) :] += NEVER_WRITTEN
    weights["output_bias"], settings["output_bias"] = bias, True
    note = f"the vocabularies, of {len({*rows_of[0].tolist()})} and {len(target)} tokens, became one of {len(tokens)}: "
    return tokens, special, [f"{note}{n_more} tokens of the source alone have {NEVER_WRITTEN:g} in the output bias"]


def character_tokenizer(tokens: Sequence[str], special: SpecialTokens, where: Path) -> Tokenizer:
    """Return the tokenizer of a vocabulary whose tokens are characters, beside special ones.

    Raises:
        UsageError: one is longer.
    """
    several = (token for i, token in enumerate(tokens) if len(token) != 1 and i not in special.ids)
    if longer := [token for token in several if not _NAMED.fullmatch(token)]:
        message = f"the tokens of {where} are not characters ({longer[0][:40]!r}), and there is no tokenizer.json"
        raise UsageError(message, "put the tokenizer.json into the folder that its texts are split with")
    content = {
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated", "invert": False},
        "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": {t: i for i, t in enumerate(tokens)}, "unk_token": tokens[special.unk]},
    }
    return Tokenizer.imported(content, special, where)


def write_ctranslate2(
    model: Translator | LanguageModel,
    tokens: Sequence[str],
    quantization: str | None,
    special: SpecialTokens | None = None,
) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each file of a CTranslate2 model.

    `quantization` is "int8", "float16", "bfloat16", or None for float32; `special` are those of an imported tokenizer.

    Raises:
        UsageError: the package ctranslate2 is not installed.
    """
    library("writing for CTranslate2", "ctranslate2", "ctranslate2")
    from ctranslate2.specs import transformer_spec as specs

    spec: Any
    options = _options(model)
    unk, bos, eos = UNK, BOS, EOS
    if special is not None:
        eos = tokens[special.eos]
        unk, bos = (eos if i < 0 else tokens[i] for i in (special.unk, special.bos))
    if isinstance(model, LanguageModel):
        spec = specs.TransformerDecoderModelSpec.from_config(len(model.decoder.layers), model.config.n_heads, **options)
        _fill(spec, model)
        spec.register_vocabulary(list(tokens))
        bos = eos
    else:
        encoder = specs.TransformerEncoderSpec(len(model.encoder.layers), model.config.n_heads, **options)
        decoder = specs.TransformerDecoderSpec(len(model.decoder.layers), model.config.n_heads, **options)
        spec = specs.TransformerSpec(encoder, decoder)
        _fill(spec, model)
        if model.output_bias is not None:
            spec.decoder.projection.bias = model.output_bias.detach().cpu().float().numpy().copy()
        spec.register_source_vocabulary(list(tokens))
        spec.register_target_vocabulary(list(tokens))
        spec.config.decoder_start_token = bos
        spec.config.add_source_bos = special is not None and bool(special.prefix)
        spec.config.add_source_eos = special is None or bool(special.suffix)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = unk, bos, eos
    spec.config.layer_norm_epsilon = model.config.norm_eps
    spec.validate()
    spec.optimize(quantization=quantization)
    with tempfile.TemporaryDirectory() as folder:
        spec.save(folder)
        for path in sorted(Path(folder).iterdir()):
            yield path.name, path.read_bytes()


def _options(model: Translator | LanguageModel) -> dict[str, Any]:
    """Return the options that encoder and decoder share."""
    from ctranslate2.specs.common_spec import Activation

    c = model.config
    activations = {"relu": Activation.RELU, "gelu": Activation.GELU, "gelu-tanh": Activation.GELUTanh}
    activation = activations.get(c.activation, Activation.SWISH)  # of silu, and of the gate of swiglu
    options = {"pre_norm": c.pre_norm, "activation": activation, "ffn_glu": c.activation == "swiglu"}
    options |= {"rms_norm": c.norm == "rms", "head_dim": d_head_of(c), "layernorm_embedding": c.embedding_norm}
    if c.positions == "rotary":
        options |= {"rotary_dim": 0, "rotary_interleave": False, "rotary_base": c.rope_base}
    return options


def _fill(spec: Any, model: Translator | LanguageModel) -> None:
    """Fill a specification with the parameters of a model, and its positions."""
    c = model.config
    parameters = {name: p.detach().cpu().float() for name, p in model.named_parameters()}
    if isinstance(model, Translator):
        embeddings, kind = {"encoder": model.src_embedding, "decoder": model.tgt_embedding}, "translator"
        for name in [name for name in parameters if name.startswith("tgt_embedding.")]:  # where both are one
            parameters.setdefault(name.replace("tgt", "src", 1), parameters[name])
    else:
        embeddings, kind = {"decoder": model.embedding}, "language_model"
    parameters.setdefault("output.weight", embeddings["decoder"].weight.detach().cpu().float())
    table = rows("ctranslate2-gated" if c.activation == "swiglu" else "ctranslate2", c.n_layers)
    for name, tensor in to_theirs(table, kind, parameters).items():
        *path, last = name.split("/")
        setattr(_part(spec, path), last, tensor.numpy().copy())
    for scope, embedding in embeddings.items():
        part = getattr(spec, scope)
        part.scale_embeddings = embedding.scale != 1
        if c.positions != "rotary":
            part.position_encodings.encodings = positions_of(embedding, model.max_len).numpy().copy()


def _part(spec: Any, path: list[str]) -> Any:
    """Return the part of a specification under a path, in which `layer_0` is the first of a list `layer`."""
    for name in path:
        several, _, number = name.rpartition("_")
        spec = getattr(spec, name) if hasattr(spec, name) else getattr(spec, several)[int(number)]
    return spec
