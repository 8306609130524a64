"""ONNX graphs: our numbers and answers in onnxruntime and JavaScript; what exports need, and where they compute."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.helpers.exports import TEXTS, WORDS, ensemble_of
from torch import nn

from glassformer.errors import CheckpointError, DivergedError, UsageError
from glassformer.interop import check as checking
from glassformer.interop import onnx_writer, transfer
from glassformer.interop.engine import finite, log_softmax
from glassformer.interop.exported import load_exported
from glassformer.interop.onnx_engine import load_engine
from glassformer.interop.onnx_writer import lookup_by_halving
from glassformer.interop.transfer import export
from glassformer.models.ensemble import members_of
from glassformer.nn.ngram_embeddings import BigramEmbedding
from glassformer.text.answers import answer_lines

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / "web" / "node_modules"
PAGE = ROOT / "docs" / "how-to" / "export" / "onnx.md"


@pytest.mark.records
def test_texts_are_classified_by_all_members_in_one_graph(
    make: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With n-grams, words that are not in the vocabulary among them, and with bigrams."""
    run = ensemble_of(make("classify", WORDS))
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
    code = PAGE.read_text(encoding="utf-8").split("A classifier with character n-grams:")[1].split("```python\n")[1]
    monkeypatch.chdir(tmp_path / "out")
    capsys.readouterr()
    exec(compile(code.split("```")[0], "onnx.md", "exec"), {})
    assert capsys.readouterr().out.strip() == run.predict("a text")["label"]


def test_an_answer_imports_no_torch(make: Any, tmp_path: Path) -> None:
    make("classify").export("onnx", tmp_path / "out")
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


def test_a_graph_that_cannot_be_read_is_an_error(make: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(onnx_writer, "_graph", lambda *_: b"not a graph")
    run = make("classify")
    monkeypatch.setattr(transfer, "check_export", lambda *_: "not checked: by this test")
    export(run, "onnx", tmp_path / "out")
    facts = load_exported(tmp_path / "out").facts
    with pytest.raises(CheckpointError, match=r"model\.onnx"):
        load_engine(tmp_path / "out", facts, run.task.tokenizer, "cpu")
    with pytest.raises(UsageError, match="cannot compute on cuda"):
        load_engine(tmp_path / "out", facts, run.task.tokenizer, "cuda")


def test_a_model_too_large_for_one_file_is_refused(make: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(onnx_writer, "MAX_BYTES", 1000)
    with pytest.raises(UsageError, match="weights of at most 1,000 bytes"):
        export(make("classify"), "onnx", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def _hide(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a package seem not installed, also where a part of it was imported before."""
    for name in [name for name in sys.modules if name.startswith(f"{package}.")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)


@pytest.mark.parametrize(
    ("target", "package"), [("ctranslate2", "ctranslate2"), ("onnx", "onnx"), ("onnx", "onnxscript")]
)
def test_writing_needs_its_package(
    target: Any, package: str, make: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = make("lm" if target == "ctranslate2" else "classify")
    _hide(package, monkeypatch)
    with pytest.raises(UsageError, match="needs the package") as error:
        export(run, target, tmp_path / "out")
    assert error.value.hint and f'pip install "glassformer[{target}]"' in error.value.hint
    assert not [*tmp_path.iterdir()]


def test_an_export_without_its_library_is_written_and_answers(
    make: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = make("lm", {"tokenizer": "byte-bpe", "vocab_size": 300})
    _hide("transformers", monkeypatch)
    result = export(run, "hf", tmp_path / "out")
    assert result.facts.check is None and "needs the package transformers" in result.check_text()
    options: Any = {"temperature": 0.0, "max_new_tokens": 5}
    assert load_exported(tmp_path / "out").predict("a", **options) == run.predict("a", **options)


@pytest.mark.slow
def test_the_javascript_of_the_documentation_answers_as_the_run(make: Any, tmp_path: Path) -> None:
    if shutil.which("node") is None or not (PACKAGES / "onnxruntime-web").is_dir():
        pytest.skip("it needs Node, and the packages that `make web-check` installs")
    run = make("classify")
    run.export("onnx", tmp_path / "out")
    (tmp_path / "node_modules").symlink_to(PACKAGES, target_is_directory=True)
    [code] = [part.split("```")[0] for part in PAGE.read_text(encoding="utf-8").split("```javascript\n")[1:]]
    assert '"a text"' in code
    texts = [text for text in [*TEXTS[:1], "a text", "the good, bad and good"] if run.task.tokenizer.encode(text)]
    for i, text in enumerate(texts):
        script = tmp_path / "out" / f"{i}.mjs"
        script.write_text(code.replace('"a text"', json.dumps(text)), encoding="utf-8")
        done = subprocess.run(["node", script.name], cwd=script.parent, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == run.predict(text)["label"]


class Elsewhere(nn.Module):
    """A model on another device, which notes the device of its inputs and gives numbers of the CPU."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, device="meta"))
        self.model, self.seen = (model,), set[str]()

    def forward(self, *ids: torch.Tensor) -> torch.Tensor:
        self.seen |= {one.device.type for one in ids}
        shape = [torch.ones(one.shape, dtype=torch.int64) for one in ids]
        return self.model[0](*shape)


@pytest.mark.parametrize("task", ["lm", "translate"])
def test_the_comparison_asks_the_model_where_it_is(task: str, make: Any) -> None:
    run = make(task)
    model, lengths, n = Elsewhere(run.model), list[int](), run.task.tokenizer.vocab_size
    engine: Any = SimpleNamespace(log_probs=lambda source, target: np.zeros(len(target) + 1, np.float32))
    engine.outputs = lambda ids: lengths.append(len(ids)) or np.zeros((1, n), np.float32)
    for text in ("abc", "abc" * 40, ""):
        checking._log_probs(run.task, model, engine, text, "cba")
    assert task != "lm" or max(lengths) == run.config.text.max_len  # no more than the library takes
    assert model.seen == {"meta"}


@pytest.mark.parametrize("task", ["classify", "translate", "lm", "pretrain"])
def test_libraries_are_given_numbers_of_the_cpu(task: str, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make(task)
    run = ensemble_of(run) if task == "classify" else run
    assert transfer._on_cpu(run.model) is run.model  # nothing is copied that need not be
    elsewhere, moved = deepcopy(run.model).to("meta"), list[nn.Module]()
    monkeypatch.setattr(nn.Module, "cpu", lambda self: moved.append(self) or run.model)
    assert transfer._on_cpu(elsewhere) is run.model and len(moved) == 1 and moved[0] is not elsewhere
    assert members_of(elsewhere)[0] is not members_of(moved[0])[0]
