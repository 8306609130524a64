from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.helpers.ngram_runs import ngram_run
from tests.helpers.tiny_runs import Runs

import glassformer
from glassformer.errors import DataError, UsageError
from glassformer.utils import console


def test_classify_from_arguments_and_stdin_is_the_same(cli: Callable, runs: Runs) -> None:
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
def test_translate_keeps_line_for_line(cli: Callable, runs: Runs, end: bytes) -> None:
    lines = ["number 3", "", "two\u2028parts", "\u0085", "number 4"]
    message = cli("predict", runs.translate, "--beam-size", "1", stdin=end.join(s.encode() for s in lines)).ok
    assert message.out.endswith("\n")
    answers = message.out[:-1].split("\n")
    assert len(answers) == len(lines)
    assert answers[1] == ""


def test_n_best_is_ranked_and_a_blank_line_has_as_many_rows_as_another(cli: Callable, runs: Runs) -> None:
    options = ["--beam-size", "3", "--n-best", "3", "--max-new-tokens", "4"]
    message = cli("predict", runs.translate, *options, stdin=b"number 3\n\nnumber 4\n")
    rows = [line.split("\t") for line in message.out.rstrip("\n").split("\n")]
    assert [row[0] for row in rows] == ["1", "2", "3"] * 3
    scores = [float(row[1]) for row in rows[:3]]
    assert scores == sorted(scores, reverse=True)
    row = cli("predict", runs.translate, "number 3", *options, "--json").json
    assert [h["translation"] for h in row["n_best"]] == [row[2] for row in rows[:3]]
    refused = cli("predict", runs.translate, "number 3", "--beam-size", "2", "--n-best", "3")
    assert refused.code == 2 and "--beam-size 3" in refused.err


def test_lm_continues_a_prompt_and_seeds_matter(cli: Callable, runs: Runs) -> None:
    options = ["--max-new-tokens", "20", "--top-p", "0.9"]
    first, again, other = (cli("predict", runs.lm, "In the", *options, "--decode-seed", seed) for seed in "112")
    assert first.code == 0
    assert first.out.startswith("In the")
    assert first.out == again.out != other.out
    row = cli("predict", runs.lm, "In the", *options, "--decode-seed", "1", "--json").json
    assert console.printable(row["prompt"] + row["text"]) + "\n" == first.out


def test_what_begins_with_a_dash(cli: Callable, runs: Runs) -> None:
    refused = cli("predict", runs.classify, "-good film")
    assert refused.code == 2 and "-good film" in refused.err
    taken = cli("predict", runs.classify, "--json", "--", "--json", "-good film")
    assert [json.loads(line)["text"] for line in taken.out.splitlines()] == ["--json", "-good film"]
    prompt = cli("predict", runs.lm, "- a", "--max-new-tokens", "1", "--json")
    assert prompt.json["prompt"] == "- a"


def test_empty_and_broken_stdin(cli: Callable, runs: Runs) -> None:
    empty = cli("predict", runs.translate)
    assert (empty.code, empty.out) == (0, "")
    assert "nothing came on stdin" in empty.err
    broken = cli("predict", runs.classify, stdin=b"fine\n\xff\xfe\n")
    assert broken.code == 3
    assert "stdin:2: expected UTF-8, found byte 0xff" in broken.err


def test_another_precision_answers_and_is_named_with_a_score(cli: Callable, runs: Runs) -> None:
    found = []
    for name in ("fp32", "bf16"):
        row = cli("predict", runs.classify, "a good film", "--json", "--precision", name).json
        found.append(row["probability"])
        scored = cli("evaluate", runs.classify, "--split", "valid", "--json", "--precision", name)
        assert scored.json["precision"] == row["precision"] == name
    assert found[0] != found[1] == pytest.approx(found[0], abs=0.02)


def test_an_answer_waits_for_no_library_that_it_does_not_need(runs: Runs) -> None:
    """Each of these takes as long to import as the answer itself; torch's compiler takes longer."""
    heavy = "torch._dynamo torch._inductor sympy scipy matplotlib sacrebleu sklearn rich pandas".split()
    code = (
        "import sys; from glassformer.cli.main import main; "
        f"main(['predict', {str(runs.translate)!r}, 'number 3']); "
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    message = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert message.stdout.splitlines()[1:] == ["[]"]


def test_texts_that_are_cut_are_counted_and_marked(cli: Callable, runs: Runs, tmp_path: Path) -> None:
    long = "number 3 film " * 400
    for run, options in ((runs.classify, []), (runs.translate, ["--beam-size", "1"]), (runs.lm, ["--top-k", "1"])):
        limits = [] if run == runs.classify else ["--max-new-tokens", "2"]
        text = long[: 30 * 14] if run == runs.lm else long  # of a prompt every token is read
        message = cli("predict", run, "--json", *options, *limits, stdin=f"number\n{text}\nfilm\n".encode())
        rows = [json.loads(line) for line in message.out.splitlines()]
        assert [row.get("truncated", False) for row in rows] == [False, True, False]
        assert message.err.count("1 of 3 texts is longer than ") == 1
    (tmp_path / "t.csv").write_text(f"text,label\n{long},pos\nx,neg\n", encoding="utf-8")
    message = cli("evaluate", runs.classify, "--test-file", tmp_path / "t.csv", "--json")
    assert message.json["n_truncated"] == 1 and "1 of 2 texts is longer than " in message.err


def test_a_wrong_type_is_answered_with_a_sentence(runs: Runs) -> None:
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


def test_a_text_has_one_answer_and_a_list_a_list(runs: Runs) -> None:
    run = glassformer.load(runs.classify)
    answer = run.predict("good film")
    assert isinstance(answer, dict) and [answer] == run.predict(["good film"]) == run.predict(("good film",))
    edit = "encoder.0.self.out=0"
    edited = run.predict("good film", edits=[edit])
    assert edited["text"] == "good film" and [edited] == run.predict(["good film"], edits=edit)
    assert run.predict([]) == []


def test_what_strangers_named_is_printed_without_control_characters(
    cli: Callable, tmp_path: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = {"text": "a", "label": "x\x1b[31m1\u202e", "probability": 0.5}
    monkeypatch.setattr("glassformer.run.Run.predict_stream", lambda *_, **__: iter([answer]))
    assert cli("predict", runs.classify, "a").out == "x\\u001b[31m1\\u202e\t0.5000\n"
    assert cli("predict", runs.classify, "a", "--json").json["label"] == answer["label"]
    assert "evil\\u001b[31m" in cli("predict", tmp_path / "evil\x1b[31m", "a").err


def test_empty_texts_and_those_of_unknown_words_alone_are_counted(
    cli: Callable, runs: Runs, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also by a model that reads the n-grams of unknown words."""
    assert "1 of 3 texts is empty" in cli("predict", runs.classify, "a", " ", "b").err
    assert "empty" not in cli("predict", runs.classify, "a").err
    (tmp_path / "t.csv").write_text('text,label\n"",pos\nx,neg\n', encoding="utf-8")
    assert "1 of 2 texts is empty" in cli("evaluate", runs.classify, "--test-file", tmp_path / "t.csv").err
    run = ngram_run()
    [known] = run.task.tokenizer.tokens([run.task.tokenizer.vocab_size - 1])
    run.predict(["zzz qqq", f"zzz {known}"])
    assert "1 of 2 texts is read with 2 tokens unknown to the model" in caplog.text
