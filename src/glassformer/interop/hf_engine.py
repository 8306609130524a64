"""Predict with Hugging Face's transformers: an exported folder is compared with its run by this.

Transformers reads far more from that file than sizes: names of modules of Python code, of files elsewhere and of
kernels to download. Here every key and value is checked, and the library is given an object made of these.

The library is given settings and tensors, never the folder: it would read code, pickles and adapters from there. That
it reads the folder alike, as its users have it do, is for the tests.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.config import DecodeConfig
from glassformer.config.recipes import config_from_dict
from glassformer.errors import CheckpointError, UsageError
from glassformer.interop.choose import REGISTERED, Engine, Hypotheses
from glassformer.interop.export_facts import (
    CLASSIFIERS,
    MAX_LENGTH,
    MAX_WEIGHTS,
    POOLED,
    ExportFacts,
    library,
    not_exported,
    tokenizer_of,
)
from glassformer.interop.hf_reader import POOLING
from glassformer.interop.hf_settings import CLASSES
from glassformer.text.special_tokens import SpecialTokens
from glassformer.text.tokenizer import Tokenizer
from glassformer.utils.safe_read import read_bytes, read_json_object

CONFIG = "config.json"
Shapes = Mapping[str, tuple[int, ...]]

_NOT_PASSED = ("model_type", "architectures", "transformers_version", "_name_or_path", "dtype", "id2label", "label2id")
"""Keys that are checked, or that change nothing."""
_SIZES = """vocab_size decoder_vocab_size hidden_size intermediate_size num_attention_heads num_key_value_heads head_dim
    d_model encoder_attention_heads decoder_attention_heads encoder_ffn_dim decoder_ffn_dim n_embd n_inner n_head
    n_ngrams n_word_ngrams n_bigrams type_vocab_size dim hidden_dim n_heads pad_token_id bos_token_id eos_token_id
    decoder_start_token_id forced_eos_token_id""".split()
_LENGTHS = "max_position_embeddings n_positions chunk_size_feed_forward".split()
_COUNTS = "num_hidden_layers encoder_layers decoder_layers n_layer n_layers n_members".split()
"""Numbers of modules, each of which has a tensor at least."""
_NUMBERS = """rms_norm_eps layer_norm_epsilon norm_epsilon attention_dropout embedding_dropout residual_dropout
    activation_dropout dropout resid_pdrop embd_pdrop attn_pdrop encoder_layerdrop decoder_layerdrop initializer_range
    init_std rope_theta pretraining_tp summary_first_dropout
    layer_norm_eps hidden_dropout_prob attention_probs_dropout_prob qa_dropout seq_classif_dropout""".split()
_SWITCHES = """attention_bias mlp_bias use_bias use_cache tie_word_embeddings scale_embedding is_encoder_decoder
    is_decoder share_encoder_decoder_embeddings return_dict output_attentions output_hidden_states scale_attn_weights
    scale_attn_by_inverse_layer_idx reorder_and_upcast_attn add_cross_attention summary_use_proj
    summary_proj_to_labels sinusoidal_pos_embds""".split()
_WORDS = {
    "hidden_act": ("relu", "gelu", "silu", "gelu_new"),
    "activation": ("relu", "gelu", "silu", "gelu_new"),
    "classifier_dropout": (None,),
    "activation_function": ("relu", "gelu", "silu", "gelu_new"),
    "problem_type": ("single_label_classification", "multi_label_classification", "regression", None),
    "dtype": ("float32",),
    "summary_type": ("cls_index",),
    "summary_activation": (None,),
    "sliding_window": (None,),
}
"""Values of settings that are not numbers."""


def read_config(folder: Path, facts: ExportFacts, shapes: Shapes) -> tuple[str, dict[str, Any]]:
    """Return the model type of an exported folder, and the settings of its configuration class.

    `shapes` are those of the tensors that are there, which bound all sizes.

    Raises:
        CheckpointError: a key is unknown, or a value none that an export writes.
    """
    path = folder / CONFIG
    values = read_json_object(path)
    model_type = _model_type(values, facts, path)
    n_weights = sum(map(math.prod, shapes.values()))
    for key, value in values.items():
        if not _is_valid(key, value, n_weights, len(shapes)):
            raise not_exported(f"{path}: {key[:80]} {str(value)[:80]!r} is in no export")
    if facts.kind in CLASSIFIERS and _labels(values) != facts.labels:
        raise not_exported(f"{path}: its labels are not those of the description")
    kinds = {"multi_label_classification": "multilabel_classifier", "regression": "regressor"}
    kind = kinds.get(str(values.get("problem_type")), "classifier")
    if (facts.kind if facts.kind in POOLED else "classifier") != kind:
        raise not_exported(f"{path}: its problem_type is not that of the description")
    settings = {key: value for key, value in values.items() if key not in _NOT_PASSED}
    if model_type == "glassformer":
        try:
            made = config_from_dict({"task": facts.task, "model": values.get("settings")}, str(path)).model
        except UsageError as error:
            raise CheckpointError(error.message, error.hint) from error
        if made.n_layers > len(shapes):
            raise CheckpointError(f"{path}: {made.n_layers} layers, and {len(shapes)} tensors are there")
        settings |= {"settings": asdict(made)}
    settings |= {"num_labels": 1} if facts.kind == "regressor" else {}
    return model_type, settings | ({"num_labels": len(facts.labels)} if facts.labels else {})


def _model_type(values: dict[str, Any], facts: ExportFacts, path: Path) -> str:
    """Return the model type, which has to be that of the description."""
    of_kind = {name: its for name, (its, kind) in CLASSES.items() if kind == facts.kind.removeprefix("multilabel_")}
    of_kind |= {REGISTERED[facts.kind]: "glassformer"} if facts.kind in REGISTERED else {}
    expected = of_kind.get(facts.architecture)
    if expected is None:
        words = facts.kind.replace("_", " ")
        message = f"{path.parent} names the class {facts.architecture[:80]!r} for a {words}"
        raise not_exported(message)
    if values.get("model_type") != expected or values.get("architectures") != [facts.architecture]:
        raise not_exported(f"{path} is not the configuration of a {facts.architecture}")
    return expected


def _is_valid(key: str, value: Any, n_weights: int, n_tensors: int) -> bool:
    if key in ("model_type", "architectures", "transformers_version", "_name_or_path", "settings"):
        return True  # checked elsewhere, or dropped
    if key in ("id2label", "label2id"):
        return isinstance(value, dict)
    if key == "rope_parameters":
        known = isinstance(value, dict) and value.keys() <= {"rope_type", "rope_theta"}
        return known and value.get("rope_type") == "default" and _is_number(value.get("rope_theta"))
    if key in _SIZES:
        return value is None or (type(value) is int and 0 <= value <= n_weights)
    if key in _LENGTHS:
        return type(value) is int and 0 <= value <= MAX_LENGTH
    if key in _COUNTS:
        return type(value) is int and 0 <= value <= n_tensors
    if key in _NUMBERS:
        return _is_number(value)
    if key in _SWITCHES:
        return type(value) is bool
    return key in _WORDS and (value is None or isinstance(value, str)) and value in _WORDS[key]


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1e9


def _labels(values: dict[str, Any]) -> list[Any]:
    names = values.get("id2label") or {}
    return [names.get(str(i)) for i in range(len(names))]


BATCH = 32
WEIGHTS = "model.safetensors"
MAX_UNSAVED = 1 << 24
"""Most numbers that a model has beside those of its file: the sinusoids of its positions."""
PAD, UNK, BOS, EOS, MASK = (Tokenizer.pad_id, Tokenizer.unk_id, Tokenizer.bos_id, Tokenizer.eos_id, Tokenizer.mask_id)


def load_engine(path: Path, facts: ExportFacts, device: str) -> HfEngine:
    """Return the engine of an exported folder.

    Raises:
        CheckpointError: a setting or a tensor is missing, left over or not one of an export.
        UsageError: transformers is not installed.
    """
    transformers = library("an export for hf", "hf", "transformers")
    from glassformer.runs.model_folder import read_shapes, read_tensors

    shapes = read_shapes(path / WEIGHTS, MAX_WEIGHTS)
    model_type, settings = read_config(path, facts, shapes)
    kind = _class_of(transformers, model_type, facts)
    try:
        with quiet(transformers):
            config = kind.config_class(architectures=[facts.architecture], **settings)
            _check_shapes(kind, config, shapes, path / WEIGHTS)
            tensors = read_tensors(read_bytes(path / WEIGHTS, MAX_WEIGHTS), path / WEIGHTS)
            generation = _generation(transformers, path, facts, model_type)
            loaded, info = made_of(kind, config, tensors, generation_config=generation, output_loading_info=True)
    except CheckpointError:
        raise
    except Exception as error:  # the library raises whatever it comes across
        raise not_exported(f"transformers cannot read {path}: {error}") from error
    for what, names in info.items():
        if names:
            raise not_exported(f"{path}: transformers reports {what}: {sorted(names)[:3]}")
    return HfEngine(loaded, device, facts, _pooling(path) if facts.kind == "text_embedder" else "mean")


def _pooling(path: Path) -> str:
    """Return how the states of the tokens become the vector of a text."""
    modes = read_json_object(path / "1_Pooling" / "config.json")
    chosen = [ours for theirs, ours in POOLING.items() if modes.get(theirs) is True]
    if len(chosen) != 1:
        raise not_exported(f"{path / '1_Pooling' / 'config.json'} should name one pooling")
    return chosen[0]


def _class_of(transformers: Any, model_type: str, facts: ExportFacts) -> Any:
    """Return the class of a model, which is one of a table."""
    if model_type == "glassformer":
        return getattr(importlib.import_module("glassformer.interop.hf_class"), facts.architecture)
    return getattr(transformers, facts.architecture)


def _check_shapes(kind: Any, config: Any, shapes: Shapes, where: Path) -> None:
    """Refuse settings that do not describe the tensors that are there, before memory is taken for a model of theirs."""
    import torch

    with torch.device("meta"):
        expected = {name: tuple(tensor.shape) for name, tensor in kind(config).state_dict().items()}
    for name, shape in shapes.items():
        if expected.get(name) != shape:
            message = f"{name[:80]} has shape {shape}, and {expected.get(name)} is expected"
            raise not_exported(f"{where}: {message}")
    n_unsaved = sum(math.prod(shape) for name, shape in expected.items() if name not in shapes)
    if n_unsaved > max(MAX_UNSAVED, sum(math.prod(shape) for shape in shapes.values())):
        raise not_exported(f"{where} lacks {n_unsaved:,} numbers of the model")


def _generation(transformers: Any, path: Path, facts: ExportFacts, model_type: str) -> Any:
    """Return what `generate` keeps to beside its arguments, which hold the settings of decoding."""
    kind = facts.kind
    if kind not in ("translator", "language_model"):
        return None
    if facts.special is not None:
        t = tokenizer_of(path, facts)
        never = [i for i in t.without_text if i != t.eos_id] or None
        eos = t.eos_id if t.eos_id >= 0 else None
        return transformers.GenerationConfig(pad_token_id=t.pad_id, eos_token_id=eos, suppress_tokens=never)
    ids: dict[str, Any] = {"pad_token_id": PAD, "eos_token_id": EOS, "use_cache": model_type != "glassformer"}
    if kind == "language_model":
        ids |= {"bos_token_id": EOS, "suppress_tokens": [PAD, UNK, BOS, MASK]}
    else:
        ids |= {"bos_token_id": BOS, "decoder_start_token_id": BOS, "suppress_tokens": [PAD, BOS]}
    return transformers.GenerationConfig(**ids)


def made_of(kind: Any, config: Any, tensors: Mapping[str, Any], **options: Any) -> Any:
    """Return a model of transformers made of a configuration and tensors alone: no folder, no code, no network."""
    safe = {"dtype": "float32", "trust_remote_code": False, "use_safetensors": True, "local_files_only": True}
    return kind.from_pretrained(None, config=config, state_dict=tensors, **safe, **options)


@contextmanager
def quiet(transformers: Any) -> Iterator[None]:
    """Show no progress bar, and nothing of weights that a form does not use, of the library meanwhile."""
    logging = transformers.utils.logging
    before, shown = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if shown:
            logging.enable_progress_bar()


class HfEngine(Engine):
    """A model of transformers."""

    def __init__(self, model: Any, device: str, facts: ExportFacts | None = None, pooling: str = "mean") -> None:
        import torch

        special = None if facts is None or facts.special is None else SpecialTokens.from_json(facts.special, "facts")
        self._pad, self._mask = (max(0, special.pad), special.mask) if special else (PAD, MASK)
        self._pooling, self._eos = pooling, special.eos if special else EOS

        self._torch = torch
        name = "cuda" if device == "auto" and torch.cuda.is_available() else device.replace("auto", "cpu")
        self.model, self._seed = model.to(name).eval(), None
        self.n_tokens = int(model.config.vocab_size)

    def classify(self, ids: list[int], words: list[str]) -> np.ndarray:
        logits = self._run(
            input_ids=self._tensor([ids or [self._pad]]), attention_mask=self._tensor([[1] * len(ids) or [0]])
        )
        if self.model.config.problem_type == "multi_label_classification":
            return logits[0].double().sigmoid().numpy()
        if self.model.config.problem_type == "regression":
            return logits[0].double().numpy()
        return logits[0].double().softmax(dim=-1).numpy()

    def fill(self, ids: list[int], words: list[str]) -> np.ndarray:
        masked = [i for i, token in enumerate(ids) if token == self._mask]
        return self._run(input_ids=self._tensor([ids]))[0][masked].double().numpy()

    def embed(self, ids: list[int]) -> np.ndarray:
        states = self._run("last_hidden_state", input_ids=self._tensor([ids]))[0].numpy()
        return {"first": states[0], "mean": states.mean(axis=0), "max": states.max(axis=0)}[self._pooling]

    def logits(self, ids: list[int]) -> np.ndarray:
        return self._run(input_ids=self._tensor([ids]))[0].numpy()

    def log_probs(self, source: list[int], target: list[int]) -> np.ndarray:
        inputs = {"input_ids": self._tensor([[*source, EOS]]), "decoder_input_ids": self._tensor([[BOS, *target]])}
        log_probs = self._run(**inputs)[0].log_softmax(dim=-1)
        return log_probs.gather(1, self._torch.tensor([*target, EOS])[:, None])[:, 0].numpy()

    def search(self, sources: Sequence[list[int]], decode: DecodeConfig, limit: int, n_best: int) -> list[Hypotheses]:
        order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
        found: dict[int, Hypotheses] = {}
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            results = self._search_batch([sources[i] for i in batch], decode, limit, n_best)
            found |= dict(zip(batch, results, strict=True))
        return [found[i] for i in range(len(sources))]

    def _search_batch(
        self, sources: Sequence[list[int]], decode: DecodeConfig, limit: int, n_best: int
    ) -> list[Hypotheses]:
        longest, beam = max(map(len, sources)), max(1, decode.beam_size)
        padding = [[PAD] * (longest - len(ids)) for ids in sources]
        result = self.model.generate(
            input_ids=self._tensor([[*ids, EOS, *more] for ids, more in zip(sources, padding, strict=True)]),
            attention_mask=self._tensor([[1] * (len(ids) + 1) + [0] * (longest - len(ids)) for ids in sources]),
            max_length=None,
            max_new_tokens=limit,
            num_beams=beam,
            num_return_sequences=n_best,
            length_penalty=decode.length_penalty,
            do_sample=False,
            output_scores=beam > 1,
            output_logits=beam == 1,
            return_dict_in_generate=True,
        )
        found: list[list[int]] = []
        for row in result.sequences.tolist():
            ids = row[1:]
            found.append(ids[: ids.index(EOS) + 1] if EOS in ids else ids)
        if beam > 1:
            scores = result.sequences_scores.tolist()
        else:
            # Greedy search gives no log-probabilities: its scores are logits, without those of suppressed tokens.
            steps = self.model.compute_transition_scores(result.sequences, result.logits, normalize_logits=True)
            totals = [float(row[: len(ids)].sum()) for row, ids in zip(steps, found, strict=True)]
            scores = [total / len(ids) ** decode.length_penalty for total, ids in zip(totals, found, strict=True)]
        pairs = list(zip(found, scores, strict=True))
        return [pairs[i : i + n_best] for i in range(0, len(pairs), n_best)]

    def generate(
        self, prompts: Sequence[list[int]], decode: DecodeConfig, n_new: int, places: Sequence[tuple[int, int]]
    ) -> list[list[int]]:
        sampled = decode.temperature > 0
        filters: dict[str, Any] = {}
        if sampled:
            filters = {"temperature": decode.temperature, "top_k": decode.top_k, "top_p": decode.top_p}
            filters |= {"min_p": decode.min_p} if decode.min_p > 0 else {}
            if decode.decode_seed != self._seed:
                self._seed = decode.decode_seed
                self._torch.manual_seed(decode.decode_seed)
        ids = self._tensor(prompts)
        rows = self.model.generate(
            input_ids=ids,
            attention_mask=self._torch.ones_like(ids),
            max_length=None,
            max_new_tokens=n_new,
            do_sample=sampled,
            **filters,
        )
        written = rows[:, ids.shape[1] :].tolist()
        return [new[: new.index(self._eos) + 1] if self._eos in new else new for new in written]

    def _run(self, output: str = "logits", **inputs: Any) -> Any:
        mask = self._torch.ones_like(inputs["input_ids"])
        with self._torch.no_grad():
            return getattr(self.model(**({"attention_mask": mask} | inputs)), output).float().cpu()

    def _tensor(self, rows: Sequence[Sequence[int]]) -> Any:
        return self._torch.tensor(list(rows), device=self.model.device)
