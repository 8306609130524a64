"""Write a model as a folder of Hugging Face's transformers, which is not imported.

Where a class adds positions to the embedding, missing ones are a table of zeros.

Two identities are used. Scaled embeddings: where a class has no factor √D, the table is multiplied by it, and for a
tied head the last norm is divided by it. Permuted features: some classes compute sinusoids with all sines first; since
nothing in a Transformer depends on the order of the features of its residual stream, all parameters that read or write
it are permuted in the same way.

The classes are those of the library where one computes the same, or else those of `hf_class.py`; a folder holds no
code. Names are those of `names.py`, keys of `config.json` those of `hf_settings.py`.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, cast

import torch
from torch import Tensor, nn

from glassformer.config import DecodeConfig
from glassformer.errors import UsageError
from glassformer.interop.hf_reader import MODULES, POOLING, SENTENCES, residual_axes, sines_first
from glassformer.interop.hf_settings import CLASSES, write_settings
from glassformer.interop.hf_tokenizer_writer import tokenizer_config, tokenizer_file
from glassformer.interop.names import PREFIXES, rows, to_theirs
from glassformer.models import LanguageModel, MaskedLanguageModel, TextClassifier, Translator
from glassformer.models.build import d_ff_of, d_head_of
from glassformer.models.encoder_models import TextEmbedder, TextEncoder, TokenClassifier
from glassformer.models.ensemble import members_of
from glassformer.nn.embeddings import TokenEmbedding
from glassformer.nn.ngram_embeddings import BigramEmbedding
from glassformer.runs.folder import TOKENIZER
from glassformer.runs.model_folder import tensor_chunks
from glassformer.text.decision import Decision
from glassformer.text.tokenizer import Tokenizer

Json = dict[str, Any]
Tensors = dict[str, Tensor]


def parameters_of(model: nn.Module) -> Tensors:
    """Return the parameters of a model by name, as copies in float32; of tied ones one name."""
    return {name: p.detach().cpu().float().clone() for name, p in model.named_parameters()}


def tensors_of(model: TextEncoder | LanguageModel | Translator, family: str, kind: str) -> Tensors:
    """Return the tensors of a model under the names of a family."""
    p, d_model = parameters_of(model), model.config.d_model
    prefix = "" if kind == "text_embedder" else PREFIXES.get(family, "model.")
    if isinstance(model, LanguageModel):
        _fold_scale(p, model.embedding.scale)
        if family == "gpt2":
            p["embedding.positions.weight"] = positions_of(model.embedding, model.max_len)
    if isinstance(model, Translator):
        return _of_translator(p, model, family)
    if isinstance(model, TextClassifier) and model.n_classes == 2 and not model.several:
        p |= {name: torch.cat([torch.zeros_like(p[name]), p[name]]) for name in ("head.weight", "head.bias")}
    if family == "bert":
        p.setdefault("segments.weight", torch.zeros(1, d_model))
    found = to_theirs(rows(family, model.config.n_layers, prefix), kind, p)
    if (family, kind) == ("bert", "text_embedder"):
        found |= {"pooler.dense.weight": torch.zeros(d_model, d_model), "pooler.dense.bias": torch.zeros(d_model)}
    return found


def _fold_scale(p: Tensors, scale: float) -> None:
    """Multiply an embedding by its factor, in place, and divide the last norm by it where the head is tied."""
    if scale != 1 and "output.weight" not in p:
        for name in ("decoder.norm.weight", "decoder.norm.bias"):
            if name in p:
                p[name] = p[name] / scale
    p["embedding.weight"] = p["embedding.weight"] * scale


@torch.no_grad()
def in_units(model: nn.Module, decision: Decision) -> nn.Module:
    """Return a copy of a regressor, or of several, that gives numbers in the units of its data.

    Raises:
        UsageError: they are too large for float32.
    """
    model, (mean, sd) = copy.deepcopy(model), decision.scale
    for member in members_of(model):
        head = cast(nn.Linear, member.head)
        for p, shift in ((head.weight, 0.0), (head.bias, mean)):
            p.copy_(p.double() * sd + shift)
            if not p.isfinite().all():
                message = f"numbers of mean {mean:g} and standard deviation {sd:g} do not fit into float32"
                raise UsageError(message, "use --to onnx")
    return model


def word_ngrams(tokenizer: Tokenizer) -> torch.Tensor:
    """Return the n-grams of each token of a vocabulary, (V, G), zeros behind them."""
    assert tokenizer.ngrams is not None
    words = [f"<{word}>" for word in tokenizer.vocabulary()]
    rows = [tokenizer.ngrams.lookup(word) if i > tokenizer.mask_id else [] for i, word in enumerate(words)]
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])


def _of_translator(p: Tensors, model: Translator, family: str) -> Tensors:
    """Return the tensors of a Marian or a Pegasus; where three matrices are not one, each has its own name."""
    order = sines_first(model.config.d_model)
    p = {name: x[(*[slice(None)] * axis, order)] for name, x in p.items() for axis in residual_axes(name)} | {
        name: x for name, x in p.items() if not residual_axes(name)
    }
    found = to_theirs(rows(family, model.config.n_layers, "model."), "translator", p)
    if model.output is not None:
        target = found["model.shared.weight"] if family == "pegasus" else found.pop("model.shared.weight")
        found["model.decoder.embed_tokens.weight"] = target.clone()
        found.setdefault("model.encoder.embed_tokens.weight", target.clone())
    for stack in ("encoder", "decoder"):
        if family == "pegasus":
            found[f"model.{stack}.embed_positions.weight"] = positions_of(model.tgt_embedding, model.max_len)[
                :, order
            ].contiguous()
    return found | {"final_logits_bias": torch.zeros(1, len(p["tgt_embedding.weight"]))}


def registered_names(model: nn.Module, word_ngrams: Tensor | None) -> Tensors:
    """Return the tensors of a registered class: parameters, keys of bigrams, n-grams of words (V, G) if any."""
    names = {f"model.{name}": p.detach().cpu().float() for name, p in model.named_parameters()}
    for name, part in model.named_modules():
        if isinstance(part, BigramEmbedding):
            names[f"model.{name}.keys"] = part.keys.cpu()
    return names | ({} if word_ngrams is None else {"word_ngrams": word_ngrams})


def positions_of(embedding: TokenEmbedding, n: int) -> Tensor:
    """Return the n positions that are added to an embedding, (n, D); zeros if there are none."""
    if embedding.positions is None:
        return torch.zeros(n, embedding.weight.shape[1])
    return embedding.positions(torch.arange(n)[None])[0].detach().float().clone()


def settings_of(model: TextEncoder | LanguageModel | Translator) -> Json:
    """Return the fields of `ModelConfig` with the values that hold where there are none, and the sizes."""
    c = model.config
    sizes = {"d_ff": d_ff_of(c), "d_head": d_head_of(c), "max_len": model.max_len, "n_segments": max(1, c.n_segments)}
    return asdict(c) | sizes


def write_hf(
    model: nn.Module, tokenizer: Tokenizer, decode: DecodeConfig, architecture: str, labels: Sequence[str] = ()
) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each file.

    The model may be an ensemble of classifiers or masked language models; `labels` are in the order of the logits.
    """
    first: Any = members_of(model)[0]
    model_type, kind = CLASSES.get(architecture, ("glassformer", ""))
    if model_type == "glassformer":
        has_ngrams = isinstance(first, TextEncoder) and first.ngrams is not None
        table = word_ngrams(tokenizer).to(torch.int32) if has_ngrams else None
        names, config = registered_names(model, table), _registered_config(model, table, labels)
    else:
        names, config = tensors_of(first, model_type, kind), write_settings(model_type, settings_of(first))
        config |= label_config(labels, first.several) if isinstance(first, TextClassifier) else {}
        if "rope_theta" in config:
            config["rope_parameters"] = {"rope_type": "default", "rope_theta": config["rope_theta"]}
        config |= {"decoder_start_token_id": 2, "forced_eos_token_id": None} if isinstance(first, Translator) else {}
        config |= {"share_encoder_decoder_embeddings": first.output is None} if model_type == "marian" else {}
    is_lm = isinstance(first, LanguageModel)
    ids = {"pad_token_id": 0, "bos_token_id": 3 if is_lm else 2, "eos_token_id": 3}
    if tokenizer.special is not None:
        ids = {"pad_token_id": tokenizer.pad_id}
        first_of = [i for i in (tokenizer.bos_id, tokenizer.eos_id) if i >= 0]
        ids |= {"bos_token_id": first_of[0], "eos_token_id": first_of[-1]} if is_lm and first_of else {}
    kind = {"model_type": model_type, "architectures": [architecture], "dtype": "float32"}
    # Of the registered classes only that of a translator has two names for one tensor.
    named_twice = model_type != "glassformer" or isinstance(first, Translator)
    tied = {"tie_word_embeddings": named_twice and getattr(first, "output", None) is None}
    cache = {"use_cache": model_type != "glassformer"}
    yield "config.json", _json(kind | config | ids | tied | {"vocab_size": tokenizer.vocab_size})
    if isinstance(first, Translator | LanguageModel):
        yield "generation_config.json", _json(ids | cache | _generation(first, decode, tokenizer))
    yield "model.safetensors", b"".join(tensor_chunks(names, {"format": "pt"}))
    tokens_alone = tokenizer.without_ngrams() if tokenizer.ngrams or tokenizer.bigrams else tokenizer
    masks = isinstance(first, MaskedLanguageModel)
    yield TOKENIZER, tokenizer_file(tokens_alone, isinstance(first, Translator), masks)
    yield "tokenizer_config.json", _json(tokenizer_config(first, tokenizer))
    if isinstance(first, TextEmbedder):
        yield from sentence_files(first)


def _registered_config(model: nn.Module, table: Tensor | None, labels: Sequence[str]) -> Json:
    """Return the settings of a registered class; `table` are the n-grams of each token, (V, G)."""
    members = members_of(model)
    first: Any = members[0]
    config: Json = {"settings": asdict(first.config), "max_position_embeddings": first.max_len}
    config |= {"n_members": len(members)}
    if isinstance(first, TextEncoder):
        if table is not None and first.ngrams is not None:
            config |= {"n_ngrams": len(first.ngrams.weight), "n_word_ngrams": table.shape[1]}
        config |= {"n_bigrams": 0 if first.bigrams is None else len(first.bigrams.keys)}
    if isinstance(first, TextClassifier):
        config |= label_config(labels, first.several)
        if isinstance(first, TokenClassifier):
            del config["problem_type"]
        if first.n_classes == 1:
            config |= {"problem_type": "regression", "id2label": {0: "number"}, "label2id": {"number": 0}}
    if isinstance(first, Translator):
        config |= {"decoder_start_token_id": 2, "is_encoder_decoder": True}
    return config


def label_config(labels: Sequence[str], several: bool) -> Json:
    """Return the classes, and whether a text may have several, in `config.json`."""
    ids = {name: i for i, name in enumerate(labels)}
    problem = f"{'multi' if several else 'single'}_label_classification"
    return {"id2label": dict(enumerate(labels)), "label2id": ids, "problem_type": problem}


def sentence_files(model: TextEmbedder) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of the files that sentence-transformers reads beside an encoder.

    Raises:
        UsageError: it has no such pooling.
    """
    pooling, names = model.config.pooling, {ours: theirs for theirs, ours in POOLING.items()}
    if pooling not in names:
        raise UsageError(f"sentence-transformers pools in no such way: model.pooling {pooling}", "use --to onnx")
    kinds = (("", "Transformer"), ("1_Pooling", "Pooling"))
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(kinds)
    ]
    modes = {name: name == names[pooling] for name in names.values()}
    yield MODULES, _json(modules)
    yield "1_Pooling/config.json", _json({"word_embedding_dimension": model.config.d_model, **modes})
    yield SENTENCES, _json({"max_seq_length": model.max_len, "do_lower_case": False})


def _generation(model: Translator | LanguageModel, decode: DecodeConfig, tokenizer: Tokenizer) -> Json:
    """Return the settings of generation: those of the run, and the tokens that it never generates."""
    if isinstance(model, LanguageModel):
        sampled = decode.temperature > 0
        never = [i for i in tokenizer.without_text if i != tokenizer.eos_id]
        settings: Json = {"do_sample": sampled, "suppress_tokens": never or None}
        if sampled:
            settings |= {"temperature": decode.temperature, "top_k": decode.top_k, "top_p": decode.top_p}
        return settings | {"max_length": model.max_len}  # the prompt counted, as positions end there
    return {
        "num_beams": decode.beam_size,
        "length_penalty": decode.length_penalty,
        "max_length": min(decode.max_new_tokens, model.max_len),
        "decoder_start_token_id": 2,
        "forced_eos_token_id": None,
        "suppress_tokens": [0, 2],
    }


def _json(value: Any) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode("utf-8")
