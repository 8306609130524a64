"""The probability of each token of a translation: that of a forward pass over the translation, however it was found."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from tests.helpers.small import small

import glassformer
from glassformer.cli.main import main
from glassformer.config import DecodeConfig
from glassformer.data.splits import Split
from glassformer.errors import UsageError
from glassformer.interop.exported import ExportedModel
from glassformer.models.ensemble import evaluation_mode
from glassformer.tasks.translate import Translate
from glassformer.text.answers import token_probabilities
from glassformer.text.decision import AnswerRule, Decision

TEXTS = ["one red house", "", "two blue houses and a dog", "red", "a dog sees a dog", "zwölf"]
WORDS = ["one", "two", "red", "blue", "house", "dog", "a"]
TINY: dict[str, Any] = {
    "threads": 1,
    "precision": "fp32",
    "epochs": 8,
    "lr": 0.01,
    "max_tokens": 512,
    "vocab_size": 300,
    "model": {"d_model": 16, "n_heads": 2, "d_ff": 16, "n_layers": 1, "dropout": 0.0},
    "text": {"max_len": 40},
}


@pytest.fixture(scope="module", params=["byte-bpe", "char"])
def trained(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp(request.param)
    rng = np.random.default_rng(0)
    lines = [" ".join(rng.choice(WORDS, size=rng.integers(1, 6))) for _ in range(90)]
    (folder / "a.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "b.txt").write_text("\n".join(line.upper() for line in lines) + "\n", encoding="utf-8")
    text = {"tokenizer": request.param, **TINY["text"]}
    members = {"ensemble_size": 2 if request.param == "char" else 1}
    options = TINY | {"text": text, "model": TINY["model"] | members}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLASSFORMER_CACHE", str(folder / "cache"))
        glassformer.train(
            "translate", out=folder / "run", src_file=folder / "a.txt", tgt_file=folder / "b.txt", **options
        )
        yield folder / "run"


def forced(run: Any, text: str, ids: list[int]) -> list[float]:
    """Return the log-probability of each of the ids in one forward pass over all of them."""
    t = run.task.tokenizer
    source = torch.tensor([t.with_end(t.encode(text))])
    with evaluation_mode(run.model):
        logits = run.model(source, torch.tensor([[t.bos_id, *ids[:-1]]]), None)[0]
    return logits.double().log_softmax(dim=-1)[torch.arange(len(ids)), ids].tolist()


WAYS = [
    {"beam_size": 1},
    {"beam_size": 4, "n_best": 3},
    {"beam_size": 3, "max_new_tokens": 4},
    {"sample": True, "n_best": 2, "temperature": 0.7},
]


@pytest.mark.parametrize("way", WAYS, ids=["greedy", "beam", "cut", "sample"])
def test_it_is_that_of_a_forward_pass_over_the_output(trained: Path, way: dict[str, Any]) -> None:
    run = glassformer.load(trained, device="cpu")
    plain = run.predict(TEXTS, **way)
    answers = run.predict(TEXTS, token_probabilities=True, **way)
    alone = [run.predict(text, token_probabilities=True, **way) for text in TEXTS if not way.get("sample")]
    t, decode = run.task.tokenizer, DecodeConfig(**way)
    sources = [t.with_end(t.encode(text)) if text else [] for text in TEXTS]
    found = cast(Translate, run.task)._translate(run.model, sources, decode)
    for text, was, answer, hypotheses in zip(TEXTS, plain, answers, found, strict=True):
        assert {key: answer[key] for key in was if key != "n_best"} == {k: v for k, v in was.items() if k != "n_best"}
        assert not any("tokens" in row for row in answer.get("n_best", ())), "the first translation alone has them"
        for row, hypothesis in ((answer, hypotheses[0]),):
            ids = [*hypothesis.ids, t.eos_id] if hypothesis.finished else hypothesis.ids
            if not text:
                assert (row["tokens"], row["mean_probability"]) == ([], 1.0)
                continue
            expected = forced(run, text, ids)
            assert [token["token"] for token in row["tokens"]] == t.tokens(ids)
            assert [token["probability"] for token in row["tokens"]] == pytest.approx(np.exp(expected), abs=1e-4)
            assert row["mean_log_probability"] == pytest.approx(sum(expected) / len(ids), abs=1e-4)
            assert row["mean_probability"] == pytest.approx(math.exp(row["mean_log_probability"]))
            assert sum(hypothesis.token_log_probs) == pytest.approx(hypothesis.log_prob, abs=1e-4)
    for together, answer in zip(answers, alone, strict=bool(alone)):
        assert answer["translation"] == together["translation"]
        assert answer["mean_log_probability"] == pytest.approx(together["mean_log_probability"], abs=1e-4)


def test_the_mean_is_over_the_tokens_and_the_end(trained: Path) -> None:
    t = glassformer.load(trained, device="cpu").task.tokenizer
    ids = t.encode("RED häuser")
    log_probs = [-0.1 * (i + 1) for i in range(len(ids) + 1)]
    found = token_probabilities(t, ids, log_probs)
    assert len(found["tokens"]) == len(ids) + 1 and found["mean_log_probability"] == pytest.approx(np.mean(log_probs))


def test_the_command_prints_and_writes_it(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = glassformer.load(trained, device="cpu")
    answers = run.predict(TEXTS, token_probabilities=True)
    words = ["predict", str(trained), "--device", "cpu", "--token-probabilities"]
    assert main([*words, "one red house", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["tokens"] == [
        {"token": row["token"], "probability": pytest.approx(row["probability"], abs=1e-5)}
        for row in answers[0]["tokens"]
    ]
    assert main([*words, "one red house"]) == 0
    assert capsys.readouterr().out == f"{answers[0]['translation']}\t{answers[0]['mean_probability']:.4f}\n"
    table = tmp_path / "in.csv"
    table.write_text("source\n" + "\n".join(f'"{text or " "}"' for text in TEXTS) + "\n", encoding="utf-8")
    assert main([*words, "--file", str(table), "--out", str(tmp_path / "out.csv"), "--n-best", "2"]) == 0
    with (tmp_path / "out.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = ("translation", "score", "mean_probability")
    assert [*rows[0]] == ["source", *names, *(f"{name}_2" for name in names[:2])]
    means = [float(row["mean_probability"]) for row in rows]
    assert means == pytest.approx([answer["mean_probability"] for answer in answers], abs=1e-4)


def test_what_has_no_such_probabilities_refuses_them(trained: Path) -> None:
    run = glassformer.load(trained, device="cpu")
    with pytest.raises(UsageError, match="token_probabilities is for translators"):
        AnswerRule.of("classifier", Decision(), {"token_probabilities": True})
    with pytest.raises(UsageError, match="token_probabilities"):
        run.predict("red", token_probabilities="yes")
    with pytest.raises(UsageError, match="min_probability is for classifiers"):
        run.predict("red", min_probability=0.5)
    with pytest.raises(UsageError, match="without edits"):
        run.predict("red", edits=["encoder.0.self.head1=0"], token_probabilities=True)
    exported = ExportedModel.__new__(ExportedModel)
    facts = SimpleNamespace(kind="translator", decision=None, labels=[])
    exported.__dict__ |= {"path": trained, "facts": facts, "_decision": Decision()}
    with pytest.raises(UsageError, match="exported translator"):
        exported.predict("red", token_probabilities=True)


def test_a_pair_of_which_both_sides_are_cut_is_one_that_is_cut() -> None:
    made = small("translate")
    long = " ".join("abcdefgh" * made.config.text.max_len)
    corpus = made.task.encode(Split([long, "a b", "a"], [long, "a b", long], "x"), training=False)
    assert corpus.stats["n_truncated"] == 2 and corpus.stats["n"] == 3
