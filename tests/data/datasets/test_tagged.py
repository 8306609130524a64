"""Sentences with tags read from columns and JSON Lines; what is wrong is named with file and line."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.for_each import for_each

from glassformer.config import DataConfig
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


def of_label(start: int, end: int, label: str = "X") -> dict[str, Any]:
    return {"start": start, "end": end, "label": label}


def write(path: Path, *lines: Any) -> Path:
    text = "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
    path.write_text(text, "utf-8")
    return path


@for_each("suffix", [".conll", ".txt", ".tsv", ".iob2"])
def test_columns_are_read(suffix, tmp_path):
    expected = ["Anna sees New York", "Go"], ["B-PER O B-LOC I-LOC", "O"]
    assert read(write(tmp_path / f"a{suffix}", CONLL))[:2] == expected
    tabs = CONLL.replace(" ", "\t").removeprefix("-DOCSTART-\t-X-\tO\n\n")
    assert read(write(tmp_path / f"b{suffix}", tabs))[:2] == expected
    assert read(write(tmp_path / f"a{suffix}", CONLL), tags="2")[1] == ["N V N N", "V"]


def test_columns_of_conllu_are_its_own(tmp_path):
    lines = ["# text = don't", "1-2\tdon't\t_\t_", "1\tdo\tdo\tAUX", "2\tn't\tnot\tPART", "", "1\tgo\tgo\tVERB", ""]
    text, tags, diagnostics = read(write(tmp_path / "a.conllu", "\n".join(lines)))
    assert (text, tags) == (["do n't", "go"], ["AUX PART", "VERB"])
    assert diagnostics.counts["lines of CoNLL-U that are no word"] == 1


def test_words_and_spans_of_json_lines_are_read_alike(tmp_path):
    words = {"tokens": ["Anna", "sees", "New", "York", "."], "tags": ["B-PER", "O", "B-LOC", "I-LOC", "O"]}
    of_text = [{"start": 10, "end": 18, "label": "LOC", "text": "New York"}, {"start": 0, "end": 4, "label": "PER"}]
    spans = {"text": "Anna sees New York.", "labels": ["news"], "spans": of_text, "answer": "accept"}
    for row, flags in ((words, {}), (spans, {"tags": "spans"}), ({"text": spans["text"], "spans": of_text}, {})):
        found = read(write(tmp_path / "a.jsonl", row), **flags)
        assert found[:2] == (["Anna sees New York ."], ["B-PER O B-LOC I-LOC O"]) and not found[2].issues
    with pytest.raises(UsageError, match="'spans' and 'labels' may both be the tags"):
        read(write(tmp_path / "a.jsonl", spans))


FORMS = """S-X O B-X E-X/U-X O B-X L-X/I-X I-X O O/B-X I-Y O O/B_PER I_PER O O/PER-B PER-I O O/B:PER I:PER O O
b-per i-per o o/B–X I–X O O/B-X I-X out B-Y/B I O O/name=B-X name=I-X O O/B-X B-Y M-X O/B_PER I_PER O _"""


@for_each("tags", re.split("[/\n]", FORMS))
def test_tags_of_spans_in_another_form_are_refused(tags, tmp_path):
    rows = [f"{word} {tag}\n" for word, tag in zip("abcd", tags.split(), strict=True)]
    [issue] = read(write(tmp_path / "a.conll", "x O\n\n", *rows))[2].issues
    assert issue.line == 3 and re.search("(is no IOB2|continues no span), at the word", issue.message)


@for_each("tags", ["NOUN VERB O X", "B-X I-X B-X I-X", "B-X-Y I-X-Y O O", "NN -LRB- . ''", "S I V P"])
def test_tags_in_iob2_and_plain_ones_are_read(tags, tmp_path):
    rows = [f"{word} {tag}\n" for word, tag in zip("abcd", tags.split(), strict=True)]
    found = read(write(tmp_path / "a.conll", *rows))
    assert found[1] == [tags] and not found[2].issues


def test_what_was_read_is_noted(tmp_path):
    found = read(write(tmp_path / "b.conll", "Lee B-X\ndon't O\n3.5 O\n! O\n"))[2]
    assert not +found.counts and found.notes == ["b.conll: words are 1, tags are 2; first example: 'Lee' | 'B-X'"]


@pytest.mark.parametrize("suffix", [".conll", ".jsonl"])
def test_the_columns_of_training_are_read_again(suffix, tmp_path):
    train, test = tmp_path / f"a{suffix}", tmp_path / f"t{suffix}"
    words = [[f"Anna{i}", "sees"] for i in range(20)]
    if suffix == ".conll":
        write(train, *(f"{name} B-X\n{verb} O\n\n" for name, verb in words))
        write(test, *(f"{name} B-X O\n{verb} O B-X\n\n" for name, verb in words))
    else:
        right, wrong = {"ner_tags": ["B-X", "O"]}, {"tags": ["O", "B-X"]}
        write(train, *({"tokens": each} | right for each in words))
        write(test, *({"tokens": each} | wrong | right for each in words))
    data = load_text_data(Tag.schema, DataConfig(train_file=str(train), test_file=str(test)))
    assert data.test is not None and {*data.test.answers} == {"B-X\nO"}


@for_each(
    ("lines", "texts", "n"),
    [
        ("token\tupos\n# newdoc\na\tDET\ndog\tNOUN\n\n#\tDET\n", ["a dog", "#"], 2),
        ("word\ttag\nAnna\tB-X\nsees\tO\n", ["Anna sees"], 1),
        ("# newdoc\na D\nb N\n\n# newdoc\n#hash N\nc D\n", ["a b", "#hash c"], 2),
        ("# id 5\tdomain=en\nAnna _ B-X\nsees _ O\n\n# id 6\tdomain=en\nBob _ B-X\n", ["Anna sees", "Bob"], 2),
        ("#begin document\nAnna B-X\n#one B-X\n\n#two B-RARE\n", ["Anna #one", "#two"], 1),
        ("Anna\tX\tB-X\n\n-DOCSTART- -X- -X- O\n\nsees\tX\tO\n", ["Anna", "sees"], 0),
        ("-DOCSTART- (1 X)\n\nAnna\tB-X\t\nsees\tO\t\n", ["Anna sees"], 0),
        ("text N\nand V\n\nof V\ntext N\n", ["text and", "of text"], 0),
        ("# made by hand\n# 2024\nword\ttag\n\nAnna\tB-X\nsees\tO\n", ["Anna sees"], 3),
    ],
)
def test_headers_and_comments_are_no_words(lines, texts, n, tmp_path):
    found, _, diagnostics = read(write(tmp_path / "a.conll", lines))
    assert (found, diagnostics.issues) == (texts, [])
    assert diagnostics.counts["headers and comments"] == n
    assert any("headers and comments, which are no words" in note for note in diagnostics.notes) == bool(n)


@for_each("first", ["1212", "789", "aaa"])
def test_a_first_column_that_is_none_of_words_is_refused(first, tmp_path):
    path = write(tmp_path / "b.conll", *(f"{at} w{i} {'ND'[i % 2]}\n" for i, at in enumerate(first)))
    assert "the first column counts the words, or repeats" in read(path)[2].issues[0].message
    assert not read(path, words="2")[2].issues


def test_a_last_column_that_is_none_of_tags_is_refused(tmp_path):
    path = write(tmp_path / "b.conll", *(f"w{i % 9} {'ND'[i % 2]} 0.{i}\n" for i in range(60)))
    assert "the last column is none of tags, with 60 different values in 60 rows" in read(path)[2].issues[0].message
    assert not read(path, tags="2")[2].issues


def test_words_with_spaces_are_written_with_another_character(tmp_path):
    found = read(write(tmp_path / "a.conllu", "1\t10 000\t_\tNUM\n2\tmots\t_\tNOUN\n"))
    assert found[0] == ["10_000 mots"] and found[2].counts["words with spaces, written with _"] == 1


@for_each("mark", [{"answer": "reject"}, {"answer": "ignore"}, {"status": "Discarded"}, {"was_cancelled": True}])
def test_rejected_annotations_are_refused(mark, tmp_path):
    [issue] = read(write(tmp_path / "a.jsonl", {"tokens": ["a"], "tags": ["O"]} | mark))[2].issues
    assert "so this annotation was rejected" in issue.message


@for_each(
    ("name", "lines", "line", "message"),
    [
        ("a.conll", "a O\nb\n", 2, "2 columns are expected, as a word and its tag or more, but there are 1"),
        ("a.conll", "a X O\nb O\n", 2, "3 columns are expected"),
        ("a.conll", "a\tO\n\tO\n", 2, "2 columns are expected"),
        ("a.conll", "\n\na\t\n", 3, "2 columns are expected"),
        ("a.conll", "a\tb c\nd\tO\n", 1, "word 1 ('a') has the tag 'b c', which is no tag"),
        ("a.jsonl", '{"tokens": ["a", "b"], "tags": ["O"]}\n', 1, "2 words, but 1 tags; each word has one"),
        ("a.jsonl", '{"tokens": ["a", ""], "tags": ["O", "O"]}\n', 1, "word 2 is ''"),
        ("a.jsonl", '{"tokens": ["a"], "ner_tags": [3]}\n', 1, "the tags are a list of strings, and 3 is of type int"),
        ("a.jsonl", '{"tokens": "ab", "words": 3}\n', 1, "but there is 'tokens', 'words'; name them (--text-column …"),
        ("a.jsonl", '{"words": "ab c", "tags": "O O"}\n', 1, "are expected"),
        ("a.jsonl", '["ab c", {"entities": [[0, 2, "X"]]}]\n', 1, "a JSON object is expected, not list"),
        ("a.jsonl", '{"text": "ab", "spans": [], "e": [[0, 2, "X"]]}\n', 1, "name them (--label-column e)"),
        ("a.jsonl", '{"text": "ab", "tags": [], "e": [{"label": "X"}]}\n' * 9, 1, "'e'; name them (--label-column e)"),
        ("a.jsonl", '{"tokens": [{"text": "ab", "start": 0}], "tags": ["O"]}\n', 1, "are a list of strings"),
    ],
)
def test_a_bad_line_is_named(name, lines, line, message, tmp_path):
    path = write(tmp_path / name, lines)
    with pytest.raises(DataError) as error:
        read(path)[2].raise_if_any()
    assert message in str(error.value)
    assert str(error.value).startswith(f"{path}:{line}: ") and "more problems" not in str(error.value)


@for_each(
    ("spans", "message"),
    [
        ([of_label(0, 99)], "lies outside of the text's 12 characters"),
        ([of_label(4, 5)], "begins or ends within a word, or at a space"),
        ([of_label(0, 5)], "begins or ends within a word, or at a space"),
        ([of_label(0, 4), of_label(0, 8, "Y")], "the spans of X and Y overlap at"),
        ([of_label(0, 4), of_label(0, 4)], "the spans of X and X overlap at"),
        ([of_label(6, 9) | {"text": "Eva"}], "is 'ür ', and its text is 'Eva'; count characters from 0"),
        ([[0, 4, "X"]], 'a span is {"start": 0, "end": 4, "label": "PER"}, not [0, 4,'),
        ([{"start_offset": 0, "end_offset": 4, "label": "X"}], 'a span is {"start": 0'),
        ([{"start": 0, "end": 4, "labels": ["X"]}], 'a span is {"start": 0'),
        ({"start": 0}, 'a span is {"start": 0'),
    ],
)
def test_what_is_no_span_of_words_is_refused(spans, message, tmp_path):
    [issue] = read(write(tmp_path / "a.jsonl", {"text": "Köln für Eva", "spans": spans}))[2].issues
    assert message in issue.message and issue.line == 1


def test_other_files_and_columns_are_refused(tmp_path):
    with pytest.raises(UsageError, match="tagged sentences are in"):
        read(write(tmp_path / "a.csv", "text,tags\n"))
    with pytest.raises(UsageError, match="columns have numbers"):
        read(write(tmp_path / "a.conll", CONLL), tags="ner")


def load(train: Path, **files: Any) -> Any:
    return load_text_data(Tag.schema, DataConfig(train_file=str(train), **files))


@for_each(
    ("train", "test", "place", "message"),
    [
        ("a B-X\n", "b O\n\na O\nc B-Y\n", "t.conll:3", "word 2 ('c'): tag 'B-Y' is not one of the"),
        ("a N\nb V\n", "a A\n", "t.conll:1", "tag 'A' is not one of the training data's (N, V)"),
        ("a B-X\n\nb O\nc NOUN\n", "a O\n", "a.conll:3", "'NOUN' is no IOB2, at the word 'c'"),
        ("a O\n\nb O\n", "a O\n", "a.conll: ", "two or more tags are needed, found ['O']"),
    ],
)
def test_unseen_and_mixed_tags_are_named(train, test, place, message, tmp_path):
    files = write(tmp_path / "a.conll", train), write(tmp_path / "t.conll", test)
    with pytest.raises(DataError) as error:
        load(files[0], valid_file=str(files[0]), test_file=str(files[1]))
    assert place in str(error.value) and message in str(error.value)


def test_i_of_a_label_that_training_begins_alone_is_known(tmp_path):
    files = write(tmp_path / "a.conll", "a B-X\n"), write(tmp_path / "t.conll", "a B-X\nb I-X\n")
    data = load(files[0], valid_file=str(files[0]), test_file=str(files[1]))
    assert Tag.classes_of(data.train) == ["O", "B-X", "I-X"]


def test_each_tag_stays_in_training_where_validation_is_set_aside(tmp_path):
    rare = [f"w{i} O\nx{i} B-{'RARE' if i < 2 else 'X'}\n\n" for i in range(40)]
    data = load(write(tmp_path / "a.conll", *rare))
    assert "B-RARE" in "\n".join(data.train.answers) and len(data.valid) == 4


def test_a_check_counts_words_and_spans_by_label(tmp_path):
    path = write(tmp_path / "a.conll", CONLL, "\nBob N B-PER\n")
    report = check_data(Tag.schema, DataConfig(train_file=str(path), valid_file=str(path)))
    assert report.ok and report.sizes == {"train": 3, "valid": 3}
    wanted = {"train: words": 6, "train: words tagged O": 2, "train: spans of PER": 2, "train: spans of LOC": 1}
    assert wanted.items() <= report.counts.items()


def test_a_word_that_may_be_a_comment_is_shown_first(tmp_path):
    comments = "".join(f"# text = a film of {i} hours\na D\nfilm N\n\n" for i in range(20))
    found, _, diagnostics = read(write(tmp_path / "a.conll", comments, "# SYM\nb N\n"))
    assert len(found) == 21 and diagnostics.counts["headers and comments"] == 21
    assert "no words: '# SYM', '# text = a film of 0 hours'" in diagnostics.notes[0]
