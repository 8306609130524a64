"""Texts with several labels: read, trained, scored beside baselines, explained a label at a time, exported."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score
from tests.helpers.exports import run_of
from tests.helpers.for_each import for_each
from tests.helpers.small import small

import glassformer
from glassformer.cli.main import main
from glassformer.config import DataConfig, FilesConfig
from glassformer.data.datasets.local_files import load_text_data
from glassformer.errors import DataError, DivergedError, UsageError
from glassformer.evaluate import scores as scoring
from glassformer.evaluate.scoring import paired
from glassformer.explain.explanation import explain
from glassformer.explain.request import TraceRequest
from glassformer.models.ensemble import members_of
from glassformer.run import Run
from glassformer.tasks import restoring
from glassformer.tasks.encoder import MultiLabel
from glassformer.text.answers import Decision, answer_lines

NAMES = ["bad", "good", "odd"]
TINY: dict[str, Any] = {
    "threads": 1,
    "epochs": 3,
    "validate_every": 1.0,
    "model": {"d_model": 16, "n_heads": 2, "d_ff": 16, "ensemble_size": 1},
    "text": {"vocab_size": 100, "ngrams": 0},
}


def write(path: Path, n: int = 90, seed: int = 0, separator: str | None = None) -> Path:
    """Write texts that name their labels; as a table where a separator is given."""
    rng, lines = np.random.default_rng(seed), []
    for i in range(n):
        labels = [name for name in NAMES if rng.random() < 0.5]
        text = " ".join([*rng.permutation([*labels, *rng.choice(list("abcdefgh"), 4)]), str(i)])
        lines.append(
            json.dumps({"text": text, "labels": labels}) if separator is None else f"{text}\t{separator.join(labels)}"
        )
    head = [] if separator is None else ["text\tlabels"]
    path.write_text("\n".join([*head, *lines]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("multilabel")
    files = {"train_file": write(folder / "a.jsonl"), "test_file": write(folder / "t.jsonl", 60, seed=1)}
    glassformer.train("multilabel", out=folder / "run", **files, **TINY)
    return folder / "run"


def read(path: Path, **files: Any) -> list[list[str]]:
    data = DataConfig(files=FilesConfig(train_file=str(path), **files))
    text = load_text_data(MultiLabel.schema, data)
    rows = [row for part in (text.train, text.valid) for row in zip(part.text, part.answers, strict=True)]
    return [answer.split("\n") if answer else [] for _, answer in sorted(rows, key=lambda row: int(row[0].split()[-1]))]


@for_each("separator", [";", "|", ", "])
def test_a_table_and_a_list_are_read_alike(separator: str, tmp_path: Path) -> None:
    table = write(tmp_path / "a.tsv", separator=separator)
    assert read(table, label_separator=separator) == read(write(tmp_path / "a.jsonl"))


def test_labels_are_spelled_one_way_and_stand_once(tmp_path: Path) -> None:
    rows = ["text,labels", *(f"{i} a {i},good; bad;good ;" for i in range(9)), "x 9,", "y 10,bad"]
    rows += ['z 11,"[""good"", ""bad""]"', "v 12,[]"]
    (tmp_path / "a.csv").write_text("\n".join(rows), encoding="utf-8")
    assert read(tmp_path / "a.csv") == [["bad", "good"]] * 9 + [[], ["bad"], ["bad", "good"], []]


@for_each(
    ("line", "message"),
    [
        ({"text": "a", "labels": ["go;od"]}, "which holds ';': --label-separator"),
        ({"text": "a", "labels": None}, "'labels' is null"),
        ({"text": "a", "labels": ["go\nod"]}, "holds a line break"),
    ],
)
def test_a_bad_line_is_named(line: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl")
    path.write_text(path.read_text("utf-8") + json.dumps(line) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=message) as error:
        read(path)
    assert f"{path}:91" in str(error.value)


def test_a_label_of_the_test_file_alone_is_named(trained: Path, tmp_path: Path, capfd: Any) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"text": "a", "labels": ["good"]}\n{"text": "b", "labels": ["good", "goood"]}\n', "utf-8")
    assert main(["evaluate", str(trained), "--test-file", str(path)]) == DataError.exit_code
    assert "t.jsonl:2" in (err := capfd.readouterr().err) and "'goood' is not one of the training data's" in err


def test_scores_are_those_of_scikit_learn() -> None:
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
def test_no_threshold_has_a_higher_f1(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth, p = rng.random(60) < 0.3, rng.random(60).round(1)  # many are equal
    best = scoring.best_threshold(truth, p)
    found, *others = (
        scoring.answered_scores(truth[:, None], (p >= t)[:, None])["micro_f1"] for t in (best, *np.linspace(0, 1, 101))
    )
    assert max(others) <= found


def test_a_rare_label_takes_the_threshold_of_all() -> None:
    rng = np.random.default_rng(0)
    truth, p = rng.random((100, 3)) < (0.5, 0.5, 0.03), rng.random((100, 3))
    first, second, rare = scoring.choose_thresholds(truth, p)
    assert rare == scoring.best_threshold(truth.ravel(), p.ravel()) and first != second


def test_the_loss_is_that_of_a_sigmoid_for_each_label() -> None:
    made = small("multilabel")
    model, batch = made.task.build_model(), made.batch(made.batches()[0])
    z = made.task.logits(model.eval(), batch)
    theirs = torch.nn.functional.binary_cross_entropy_with_logits(z[..., 1], batch.labels.float(), reduction="sum")
    assert made.task.loss_sum(model, batch).item() == pytest.approx(theirs.item(), rel=1e-5)
    assert batch.n_labels == batch.labels.numel()


def test_a_model_begins_with_the_shares_of_training() -> None:
    made = small("multilabel")
    model = made.task.build_model()
    with torch.no_grad():
        model.head.weight.zero_()  # pyright: ignore
    made.task.initialise_output(model, made.context.train)
    [answer] = made.task.predict(model, ["a b"], made.config.decode)
    share = np.mean([["good" in a.split("\n")] for a in made.context.data.train.answers])
    assert answer["probabilities"]["good"] == pytest.approx((share * 60 + 1) / 62, rel=1e-5)


def test_a_run_answers_as_it_was_evaluated(trained: Path) -> None:
    run = glassformer.load(trained)
    rows = [json.loads(line) for line in (trained / "predictions.jsonl").read_text("utf-8").splitlines()]
    texts = [json.loads(line)["text"] for line in (trained.parent / "t.jsonl").read_text("utf-8").splitlines()]
    answers = run.predict(texts)
    assert [a["labels"] for a in answers] == [row["labels"] for row in rows]
    assert run.task.decision.thresholds is not None and len(run.task.decision.thresholds) == 3
    scores = run.evaluate()
    assert {"frequent", "tfidf_logistic"} <= scores["baselines"].keys() and scores["micro_f1_ci95"]
    report = (trained / "report.md").read_text("utf-8")
    assert "Micro F1" in report and "most frequent answer" in report
    assert main(["compare", str(trained), str(trained)]) == 0


def test_a_text_may_have_no_label(trained: Path, capfd: Any) -> None:
    run = glassformer.load(trained)
    run.task.decision = Decision(thresholds=[1.0, 1.0, 1.0])
    assert run.predict("a b")["labels"] == []
    assert answer_lines(run.predict("a b")) == ["\t"]
    assert main(["predict", str(trained), "good bad", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["probabilities"].keys() == {*NAMES}


def test_damaged_thresholds_are_refused() -> None:
    for value in ({"thresholds": [0.5]}, {"thresholds": [0.5, 2.0]}, {"thresholds": "half"}):
        with pytest.raises(glassformer.errors.CheckpointError):
            Decision.from_json(value, ["a", "b"], "config.json")


@for_each("members", [1, 2])
def test_an_explanation_is_of_one_label(members: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of("multilabel", monkeypatch, ensemble_size=members)
    text, all_of = "a good b", run.predict("a good b")["probabilities"]
    for name in NAMES:
        e = run.explain(text, label=name)
        assert e.labels is not None and e.labels.each[e.labels.shown].name == name
        assert {one.name: one.probability for one in e.labels.each} == pytest.approx(all_of, abs=1e-6)
        yes = next(c for c in e.predictions[0].top if c.piece == name)
        if members == 1:
            assert np.exp(yes.log_prob) == pytest.approx(all_of[name], abs=1e-6)
        assert e.attribute().scores
    shown = explain(run, text).labels
    assert shown is not None and NAMES[shown.shown] == max(all_of, key=lambda n: all_of[n])
    with pytest.raises(UsageError, match="'goood' is not a label of this model"):
        run.explain(text, label="goood")
    with pytest.raises(UsageError, match="no label to choose"):
        run_of("classify", monkeypatch).explain(text, label="good")


@pytest.mark.parametrize("answer", ["good", "not good"])
def test_one_label_is_learned_and_kept(answer: str, trained: Path, tmp_path: Path) -> None:
    run = glassformer.load(trained)
    learned = run.learn("a b c", answer, steps=3)
    assert learned.learning is not None and learned.learning.learned is not None
    assert learned.learning.learned.loss < learned.learning.loss
    kept = glassformer.load(learned.keep(tmp_path / "kept"))
    before, after = run.predict("a b c"), kept.predict("a b c")
    assert (after["probabilities"]["good"] > before["probabilities"]["good"]) == (answer == "good")
    assert kept.task.decision == run.task.decision
    heads = [dict(one.model.named_parameters())["head.weight"] for one in (run, kept)]
    assert torch.equal(heads[0][[0, 2]], heads[1][[0, 2]]) and not torch.equal(heads[0][1], heads[1][1])


def test_a_run_whose_model_is_lost_is_finished_again(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "model")
    for name in ("evaluation.json", "report.md"):
        (tmp_path / "run" / name).unlink()
    again, first = glassformer.resume(tmp_path / "run"), glassformer.load(trained)
    assert isinstance(again, Run) and again.task.decision == first.task.decision
    weights = zip(again.model.parameters(), first.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in weights)


def test_several_runs_have_one_set_of_thresholds(trained: Path, tmp_path: Path) -> None:
    files = {"train_file": trained.parent / "a.jsonl", "test_file": trained.parent / "t.jsonl"}
    glassformer.train("multilabel", out=tmp_path / "seeds", seeds=2, **files, **TINY)
    assert (tmp_path / "seeds" / "ensemble.json").exists()
    assert len(glassformer.load(tmp_path / "seeds").predict("good")["probabilities"]) == 3
    one, two = sorted((tmp_path / "seeds").glob("seed-*"))
    several = [glassformer.load(*each) for each in ((one, two), (two, one))]
    own = json.loads((tmp_path / "seeds" / "ensemble.json").read_text("utf-8"))["decision"]["thresholds"]
    assert [run.task.decision.thresholds for run in several] == [own, own]
    mixed = [glassformer.load(*each).task.decision.thresholds for each in ((one, trained), (trained, one))]
    known = [glassformer.load(each).task.decision.thresholds for each in (one, trained)]
    assert mixed[0] == mixed[1] == pytest.approx(np.mean(known, axis=0))
    runs = [(each, glassformer.load(each).task) for each in (one, trained)]
    runs[0][1].decision = Decision()  # as of an import: no thresholds, so one half
    both = [restoring.decision_together(tmp_path, each).thresholds for each in (runs, runs[::-1])]
    assert both[0] == both[1] == pytest.approx(np.mean([[0.5] * 3, known[1]], axis=0))


def test_single_labels_are_no_start_for_several(tmp_path: Path, trained: Path) -> None:
    """Heads of softmax and of sigmoids have rows of the same shape and of another meaning."""
    rows = ["text,label", *(f"{name} {i},{name}" for i in range(12) for name in NAMES)]
    (tmp_path / "a.csv").write_text("\n".join(rows), encoding="utf-8")
    glassformer.train("classify", out=tmp_path / "one", train_file=tmp_path / "a.csv", **TINY)
    begun = {**TINY, "init_from": str(tmp_path / "one"), "epochs": 1, "lr": 1e-9}
    begun.pop("model"), begun.pop("text")
    run = glassformer.train("multilabel", out=tmp_path / "several", train_file=trained.parent / "a.jsonl", **begun)
    assert isinstance(run, Run)
    ours, theirs = (dict(members_of(r.model)[0].named_parameters()) for r in (run, glassformer.load(tmp_path / "one")))
    assert torch.allclose(ours["embedding.weight"], theirs["embedding.weight"], atol=1e-3)
    assert not torch.allclose(ours["head.weight"], theirs["head.weight"], atol=1e-3)


def test_probabilities_that_are_no_numbers_are_no_answer(trained: Path) -> None:
    run = glassformer.load(trained)
    with torch.no_grad():
        for weights in run.model.parameters():
            weights.mul_(1e38)
    with pytest.raises(DivergedError, match="NaN"):
        run.predict("good")


def test_two_runs_are_compared_by_micro_f1() -> None:
    truth, other = ["ab", "", "b", "a"], ["b", "a", "", "a"]
    ours = [{"truth": [*each], "labels": [*each]} for each in truth]
    theirs = [row | {"labels": [*each]} for row, each in zip(ours, other, strict=True)]
    test = paired(MultiLabel.report.scoring({}), ours, theirs)
    has, answered = (np.array([[name in answer for name in "ab"] for answer in one]) for one in (truth, other))
    assert test["difference"] == pytest.approx(1 - scoring.answered_scores(has, answered)["micro_f1"])
    assert test["metric"] == "micro_f1" and test["n"] == 4


def test_the_doctor_finds_nothing_wrong_with_a_sound_run(trained: Path, capfd: Any) -> None:
    """Its first loss is that of rare labels, far below the logarithm of their number."""
    assert main(["doctor", str(trained), "--examine"]) == 0
    shown = "".join(capfd.readouterr())
    assert "what guessing costs depends on how frequent the labels are" in shown
    assert "STOP" not in shown


def test_labels_are_counted_one_by_one(tmp_path: Path, capfd: Any) -> None:
    path = write(tmp_path / "a.jsonl")
    path.write_text(path.read_text("utf-8") + '{"text": "z 90", "labels": ["good", "rare"]}\n', encoding="utf-8")
    assert main(["data", "check", "multilabel", "--train-file", str(path), "--json"]) == 0
    facts = json.loads(capfd.readouterr().out)
    counts, found = facts["counts"], {finding["place"]: finding["numbers"] for finding in facts["findings"]}
    assert found["classes of one example"]["n"] == 1 and counts["train: texts without a label"] > 0
    assert "train: empty" not in counts


def test_a_finding_is_of_no_chosen_label(trained: Path, capfd: Any) -> None:
    out = ["encoder.0.self.out=0", "-o", "f.toml", "--label", "good"]
    assert main(["edit", str(trained), "good", *out]) == UsageError.exit_code
    assert "--label" in capfd.readouterr().err


def test_the_request_of_a_second_text_has_the_label_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of("multilabel", monkeypatch)
    request = TraceRequest("a b c", edits=("encoder.0.self.out=B",), other_text="b a c", label="odd")
    e = explain(run, request)
    assert e.other is not None and e.other.labels is not None and NAMES[e.other.labels.shown] == "odd"
