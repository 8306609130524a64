"""Sentences with tags read from columns and JSON Lines; what is wrong is named with file and line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.for_each import for_each

from glassformer.config import DataConfig, FilesConfig
from glassformer.data.check import check_data
from glassformer.data.datasets.local_files import load_text_data
from glassformer.data.diagnostics import Diagnostics
from glassformer.errors import DataError, UsageError
from glassformer.tasks.encoder import Tag

CONLL = "-DOCSTART- -X- O\n\nAnna N B-PER\nsees V O\nNew N B-LOC\nYork N I-LOC\n\n\nGo V O\n"


def read(path: Path, *, words: str | None = None, tags: str | None = None) -> tuple[list[str], list[str], Diagnostics]:
    diagnostics = Diagnostics()
    columns = Tag.schema.columns
    assert columns is not None and Tag.schema.read is not None
    specs = replace(columns[0], requested=words), replace(columns[1], requested=tags)
    rows = Tag.schema.read(path, specs, diagnostics)
    return rows.text, [answer.replace("\n", " ") for answer in rows.answer], diagnostics


def write(path: Path, *lines: Any) -> Path:
    text = "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
    path.write_text(text, encoding="utf-8")
    return path


@for_each("suffix", [".conll", ".txt", ".tsv", ".iob2"])
def test_columns_are_read(suffix: str, tmp_path: Path) -> None:
    expected = ["Anna sees New York", "Go"], ["B-PER O B-LOC I-LOC", "O"]
    assert read(write(tmp_path / f"a{suffix}", CONLL))[:2] == expected
    tabs = CONLL.replace(" ", "\t").removeprefix("-DOCSTART-\t-X-\tO\n\n")
    assert read(write(tmp_path / f"b{suffix}", tabs))[:2] == expected
    assert read(write(tmp_path / f"a{suffix}", CONLL), tags="2")[1] == ["N V N N", "V"]


def test_columns_of_conllu_are_its_own(tmp_path: Path) -> None:
    lines = ["# text = don't", "1-2\tdon't\t_\t_", "1\tdo\tdo\tAUX", "2\tn't\tnot\tPART", "", "1\tgo\tgo\tVERB", ""]
    text, tags, diagnostics = read(write(tmp_path / "a.conllu", "\n".join(lines)))
    assert (text, tags) == (["do n't", "go"], ["AUX PART", "VERB"])
    assert diagnostics.counts["lines of CoNLL-U that are no word"] == 1


def test_words_and_spans_of_json_lines_are_read_alike(tmp_path: Path) -> None:
    words = {"tokens": ["Anna", "sees", "New", "York", "."], "tags": ["B-PER", "O", "B-LOC", "I-LOC", "O"]}
    text = "Anna sees New York."
    spans = {"text": text, "spans": [[10, 18, "LOC"], [0, 4, "PER"]]}
    objects = {
        "text": text,
        "entities": [{"start": 0, "end": 5, "label": "PER"}, {"start": 10, "end": 18, "type": "LOC"}],
    }
    inside = {"text": text, "labels": [[1, 3, "PER"], [11, 15, "LOC"]]}
    first, *others = [read(write(tmp_path / "a.jsonl", row)) for row in (words, spans, objects, inside)]
    assert first[:2] == (["Anna sees New York ."], ["B-PER O B-LOC I-LOC O"])
    assert all(other[:2] == first[:2] and not other[2].issues for other in others)
    assert [other[2].counts["spans widened to whole words"] for other in others] == [0, 0, 2]


def test_tags_of_other_schemes_are_counted(tmp_path: Path) -> None:
    _, tags, diagnostics = read(write(tmp_path / "a.conll", "a I-X\nb I-X\nc O\nd S-Y\n"))
    assert tags == ["B-X I-X O B-Y"] and diagnostics.counts["tags brought to IOB2"] == 2
    assert "a.conll: tags were brought to IOB2, the first in line 1, word 1 ('a'): I-X is B-X" in diagnostics.notes


def test_words_that_running_text_would_cut_are_noted(tmp_path: Path) -> None:
    found = read(write(tmp_path / "a.conll", "Dr. B-X\nLee I-X\nsaw O\n\nit O\nis O\n\n'll O\n"))[2]
    assert found.counts["sentences whose words running text cuts otherwise"] == 2
    [note] = [note for note in found.notes if "predict would cut" in note]
    assert "in 2 of 3 sentences" in note and "'Dr.' into 'Dr .'" in note
    whole = read(write(tmp_path / "b.conll", "Lee B-X\ndon't O\n3.5 O\n! O\n"))[2].notes
    assert whole == ["b.conll: words are 1, tags are 2; first example: 'Lee' | 'B-X'"]


@pytest.mark.parametrize("suffix", [".conll", ".jsonl"])
def test_the_columns_of_training_are_read_again(suffix: str, tmp_path: Path) -> None:
    train, test = tmp_path / f"a{suffix}", tmp_path / f"t{suffix}"
    words = [[f"Anna{i}", "sees"] for i in range(20)]
    if suffix == ".conll":
        write(train, *(f"{name} B-X\n{verb} O\n\n" for name, verb in words))
        write(test, *(f"{name} B-X O\n{verb} O B-X\n\n" for name, verb in words))
    else:
        right, wrong = {"ner_tags": ["B-X", "O"]}, {"tags": ["O", "B-X"]}
        write(train, *({"tokens": each} | right for each in words))
        write(test, *({"tokens": each} | wrong | right for each in words))
    data = load_text_data(Tag.schema, DataConfig(files=FilesConfig(train_file=str(train), test_file=str(test))))
    assert data.test is not None and {*data.test.answers} == {"B-X\nO"}


def test_headers_and_comments_are_no_words_and_counts_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "token\tupos\n# newdoc\na\tDET\ndog\tNOUN\n\n#\tSYM\n")
    texts, tags, diagnostics = read(path)
    assert (texts, tags) == (["a dog", "#"], ["DET NOUN", "SYM"])
    assert diagnostics.counts["headers"] == diagnostics.counts["comments"] == 1
    counted = read(write(tmp_path / "b.conll", "1 a DET\n2 dog NOUN\n\n1 b DET\n"))[2]
    assert "the first column counts the words of each sentence" in counted.issues[0].message
    assert read(path=tmp_path / "b.conll", words="2")[0] == ["a dog", "b"]


def test_a_field_that_is_empty_does_not_hide_another(tmp_path: Path) -> None:
    row = {"text": "Anna sees", "labels": [], "entities": [[0, 4, "X"]]}
    assert read(write(tmp_path / "a.jsonl", row))[1] == ["B-X O"]


@for_each(
    ("name", "lines", "line", "message"),
    [
        ("a.conll", "a O\nb\n", 2, "2 columns are expected, as a word and its tag or more, but there are 1"),
        ("a.conll", "a X O\nb O\n", 2, "3 columns are expected"),
        ("a.conll", "word\n", 1, "2 columns are expected"),
        ("a.conll", "a\tO\nb c\tO\n", 1, "word 2 is 'b c': a word is not empty and holds no space"),
        ("a.conll", "\n\na\t\n", 3, "has the tag '': a tag is not empty"),
        ("a.jsonl", '{"tokens": ["a", "b"], "tags": ["O"]}\n', 1, "2 words, but 1 tags; each word has one"),
        ("a.jsonl", '{"tokens": ["a", ""], "tags": ["O", "O"]}\n', 1, "word 2 is ''"),
        ("a.jsonl", '{"tokens": ["a"], "ner_tags": [3]}\n', 1, "the tags are strings, and 3 is of type int"),
        ("a.jsonl", '{"tokens": "ab", "words": 3}\n', 1, "is expected .*, but there is 'tokens', 'words'"),
        ("a.jsonl", '{"text": "ab c", "spans": [[0, 9, "X"]]}\n', 1, "lies outside of the text's 4 characters"),
        ("a.jsonl", '{"text": "ab c", "spans": [[2, 2, "X"]]}\n', 1, "lies outside"),
        ("a.jsonl", '{"text": "ab c", "spans": [[2, 3, "X"]]}\n', 1, "holds no word"),
        ("a.jsonl", '{"text": "ab c", "spans": [[0, 1, "X"], [1, 4, "Y"]]}\n', 1, "the spans of X and Y overlap at"),
        ("a.jsonl", '{"text": "ab c", "spans": [[0, "X"]]}\n', 1, r"a span is \[start, end, label\]"),
        ("a.jsonl", '{"text": "ab c", "spans": {"start": 0}}\n', 1, "the spans of a text are a list, not dict"),
    ],
)
def test_a_bad_line_is_named(name: str, lines: str, line: int, message: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, lines)
    with pytest.raises(DataError, match=message) as error:
        read(path)[2].raise_if_any()
    assert str(error.value).startswith(f"{path}:{line}: ")


def test_other_files_and_columns_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="tagged sentences are in a"):
        read(write(tmp_path / "a.csv", "text,tags\n"))
    with pytest.raises(UsageError, match="columns have numbers"):
        read(write(tmp_path / "a.conll", CONLL), tags="ner")


def load(train: Path, **files: Any) -> Any:
    return load_text_data(Tag.schema, DataConfig(files=FilesConfig(train_file=str(train), **files)))


@for_each(
    ("train", "test", "place", "message"),
    [
        ("a B-X\n", "b O\n\na O\nc B-Y\n", "t.conll:3", "word 2 ('c'): tag 'B-Y' is not one of the"),
        ("a N\nb V\n", "a A\n", "t.conll:1", "tag 'A' is not one of the training data's (N, V)"),
        ("a B-X\n\nb O\nc NOUN\n", "a O\n", "a.conll:3", "word 2 ('c'): tag 'NOUN' is not one of the"),
        ("a O\n\nb O\n", "a O\n", "a.conll: ", "two or more tags are needed, found ['O']"),
    ],
)
def test_unseen_and_mixed_tags_are_named(train: str, test: str, place: str, message: str, tmp_path: Path) -> None:
    files = write(tmp_path / "a.conll", train), write(tmp_path / "t.conll", test)
    with pytest.raises(DataError) as error:
        load(files[0], valid_file=str(files[0]), test_file=str(files[1]))
    assert place in str(error.value) and message in str(error.value)


def test_i_of_a_label_that_training_begins_alone_is_known(tmp_path: Path) -> None:
    files = write(tmp_path / "a.conll", "a B-X\n"), write(tmp_path / "t.conll", "a B-X\nb I-X\n")
    data = load(files[0], valid_file=str(files[0]), test_file=str(files[1]))
    assert Tag.classes_of(data.train) == ["O", "B-X", "I-X"]


def test_each_tag_stays_in_training_where_validation_is_set_aside(tmp_path: Path) -> None:
    rare = [f"w{i} O\nx{i} B-{'RARE' if i < 2 else 'X'}\n\n" for i in range(40)]
    data = load(write(tmp_path / "a.conll", *rare))
    assert "B-RARE" in "\n".join(data.train.answers) and len(data.valid) == 4


def test_a_check_counts_words_and_spans_by_label(tmp_path: Path) -> None:
    path = write(tmp_path / "a.conll", CONLL, "\nBob N B-PER\n")
    report = check_data(Tag.schema, DataConfig(files=FilesConfig(train_file=str(path), valid_file=str(path))))
    assert report.ok and report.sizes == {"train": 3, "valid": 3}
    wanted = {"train: words": 6, "train: words tagged O": 2, "train: spans of PER": 2, "train: spans of LOC": 1}
    assert wanted.items() <= report.counts.items()
