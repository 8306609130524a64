"""demo, data, recipes, compare, doctor and export."""

import csv
import json
import re
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.audited import NAMES, labelled, pairs
from tests.helpers.for_each import for_each
from tests.helpers.reading import written
from tests.helpers.tiny_runs import SMALL

import glassformer
from glassformer.cli.main import main
from glassformer.config import Config
from glassformer.config.recipes import TASK_NAMES, config_to_dict, load_recipe, recipe_names
from glassformer.errors import UsageError
from glassformer.evaluate.audit import CHECKS, AuditFinding
from glassformer.report.findings import diagnose
from glassformer.report.run_record import RunRecord
from glassformer.runs.records import DataRecord, Divergence, Evaluation, SplitRecord, StepMetrics


def test_demo_trains_shows_and_points_to_the_report(cli, tmp_path, monkeypatch):
    """The first folder that is free."""
    monkeypatch.chdir(tmp_path)
    Path("runs/demo").mkdir(parents=True)
    Path("runs/demo/mine").touch()
    message = cli("demo", "--n-dates", "200", "--max-new-tokens", "3", *SMALL).ok
    assert message.out.startswith("exact match 0.")
    assert "exact match" in message.out and "translation" in message.out and "reference" in message.out
    report = Path("runs/demo-2/report.md")
    assert str(report) in message.err and report.is_file()
    assert cli("demo", "dates").code == cli("demo", "--out", "runs/demo").code == 2


def test_data_check_passes_sound_files_and_lists_what_is_not(cli, runs, tmp_path):
    good = cli("data", "check", "classify", "--train-file", runs.table).ok
    assert "nothing stands in the way" in good.err
    path = tmp_path / "bad.csv"
    path.write_bytes(b"text,label\nfine,pos\n\xff,neg\nfine too,neg\n")
    bad = cli("data", "check", "classify", "--train-file", path)
    assert bad.code == 3 and f"{path}:3" in bad.out
    facts = cli("data", "check", "classify", "--train-file", path, "--json").json
    assert not facts["ok"] and facts["errors"][0]["line"] == 3


@pytest.mark.parametrize("words", [[], ["chekc"], ["check"], ["check", "nope"], ["show", "imdb", "lm"]], ids=str)
def test_data_needs_to_know_what(words, cli):
    assert cli("data", *words).code == 2


def test_data_show_and_its_help(cli, runs):
    command = ["data", "show", "translate", "--src-file", runs.src, "--tgt-file", runs.tgt]
    message = cli(*command).ok
    assert "54" in message.out and "Nummer" in message.out
    facts = cli(*command, "--json").json
    assert [(split["split"], split["n"]) for split in facts["splits"]] == [("train", 54), ("valid", 6)]
    trained = [name for name in TASK_NAMES if name != "embed"]
    names = f"{', '.join(trained[:-1])} or {trained[-1]} for files"
    assert names in " ".join(cli("data", "--help").out.split())


def test_recipes_are_listed_and_printed(cli, tmp_path):
    listed = cli("recipes")
    assert all(f"\n{name} " in listed.out for name in recipe_names())
    rows = cli("recipes", "--json").json["recipes"]
    assert [row["recipe"] for row in rows] == recipe_names()
    printed = cli("recipes", "imdb").out
    shipped = (Path(glassformer.__file__).parent / "recipes" / "imdb.toml").read_text("utf-8")
    assert "# " in shipped and printed == shipped
    (tmp_path / "mine.toml").write_text(printed, "utf-8")
    assert cli("recipes", tmp_path / "mine.toml").out == printed
    resolved = cli("recipes", "imdb", "--json").json
    assert resolved == json.loads(json.dumps(config_to_dict(load_recipe("imdb"))))
    assert cli("recipes", "imbd").code == 2


def test_compare(cli, runs):
    message = cli("compare", runs.classify, runs.lm).ok
    assert str(runs.classify) in message.out and str(runs.lm) in message.out
    facts = cli("compare", runs.classify, runs.lm, "--json").json
    assert [row["task"] for row in facts["rows"]] == ["classify", "lm"]
    assert cli("compare").code == 2 and cli("compare", runs.classify, runs.classify.with_name("none")).code == 4


def test_doctor_knows_the_machine_and_reads_a_run(cli, runs):
    facts = cli("doctor", "--json").json
    assert {"python", "torch", "device", "threads", "cache"} <= facts.keys() and "torch" in cli("doctor").out
    message = cli("doctor", runs.classify).ok
    assert "only 6 examples to validate on" in message.out and "try: " in message.out
    assert not any(f"try: {word}" in message.out for word in ("expect", "where", "guessing", "scores"))  # no remedies
    model = runs.classify / "model"
    alone = cli("doctor", model).ok
    assert "no log is here" in alone.out and "nothing stands out" not in alone.out
    assert "no log is here" in cli("doctor", model, "--examine").out
    for words, code in ((["--examine"], 2), ([runs.lm, "--lr", "1"], 2), (["none"], 4)):
        assert cli("doctor", *words).code == code


@for_each("task", ["classify", "translate", "lm"])
def test_doctor_examines_a_run(task, cli, runs):
    plain = cli("doctor", getattr(runs, task), "--json").json
    looked = cli("doctor", getattr(runs, task), "--examine", "--json").json
    activity = {"scores", "heads", "dead-units"}
    assert all("--examine" in plain["not_made"][name] for name in activity)
    assert "scores" in looked["made"] and {"first-loss", "answer-visible", "frozen"} <= {*looked["made"]}
    assert activity <= {*looked["made"], *looked["not_made"]}  # ReLU and queries that see 8 keys are not everywhere
    assert all(finding["grade"] != "stop" for finding in looked["findings"])


def _facts(losses: list[float], valid: list[float] = (), **more: Any) -> RunRecord:  # type: ignore[assignment]
    training = [StepMetrics(i, loss=loss, grad_norm=1.0, padding=0.1) for i, loss in enumerate(losses, start=1)]
    validations = [StepMetrics(i, epoch=float(i), valid={"loss": v}) for i, v in enumerate(valid, start=1)]
    data = DataRecord(splits={"train": SplitRecord(n=10_000, unknown_rate=0.0, n_truncated=0)})
    facts: dict[str, Any] = {"data": data, "training": training, "validations": validations, "evaluation": Evaluation()}
    return RunRecord(Path("run"), Config(task="classify"), **facts | more)


FALLING = [2 * 0.97**i + 0.1 for i in range(100)]


def test_what_is_negligible_beside_the_first_loss_is_no_finding():
    assert diagnose(_facts(FALLING, [1.0, 0.8, 0.8])).findings == []
    assert diagnose(_facts(FALLING, [0.05, 0.01, 0.005])).findings == []  # of 2.1 nats at the start
    assert diagnose(_facts(FALLING, [0.02, 0.01, 0.014])).findings == [], "no rise to speak of"


@pytest.mark.parametrize(
    ("facts", "matter", "remedy"),
    [
        (_facts(FALLING, evaluation=None), "not finished", "--resume run"),
        (_facts(FALLING, evaluation=None, diverged=Divergence(7, "loss nan")), "at step 7: loss nan", "--lr"),
        (_facts([1.0 + 0.03 * i for i in range(60)]), "from 1.14 to 2.63", "halve --lr"),
        (_facts([2.0] * 60), "hardly moved", "--overfit-batch"),
        (_facts(FALLING, [1.0, 0.5, 0.6, 0.9]), "overfits", "--patience"),
        (_facts(FALLING, [1.0, 0.7, 0.5]), "still improving", "train longer"),
        (_facts(FALLING, [0.05, 0.03, 0.02]), "still improving", "train longer"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_the_doctor_names_what_stands_out(facts, matter, remedy):
    [found] = diagnose(facts).findings
    assert matter in found.matter and remedy in found.remedy


# `glassformer data audit`: the table of findings, the report as a CSV, JSON, and what is refused


COLUMNS = [field.name for field in fields(AuditFinding)]
AWKWARD = 'He said "no",\nthen; "yes"\t=1+1'


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Three label errors, of which one in a text of several lines, and a near-duplicate."""
    texts, labels = labelled()
    for i in (10, 71, 200):
        labels[i] = NAMES[(NAMES.index(labels[i]) + 1) % 3]
    texts[71] = f'{texts[71]}\n"{texts[71]}"'
    rows = [("text", "label"), *zip(texts, labels, strict=True), (texts[0] + "!", labels[0])]
    (tmp_path / "a.csv").write_text(written(rows), "utf-8")
    return tmp_path / "a.csv"


def test_findings_are_printed_and_written(cli, table, tmp_path):
    """The text of two lines moves those after it. Repeated, the report is the same."""
    out, again = tmp_path / "new" / "report.csv", tmp_path / "again.csv"
    message = cli("data", "audit", "classify", "--train-file", table, "--out", out).ok
    assert f"{table}:12" in message.out and "label-error" in message.out and "not made" in message.out
    assert all(check.advice in message.out for check in CHECKS if check.kind in ("label-error", "near-duplicate"))
    assert "4 findings" in message.err and [*out.parent.iterdir()] == [out]
    with open(out, encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    assert [*rows[0]] == COLUMNS and {row["place"] for row in rows} == {f"{table}:{n}" for n in (12, 73, 203, 243)}
    facts = cli("data", "audit", "classify", "--train-file", table, "--out", again, "--json").json
    assert out.read_bytes() == again.read_bytes()
    assert facts["counts"] == {"contradiction": 0, "label-leak": 0, "label-error": 3, "near-duplicate": 1}
    assert facts.keys() == {"task", "counts", "findings", "not_made", "notes"} and len(facts["findings"]) == 4
    assert all([*finding] == COLUMNS for finding in facts["findings"])
    assert facts["not_made"] == {"split-overlap": "there is one part"}


def test_pairs_of_two_files_and_of_a_table(cli, tmp_path):
    source, target = pairs()
    target[7], target[9] = source[7], source[9]
    files = [tmp_path / "a.en", tmp_path / "a.de"]
    for path, side in zip(files, (source, target), strict=True):
        path.write_text("".join(f"{line}\n" for line in side), "utf-8")
    tsv = tmp_path / "a.tsv"
    tsv.write_text("source\ttarget\n" + "".join(f"{a}\t{b}\n" for a, b in zip(source, target, strict=True)), "utf-8")
    for flags, lines in ((["--src-file", files[0], "--tgt-file", files[1]], [8, 10]), (["--train-file", tsv], [9, 11])):
        found = cli("data", "audit", "translate", *flags, "--json").json["findings"]
        assert sorted(f["place"] for f in found) == sorted(f"{flags[1]}:{line}" for line in lines)
        assert {f["kind"] for f in found} == {"wrong-language"}


@pytest.mark.parametrize(
    ("content", "flags", "code", "text"),
    [
        ("text,label\na,x\n", ["--text-column", "body"], 2, "there is no column 'body'"),
        ("text,label\n" + "good,x\n" * 9, [], 3, "two or more labels"),
        ("text,label\na,x\nb,y\n", ["--limit", "1"], 2, "reads all examples"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(content, flags, code, text, cli, tmp_path):
    path, out = tmp_path / "a.csv", tmp_path / "report.csv"
    path.write_text(content, "utf-8")
    message = cli("data", "audit", "classify", "--train-file", path, "--out", out, *flags)
    assert message.code == code and text in message.err
    assert message.err.count("error: ") == 1 and [p.name for p in tmp_path.iterdir()] == ["a.csv"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("audit lm --train-file a.txt", "texts with answers, not those of lm"),
        ("audit imdb", "files of texts with answers, not those of classify (imdb)"),
        ("audit classify --train-file a.csv --out r.txt", "name a file that ends in .csv"),
        ("audit classify imdb", "takes check|audit|show RECIPE; 3 came"),
        ("check classify --train-file a.csv --out r.csv", "data check writes no file"),
    ],
)
def test_what_is_no_audit_is_refused(words, text, cli):
    cli("data", *words.split()).refused(text)


def test_the_report_replaces_nothing(cli, table, tmp_path):
    before, link = table.read_bytes(), tmp_path / "r.csv"
    link.symlink_to("nowhere.csv")
    for out in (table.parent / "." / table.name, link):
        audit = cli("data", "audit", "classify", "--train-file", table, "--out", out)
        audit.refused("exists")
    assert table.read_bytes() == before and not (tmp_path / "nowhere.csv").exists()


def test_awkward_and_long_texts_come_back_from_the_report(cli, tmp_path):
    texts = [AWKWARD, AWKWARD, "x" * 100_005, "x" * 100_005, "  ", "e\u0301 🙂\u2028"] * 2
    rows = [json.dumps({"text": text, "label": f"l,{i % 3}"}) for i, text in enumerate(texts)]
    (tmp_path / "a.jsonl").write_text("\n".join(rows), "utf-8")
    message = cli("data", "audit", "classify", "--train-file", tmp_path / "a.jsonl", "--out", tmp_path / "r.csv").ok
    assert "2 examples with an empty text left out" in message.err
    csv.field_size_limit(1_000_000)
    with open(tmp_path / "r.csv", encoding="utf-8", newline="") as file:
        assert {row["text"] for row in csv.DictReader(file)} == {*texts} - {"  "}


# `glassformer export`, and `predict` with what it wrote: the same lines, without torch


TEXTS = ["[en_US] March 5, 2021", "", "[de_DE] 5. März 2021"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("export") / "dates"
    small = {"n_layers": 1, "d_model": 32, "n_heads": 2, "d_ff": 64}
    short = {"steps": 120, "n_dates": 400, "beam_size": 1, "validate_every": 1000}
    glassformer.train("dates", out=out, precision="fp32", model=small, **short)  # bf16 answers otherwise
    return out


@pytest.fixture(scope="module")
def exported(run: Path) -> Path:
    out = run.parent / "exported"
    assert main(["export", str(run), str(out), "--to", "ctranslate2"]) == 0
    return out


def test_the_same_lines_come_out(run, exported, cli):
    def lines(folder: Path, *options: str) -> list[str]:
        return cli("predict", folder, *TEXTS, "--beam-size", "1", *options).ok.out.splitlines()

    assert lines(run) == lines(exported)
    ours, theirs = ([json.loads(line) for line in lines(folder, "--json")] for folder in (run, exported))
    for a, b in zip(ours, theirs, strict=True):
        assert a.pop("score") == pytest.approx(b.pop("score"), abs=1e-3)
    assert ours == theirs and len(ours) == len(TEXTS)


def test_the_card_gives_score_and_interval_in_one_unit(exported):
    card = (exported / "README.md").read_text("utf-8")
    assert re.search(r"exact_match [\d.]+%, 95% interval [\d.]+% to [\d.]+%\.", card), card


def test_prediction_with_an_exported_model_imports_no_torch(exported):
    code = (
        "import sys; from glassformer.cli.main import main; "
        f"main(['predict', {str(exported)!r}, 'a', '--beam-size', '1']); "
        "import glassformer; glassformer.load(sys.argv[1]).predict('a'); "
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(exported)], capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "export takes RUN OUT; none came"),
        (["RUN", "OUT"], "export needs --to"),
        (["RUN", "--to", "ctranslate2"], "export takes RUN OUT; 1 came"),
        (["RUN", "RUN", "--to", "ctranslate2"], "is not empty"),
        (["RUN", "OUT", "--to", "torchscript"], "torchscript"),
        (["RUN", "OUT", "--to", "hf"], "transformers has no class"),
        (["RUN", "OUT", "--to", "onnx", "--quantization", "int8"], "onnx is not written with quantization"),
        (["RUN", "OUT", "--to", "ctranslate2", "--member", "2"], "there is no member 2"),
    ],
    ids=str,
)
def test_misuse_is_refused(run, words, message, cli):
    out = run.parent / "refused"
    refused = cli("export", *({"RUN": run, "OUT": out}.get(word, word) for word in words))
    assert refused.code == UsageError.exit_code and message in refused.err and not out.exists()


def test_a_damaged_folder_and_options_that_do_not_fit_are_errors(exported, tmp_path, cli):
    for options in (["--precision", "bf16"], ["--sample"]):
        assert cli("predict", exported, "a", *options).code == UsageError.exit_code
    with pytest.raises(UsageError, match="predicts alone"):
        glassformer.load(exported, exported)
    damaged = shutil.copytree(exported, tmp_path / "damaged")
    (damaged / "model.bin").write_bytes(b"x")
    cli("predict", damaged, "a").refused("model.bin", code=4)
