"""Models as ONNX graphs: the same numbers and answers in onnxruntime, and the lines of the cards."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.helpers.exports import TEXTS, WORDS, ensemble_of, run_of

from glassformer.errors import CheckpointError, DivergedError, UsageError
from glassformer.interop.engine import finite, log_softmax
from glassformer.interop.exported import load_exported
from glassformer.interop.onnx_writer import lookup_by_halving
from glassformer.interop.transfer import export
from glassformer.nn.ngram_embeddings import BigramEmbedding
from glassformer.text.answers import answer_lines


@pytest.mark.records
def test_texts_are_classified_by_all_members_in_one_graph(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With n-grams, words that are not in the vocabulary among them, and with bigrams."""
    run = ensemble_of(run_of("classify", monkeypatch, WORDS))
    assert run.task.tokenizer.ngrams and run.task.tokenizer.bigrams
    result = run.export("onnx", tmp_path / "out")
    assert result.facts.check is not None, result.not_checked
    assert result.facts.check["equal_answers"] == 1 and result.facts.check["largest_difference"] < 1e-5
    model = load_exported(tmp_path / "out")
    texts = [*TEXTS, "good refund fundings of goodness badlands, 日本", "a " * 100]
    for ours, theirs in zip(run.predict(texts), model.predict(texts), strict=True):
        assert ours["label"] == theirs["label"]
        assert theirs["probabilities"] == pytest.approx(ours["probabilities"], abs=1e-5)
    assert answer_lines(model.predict("good")) == answer_lines(run.predict("good"))
    page = Path(__file__).parents[2] / "docs/how-to/export/onnx.md"
    code = page.read_text(encoding="utf-8").split("A classifier with character n-grams:")[1].split("```python\n")[1]
    monkeypatch.chdir(tmp_path / "out")
    capsys.readouterr()
    exec(compile(code.split("```")[0], "onnx.md", "exec"), {})
    assert capsys.readouterr().out.strip() == run.predict("a text")["label"]


def test_masked_tokens_are_predicted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = run_of("pretrain", monkeypatch, WORDS)
    run.export("onnx", tmp_path / "out")
    texts = ["refund [MASK] the", "nothing", "[MASK] goods [MASK]", "fund [MASK] " * 30]
    for ours, theirs in zip(
        run.predict(texts, top_k=3), load_exported(tmp_path / "out").predict(texts, top_k=3), strict=True
    ):
        assert ours["filled"] == theirs["filled"]
        for a, b in zip(ours["guesses"], theirs["guesses"], strict=True):
            assert [one["token"] for one in a] == [one["token"] for one in b]
            assert [one["probability"] for one in a] == pytest.approx([one["probability"] for one in b], abs=1e-5)


def test_an_answer_imports_no_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run_of("classify", monkeypatch).export("onnx", tmp_path / "out")
    code = "import sys, glassformer; glassformer.load(sys.argv[1]); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "out")], capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_pairs_are_found_by_halving() -> None:
    for n in (1, 2, 3, 7, 8, 100):
        pairs = [divmod(int(key), 40) for key in np.random.default_rng(n).choice(1600, n, replace=False)]
        part = BigramEmbedding(pairs, 40, 4, 1.0)
        ids = torch.cat([torch.tensor(pairs).flatten(), torch.randint(0, 40, (200,))])[None]
        expected = part.lookup_ids(ids)
        assert torch.equal(lookup_by_halving(part)(ids), expected) and bool((expected > 0).any())


def test_log_probabilities() -> None:
    assert log_softmax(np.array([[0.0, 0.0]]))[0, 0] == pytest.approx(math.log(0.5))
    with pytest.raises(DivergedError):
        finite(np.array([[np.nan, 0.0]]))


def test_a_graph_that_cannot_be_read_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from glassformer.interop import onnx_writer
    from glassformer.interop.onnx_engine import load_engine

    monkeypatch.setattr(onnx_writer, "_graph", lambda *_: b"not a graph")
    run = run_of("classify", monkeypatch)
    monkeypatch.setattr("glassformer.interop.transfer.check_export", lambda *_: "not checked: by this test")
    export(run, "onnx", tmp_path / "out")
    facts = load_exported(tmp_path / "out").facts
    with pytest.raises(CheckpointError, match=r"model\.onnx"):
        load_engine(tmp_path / "out", facts, run.task.tokenizer, "cpu")
    with pytest.raises(UsageError, match="cannot compute on cuda"):
        load_engine(tmp_path / "out", facts, run.task.tokenizer, "cuda")


def test_a_model_too_large_for_one_file_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from glassformer.interop import onnx_writer

    monkeypatch.setattr(onnx_writer, "MAX_BYTES", 1000)
    with pytest.raises(UsageError, match="weights of at most 1,000 bytes"):
        export(run_of("classify", monkeypatch), "onnx", tmp_path / "out")
    assert not (tmp_path / "out").exists()
