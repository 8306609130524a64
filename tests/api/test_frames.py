"""Training on tables in memory, and answering them."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.small_runs import SMALL

import glassformer
from glassformer.data.frames import rows_of, with_stored_tables
from glassformer.errors import DataError, UsageError

ROWS = [{"n": i, "review": f"a {'good' if i % 2 else 'bad'} film {i}", "verdict": "ab"[i % 2]} for i in range(40)]
SETTINGS = SMALL | {"steps": 2, "text_column": "review", "label_column": "verdict"}


def as_dict(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def as_pandas(rows: list[dict[str, Any]]) -> Any:
    return pytest.importorskip("pandas").DataFrame(rows, index=[i + 7 for i in range(len(rows))])


def as_polars(rows: list[dict[str, Any]]) -> Any:
    return pytest.importorskip("polars").DataFrame(rows)


def as_arrow(rows: list[dict[str, Any]]) -> Any:
    return pytest.importorskip("pyarrow").Table.from_pylist(rows)


class Frame:
    """Has the methods of a frame of pandas that are used, and no Arrow."""

    def __init__(self, rows: list[dict[str, Any]], columns: list[str] | None = None) -> None:
        self._rows, self.columns = rows, columns or [*rows[0]]

    def to_dict(self, orient: str) -> list[dict[str, Any]]:
        assert orient == "records"
        return self._rows

    def assign(self, **columns: list[Any]) -> Frame:
        added = zip(*columns.values(), strict=True)
        return Frame(
            [{**row, **dict(zip(columns, new, strict=True))} for row, new in zip(self._rows, added, strict=True)]
        )


KINDS: list[Callable[[list[dict[str, Any]]], Any]] = [list, as_dict, Frame, as_pandas, as_polars, as_arrow]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> glassformer.Run:
    folder = tmp_path_factory.mktemp("frames")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLASSFORMER_CACHE", str(folder / "cache"))
        run = glassformer.train(
            "classify", train=ROWS, valid=ROWS[:6], test=as_dict(ROWS[:8]), out=folder / "run", **SETTINGS
        )
    assert run is not None
    return run


def records(table: Any) -> list[dict[str, Any]]:
    return list(rows_of(table, "table"))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_table_has_the_same_rows(kind: Callable) -> None:
    assert records(kind(ROWS)) == ROWS


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_is_answered_as_its_texts_are(run: glassformer.Run, kind: Callable) -> None:
    table = kind(ROWS[:5])
    answered = run.predict_table(table, prefix="m_", probabilities=True)
    assert type(answered) is type(table)
    expected = run.predict([row["review"] for row in ROWS[:5]])
    for row, before, answer in zip(records(answered), ROWS, expected, strict=False):
        assert row == before | {
            "m_label": answer["label"],
            "m_probability": answer["probability"],
            **{f"m_probability_{name}": p for name, p in answer["probabilities"].items()},
        }
    assert records(table) == ROWS[:5]
    again = run.predict_table(kind([{"review": "a"}]), "review")
    with pytest.raises(UsageError, match="has a column 'label' already"):
        run.predict_table(again)
    with pytest.raises(UsageError, match="there is no column 'text'"):
        run.predict_table(table, "text")


def test_a_run_on_tables_is_evaluated_and_resumed_like_one_on_files(run: glassformer.Run, tmp_path: Path) -> None:
    assert run.evaluate("valid")["n"] == 6 and run.evaluate("test")["n"] == 8
    assert glassformer.load(run.path).evaluate("test")["accuracy"] == run.evaluate("test")["accuracy"]
    file = Path(str(run.config.data.files.train_file))
    assert [json.loads(line) for line in file.read_text("utf-8").splitlines()] == ROWS

    def stop(report: Any) -> None:
        if report.step == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        glassformer.train("classify", train=ROWS, out=tmp_path / "run", on_step=stop, save_every=1, **SETTINGS)
    resumed = glassformer.resume(tmp_path / "run")
    assert resumed is not None and resumed.predict("a good film")["label"] in "ab"


def test_a_table_is_stored_beside_its_run(own_cache: Path, tmp_path: Path) -> None:
    first, second = (with_stored_tables({"train": kind(ROWS), "steps": 2}, tmp_path / "r") for kind in (list, as_dict))
    assert first == second == {"train_file": str(tmp_path / "r.train.jsonl"), "steps": 2}
    assert not own_cache.exists()


def test_a_table_does_not_replace_that_of_a_run(run: glassformer.Run) -> None:
    before = Path(str(run.config.data.files.train_file)).read_bytes()
    with pytest.raises(UsageError, match="holds another table"):
        glassformer.train("classify", train=ROWS[:3], out=run.path, **SETTINGS)
    assert Path(str(run.config.data.files.train_file)).read_bytes() == before


def test_settings_and_files_are_left_as_they_are(tmp_path: Path) -> None:
    settings = {"train": {"minutes": 3, "adamw": {"beta1": 0.5}}, "steps": 2}
    assert with_stored_tables(settings, tmp_path) == settings
    assert with_stored_tables({"train": {}}, tmp_path) == {"train": {}}
    assert with_stored_tables({"train": tmp_path / "a.csv", "test": "b.csv"}, tmp_path) == {
        "train_file": str(tmp_path / "a.csv"),
        "test_file": "b.csv",
    }


def test_values_become_json() -> None:
    class NAType:
        """Like the missing value of pandas, which is equal to nothing."""

    row = {
        "text": "a", "x": np.float32(0.5), "n": np.int64(3), "b": np.bool_(True), "nan": float("nan"), 5: None,
        "day": datetime.date(2021, 3, 5), "raw": b"\0", "na": NAType(), "deep": {"a": (1, [np.int8(2)])},
    }  # fmt: skip
    assert records([row]) == [
        {"text": "a", "x": 0.5, "n": 3, "b": True, "nan": None, "5": None, "day": "2021-03-05", "raw": None, "na": None}
        | {"deep": {"a": [1, [2]]}}
    ]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (3, "train: expected rows that are dictionaries, not int"),
        ([], "train: there is no row in this table"),
        (["a text"], "train: expected rows that are dictionaries, not str"),
        ({"a": ["x"], "b": ["y", "z"]}, "train: the columns have different lengths (1, 2)"),
        (Frame(ROWS, ["n", "n"]), "train: several columns have one name ('n')"),
    ],
    ids=["number", "nothing", "texts", "lengths", "names"],
)
def test_what_is_no_table_is_refused(table: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        with_stored_tables({"train": table}, tmp_path / "r")
    assert error.value.message == message


def test_a_table_and_a_file_for_one_part_are_refused() -> None:
    with pytest.raises(UsageError, match="train and train_file were given"):
        glassformer.train("classify", train=ROWS, train_file="a.csv")


def test_a_missing_text_names_its_row(tmp_path: Path) -> None:
    rows = [*ROWS[:3], {"n": 3, "review": None, "verdict": "a"}]
    with pytest.raises(DataError, match=r"run\.train\.jsonl:4: 'review' is null"):
        glassformer.train("classify", train=rows, out=tmp_path / "run", **SETTINGS)
