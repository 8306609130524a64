"""The JavaScript of the documentation with an exported classifier, where Node and the packages of web/ are there."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.helpers.exports import TEXTS, run_of

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / "web" / "node_modules"
PAGE = ROOT / "docs" / "how-to" / "export" / "onnx.md"


@pytest.mark.slow
def test_its_answers_are_those_of_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if shutil.which("node") is None or not (PACKAGES / "onnxruntime-web").is_dir():
        pytest.skip("it needs Node, and the packages that `make web-check` installs")
    run = run_of("classify", monkeypatch)
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
