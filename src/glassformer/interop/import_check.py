"""Compare an imported model with the library that it came from, state by state, where that is installed."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.errors import CheckpointError
from glassformer.interop.hf_engine import MAX_UNSAVED, made_of, quiet
from glassformer.interop.hf_reader import NEVER_WRITTEN, ROBERTAS, SEQ2SEQ, sines_first
from glassformer.interop.hf_settings import ACTIVATIONS
from glassformer.interop.imported import ImportCheck, ImportedModel
from glassformer.interop.sample_texts import TEXTS, random_ids
from glassformer.interop.source_folder import SourceFolder
from glassformer.models.encoder_models import label_logits
from glassformer.nn.embeddings import TokenEmbedding
from glassformer.nn.layers import Decoder, Encoder
from glassformer.tasks import Task

logger = logging.getLogger(__name__)

N_RANDOM = 4
TOLERANCE = 1e-3
"""Largest difference, relative to the largest value, that rounding explains."""
_COMMON = "vocab_size max_position_embeddings pad_token_id tie_word_embeddings"
_BLOCKS = f"{_COMMON} hidden_size num_hidden_layers num_attention_heads intermediate_size hidden_act"
_BERT = f"{_BLOCKS} type_vocab_size layer_norm_eps"
_LLAMA = f"{_BLOCKS} num_key_value_heads head_dim rope_theta"
_MARIAN = f"""{_COMMON} d_model activation_function scale_embedding decoder_vocab_size share_encoder_decoder_embeddings
    encoder_layers encoder_attention_heads encoder_ffn_dim decoder_layers decoder_attention_heads decoder_ffn_dim"""
SETTINGS = {
    **dict.fromkeys(("bert", *ROBERTAS), _BERT),
    "distilbert": f"{_COMMON} n_layers dim n_heads hidden_dim activation",
    "gpt2": """vocab_size n_positions pad_token_id tie_word_embeddings
        n_layer n_embd n_head n_inner activation_function layer_norm_epsilon""",
    "llama": f"{_LLAMA} rms_norm_eps attention_bias mlp_bias",
    "arcee": f"{_LLAMA} rms_norm_eps attention_bias mlp_bias",
    "starcoder2": f"{_LLAMA} norm_epsilon use_bias",
    **dict.fromkeys(SEQ2SEQ, _MARIAN),
    "glassformer": _COMMON,
}
"""Keys of a `config.json` that their model is made with, by family; no other is passed on."""


def check_import(imported: ImportedModel, task: Task, model: nn.Module, folder: Path) -> ImportCheck | None:
    """Return the comparison with the source library; None where it is not installed, or cannot read the folder."""
    if imported.source.library == "ctranslate2":
        from glassformer.interop.ctranslate2_check import check_with_ctranslate2

        return check_with_ctranslate2(task, model, folder)
    if imported.source.library != "transformers":
        return None
    try:
        transformers = importlib.import_module("transformers")
    except ImportError:
        return None
    samples = list(_samples(task))
    try:
        with quiet(transformers):
            theirs = _load(transformers, imported, folder, max(map(len, samples)) + 1)
    except Exception as error:  # the library has errors of its own
        logger.warning(f"not compared with transformers, which cannot hold this model: {str(error)[:200]}")
        return None
    differences: dict[str, float] = {}
    # Of a classifier the logits are compared up to a constant, since two classes share one logit here.
    answers = (lambda x: x.log_softmax(dim=-1)) if imported.task == "classify" else (lambda x: x)
    equal, n = 0, len(samples)
    for ids in samples:
        rows = [torch.tensor([ids])]
        if imported.task == "translate":  # any target will do: the source, begun as a translation is
            start = [task.tokenizer.bos_id, *ids][: task.config.text.max_len + 1]
            rows = [torch.tensor([task.tokenizer.with_end(ids)]), torch.tensor([start])]
        ours, answer = _our_states(model, rows)
        if imported.task == "multilabel":  # yes or no to each label
            ours["logits"] = label_logits(model, ours["logits"])
            answer = answer.argmax(dim=-1)
        found, their_answer = _their_states(theirs, rows, imported.source.family)
        for place, value in ours.items():
            if (other := found.get(place)) is None:
                continue
            if place == "logits":
                # A token that Marian has only for padding is never written here.
                comparable = value > NEVER_WRITTEN / 2
                value, other = answers(value.where(comparable, 0.0)), answers(other.where(comparable, 0.0))
            difference = float((value - other).abs().max())
            differences[place] = max(differences.get(place, 0.0), difference)
        if imported.task == "multilabel" and their_answer is not None:
            equal += bool((answer == (their_answer > 0)).all())
        else:
            equal += _same_answer(answer, their_answer)
    largest = max(differences.values(), default=0.0)
    if largest > TOLERANCE:
        logger.warning(f"the model differs from that of transformers by {largest:.1e}")
    return ImportCheck(f"transformers {transformers.__version__}", n, differences, equal / n)


def _samples(task: Task) -> Iterator[list[int]]:
    """Yield ids of texts: of sentences, and at random from the vocabulary."""
    t, max_len = task.tokenizer, task.config.text.max_len
    texts = [ids for ids in t.encode_batch(list(TEXTS)) if ids]
    for ids in [*texts, *random_ids(t, N_RANDOM)]:
        yield t.framed(ids[: t.room(max_len)])


def _load(transformers: Any, imported: ImportedModel, folder: Path, longest: int) -> Any:
    """Return their model, made of checked settings and tensors; it has positions for `longest` tokens at least.

    It is never given the folder, whose files could name code and kernels to load, and sizes without a limit.
    """
    kinds = {
        "classify": "AutoModelForSequenceClassification",
        "multilabel": "AutoModelForSequenceClassification",
        "regress": "AutoModelForSequenceClassification",
        "tag": "AutoModelForTokenClassification",
        "pretrain": "AutoModelForMaskedLM",
        "lm": "AutoModelForCausalLM",
        "translate": "AutoModelForSeq2SeqLM",
    }
    if imported.source.family == "glassformer":
        importlib.import_module("glassformer.interop.hf_class")
    source = SourceFolder(folder)
    settings, tensors = _settings(imported, source.json("config.json")), source.weights()
    if not source.hashes.items() <= imported.source.files.items():
        raise CheckpointError(f"{folder} was changed since it was read", "import it again")
    if imported.source.family in SEQ2SEQ:  # whose table of positions is computed number by number
        tables = [tensor for name, tensor in tensors.items() if name.endswith("embed_positions.weight")]
        settings["max_position_embeddings"] = len(tables[0]) if tables else longest
    config = transformers.AutoConfig.for_model(imported.source.family, **settings)
    auto = getattr(transformers, "AutoModel" if imported.untrained else kinds.get(imported.task, "AutoModel"))
    with torch.device("meta"):
        empty = auto.from_config(config, attn_implementation="eager")
    n_theirs = sum(tensor.numel() for tensor in (*empty.parameters(), *empty.buffers()))
    # What is tied in the file may be there twice, and a pooler or sinusoids are not in every file.
    if n_theirs > MAX_UNSAVED + 2 * sum(tensor.numel() for tensor in tensors.values()):
        raise CheckpointError(f"its config.json describes {n_theirs:,} numbers, far more than there are")
    return made_of(type(empty), config, tensors, attn_implementation="eager").eval()


def _settings(imported: ImportedModel, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a `config.json` that numbers of the model depend on: numbers, switches, activations."""
    family = imported.source.family
    found = {key: config[key] for key in SETTINGS[family].split() if key in config}
    found = {key: value for key, value in found.items() if _is_plain(value) or value in [*ACTIVATIONS]}
    if imported.model.positions == "rotary":
        found["rope_parameters"] = {"rope_type": "default", "rope_theta": imported.model.rope_base}
    if family == "glassformer":
        found["settings"] = asdict(imported.model)
    if imported.labels and not imported.untrained:
        found["num_labels"] = len(imported.labels)
    problems = {"multilabel": "multi_label_classification", "regress": "regression"}
    return found | {"problem_type": problems.get(imported.task)}


def _is_plain(value: Any) -> bool:
    return value is None or type(value) in (int, float, bool)


def _our_states(model: nn.Module, rows: Sequence[Tensor]) -> tuple[dict[str, Tensor], Tensor]:
    """Return the embedding, the output of each layer, and the logits, by place; and the answer."""
    found: dict[str, Tensor] = {}

    def keep(place: str) -> Any:
        return lambda module, args, output: found.__setitem__(place, output.detach())

    handles = []
    for name, stack in model.named_modules():
        if isinstance(stack, TokenEmbedding):
            handles.append(stack.register_forward_hook(keep(name)))
        if isinstance(stack, Encoder | Decoder):
            layers = list(stack.layers)
            for i, layer in enumerate(layers):
                # The last state there is that after the final norm.
                last = i == len(layers) - 1
                handles.append((stack if last else layer).register_forward_hook(keep(f"{name}.{i}")))
    try:
        with torch.no_grad():
            output = model(*rows)
    finally:
        for handle in handles:
            handle.remove()
    return found | {"logits": output.detach()}, output.detach()


def _their_states(model: Any, rows: Sequence[Tensor], family: str) -> tuple[dict[str, Tensor], Tensor | None]:
    """Return their states by our places, and the answer; a registered class has no states but logits."""
    more = {"decoder_input_ids": rows[1]} if len(rows) > 1 else {}
    with torch.no_grad():
        output = model(input_ids=rows[0], attention_mask=torch.ones_like(rows[0]), output_hidden_states=True, **more)
    found, logits = dict[str, Tensor](), getattr(output, "logits", None)
    for key, stack, embedding in (
        ("hidden_states", "", "embedding"),
        ("encoder_hidden_states", "encoder", "src_embedding"),
        ("decoder_hidden_states", "decoder", "tgt_embedding"),
    ):
        states = list(getattr(output, key, None) or [])
        if states and family in SEQ2SEQ:  # with all sines first
            order = sines_first(states[0].shape[-1]).argsort()
            states = [state[..., order] for state in states]
        names = [stack] if stack else ["encoder", "decoder"]
        for i, state in enumerate(states):
            found |= {(f"{name}.{i - 1}" if i else embedding): state for name in names}
    return found | ({} if logits is None else {"logits": logits}), logits


def _same_answer(ours: Tensor | None, theirs: Tensor | None) -> bool:
    if ours is None or theirs is None or ours.shape[-1] != theirs.shape[-1]:
        return True
    return bool((ours.argmax(dim=-1) == theirs.argmax(dim=-1)).all())
