"""Warnings about the data are data: a label with a colon stays whole from the first step to the report."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from tests.helpers.for_each import for_each
from tests.helpers.small import config_of, data_of, small_run

from glassformer.cli.main import main
from glassformer.data.splits import Split
from glassformer.errors import CheckpointError
from glassformer.runs.records import DataRecord
from glassformer.training.preparation import Pace, preflight

LABELS = ["genre: sci-fi", "a: b: c", ": ", "'quoted': twice"]


@for_each("label", LABELS)
def test_a_label_with_a_colon_stays_whole(label: str) -> None:
    texts = [f"good text {i}" for i in range(30)]
    split = Split(texts, [label] * 28 + ["other", "lonely: one"], "made")
    run = small_run(config_of("classify"), replace(data_of("classify"), train=split, valid=split, test=None))
    warnings = preflight(run.context, Pace(0.01, 0.1, 1000.0, 0.1), run.task.build_model()).findings
    prevails = next(warning for warning in warnings if warning.place == "prevailing class")
    assert prevails.matter.endswith(f"have the label {label!r}: always answering it is right as often")
    assert prevails.remedy.startswith("read macro F1")
    lonely = next(warning for warning in warnings if warning.place == "classes of one example")
    assert "(lonely: one, other)" in lonely.matter and lonely.remedy == "give more of them, or leave them out"
    stored = json.loads(json.dumps({"warnings": [asdict(warning) for warning in warnings]}))
    assert DataRecord(preflight=stored).findings == warnings


def test_a_test_split_that_chooses_the_weights_is_warned_of() -> None:
    run = small_run(config_of("classify"), data_of("classify"))
    config = replace(run.config, data=replace(run.config.data, use_test_as_validation=True))
    for changed, expected in ((run.config, []), (config, ["leave out --use-test-as-validation"])):
        context = run.context.with_config(changed)
        warnings = preflight(context, Pace(0.01, 0.1, 1000.0, 0.1), run.task.build_model()).findings
        assert [warning.remedy for warning in warnings if warning.place == "test split"] == expected


def test_data_check_says_what_the_start_of_a_training_says(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    rows = [f"text {i},{'ab'[i % 2]}" for i in range(40)] + ["odd one,c", "odd two,d"]
    (tmp_path / "a.csv").write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    argv = ["classify", "--train-file", str(tmp_path / "a.csv"), "--test-file", str(tmp_path / "a.csv")]
    assert main(["data", "check", *argv, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["findings"]
    places = ["overlap", "few examples", "few validation examples", "classes of one example"]
    assert [finding["place"] for finding in found] == places
    for command in (["data", "check", *argv], ["train", *argv, "--dry-run"]):
        assert main(command) == 0
        message = capsys.readouterr().err
        assert all(f"{finding['matter']}; {finding['remedy']}" in message for finding in found)


@for_each("damaged", ["a sentence", {"remedy": "look"}, {"matter": 7}])
def test_what_is_no_finding_is_refused(damaged: object) -> None:
    with pytest.raises(CheckpointError, match=r"data\.json"):
        _ = DataRecord(preflight={"warnings": [damaged]}).findings
