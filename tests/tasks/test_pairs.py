"""Pairs of texts: two columns, one separator, segments; trained, answered, explained, exported, or refused."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from tests.helpers.for_each import for_each
from tests.helpers.pretrained import bert_folder, byte_level
from tests.helpers.reading import written
from tests.tasks.heads import OF_PAIRS, PAIR
from tests.tasks.heads import rows as made

import glassformer
from glassformer.cli.flags import use_of
from glassformer.config import DataConfig, TextConfig
from glassformer.data.datasets.local_files import load_text_data
from glassformer.errors import DataError, UsageError
from glassformer.evaluate.baselines import Known, class_baselines
from glassformer.explain.watch import default_texts
from glassformer.interop import transfer
from glassformer.run import Run
from glassformer.tasks.encoder import Classify
from glassformer.text.long_text import ArrivingLines
from glassformer.text.pairs import SEPARATOR, PairTokenizer, join_pair, split_pair
from glassformer.text.tokenizer import SpecialTokens, Tokenizer

COLUMNS = ["premise", "hypothesis", "label"]
TINY: dict[str, Any] = {"threads": 1, "steps": 2, **OF_PAIRS}


def rows(n: int, seed: int = 0) -> list[tuple[str, str, str]]:
    """Return pairs whose label is whether the second text names a word of the first."""
    return [(row["premise"], row["hypothesis"], row["label"]) for row in made("pairs", n, seed)]


def write(path: Path, examples: list[tuple[str, str, str]], header: list[str] | None = COLUMNS) -> Path:
    path.write_text(written([*([header] if header else []), *examples]), "utf-8")
    return path


@pytest.fixture(scope="module")
def trained(runs_of: Callable[[str], Path]) -> Path:
    return runs_of("pairs")


@pytest.fixture(scope="module")
def run(trained: Path) -> Run:
    return glassformer.load(trained, precision="fp32")


def read(path: Path, **files: Any) -> list[str]:
    return load_text_data(Classify.schema, DataConfig(train_file=str(path), **files)).train.text


# --- data ---------------------------------------------------------------------------------------------------


def test_without_the_flag_nothing_is_a_pair(tmp_path):
    path = write(tmp_path / "a.csv", rows(20))
    assert not any("[SEP]" in text for text in read(path, text_column="premise"))
    assert {*read(path, pair_column="hypothesis")} <= {f"{first} [SEP] {second}" for first, second, _ in rows(20)}
    with pytest.raises(UsageError, match="no column that is known to hold the text; its columns: premise, hypothesis"):
        read(path, header="yes")


@for_each(
    ("row", "message"),
    [
        (("red", " ", "no"), "the second text of the pair is empty"),
        (("", "red", "no"), "the first text of the pair is empty"),
        (("red [SEP] dog", "cat", "no"), "the first text holds [SEP], which divides"),
    ],
)
def test_a_bad_row_is_named(row, message, tmp_path):
    path = write(tmp_path / "a.csv", [*rows(20), row])
    with pytest.raises(DataError) as error:
        read(path, pair_column="hypothesis")
    assert message in str(error.value) and f"{path}:22" in str(error.value)


# --- text and tokens ----------------------------------------------------------------------------------------


@for_each("pair", [("a", "b"), ("a ", " b"), ("", ""), ("a\n", "b [ SEP"), ("ä", "[SEP")])
def test_a_pair_is_one_text_and_back(pair):
    assert split_pair(join_pair(*pair)) == pair


@for_each("text", ["a b", "a [SEP] b [SEP] c", ""])
def test_what_is_no_pair_is_refused(text, run):
    with pytest.raises(DataError, match=r"reads two texts, with one \[SEP\] between them") as error:
        run.predict(text)
    assert error.value.hint == "write the pair as: first text [SEP] second text"


def own(kind: str) -> Tokenizer:
    return Tokenizer.train(["a b c d e f g"] * 3, TextConfig(tokenizer=kind, vocab_size=300))  # type: ignore[arg-type]


@for_each("kind", ["word", "char", "byte-bpe", "bpe"])
def test_each_side_is_encoded_as_a_text_of_its_own(kind, tmp_path):
    pairs, plain = PairTokenizer.of(own(kind)), own(kind)
    pairs.save(tmp_path / "tokenizer.json")
    for t in (pairs, Tokenizer.load(tmp_path / "tokenizer.json")):
        assert t.encode("a b [SEP] c  d") == [*plain.encode("a b"), plain.eos_id, *plain.encode("c  d")]
        assert t.sha256 == pairs.sha256 != plain.sha256
        spans = t.offsets(text := "a b [SEP] c  d")
        assert len(spans) == len(t.encode(text))
        assert "".join(text[a:b] for a, b in spans).replace(" ", "") == "ab[SEP]cd"
    assert plain.encode("[EOS] a").count(plain.eos_id) == 0


@for_each(
    ("lengths", "room", "kept"),
    [((3, 3), 7, (3, 3)), ((9, 2), 7, (4, 2)), ((2, 9), 7, (2, 4)), ((9, 9), 8, (4, 3)), ((9, 9), 3, (1, 1))],
)
def test_the_longer_text_is_cut_first(lengths, room, kept):
    t = PairTokenizer.of(own("char"))
    first, second = ("abcdefgab"[:n] for n in lengths)
    for keep in ("head", "tail", "head+tail"):
        [cut] = t.encode_cut([f"{first} [SEP] {second}"], room, keep)
        at = cut.ids.index(t.eos_id)
        assert (at, len(cut.ids) - at - 1) == kept and ("truncated" in cut.mark) == (sum(lengths) + 1 > room)
        if keep == "tail":
            assert cut.ids[-1] == t.encode("x [SEP] " + second)[-1]
    with pytest.raises(UsageError, match="no room"):
        t.encode_cut(["abc [SEP] abc"], 2)


def test_a_bert_pair_has_its_ids_and_its_segments(tmp_path, monkeypatch):
    """The reference is the pair template of the tokenizer that BERT comes with."""
    monkeypatch.setattr(transfer, "check_import", lambda *_: None)
    folder = bert_folder(tmp_path / "bert", "bare", lambda tensors, config: config.update(type_vocab_size=2))
    glassformer.import_model(folder, tmp_path / "bare")
    data = [("the film was not good", f"a film was {'good' if i % 2 else 'not'}", "ab"[i % 2]) for i in range(40)]
    data = [(f"{a} an" * (i % 3 + 1), b, label) for i, (a, b, label) in enumerate(data)]
    path = write(tmp_path / "a.csv", data)
    options: dict[str, Any] = {"steps": 2, "threads": 1, "init_from": str(tmp_path / "bare"), "train_file": str(path)}
    run = glassformer.train("classify", out=tmp_path / "run", **PAIR, **options)
    backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.no_padding()
    backend.no_truncation()
    theirs = backend.encode("the film", "was not good")
    e = run.explain(("the film", "was not good"))
    assert e.streams[0].ids == theirs.ids
    assert e["embedding.segment_ids"].tolist() == theirs.type_ids
    assert run.model.get_parameter("segments.weight").shape[0] == 2
    assert e.streams[0].words == [-1, 0, 1, -1, 2, 3, 4, -1]


def test_a_roberta_pair_has_two_ends_between(tmp_path):
    byte_level(tmp_path, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    content = (tmp_path / "tokenizer.json").read_text("utf-8")
    special = SpecialTokens(270, pad=1, unk=3, bos=0, eos=2, mask=4, prefix=(0,), suffix=(2,))
    t = PairTokenizer.of(Tokenizer.imported(json.loads(content), special))
    expected = tokenizers.Tokenizer.from_str(content).encode("the film", "was good").ids
    assert t.framed(t.encode("the film [SEP] was good")) == expected
    t.save(tmp_path / "kept.json")
    assert Tokenizer.load(tmp_path / "kept.json").encode("a [SEP] b") == t.encode("a [SEP] b")


# --- trained, answered, explained ---------------------------------------------------------------------------


def test_every_form_of_a_pair_gets_one_answer(run):
    answer = run.predict(("red dog", "there is red"))
    assert list(answer)[:3] == ["text", "pair", "label"]
    assert (answer["text"], answer["pair"]) == ("red dog", "there is red")
    assert run.predict("red dog [SEP] there is red") == answer
    with pytest.raises(DataError, match="text 1 is of type list, not a string"):
        run.predict([["red dog", "there is red"]])  # pyright: ignore
    pairs = [("red dog", "there is red")]
    assert run.predict(pairs) == [answer] == [*run.predict_stream(pairs)]


def test_the_command_that_uses_it_takes_a_pair(trained, run):
    assert use_of(trained, run.task.tokenizer) == f'glassformer predict {trained} "… [SEP] …"'


def test_second_texts_are_refused_where_one_is_read(tmp_path, trained, runs_of, cli):
    table, single = write(tmp_path / "s.csv", rows(40)), runs_of("multilabel")
    cli("evaluate", single, "--test-file", table, "--pair-column", "hypothesis").refused("one text, and a")
    cli("predict-table", single, table, tmp_path / "o.csv", "--pair-column", "label").refused("one text, and a")
    with pytest.raises(UsageError, match="reads pairs of texts, and here each text stands alone"):
        glassformer.train("classify", init_from=str(trained), train_file=table, steps=1, out=tmp_path / "again")
    cli("train", "lm", "--train-file", table, "--pair-column", "b").refused()


def test_other_files_are_scored_with_the_columns_of_training(trained, tmp_path, cli):
    path = write(tmp_path / "t.csv", rows(30, 2), [*COLUMNS])
    evaluate = ["evaluate", trained, "--test-file", path]
    assert cli(*evaluate, "--json").ok.json["n"] == 30
    write(path, rows(30, 2), ["a", "b", "c"])
    cli(*evaluate).refused("--header yes or --header no")
    lacking = "no columns 'premise' and 'hypothesis' and 'label', which the training data has"
    cli(*evaluate, "--header", "yes").refused(lacking)
    assert cli(*evaluate, "--text-column", "a", "--pair-column", "b", "--label-column", "c").ok


def test_words_of_both_texts_are_weighed_and_the_separator_is_not(run):
    e = run.explain(("red dog", "there is red"), member=1)
    assert [*e.streams[0].pieces] == ["red", "dog", "[EOS]", "there", "is", "red"]
    assert e.streams[0].word_texts == ["red", "dog", "there", "is", "red"] and e.streams[0].words[2] == -1
    weights = e.attribute()
    assert weights.scores["text"][2] == 0 and all(weights.scores["text"][i] for i in (0, 1, 3, 4, 5))
    total = e.attribute("integrated_gradients")
    assert total.completeness is not None
    assert e["embedding.segment_ids"].tolist() == [0, 0, 0, 1, 1, 1]


def test_an_onnx_graph_answers_as_the_run(run, trained, tmp_path):
    run.export("onnx", tmp_path / "onnx")
    exported = glassformer.load(tmp_path / "onnx")
    pairs = [("red dog", "there is red"), ("a", "dog " * 900)]
    for ours, theirs in zip(run.predict(pairs), exported.predict(pairs), strict=True):
        assert theirs["pair"] == ours["pair"] and theirs.get("truncated") == ours.get("truncated")
        assert theirs["probability"] == pytest.approx(ours["probability"], abs=1e-5)
    assert [spec.trained for spec in exported.text_columns((None, None))] == ["premise", "hypothesis"]
    assert "[3], and the ids of the second" in (tmp_path / "onnx" / "README.md").read_text("utf-8")
    tokenizers.Tokenizer.from_file(str(tmp_path / "onnx" / "tokenizer.json"))
    with pytest.raises(UsageError, match="hf is not written of a model that reads pairs of texts"):
        run.export("hf", tmp_path / "hf")


@pytest.mark.parametrize(("task", "answers"), [("multilabel", ("odd", "odd;even")), ("regress", ("1.5", "2"))])
def test_other_heads_read_pairs(task, answers, tmp_path):
    path = write(tmp_path / "a.csv", [(a, b, answers[i % 2]) for i, (a, b, _) in enumerate(rows(60))])
    files: dict[str, Any] = {"train_file": str(path), "test_file": str(path), **PAIR, **TINY}
    run = glassformer.train(task, out=tmp_path / "run", **files)
    answer = run.predict(("red dog", "there is red"))
    assert (answer["text"], answer["pair"]) == ("red dog", "there is red")
    assert run.explain(("red", "dog")).streams[0].words == [0, -1, 1]
    assert "of what both share" in (tmp_path / "run" / "report.md").read_text("utf-8")


def test_the_baseline_sees_what_both_texts_share():
    def part(n: int, seed: int) -> tuple[list[str], np.ndarray]:
        return [f"{a} [SEP] {b}" for a, b, _ in rows(n, seed)], np.array([int(c == "yes") for _, _, c in rows(n, seed)])

    train, test = part(500, 3), part(200, 1)
    alone, both = (class_baselines(Known(*train, pairs), Known(*test, pairs)) for pairs in (False, True))
    assert both["tfidf_logistic"]["accuracy"] > 0.95 > 0.8 > alone["tfidf_logistic"]["accuracy"]


def test_pairs_are_answered_as_they_arrive_and_a_wrong_line_is_shown(run):
    read, write = os.pipe()
    with os.fdopen(read, "rb") as stream:
        answers = run.predict_stream(ArrivingLines(stream))
        for line in ("red dog [SEP] there is dog", "sun moon [SEP] there is cat"):
            os.write(write, line.encode() + b"\n")
            answer = next(answers)
            assert join_pair(answer["text"], answer["pair"]) == line
        os.write(write, b"no pair\nc [SEP] d\n")
        os.close(write)
        with pytest.raises(DataError, match=r"this model reads two texts, .* 0 are in 'no pair'"):
            next(answers)


def test_a_table_of_pairs_without_a_header_is_read_whole(trained, tmp_path, cli):
    data, numbers = write(tmp_path / "a.csv", rows(40), None), ["--text-column", "1", "--pair-column", "2"]
    known = ["--label-column", "3", "--train-file", data]
    assert "examples in train  40" in cli("data", "check", "classify", *known, *numbers).ok.out
    assert cli("predict-table", trained, data, tmp_path / "o.csv", *numbers).ok
    assert len((tmp_path / "o.csv").read_text("utf-8").splitlines()) == 40
    with pytest.raises(UsageError, match="--pair-column names the column of the text"):
        read(data, text_column="1", pair_column="1", label_column="3")


def test_probes_of_pairs_are_never_half_a_pair(run, monkeypatch):
    monkeypatch.setattr("glassformer.explain.watch.examples", lambda subject: [])
    assert all(SEPARATOR in text for text in default_texts(run)["texts"])
    monkeypatch.setattr("glassformer.explain.watch.MAX_PROBE_CHARACTERS", 5)
    assert default_texts(run)["texts"] == []
