"""One table over the heads of encoders: trained, scored, answered, learned, explained, exported and begun from."""

import ast
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import f1_score, mean_absolute_error, r2_score, root_mean_squared_error
from tests.helpers.exports import printed_by_card, run_of
from tests.helpers.for_each import for_each
from tests.helpers.reading import read, table
from tests.helpers.small import small
from tests.tasks.heads import HEADS, MODEL, NAMES, TEXT, rows, text_of, train, write

import glassformer
from glassformer.config import DataConfig
from glassformer.data.datasets.labels import mean_and_sd, why_no_number
from glassformer.data.splits import Split
from glassformer.errors import CheckpointError, DataError, DivergedError, UsageError
from glassformer.evaluate import scores as scoring
from glassformer.evaluate.baselines import Known, number_baselines
from glassformer.evaluate.scoring import f1, paired
from glassformer.explain.explanation import TraceRequest, explain
from glassformer.explain.learn.learning import known_answers
from glassformer.interop.exported import load_exported
from glassformer.models.ensemble import mean_logits, members_of
from glassformer.nn.cross_entropy import IGNORE_INDEX
from glassformer.run import Run
from glassformer.tasks import restoring
from glassformer.tasks.encoder import MultiLabel, Regress, Tag, places_and_tags
from glassformer.tasks.heads import squared_errors
from glassformer.text.answers import Decision, answer_lines, number_text
from glassformer.text.pairs import SEPARATOR
from glassformer.text.words import read_running

pytestmark = pytest.mark.draws

# What every head does


@pytest.mark.parametrize("head", HEADS)
def test_a_run_answers_as_it_was_evaluated(head, runs_of, load, cli):
    known, folder, run = HEADS[head], runs_of(head), load(head)
    stored = [json.loads(line) for line in (folder / "predictions.jsonl").read_text("utf-8").splitlines()]
    tested = [*rows(head, 60, seed=1)]
    answers = run.predict([text_of(row) for row in tested])
    [key] = {"labels", "number", "tags", "label"} & known.answer
    kept = [row[key].split() if head == "tag" else row[key] for row in stored]
    assert [answer[key] for answer in answers] == (pytest.approx(kept, abs=1e-3) if head == "regress" else kept)
    scores = run.evaluate()
    assert known.baselines <= scores["baselines"].keys()
    assert scores[f"{run.task.report.headline}_ci95" if head != "pairs" else "ci95"]
    report = (folder / "report.md").read_text("utf-8")
    assert all(words in report for words in known.report)
    other = write(folder.parent / "o.jsonl", rows(head, 10, seed=3))
    assert run.evaluate(data=DataConfig(test_file=str(other)))["n"] == 10
    compared = cli("compare", folder, folder).ok.out
    assert cli("doctor", folder).ok and (head != "regress" or "approximate randomization" in compared)
    if head == "multilabel":
        assert run.task.decision.thresholds is not None and len(run.task.decision.thresholds) == 3
    if head == "regress":
        scale = json.loads((folder / "data.json").read_text("utf-8"))["scale"]
        assert (scale["mean"], scale["sd"]) == run.task.decision.scale and scores["r2"] > 0.5
        assert scores["mae"] < scores["baselines"]["mean"]["mae"]
    if head == "tag":
        found = scoring.tag_counts([row["tags"] for row in tested], [answer["tags"] for answer in answers])
        assert scores["headline"] == "span_f1" and scores["span_f1"] == pytest.approx(f1(found.sum(axis=0)))
        assert scores["baselines"]["frequent"]["span_f1"] < scores["baselines"]["window"]["span_f1"]
    if head == "pairs":
        assert {"text", "pair", "label"} <= scores["examples"][0].keys() and not {"text", "pair"} & stored[0].keys()
        assert "what both share" in scores["baselines"]["tfidf_logistic"]["settings"]


@pytest.mark.parametrize("head", HEADS)
def test_the_commands_answer_texts_and_tables(head, runs_of, tmp_path, cli):
    run, text = runs_of(head), HEADS[head].text
    assert cli("predict", run, text, "--json").json.keys() == HEADS[head].answer | {"precision"}
    assert len(cli("predict", run, text, text).ok.out.splitlines()) == 2
    made = [{"text": text_of(row)} if head == "tag" else row for row in rows(head, 20, seed=3)]
    source = write(tmp_path / "a.jsonl", made)
    column = ["--text-column", "text"] if head == "tag" else []
    for name in ("b.jsonl", "b.csv"):
        assert cli("predict-table", run, source, tmp_path / name, "--prefix", "p_", *column).ok
    found = [json.loads(line) for line in (tmp_path / "b.jsonl").read_text("utf-8").splitlines()]
    assert len(found) == len((tmp_path / "b.csv").read_text("utf-8").splitlines()) - 1 == 20
    columns = {f"p_{key}" for key in HEADS[head].answer - {"text", "pair", "probabilities"}}
    assert all(columns <= row.keys() for row in found)
    if head == "regress":
        assert all(isinstance(row["p_number"], float) for row in found)
    if head == "tag":
        assert cli("explain", run, "n1 goes to rome", "--label", "4", "--json").json["manifest"]["labels"]["shown"] == 3


@pytest.mark.parametrize(("head", "learn"), [(name, each) for name, head in HEADS.items() for each in head.learned])
def test_an_answer_is_learned_and_kept(head, learn, load, tmp_path):
    run, text = load(head), HEADS[head].text
    learned = run.learn(text, steps=5, **learn)
    assert learned.learning is not None and learned.learning.learned is not None
    assert learned.learning.learned.loss < learned.learning.loss
    kept = glassformer.load(learned.keep(tmp_path / "kept"))
    before, after = run.predict(text), kept.predict(text)
    assert before.keys() == after.keys() and kept.task.decision == run.task.decision
    names = dict(run.model.named_parameters())
    assert any(not torch.equal(p, names[name]) for name, p in kept.model.named_parameters())
    if head == "multilabel":
        assert (after["probabilities"]["good"] > before["probabilities"]["good"]) == (learn["answer"] == "good")
        heads = [dict(one.model.named_parameters())["head.weight"] for one in (run, kept)]
        assert torch.equal(heads[0][[0, 2]], heads[1][[0, 2]]) and not torch.equal(heads[0][1], heads[1][1])
    if head == "pairs":  # the others are those that the run was evaluated on, each with both of its texts
        assert learned.learning.learned.others
        assert all(SEPARATOR in other.text for other in learned.learning.learned.others)
        assert all(answer["pair"] for answer in run.predict([text for text, _ in known_answers(run)]))


def by_torch(task: str, z: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    if task == "multilabel":
        return torch.nn.functional.binary_cross_entropy_with_logits(z[..., 1], labels.float(), reduction="sum")
    if task == "regress":
        return torch.nn.functional.mse_loss(z[:, 0], labels, reduction="sum")
    scored = labels != IGNORE_INDEX
    return torch.nn.functional.cross_entropy(z[scored], labels[scored], reduction="sum")


@pytest.mark.parametrize("task", ["multilabel", "regress", "tag"])
def test_the_loss_is_that_of_its_numbers(task):
    made = small(task)
    model, batch, valid = made.task.build_model().eval(), made.batch(made.batches()[0]), made.context.data.valid
    theirs = by_torch(task, made.task.logits(model, batch), batch.labels)
    assert made.task.loss_sum(model, batch).item() == pytest.approx(theirs.item(), rel=1e-5)
    assert batch.n_labels == int((batch.labels != IGNORE_INDEX).sum())
    scores = made.task.validate(model, made.context.valid, valid)
    assert scores["loss"] == pytest.approx(made.task.mean_loss(model, made.context.valid), rel=1e-5)
    if task == "tag":
        assert {"loss", "tag_accuracy", "span_f1"} == scores.keys()
    if task == "regress":
        numbers = np.array([float(a) for a in made.context.data.train.answers])
        assert made.task.decision.scale == pytest.approx((numbers.mean(), numbers.std()))
        expected = (numbers[batch.index] - numbers.mean()) / numbers.std()
        assert batch.labels.numpy() == pytest.approx(expected, abs=1e-5)
        assert squared_errors(torch.tensor([[2.0]]), torch.tensor([5.0])).item() == 9.0
        answers = made.task.predict(model, valid.text, made.config.decode)
        error = np.abs([a["number"] - float(b) for a, b in zip(answers, valid.answers, strict=True)]).mean()
        assert scores["mae"] == pytest.approx(error, rel=1e-6) and not made.task.higher_is_better


def alike(one: Any, two: Any) -> bool:
    """Whether answers are equal but for the last digits of numbers."""
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(alike(one[key], two[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(two) and all(map(alike, one, two))
    return one == (pytest.approx(two, abs=1e-4) if isinstance(two, float) else two)


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("task", ["multilabel", "regress", "tag"])
def test_an_export_answers_as_the_run(task, members, monkeypatch, tmp_path, capsys):
    pytest.importorskip("onnxruntime")
    run = run_of(task, monkeypatch, ensemble_size=members)
    if task == "multilabel":
        run.task.decision = Decision(thresholds=[0.3, 0.5, 0.6])
    facts = run.export("onnx", tmp_path / "out").facts
    assert facts.check is not None and facts.check["equal_answers"] == 1.0
    texts, exported = ["a good,b", "", "odd bad", "good " * 40], load_exported(tmp_path / "out")
    assert alike(exported.predict(texts), run.predict(texts))
    if task == "tag":
        assert answer_lines(exported.predict("a good")) == answer_lines(run.predict("a good"))
    if task == "regress":
        with pytest.raises(UsageError, match="is for classifiers"):
            exported.predict("a", calibrated=True)
    if task == "multilabel":
        printed = printed_by_card(tmp_path / "out", monkeypatch, capsys)
        assert {*ast.literal_eval(printed)} == {*run.predict("a text")["labels"]}, "by the thresholds"


@pytest.mark.parametrize(
    ("start", "task", "found"),
    [
        ("regress", "regress", [row | {"stars": 3 * row["stars"] + 900} for row in rows("regress", 80, seed=4)]),
        ("regress", "classify", [{"text": f"{w} {i}", "label": w} for i in range(20) for w in ("good", "bad")]),
        ("classify", "multilabel", [*rows("multilabel", 80)]),
    ],
    ids=("numbers", "classes of numbers", "labels of classes"),
)
def test_a_start_keeps_its_layers_and_its_head_where_it_means_the_same(start, task, found, runs_of, tmp_path):
    """Numbers in another scale keep their answers; heads of classes, labels and numbers have another meaning, also
    where their rows have the same shape."""
    if start == "classify":
        classes = [{"text": f"{name} {i}", "label": name} for i in range(12) for name in NAMES]
        settings = {"train_file": write(tmp_path / "c.jsonl", classes), "model": MODEL, "text": TEXT, "lr": 0.05}
        glassformer.train("classify", out=tmp_path / "c", threads=1, steps=8, **settings)
    first = glassformer.load(runs_of(start) if start != "classify" else tmp_path / "c", precision="fp32")
    columns = {"label_column": "stars"} if task == "regress" else {}
    begun = {"train_file": write(tmp_path / "b.jsonl", found), "init_from": str(first.path), "lr": 1e-9, **columns}
    run = glassformer.train(task, out=tmp_path / "next", epochs=1, threads=1, **begun)
    ours, theirs = (dict(members_of(one.model)[0].named_parameters()) for one in (run, first))
    assert torch.allclose(ours["embedding.weight"], theirs["embedding.weight"], atol=1e-3)
    if task == "regress":
        run = glassformer.load(run.path, precision="fp32")
        answers = [each.predict("good great a")["number"] for each in (run, first)]
        assert answers[0] == pytest.approx(answers[1], rel=1e-2)
    else:
        heads = ours["head.weight"], theirs["head.weight"]
        assert heads[0].shape == heads[1].shape and not torch.allclose(*heads, atol=1e-3)


@for_each(
    ("value", "labels"),
    [
        *(({"thresholds": value}, ["a", "b"]) for value in ([0.5], [0.5, 2.0], "half")),
        *(({"mean": 1.0} | sd, None) for sd in ({}, {"sd": 0.0}, {"sd": -1.0})),
        *(({"temperature": value}, ["a", "b"]) for value in (0.0, -1.0, 11.0, "warm", float("nan"))),
    ],
)
def test_a_damaged_decision_is_refused(value, labels):
    with pytest.raises(CheckpointError):
        Decision.from_json(value, labels, "config.json")


@for_each(
    ("head", "words", "message"),
    [
        ("regress", ["predict", "RUN", "a b", "--calibrated"], "is for classifiers"),
        ("regress", ["predict", "RUN", "a b", "--min-probability", "0.5"], ", whose answers have probabilities"),
        ("regress", ["train", "regress", "--train-file", "a.csv", "--label-smoothing", "0.1"], "has no use for"),
        ("regress", ["train", "regress", "--train-file", "a.csv", "--label-separator", ";"], "has no use for"),
        ("tag", ["predict-table", "RUN", "DATA", "o.csv", "--probabilities"], "are of classifiers"),
        ("multilabel", ["edit", "RUN", "good", "encoder.0.self.out=0", "-o", "f.toml", "--label", "good"], "--label"),
    ],
)
def test_what_a_head_does_not_have_is_refused(head, words, message, runs_of, cli):
    run = runs_of(head)
    places = {"RUN": run, "DATA": run.parent / "in.csv", "o.csv": run.parent / "o.csv"}
    places["DATA"].write_text("text\nAnna saw Rome\n", "utf-8")
    cli(*(places.get(word, word) for word in words)).refused(message)
    assert not places["o.csv"].exists()


def test_two_runs_are_compared_by_the_metric_of_their_head():
    truth, other = ["ab", "", "b", "a"], ["b", "a", "", "a"]
    ours = [{"truth": [*each], "labels": [*each]} for each in truth]
    theirs = [row | {"labels": [*each]} for row, each in zip(ours, other, strict=True)]
    has, answered = (np.array([[name in answer for name in "ab"] for answer in one]) for one in (truth, other))
    test = paired(MultiLabel.report.scoring({}), ours, theirs)
    assert test["difference"] == pytest.approx(1 - scoring.answered_scores(has, answered)["micro_f1"])
    assert test["metric"] == "micro_f1" and test["n"] == 4
    answers = (zip((1, 2, 5), one, strict=True) for one in ((1, 2, 4), (1, 3, 9)))
    numbers = ([{"truth": t, "number": x} for t, x in one] for one in answers)
    test = paired(Regress.report.scoring({}), *numbers)
    assert test["metric"] == "mae" and test["difference"] == pytest.approx(1 / 3 - 5 / 3)


# Several labels


def read_labels(folder: Path, content: str, name: str = "a.csv", **files: str) -> list[list[str]]:
    found = read(folder, content, name, "multilabel", **files).examples
    return [answer.split("\n") if answer else [] for _, answer in sorted(found, key=lambda x: int(x[0].split()[-1]))]


@for_each("separator", [";", "|", ", "])
def test_a_table_and_a_list_are_read_alike(separator, tmp_path):
    found = [*rows("multilabel", 90)]
    content = table([(row["text"], separator.join(row["labels"])) for row in found], ("text", "labels"), "\t")
    labels = read_labels(tmp_path, content, "a.tsv", label_separator=separator)
    assert labels == read_labels(tmp_path, "\n".join(map(json.dumps, found)), "a.jsonl")
    assert labels == [row["labels"] for row in found]


def test_labels_are_spelled_one_way_and_stand_once(tmp_path):
    lines = ["text,labels", *(f"{i} a {i},good; bad;good ;" for i in range(9)), "x 9,", "y 10,bad"]
    lines += ['z 11,"[""good"", ""bad""]"', "v 12,[]"]
    assert read_labels(tmp_path, "\n".join(lines)) == [["bad", "good"]] * 9 + [[], ["bad"], ["bad", "good"], []]


@for_each(
    ("task", "answer", "message"),
    [
        ("multilabel", {"labels": ["go;od"]}, "which holds ';': --label-separator"),
        ("multilabel", {"labels": None}, "'labels' is null"),
        ("multilabel", {"labels": ["go\nod"]}, "holds a line break"),
        ("regress", {"stars": math.nan}, "is no number of JSON"),
        *(("regress", {"stars": bad}, "is not a number") for bad in ("1,5", "n/a", True)),
    ],
)
def test_a_bad_line_is_named(task, answer, message, tmp_path):
    lines = [*map(json.dumps, rows(task, 90)), json.dumps({"text": "a"} | answer)]
    found = read(tmp_path, "\n".join(lines), "a.jsonl", task).message
    assert message in found and "a.jsonl:91: " in found


def test_a_label_of_the_test_file_alone_is_named(runs_of, tmp_path, cli):
    path = write(tmp_path / "t.jsonl", [{"text": "a", "labels": ["good"]}, {"text": "b", "labels": ["good", "goood"]}])
    messages = ("t.jsonl:2", "'goood' is not one of the training data's")
    cli("evaluate", runs_of("multilabel"), "--test-file", path).refused(*messages, code=DataError.exit_code)


def test_scores_of_labels_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    truth, p = rng.random((200, 4)) < (0.5, 0.2, 0.05, 0), rng.random((200, 4))
    answered = p >= 0.6
    scores = scoring.label_scores(truth, p, answered, list("abcd"))
    assert scores["micro_f1"] == pytest.approx(f1_score(truth, answered, average="micro"))
    assert scores["macro_f1"] == pytest.approx(f1_score(truth, answered, average="macro", zero_division=0))
    low, high = scores["micro_f1_ci95"]
    assert low < scores["micro_f1"] < high and type(low) is float, "of numpy they are no numbers of a record"
    assert scores["all_right"] == (truth == answered).all(axis=1).mean()
    assert scores["log_loss"] == pytest.approx(-np.log(np.where(truth, p, 1 - p)).mean())


@for_each("seed", range(8))
def test_no_threshold_has_a_higher_f1(seed):
    rng = np.random.default_rng(seed)
    truth, p = rng.random(60) < 0.3, rng.random(60).round(1)  # many are equal
    at = (scoring.best_threshold(truth, p), *np.linspace(0, 1, 101))
    found, *others = (scoring.answered_scores(truth[:, None], (p >= t)[:, None])["micro_f1"] for t in at)
    assert max(others) <= found


def test_a_rare_label_takes_the_threshold_of_all():
    rng = np.random.default_rng(0)
    truth, p = rng.random((100, 3)) < (0.5, 0.5, 0.03), rng.random((100, 3))
    first, second, rare = scoring.choose_thresholds(truth, p)
    assert rare == scoring.best_threshold(truth.ravel(), p.ravel()) and first != second


def test_a_model_begins_with_the_shares_of_training():
    made = small("multilabel")
    model = made.task.build_model()
    with torch.no_grad():
        model.head.weight.zero_()  # pyright: ignore
    made.task.initialise_output(model, made.context.train)
    [answer] = made.task.predict(model, ["a b"], made.config.decode)
    share = np.mean([["good" in a.split("\n")] for a in made.context.data.train.answers])
    assert answer["probabilities"]["good"] == pytest.approx((share * 60 + 1) / 62, rel=1e-5)


def test_a_text_may_have_no_label_and_no_answer_is_of_no_numbers(load):
    run = load("multilabel")
    run.task.decision = Decision(thresholds=[1.0, 1.0, 1.0])
    assert run.predict("a b")["labels"] == [] and answer_lines(run.predict("a b")) == ["\t"]
    with torch.no_grad():
        for weights in run.model.parameters():
            weights.mul_(1e38)
    with pytest.raises(DivergedError, match="NaN"):
        run.predict("good")


@for_each("members", [1, 2])
def test_an_explanation_is_of_one_label(members, monkeypatch):
    run = run_of("multilabel", monkeypatch, ensemble_size=members)
    text, all_of = "a good b", run.predict("a good b")["probabilities"]
    for name in NAMES:
        e = run.explain(text, label=name)
        assert e.labels is not None and e.labels.each[e.labels.shown].name == name
        assert {one.name: one.probability for one in e.labels.each} == pytest.approx(all_of, abs=1e-6)
        yes = next(c for c in e.predictions[0].top if c.piece == name)
        assert members > 1 or np.exp(yes.log_prob) == pytest.approx(all_of[name], abs=1e-6)
        assert e.attribute().scores
    shown = explain(run, text).labels
    assert shown is not None and NAMES[shown.shown] == max(all_of, key=lambda n: all_of[n])
    other = explain(run, TraceRequest("a b c", edits=("encoder.0.self.out=B",), other_text="b a c", label="odd")).other
    assert other is not None and other.labels is not None and NAMES[other.labels.shown] == "odd"
    with pytest.raises(UsageError, match="'goood' is not a label of this model"):
        run.explain(text, label="goood")
    with pytest.raises(UsageError, match="no label to choose"):
        run_of("classify", monkeypatch).explain(text, label="good")


def test_a_run_whose_model_is_lost_is_finished_again(runs_of, load, tmp_path):
    shutil.copytree(runs_of("multilabel"), tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "model")
    for name in ("evaluation.json", "report.md"):
        (tmp_path / "run" / name).unlink()
    again, first = glassformer.resume(tmp_path / "run"), load("multilabel")
    assert isinstance(again, Run) and again.task.decision == first.task.decision
    weights = zip(again.model.parameters(), first.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in weights)


def test_several_runs_have_one_set_of_thresholds(runs_of, tmp_path):
    trained, out = runs_of("multilabel"), tmp_path / "seeds"
    files = {"train_file": trained.parent / "a.jsonl", "test_file": trained.parent / "t.jsonl"}
    settings = {"threads": 1, "epochs": 1, "model": MODEL, "text": TEXT}
    glassformer.train("multilabel", out=out, seeds=2, **files, **settings)
    assert len(glassformer.load(out).predict("good")["probabilities"]) == 3
    own = json.loads((out / "ensemble.json").read_text("utf-8"))["decision"]["thresholds"]

    def thresholds(*places: Path) -> list[float] | None:
        return glassformer.load(*places).task.decision.thresholds

    one, two = sorted(out.glob("seed-*"))
    assert thresholds(one, two) == thresholds(two, one) == own
    known = [thresholds(one), thresholds(trained)]
    assert thresholds(one, trained) == thresholds(trained, one) == pytest.approx(np.mean(known, axis=0))
    runs = [(each, glassformer.load(each).task) for each in (one, trained)]
    runs[0][1].decision = Decision()  # as of an import: no thresholds, so one half
    both = [restoring.decision_together(tmp_path, each).thresholds for each in (runs, runs[::-1])]
    assert both[0] == both[1] == pytest.approx(np.mean([[0.5] * 3, known[1]], axis=0))


def test_the_doctor_finds_nothing_wrong_with_rare_labels(runs_of, cli):
    """The first loss is far below the logarithm of their number."""
    shown = cli("doctor", runs_of("multilabel"), "--examine").ok.out
    assert "what guessing costs depends on how frequent the labels are" in shown and "STOP" not in shown


def test_labels_are_counted_one_by_one(tmp_path, cli):
    path = write(tmp_path / "a.jsonl", [*rows("multilabel", 90), {"text": "z 90", "labels": ["good", "rare"]}])
    facts = cli("data", "check", "multilabel", "--train-file", path, "--json").ok.json
    found = {finding["place"]: finding["numbers"] for finding in facts["findings"]}
    assert found["classes of one example"]["n"] == 1 and facts["counts"]["train: texts without a label"] > 0
    assert "train: empty" not in facts["counts"]


# Numbers


@for_each(
    ("cell", "message"),
    [
        *((cell, "") for cell in ("3", "-0.5", ".5", "1e-3", "1e300")),
        ("", "the number is empty"),
        *((cell, f"{cell!r} is not a number") for cell in ("n/a", "nan", "inf", "1_000", "٣")),
        ("1,5", "without a comma"),
        *((cell, "is beyond 1e+300") for cell in ("1e301", "1e999")),
    ],
)
def test_what_a_number_is(cell, message):
    assert (message in why_no_number(cell)) and bool(why_no_number(cell)) == bool(message)


def test_equal_numbers_are_refused(tmp_path):
    content = table([(f"a {i}", "3") for i in range(20)], ("text", "stars"))
    assert "numbers are 3, so there is nothing to learn" in read(tmp_path, content, task="regress").message


def test_scores_of_numbers_are_those_of_scikit_learn_and_scipy():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=300).round(1)
    predicted = (truth + rng.normal(size=300)).round(1)  # with equal ranks
    scores = scoring.number_scores(truth, predicted)
    expected = {
        "mae": mean_absolute_error(truth, predicted),
        "rmse": root_mean_squared_error(truth, predicted),
        "r2": r2_score(truth, predicted),
        "pearson": pearsonr(truth, predicted)[0],
        "spearman": spearmanr(truth, predicted)[0],
    }
    for name, value in expected.items():
        assert scores[name] == pytest.approx(value, abs=1e-9)
        low, high = scores.get(f"{name}_ci95", (-math.inf, math.inf))
        assert low < value < high
    scores = scoring.number_scores(np.array([1.0, 2.0, 3.0]), np.full(3, 2.0))
    assert scores["pearson"] is None and scores["spearman"] is None and scores["mae"] == pytest.approx(2 / 3)
    assert scoring.number_scores(np.full(3, 2.0), np.array([1.0, 2.0, 3.0]))["r2"] is None


@for_each("scale", [1e-300, 1.0, 1e15, 1e299])
def test_scores_do_not_depend_on_the_unit(scale):
    truth, predicted = np.array([1.0, 2.0, 3.0, 5.0]), np.array([1.5, 2.0, 2.0, 4.0])
    scores, one = scoring.number_scores(truth * scale, predicted * scale), scoring.number_scores(truth, predicted)
    assert scores["mae"] == pytest.approx(one["mae"] * scale, rel=1e-9)
    assert scores["r2"] == pytest.approx(one["r2"], rel=1e-9)
    assert mean_and_sd(truth * scale) == pytest.approx((2.75 * scale, truth.std() * scale), rel=1e-9)


def test_an_ensemble_averages_numbers():
    assert mean_logits([torch.tensor([[1.0]]), torch.tensor([[4.0]])]).item() == 2.5


@for_each("members", [1, 2])
def test_an_explanation_is_in_the_units_of_the_numbers(members, monkeypatch):
    run, text = run_of("regress", monkeypatch, ensemble_size=members), "a good b good"
    e = explain(run, TraceRequest(text))
    one = run.task.predict(members_of(run.model)[0], [text], run.config.decode)[0]["number"]
    assert float(e.answer["headline"].replace("−", "-")) == pytest.approx(one, rel=1e-4)
    assert (e.together is not None) == (members > 1) and e.predictions == []
    found, summed = e.attribute(), e.attribute("integrated_gradients")
    assert found.value == pytest.approx(one, rel=1e-5) and len(found.scores["text"]) == len(e.streams[0])
    assert sum(summed.scores["text"]) == pytest.approx(summed.value - summed.baseline_value, rel=0.05, abs=0.05)
    edited = e.what_if("encoder.0.self.out=0")
    assert edited.answer_after is not None and "without edits" in edited.answer["detail"]


def test_an_edit_prints_the_numbers_and_no_table_of_logits(runs_of, cli):
    printed = cli("edit", runs_of("regress"), "a good b", "encoder.0.self.out=0").ok.out
    assert "before" in printed and "after" in printed and "logit" not in printed and "log p" not in printed


def test_numbers_far_from_zero_keep_their_digits_and_their_baseline():
    rng = np.random.default_rng(0)
    texts = [f"{'good' if i % 2 else 'bad'} film {i % 7}" for i in range(60)]
    numbers = np.array([5.0 * (i % 2) for i in range(60)]) + rng.normal(size=60) / 10
    known = [(Known(texts[:40], x[:40]), Known(texts[40:], x[40:])) for x in (numbers, numbers + 1.7e9)]
    near, far = (number_baselines(*each)["tfidf_ridge"]["mae"] for each in known)
    assert far == pytest.approx(near, rel=1e-3)
    written = [number_text(x) for x in (1700003442.6, -1234567.0, 0.123456789, 12.5, 1e300)]
    assert written == ["1700003442.6", "-1234567", "0.123457", "12.5", "1e+300"]


# A tag for each word


def test_spans_are_those_of_the_text_that_was_given(load):
    run, text = load("tag"), "n1 goes  to\tsan marino,from rome."
    answer = run.predict(text)
    assert answer["words"] == ["n1", "goes", "to", "san", "marino", ",", "from", "rome", "."]
    assert len(answer["tags"]) == 9 and answer["spans"]
    for span in answer["spans"]:
        assert text[span["start"] : span["end"]] == span["text"] and 0 < span["probability"] <= 1
    assert run.predict(["", "  "]) == [{"text": t, "words": [], "tags": [], "spans": []} for t in ("", "  ")]


def test_words_beyond_the_longest_text_are_outside_and_counted(monkeypatch):
    run = run_of("tag", monkeypatch)
    task: Any = run.task
    words = ["good"] * (task.config.text.max_len + 5)
    split = Split([" ".join(words)], ["\n".join(["B-G"] * len(words))], "made")
    places, _ = places_and_tags(task.encode(split, training=False), 0)
    n_read = int((places >= 0).sum())
    answer = run.predict(" ".join(words))
    assert n_read < len(words) == len(answer["tags"]) and answer["truncated"] is True
    assert set(answer["tags"][n_read:]) == {"O"}
    scores = task.evaluate(run.model, split, task.config.decode)
    assert scores["n_words"] == len(words) and scores["n_truncated"] == 1


@pytest.mark.parametrize("kind", ["word", "char", "byte-bpe"])
def test_labels_stand_at_the_first_token_of_each_word(kind):
    made = small("tag")
    text = replace(made.config.text, tokenizer=kind, vocab_size=300, max_len=60)  # pyright: ignore
    task, data = Tag.from_data(replace(made.config, text=text), made.context.data), made.context.data.train
    corpus = task.encode(data, training=True)
    for i, (text, answer) in enumerate(zip(data.text, data.answers, strict=True)):
        places, tags = places_and_tags(corpus, i)
        assert [task.label_names[tag] for tag in tags] == answer.split("\n")  # pyright: ignore
        assert (places >= 0).all() and (np.diff(places) > 0).all() and len(places) == len(text.split())
        batch = task.make_batch(corpus, np.array([i]))
        assert np.flatnonzero(batch.labels[0] != IGNORE_INDEX).tolist() == places.tolist()
        assert batch.n_labels == len(places)


def test_plain_tags_are_selected_by_accuracy(tmp_path):
    words = [row["tokens"] for row in rows("tag", 60)]
    tagged = ({"tokens": each, "tags": [("NOUN", "VERB")[word == "goes"] for word in each]} for each in words)
    run = train("tag", tmp_path / "run", train_file=write(tmp_path / "a.jsonl", tagged), steps=6)
    assert run.task.metric == "tag_accuracy" and run.task.label_names == ["NOUN", "VERB"]
    answer = run.predict("oslo goes")
    assert answer["spans"] == [] and "/" in answer_lines(answer)[0]
    assert run.evaluate("valid")["headline"] == "tag_accuracy"
    e = run.explain("oslo goes", label="goes")  # of two tags, which share a logit
    assert e.answer["headline"] == answer["tags"][1] and e.sweep("contributions").error == pytest.approx(0, abs=1e-4)


@for_each("members", [1, 2])
def test_an_explanation_is_of_one_word(members, monkeypatch):
    run, text = run_of("tag", monkeypatch, ensemble_size=members), "a good,b  good"
    answer, spans = run.predict(text), []
    for number, word in enumerate(read_running(text).words, start=1):
        e = run.explain(text, label=str(number))
        assert e.labels is not None and e.labels.shown == number - 1
        assert e.labels.each[number - 1].name == f"{number} {word} {answer['tags'][number - 1]}"
        assert e.labels.each[number - 1].threshold is None
        assert run.explain(text, label=e.labels.each[number - 1].name).labels == e.labels
        about = f", word {number} “{word}”"
        assert e.answer["detail"].endswith(about)
        assert e.what_if("encoder.0.self.head1=0").answer["detail"].endswith(about)
        best = (e.together if e.together else e.answer)["headline"]
        assert best == answer["tags"][number - 1] and e.attribute().scores
        record = e.records["pooled"]
        assert torch.equal(record.value, e.records[record.inputs[0]].value[record.attrs["token"]])
        spans = e.streams[0].spans
    assert [span for span in spans if span and text[span[0] : span[1]] == ","] == [(6, 7)]
    assert explain(run, TraceRequest(text, label="GOOD")).labels.shown == 1  # pyright: ignore
    for wrong, message, label in ((text, "'odd' is not a word of this text", "odd"), (" ", "holds no word", None)):
        with pytest.raises(UsageError, match=message):
            run.explain(wrong, **({"label": label} if label else {}))


def test_a_folder_with_one_tag_is_damaged(runs_of, tmp_path):
    shutil.copytree(runs_of("tag") / "model", tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text("utf-8"))
    (tmp_path / "model" / "config.json").write_text(json.dumps(config | {"label_names": ["O"]}), "utf-8")
    with pytest.raises(CheckpointError):
        glassformer.load(tmp_path / "model")
