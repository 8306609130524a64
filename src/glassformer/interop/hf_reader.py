"""A Hugging Face folder as an `ImportedModel`: encoders like BERT, decoders like GPT-2 and Llama, and translators.

The names of tensors are those of `names.py`, the keys of `config.json` those of `hf_settings.py`. What is left stands
here: the first positions of RoBERTa, which no token has; positions that turn out to be sinusoids; heads of keys and
values that several heads of queries share; and the order of the features of translators, whose sinusoids have all
sines first. Nothing else in a Transformer depends on that order, so that all weights that read or write the residual
stream are permuted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.config.validation import build
from glassformer.errors import CheckpointError, UsageError
from glassformer.interop.choose import REGISTERED
from glassformer.interop.ctranslate2_positions import find_positions
from glassformer.interop.export_facts import FACTS, POOLED, ExportFacts, decode_of
from glassformer.interop.hf_settings import (
    CLASSES,
    COMMON,
    ENCODERS,
    GENERATION,
    TABLES,
    Settings,
    read_decoding,
    read_keys,
    read_settings,
)
from glassformer.interop.hf_tokenizer import read_tokenizer
from glassformer.interop.imported import ImportedModel, ImportSource
from glassformer.interop.marian_tokenizer import has_marian_tokenizer, read_marian_tokenizer
from glassformer.interop.names import PREFIXES, Row, rows, to_ours
from glassformer.interop.own_export import own_facts, own_tokenizer
from glassformer.interop.source_folder import SourceFolder, SourceTensors
from glassformer.nn.embeddings import sinusoidal
from glassformer.tasks import task_of_kind
from glassformer.tasks.restoring import MAX_POSITIONS
from glassformer.text.decision import Decision
from glassformer.training.finetune import in_scale

OWN = "glassformer"
"""The model type of the classes that `hf_class.py` registers."""
ROBERTAS = ("roberta", "xlm-roberta")
"""Families whose first positions belong to padding."""
SEQ2SEQ = ("marian", "pegasus")
POOLERS = {"bert": "tanh", "roberta": "tanh", "xlm-roberta": "tanh", "distilbert": "relu"}
"""The activation between the pooler and the head of a classifier."""
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
    SENTENCES: "= do_lower_case false null\n. max_seq_length",
    "config_sentence_transformers.json": """
= default_prompt_name null
. __version__ prompts similarity_fn_name model_type
""",
}
_OF_POOLING = """
. word_embedding_dimension embedding_dimension include_prompt pooling_mode pooling_mode_cls_token
. pooling_mode_mean_tokens pooling_mode_max_tokens pooling_mode_mean_sqrt_len_tokens pooling_mode_weightedmean_tokens
. pooling_mode_lasttoken
"""


def read_hf(
    folder: SourceFolder, config: dict[str, Any], labels: Sequence[str] | None, max_len: int | None
) -> ImportedModel:
    """Return the model of a folder that transformers wrote.

    Args:
        folder: the folder.
        config: its `config.json`.
        labels: the classes of a classifier that is to be trained, or other names of those that it has.
        max_len: positions to keep; all if None.

    Raises:
        UsageError: it is of a kind that is not read.
        CheckpointError: a file is missing, damaged, or holds other tensors than its kind has.
    """
    facts = own_facts(folder, "hf")
    family, kind = _class_of(config, facts)
    if labels and family not in ENCODERS:
        raise UsageError(f"a model of the family {family} is read without other classes", "leave out --labels")
    settings = registered_settings(config) if family == OWN else read_settings(family, config)
    positions = settings.pop("max_len", None)
    if family != OWN:
        settings.pop("n_segments", None)  # as many as the tensor has rows
    build(ModelConfig, settings, "model", "config.json")  # bounds of the sizes, before anything is read
    tensors = folder.tensors()
    n_layers = settings.get("n_layers", ModelConfig().n_layers)
    if n_layers > len(tensors.names):
        raise CheckpointError(f"config.json names {n_layers:,} layers, and there are {len(tensors.names):,} tensors")
    reader = _Reader(folder, family, kind, config, settings, tensors, max_len, facts)
    if family in ENCODERS:
        reader.encoder(labels)
    elif family == OWN:
        reader.registered()
    elif kind == "translator":
        reader.translator()
    else:
        reader.decoder()
    tensors.finish()
    return reader.result(positions)


def _class_of(config: Mapping[str, Any], facts: ExportFacts | None) -> tuple[str, str]:
    """Return the family and the kind of model that a `config.json` names; refuse what is not read."""
    family, names = config.get("model_type"), config.get("architectures")
    if "auto_map" in config:
        raise UsageError("config.json names code of its own (auto_map), and no code of a folder is run")
    if "quantization_config" in config:
        raise UsageError("the weights are quantized (quantization_config), and integers are not read")
    if not isinstance(family, str) or family not in TABLES:
        message = f"config.json names the model type {str(family)[:60]!r}, which is not read"
        raise UsageError(message, f"there are {', '.join(TABLES)}")
    if family == OWN:
        return OWN, registered_kind(config, facts)
    known = [name for name, (its, _) in CLASSES.items() if its == family]
    if not isinstance(names, list) or len(names) != 1 or names[0] not in known:
        message = f"config.json: architectures is {str(names)[:80]}, and a {family} of another class is not read"
        raise UsageError(message, f"there are {', '.join(known)}, one of which save_pretrained names")
    return CLASSES[names[0]]


class _Reader:
    """Reads one folder: a method for each form of model, then `result`."""

    def __init__(
        self,
        folder: SourceFolder,
        family: str,
        kind: str,
        config: Mapping[str, Any],
        settings: Settings,
        tensors: SourceTensors,
        max_len: int | None,
        facts: ExportFacts | None,
    ) -> None:
        self.folder, self.family, self.kind, self.config = folder, family, kind, config
        self.settings, self.tensors, self.max_len, self.facts = settings, tensors, max_len, facts
        self.state, self.notes, self.untrained = dict[str, Tensor](), list[str](), list[str]()
        self.labels: list[str] | None = None
        self.n_positions: int | None = None

    def result(self, positions: int | None) -> ImportedModel:
        """Return the model; `positions` are those that `config.json` names."""
        s, facts, folder = self.settings, self.facts, self.folder
        if self.n_positions is None:
            # Of a translator a position is that of the end of a source, or of the start of a translation.
            self.n_positions = self._kept((positions or 0) - (self.kind == "translator"))
        n_weights = sum(tensor.numel() for tensor in self.state.values())
        most = min(MOST_TOKENS, max(MAX_POSITIONS, n_weights) // s.get("d_model", ModelConfig().d_model))
        if self.n_positions > most:  # the positions alone would take more memory than any model of this size
            message = f"config.json names {self.n_positions:,} positions, and {most:,} is the limit for this model"
            raise UsageError(message, f"use --max-len {most} or less")
        n_ids = next((len(x) for name, x in self.state.items() if name.endswith("embedding.weight")), 0)
        self._has("vocab_size", n_ids)
        if facts:
            tokenizer = own_tokenizer(folder)
        elif self.family == "marian" and has_marian_tokenizer(folder):
            tokenizer = read_marian_tokenizer(folder, self.config, n_ids)
        else:
            tokenizer = read_tokenizer(folder, self.config, n_ids)
        never = tokenizer.special.ids - {tokenizer.eos_id} if tokenizer.special else frozenset[int]()
        generation = folder.json_if_there("generation_config.json")
        of_file = decode_of(facts) if facts else read_decoding(self.config, generation, self.kind, never)
        card = folder.card_facts()
        base = card.get("base_model") or str(self.config.get("_name_or_path", ""))
        base = base if re.fullmatch(r"[\w.-]{1,96}/[\w.-]{1,96}", base) else ""
        return ImportedModel(
            task=facts.task if facts and self.family == OWN else task_of_kind(self.kind),
            model=build(ModelConfig, s, "model", "config.json"),
            tokenizer=tokenizer,
            max_len=self.n_positions,
            state=self.state,
            source=ImportSource(
                "transformers", self.family, folder.name(), folder.hashes, card.get("license", ""), base
            ),
            labels=self.labels,
            notes=tuple(self.notes),
            untrained=tuple(self.untrained),
            decode=of_file,
            truncate=facts.truncate if facts else "head",  # pyright: ignore[reportArgumentType]
            decision=Decision.from_json(facts.decision, self.labels, "glassformer.json") if facts else Decision(),
        )

    def _rows(self) -> list[Row]:
        """Return the rows of the family, and take away prefixes and old names."""
        self.tensors.without_prefix("module.")
        self.tensors.without_prefix(PREFIXES.get(self.family, "model."))
        self.tensors.rename("LayerNorm.gamma", "LayerNorm.weight")  # of the first version of BERT
        self.tensors.rename("LayerNorm.beta", "LayerNorm.bias")
        return [*rows(self.family, self.settings["n_layers"])]

    def _read(self, table: list[Row], tied: bool) -> None:
        """Read all tensors; of those that are tied, one may be there under the other's name alone."""
        s = self.settings
        theirs = {row.ours[0]: row.theirs for row in table}
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
        if head is None and not tied and "output.weight" in theirs and self.kind != "masked_language_model":
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
        """Refuse a size in `config.json` that its tensor has not."""
        if self.config.get(key, n) != n:
            raise CheckpointError(f"config.json: {key} is {str(self.config[key])[:60]}, and its tensor has {n:,} rows")

    def decoder(self) -> None:
        """Read a GPT-2, or a decoder with rotary positions."""
        s, state, family = self.settings, self.state, self.family
        self._read(self._rows(), self.config.get("tie_word_embeddings", family == "gpt2") is True)
        state = self.state
        if family == "gpt2":
            self._positions_of_gpt2(state.pop("embedding.positions.weight"))
            return
        groups = self.config.get("num_key_value_heads")
        groups, n_heads, d_model = s["n_heads"] if groups is None else groups, s["n_heads"], s["d_model"]
        if type(groups) is not int or not 1 <= groups <= n_heads or n_heads % groups:
            raise CheckpointError(f"config.json: num_key_value_heads {groups!r}: {n_heads} heads cannot share these")
        shape = groups * (s.get("d_head") or max(1, d_model // n_heads)), d_model
        if groups < n_heads:
            self.notes.append(
                f"repeated: the {groups} heads of keys and values, which {n_heads} heads of queries shared"
            )
        for name in [name for name in state if ".k_proj." in name or ".v_proj." in name]:
            expected = shape if name.endswith("weight") else shape[:1]
            if tuple(state[name].shape) != expected:
                raise CheckpointError(
                    f"the tensor of {name} should have shape {expected}, not {tuple(state[name].shape)}"
                )
            by_group = state[name].unflatten(0, (groups, -1))  # (G, E, D), or (G, E) of a bias
            state[name] = by_group.repeat_interleave(n_heads // groups, dim=0).flatten(0, 1)
        linear = [name.removesuffix(".weight") for name in state if name.endswith("_proj.weight")]
        missing = [name for name in linear if f"{name}.bias" not in state]
        s["bias"] = len(missing) < len(linear)
        if s["bias"] and missing:
            note = f"zeros: the biases of {len(missing)} of {len(linear)} linear layers, which have none there"
            self.notes.append(note)
            state |= {f"{name}.bias": torch.zeros(len(state[f"{name}.weight"])) for name in missing}

    def _positions_of_gpt2(self, table: Tensor) -> None:
        """Keep positions that are learned: zeros, or the paper's sinusoids, are what an export writes of others."""
        d_model = self.settings["d_model"]
        if table.dim() != 2 or table.shape[1] != d_model:
            raise CheckpointError(f"the positions wpe.weight should have {d_model:,} columns")
        self._has("n_positions", len(table))
        self.n_positions = self._kept(len(table))
        found = find_positions([table.numpy()], d_model, self.n_positions, any_amplitude=True)
        self.settings["positions"] = found.kind
        self.notes += found.notes
        if found.kind == "learned":
            self.state["embedding.positions.weight"] = table[: self.n_positions].clone()
        elif found.kind == "sinusoidal":
            self.settings["embedding_init_std"] = found.amplitude

    def translator(self) -> None:
        """Read a Marian or a Pegasus."""
        s, family, names = self.settings, self.family, self._rows()
        note = "permuted: the features, so that sine and cosine of a position are neighbours"
        self.notes.append(note)
        for stack in ("encoder", "decoder"):
            self._check_sinusoids(f"{stack}.embed_positions.weight")
        if self.config.get("static_position_embeddings") is False:
            raise UsageError("learned positions of a translator are not read")
        if all(f"{stack}.embed_tokens.weight" in self.tensors for stack in ("encoder", "decoder")):
            self.tensors.leave_out("shared.weight")  # which neither reads
        self._read(names, self.config.get("tie_word_embeddings", True) is not False)
        target = self.state["tgt_embedding.weight"]
        source, head = (self.state.pop(name, target) for name in ("src_embedding.weight", "output.weight"))
        self._has("decoder_vocab_size", len(target))
        s["tie_embeddings"] = torch.equal(source, target) and torch.equal(head, target)
        if not s["tie_embeddings"]:  # one matrix for all three, or three
            self.state |= {"src_embedding.weight": source.clone(), "output.weight": head.clone()}
        bias = self.state.pop("output_bias", torch.zeros(1, len(target)))
        if bias.shape != (1, len(target)):
            raise CheckpointError(f"final_logits_bias should have shape (1, {len(target)}), not {tuple(bias.shape)}")
        bias, pad = bias[0], self.config.get("pad_token_id")
        if family == "marian" and type(pad) is int and 0 <= pad < len(target) and not target[pad].any():
            bias = bias.index_fill(0, torch.tensor([pad]), NEVER_WRITTEN)
            note = "folded: the padding token, whose row is zeros, has a probability of 0, as in Marian itself"
            self.notes.append(f"{note} ({NEVER_WRITTEN:g} in the output bias)")
        self.state = {name: self._in_our_order(name, tensor) for name, tensor in self.state.items()}
        if bias.any():
            s["output_bias"], self.state["output_bias"] = True, bias.clone()

    def _in_our_order(self, name: str, tensor: Tensor) -> Tensor:
        """Return a weight whose features of the residual stream are in our order."""
        d_model, (axis, *_) = self.settings["d_model"], (*residual_axes(name), None)
        if axis is None:
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
            free = s["embedding_init_std"] is not None
            if (
                amplitude > 0
                and (free or amplitude == 1)
                and torch.allclose(table, ours * amplitude, rtol=0, atol=1e-6)
            ):
                s["embedding_init_std"] = amplitude if free else None
                return
        raise UsageError(f"the positions {name} are not sinusoids, and no others are read of this family")

    def encoder(self, labels: Sequence[str] | None) -> None:
        """Read an encoder of texts, with the head that its class has or a new one."""
        s, config, table = self.settings, self.config, self._rows()
        own = own_labels(config) if self.kind in ("classifier", "tagger") else []
        is_new = labels is not None and len(labels) != len(own)
        self.labels = [*labels] if labels is not None else own or None
        if self.labels is not None and (
            len(self.labels) < 2 or len({*self.labels}) < len(self.labels) or not all(self.labels)
        ):
            raise UsageError(f"expected two or more different labels, not {', '.join(self.labels)[:100]!r}")
        pooling, activation = self._pooling(), POOLERS[self.family]
        if is_new:
            self.kind, self.untrained = "new head", ["head.weight", "head.bias"]
            poolers = [row for row in table if row.ours[0].startswith("pooler.")]
            s["pooling"] = pooling or "first"
            if pooling is None and all(row.theirs[0] in self.tensors for row in poolers):
                s["pooler"] = activation
                table = [replace(row, kinds=row.kinds | {self.kind}) if row in poolers else row for row in table]
        elif self.kind == "classifier":
            s |= {"pooling": "first", "pooler": activation}
            self.kind = "multilabel_classifier" if config.get("problem_type") == MULTI_LABEL else "classifier"
        self._read(table, config.get("tie_word_embeddings", True) is not False)
        self.kind = "classifier" if is_new else self.kind
        self._positions_of_encoder()
        if self.kind in ("classifier", "tagger") and not is_new:
            self._fold_two_classes()
        elif self.kind == "masked_language_model" and s["activation"] != "gelu":
            raise UsageError(f"the head of a masked language model has GELU here, and this one {s['activation']}")
        elif self.kind == "text_embedder":
            s["pooling"] = how = pooling or "mean"
            note = f"a bare encoder: a text is the pooling of its vectors, {how}, not divided by its length"
            self.notes.append(note)
        if self.kind != "masked_language_model":
            del s["tie_embeddings"]

    def _positions_of_encoder(self) -> None:
        """Keep the positions of the longest text, and those alone that tokens of a text have."""
        s, table, pad = self.settings, self.state["embedding.positions.weight"], self.config.get("pad_token_id", 1)
        first = (pad if type(pad) is int and 0 <= pad < 100 else 1) + 1 if self.family in ROBERTAS else 0
        n_rows = max(0, len(table) - first) if table.dim() == 2 else 0
        self._has("max_position_embeddings", n_rows + first)
        longest = self.folder.json_if_there(SENTENCES).get("max_seq_length")
        if self.max_len is None and type(longest) is int and 2 < longest < len(table) - 2:
            self.max_len = longest
            note = f"max_seq_length of {SENTENCES} is {longest}; --max-len keeps more, up to all positions"
            self.notes.append(note)
        self.n_positions = self._kept(n_rows)
        self.state["embedding.positions.weight"] = table[first : first + self.n_positions].clone()
        if first:
            self.notes.append(f"left out: the first {first} positions, which no token of a text has")
        if self.n_positions < n_rows:
            self.notes.append(f"left out: the positions from {self.n_positions:,} on, the longest text")
        if "segments.weight" in self.state:
            s["n_segments"] = len(self.state["segments.weight"])
            self._has("type_vocab_size", s["n_segments"])

    def _fold_two_classes(self) -> None:
        """Make one logit of those of two classes, the difference of both."""
        n, weight, bias = len(self.labels or ()), *(self.state.get(f"head.{part}") for part in ("weight", "bias"))
        if weight is None or bias is None or len(bias.shape) != 1 or len(weight) != n or len(bias) != n:
            raise CheckpointError(f"the head of a classifier of {n} classes should have {n} rows, and a bias of each")
        if n == 2:
            self.state |= {"head.weight": weight[1:] - weight[:1], "head.bias": bias[1:] - bias[:1]}
            note = "folded: two classes share one logit, the difference of the two; probabilities are the same"
            self.notes.append(note)

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
            message = f"{name} pools in a way that is not read: {', '.join(chosen)[:100] or 'none'}"
            raise UsageError(message, "the first token, the mean and the maximum are read")
        return POOLING[chosen[0]]

    def registered(self) -> None:
        """Read a class that `hf_class.py` registers: the model as it is, under the prefix `model.`."""
        config, tensors, facts, at_end = self.config, self.tensors, self.facts, self.kind == "translator"
        read_keys(TABLES[OWN] + COMMON, config, "config.json", GENERATION)
        if facts is None:
            raise CheckpointError(f"{self.folder.path} holds no glassformer.json", "export the run again")
        # What the tokenizer of the run holds too; the sizes are made by transformers, to compare.
        keys = {name: tensors.shape(name) for name in tensors.names if name.endswith((".keys", "word_ngrams"))}
        tensors.leave_out(*keys)
        state = {name.removeprefix("model."): tensors.take(name) for name in tensors.names if name.startswith("model.")}
        if facts.kind != "language_model":
            self._has(
                "n_ngrams", max((len(x) for name, x in state.items() if name.endswith("ngrams.weight")), default=0)
            )
            self._has("n_word_ngrams", keys.get("word_ngrams", (0,))[-1])
            self._has("n_bigrams", max((shape[0] for name, shape in keys.items() if name[-5:] == ".keys"), default=0))
        self.n_positions = self._kept(config["max_position_embeddings"] - at_end)
        for name in [name for name in state if name.endswith("embedding.positions.weight")]:
            state[name] = state[name][: self.n_positions + at_end].clone()
        if self.kind == "regressor":  # written in the units of the data
            state = in_scale(state, Decision(), Decision.from_json(facts.decision, None, "glassformer.json"))
        is_labelled = self.kind in ("classifier", "multilabel_classifier", "tagger")
        self.state, self.labels = dict(state), own_labels(config) if is_labelled else None


def registered_kind(config: Mapping[str, Any], facts: ExportFacts | None) -> str:
    """Return the kind of model of a class that `hf_class.py` registers."""
    names, context = config.get("architectures"), config.get("max_position_embeddings")
    problems = {MULTI_LABEL: "multilabel_classifier", "regression": "regressor"}
    pooled = problems.get(str(config.get("problem_type")), "classifier")
    kinds = {name: kind for kind, name in REGISTERED.items() if kind == pooled or kind not in POOLED}
    kind = kinds.get(str(names[0])) if isinstance(names, list) and len(names) == 1 else None
    if kind is None or type(context) is not int or context < 1:
        raise CheckpointError("config.json: architectures or max_position_embeddings are not of a class here")
    if facts is not None and facts.kind != kind:
        raise CheckpointError(f"{FACTS} describes a {facts.kind}, and config.json a {kind}", "copy the folder whole")
    return kind


def registered_settings(config: Mapping[str, Any]) -> Settings:
    """Return the settings of a class that `hf_class.py` registers; they are checked where they are built."""
    settings = config.get("settings")
    if not isinstance(settings, dict):
        raise CheckpointError("config.json: settings should be a table of the model's settings")
    return {**settings, "ensemble_size": config.get("n_members", 1)}


def own_labels(config: Mapping[str, Any]) -> list[str]:
    """Return the classes of a classifier's head.

    Raises:
        UsageError: its answers are no classes.
    """
    kind = config.get("problem_type")
    if kind not in (None, "single_label_classification", MULTI_LABEL):
        raise UsageError(f"a classifier with the problem type {str(kind)[:40]!r} does not choose classes")
    names, n = config.get("id2label"), config.get("num_labels")
    if names is None:
        n = 2 if n is None else n
        names = {str(i): f"LABEL_{i}" for i in range(n if type(n) is int and 0 < n <= MAX_LABELS else 0)}
    if not isinstance(names, dict) or len(names) > MAX_LABELS:
        raise CheckpointError("config.json: id2label should name the classes")
    if n is not None and n != len(names):
        message = f"config.json: num_labels is {str(n)[:60]}, and id2label names {len(names):,} classes"
        raise CheckpointError(message, "correct the one that is wrong")
    found = [names.get(str(i)) for i in range(len(names))]
    if len(found) == 1:
        raise UsageError("a head with one output is a regression, which is not read")
    if not found or not all(isinstance(name, str) for name in found):
        raise CheckpointError("config.json: id2label should name the classes 0, 1, …")
    return [str(name) for name in found]


def sines_first(d_model: int) -> Tensor:
    """Return the order of features in which the sines of our sinusoids come first, then the cosines."""
    return torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])


def residual_axes(name: str) -> tuple[int, ...]:
    """Return the axis of a parameter that holds the features of the residual stream; none of what only reads it."""
    *_, part, kind = ["", *name.split(".")]
    if part in ("q_proj", "k_proj", "v_proj", "up_proj"):
        return (1,) if kind == "weight" else ()
    return (0,) if part in ("o_proj", "down_proj", "norm") else (1,)  # of embeddings and of the output projection
