"""Models in the form of CTranslate2: the same numbers and answers, read back by that library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
import torch
from tests.helpers.exports import CONTEXT, PRETRAINED, SOME, TEXTS, TOKENS, V, printed_by_card, random_model, run_of

from glassformer.errors import UsageError
from glassformer.interop.ctranslate2_model import write_ctranslate2
from glassformer.interop.exported import load_exported
from glassformer.interop.transfer import export
from glassformer.models import LanguageModel, Translator
from glassformer.models.ensemble import Ensemble
from glassformer.run import Run
from glassformer.text.answers import answer_lines


def written(model: Any, folder: Path, quantization: str | None = None) -> str:
    for name, data in write_ctranslate2(model, TOKENS, quantization):
        (folder / name).write_bytes(data)
    return str(folder)


@pytest.mark.parametrize("form", [*SOME, *PRETRAINED], ids=str)
def test_numbers_are_those_of_the_model(form: dict[str, Any], tmp_path: Path) -> None:
    model = random_model(LanguageModel, form)
    ids = torch.randint(5, V, (1, CONTEXT))
    generator = ctranslate2.Generator(written(model, tmp_path), compute_type="float32")
    theirs = np.array(generator.forward_batch([[TOKENS[i] for i in ids[0]]]))
    with torch.no_grad():
        logits = model(ids).numpy()
    assert logits.std() > 0.1
    np.testing.assert_allclose(theirs, logits, atol=1e-4)
    model = random_model(Translator, form | ({"output_bias": True} if form in PRETRAINED else {}))
    source, target = torch.randint(5, V, (1, 7)), torch.randint(5, V, (1, 9))
    translator = ctranslate2.Translator(written(model, tmp_path), compute_type="float32")
    [score] = translator.score_batch([[TOKENS[i] for i in source[0]]], [[TOKENS[i] for i in target[0]]])
    end, begin = torch.tensor([[3]]), torch.tensor([[2]])
    with torch.no_grad():
        log_probs = model(torch.cat([source, end], 1), torch.cat([begin, target], 1)).log_softmax(dim=-1)[0]
    expected = log_probs.gather(1, torch.cat([target, end], 1)[0][:, None])[:, 0]
    np.testing.assert_allclose(score.log_probs, expected.numpy(), atol=1e-4)


@pytest.mark.parametrize("kind", [Translator, LanguageModel])
def test_quantizing_leaves_the_model_as_it_was(kind: Any, tmp_path: Path) -> None:
    model = random_model(kind, SOME[0])
    before = {name: p.clone() for name, p in model.named_parameters()}
    written(model, tmp_path, "int8")
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_a_translator_answers_as_its_run(
    positions: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of("translate", monkeypatch, positions=positions)
    result = run.export("ctranslate2", tmp_path / "out")
    assert result.facts.check is not None and result.facts.check["largest_difference"] < 1e-4
    model = load_exported(tmp_path / "out")
    # Greedy, since beams of random weights end at the limit of length, where the two searches differ.
    for max_new_tokens in (256, 3):
        options: dict[str, Any] = {"beam_size": 1, "max_new_tokens": max_new_tokens}
        ours, theirs = (one.predict(TEXTS, **options) for one in (run, model))
        for a, b in zip(ours, theirs, strict=True):
            assert a.keys() == b.keys()
            assert (a["translation"], a.get("unfinished")) == (b["translation"], b.get("unfinished"))
            assert answer_lines(b) == answer_lines(a)
    assert [*model.predict_stream(iter(TEXTS))] == model.predict(TEXTS)
    assert printed_by_card(tmp_path / "out", monkeypatch, capsys)
    assert [len(answer["n_best"]) for answer in model.predict(["abc", "de"], beam_size=3, n_best=2)] == [2, 2]


def test_a_language_model_continues_as_its_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also beyond its context of 24 tokens, in the same windows, and for prompts longer than that."""
    run = run_of("lm", monkeypatch, positions="learned")
    result = run.export("ctranslate2", tmp_path / "out")
    assert result.facts.check is not None and result.facts.check["equal_answers"] == 1
    model = load_exported(tmp_path / "out")
    for n in (1, 10, 60):
        options: dict[str, Any] = {"temperature": 0.0, "max_new_tokens": n}
        assert model.predict(TEXTS, **options) == run.predict(TEXTS, **options)
    assert printed_by_card(tmp_path / "out", monkeypatch, capsys)
    first, again, other = (
        load_exported(tmp_path / "out").predict(["abc"] * 4, top_k=5, decode_seed=seed) for seed in (3, 3, 4)
    )
    assert first == again != other


def test_what_it_cannot_hold_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = run_of("translate", monkeypatch)
    together = Run(run.path, run.task, Ensemble([run.model, run.model]).eval(), run.device)
    with pytest.raises(UsageError, match="an ensemble of 2") as error:
        export(together, "ctranslate2", out)
    assert error.value.hint == "export one of them: --member 0"
    assert not out.exists()
    export(together, "ctranslate2", out, member=1)
    with pytest.raises(UsageError, match="is not empty"):
        export(run, "ctranslate2", out)
    with pytest.raises(UsageError, match="quantization 'int4'"):
        export(run, "ctranslate2", tmp_path / "other", quantization="int4")
    assert not (tmp_path / "other").exists()


def test_settings_that_the_library_lacks_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    export(run_of("translate", monkeypatch), "ctranslate2", tmp_path / "translator")
    export(run_of("lm", monkeypatch), "ctranslate2", tmp_path / "lm")
    with pytest.raises(UsageError, match="does not sample"):
        load_exported(tmp_path / "translator").predict("a", sample=True)
    with pytest.raises(UsageError, match="no min_p"):
        load_exported(tmp_path / "lm").predict("a", min_p=0.1)
    with pytest.raises(UsageError, match="cpu or cuda, not on mps"):
        load_exported(tmp_path / "lm", "mps")


def test_the_license_is_never_guessed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = run_of("translate", monkeypatch)
    for license, out in ((None, tmp_path / "a"), ("cc-by-4.0", tmp_path / "b")):
        export(run, "ctranslate2", out, license=license)
        card = (out / "README.md").read_text(encoding="utf-8")
        assert ("license: cc-by-4.0" in card) == (license is not None) and card.startswith(
            "---\nlibrary_name: ctranslate2"
        )
