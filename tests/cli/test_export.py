"""`glassformer export`, and `predict` with what it wrote: the same lines, without torch."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import glassformer
from glassformer.cli.main import main
from glassformer.errors import CheckpointError, UsageError

TEXTS = ["[en_US] March 5, 2021", "", "[de_DE] 5. März 2021"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("export") / "dates"
    small = {"n_layers": 1, "d_model": 32, "n_heads": 2, "d_ff": 64}
    short = {"steps": 120, "n_dates": 400, "beam_size": 1, "validate_every": 1000}
    glassformer.train("dates", out=out, precision="fp32", model=small, **short)  # bf16 answers otherwise
    return out


@pytest.fixture(scope="module")
def exported(run: Path) -> Path:
    out = run.parent / "exported"
    assert main(["export", str(run), str(out), "--to", "ctranslate2"]) == 0
    return out


def test_the_same_lines_come_out(run: Path, exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()

    def lines(folder: Path, *options: str) -> list[str]:
        assert main(["predict", str(folder), *TEXTS, "--beam-size", "1", *options]) == 0
        return capsys.readouterr().out.splitlines()

    assert lines(run) == lines(exported)
    ours, theirs = ([json.loads(line) for line in lines(folder, "--json")] for folder in (run, exported))
    for a, b in zip(ours, theirs, strict=True):
        assert a.pop("score") == pytest.approx(b.pop("score"), abs=1e-3)
    assert ours == theirs and len(ours) == len(TEXTS)


def test_the_card_gives_score_and_interval_in_one_unit(exported: Path) -> None:
    card = (exported / "README.md").read_text(encoding="utf-8")
    assert re.search(r"exact_match [\d.]+%, 95% interval [\d.]+% to [\d.]+%\.", card), card


def test_prediction_with_an_exported_model_imports_no_torch(exported: Path) -> None:
    code = (
        "import sys; from glassformer.cli.main import main; "
        f"main(['predict', {str(exported)!r}, 'a', '--beam-size', '1']); "
        "import glassformer; glassformer.load(sys.argv[1]).predict('a'); "
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(exported)], capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "export takes RUN OUT; none came"),
        (["RUN", "OUT"], "export needs --to"),
        (["RUN", "--to", "ctranslate2"], "export takes RUN OUT; 1 came"),
        (["RUN", "RUN", "--to", "ctranslate2"], "is not empty"),
        (["RUN", "OUT", "--to", "torchscript"], "torchscript"),
        (["RUN", "OUT", "--to", "hf"], "transformers has no class"),
        (["RUN", "OUT", "--to", "onnx", "--quantization", "int8"], "onnx is not written with quantization"),
        (["RUN", "OUT", "--to", "ctranslate2", "--member", "2"], "there is no member 2"),
    ],
    ids=str,
)
def test_misuse_is_refused(run: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = run.parent / "refused"
    names = {"RUN": str(run), "OUT": str(out)}
    assert main(["export", *(names.get(word, word) for word in words)]) == UsageError.exit_code
    assert message in capsys.readouterr().err and not out.exists()


def test_a_damaged_folder_and_options_that_do_not_fit_are_errors(
    exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", str(exported), "a", "--precision", "bf16"]) == UsageError.exit_code
    assert main(["predict", str(exported), "a", "--sample"]) == UsageError.exit_code
    with pytest.raises(UsageError, match="predicts alone"):
        glassformer.load(exported, exported)
    damaged = shutil.copytree(exported, tmp_path / "damaged")
    (damaged / "model.bin").write_bytes(b"x")
    assert main(["predict", str(damaged), "a"]) == CheckpointError.exit_code
    assert "model.bin" in capsys.readouterr().err
