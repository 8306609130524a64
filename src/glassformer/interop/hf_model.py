"""A folder of transformers, read and written: encoders like BERT, decoders like GPT-2 and Llama, and translators.

The names of tensors are those of `names.py`, the keys of `config.json` those of `hf_settings.py`. What is left stands
here: the first positions of RoBERTa, which no token has; positions that turn out to be sinusoids; heads of keys and
values that several heads of queries share; and the order of the features of translators, whose sinusoids have all
sines first. Nothing else in a Transformer depends on that order, so that all weights that read or write the residual
stream are permuted. In writing it is undone: a table is multiplied by the factor √D that a class does not have (and
the last norm before a tied head divided by it), and missing positions are a table of zeros. A folder holds no code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from glassformer.config import DecodeConfig, ModelConfig
from glassformer.config.recipes import build
from glassformer.errors import CheckpointError, UsageError
from glassformer.interop.export_facts import FACTS, decode_of
from glassformer.interop.hf_settings import (
    CLASSES,
    GENERATION_CONFIG,
    POOLERS,
    TABLES,
    Settings,
    read_decoding,
    read_keys,
    read_settings,
    write_settings,
)
from glassformer.interop.hf_tokenizer import (
    MARIAN_FILES,
    json_bytes,
    read_marian_tokenizer,
    read_tokenizer,
    tokenizer_config,
    tokenizer_file,
)
from glassformer.interop.imported import ImportedModel, own_export
from glassformer.interop.names import PREFIXES, rows, to_ours, to_theirs
from glassformer.interop.source_folder import SourceFolder, SourceTensors
from glassformer.models import LanguageModel, MaskedLanguageModel, TextClassifier, Translator
from glassformer.models.build import d_ff_of, d_head_of
from glassformer.models.encoder_models import TextEncoder
from glassformer.nn.embeddings import TokenEmbedding, sinusoidal
from glassformer.runs.folder import TOKENIZER
from glassformer.runs.model_folder import tensor_chunks
from glassformer.runs.records import Origin
from glassformer.tasks import task_of_kind
from glassformer.tasks.restoring import MAX_POSITIONS
from glassformer.text.answers import Decision
from glassformer.text.tokenizer import Tokenizer

ROBERTAS = ("roberta", "xlm-roberta")
"""Families whose first positions belong to padding."""
SEQ2SEQ = ("marian", "pegasus")
POOLING = {"pooling_mode_cls_token": "first", "pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max"}
"""Keys of the pooling of sentence-transformers, by our names."""
NEVER_WRITTEN = -1e4
"""Bias of the padding token of a Marian model, whose row is zeros: Marian has no such token in its softmax."""
MULTI_LABEL = "multi_label_classification"
"""The `problem_type` of texts that may have several labels."""
MAX_LABELS = 100_000
MOST_TOKENS = 1_000_000
"""Longest text, that of `TextConfig.max_len`."""
SENTENCES, MODULES = "sentence_bert_config.json", "modules.json"
"""What sentence-transformers writes beside an encoder."""
_OF_SENTENCES = {
    SENTENCES: "= false null : do_lower_case\n. max_seq_length",
    "config_sentence_transformers.json": """
= null : default_prompt_name
. __version__ prompts similarity_fn_name model_type
""",
}
_OF_POOLING = """
. word_embedding_dimension embedding_dimension include_prompt pooling_mode pooling_mode_cls_token
. pooling_mode_mean_tokens pooling_mode_max_tokens pooling_mode_mean_sqrt_len_tokens pooling_mode_weightedmean_tokens
. pooling_mode_lasttoken
"""


def read_hf(folder: SourceFolder, config: dict[str, Any], max_len: int | None) -> ImportedModel:
    """Return the model of a folder that transformers wrote.

    Args:
        folder: the folder.
        config: its `config.json`.
        max_len: positions to keep; all if None.

    Raises:
        UsageError: it is of a kind that is not read.
        CheckpointError: a file is missing, damaged, or holds other tensors than its kind has.
    """
    family, kind = _class_of(config)
    settings = read_settings(family, config)
    positions = settings.pop("max_len", None)
    settings.pop("n_segments", None)  # as many as the tensor has rows
    build(ModelConfig, settings, "model", "config.json")  # bounds of the sizes, before anything is read
    tensors = SourceTensors(folder.weights(), folder.path)
    if (n := settings["n_layers"]) > len(tensors):
        raise CheckpointError(f"config.json names {n:,} layers, and there are {len(tensors):,} tensors")
    tensors.without_prefix("module.")
    tensors.without_prefix(PREFIXES.get(family, "model."))
    tensors.rename("LayerNorm.gamma", "LayerNorm.weight")  # of the first version of BERT
    tensors.rename("LayerNorm.beta", "LayerNorm.bias")
    reader = _Reader(folder, family, kind, config, settings, tensors, max_len)
    {"translator": reader.translator, "language_model": reader.decoder}.get(kind, reader.encoder)()
    tensors.finish()
    return reader.result(positions)


def _class_of(config: Mapping[str, Any]) -> tuple[str, str]:
    """Return the family and the kind of model that a `config.json` names; refuse what is not read."""
    family, names = config.get("model_type"), config.get("architectures")
    if not isinstance(family, str) or family not in TABLES:
        message = f"config.json names the model type {str(family)[:60]!r}, which is not read"
        raise UsageError(message, f"there are {', '.join(TABLES)}")
    known = [name for name, (its, _) in CLASSES.items() if its == family]
    if not isinstance(names, list) or len(names) != 1 or names[0] not in known:
        message = f"config.json: architectures is {str(names)[:80]}, and a {family} of another class is not read"
        raise UsageError(message, f"there are {', '.join(known)}, one of which save_pretrained names")
    return CLASSES[names[0]]


@dataclass
class _Reader:
    """Reads one folder: a method for each form of model, then `result`."""

    folder: SourceFolder
    family: str
    kind: str
    config: Mapping[str, Any]
    settings: Settings
    tensors: SourceTensors
    max_len: int | None
    state: dict[str, Tensor] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    labels: list[str] | None = None
    n_positions: int | None = None

    def result(self, positions: int | None) -> ImportedModel:
        """Return the model; `positions` are those that `config.json` names."""
        s, folder = self.settings, self.folder
        if self.n_positions is None:
            # Of a translator a position is that of the end of a source, or of the start of a translation.
            self.n_positions = self._kept((positions or 0) - (self.kind == "translator"))
        most = min(MOST_TOKENS, max(MAX_POSITIONS, sum(map(torch.numel, self.state.values()))) // s["d_model"])
        if self.n_positions > most:  # the positions alone would take more memory than any model of this size
            message = f"config.json names {self.n_positions:,} positions, and {most:,} is the limit for this model"
            raise UsageError(message, f"use --max-len {most} or less")
        n_ids = next((len(x) for name, x in self.state.items() if name.endswith("embedding.weight")), 0)
        self._has("vocab_size", n_ids)
        if own := own_export(folder, "hf", self.kind):
            facts, tokenizer = own
            more: dict[str, Any] = {"decode": decode_of(facts), "truncate": facts.truncate}
            more |= {"decision": Decision.from_json(facts.decision, self.labels, FACTS)}
        else:
            marian = self.family == "marian" and all(map(folder.has, MARIAN_FILES))
            tokenizer = (read_marian_tokenizer if marian else read_tokenizer)(folder, self.config, n_ids)
            never = tokenizer.special.ids - {tokenizer.eos_id} if tokenizer.special else frozenset[int]()
            generation = folder.json_if_there(GENERATION_CONFIG)
            more = {"decode": read_decoding(self.config, generation, self.kind, never)}
        return ImportedModel(
            task=task_of_kind(self.kind),
            model=build(ModelConfig, s, "model", "config.json"),
            tokenizer=tokenizer,
            max_len=self.n_positions,
            state=self.state,
            source=Origin("transformers", self.family, folder.name, folder.hashes, **folder.card_facts()),
            labels=self.labels,
            notes=tuple(self.notes),
            **more,
        )

    def _read(self, tied: bool) -> None:
        """Read all tensors; of those that are tied, one may be there under the other's name alone."""
        s = self.settings
        table = [*rows(self.family, s["n_layers"])]
        theirs = {row.ours[0]: row.theirs for row in table if not row.kinds or self.kind in row.kinds}
        embedding = next(name for name in ("embedding.weight", "tgt_embedding.weight") if name in theirs)
        if tied and not any(name in self.tensors for name in theirs[embedding]):
            others = [name for ours in ("src_embedding.weight", "output.weight") for name in theirs.get(ours, ())]
            if found := next((name for name in others if name in self.tensors), None):
                self.tensors.rename(found, theirs[embedding][0])
        self.state, unused = to_ours(table, self.kind, self.tensors)
        if unused:
            heads = sorted({name.rpartition(".")[0] for name in unused})
            self.notes.append(f"left out, since this form has no use for it: {', '.join(heads)}")
        head, embedding = self.state.get("output.weight"), self.state[embedding]
        if head is None and not tied and "output.weight" in theirs:
            self.tensors.take(theirs["output.weight"][0])  # which is missing
        s["tie_embeddings"] = head is None or torch.equal(head, embedding)
        if s["tie_embeddings"]:
            self.state.pop("output.weight", None)

    def _kept(self, n_rows: int) -> int:
        """Return the longest text: `max_len`, which is at most the positions that a model was trained with."""
        kept = n_rows if self.max_len is None else self.max_len
        if not 1 <= kept <= n_rows:
            raise UsageError(f"max_len should be from 1 to {n_rows:,}, the positions of the model, not {kept:,}")
        return kept

    def _has(self, key: str, n: int) -> None:
        """Refuse a size in `config.json` that its tensors do not have."""
        if self.config.get(key, n) != n:
            raise CheckpointError(f"config.json: {key} is {str(self.config[key])[:60]}, and {n:,} by its tensors")

    def decoder(self) -> None:
        """Read a GPT-2, or a decoder with rotary positions."""
        s, family = self.settings, self.family
        self._read(self.config.get("tie_word_embeddings", family == "gpt2") is True)
        state = self.state
        if family == "gpt2":
            self.n_positions = self._positions("embedding.positions.weight", "n_positions")
            return
        n_heads, d_model = s["n_heads"], s["d_model"]
        groups = n_heads if (given := self.config.get("num_key_value_heads")) is None else given
        if type(groups) is not int or not 1 <= groups <= n_heads or n_heads % groups:
            raise CheckpointError(f"config.json: num_key_value_heads {groups!r}: {n_heads} heads cannot share these")
        if groups < n_heads:
            self.notes.append(f"repeated: the {groups} heads of keys and values, shared by {n_heads} heads of queries")
        shape = groups * (s.get("d_head") or max(1, d_model // n_heads)), d_model
        for name in [name for name in state if ".k_proj." in name or ".v_proj." in name]:
            expected, found = shape[: 2 if name.endswith("weight") else 1], tuple(state[name].shape)
            if found != expected:
                raise CheckpointError(f"the tensor of {name} should have shape {expected}, not {found}")
            by_group = state[name].unflatten(0, (groups, -1))  # (G, E, D), or (G, E) of a bias
            state[name] = by_group.repeat_interleave(n_heads // groups, dim=0).flatten(0, 1)
        linear = [name.removesuffix(".weight") for name in state if name.endswith("_proj.weight")]
        missing = [name for name in linear if f"{name}.bias" not in state]
        for key, part in (("attention_bias", ".self_attention."), ("mlp_bias", ".feed_forward.")):
            found = any(part in name for name in {*linear} - {*missing})
            if (self.config.get(key) or False) is not found:
                raise CheckpointError(
                    f"config.json: {key} should be {str(found).lower()}, by the biases that are there"
                )
        s["bias"] = len(missing) < len(linear)
        if s["bias"] and missing:
            self.notes.append(f"zeros: the biases of {len(missing)} of {len(linear)} linear layers, which have none")
            state |= {f"{name}.bias": torch.zeros(len(state[f"{name}.weight"])) for name in missing}

    def _positions(self, name: str, key: str, first: int = 0) -> int:
        """Keep the positions of the longest text, and those alone that tokens of a text have; return their number."""
        table = self.state[name]
        n_rows = max(0, len(table) - first) if table.dim() == 2 else 0
        self._has(key, n_rows + first)
        kept = self._kept(n_rows)
        self.state[name] = table[first : first + kept].clone()
        if first:
            self.notes.append(f"left out: the first {first} positions, which no token of a text has")
        if kept < n_rows:
            self.notes.append(f"left out: the positions from {kept:,} on, the longest text")
        return kept

    def translator(self) -> None:
        """Read a Marian or a Pegasus."""
        s = self.settings
        self.notes.append("permuted: the features, so that sine and cosine of a position are neighbours")
        for stack in ("encoder", "decoder"):
            self._check_sinusoids(f"{stack}.embed_positions.weight")
        if all(f"{stack}.embed_tokens.weight" in self.tensors for stack in ("encoder", "decoder")):
            self.tensors.leave_out("shared.weight")  # which neither reads
        self._read(self.config.get("tie_word_embeddings", True) is not False)
        target = self.state["tgt_embedding.weight"]
        source, head = (self.state.pop(name, target) for name in ("src_embedding.weight", "output.weight"))
        self._has("decoder_vocab_size", len(target))
        self._has("num_hidden_layers", s["n_layers"])
        s["tie_embeddings"] = torch.equal(source, target) and torch.equal(head, target)
        if not s["tie_embeddings"]:  # one matrix for all three, or three
            self.state |= {"src_embedding.weight": source.clone(), "output.weight": head.clone()}
        bias = self.state.pop("output_bias", torch.zeros(1, len(target)))
        if bias.shape != (1, len(target)):
            raise CheckpointError(f"final_logits_bias should have shape (1, {len(target)}), not {tuple(bias.shape)}")
        bias, pad = bias[0], self.config.get("pad_token_id")
        if self.family == "marian" and type(pad) is int and 0 <= pad < len(target) and not target[pad].any():
            bias = bias.index_fill(0, torch.tensor([pad]), NEVER_WRITTEN)
            note = "folded: the padding token, whose row is zeros, has a probability of 0, as in Marian itself"
            self.notes.append(f"{note} ({NEVER_WRITTEN:g} in the output bias)")
        self.state = {name: self._in_our_order(name, tensor) for name, tensor in self.state.items()}
        if bias.any():
            s["output_bias"], self.state["output_bias"] = True, bias.clone()

    def _in_our_order(self, name: str, tensor: Tensor) -> Tensor:
        """Return a weight whose features of the residual stream are in our order."""
        d_model = self.settings["d_model"]
        if (axis := residual_axis(name)) is None:
            return tensor
        if tensor.dim() <= axis or tensor.shape[axis] != d_model:
            raise CheckpointError(f"the weight {name} should have {d_model:,} {'columns' if axis else 'rows'}")
        return tensor.index_select(axis, sines_first(d_model).argsort()).contiguous()

    def _check_sinusoids(self, name: str) -> None:
        """Take a table of positions, where the file has one: sinusoids, whose amplitude becomes a setting."""
        s, d_model = self.settings, self.settings["d_model"]
        if name not in self.tensors:
            return
        table = self.tensors.take(name)
        if table.dim() == 2 and table.shape[1] == d_model and len(table) and d_model > 1:
            amplitude = float(str(table[0, -1].numpy()))  # cos(0), as the shortest decimal that is this number
            ours = sinusoidal(*table.shape)[:, sines_first(d_model)]
            is_sound = amplitude > 0 if s["embedding_init_std"] is not None else amplitude == 1
            if is_sound and torch.allclose(table, ours * amplitude, rtol=0, atol=1e-6):
                s["embedding_init_std"] = s["embedding_init_std"] and amplitude
                return
        raise UsageError(f"the positions {name} are not sinusoids, and no others are read of this family")

    def encoder(self) -> None:
        """Read an encoder of texts with the head that its class has."""
        s, config = self.settings, self.config
        self.labels = own_labels(config) if self.kind in ("classifier", "tagger") else None
        if self.labels is not None and (len({*self.labels}) < len(self.labels) or not all(self.labels)):
            raise UsageError(f"config.json: id2label should name different classes, not {str(self.labels)[:100]}")
        if self.kind == "classifier":
            s |= {"pooling": "first", "pooler": POOLERS[self.family]}
            self.kind = "multilabel_classifier" if config.get("problem_type") == MULTI_LABEL else "classifier"
        pooling = self._pooling()
        self._read(config.get("tie_word_embeddings", True) is not False)
        longest = self.folder.json_if_there(SENTENCES).get("max_seq_length")
        n_rows = len(self.state["embedding.positions.weight"])
        if self.max_len is None and type(longest) is int and 2 < longest < n_rows - 2:
            self.max_len = longest
            self.notes.append(f"max_seq_length of {SENTENCES} is {longest}; --max-len keeps more, up to all positions")
        pad = config.get("pad_token_id", 1)
        first = (pad if type(pad) is int and 0 <= pad < 100 else 1) + 1 if self.family in ROBERTAS else 0
        self.n_positions = self._positions("embedding.positions.weight", "max_position_embeddings", first)
        if "segments.weight" in self.state:
            s["n_segments"] = len(self.state["segments.weight"])
            self._has("type_vocab_size", s["n_segments"])
        head = [self.state[name] for name in ("head.weight", "head.bias") if name in self.state]
        if (
            self.kind in ("classifier", "tagger")
            and len(self.labels or ()) == 2
            and len([p for p in head if p.dim()]) == 2
        ):
            weight, bias = (part[1:] - part[:1] for part in head)
            self.state |= {"head.weight": weight, "head.bias": bias}
            self.notes.append("folded: two classes share one logit, the difference of both; probabilities are the same")
        elif self.kind == "masked_language_model" and s["activation"] != "gelu":
            raise UsageError(f"the head of a masked language model has GELU here, and this one {s['activation']}")
        elif self.kind == "text_embedder":
            s["pooling"] = how = pooling or "mean"
            self.notes.append(f"a bare encoder: a text is the pooling of its vectors, {how}, not divided by its length")
        if self.kind != "masked_language_model":
            del s["tie_embeddings"]

    def _pooling(self) -> str | None:
        """Return the pooling of a sentence encoder, whose modules are read, known to change nothing, or refused."""
        for name, table in _OF_SENTENCES.items():
            read_keys(table, self.folder.json_if_there(name), name)
        if not self.folder.has(MODULES):
            if self.folder.has("1_Pooling"):
                raise UsageError(f"1_Pooling is there, and {MODULES}, which says what is computed, is not")
            return None
        found = None
        for i, (kind, path) in enumerate(self.folder.modules(MODULES)):
            if kind not in ("Transformer", "Pooling", "Normalize") or (kind == "Transformer") != (i == 0 and not path):
                raise UsageError(f"{MODULES} names the module {kind} in {path or '.'!r}, which is not read there")
            if kind == "Normalize":
                self.notes.append("its library divides the vectors by their length (Normalize), and they are not here")
            if kind == "Pooling":
                found = self._pooling_of(f"{path}/config.json")
        return found

    def _pooling_of(self, name: str) -> str:
        config = self.folder.json(name)
        read_keys(_OF_POOLING, config, name)
        chosen = [key for key, value in config.items() if key.startswith("pooling_mode_") and value is True]
        if isinstance(mode := config.get("pooling_mode"), str):  # as newer versions write it
            chosen.append(f"pooling_mode_{mode}_tokens" if mode != "cls" else "pooling_mode_cls_token")
        if len(chosen) != 1 or chosen[0] not in POOLING:
            how = ", ".join(chosen)[:100] or "none"
            raise UsageError(
                f"{name} pools in a way that is not read: {how}", "the first token, the mean and the maximum are read"
            )
        return POOLING[chosen[0]]


def own_labels(config: Mapping[str, Any]) -> list[str]:
    """Return the classes of a classifier's head.

    Raises:
        UsageError: its answers are no classes.
    """
    names, n = config.get("id2label"), config.get("num_labels")
    if names is None:
        n = 2 if n is None else n
        names = {str(i): f"LABEL_{i}" for i in range(n if type(n) is int and 0 < n <= MAX_LABELS else 0)}
    if not isinstance(names, dict) or len(names) > MAX_LABELS:
        raise CheckpointError("config.json: id2label should name the classes")
    if n not in (None, len(names)):
        message = f"config.json: num_labels is {str(n)[:60]}, and id2label names {len(names):,} classes"
        raise CheckpointError(message, "correct the one that is wrong")
    if len(names) == 1:
        raise UsageError("config.json: id2label names one class: a head with one output is a regression, and not read")
    found = [names.get(str(i)) for i in range(len(names))]
    if not found or not all(isinstance(name, str) for name in found):
        raise CheckpointError("config.json: id2label should name the classes 0, 1, …")
    return [str(name) for name in found]


def sines_first(d_model: int) -> Tensor:
    """Return the order of features in which the sines of our sinusoids come first, then the cosines."""
    return torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])


def residual_axis(name: str) -> int | None:
    """Return the axis of a parameter that holds the features of the residual stream; None of what only reads it."""
    *_, part, kind = ["", *name.split(".")]
    if part in ("q_proj", "k_proj", "v_proj", "up_proj"):
        return 1 if kind == "weight" else None
    return 0 if part in ("o_proj", "down_proj", "norm") else 1  # of embeddings and of the output projection


Tensors = dict[str, Tensor]


def tensors_of(model: TextEncoder | LanguageModel | Translator, family: str, kind: str) -> Tensors:
    """Return the tensors of a model under the names of a family."""
    p = {name: x.detach().cpu().float().clone() for name, x in model.named_parameters()}  # of tied ones one name
    prefix = PREFIXES.get(family, "model.")
    if isinstance(model, LanguageModel):
        _fold_scale(p, model.embedding.scale)
        if family == "gpt2":
            p["embedding.positions.weight"] = positions_of(model.embedding, model.max_len)
    if isinstance(model, Translator):
        return _of_translator(p, model, family)
    if isinstance(model, TextClassifier) and model.n_classes == 2 and not model.several:
        p |= {name: torch.cat([torch.zeros_like(p[name]), p[name]]) for name in ("head.weight", "head.bias")}
    if family == "bert":
        p.setdefault("segments.weight", torch.zeros(1, model.config.d_model))
    return to_theirs(rows(family, model.config.n_layers, prefix), kind, p)


def _fold_scale(p: Tensors, scale: float) -> None:
    """Multiply an embedding by its factor, in place, and divide the last norm by it where the head is tied."""
    if scale != 1 and "output.weight" not in p:
        for name in ("decoder.norm.weight", "decoder.norm.bias"):
            if name in p:
                p[name] = p[name] / scale
    p["embedding.weight"] = p["embedding.weight"] * scale


def _of_translator(p: Tensors, model: Translator, family: str) -> Tensors:
    """Return the tensors of a Marian or a Pegasus; where three matrices are not one, each has its own name."""
    order = sines_first(model.config.d_model)
    for name in p:
        if (axis := residual_axis(name)) is not None:
            p[name] = p[name].index_select(axis, order)
    found = to_theirs(rows(family, model.config.n_layers, "model."), "translator", p)
    if model.output is not None:
        target = found["model.shared.weight"] if family == "pegasus" else found.pop("model.shared.weight")
        found["model.decoder.embed_tokens.weight"] = target.clone()
        found.setdefault("model.encoder.embed_tokens.weight", target.clone())
    for stack in ("encoder", "decoder"):
        if family == "pegasus":
            positions = positions_of(model.tgt_embedding, model.max_len)[:, order]
            found[f"model.{stack}.embed_positions.weight"] = positions.contiguous()
    return found | {"final_logits_bias": torch.zeros(1, len(p["tgt_embedding.weight"]))}


def positions_of(embedding: TokenEmbedding, n: int) -> Tensor:
    """Return the n positions that are added to an embedding, (n, D); zeros if there are none."""
    if embedding.positions is None:
        return torch.zeros(n, embedding.weight.shape[1])
    return embedding.positions(torch.arange(n)[None])[0].detach().float().clone()


def write_hf(
    model: TextEncoder | LanguageModel | Translator,
    tokenizer: Tokenizer,
    decode: DecodeConfig,
    architecture: str,
    labels: Sequence[str] = (),
) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each file; `labels` are in the order of the logits."""
    (family, kind), c = CLASSES[architecture], model.config
    names = tensors_of(model, family, kind)
    sizes = {"d_ff": d_ff_of(c), "d_head": d_head_of(c), "max_len": model.max_len, "n_segments": max(1, c.n_segments)}
    config = {"model_type": family, "architectures": [architecture], "dtype": "float32"}
    config |= write_settings(family, asdict(c) | sizes)
    if isinstance(model, TextClassifier):
        config["problem_type"] = f"{'multi' if model.several else 'single'}_label_classification"
        config |= {"id2label": dict(enumerate(labels)), "label2id": {name: i for i, name in enumerate(labels)}}
    if "rope_theta" in config:
        config["rope_parameters"] = {"rope_type": "default", "rope_theta": config["rope_theta"]}
    is_lm, is_tied = isinstance(model, LanguageModel), getattr(model, "output", None) is None
    ids: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 3 if is_lm else 2, "eos_token_id": 3}
    if tokenizer.special is not None:
        first_of = [i for i in (tokenizer.bos_id, tokenizer.eos_id) if i >= 0] if is_lm else []
        ids = {"pad_token_id": tokenizer.pad_id}
        ids |= {"bos_token_id": first_of[0], "eos_token_id": first_of[-1]} if first_of else {}
    if isinstance(model, Translator):
        ids |= {"decoder_start_token_id": 2, "forced_eos_token_id": None}
        config |= {"share_encoder_decoder_embeddings": is_tied} if family == "marian" else {}
    yield "config.json", json_bytes(config | ids | {"tie_word_embeddings": is_tied, "vocab_size": tokenizer.vocab_size})
    if isinstance(model, Translator | LanguageModel):
        yield GENERATION_CONFIG, json_bytes(ids | {"use_cache": True} | _generation(model, decode, tokenizer))
    yield "model.safetensors", b"".join(tensor_chunks(names, {"format": "pt"}))
    masks = isinstance(model, MaskedLanguageModel)
    yield TOKENIZER, tokenizer_file(tokenizer, isinstance(model, Translator), masks)
    yield "tokenizer_config.json", json_bytes(tokenizer_config(model, tokenizer))


def _generation(model: Translator | LanguageModel, decode: DecodeConfig, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the settings of generation: those of the run, and the tokens that it never generates."""
    if isinstance(model, LanguageModel):
        sampled = decode.temperature > 0
        never = [i for i in tokenizer.without_text if i != tokenizer.eos_id]
        settings: dict[str, Any] = {"do_sample": sampled, "suppress_tokens": never or None}
        if sampled:
            settings |= {"temperature": decode.temperature, "top_k": decode.top_k, "top_p": decode.top_p}
        return settings | {"max_length": model.max_len}  # the prompt counted, as positions end there
    return {
        "num_beams": decode.beam_size,
        "length_penalty": decode.length_penalty,
        "max_length": min(decode.max_new_tokens, model.max_len),
        "suppress_tokens": [0, 2],
    }
