"""Encoders of other libraries are taken away again: imported, exported, imported, with equal weights and answers."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.helpers.for_each import for_each
from tests.helpers.pretrained import bert_folder
from tests.interop.test_import_families import CASES, WRITTEN, classes, roberta, saved
from tests.interop.test_import_refusals import put
from tests.interop.test_round_trip import close

import glassformer
from glassformer.config import ModelConfig
from glassformer.interop.export_facts import hf_family
from glassformer.interop.exported import load_exported
from glassformer.interop.transfer import export
from glassformer.run import Run
from glassformer.text.answers import Decision, answer_lines, encode_masked

SETTINGS = {case[0]: case[1] for case in CASES}
TEXTS = [
    "The film was not good.",
    "naïve café 東京 😀",
    "1 2  3\n",
    "",
    "a [MASK] film",
    "[SEP] </s> [PAD]",
    "film " * 60,
]


def imported(source: Path, out: Path, **options: Any) -> Run:
    """Return the run of a source, which answers in float32, as exports do."""
    return glassformer.load(glassformer.import_model(source, out, **options).path, precision="fp32")


LEAVING = [*WRITTEN, *(case[:3] for case in CASES if case[3] == "lm")]


@pytest.mark.parametrize(("name", "settings", "write"), LEAVING, ids=lambda value: value if value is str(value) else "")
def test_an_import_goes_out_as_it_came_in(
    name: str, settings: dict[str, Any], write: Callable[[Path], None], tmp_path: Path, printed: Any
) -> None:
    import transformers

    saved(name, settings, write, tmp_path / "source")
    run = imported(tmp_path / "source", tmp_path / "run")
    check = json.loads((tmp_path / "run" / "import.json").read_text(encoding="utf-8"))["check"]
    assert check["equal_answers"] == 1.0 and check["largest_difference"] < 3e-5
    done, ours = export(run, "hf", tmp_path / "out"), run.task.tokenizer
    assert done.facts.architecture == classes(name)
    assert done.facts.check is not None, done.not_checked
    assert done.facts.check["n_texts"] > 90 and done.facts.check["texts"] == "sample"
    assert done.facts.check["equal_answers"] == 1 and done.facts.check["largest_difference"] < 1e-4
    assert "sample texts" in done.check_text()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.pad_token_id in (ours.pad_id, None) and tokenizer.model_max_length == run.config.text.max_len
    again = imported(tmp_path / "out", tmp_path / "again")
    assert again.task.name == run.task.name and again.task.label_names == run.task.label_names
    assert again.config.model == run.config.model and again.config.text == run.config.text
    assert again.task.tokenizer.sha256 == ours.sha256
    weights = dict(again.model.named_parameters())
    assert weights.keys() == dict(run.model.named_parameters()).keys()
    assert all(torch.equal(tensor, weights[key]) for key, tensor in run.model.named_parameters())
    options: dict[str, Any] = {"temperature": 0.0, "max_new_tokens": 8} if run.task.name == "lm" else {}
    answers = run.predict(TEXTS, **options)
    assert again.predict(TEXTS, **options) == answers
    export(again, "hf", tmp_path / "second")
    for file in ("model.safetensors", "tokenizer.json", "config.json", "tokenizer_config.json"):
        assert (tmp_path / "out" / file).read_bytes() == (tmp_path / "second" / file).read_bytes(), file
    same = zip(answers, glassformer.load(tmp_path / "out").predict(TEXTS, **options), strict=True)
    assert all(a.keys() == b.keys() and all(a.get(key) == b.get(key) for key in ("label", "text")) for a, b in same)
    assert printed(tmp_path / "out")


def test_the_mask_of_another_library_is_found_in_a_text(tmp_path: Path) -> None:
    import transformers

    saved("RobertaForMaskedLM", SETTINGS["RobertaForMaskedLM"], roberta, tmp_path / "source")
    file = tmp_path / "source/tokenizer.json"
    content = json.loads(file.read_bytes())
    content["added_tokens"][4]["lstrip"] = True  # as those of RoBERTa take the space before it
    file.write_text(json.dumps(content))
    run = imported(tmp_path / "source", tmp_path / "run")
    export(run, "hf", tmp_path / "out")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    t = run.task.tokenizer
    assert tokenizer.mask_token == "<mask>" and tokenizer.mask_token_id == t.mask_id
    for text in ("the [MASK] was", "film[MASK] good", "[MASK] the film", "a [MASK] [MASK], not"):
        ids = t.framed(encode_masked(t, text)[0])
        assert tokenizer(text.replace("[MASK]", "<mask>"))["input_ids"] == ids


FORMS = [("classify", "classifier"), ("masked", "masked_language_model"), ("bare", "text_embedder")]


@pytest.mark.parametrize(("form", "kind"), FORMS, ids=str)
def test_a_graph_answers_as_the_run(form: str, kind: str, tmp_path: Path, printed: Any) -> None:
    """The lines of its card read the folder with onnxruntime, numpy and tokenizers alone, and print that answer."""
    source = bert_folder(tmp_path / "source", form, n_labels=2)
    run = imported(source, tmp_path / "run")
    done = export(run, "onnx", tmp_path / "out")
    assert done.facts.kind == kind and done.facts.check is not None
    assert done.facts.check["equal_answers"] == 1 and done.facts.check["largest_difference"] < 3e-5
    exported = load_exported(tmp_path / "out")
    for ours, theirs in zip(run.predict(TEXTS), exported.predict(TEXTS), strict=True):
        assert ours.keys() == theirs.keys()
        assert close(ours, theirs)
        assert close(answer_lines(ours), answer_lines(theirs)) or kind == "text_embedder"
    shown = printed(tmp_path / "out")
    if kind == "classifier":
        assert shown == run.predict("a text")["label"]
    if kind == "text_embedder":
        numbers = [float(x) for x in shown.replace("[", " ").replace("]", " ").split()]
        assert numbers == pytest.approx(run.predict("a text")["vector"], abs=1e-4)


BLOCK = ModelConfig(
    pre_norm=False, positions="learned", embedding_norm=True, activation="gelu", embedding_init_std=1.0, norm_eps=1e-12
)


@for_each(
    ("kind", "changes", "obstacle"),
    [
        ("tagger", {"pre_norm": True}, "model.pre_norm true"),
        ("tagger", {"norm": "rms"}, "model.norm rms"),
        ("tagger", {"positions": "rotary"}, "model.positions rotary"),
        ("tagger", {"bias": False}, "model.bias false"),
        ("tagger", {"activation": "swiglu"}, "model.activation swiglu"),
        ("tagger", {"embedding_init_std": None}, "model.embedding_init_std none"),
        ("tagger", {"d_head": 7}, "model.d_head 7"),
        ("masked_language_model", {"activation": "relu"}, "model.activation relu"),
        ("classifier", {}, "model.pooling mean"),
        ("classifier", {"pooling": "first"}, "model.pooler none"),
        ("classifier", {"pooling": "first", "pooler": "relu", "n_segments": 2}, "model.n_segments 2"),
    ],
)
def test_the_setting_in_the_way_is_named(kind: str, changes: dict[str, Any], obstacle: str) -> None:
    assert hf_family(kind, replace(BLOCK, **changes))[1].startswith(obstacle)
    assert hf_family("tagger", BLOCK) == ("distilbert", "")
    assert hf_family("tagger", replace(BLOCK, norm_eps=None)) == ("bert", "")


@pytest.mark.parametrize(
    ("problem", "decision"),
    [
        ("single_label_classification", Decision(temperature=1.5)),
        ("multi_label_classification", Decision(thresholds=[0.99, 0.01, 0.5])),
    ],
)
def test_thresholds_and_temperature_go_out_and_come_back(
    problem: str, decision: Decision, tmp_path: Path, printed: Any
) -> None:
    """Also the lines of the card answer by the thresholds."""
    run = imported(bert_folder(tmp_path / "source", change=put(".problem_type", problem)), tmp_path / "run")
    run.task.decision = decision
    export(run, "hf", tmp_path / "out")
    assert imported(tmp_path / "out", tmp_path / "again").task.decision == decision
    assert glassformer.load(tmp_path / "out").predict(TEXTS) == run.predict(TEXTS)
    shown = printed(tmp_path / "out")
    if decision.thresholds:
        assert set(ast.literal_eval(shown)) == set(run.predict("a text")["labels"])
