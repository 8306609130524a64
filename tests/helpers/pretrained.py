"""Folders of small random pretrained models, written without their library."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor

from glassformer.runs.model_folder import tensor_chunks

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"a ##b the film was not good . ##s , an 1".split()]
D, F, L, POSITIONS = 24, 40, 2, 32
CONFIG: dict[str, Any] = {
    "model_type": "bert",
    "num_hidden_layers": L,
    "hidden_size": D,
    "num_attention_heads": 3,
    "intermediate_size": F,
    "max_position_embeddings": POSITIONS,
    "vocab_size": len(WORDS),
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "hidden_dropout_prob": 0.1,
    "pad_token_id": 0,
}


def wordpiece(folder: Path) -> None:
    """Write the tokenizer of a BERT, which pads and cuts by itself, as real ones do."""
    backend = Tokenizer(models.WordPiece({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    backend.add_special_tokens(WORDS[:5])
    backend.enable_padding(length=16)
    backend.enable_truncation(8)
    backend.save(str(folder / "tokenizer.json"))


def byte_level(folder: Path, special: list[str]) -> None:
    """Write a byte-level tokenizer, as GPT-2 and, with five special tokens, RoBERTa have."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=270, special_tokens=special, initial_alphabet=letters, show_progress=False)
    backend.train_from_iterator(["the film was not good. "] * 5, trainer)
    ends = processors.RobertaProcessing(("</s>", 2), ("<s>", 0)) if len(special) > 1 else processors.ByteLevel()
    backend.post_processor = ends
    backend.save(str(folder / "tokenizer.json"))


def bert_tensors(form: str = "classify", prefix: str = "bert.", n_labels: int = 3) -> dict[str, Tensor]:
    """Return the tensors of a BERT: a classifier, a masked language model ("masked") or a bare encoder ("bare")."""
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator) * 0.3 + (0.5 if len(shape) == 1 else 0.0)

    def layer_of(name: str, rows: int, *columns: int) -> dict[str, Tensor]:
        """A linear layer, or without columns a norm."""
        return {f"{name}.weight": drawn(rows, *columns), f"{name}.bias": drawn(rows)}

    found = {
        "embeddings.position_ids": torch.arange(POSITIONS)[None],
        "embeddings.word_embeddings.weight": drawn(len(WORDS), D),
        "embeddings.position_embeddings.weight": drawn(POSITIONS, D),
        "embeddings.token_type_embeddings.weight": drawn(2, D),
        **layer_of("embeddings.LayerNorm", D),
    }
    for i in range(L):
        layer = f"encoder.layer.{i}."
        for name in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            found |= layer_of(layer + name, D, D)
        found |= layer_of(f"{layer}attention.output.LayerNorm", D) | layer_of(f"{layer}output.LayerNorm", D)
        found |= layer_of(f"{layer}intermediate.dense", F, D) | layer_of(f"{layer}output.dense", D, F)
    found |= layer_of("pooler.dense", D, D)
    found = {prefix + name: tensor for name, tensor in found.items()}
    if form == "classify":
        found |= layer_of("classifier", n_labels, D)
    if form == "masked":
        head = "cls.predictions"
        found |= layer_of(f"{head}.transform.dense", D, D) | layer_of(f"{head}.transform.LayerNorm", D)
        found[f"{head}.bias"] = drawn(len(WORDS))
    return found


def bert_folder(
    folder: Path,
    form: str = "classify",
    change: Callable[[dict[str, Tensor], dict[str, Any]], object] = lambda tensors, config: None,
    n_labels: int = 3,
) -> Path:
    """Write the folder of a BERT; `change` may change the tensors and the configuration before."""
    folder.mkdir(parents=True)
    tensors = bert_tensors(form, "" if form == "bare" else "bert.", n_labels)
    heads = {"classify": "ForSequenceClassification", "masked": "ForMaskedLM", "bare": "Model"}
    config = CONFIG | {"architectures": [f"Bert{heads[form]}"]}
    config["id2label"] = {str(i): f"class {i}" for i in range(n_labels)}
    change(tensors, config)
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    (folder / "model.safetensors").write_bytes(b"".join(tensor_chunks(tensors)))
    wordpiece(folder)
    return folder


def sentence_encoder(folder: Path, pooling: dict[str, Any], *more: str) -> Path:
    """Make of the folder of a bare encoder one of sentence-transformers, with more modules after the pooling."""
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling"), *((f"{i}_{kind}", kind) for i, kind in enumerate(more, 2))]
    modules = [{"idx": i, "path": p, "type": f"sentence_transformers.models.{k}"} for i, (p, k) in enumerate(kinds)]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling/config.json").write_text(json.dumps(pooling))
    return folder


def put_keys(path: Path, **values: Any) -> None:
    """Set keys of a file of JSON, which is made where it is not there."""
    content = json.loads(path.read_text("utf-8")) if path.exists() else {}
    path.write_text(json.dumps(content | values), "utf-8")
