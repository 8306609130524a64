"""A tag for each word: trained, scored beside baselines, predicted, explained a word at a time, resumed, joined."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.helpers.exports import run_of
from tests.helpers.for_each import for_each
from tests.helpers.small import small

import glassformer
from glassformer.cli.main import main
from glassformer.config import DataConfig, FilesConfig
from glassformer.data.splits import Split
from glassformer.errors import CheckpointError, UsageError
from glassformer.evaluate.scores import tag_counts
from glassformer.evaluate.scoring import f1
from glassformer.explain.explanation import explain
from glassformer.explain.request import TraceRequest
from glassformer.nn.cross_entropy import IGNORE_INDEX
from glassformer.run import Run
from glassformer.tasks.encoder import Tag, places_and_tags
from glassformer.text.answers import answer_lines
from glassformer.text.words import read_running

PLACES = ["oslo", "san marino", "rome"]
TINY: dict[str, Any] = {
    "threads": 1,
    "steps": 80,
    "lr": 1e-2,
    "validate_every": 1.0,
    "model": {"n_layers": 1, "d_model": 16, "n_heads": 2, "d_ff": 16},
    "text": {"vocab_size": 100, "ngrams": 0},
}


def sentences(n: int, seed: int) -> list[tuple[list[str], list[str]]]:
    """Make sentences in which a place is marked after "to" alone."""
    rng, made = np.random.default_rng(seed), []
    for i in range(n):
        words, tags = [f"n{i % 7}", "goes"], ["O", "O"]
        for before in rng.permutation(["to", "from"]):
            place = str(rng.choice(PLACES)).split()
            words += [str(before), *place]
            tags += ["O", *(f"{'IB'[j == 0]}-LOC" if before == "to" else "O" for j in range(len(place)))]
        made.append(([*words, "."], [*tags, "O"]))
    return made


def write(path: Path, n: int = 120, seed: int = 0) -> Path:
    blocks = ("\n".join(f"{w}\t{t}" for w, t in zip(*one, strict=True)) for one in sentences(n, seed))
    path.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tag")
    files = {"train_file": write(folder / "a.conll"), "test_file": write(folder / "t.conll", 40, seed=1)}
    glassformer.train("tag", out=folder / "run", **files, **TINY)
    return folder / "run"


def test_a_run_is_scored_beside_both_baselines(trained: Path) -> None:
    run = glassformer.load(trained, precision="fp32")
    scores = run.evaluate()
    assert scores["headline"] == "span_f1" and scores["baselines"].keys() == {"frequent", "window"}
    assert scores["baselines"]["frequent"]["span_f1"] < scores["baselines"]["window"]["span_f1"]
    report = (trained / "report.md").read_text("utf-8")
    assert all(text in report for text in ("Span F1", "linear model of a window", "| LOC |", "B-LOC"))
    other = DataConfig(files=FilesConfig(test_file=str(write(trained.parent / "o.conll", 10, seed=3))))
    assert run.evaluate(data=other)["n"] == 10
    assert main(["compare", str(trained), str(trained)]) == 0
    assert main(["doctor", str(trained)]) == 0


def test_answers_are_those_that_were_scored(trained: Path) -> None:
    run = glassformer.load(trained, precision="fp32")
    rows = [json.loads(line) for line in (trained / "predictions.jsonl").read_text("utf-8").splitlines()]
    tested = sentences(40, seed=1)
    answers = run.predict([" ".join(words) for words, _ in tested])
    assert [answer["words"] for answer in answers] == [words for words, _ in tested]
    assert [answer["tags"] for answer in answers] == [row["tags"].split() for row in rows]
    found = tag_counts([tags for _, tags in tested], [answer["tags"] for answer in answers])
    assert run.evaluate()["span_f1"] == pytest.approx(f1(found.sum(axis=0)))


def test_spans_are_those_of_the_text_that_was_given(trained: Path) -> None:
    run = glassformer.load(trained, precision="fp32")
    text = "n1 goes  to\tsan marino,from rome."
    answer = run.predict(text)
    assert answer["words"] == ["n1", "goes", "to", "san", "marino", ",", "from", "rome", "."]
    assert len(answer["tags"]) == 9
    for span in answer["spans"]:
        assert text[span["start"] : span["end"]] == span["text"] and 0 < span["probability"] <= 1
    assert run.predict(["", "  "]) == [{"text": t, "words": [], "tags": [], "spans": []} for t in ("", "  ")]


def test_a_table_and_lines_are_answered(trained: Path, tmp_path: Path, capfd: Any) -> None:
    assert main(["predict", str(trained), "n1 goes to oslo", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["words"] == ["n1", "goes", "to", "oslo"]
    assert main(["predict", str(trained), "n1 goes to oslo", "from rome"]) == 0
    assert len(capfd.readouterr().out.splitlines()) == 2
    (tmp_path / "a.jsonl").write_text('{"text": "n1 goes to oslo"}\n', encoding="utf-8")
    for name in ("b.jsonl", "b.csv"):
        table = [str(tmp_path / "a.jsonl"), str(tmp_path / name), "--text-column", "text"]
        assert main(["predict-table", str(trained), *table]) == 0
    row = json.loads((tmp_path / "b.jsonl").read_text("utf-8"))
    assert row["words"] == ["n1", "goes", "to", "oslo"] and len(row["tags"]) == 4


def test_words_beyond_the_longest_text_are_outside_and_counted(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of("tag", monkeypatch)
    task: Any = run.task
    words = ["good"] * (task.config.text.max_len + 5)
    split = Split([" ".join(words)], ["\n".join(["B-G"] * len(words))], "made")
    places, _ = places_and_tags(task.encode(split, training=False), 0)
    n_read = int((places >= 0).sum())
    assert n_read < len(words)
    answer = run.predict(" ".join(words))
    assert len(answer["tags"]) == len(words) and answer["truncated"] is True
    assert set(answer["tags"][n_read:]) == {"O"}
    scores = task.evaluate(run.model, split, task.config.decode)
    assert scores["n_words"] == len(words) and scores["n_truncated"] == 1


@pytest.mark.parametrize("kind", ["word", "char", "byte-bpe"])
def test_labels_stand_at_the_first_token_of_each_word(kind: str) -> None:
    made = small("tag")
    config = made.config
    config = replace(config, text=replace(config.text, tokenizer=kind, vocab_size=300, max_len=60))
    task = Tag.from_data(config, made.context.data)
    corpus = task.encode(made.context.data.train, training=True)
    for i, (text, answer) in enumerate(zip(made.context.data.train.text, made.context.data.train.answers, strict=True)):
        places, tags = places_and_tags(corpus, i)
        assert [task.label_names[tag] for tag in tags] == answer.split("\n")  # pyright: ignore
        assert (places >= 0).all() and (np.diff(places) > 0).all() and len(places) == len(text.split())
        batch = task.make_batch(corpus, np.array([i]))
        assert np.flatnonzero(batch.labels[0] != IGNORE_INDEX).tolist() == places.tolist()
        assert batch.n_labels == len(places)


def test_the_loss_is_the_mean_over_words() -> None:
    made = small("tag")
    model = made.task.build_model().eval()
    batch = made.batch(made.batches()[0])
    z = made.task.logits(model, batch).log_softmax(dim=-1)
    scored = batch.labels != IGNORE_INDEX
    own = -z[scored].gather(1, batch.labels[scored][:, None]).sum()
    assert made.task.loss_sum(model, batch).item() == pytest.approx(own.item(), rel=1e-5)
    scores = made.task.validate(model, made.context.valid, made.context.data.valid)
    assert scores["loss"] == pytest.approx(made.task.mean_loss(model, made.context.valid), rel=1e-5)
    assert {"loss", "tag_accuracy", "span_f1"} == scores.keys()


def test_plain_tags_are_selected_by_accuracy(tmp_path: Path) -> None:
    lines = [f"{w} {'VERB' if w == 'goes' else 'NOUN'}" for words, _ in sentences(60, 0) for w in [*words, ""]]
    text = "\n".join(line if line.strip() != "NOUN" else "" for line in lines)
    (tmp_path / "a.conll").write_text(text, encoding="utf-8")
    run = glassformer.train("tag", out=tmp_path / "run", train_file=tmp_path / "a.conll", **{**TINY, "steps": 6})
    assert isinstance(run, Run) and run.task.metric == "tag_accuracy" and run.task.label_names == ["NOUN", "VERB"]
    answer = run.predict("oslo goes")
    assert answer["spans"] == [] and "/" in answer_lines(answer)[0]
    assert run.evaluate("valid")["headline"] == "tag_accuracy"
    e = run.explain("oslo goes", label="goes")  # of two tags, which share a logit
    assert e.answer["headline"] == answer["tags"][1] and e.sweep("contributions").error == pytest.approx(0, abs=1e-4)


@for_each("members", [1, 2])
def test_an_explanation_is_of_one_word(members: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of("tag", monkeypatch, ensemble_size=members)
    text = "a good,b  good"
    answer, shown = run.predict(text), []
    for number, word in enumerate(read_running(text).words, start=1):
        e = run.explain(text, label=str(number))
        assert e.labels is not None and e.labels.shown == number - 1
        assert e.labels.each[number - 1].name == f"{number} {word} {answer['tags'][number - 1]}"
        assert run.explain(text, label=e.labels.each[number - 1].name).labels == e.labels
        about = f", word {number} “{word}”"
        assert e.answer["detail"].endswith(about)
        assert e.what_if("encoder.0.self.head1=0").answer["detail"].endswith(about)
        best = (e.together.answer if e.together else e.answer)["headline"]
        assert best == answer["tags"][number - 1]
        record = e.records["pooled"]
        assert torch.equal(record.value, e.records[record.inputs[0]].value[record.attrs["token"]])
        assert e.attribute().scores
        shown.append(e.streams[0].spans)
    start, end = next(span for span in shown[0] if span and text[span[0] : span[1]] == ",")
    assert (start, end) == (6, 7)
    assert explain(run, TraceRequest(text, label="GOOD")).labels.shown == 1  # pyright: ignore
    with pytest.raises(UsageError, match="'odd' is not a word of this text"):
        run.explain(text, label="odd")
    with pytest.raises(UsageError, match="holds no word"):
        run.explain(" ")


def test_the_tag_of_a_word_is_learned_and_kept(trained: Path, tmp_path: Path, capfd: Any) -> None:
    run = glassformer.load(trained, precision="fp32")
    learned = run.learn("n1 goes to rome", "I-LOC", steps=5, label="goes")
    assert learned.learning is not None and learned.learning.learned is not None
    assert learned.learning.learned.loss < learned.learning.loss
    kept = glassformer.load(learned.keep(tmp_path / "kept"))
    assert kept.predict("n1 goes to rome")["tags"] is not None
    names = dict(run.model.named_parameters())
    assert any(not torch.equal(p, names[name]) for name, p in kept.model.named_parameters())
    assert main(["explain", str(trained), "n1 goes to rome", "--label", "4", "--json"]) == 0
    labels = json.loads(capfd.readouterr().out)["manifest"]["labels"]
    assert labels["shown"] == 3 and labels["each"][3]["threshold"] is None


def test_a_folder_with_one_tag_is_damaged(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "model", tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text("utf-8"))
    (tmp_path / "model" / "config.json").write_text(json.dumps(config | {"label_names": ["O"]}), encoding="utf-8")
    with pytest.raises(CheckpointError):
        glassformer.load(tmp_path / "model")


def test_probabilities_of_tags_are_no_columns(trained: Path, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "in.csv").write_text("text\nAnna saw Rome\n", encoding="utf-8")
    command = ["predict-table", str(trained), str(tmp_path / "in.csv"), str(tmp_path / "o.csv")]
    assert main([*command, "--probabilities"]) == 2 and "are of classifiers" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]
