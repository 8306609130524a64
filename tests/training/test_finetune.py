"""Fine-tuning: frozen layers keep their weights in every kind of training, and a new head starts from a probe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.helpers.for_each import for_each
from tests.helpers.pretrained import bert_folder
from tests.helpers.small_runs import SMALL, Killed, kill_at, write_table
from tests.interop.test_import_refusals import folder_of, put

import glassformer
from glassformer.errors import UsageError
from glassformer.interop import transfer
from glassformer.tasks.heads import fit_layer
from glassformer.tasks.settings import suggest_from_pretrained

SIZED = {name: value for name, value in SMALL.items() if name not in ("model", "text")} | {"ensemble_size": 1}
"""Settings without sizes, which are those of the pretrained run."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained classifier of two layers."""
    folder = tmp_path_factory.mktemp("base")
    settings = SMALL | {"steps": 1, "train_file": write_table(folder), "model": SMALL["model"] | {"n_layers": 2}}
    glassformer.train("classify", out=folder / "run", **settings)
    return folder


@pytest.fixture(autouse=True)
def _not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """No import is compared with its library."""
    monkeypatch.setattr(transfer, "check_import", lambda *_: None)


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    """An imported encoder without a head."""
    glassformer.import_model(bert_folder(tmp_path / "source", "bare"), tmp_path / "encoder")
    return tmp_path / "encoder"


def texts(folder: Path, labels: tuple[str, ...]) -> Path:
    words = ("good", "not", "1")
    kinds, path = [i % len(labels) for i in range(60)], folder / f"{len(labels)}.csv"
    rows = [f"{' '.join([words[k]] * 3)} film{' a' * (i % 4)},{labels[k]}" for i, k in enumerate(kinds)]
    path.write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    return path


@for_each(
    ("n", "options"), [(2, {"optimizer": "muon", "ema_decay": 0.5}), (1, {"adversarial": 0.1, "ensemble_size": 2})]
)
def test_frozen_layers_keep_their_weights_also_where_a_run_is_resumed(
    n: int, options: dict[str, Any], base: Path, tmp_path_factory: Any
) -> None:
    out = tmp_path_factory.mktemp("frozen")
    settings: Any = SIZED | {"steps": 3, "lr": 0.05, "save_every": 2, "train_file": str(base / "table.csv")}
    settings |= {"frozen_layers": n, "init_from": str(base / "run")} | options
    before = dict(glassformer.load(base / "run").model.named_parameters())
    run = glassformer.train("classify", out=out / "run", **settings)
    with pytest.raises(Killed):
        glassformer.train("classify", out=out / "cut", on_step=kill_at(3), **settings)
    resumed = dict(glassformer.resume(out / "cut").model.named_parameters())
    kept = ("embedding.", "ngrams.", "bigrams.", *(f"encoder.layers.{i}." for i in range(n)))
    kept += ("encoder.norm.",) if n == 2 else ()
    for full_name, parameter in run.model.named_parameters():
        name = full_name.split(".", 2)[-1] if full_name.startswith("members.") else full_name
        assert torch.equal(parameter, before[name]) == name.startswith(kept), full_name
        assert torch.equal(parameter, resumed[full_name])


@for_each("labels", [("pos", "neg"), ("x", "y", "z")])
def test_a_new_head_starts_from_a_probe(labels: tuple[str, ...], encoder: Path, tmp_path: Path) -> None:
    data = texts(tmp_path, labels)
    settings: dict[str, Any] = {"train_file": str(data), "steps": 1, "lr": 1e-9, "threads": 1, "frozen_layers": 2}
    run = glassformer.train("classify", out=tmp_path / f"tuned-{len(labels)}", init_from=str(encoder), **settings)
    rows = [line.rsplit(",", 1) for line in data.read_text(encoding="utf-8").splitlines()[1:]]
    answers = run.predict([text for text, _ in rows])
    assert np.mean([a["label"] == label for a, (_, label) in zip(answers, rows, strict=True)]) > 0.9


def test_steps_that_make_a_probe_worse_are_not_kept(encoder: Path, tmp_path: Path) -> None:
    """The weights before the first step count as validated, also where the run is cut and resumed."""
    data = str(texts(tmp_path, ("x", "y", "z")))
    settings: dict[str, Any] = {"train_file": data, "valid_file": data, "epochs": 4.0, "lr": 1.0, "warmup": 0.0}
    settings |= {"validate_min_steps": 1, "save_every": 1, "threads": 1}
    whole = glassformer.train("classify", out=tmp_path / "whole", init_from=str(encoder), **settings)
    with pytest.raises(Killed):
        glassformer.train("classify", out=tmp_path / "cut", init_from=str(encoder), on_step=kill_at(2), **settings)
    source = dict(glassformer.load(encoder).model.named_parameters())
    for run in (whole, glassformer.resume(tmp_path / "cut")):
        kept = [(name, p) for name, p in run.model.named_parameters() if name in source]
        assert kept and all(torch.equal(p, source[name]) for name, p in kept)
    report = (tmp_path / "whole" / "report.md").read_text(encoding="utf-8")
    assert "“frozen encoder + linear model” does as well or better" in report
    assert "Kept: the weights before the first step" in report


@for_each("names", [["pos", "neg"], ["no", "yes"]])
def test_a_head_is_taken_in_the_order_of_the_classes_if_they_are_the_same(
    names: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """With other classes it is new, also if there are as many; the classes of the data are sorted."""
    folder, classes = tmp_path_factory.mktemp("head"), ("neg", "pos")
    change = put(".id2label", {str(i): name for i, name in enumerate(names)})
    run = glassformer.import_model(bert_folder(folder / "s", n_labels=2, change=change), folder / "run")
    settings: dict[str, Any] = {"train_file": str(texts(folder, classes)), "steps": 1, "lr": 1e-12, "threads": 1}
    tuned = glassformer.train("classify", out=folder / "tuned", init_from=str(run.path), **settings)
    assert tuned.task.label_names == [*classes]
    before, after = (run.predict("The film was not good.")["probabilities"] for run in (run, tuned))
    if names == ["pos", "neg"]:
        assert after == pytest.approx(before, abs=1e-4)
        assert tuned.config.model.pooler == "tanh" and tuned.config.model.pooling == "first"
    else:
        assert sorted(after.values()) != pytest.approx(sorted(before.values()), abs=0.01)


def test_a_run_that_another_kind_of_model_begins_says_what_is_random(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A language model has no [MASK], and no encoder."""
    tokenizer = folder_of("llama", tmp_path / "source") / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text(encoding="utf-8").replace("<mask>", "m"), encoding="utf-8")
    begin = str(glassformer.import_model(tmp_path / "source", tmp_path / "llama").path)
    settings: dict[str, Any] = {"init_from": begin, "steps": 1, "threads": 1}
    data: Any = {"train_file": str(texts(tmp_path, ("pos", "neg")))}
    run = glassformer.train("classify", out=tmp_path / "run", **settings | data)
    assert run is not None and run.config.train.word_mask_prob == 0.0
    assert "begin at random" in caplog.text and "a language model, has none like them" in caplog.text
    assert not any(message.startswith("probe ") for message in caplog.messages)
    with pytest.raises(UsageError, match=r"no mask token for train\.word_mask_prob") as refused:
        glassformer.train("classify", out=tmp_path / "masks", word_mask_prob=0.1, **settings | data)
    assert refused.value.hint == "use word_mask_prob=0"
    (tmp_path / "texts.txt").write_text("abc\ndef\n" * 20)
    with pytest.raises(UsageError, match="no mask token, which the task pretrain needs"):
        glassformer.train("pretrain", out=tmp_path / "mlm", train_file=str(tmp_path / "texts.txt"), **settings)


def test_documents_of_a_tokenizer_without_an_end_token_follow_each_other(tmp_path: Path) -> None:
    source = folder_of("llama", tmp_path / "source", put(".eos_token_id", None)) / "tokenizer.json"
    source.write_text(source.read_text(encoding="utf-8").replace("</s>", "m"), encoding="utf-8")
    base = glassformer.import_model(tmp_path / "source", tmp_path / "llama")
    assert base.task.tokenizer.eos_id == -1
    (tmp_path / "texts").mkdir()
    for name in "abcdef":
        (tmp_path / "texts" / f"{name}.txt").write_text("abcdefghij" * 20, encoding="utf-8")
    settings: dict[str, Any] = {"train_file": str(tmp_path / "texts"), "steps": 1, "threads": 1}
    run = glassformer.train("lm", out=tmp_path / "run", init_from=str(base.path), **settings)
    assert run is not None


def test_seeds_are_begun_from_and_an_ensemble_names_its_size(base: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = SIZED | {"train_file": str(base / "table.csv"), "steps": 1}
    settings["init_from"] = str(base / "run")
    glassformer.train("classify", out=tmp_path / "seeds", seeds=2, **settings)
    glassformer.train("classify", out=tmp_path / "two", **settings | {"ensemble_size": 2})
    glassformer.dry_run("classify", **settings | {"init_from": str(tmp_path / "seeds")})
    with pytest.raises(UsageError, match="it is an ensemble of 2") as refused:
        glassformer.train("classify", out=tmp_path / "one", **settings | {"init_from": str(tmp_path / "two")})
    assert refused.value.hint == "use ensemble_size=2"


def test_few_texts_are_no_reason_to_expect_guessing_of_a_pretrained_model(
    encoder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What a hint names can be done: tokenizer and positions are those of the pretrained model."""
    path = tmp_path / "long.csv"
    rows = [f"{'zebra quux ' * 20}{i},{'ab'[i % 2]}" for i in range(20)]
    path.write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    glassformer.dry_run("classify", train_file=str(path), init_from=str(encoder), epochs=1, threads=1)
    warned = "\n".join(record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    assert "what the pretrained model brings counts for most" in warned and "may be far lower" not in warned
    assert "unknown to the model" in warned and "begin with a model of such texts" in warned
    assert f"the longest text is that of {encoder}" in warned
    assert "--text.max-len" not in warned and "--text.tokenizer" not in warned
    assert "--text.truncate" not in warned  # the recipe keeps head and tail already
    caplog.clear()
    glassformer.dry_run("classify", train_file=str(path), init_from=str(encoder), truncate="head", epochs=1, threads=1)
    assert f"the longest text is that of {encoder}, or --text.truncate head+tail" in caplog.text


def test_a_probe_is_the_same_in_any_unit_of_the_vectors() -> None:
    generator = np.random.default_rng(1)
    labels = np.arange(60) % 3
    vectors = generator.normal(size=(60, 5)) + np.eye(5)[labels] * 3
    for factor in (1.0, 1e-3, 1e3):
        weight, bias = fit_layer(vectors * factor + 7, labels)
        assert weight.shape == (3, 5) and bias.shape == (3,)
        right = ((vectors * factor + 7) @ weight.T + bias).argmax(axis=1) == labels
        assert right.mean() > 0.9


def test_settings_for_a_pretrained_start_follow_the_number_of_texts() -> None:
    few, some, many = (suggest_from_pretrained(n, 3) for n in (100, 3000, 100_000))
    assert some["adversarial"] == 0 < suggest_from_pretrained(3000, 2)["adversarial"]
    assert few["epochs"] > some["epochs"] > many["epochs"] >= 3
    assert few["batch_size"] < many["batch_size"]
