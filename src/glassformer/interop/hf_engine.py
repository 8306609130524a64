"""Predict with Hugging Face's transformers: an exported folder is compared with its run by this.

The library is given settings and tensors, never the folder: it would read code, pickles and adapters from there. That
it reads the folder alike, as its users have it do, is for the tests.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.config import DecodeConfig
from glassformer.errors import CheckpointError, UsageError
from glassformer.interop.choose import HF_CLASSES
from glassformer.interop.engine import Engine, Hypotheses
from glassformer.interop.export_facts import MAX_WEIGHTS, ExportFacts
from glassformer.interop.hf_config import Shapes, read_config
from glassformer.text.tokenizer import Tokenizer
from glassformer.utils.safe_read import read_bytes

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
    try:
        import transformers
    except ImportError as error:
        hint = 'install it: pip install "glassformer[hf]"'
        raise UsageError("an export for hf needs the package transformers", hint) from error
    from glassformer.runs.tensor_file import read_shapes, read_tensors

    shapes = read_shapes(path / WEIGHTS, MAX_WEIGHTS)
    model_type, settings = read_config(path, facts, shapes)
    kind = _class_of(transformers, model_type, facts)
    try:
        with _quiet(transformers.utils.logging):
            config = kind.config_class(architectures=[facts.architecture], **settings)
            _check_shapes(kind, config, shapes, path / WEIGHTS)
            tensors = read_tensors(read_bytes(path / WEIGHTS, MAX_WEIGHTS), path / WEIGHTS)
            loaded, info = kind.from_pretrained(
                None,
                config=config,
                state_dict=tensors,
                generation_config=_generation(transformers, facts.kind, model_type),
                dtype="float32",
                output_loading_info=True,
                trust_remote_code=False,
                use_safetensors=True,
                local_files_only=True,
            )
    except CheckpointError:
        raise
    except Exception as error:  # the library raises whatever it comes across
        raise CheckpointError(f"transformers cannot read {path}: {error}", "export the run again") from error
    for what, names in info.items():
        if names:
            raise CheckpointError(f"{path}: transformers reports {what}: {sorted(names)[:3]}", "export the run again")
    return HfEngine(loaded, device)


def _class_of(transformers: Any, model_type: str, facts: ExportFacts) -> Any:
    """Return the class of a model, which is one of a table."""
    if model_type == "glassformer":
        return getattr(importlib.import_module("glassformer.interop.hf_class"), facts.architecture)
    return getattr(transformers, HF_CLASSES[model_type])


def _check_shapes(kind: Any, config: Any, shapes: Shapes, where: Path) -> None:
    """Refuse settings that do not describe the tensors that are there, before memory is taken for a model of theirs."""
    import torch

    with torch.device("meta"):
        expected = {name: tuple(tensor.shape) for name, tensor in kind(config).state_dict().items()}
    for name, shape in shapes.items():
        if expected.get(name) != shape:
            message = f"{name[:80]} has shape {shape}, and {expected.get(name)} is expected"
            raise CheckpointError(f"{where}: {message}", "export the run again")
    n_unsaved = sum(int(np.prod(shape, dtype=object)) for name, shape in expected.items() if name not in shapes)
    if n_unsaved > max(MAX_UNSAVED, sum(int(np.prod(shape, dtype=object)) for shape in shapes.values())):
        raise CheckpointError(f"{where} lacks {n_unsaved:,} numbers of the model", "export the run again")


def _generation(transformers: Any, kind: str, model_type: str) -> Any:
    """Return what `generate` keeps to beside its arguments, which hold the settings of decoding."""
    if kind not in ("translator", "language_model"):
        return None
    ids: dict[str, Any] = {"pad_token_id": PAD, "eos_token_id": EOS, "use_cache": model_type != "glassformer"}
    if kind == "language_model":
        ids |= {"bos_token_id": EOS, "suppress_tokens": [PAD, UNK, BOS, MASK]}
    else:
        ids |= {"bos_token_id": BOS, "decoder_start_token_id": BOS, "suppress_tokens": [PAD, BOS]}
    return transformers.GenerationConfig(**ids)


@contextmanager
def _quiet(logging: Any) -> Iterator[None]:
    """Show no progress bar of the library meanwhile."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


class HfEngine(Engine):
    """A model of transformers.

    Args:
        model: the model.
        device: "auto", "cpu" or "cuda".
    """

    def __init__(self, model: Any, device: str) -> None:
        import torch

        self._torch = torch
        name = "cuda" if device == "auto" and torch.cuda.is_available() else device.replace("auto", "cpu")
        self.model, self._seed = model.to(name).eval(), None
        self.n_tokens = int(model.config.vocab_size)

    def classify(self, ids: list[int], words: list[str]) -> np.ndarray:
        logits = self._run(input_ids=self._tensor([ids or [PAD]]), attention_mask=self._tensor([[1] * len(ids) or [0]]))
        return logits[0].double().softmax(dim=-1).numpy()

    def fill(self, ids: list[int], words: list[str]) -> np.ndarray:
        masked = [i for i, token in enumerate(ids) if token == MASK]
        return self._run(input_ids=self._tensor([ids]))[0][masked].double().numpy()

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
        return [new[: new.index(EOS) + 1] if EOS in new else new for new in written]

    def _run(self, **inputs: Any) -> Any:
        mask = self._torch.ones_like(inputs["input_ids"])
        with self._torch.no_grad():
            return self.model(**({"attention_mask": mask} | inputs)).logits.float().cpu()

    def _tensor(self, rows: Sequence[Sequence[int]]) -> Any:
        return self._torch.tensor(list(rows), device=self.model.device)
