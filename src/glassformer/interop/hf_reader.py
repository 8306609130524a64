"""A Hugging Face folder as an `ImportedModel`: encoders like BERT, decoders like GPT-2 and Llama, and translators."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from glassformer.config import DecodeConfig, ModelConfig
from glassformer.config.validation import build
from glassformer.errors import CheckpointError, UsageError
from glassformer.interop.export_facts import ExportFacts, decode_of
from glassformer.interop.hf_decoders import DECODERS, decoder_settings, decoder_state
from glassformer.interop.hf_families import (
    ENCODERS,
    MASKED_HEADS,
    POOLERS,
    ROBERTAS,
    classifier_head,
    encoder_settings,
    encoder_state,
    gpt2_settings,
    gpt2_state,
    masked_head,
    number,
)
from glassformer.interop.hf_seq2seq import SEQ2SEQ, seq2seq_settings, seq2seq_state
from glassformer.interop.hf_tokenizer import read_tokenizer
from glassformer.interop.imported import ImportedModel, ImportSource
from glassformer.interop.marian_tokenizer import has_marian_tokenizer, read_marian_tokenizer
from glassformer.interop.own_export import own_facts, own_tokenizer, registered_parts, registered_settings
from glassformer.interop.source_folder import SourceFolder, SourceTensors
from glassformer.tasks.restoring import MAX_POSITIONS
from glassformer.text.decision import Decision
from glassformer.training.finetune import in_scale

OWN = "glassformer"
"""The model type of the classes that `hf_class.py` registers."""
FAMILIES = (*ENCODERS, "gpt2", *DECODERS, *SEQ2SEQ, OWN)
POOLING = {"pooling_mode_cls_token": "first", "pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max"}
"""Keys of the pooling of sentence-transformers, by our names."""
SENTENCES = "sentence_bert_config.json"
"""What sentence-transformers writes beside an encoder."""
MAX_LABELS = 100_000
MOST_TOKENS = 1_000_000
"""Longest text, that of `TextConfig.max_len`."""


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
    family, facts = _family(config), own_facts(folder, "hf")
    if labels and family not in ENCODERS:
        raise UsageError(f"a model of the family {family} is read without other classes", "leave out --labels")
    settings = _settings(family, config)
    build(ModelConfig, settings, "model", "config.json")  # bounds of the sizes, before anything is read
    tensors = folder.tensors()
    n_layers = settings.get("n_layers", ModelConfig().n_layers)
    if n_layers > len(tensors.names):
        raise CheckpointError(f"config.json names {n_layers:,} layers, and there are {len(tensors.names):,} tensors")
    if family in ENCODERS:
        parts = _Encoder(folder, family, config, settings, tensors).read(labels, max_len)
    elif family == OWN:
        parts = _read_registered(config, facts, settings, tensors, max_len)
    elif family in SEQ2SEQ:
        parts = _read_seq2seq(family, config, settings, tensors, max_len)
    else:
        parts = _read_decoder(family, config, settings, tensors, max_len)
    tensors.finish()
    _check_longest(parts, settings.get("d_model", ModelConfig().d_model))
    n_ids = len(parts.state.get("embedding.weight", parts.state.get("tgt_embedding.weight", ())))
    if facts:
        tokenizer = own_tokenizer(folder, facts)
    elif family == "marian" and has_marian_tokenizer(folder):
        tokenizer = read_marian_tokenizer(folder, config, n_ids)
    else:
        tokenizer = read_tokenizer(folder, config, n_ids)
    return ImportedModel(
        task=parts.task,
        model=build(ModelConfig, settings, "model", "config.json"),
        tokenizer=tokenizer,
        max_len=parts.max_len,
        state=parts.state,
        source=_source(folder, family, config),
        labels=parts.labels,
        notes=tuple(parts.notes),
        untrained=tuple(parts.untrained),
        decode=decode_of(facts) if facts else _decode(folder, config),
        truncate=facts.truncate if facts else "head",  # pyright: ignore[reportArgumentType]
        decision=Decision.from_json(facts.decision, parts.labels, "glassformer.json") if facts else Decision(),
    )


def _family(config: Mapping[str, Any]) -> str:
    """Return the family that a `config.json` names; refuse what is not read."""
    family = config.get("model_type")
    if "auto_map" in config:
        raise UsageError("config.json names code of its own (auto_map), and no code of a folder is run")
    if "quantization_config" in config:
        raise UsageError("the weights are quantized (quantization_config), and integers are not read")
    if family not in FAMILIES:
        message = f"config.json names the model type {str(family)[:60]!r}, which is not read"
        raise UsageError(message, f"there are {', '.join(FAMILIES)}")
    return str(family)


def _source(folder: SourceFolder, family: str, config: Mapping[str, Any]) -> ImportSource:
    """Return where the model came from; licence and base model as its card says."""
    facts = folder.card_facts()
    base = facts.get("base_model") or str(config.get("_name_or_path", ""))
    base = base if re.fullmatch(r"[\w.-]{1,96}/[\w.-]{1,96}", base) else ""
    return ImportSource("transformers", family, folder.name(), folder.hashes, "", facts.get("license", ""), base)


@dataclass
class _Parts:
    """What a model of a family becomes."""

    task: str
    state: dict[str, Tensor]
    notes: list[str]
    max_len: int
    labels: list[str] | None = None
    untrained: list[str] = field(default_factory=list)


def _settings(family: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a `config.json` gives."""
    if family in ENCODERS:
        return encoder_settings(family, config)
    if family == "gpt2":
        return gpt2_settings(config)
    if family in SEQ2SEQ:
        return seq2seq_settings(family, config)
    return registered_settings(config) if family == OWN else decoder_settings(family, config)


def _read_decoder(
    family: str, config: Mapping[str, Any], settings: dict[str, Any], tensors: SourceTensors, max_len: int | None
) -> _Parts:
    if family == "gpt2":
        tensors.without_prefix("transformer.")
        state, notes, context = gpt2_state(settings, tensors, max_len)
        return _Parts("lm", state, notes, context)
    tensors.without_prefix("model.")
    state, notes = decoder_state(family, settings, tensors, config)
    return _Parts("lm", state, notes, _shortened(number(config, "max_position_embeddings"), max_len))


def _read_seq2seq(
    family: str, config: Mapping[str, Any], settings: dict[str, Any], tensors: SourceTensors, max_len: int | None
) -> _Parts:
    state, notes = seq2seq_state(family, settings, tensors, config)
    # A position is that of the end of a source, or of the start of a translation.
    positions = number(config, "max_position_embeddings") - 1
    return _Parts("translate", state, notes, _shortened(positions, max_len))


def _read_registered(
    config: Mapping[str, Any],
    facts: ExportFacts | None,
    settings: dict[str, Any],
    tensors: SourceTensors,
    max_len: int | None,
) -> _Parts:
    task, state, context = registered_parts(config, facts, tensors)
    for name in [name for name in state if name.endswith("embedding.positions.weight")]:
        n = _shortened(len(state[name]) - (task == "translate"), max_len) + (task == "translate")
        state[name] = state[name][:n].clone()
    if task == "regress" and facts is not None:  # written in the units of the data
        state = in_scale(state, Decision(), Decision.from_json(facts.decision, None, "glassformer.json"))
    labels = own_labels(config) if task in ("classify", "multilabel", "tag") else None
    return _Parts(task, state, [], _shortened(context, max_len), labels)


def _decode(folder: SourceFolder, config: Mapping[str, Any]) -> DecodeConfig:
    """Return the beam that a folder names; the usual settings of decoding otherwise."""
    named = {**config, **folder.json_if_there("generation_config.json")}
    keys = {"beam_size": "num_beams", "length_penalty": "length_penalty"}
    given = {ours: named[theirs] for ours, theirs in keys.items() if named.get(theirs) is not None}
    return build(DecodeConfig, given, "decode", "generation_config.json")


def _check_longest(parts: _Parts, d_model: int) -> None:
    """Refuse texts for which the positions alone would take more memory than any model of this size.

    Raises:
        UsageError: `max_position_embeddings` is too large.
    """
    n_weights = sum(tensor.numel() for tensor in parts.state.values())
    most = min(MOST_TOKENS, max(MAX_POSITIONS, n_weights) // d_model)
    if parts.max_len > most:
        message = f"config.json names {parts.max_len:,} positions, and {most:,} is the limit for a model of this size"
        raise UsageError(message, f"use --max-len {most} or less")


def _shortened(positions: int, max_len: int | None) -> int:
    """Return the longest text: `max_len`, which is at most the positions that a model was trained with."""
    if max_len is not None and not 1 <= max_len <= positions:
        raise UsageError(f"max_len should be from 1 to {positions:,}, the positions of the model, not {max_len:,}")
    return positions if max_len is None else max_len


MULTI_LABEL = "multi_label_classification"
"""The `problem_type` of texts that may have several labels."""


class _Encoder:
    """An encoder in one of its forms: classifier, masked language model, bare encoder."""

    def __init__(
        self,
        folder: SourceFolder,
        family: str,
        config: Mapping[str, Any],
        settings: dict[str, Any],
        tensors: SourceTensors,
    ) -> None:
        self.folder, self.family, self.config = folder, family, config
        self.settings, self.tensors = settings, tensors
        tensors.rename("LayerNorm.gamma", "LayerNorm.weight")  # of the first version of BERT
        tensors.rename("LayerNorm.beta", "LayerNorm.bias")
        tensors.without_prefix(ENCODERS[family].prefix)

    def read(self, labels: Sequence[str] | None, max_len: int | None) -> _Parts:
        """Return the weights of the form that the tensors and the labels make it."""
        family, tensors, settings = self.family, self.tensors, self.settings
        pad = self.config.get("pad_token_id", 1)
        first = (pad if type(pad) is int and 0 <= pad < 100 else 1) + 1 if family in ROBERTAS else 0
        own_length = self._max_seq_length() if max_len is None else None
        state, notes = encoder_state(family, settings, tensors, first, own_length or max_len)
        if own_length:
            notes.append(f"max_seq_length of {SENTENCES} is {own_length}; --max-len keeps more, up to all positions")
        parts = _Parts("embed", state, notes, len(state["embedding.positions.weight"]))
        classifier, masked = f"{POOLERS[family][1]}.weight", f"{MASKED_HEADS[family][0]}.weight"
        own = own_labels(self.config) if classifier in tensors else None
        if own and (labels is None or len(labels) == len(own)):
            self._classifier(parts, list(labels or own), trained=True)
        elif labels is not None:
            self._classifier(parts, list(labels), trained=False)
        elif masked in tensors:
            head, more = masked_head(family, settings, tensors, state["embedding.weight"])
            parts.task, parts.notes = "pretrain", notes + more
            state.update(head)
        else:
            self.settings["pooling"] = self._pooling() or "mean"
            how = self.settings["pooling"]
            notes.append(f"a bare encoder: a text is the pooling of its vectors, {how}, not divided by its length")
        self._leave_out_heads(parts)
        return parts

    def _classifier(self, parts: _Parts, labels: list[str], trained: bool) -> None:
        """Add the head of a classifier: that of the source, or one to be trained."""
        if len(labels) < 2 or len({*labels}) < len(labels) or not all(labels):
            raise UsageError(f"expected two or more different labels, not {', '.join(labels)[:100]!r}")
        pooler, _, activation = POOLERS[self.family]
        several = trained and self.config.get("problem_type") == MULTI_LABEL
        parts.task, parts.labels = "multilabel" if several else "classify", labels
        pooling = self._pooling()
        if trained:
            self.settings |= {"pooling": "first", "pooler": activation}
            head, notes = classifier_head(self.family, self.tensors, len(labels), several)
            parts.state |= head
            parts.notes += notes
            return
        self.settings["pooling"] = pooling or "first"
        parts.untrained += ["head.weight", "head.bias"]
        if pooling is None and f"{pooler}.weight" in self.tensors:
            self.settings["pooler"] = activation
            for part in ("weight", "bias"):
                parts.state[f"pooler.dense.{part}"] = self.tensors.take(f"{pooler}.{part}")

    def _leave_out_heads(self, parts: _Parts) -> None:
        """Leave out the heads and poolers that the chosen form has no use for."""
        dense, head, _ = POOLERS[self.family]
        masked = [name for name in MASKED_HEADS[self.family][:3] if name]
        starts = [f"{name}." for name in (dense, head, "pooler.dense", "cls.seq_relationship", *masked)]
        if names := self.tensors.leave_out(*starts):
            heads = sorted({name.rpartition(".")[0] for name in names})
            parts.notes.append(f"left out, since this form has no use for it: {', '.join(heads)}")

    def _max_seq_length(self) -> int | None:
        """Return the longest text that a sentence encoder was used with; None where it says none, or too much."""
        longest = self.folder.json_if_there(SENTENCES).get("max_seq_length")
        known = self.config.get("max_position_embeddings")
        positions = known if type(known) is int else MOST_TOKENS
        return longest if type(longest) is int and 2 < longest < positions - 2 else None

    def _pooling(self) -> str | None:
        """Return the pooling that `1_Pooling` of a sentence encoder names; None where there is none.

        Raises:
            UsageError: it is of another kind.
        """
        if not self.folder.has("1_Pooling"):
            return None
        config = self.folder.json("1_Pooling/config.json")
        chosen = [key for key, value in config.items() if key.startswith("pooling_mode_") and value is True]
        if isinstance(name := config.get("pooling_mode"), str):  # as newer versions write it
            chosen.append(f"pooling_mode_{name}_tokens" if name != "cls" else "pooling_mode_cls_token")
        if len(chosen) != 1 or chosen[0] not in POOLING:
            message = f"1_Pooling pools in a way that is not read: {', '.join(chosen)[:100] or 'none'}"
            raise UsageError(message, "the first token, the mean and the maximum are read")
        return POOLING[chosen[0]]


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
