import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from tests.explain.test_report import Page
from tests.helpers.small_runs import FLAGS, write_table

from glassformer.cli import explain
from glassformer.cli.main import main
from glassformer.errors import UsageError
from glassformer.explain.page import model_page
from glassformer.runs.model_folder import step_folders


def test_json_is_one_object_with_both_parts(cli, runs):
    message = cli("explain", runs.classify, "a good film", "--json").ok
    [line] = message.out.splitlines()
    facts = json.loads(line)
    assert set(facts) == {"manifest", "attribution"} and facts["attribution"]["method"] == "erase"
    assert facts["manifest"]["streams"][0]["text"] == "a good film"
    predicted = cli("predict", runs.classify, "a good film", "--json").json
    assert facts["manifest"]["answer"]["headline"] == predicted["label"]


def test_two_texts_a_translation_of_ones_own_and_a_report(cli, runs, tmp_path):
    facts = cli("explain", runs.classify, "good", "--compare", "bad", "--json").json
    assert facts["other"]["manifest"]["streams"][0]["text"] == "bad"
    message = cli("explain", runs.translate, "number 3", "--target", "Nummer 3", "--json")
    manifest = message.json["manifest"]
    assert manifest["decode"]["kind"] == "given" and manifest["streams"][1]["text"] == "Nummer 3"


def test_a_page_holds_the_model_or_the_numbers_of_a_text(cli, runs, tmp_path):
    sizes = {}
    for name, words in (("model", []), ("text", ["a good film"]), ("alone", ["a good film", "--no-model"])):
        path = tmp_path / f"{name}.html"
        message = cli("explain", runs.classify, *words, "-o", path).ok
        assert message.out == "" and str(path) in message.err
        data = path.read_text(encoding="utf-8").split('id="glassformer-data">')[1].split("</script>")[0]
        sizes[name] = isinstance(json.loads(data), list)
    assert sizes == {"model": True, "text": True, "alone": False}


def test_a_tokenizer_that_the_page_cannot_read_is_refused_by_name():
    content = json.dumps({"model": {"type": "Unigram"}, "pre_tokenizer": {"type": "Metaspace"}})
    task = Mock(**{"tokenizer.to_json.return_value": content})
    with pytest.raises(UsageError, match="cannot read the tokenizer's pre_tokenizer Metaspace") as caught:
        model_page.tokenizers_of(task)
    assert "--no-model" in caught.value.hint


def test_the_weights_of_a_page_are_rounded_above_1_mb_and_refused_above_60(cli, runs, tmp_path, monkeypatch):
    sentence = "The weights are rounded to 16 bits: "
    for limit, exact, expected in ((10**6, [], 0), (1000, [], 1), (1000, ["--exact"], 0)):
        monkeypatch.setattr(model_page, "EXACT_BYTES", limit)
        path = tmp_path / f"{limit}{len(exact)}.html"
        message = cli("explain", runs.classify, "-o", path, *exact).ok
        assert message.err.count(sentence) == path.read_text("utf-8").count(sentence) == expected
    monkeypatch.setattr(model_page, "MOST_BYTES", 1000)
    refused = cli("explain", runs.classify, "-o", tmp_path / "large.html")
    assert refused.code == 2 and "a page holds at most 0 MB" in refused.err and "--no-model" in refused.err


def test_what_is_drawn_and_learned_is_said_in_json_too(cli, runs, tmp_path):
    drawn = cli("figure", runs.classify, "a good film", "attention", "-o", tmp_path / "a.svg", "--json")
    assert drawn.json == {"out": str(tmp_path / "a.svg")}
    learned = cli("learn", runs.classify, "a good film", "neg", "--steps", "1")
    smoothed = cli("learn", runs.classify, "a good film", "neg", "--json").json["smoothing"]
    assert (f"label smoothing of {smoothed:g}" in learned.out) == (smoothed > 0)
    assert learned.out.index("before") < learned.out.index("after") < learned.out.index("gradient norm")


@pytest.mark.parametrize("command", ["explain", "export"])
def test_an_ensemble_of_runs_is_refused_by_name(cli, runs, tmp_path, command):
    words = ["a"] if command == "explain" else [tmp_path / "out", "--to", "hf"]
    refused = cli(command, f"{runs.classify},{runs.classify}", *words)
    refused.refused("names several runs", f"one of them: {runs.classify}")


def test_a_figure_is_written_and_replaces_nothing(cli, runs, tmp_path):
    path = tmp_path / "a.pdf"
    message = cli("figure", runs.classify, "a good film", "attention", "--layer", "0", "--head", "1", "--out", path).ok
    assert path.stat().st_size > 1000, message.err
    for verb, words in (("figure", ["attention"]), ("edit", ["encoder.0.self.head0=0"])):
        cli(verb, runs.classify, "a", *words, "-o", path).refused(f"{path} exists")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["explain"], "explain takes RUN [TEXT]; none came"),
        (["explain", "RUN", "a", "b"], "explain takes RUN [TEXT]; 3 came"),
        (["explain", "RUN", "--json"], "--json goes with a text"),
        (["explain", "RUN", "--compare", "b"], "--compare goes with a text"),
        (["explain", "RUN", "a", "--no-model"], "--no-model goes with --out"),
        (["explain", "RUN", "--exact", "--no-model", "-o", "a.html"], "goes with --out, one of them"),
        (["explain", "RUN", "--checkpoint", "step-00000016"], "--checkpoint goes with a text"),
        (["explain", "RUN", "a", "-o", "a.txt"], "--out ends in .txt"),
        (["explain", "RUN", "a", "-o", "a"], "--out ends in nothing"),
        (["explain", "RUN", "a", "--member", "99", "--json"], "there is no member 99: this run is"),
        (["explain", "RUN", "a", "--member", "-1", "--json"], "--member must be a whole number in [0, 99]"),
        (["explain", "RUN", "a", "--checkpoint", "../x", "--json"], "--checkpoint must be"),
        (["explain", "RUN", "a", "--target", "b", "--json"], "target"),
        (["explain", "RUN", "a", "--label", "b", "--json"], "there is no label to choose"),
        (["explain", "RUN", "a", "--checkpoint", "step-00099999", "--no-browser"], "no checkpoint"),
        (["explain", "RUN", "a\udcff", "--json"], "text"),
        (["explain", "RUN", "--port", "99999", "--no-browser"], "port 99999 cannot be used"),
        (["figure", "RUN", "a", "attention"], "figure needs --out"),
        (["figure", "RUN", "a", "attention", "-o", "a.html"], ".html"),
        (["figure", "RUN", "a", "attention", "--layer", "9", "-o", "OUT/a.pdf"], "layer"),
        (["figure", "RUN", "a", "effect", "-o", "OUT/a.pdf"], "no edits whose effect could be drawn"),
        (["figure", "RUN", "a", "attention", "--method", "guess", "-o", "OUT/a.pdf"], "--method"),
        (["edit", "RUN", "a"], "edit takes RUN TEXT EDIT [EDIT...]; 2 came"),
        (["edit", "RUN", "a", "encoder.0.self.wieghts=0"], "encoder.0.self.weights"),
    ],
    ids=str,
)
def test_what_cannot_be_shown(cli, runs, tmp_path, words, message):
    outcome = cli(*(w.replace("RUN", str(runs.classify)).replace("OUT", str(tmp_path)) for w in words))
    assert outcome.code == 2, outcome
    assert message in outcome.err and outcome.err.count("\n") <= 2


def test_it_serves_until_ctrl_c(runs):
    """In a process of its own: the address on stdout opens the page, Ctrl-C ends it well."""
    command = [sys.executable, "-m", "glassformer", "explain", str(runs.classify), "--no-browser", "--port", "0"]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            address = process.stdout.readline().strip()
            assert address.startswith("http://127.0.0.1:"), process.stderr.read()
            with urllib.request.urlopen(address, timeout=20) as page:
                assert page.status == 200 and b"app.js" in page.read()
            process.send_signal(signal.SIGINT)
            rest, output = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 0 and rest == "" and "Traceback" not in output, output
    assert "Ctrl-C" in output and output.count(address) == 1


def test_an_edit_prints_what_is_predicted_instead_and_is_written(cli, runs, tmp_path):
    message = cli("edit", runs.classify, "a good film", "encoder.0.self.head0=0", "embedding*1").ok
    assert "edit      encoder.0.self.head0=0\n" in message.out and "embedding*1 (changes no number)" in message.out
    assert "log_prob_before" in message.out and "all 3 models together" in message.err
    assert message.out.startswith("of        member 0 of 3 alone, which is edited\n")
    facts = cli("edit", runs.classify, "good", "embedding=B", "--compare", "bad", "--json").json
    other = cli("predict", runs.classify, "bad", "--json").json
    assert facts["answer_after"] == other["label"] and facts["member"] == 0
    assert facts["effects"][0].keys() >= {"log_prob_before", "log_prob_after", "kl", "contrast"}
    for name, text in (("a.html", "encoder.0.self.head0=0"), ("a.svg", "against")):
        assert cli("edit", runs.classify, "a good film", "encoder.0.self.head0=0", "-o", tmp_path / name).code == 0
        assert text in (tmp_path / name).read_text("utf-8")


def test_findings_are_written_and_checked(cli, runs, tmp_path):
    file = tmp_path / "findings.toml"
    for edit in ("encoder.0.self.context[head:0]=0", "encoder.0.state=skip"):
        assert cli("edit", runs.classify, "a good film", edit, "-o", file).code == 0
    message = cli("findings", runs.classify, file).ok
    assert "2 of 2 findings hold" in message.out
    file.write_text(file.read_text("utf-8").replace("change = ", "change = 9.0  # "), "utf-8")
    message = cli("findings", runs.classify, file, "--json")
    assert message.code == 1 and message.json["findings"][0]["differences"]
    for flag in (("--member", "0"), ("--checkpoint", "model")):
        cli("edit", runs.classify, "good", "embedding=0", "-o", file, *flag).refused("finished model")


def test_the_page_shows_what_the_command_has_traced(cli, runs, monkeypatch):
    """No text is traced again when the page asks for it, with edits or without."""
    from glassformer.explain.page import server

    services: list[server.Service] = []
    run, app = server.PageServer.run, server.build_app
    monkeypatch.setattr(server.PageServer, "run", lambda page, browser: [page.stop(), run(page)])
    monkeypatch.setattr(server, "build_app", lambda service, *of: [services.append(service), app(service, *of)][1])
    assert cli("explain", runs.classify, "a good film", "--compare", "a bad film", "--no-browser").code == 0
    (service,) = services
    monkeypatch.setattr("glassformer.explain.explanation.record", None)
    shown = [service.trace(request) for request in service.run()["start"]]
    assert [one["request"]["text"] for one in shown] == ["a good film", "a bad film"]
    assert service.trace({"text": "a good film"})["id"] == shown[0]["id"]


# `train --watch` and `glassformer watch` on the command line: what they refuse, start and end


WAITS = "import sys; sys.stdin.read()"
"""What stands for the page's process: it ends as the pipe is closed."""


Started = list[tuple[list[str], dict[str, str], subprocess.Popen[bytes]]]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """The command and the environment of each process that was started, and what does nothing in its place."""
    found: Started = []

    def start(command: list[str], env: dict[str, str], **pipes: int) -> subprocess.Popen[bytes]:
        found.append((command, env, subprocess.Popen([sys.executable, "-c", WAITS], **pipes)))
        return found[-1][-1]

    stands_for = {"Popen": start, "PIPE": subprocess.PIPE, "DEVNULL": subprocess.DEVNULL}
    monkeypatch.setattr(explain, "subprocess", SimpleNamespace(**stands_for))
    return found


def trained(folder: Path, name: str, *more: str) -> int:
    if not (table := folder / "table.csv").exists():
        write_table(folder)
    fixed = ("--steps", "20", "--epochs", "1000", "--threads", "1", "--deterministic")
    return main(["train", "classify", "--train-file", str(table), "--out", str(folder / name), *FLAGS, *fixed, *more])


def test_watching_changes_no_bit_and_ends_with_the_training_and_a_replay_is_written(tmp_path, started, capsys):
    assert trained(tmp_path, "plain") == 0 and not started
    assert trained(tmp_path, "watched", "--watch", "--no-browser") == 0
    [((_, _, code, *arguments), environment, page)] = started
    run = tmp_path / "watched"
    assert code == explain.CHILD
    assert arguments == ["watch", str(run), "--control", "--device=cpu", "--no-browser"]
    assert environment["OMP_NUM_THREADS"] == "1" and page.returncode is not None, "it has ended"
    weights = [(folder / "model" / "model.safetensors").read_bytes() for folder in (tmp_path / "plain", run)]
    assert weights[0] == weights[1]
    assert [*step_folders(run / "snapshots")] == [0, 16]
    assert main(["train", "--resume", str(run), "--watch"]) == 0
    assert len(started) == 1, "there is no step to watch"
    assert main(["watch", str(run), "-o", str(tmp_path / "replay.html")]) == 0
    assert "written:" in capsys.readouterr().err
    saved = Page((tmp_path / "replay.html").read_text("utf-8")).data()["training"]
    assert saved["now"]["state"] == "finished" and len(saved["answers"]) == len(saved["texts"]) * 4


def test_a_page_that_cannot_be_started_stops_no_training(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(explain.subprocess, "Popen", Mock(side_effect=OSError(12, "Cannot allocate memory")))
    assert trained(tmp_path, "run", "--watch") == 0
    assert capsys.readouterr().err.count("the page cannot be started: Cannot allocate memory") == 1


def test_the_page_ends_with_the_process_that_started_it(tmp_path):
    command = [sys.executable, "-c", explain.CHILD, "watch", str(tmp_path), "--no-browser", "--port", "0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as page:
        try:
            assert page.stdout.readline().startswith(b"http://127.0.0.1:")
            page.stdin.close()
            page.wait(60)
        finally:
            page.kill()


REFUSED = {
    "train imdb --watch --dry-run": "--watch does not go with --dry-run",
    "train imdb --watch --overfit-batch": "--watch does not go with --overfit-batch",
    "train imdb --watch --seeds 2": "--watch does not go with --seeds",
    "train imdb --dry-run --overfit-batch": "--overfit-batch does not go with --dry-run",
    "watch . text": "watch takes RUN; 2 came",
    "watch . -o page.pdf": "--out ends in .pdf",
    "watch none": "there is no folder none",
}


@pytest.mark.parametrize("command", REFUSED)
def test_refusals_are_a_sentence(command, tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    refused = cli(*command.split())
    assert refused.code == 2 and REFUSED[command] in refused.err and not list(tmp_path.iterdir())
