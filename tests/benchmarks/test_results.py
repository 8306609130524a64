"""RESULTS.md comes from run folders, can be made again without them, and the committed one is what the facts give."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import pytest
from benchmarks import results
from benchmarks.results_page import image_name, mean_text, page, score_text
from tests.api.test_end_to_end import TINY, write_pairs, write_reviews

import glassformer
from glassformer.evaluate.metrics import metric
from glassformer.report.compare import summary_stats

ROOT = Path(__file__).parents[2]
WANTED = {
    "three": {"section": "Reviews: made", "command": "glassformer train classify --seeds 3", "note": "Not in earnest."},
    "gone": {"section": "Reviews: made", "command": "glassformer train classify"},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of a classifier, a translator, and a run that was never finished."""
    folder = tmp_path_factory.mktemp("results")
    files = {"train_file": write_reviews(folder / "r.csv"), "test_file": write_reviews(folder / "t.csv", 60)}
    glassformer.train("classify", out=folder / "runs" / "three", seeds=2, validate_min_steps=1, **files, **TINY)
    src, tgt = write_pairs(folder)
    glassformer.train("translate", out=folder / "runs" / "pairs", src_file=src, tgt_file=tgt, **TINY)
    (folder / "runs" / "begun").mkdir()
    return folder / "runs"


def test_every_number_of_a_result_is_there(runs: Path) -> None:
    found, missing = results.update(runs, WANTED, {})
    assert list(found) == ["three", "pairs"] and missing == ["gone", "begun"]
    facts = found["three"]
    report = json.loads((runs / "three" / "report.json").read_text(encoding="utf-8"))
    assert facts["score"] == {k: v for k, v in report["score"].items() if k != "metric"} and facts["score"]["n"] == 2
    seeds = [json.loads((runs / f"three/seed-{n}/evaluation.json").read_text(encoding="utf-8")) for n in (1, 2)]
    averaged = sum(e["baselines"]["tfidf_logistic"]["accuracy"] for e in seeds) / 2
    assert {*facts["baselines"]} == {"majority class", "TF-IDF + logistic regression"}
    assert facts["baselines"]["TF-IDF + logistic regression"] == f"{averaged:.1%}"
    assert facts["also"]["Macro F1"] == f"{sum(e['macro_f1'] for e in seeds) / 2:.1%}"
    data = json.loads((runs / "three" / "seed-1" / "data.json").read_text(encoding="utf-8"))
    expected = 3 * data["preflight"]["flops_per_token"] * data["splits"]["train"]["n_tokens"]
    assert facts["flops"] == pytest.approx(expected) and facts["parameters"] == data["preflight"]["n_parameters"]
    assert facts["seconds"] > 0 and "thread" in facts["hardware"] and len(facts["curve"]) == 3
    assert found["pairs"]["ci95"] is not None and found["pairs"]["section"] == "own data (`s.txt`)"


def test_the_page_is_made_again_without_the_runs(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "benchmarks").mkdir()
    rows = (f"[{name}]\n" + "".join(f'{k} = "{v}"\n' for k, v in facts.items()) for name, facts in WANTED.items())
    (tmp_path / "benchmarks" / "results.toml").write_text("".join(rows), encoding="utf-8")
    pages = []
    for folder, message in (
        (runs, "gone; it is not in the page"),
        (tmp_path / "nothing", "three; its facts are those"),
    ):
        monkeypatch.setattr(sys, "argv", ["results", "--runs", str(folder)])
        results.main(tmp_path)
        pages.append({p.name: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()})
        assert "missing: " in (printed := capsys.readouterr().err) and message in printed
    text = pages[0]["RESULTS.md"].decode()
    assert pages[0] == pages[1] and "## Reviews: made" in text and "- three: Not in earnest." in text
    assert "glassformer train classify --seeds 3 --out runs/results/three" in text
    assert "(docs/images/results-reviews.png)" in text and pages[0]["results-reviews.png"].startswith(b"\x89PNG")


def test_the_committed_page_is_what_the_committed_facts_give() -> None:
    found = results.read(ROOT / "benchmarks" / "results.json") or {}
    ablations = (ROOT / "benchmarks" / "ablations.md").read_text(encoding="utf-8")
    images = sorted(path.name for path in (ROOT / "docs" / "images").glob("results-*.png"))
    assert (ROOT / "RESULTS.md").read_text(encoding="utf-8") == page(found, ablations, images)


def test_wanted_results_have_a_section_and_a_command_that_a_page_can_show() -> None:
    wanted = tomllib.loads((ROOT / "benchmarks" / "results.toml").read_text(encoding="utf-8"))
    for name, facts in wanted.items():
        *before, command = facts["command"].split(" && ")
        assert command.startswith("glassformer train ") and "--out" not in command, name
        assert all(each.startswith("glassformer ") for each in before), name
        assert facts["section"], name


def test_spreads() -> None:
    for name, values, text in (
        ("accuracy", [0.86, 0.87, 0.88], "87.0% (sd 1.0, 86.0–88.0%)"),
        ("bleu", [41.0, 42.0], "41.5 (sd 0.7, 41.0–42.0)"),
        ("bits_per_char", [2.096, 2.109, 2.103], "2.103 (sd 0.007, 2.096–2.109)"),  # 0.007 with its three decimals
        ("bits_per_char", [2.1, 2.1002], "2.100 (sd 0.000, 2.100–2.100)"),
    ):
        assert mean_text(metric(name), summary_stats(values)) == text


def test_words() -> None:
    assert results.without_paths("glassformer train classify --train-file /a/b/own/x.csv --out runs/y --lr 1e-3") == (
        "glassformer train classify --train-file x.csv --lr 1e-3"
    )
    one = {"task": "classify", "metric": "accuracy", "score": {"n": 1, "mean": 0.871}, "ci95": [0.86, 0.88]}
    assert score_text(one) == "Accuracy 87.1% (95%: 86.0–88.0%)"
    assert image_name("banking77: 77 classes") == "results-banking77.png"
    assert page({}, "## Ablations\n", []).endswith("No result has been measured yet.\n\n## Ablations\n")
