"""Sound and sick trainings of small models, what the doctor finds in each, and the quantities that it judges by.

    python -m benchmarks.doctor [--seeds 20] [--sick-seeds 3] [--only WORD] [--out benchmarks/doctor.json]

Trains dates, a classifier and a language model with the settings of `SOUND`, each for 150 steps in memory, and each
disease of `DISEASES`. The table has, for each sound model and each disease, in how many runs each finding was made
and the smallest, median and largest value of each quantity. A threshold of the doctor must lie between those of sound
and sick runs; `tests/benchmarks/test_doctor.py` compares them.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn

from glassformer.config import Config, DataConfig, DatesConfig, ModelConfig, MuonConfig, TextConfig, TrainConfig
from glassformer.data.datasets.dates import load
from glassformer.data.splits import Split, TextData
from glassformer.explain.examine import SHARP, UNIFORM, activity_of, examine_model, fresh_losses
from glassformer.models import language_model
from glassformer.nn import MultiHeadAttention
from glassformer.nn.attention import Mask
from glassformer.nn.layers import FeedForward
from glassformer.report.diagnosis import Checkup, check_log, first_loss_and_chance
from glassformer.report.run_record import RunRecord
from glassformer.runs.records import DataRecord, Evaluation, SplitRecord
from glassformer.tasks import TASKS
from glassformer.tasks.lm import LanguageModelling
from glassformer.training.loop import train_steps
from glassformer.training.state import RunContext, TrainState
from glassformer.training.validation import Validator

STEPS = 150
OUT = Path(__file__).with_name("doctor.json")
MODEL = ModelConfig(n_layers=2, d_model=64, n_heads=4, d_ff=128, dropout=0.0, tie_embeddings=False)
TRAIN = TrainConfig(
    epochs=None, steps=STEPS, max_tokens=1024, lr=3e-3, schedule="cosine", warmup=0.05, device="cpu", precision="fp32"
)
CHARACTERS = TextConfig(tokenizer="char", max_len=64)
SOUND = {
    "dates": Config(task="translate", text=CHARACTERS, model=MODEL, train=TRAIN),
    "classifier": Config(
        task="classify", text=TextConfig(tokenizer="word", vocab_size=300, max_len=32), model=MODEL, train=TRAIN
    ),
    "language model": Config(task="lm", text=CHARACTERS, model=MODEL, train=TRAIN),
    "dates, Muon": Config(
        task="translate",
        text=CHARACTERS,
        model=replace(MODEL, positions="rotary"),
        train=replace(TRAIN, optimizer="muon", muon=MuonConfig(matrix_lr=0.02)),
    ),
}
"""Adam's usual rate and warm-up. The output is not tied, so that a first loss is close to that of guessing."""


def dates(seed: int) -> TextData:
    """Return 6,000 pairs of two languages."""
    data = load(DataConfig(dataset="dates", split_seed=seed, dates=DatesConfig(n_dates=6000, locales="en_US,de_DE")))
    valid = replace(data.valid, text=data.valid.text[:100], answer=data.valid.answers[:100])
    return replace(data, valid=valid)  # decoding takes longer than training


def reviews(seed: int) -> TextData:
    """Return texts of made words whose class is that of most of the three words of judgement in it."""
    rng = np.random.default_rng(seed)
    words = ["".join(rng.choice(list("abcdefghij"), 4)) for _ in range(150)]
    judgements = [[f"{kind}{i}" for i in range(10)] for kind in ("good", "bad", "odd")]

    def split(name: str, n: int) -> Split:
        texts, labels = [], []
        for _ in range(n):
            label = int(rng.integers(3))
            other = int(rng.integers(3))
            words_of_class = [rng.choice(judgements[kind]) for kind in (label, label, other)]
            filler = list(rng.choice(words, rng.integers(8, 20)))
            texts.append(" ".join(map(str, rng.permutation([*words_of_class, *filler]))))
            labels.append(("good", "bad", "odd")[label])
        return Split(texts, labels, name)

    return TextData(split("train", 4000), split("valid", 600), split("test", 200))


def running_text(seed: int) -> TextData:
    """Return text of made sentences, in which what follows depends on what came before."""
    rng = np.random.default_rng(seed)
    nouns, verbs = (["".join(rng.choice(list("aeioulmnrst"), rng.integers(3, 8))) for _ in range(60)] for _ in "nv")

    def split(name: str, n: int) -> Split:
        sentences = []
        for _ in range(n):
            i, j = rng.integers(60, size=2)
            sentences.append(f"the {nouns[i]} {verbs[(i + j % 3) % 60]} the {nouns[j]}.")
        return Split([" ".join(sentences)], None, name)

    return TextData(split("train", 8000), split("valid", 1000), split("test", 100))


DATA: dict[str, Callable[[int], TextData]] = {
    "dates": dates,
    "classifier": reviews,
    "language model": running_text,
    "dates, Muon": dates,
}


@dataclass(frozen=True)
class Disease:
    """Something wrong with a training.

    Attributes:
        model: which of `SOUND` has it.
        finds: the place of the finding that must come first among those to stop at or to look at.
        changes: settings of the training.
        before: changes the model before its first step; after: when it has been trained.
        patch: replaces code while it trains and is examined.
    """

    model: str
    finds: str
    changes: dict[str, Any] = field(default_factory=dict)
    before: Callable[[nn.Module], None] = lambda model: None
    after: Callable[[nn.Module], None] = lambda model: None
    patch: Callable[[], AbstractContextManager[Any]] = nullcontext


def _of_kind(model: nn.Module, kind: type) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, kind)]


@torch.no_grad()
def bias_of_a_class(model: nn.Module) -> None:
    """Add 5 to the bias of the first class."""
    head: Any = model.head
    head.bias[0] += 5.0


@torch.no_grad()
def larger_output(model: nn.Module) -> None:
    """Multiply the projection to the vocabulary by 10."""
    output: Any = model.output
    output.weight *= 10.0


@torch.no_grad()
def larger_queries(model: nn.Module) -> None:
    """Multiply the projections to queries by 30."""
    for attention in _of_kind(model, MultiHeadAttention):
        attention.q_proj.weight *= 30.0


@torch.no_grad()
def no_queries(model: nn.Module) -> None:
    """Set the queries of all heads to zero."""
    for attention in _of_kind(model, MultiHeadAttention):
        attention.q_proj.weight.zero_()
        attention.q_proj.bias.zero_()


@torch.no_grad()
def negative_biases(model: nn.Module) -> None:
    """Silence the units of the first feed-forward block."""
    _of_kind(model, FeedForward)[0].up_proj.bias.fill_(-10.0)


def without_gradient(model: nn.Module) -> None:
    """Freeze a matrix of the last feed-forward block."""
    _of_kind(model, FeedForward)[-1].up_proj.weight.requires_grad_(False)


def detached_branch(model: nn.Module) -> None:
    """Detach the output of the last feed-forward block."""
    _of_kind(model, FeedForward)[-1].register_forward_hook(lambda module, args, output: output.detach())


@contextmanager
def unshifted_labels() -> Iterator[None]:
    """Make each label the token that is read at its position."""
    make = LanguageModelling.make_batch

    def unshifted(task: LanguageModelling, corpus: Any, index: np.ndarray) -> Any:
        batch = make(task, corpus, index)
        return replace(batch, labels=torch.where(batch.labels >= 0, batch.ids, batch.labels))

    with mock.patch.object(LanguageModelling, "make_batch", unshifted):
        yield


@contextmanager
def no_causal_mask() -> Iterator[None]:
    """Let each position see later ones."""
    with mock.patch.object(language_model, "Mask", mock.Mock(of=lambda **_: None, spec=Mask)):
        yield


DISEASES = {
    "bias of a class + 5": Disease("classifier", "first-loss", before=bias_of_a_class),
    "output × 10": Disease("language model", "first-loss", before=larger_output),
    "labels not shifted": Disease("language model", "answer-visible", patch=unshifted_labels),
    "no causal mask": Disease("language model", "answer-visible", patch=no_causal_mask),
    "not trained": Disease("dates", "frozen", before=without_gradient),
    "branch detached": Disease("dates", "frozen", before=detached_branch),
    "rate ÷ 100": Disease("dates", "update-ratio", {"lr": 3e-5}),
    "rate × 30": Disease("dates", "scores", {"lr": 9e-2}),
    "rate × 10": Disease("dates", "scores", {"lr": 3e-2}),
    "Muon's rate × 10": Disease("dates, Muon", "scores", {"muon": MuonConfig(matrix_lr=0.2)}),
    "queries × 30": Disease("dates", "scores", after=larger_queries),
    "no queries": Disease("dates", "heads", after=no_queries),
    "bias of units − 10": Disease("dates", "dead-units", after=negative_biases),
}


def context_of(name: str, seed: int, **changes: Any) -> RunContext:
    """Return the context of a model of `SOUND`, with its data made from the seed and changes of its training."""
    config, data = SOUND[name], DATA[name](seed)
    config = replace(config, train=replace(config.train, seed=seed, **changes))
    task = TASKS[config.task].from_data(config, data)
    train, valid = task.encode(data.train, training=True), task.encode(data.valid, training=False)
    return RunContext(data, task, train, valid, torch.device("cpu"))


def train(context: RunContext, before: Callable[[nn.Module], None]) -> tuple[RunRecord, nn.Module]:
    """Train in memory; return what the run folder would say, and the model."""
    task, config = context.task, context.config
    torch.manual_seed(config.train.seed)
    model = task.build_model()
    before(model)
    state = TrainState.start(model, task)
    rows = list(train_steps(state, context, Validator(context)))
    data = DataRecord(
        config.task,
        label_names=task.label_names,
        tokenizer={"vocab_size": task.tokenizer.vocab_size},
        splits={"train": SplitRecord(n=len(context.train))},
    )
    validations = [row for row in rows if row.valid is not None]
    return RunRecord(Path("run"), config, {}, data, rows, validations, Evaluation()), model


def checked(
    name: str, seed: int, disease: Disease | None = None, steps: int = STEPS
) -> tuple[Checkup, dict[str, float]]:
    """Train and examine a model; return what was found, and the quantities that were judged."""
    disease = disease or Disease(name, "")
    with disease.patch():
        context = context_of(name, seed, steps=steps, **disease.changes)
        record, model = train(context, disease.before)
        disease.after(model)
        return check_log(record) + examine_model(record, context, model), quantities(record, model, context)


def quantities(record: RunRecord, model: nn.Module, context: RunContext) -> dict[str, float]:
    """Return what thresholds of the doctor are compared with."""
    activity = activity_of(model, context.task, context.valid)
    loss, chance = first_loss_and_chance(record)
    ratios = [list(row.update_ratios.values()) for row in record.training if row.update_ratios and row.step == 50]
    shares = torch.cat(list(activity.entropy.values()))
    return {
        "first loss − ln n": loss - chance,
        "first loss − fresh": loss - statistics.mean(fresh_losses(context)),
        "update ratio": statistics.median(ratios[0]) if ratios else float("nan"),
        "largest score": max(each.max().item() for each in activity.scores.values()),
        "sharp heads": (shares < SHARP).double().mean().item(),
        "uniform heads": (shares > UNIFORM).double().mean().item(),
        "dead units": max(activity.dead.values()),
    }


def measured(name: str, n_seeds: int, disease: Disease | None = None) -> dict[str, Any]:
    """Return in how many runs each finding was made, by place and grade, and the range of each quantity."""
    findings, ranges, first, most = Counter[str](), dict[str, list[float]](), Counter[str](), 0
    for seed in range(n_seeds):
        checkup, values = checked(name, seed, disease)
        seen = [finding for finding in checkup.findings if finding.grade != "know"]
        findings.update({f"{finding.place}: {finding.grade}" for finding in seen})
        first[seen[0].place if seen else ""] += 1
        most = max(most, len(seen))
        for quantity, value in values.items():
            ranges.setdefault(quantity, []).append(value)
        print(name, seed, dict(findings), {q: f"{v:.3g}" for q, v in values.items()}, checkup.not_made, flush=True)
    spread = {
        quantity: [float(f"{x:.3g}") for x in (min(values), statistics.median(values), max(values))]
        for quantity, values in ranges.items()
    }
    counts = {"runs": n_seeds, "most_in_a_run": most, "findings": dict(sorted(findings.items())), "first": dict(first)}
    return counts | {"quantities": spread}


def main() -> None:
    """Train, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--sick-seeds", type=int, default=3)
    parser.add_argument("--only", default="", help="part of the name of a model or a disease")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    table = json.loads(arguments.out.read_text(encoding="utf-8")) if arguments.out.exists() else {}
    for kind in ("sound", "sick"):
        table.setdefault(kind, {})
    for name in [name for name in (*DISEASES, *SOUND) if arguments.only in name]:
        if (disease := DISEASES.get(name)) is None:
            table["sound"][name] = measured(name, arguments.seeds)
        else:
            row = {"model": disease.model, "finds": disease.finds}
            table["sick"][name] = row | measured(disease.model, arguments.sick_seeds, disease)
        arguments.out.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
