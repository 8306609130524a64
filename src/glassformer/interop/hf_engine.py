"""The numbers of a model of Hugging Face's transformers, to compare with ours; answers are always computed here.

Transformers reads far more from a folder than sizes and tensors: names of Python code, of files elsewhere and of
kernels to download. It is given a configuration of the values that were read, checked tensors, and for its tokenizer
a folder of checked files alone. That it reads the folder alike, as its users have it do, is for the tests.
"""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glassformer.errors import CheckpointError
from glassformer.interop.choose import CLASSES_OF
from glassformer.interop.engine import Engine, library
from glassformer.interop.hf_reader import NEVER_WRITTEN, SEQ2SEQ
from glassformer.interop.hf_settings import passed_on
from glassformer.interop.source_folder import SourceFolder
from glassformer.runs.folder import TOKENIZER
from glassformer.tasks import Task

logger = logging.getLogger(__name__)


def load_theirs(folder: Path, task: Task, model: Any, hashes: Mapping[str, str] | None = None) -> HfEngine:
    """Return the engine of a folder that was read as `model`; `hashes` are those of its files then.

    Raises:
        CheckpointError: a file was changed since.
        UsageError: transformers is not installed.
    """
    transformers, source = library("a comparison with transformers", "hf", "transformers"), SourceFolder(folder)
    config, tensors = source.json("config.json"), {n.removeprefix("module."): t for n, t in source.weights().items()}
    if hashes is not None and not source.hashes.items() <= hashes.items():
        raise CheckpointError(f"{folder} was changed since it was read", "import it again")
    family, kind = config["model_type"], str(task.explain_as)
    settings = passed_on(family, config)
    if model.config.positions == "rotary":
        settings["rope_parameters"] = {"rope_type": "default", "rope_theta": model.config.rope_base}
    if family in SEQ2SEQ:  # whose table of positions is computed number by number
        tables = [tensor for name, tensor in tensors.items() if name.endswith("embed_positions.weight")]
        settings["max_position_embeddings"] = len(tables[0]) if tables else model.max_len + 1
    settings |= {"vocab_size": task.tokenizer.vocab_size, "num_labels": len(task.label_names or ()) or 2}
    form = getattr(transformers, CLASSES_OF[family, kind.removeprefix("multilabel_")])
    safe = {"trust_remote_code": False, "use_safetensors": True, "local_files_only": True}
    with quiet(transformers):
        made = transformers.AutoConfig.for_model(family, **settings)
        theirs = form.from_pretrained(
            None, config=made, state_dict=tensors, dtype="float32", attn_implementation="eager", **safe
        )
    return HfEngine(theirs.eval(), task, model)


def compare_tokens(task: Task, source: SourceFolder, family: str, texts: Sequence[str]) -> None:
    """Warn where transformers cuts a text into other tokens."""
    transformers, t = library("a comparison with transformers", "hf", "transformers"), task.tokenizer
    ours = [t.framed(t.encode(text)) for text in texts]
    ours = [t.with_end(ids) for ids in ours] if task.explain_as == "translator" else ours
    try:
        with tempfile.TemporaryDirectory() as folder, quiet(transformers):
            for name in (TOKENIZER, "tokenizer_config.json", "special_tokens_map.json"):
                if source.has(name):
                    (Path(folder) / name).write_bytes(source.bytes(name, "tokenizer"))
            (Path(folder) / "config.json").write_text(json.dumps({"model_type": family}), encoding="utf-8")
            safe = {"trust_remote_code": False, "local_files_only": True}
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **safe)
            others = [tokenizer(text)["input_ids"] for text in texts]
    except Exception as error:  # of a tokenizer that needs a package more
        logger.warning(f"its tokens are not compared with transformers, which cannot read them: {str(error)[:100]}")
        return
    if odd := next((text for text, a, b in zip(texts, ours, others, strict=True) if a != b), None):
        logger.warning(f"transformers cuts texts into other tokens, such as {odd!r}: its tokenizer_config.json decides")


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
    """A model of transformers with the tokens of a task; it writes nothing: what ours writes is compared by token."""

    def __init__(self, model: Any, task: Task, ours: Any) -> None:
        self.model, self._t, self._kind, self._pooling = model, task.tokenizer, task.explain_as, ours.config.pooling
        bias = getattr(ours, "output_bias", None) if self._kind == "translator" else None
        # A token that Marian has only for padding is never written here.
        self._never = [] if bias is None else (bias < NEVER_WRITTEN / 2).nonzero().flatten().tolist()

    def outputs(self, ids: list[int], words: Sequence[str] = ()) -> np.ndarray:
        if self._kind != "text_embedder":
            pad = [max(0, self._t.pad_id)]
            return self._run(input_ids=[ids or pad], attention_mask=[[1] * len(ids) or [0]]).numpy()
        states = self._run("last_hidden_state", input_ids=[ids]).numpy()
        return {"first": states[0], "mean": states.mean(axis=0), "max": states.max(axis=0)}[self._pooling]

    def log_probs(self, source: list[int], target: list[int]) -> np.ndarray:
        """Return the log-probabilities of all tokens after each one of a translation, (T + 1, V)."""
        t = self._t
        logits = self._run(input_ids=[t.with_end(source)], decoder_input_ids=[[t.bos_id, *target]])
        logits[:, self._never] = -torch.inf
        return logits.log_softmax(dim=-1).numpy()

    def _run(self, output: str = "logits", **rows: list[list[int]]) -> torch.Tensor:
        inputs = {name: torch.tensor(ids) for name, ids in rows.items()}
        mask = torch.ones_like(inputs["input_ids"])
        with torch.no_grad():
            return getattr(self.model(**({"attention_mask": mask} | inputs)), output)[0].float()
