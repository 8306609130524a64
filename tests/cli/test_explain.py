from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.helpers.tiny_runs import Runs

from glassformer.cli.flags import long_out
from glassformer.explain.record_store import RecordStore


def test_json_is_one_object_with_both_parts(cli: Callable, runs: Runs) -> None:
    message = cli("explain", runs.classify, "a good film", "--json")
    assert message.code == 0, message.err
    [line] = message.out.splitlines()
    facts = json.loads(line)
    assert set(facts) == {"manifest", "attribution"}
    assert facts["manifest"]["streams"][0]["text"] == "a good film"
    assert facts["attribution"]["method"] == "erase"
    predicted = json.loads(cli("predict", runs.classify, "a good film", "--json").out)
    assert facts["manifest"]["answer"]["headline"] == predicted["label"]


def test_two_texts_and_a_method(cli: Callable, runs: Runs) -> None:
    message = cli("explain", runs.classify, "good", "--compare", "bad", "--json", "--method", "integrated_gradients")
    facts = json.loads(message.out)
    assert facts["other"]["manifest"]["streams"][0]["text"] == "bad"
    assert facts["attribution"]["completeness"]["n_steps"] >= 16


def test_a_translation_of_ones_own(cli: Callable, runs: Runs) -> None:
    message = cli("explain", runs.translate, "number 3", "--target", "Nummer 3", "--json")
    manifest = json.loads(message.out)["manifest"]
    assert manifest["decode"]["kind"] == "given"
    assert manifest["streams"][1]["text"] == "Nummer 3"


def test_a_report_is_written(cli: Callable, runs: Runs, tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    message = cli("explain", runs.classify, "a good film", "-o", path)
    assert message.code == 0, message.err
    assert message.out == "" and str(path) in message.err
    assert "glassformer-data" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("suffix", ["pdf", "svg", "png"])
def test_a_figure_is_written(cli: Callable, runs: Runs, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    flags = ["--figure", "attention", "--layer", "0", "--head", "1"]
    message = cli("explain", runs.classify, "a good film", *flags, "--out", path)
    assert message.code == 0, message.err
    assert path.stat().st_size > 1000


def test_the_text_may_come_on_stdin(cli: Callable, runs: Runs) -> None:
    message = cli("explain", runs.lm, "-", "--json", stdin=b"In the\n")
    assert message.code == 0, message.err
    assert json.loads(message.out)["manifest"]["request"]["text"] == "In the"
    broken = cli("explain", runs.lm, "-", "--json", stdin=b"\xff")
    assert broken.code == 3 and "0xff" in broken.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "takes a run folder"),
        (["RUN", "a", "b"], "takes one text; 2 came"),
        (["RUN", "--json"], "there is no text"),
        (["RUN", "-o", "a.html"], "there is no text"),
        (["RUN", "a", "-o", "a.txt"], "--out ends in .txt"),
        (["RUN", "a", "-o", "a"], "--out ends in nothing"),
        (["RUN", "a", "-o", "a.pdf"], "needs --figure"),
        (["RUN", "a", "--figure", "attention"], "--figure needs a file"),
        (["RUN", "a", "--figure", "attention", "-o", "a.html"], "--figure needs a file"),
        (["RUN", "a", "--figure", "attention", "--layer", "-1", "-o", "a.pdf"], "counted from 0"),
        (["RUN", "a", "--figure", "attention", "--layer", "9", "-o", "OUT/a.pdf"], "layer"),
        (["RUN", "a", "--head", "1"], "belongs to --figure"),
        (["RUN", "--compare", "b"], "go with a text"),
        (["RUN", "--checkpoint", "step-00000016"], "go with a text"),
        (["RUN", "--member", "2"], "go with a text"),
        (["RUN", "a", "--member", "99", "--json"], "there is no member 99: this run is"),
        (["RUN", "a", "--member", "0", "--json"], "member must be a whole number in [1, 100]"),
        (["RUN", "a", "--method", "guess", "--json"], "--method"),
        (["RUN", "a", "--checkpoint", "../x", "--json"], "checkpoint"),
        (["RUN", "a", "--target", "b", "--json"], "target"),
        (["RUN", "a", "--checkpoint", "step-99", "--no-browser"], "step-00001000"),
        (["RUN", "a", "--checkpoint", "step-00099999", "--no-browser"], "no checkpoint"),
        (["RUN", "a", "--target", "b", "--no-browser"], "target"),
        (["RUN", "a\udcff", "--json"], "text"),
        (["RUN", "--port", "99999", "--no-browser"], "port 99999 cannot be used"),
    ],
    ids=str,
)
def test_what_does_not_go_together(cli: Callable, runs: Runs, tmp_path: Path, words: list[str], message: str) -> None:
    words = [w.replace("RUN", str(runs.classify)).replace("OUT", str(tmp_path)) for w in words]
    outcome = cli("explain", *words)
    assert outcome.code == 2, outcome
    assert message in outcome.err and outcome.err.count("\n") <= 2


def test_no_run_is_a_checkpoint_error(cli: Callable, runs: Runs, tmp_path: Path) -> None:
    assert cli("explain", tmp_path / "none").code == 4
    assert cli("explain", runs.classify, "a", "--checkpoint", "step-00099999", "--json").code in (2, 4)


def test_o_is_out_only_before_the_texts() -> None:
    assert long_out(["r", "-o", "a", "--", "-o"]) == ["r", "--out", "a", "--", "-o"]
    assert long_out(["-o=a.html"]) == ["--out=a.html"]


@pytest.mark.skipif("os.name == 'nt'", reason="signals are POSIX's")
def test_it_serves_until_ctrl_c(runs: Runs) -> None:
    """In a process of its own: the address on stdout opens the page, Ctrl-C ends it well."""
    command = [sys.executable, "-m", "glassformer", "explain", str(runs.classify), "a good film"]
    process = subprocess.Popen(
        [*command, "--no-browser", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:"), process.stderr.read()
        with urllib.request.urlopen(address, timeout=20) as page:
            assert page.status == 200 and b"app.js" in page.read()
        process.send_signal(signal.SIGINT)
        rest, output = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 0, output
    assert rest == "" and "Traceback" not in output and "Ctrl-C" in output
    assert output.count(address) == 1


def test_an_edit_prints_what_is_predicted_instead(cli: Callable, runs: Runs) -> None:
    message = cli("explain", runs.classify, "a good film", "--edit", "encoder.0.self.head0=0 embedding*1")
    assert message.code == 0, message.err
    assert "edit      encoder.0.self.head0=0\n" in message.out and "embedding*1 (changes no number)" in message.out
    assert "log p before" in message.out and "model 1 of the ensemble, alone\n" in message.out
    facts = json.loads(cli("explain", runs.classify, "good", "--compare", "bad", "--edit", "embedding=B", "--json").out)
    other = json.loads(cli("predict", runs.classify, "bad", "--json").out)
    assert facts["answer_after"] == other["label"]
    assert facts["member"] == 1
    assert facts["effects"][0].keys() >= {"log_prob_before", "log_prob_after", "kl", "contrast"}


def test_an_edit_that_names_nothing_says_what_is_near(cli: Callable, runs: Runs) -> None:
    message = cli("explain", runs.classify, "good", "--edit", "encoder.0.self.wieghts=0")
    assert message.code == 2 and "encoder.0.self.weights" in message.err and message.out == ""
    assert cli("explain", runs.classify, "--edit", "embedding=0").code == 2


def test_an_edit_is_written_as_a_page_and_as_a_figure(cli: Callable, runs: Runs, tmp_path: Path) -> None:
    page, figure = tmp_path / "a.html", tmp_path / "a.svg"
    edit = ("explain", runs.classify, "a good film", "--edit", "encoder.0.self.head0=0")
    assert cli(*edit, "-o", page).code == 0 and cli(*edit, "-o", figure, "--figure", "effect").code == 0
    assert "encoder.0.self.head0=0" in page.read_text("utf-8") and "against" in figure.read_text("utf-8")
    assert "--figure effect" in cli(*edit, "-o", figure, "--figure", "attention").err
    assert "needs --edit" in cli("explain", runs.classify, "a", "-o", figure, "--figure", "effect").err
    assert "belongs to a saved page" in cli("explain", runs.classify, "a", "--parameters").err


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--sweep", "parts"), "all heads"),
        (("--sweep", "keys"), "=blocked"),
        (("--sweep", "layers"), "decoder"),
        (("--sweep", "checkpoints", "--edit", "encoder.0.self.head0=0"), "model"),
    ],
)
def test_sweeps_print_a_table_and_json(flags: tuple[str, ...], expected: str, cli: Callable, runs: Runs) -> None:
    message = cli("explain", runs.translate, "abc", *flags)
    assert message.code == 0 and expected in message.out
    assert json.loads(cli("explain", runs.translate, "abc", *flags, "--json").out)


def test_a_sweep_of_states_compares_two_texts(cli: Callable, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassformer.explain.edits.states.MIN_DIFFERENCE", 0.05)  # a run of a few steps is uncertain
    message = cli("explain", runs.translate, "abcdef", "--compare", "fedcba", "--sweep", "states")
    assert message.code == 0 and "noising" in message.out and "encoder.0.state" in message.out
    assert "second text" in cli("explain", runs.classify, "good", "--sweep", "states").err
    assert "no second text" in cli("explain", runs.classify, "a", "--compare", "b", "--sweep", "keys").err
    on_top = cli("explain", runs.classify, "a", "--edit", "embedding=0", "--sweep", "parts")
    assert on_top.code == 0 and on_top.out != cli("explain", runs.classify, "a", "--sweep", "parts").out


def test_findings_are_written_and_checked(cli: Callable, runs: Runs, tmp_path: Path) -> None:
    file = tmp_path / "findings.toml"
    for edit in ("encoder.0.self.context[head:0]=0", "encoder.0.state=skip"):
        assert cli("explain", runs.classify, "a good film", "--edit", edit, "-o", file).code == 0
    message = cli("explain", runs.classify, "--check", file)
    assert message.code == 0 and "2 of 2 findings hold" in message.out
    file.write_text(file.read_text("utf-8").replace("change = ", "change = 9.0  # "), "utf-8")
    message = cli("explain", runs.classify, "--check", file, "--json")
    assert message.code == 1 and json.loads(message.out)["findings"][0]["differences"]
    assert cli("explain", runs.classify, "good", "--check", file).code == 2
    for flag in (("--member", "1"), ("--checkpoint", "model")):
        refused = cli("explain", runs.classify, "good", "--edit", "embedding=0", "-o", file, *flag)
        assert refused.code == 2 and "finished model" in refused.err


def test_the_page_opens_on_a_finding_of_the_run_and_without_one_that_does_not_fit(
    cli: Callable, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[object] = []
    monkeypatch.setattr(
        "glassformer.explain.page.server.serve",
        lambda *_, start, **__: opened.append([e.request.to_json() for e in start]),
    )
    file = runs.classify / "findings.toml"
    try:
        edit = "encoder.0.self.context[head:0]=0"
        assert cli("explain", runs.classify, "a good film", "--edit", edit, "-o", file).code == 0
        assert cli("explain", runs.classify, "--no-browser").code == 0
        assert opened[-1] == [{"text": "a good film", "edits": [edit]}]
        for text in (file.read_text("utf-8").replace("head:0", "head:9"), "x = ["):
            file.write_text(text, "utf-8")
            message = cli("explain", runs.classify, "--no-browser")
            assert message.code == 0 and opened[-1] == [] and "without the findings" in message.err
    finally:
        file.unlink(missing_ok=True)


def test_the_page_shows_what_the_command_has_traced(cli: Callable, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """No text is traced again when the page asks for it, with edits or without."""
    from glassformer.explain.page.service import Service

    services: list[Service] = []
    monkeypatch.setattr(
        "glassformer.explain.page.server.serve", lambda run, *, start, **_: services.append(Service(run, start))
    )
    assert cli("explain", runs.classify, "a good film", "--compare", "a bad film", "--no-browser").code == 0
    (service,) = services
    monkeypatch.setattr(RecordStore, "__init__", None)
    shown = [service.trace(request) for request in service.run()["start"]]
    assert [one["request"]["text"] for one in shown] == ["a good film", "a bad film"]
    assert service.trace({"text": "a good film"})["id"] == shown[0]["id"]
