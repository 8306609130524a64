"""What a type checker accepts of the Python interface: what README shows, and no call that is wrong."""

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from glassformer.config import DecodeConfig
from glassformer.run import DecodeOptions

ROOT = Path(__file__).parents[2]
RIGHT = """
glassformer.train("classify", train_file="a.csv", out="x", model={"n_layers": 2}, lr=1).labels
glassformer.resume("x").evaluate("valid")["accuracy"]
glassformer.dry_run("imdb", steps=3)
[answer["probability"] for answer in run.predict(["x"], beam_size=2)]
"""
WRONG = """
glassformer.train("classify", trian_file="x")
glassformer.train("classify", 5)
glassformer.train("classify", epochs="x")
glassformer.train("classify", optimizer="adm")
glassformer.train()
glassformer.dry_run("imdb", out="x")
run.predict("x")["lable"]
run.predict("x", beam=3)
run.learn("a", "neg", stepz=3)
run.explain("a", beam_sise=1)
run.export("hf", "x", licence="mit")
glassformer.import_model("a", "b", max_length=5)
"""


def test_options_of_decoding_are_those_of_the_configuration():
    assert [*DecodeOptions.__annotations__] == [field.name for field in fields(DecodeConfig)]


@pytest.mark.slow
def test_wrong_calls_are_refused_and_readme_is_not(tmp_path):
    [readme] = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    code = readme + RIGHT
    (tmp_path / "calls.py").write_text(code + WRONG.strip(), "utf-8")
    settings = f'{{"extraPaths": ["{ROOT / "src"}"], "reportUnusedExpression": false}}'
    (tmp_path / "pyrightconfig.json").write_text(settings, "utf-8")
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "-p", str(tmp_path)]
    printed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    wrong = {int(line) for line in re.findall(r"calls\.py:(\d+):\d+ - error", printed)}
    first = code.count("\n") + 1
    assert wrong == {*range(first, first + 12)}, printed
