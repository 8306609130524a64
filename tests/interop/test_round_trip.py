"""Which library holds what, with refusals that name the setting and what would do; and what an export wrote is imported
again: the same weights, answers and tokenizer, and it can be exported again.
"""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.helpers.exports import FORMS, SIZE, TEXTS, WORDS
from tests.helpers.for_each import for_each
from tests.helpers.pretrained import bert_folder
from tests.interop.test_import_families import CASES, ROBERTA, WRITTEN, classes, roberta, saved
from tests.interop.test_import_refusals import put

import glassformer
from glassformer.config import Config, ModelConfig, TextConfig
from glassformer.config.recipes import load_recipe, recipe_names
from glassformer.errors import CheckpointError, UsageError
from glassformer.interop import transfer
from glassformer.interop.export_facts import FACTS, FILES, TARGETS, choose, hf_family
from glassformer.interop.exported import load_exported
from glassformer.interop.transfer import export
from glassformer.run import Run
from glassformer.tasks import task_class
from glassformer.text.answers import Decision, answer_lines, encode_masked


@for_each("kind", sorted({kind for _, kind in FILES}))
def test_each_form_is_held_or_refused_with_a_setting_and_another_way(kind: str) -> None:
    n_held = 0
    for form in FORMS:
        config = Config(model=ModelConfig(**SIZE, **form), text=TextConfig(tokenizer="byte-bpe"))
        for target in TARGETS:
            try:
                architecture, _ = choose(kind, config, 1, target)
            except UsageError as error:
                assert "\n" not in error.message and "--to " in str(error.hint)
            else:
                assert architecture
                n_held += 1
    assert n_held >= len(FORMS)


RECIPES = {
    "classify": "onnx; ctranslate2 holds no classifier; transformers has no class for this classifier: model.pre_norm",
    "dates": "ctranslate2; transformers has no class for this translator: model.positions rotary",
    "gpt2-124m": "ctranslate2, hf; onnx holds no language model",
    "translate": "ctranslate2, hf; onnx holds no translator",
    "shakespeare": "; no library has embeddings of token n-grams: model.max_ngram 5",
}


@pytest.mark.parametrize("name", recipe_names())
def test_where_the_recipes_can_be_exported_to(name: str) -> None:
    """In one line, with the settings that are in the way elsewhere."""
    config, found, obstacles = load_recipe(name), list[str](), list[str]()
    for target in TARGETS:
        try:
            choose(task_class(config.task).explain_as, config, 1, target)
            found.append(target)
        except UsageError as error:
            obstacles.append(error.message)
    line = "; ".join([", ".join(found), *obstacles])
    assert line.startswith(RECIPES.get(name, line))


@pytest.mark.parametrize(
    ("kind", "config", "n_members", "target", "message"),
    [
        ("classifier", {}, 3, "ctranslate2", "ctranslate2 holds no classifier"),
        ("regressor", {}, 1, "hf", "hf holds no regressor"),
        ("translator", {}, 3, "ctranslate2", "this is an ensemble of 3; export one of them: --member 0"),
        ("translator", {"positions": "rotary"}, 3, "hf", "model.positions rotary; use --to ctranslate2"),
        ("classifier", {"pooling": "first"}, 3, "hf", "for this classifier: model.pre_norm true; use --to onnx"),
        ("pairs", {}, 3, "hf", "hf is not written of a model that reads pairs of texts; use --to onnx"),
        (None, {}, 1, "onnx", "onnx holds no model of the task"),
    ],
    ids=str,
)
def test_refusals(kind: str | None, config: dict[str, Any], n_members: int, target: Any, message: str) -> None:
    """One member of an ensemble is advised where it can be written alone."""
    tokenizer = SimpleNamespace(separator=[3] if kind == "pairs" else [], special=None)
    kind = "classifier" if kind == "pairs" else kind
    with pytest.raises(UsageError) as error:
        choose(kind, Config(model=ModelConfig(**config)), n_members, target, tokenizer)
    assert message in f"{error.value.message}; {error.value.hint}"


PIECES, BYTES = ({"tokenizer": kind, "vocab_size": 300} for kind in ("bpe", "byte-bpe"))
LLAMA = {"activation": "swiglu", "positions": "rotary", "norm": "rms"}
MADE: list[tuple[str, dict[str, Any], Any]] = [
    ("translate hf", {}, {}),
    ("translate hf", {"pre_norm": False, "d_ff": 20}, PIECES),
    ("translate ctranslate2", {}, PIECES),
    ("lm hf", LLAMA, BYTES),
    ("lm hf", {"activation": "gelu"}, {}),
    ("lm ctranslate2", {"norm": "rms"}, {}),
]
"""Task and library, model and tokenizer of runs; of imports, the class, settings and tokenizer of their source."""
OTHERS = [*WRITTEN, *(case[:3] for case in CASES if case[3] == "lm")]
MORE = [
    "<0x41> ▁ 😀",
    "a good [MASK] and c",
    "The film was not good.",
    "naïve café 東京",
    "1 2  3\n",
    "[SEP] </s>",
    "film " * 60,
]
MORE += ["refund [MASK] the goods", "[MASK] goods [MASK]", "fund [MASK] " * 30]


def imported(source: Path, out: Path) -> Run:
    """Return the run of a source, which answers in float32, as exports do."""
    return glassformer.load(glassformer.import_model(source, out).path, precision="fp32")


@pytest.mark.parametrize(
    ("name", "form", "text"), [*MADE, *OTHERS], ids=lambda value: value if value is str(value) else ""
)
def test_a_model_comes_back_with_its_answers_and_goes_out_again_as_it_came_in(
    name: str, form: dict[str, Any], text: Any, make: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, printed: Any
) -> None:
    import transformers

    task, is_made, library = name.partition(" ")
    target: Any = library or "hf"
    if is_made:
        run = make(task, text, **form)
    else:
        saved(name, form, text, tmp_path / "source")
        run = imported(tmp_path / "source", tmp_path / "source-run")
        check = json.loads((tmp_path / "source-run" / "import.json").read_text(encoding="utf-8"))["check"]
        assert check["equal_answers"] == 1.0 and check["largest_difference"] < 3e-5
    first, t = export(run, target, tmp_path / "first"), run.task.tokenizer
    options: dict[str, Any] = {"temperature": 0.0, "max_new_tokens": 30} if run.task.name == "lm" else {}
    texts = [*TEXTS, *MORE]
    answers = run.predict(texts, **options)
    assert first.facts.check is not None and first.facts.check["largest_difference"] < 1e-4, first.not_checked
    if target == "hf":  # the searches of CTranslate2 end by another rule
        assert first.facts.check["equal_answers"] == 1
        assert close(answers, load_exported(first.out).predict(texts, **options))
        shown = printed(first.out)
        assert shown and (task != "translate" or run.predict("a text")["translation"].startswith(shown))
        assert not [*first.out.glob("*.py")] and b"auto_map" not in (first.out / "config.json").read_bytes()
    if not is_made:
        assert first.facts.architecture == classes(name) and "sample texts" in first.check_text()
        assert first.facts.check["n_texts"] > 90 and first.facts.check["texts"] == "sample"
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "first")
        assert theirs.pad_token_id in (t.pad_id, None) and theirs.model_max_length == run.config.text.max_len
    for check in ("check_export", "check_import"):
        monkeypatch.setattr(transfer, check, lambda *_: None)
    again = imported(first.out, tmp_path / "run")
    assert again.task.name == run.task.name and again.task.label_names == run.task.label_names
    assert again.task.tokenizer.kind == t.kind and again.task.tokenizer.sha256 == t.sha256
    assert again.config.decode == run.config.decode and again.config.text.truncate == run.config.text.truncate
    assert again.config.text.max_len == run.config.text.max_len
    if not is_made:  # nothing is folded a second time
        weights = dict(again.model.named_parameters())
        assert weights.keys() == dict(run.model.named_parameters()).keys()
        assert all(torch.equal(tensor, weights[key]) for key, tensor in run.model.named_parameters())
        assert again.config.model == run.config.model
    assert close(answers, again.predict(texts, **options))
    second = export(again, target, tmp_path / "second")
    assert second.facts.architecture == first.facts.architecture
    for file in ("model.safetensors", "model.bin", "tokenizer.json", "config.json", "tokenizer_config.json"):
        if (first.out / file).exists():
            assert (first.out / file).read_bytes() == (second.out / file).read_bytes(), file


def close(ours: Any, theirs: Any) -> bool:
    """Return whether two answers are equal, numbers in them up to rounding."""
    if isinstance(ours, dict):
        return [*ours] == [*theirs] and all(close(value, theirs[key]) for key, value in ours.items())
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(close, ours, theirs))
    return ours == (pytest.approx(theirs, abs=1e-5) if isinstance(ours, float) else theirs)


def test_a_description_of_another_export_is_refused(make: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(transfer, "check_export", lambda *_: "left out")
    for target in ("hf", "ctranslate2"):
        export(make("lm"), target, tmp_path / target)  # pyright: ignore[reportArgumentType]
    (tmp_path / "hf" / FACTS).write_bytes((tmp_path / "ctranslate2" / FACTS).read_bytes())
    with pytest.raises(CheckpointError, match="language_model for ctranslate2"):
        glassformer.import_model(tmp_path / "hf", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_mask_of_another_library_is_found_in_a_text(tmp_path: Path) -> None:
    import transformers

    saved("RobertaForMaskedLM", ROBERTA, roberta, tmp_path / "source")
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


@pytest.mark.parametrize("form", ["classify", "masked", "bare", "pretrain"])
def test_a_graph_answers_as_the_run(form: str, make: Any, tmp_path: Path, printed: Any) -> None:
    """The lines of its card read the folder with onnxruntime, numpy and tokenizers alone, and print that answer."""
    if form == "pretrain":
        run = make(form, WORDS)
    else:
        run = imported(bert_folder(tmp_path / "source", form, n_labels=2), tmp_path / "run")
    done = export(run, "onnx", tmp_path / "out")
    assert done.facts.kind == run.task.explain_as and done.facts.check is not None
    assert done.facts.check["equal_answers"] == 1 and done.facts.check["largest_difference"] < 3e-5
    exported = load_exported(tmp_path / "out")
    for ours, theirs in zip(run.predict([*TEXTS, *MORE]), exported.predict([*TEXTS, *MORE]), strict=True):
        assert close(ours, theirs)
        assert close(answer_lines(ours), answer_lines(theirs)) or form == "bare"
    shown = "" if form == "pretrain" else printed(tmp_path / "out")
    if form == "classify":
        assert shown == run.predict("a text")["label"]
    if form == "bare":
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
    assert glassformer.load(tmp_path / "out").predict(MORE) == run.predict(MORE)
    shown = printed(tmp_path / "out")
    if decision.thresholds:
        assert set(ast.literal_eval(shown)) == set(run.predict("a text")["labels"])
