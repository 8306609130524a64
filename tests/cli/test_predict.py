import csv
import gzip
import io
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.ngram_runs import ngram_run
from tests.helpers.pretrained import bert_folder
from tests.helpers.reading import written
from tests.helpers.tiny_runs import SMALL

import glassformer
from glassformer.cli import use
from glassformer.data.answered_table import TableWriter, scan_table
from glassformer.errors import DataError, UsageError
from glassformer.utils import console


def test_classify_from_arguments_and_stdin_is_the_same(cli, runs):
    texts = ["a good film", "a bad film", ""]
    named = cli("predict", runs.classify, *texts, "--json")
    piped = cli("predict", runs.classify, "--json", stdin="\n".join(texts).encode() + b"\n")
    assert named.code == piped.code == 0 and named.out == piped.out
    rows = [json.loads(line) for line in named.out.splitlines()]
    assert [row["text"] for row in rows] == texts
    for row in rows:
        assert row["probability"] == max(row["probabilities"].values()) and row["label"] in ("neg", "pos")
        assert sum(row["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    label, probability = cli("predict", runs.classify, texts[0]).out.rstrip("\n").split("\t")
    assert label == rows[0]["label"] and float(probability) == pytest.approx(rows[0]["probability"], abs=1e-4)


@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["lf", "crlf"])
def test_translate_keeps_line_for_line(cli, runs, end):
    lines = ["number 3", "", "two\u2028parts", "\u0085", "number 4"]
    message = cli("predict", runs.translate, "--beam-size", "1", stdin=end.join(s.encode() for s in lines)).ok
    answers = message.out.split("\n")
    assert len(answers) == len(lines) + 1 and answers[1] == answers[-1] == ""


def test_n_best_is_ranked_and_a_blank_line_has_as_many_rows_as_another(cli, runs):
    options = ["--beam-size", "3", "--n-best", "3", "--max-new-tokens", "4"]
    message = cli("predict", runs.translate, *options, stdin=b"number 3\n\nnumber 4\n")
    rows = [line.split("\t") for line in message.out.rstrip("\n").split("\n")]
    assert [row[0] for row in rows] == ["1", "2", "3"] * 3
    scores = [float(row[1]) for row in rows[:3]]
    assert scores == sorted(scores, reverse=True)
    row = cli("predict", runs.translate, "number 3", *options, "--json").json
    assert [h["translation"] for h in row["n_best"]] == [row[2] for row in rows[:3]]
    cli("predict", runs.translate, "number 3", "--beam-size", "2", "--n-best", "3").refused("--beam-size 3")


def test_lm_continues_a_prompt_and_seeds_matter(cli, runs):
    options = ["--max-new-tokens", "20", "--top-p", "0.9"]
    first, again, other = (cli("predict", runs.lm, "In the", *options, "--decode-seed", seed).ok for seed in "112")
    assert first.out.startswith("In the") and first.out == again.out != other.out
    row = cli("predict", runs.lm, "In the", *options, "--decode-seed", "1", "--json").json
    assert console.printable(row["prompt"] + row["text"]) + "\n" == first.out


def test_what_begins_with_a_dash(cli, runs):
    cli("predict", runs.classify, "-good film").refused("-good film")
    taken = cli("predict", runs.classify, "--json", "--", "--json", "-good film")
    assert [json.loads(line)["text"] for line in taken.out.splitlines()] == ["--json", "-good film"]
    prompt = cli("predict", runs.lm, "- a", "--max-new-tokens", "1", "--json")
    assert prompt.json["prompt"] == "- a"


def test_empty_and_broken_stdin(cli, runs):
    empty = cli("predict", runs.translate).ok
    assert empty.out == "" and "nothing came on stdin" in empty.err
    cli("predict", runs.classify, stdin=b"fine\n\xff\xfe\n").refused("stdin:2: expected UTF-8, found byte 0xff", code=3)


def test_another_precision_answers_and_is_named_with_a_score(cli, runs):
    found = []
    for name in ("fp32", "bf16"):
        row = cli("predict", runs.classify, "a good film", "--json", "--precision", name).json
        found.append(row["probability"])
        scored = cli("evaluate", runs.classify, "--split", "valid", "--json", "--precision", name)
        assert scored.json["precision"] == row["precision"] == name
    assert found[0] != found[1] == pytest.approx(found[0], abs=0.02)


def test_an_answer_waits_for_no_library_that_it_does_not_need(runs):
    """Each of these takes as long to import as the answer itself; torch's compiler takes longer."""
    heavy = "torch._dynamo torch._inductor sympy scipy matplotlib sacrebleu sklearn rich pandas".split()
    code = (
        "import sys; from glassformer.cli.main import main; "
        f"main(['predict', {str(runs.translate)!r}, 'number 3']); "
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    message = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert message.stdout.splitlines()[1:] == ["[]"]


def test_texts_that_are_cut_are_counted_and_marked(cli, runs, tmp_path):
    long = "number 3 film " * 400
    for run, options in ((runs.classify, []), (runs.translate, ["--beam-size", "1"]), (runs.lm, ["--top-k", "1"])):
        limits = [] if run == runs.classify else ["--max-new-tokens", "2"]
        text = long[: 30 * 14] if run == runs.lm else long  # of a prompt every token is read
        message = cli("predict", run, "--json", *options, *limits, stdin=f"number\n{text}\nfilm\n".encode())
        rows = [json.loads(line) for line in message.out.splitlines()]
        assert [row.get("truncated", False) for row in rows] == [False, True, False]
        assert message.err.count("1 of 3 texts is longer than ") == 1
    (tmp_path / "t.csv").write_text(f"text,label\n{long},pos\nx,neg\n", "utf-8")
    message = cli("evaluate", runs.classify, "--test-file", tmp_path / "t.csv", "--json")
    assert message.json["n_truncated"] == 1 and "1 of 2 texts is longer than " in message.err


def test_a_wrong_type_is_answered_with_a_sentence(runs):
    run = glassformer.load(runs.classify)
    e = run.explain("good film")
    for texts in (5, None, b"bytes", {"a": 1}, Path("a"), 1.5, [None], ["a", 5], [b"a"], [Path("a")]):
        with pytest.raises(DataError, match=r"expected a text or a list of texts|not a string"):
            run.predict(texts)  # type: ignore[arg-type]
    for call in (
        lambda: run.explain(None),
        lambda: run.explain(["good film"]),
        lambda: run.predict_stream("good film"),
        lambda: run.predict_stream(5),
        lambda: glassformer.train(3),
        lambda: glassformer.load(None),
        lambda: glassformer.resume(5),
        lambda: e.attribute(prediction="first"),
    ):
        with pytest.raises((UsageError, DataError), match=r"must be|expected|no recipe|not "):
            call()


def test_a_text_has_one_answer_and_a_list_a_list(runs):
    run = glassformer.load(runs.classify)
    answer = run.predict("good film")
    assert isinstance(answer, dict) and [answer] == run.predict(["good film"]) == run.predict(("good film",))
    edit = "encoder.0.self.out=0"
    edited = run.predict("good film", edits=[edit])
    assert edited["text"] == "good film" and [edited] == run.predict(["good film"], edits=edit)
    assert run.predict([]) == []


def test_what_strangers_named_is_printed_without_control_characters(cli, tmp_path, runs, monkeypatch):
    answer = {"text": "a", "label": "x\x1b[31m1\u202e", "probability": 0.5}
    monkeypatch.setattr("glassformer.run.Run.predict_stream", lambda *_, **__: iter([answer]))
    assert cli("predict", runs.classify, "a").out == "x\\u001b[31m1\\u202e\t0.5000\n"
    assert cli("predict", runs.classify, "a", "--json").json["label"] == answer["label"]
    assert "evil\\u001b[31m" in cli("predict", tmp_path / "evil\x1b[31m", "a").err


def test_empty_texts_and_those_of_unknown_words_alone_are_counted(cli, runs, tmp_path, caplog):
    """Also by a model that reads the n-grams of unknown words."""
    assert "1 of 3 texts is empty" in cli("predict", runs.classify, "a", " ", "b").err
    assert "empty" not in cli("predict", runs.classify, "a").err
    (tmp_path / "t.csv").write_text('text,label\n"",pos\nx,neg\n', "utf-8")
    assert "1 of 2 texts is empty" in cli("evaluate", runs.classify, "--test-file", tmp_path / "t.csv").err
    run = ngram_run()
    [known] = run.task.tokenizer.tokens([run.task.tokenizer.vocab_size - 1])
    run.predict(["zzz qqq", f"zzz {known}"])
    assert "1 of 2 texts is read with 2 tokens unknown to the model" in caplog.text


def test_own_files_are_scored(cli, runs):
    pairs = ["--test-src-file", runs.src, "--test-tgt-file", runs.tgt, "--beam-size", "2"]
    for run, flags, task, keys in (
        (runs.classify, ["--test-file", runs.table], "classify", {"accuracy", "ci95", "macro_f1"}),
        (runs.translate, pairs, "translate", {"bleu", "bleu_signature", "chrf", "exact_match"}),
        (runs.lm, ["--test-file", runs.book], "lm", {"nats_per_token", "bits_per_char", "perplexity"}),
    ):
        message = cli("evaluate", run, *flags, "--json").ok
        scores = message.json
        assert scores["task"] == task and keys <= scores.keys() and not {"predictions", "examples"} & scores.keys()
        assert task == "lm" or scores["n"] == 60
        assert task != "translate" or scores["decode"]["beam_size"] == 2


def test_the_runs_own_splits(cli, runs):
    valid = cli("evaluate", runs.classify, "--split", "valid", "--json").json
    assert valid["split"] == "valid" and valid["n"] == 6
    cli("evaluate", runs.classify).refused("--split valid", code=3)


def test_evaluate_prints_headline_and_baselines_and_its_help_counts_them(cli, runs):
    headline, *baselines = cli("evaluate", runs.classify, "--split", "valid").out.splitlines()
    numbers = r"accuracy \d\.\d{4} \(95% interval \d\.\d{4} to \d\.\d{4}\) on [\d,]+ valid examples"
    assert re.fullmatch(numbers, headline) and all(line.startswith("baseline ") for line in baselines)
    tokens = cli("evaluate", runs.lm, "--test-file", runs.book).out.splitlines()[0]
    assert re.search(r" on [\d,]+ file tokens", tokens)
    fitted = cli("evaluate", runs.classify, "--split", "valid", "--json").json["baselines"]
    counted = f"classification and {('one', 'two', 'three')[len(fitted) - 1]} baselines"
    assert fitted and counted in cli("evaluate", "--help").out


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--test-src-file", "a"], 2, "the task classify has no use for --test-src-file"),
        (["--test-file", "a", "--split", "train"], 2, "'train' is a split of the run's own data"),
        (["--text-column", "a"], 2, "--text-column is of test files, and none is named"),
        (["--test-file", "no such file.csv"], 3, "no such file.csv"),
        (["--split", "tset"], 2, "tset"),
        (["--test-file", "t.csv"], 3, "t.csv:3"),
    ],
    ids=str,
)
def test_what_cannot_be_scored(cli, runs, options, code, message):
    file = runs.table.with_name("t.csv")
    file.write_text("text,label\ngood,pos\nbad,awful\n", "utf-8")
    cli("evaluate", runs.classify, *(file if word == "t.csv" else word for word in options)).refused(message, code=code)


# `glassformer predict-table`: a table with the columns of the answers, of every task


N = 600
"""Rows, in groups of 256 that are answered together."""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Return a table of reviews with fields of several lines."""
    rows = [(str(i), f'a {"good" if i % 2 else "bad"} film,\n"number" {i}', "") for i in range(N)]
    (tmp_path / "in.csv").write_text(written([("id", "text", "note"), *rows]), "utf-8")
    return tmp_path / "in.csv"


def rows_of(path: Path) -> list[dict[str, str]]:
    return [*csv.DictReader(io.StringIO(path.read_text("utf-8")))]


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_a_classifier_labels_each_row_as_it_labels_a_text(cli, runs, table):
    out = table.with_name("out.csv")
    facts = cli("predict-table", runs.classify, table, out, "--probabilities", "--json").ok.json
    assert facts["rows"] == N and facts["precision"] == "fp32"
    rows = rows_of(out)
    assert [*rows[0]][:5] == ["id", "text", "note", "label", "probability"]
    assert [*rows[0]][5:] == ["probability_neg", "probability_pos", "truncated"]
    assert [{k: row[k] for k in ("id", "text", "note")} for row in rows] == rows_of(table)
    texts = [row["text"] for row in rows[:3]]
    alone = [json.loads(line) for line in cli("predict", runs.classify, *texts, "--json").out.splitlines()]
    for row, answer in zip(rows, alone, strict=False):
        assert row["label"] == answer["label"]
        assert float(row["probability"]) == pytest.approx(answer["probability"], abs=1e-6)
        assert float(row["probability_neg"]) == pytest.approx(answer["probabilities"]["neg"], abs=1e-6)
    assert sorted(path.name for path in table.parent.iterdir()) == ["in.csv", "out.csv"]


def test_a_translator_and_a_language_model(cli, runs, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "number 3", "n": [1]}\n{"text": "", "n": null}\n', "utf-8")
    beams = ["--beam-size", "2", "--n-best", "2"]
    assert cli("predict-table", runs.translate, tmp_path / "a.jsonl", tmp_path / "b.jsonl", *beams).ok
    first, second = lines_of(tmp_path / "b.jsonl")
    assert [*first][:6] == ["text", "n", "translation", "score", "translation_2", "score_2"]
    assert [*first][6:] == ["truncated", "unfinished"]
    assert first["n"] == [1] and second["translation"] == "" and first["score"] >= first["score_2"]
    out = tmp_path / "c.csv.gz"
    assert cli("predict-table", runs.lm, tmp_path / "a.jsonl", out, "--max-new-tokens", "5").ok
    assert gzip.decompress(out.read_bytes()).startswith(b"text,n,continuation,truncated\nnumber 3,[1],")


def test_what_was_cut_is_marked_in_its_row(cli, runs, tmp_path):
    for run, n, marks in ((runs.lm, 30, ["truncated"]), (runs.translate, 400, ["truncated", "unfinished"])):
        texts = ["number 3", "number 4 " * n]
        (tmp_path / "a.csv").write_text("".join(f"{text}\n" for text in ["text", *texts]), "utf-8")
        done = cli("predict-table", run, tmp_path / "a.csv", tmp_path / f"{run.name}.jsonl", "--max-new-tokens", "2").ok
        alone = cli("predict", run, *texts, "--max-new-tokens", "2", "--json").out.splitlines()
        rows = lines_of(tmp_path / f"{run.name}.jsonl")
        assert [[row[m] for m in marks] for row in rows] == [[m in json.loads(each) for m in marks] for each in alone]
        assert [row["truncated"] for row in rows] == [False, True]
        assert ("translated up to the length limit" in done.err) == ("unfinished" in marks)


def test_the_column_of_training_is_found_again(cli, runs, tmp_path):
    row = {"body": "another and much longer text than the other one", "text": "a good film"}
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n", "utf-8")
    done = cli("predict-table", runs.classify, tmp_path / "a.jsonl", tmp_path / "b.jsonl").ok
    assert "text is column 'text'" in done.err


def test_a_tagger_does_not_take_words_for_texts(cli, tmp_path):
    rows, run, out = tmp_path / "a.tsv", tmp_path / "run", tmp_path / "b.csv"
    rows.write_text("".join(f"Anna{i}\tB-X\nsees\tO\n\n" for i in range(30)), "utf-8")
    assert cli("train", "tag", "--train-file", rows, "--out", run, *SMALL).ok
    cli("predict-table", run, rows, out).refused("there is no column that is known to hold the text")
    (tmp_path / "c.csv").write_text("id,text\n1,Anna sees\n", "utf-8")
    assert cli("predict-table", run, tmp_path / "c.csv", out).ok


def test_a_masked_model_and_an_embedder(cli, tmp_path):
    (tmp_path / "texts.txt").write_text("".join(f"a good film {i}\n" for i in range(40)), "utf-8")
    trained = ["train", "pretrain", "--train-file", tmp_path / "texts.txt", "--out", tmp_path / "masked", *SMALL]
    assert cli(*trained).code == 0
    (tmp_path / "a.csv").write_text("text\na good [MASK]\nno mask\n", "utf-8")
    assert cli("predict-table", tmp_path / "masked", tmp_path / "a.csv", tmp_path / "b.csv").code == 0
    first, second = rows_of(tmp_path / "b.csv")
    assert [*first] == ["text", "filled", "guesses", "truncated"]
    assert second["filled"] == "no mask" and second["guesses"] == "[]"
    [guesses] = json.loads(first["guesses"])
    assert first["filled"] == f"a good {guesses[0]['token']}"
    bert_folder(tmp_path / "bert", "bare")
    assert cli("import", tmp_path / "bert", "--out", tmp_path / "embedder").code == 0
    assert cli("predict-table", tmp_path / "embedder", tmp_path / "a.csv", tmp_path / "b.jsonl").ok
    row = lines_of(tmp_path / "b.jsonl")[0]
    [answer] = cli("predict", tmp_path / "embedder", row["text"], "--json").out.splitlines()
    assert row["vector"] == pytest.approx(json.loads(answer)["vector"], abs=1e-6)


def test_an_interrupted_table_leaves_nothing(runs, cli, table, monkeypatch):
    append = TableWriter.append

    def interrupted(self: TableWriter, rows: Any) -> None:
        monkeypatch.setattr(TableWriter, "append", lambda *_: signal.raise_signal(signal.SIGINT))
        append(self, rows)

    monkeypatch.setattr(TableWriter, "append", interrupted)
    assert cli("predict-table", runs.classify, table, table.with_name("out.csv")).code == 130
    assert [path.name for path in table.parent.iterdir()] == [table.name]


def test_a_table_that_changes_in_between_is_noticed(runs, cli, table, monkeypatch):
    def scan_and_change(*arguments: Any) -> Any:
        found = scan_table(*arguments)
        table.write_bytes(table.read_bytes() + b'7,"one more",\n')
        return found

    monkeypatch.setattr("glassformer.data.answered_table.scan_table", scan_and_change)
    done = cli("predict-table", runs.classify, table, table.with_name("out.csv"))
    assert done.code == 3 and "changed while it was read" in done.err and not table.with_name("out.csv").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text,x,x\na,1,2\n", "several columns have one name ('x')"),
        ("text,x,,\na,1,2,3\n", "several columns have one name ('')"),
    ],
)
def test_what_cannot_be_written_is_refused_before_an_answer(cli, runs, tmp_path, monkeypatch, content, message):
    (tmp_path / "a.csv").write_text(content, "utf-8")
    monkeypatch.setattr(use.PredictTable, "answered", None)  # nothing calls it
    cli("predict-table", runs.classify, tmp_path / "a.csv", tmp_path / "b.csv").refused(message, code=3)
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


@pytest.mark.parametrize(
    ("run", "words", "message"),
    [
        ("classify", "in.csv", "predict-table takes RUN[,RUN,…] TABLE OUT; 2 came"),
        ("classify", "in.csv out.xlsx", "the name of a table to write ends in"),
        ("classify", "in.csv gone/out.csv", "there is no folder gone"),
        ("classify", "in.csv in.csv", "in.csv exists"),
        ("classify", "in.csv out.csv --text-column txt", "there is no column 'txt'"),
        ("classify", "taken.csv out.csv", "taken.csv has a column 'label' already"),
        ("translate", "in.csv out.csv --probabilities", "are of classifiers"),
    ],
)
def test_what_contradicts_itself_is_refused(cli, runs, tmp_path, run, words, message, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("in.csv", "taken.csv"):
        Path(name).write_text(f"text,{'label' if name == 'taken.csv' else 'id'}\na good film,x\n", "utf-8")
    cli("predict-table", getattr(runs, run), *words.split()).refused(message)
    assert sorted(path.name for path in Path().iterdir()) == ["in.csv", "taken.csv"]
    if "taken" in words:
        assert cli("predict-table", runs.classify, "taken.csv", "b.csv", "--prefix", "model_").code == 0
        assert [*rows_of(Path("b.csv"))[0]][2:4] == ["model_label", "model_probability"]
