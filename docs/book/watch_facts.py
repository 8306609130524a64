"""What the chapter that watches a model shows of trainings with other seeds, written to results/plain/watch.json.

    glassformer train dates --locales en_US,en_GB,de_DE,fr_FR,es_ES,pt_BR --steps 700 --threads 1 --seed 2 --out two
    glassformer train dates --locales en_US,en_GB,de_DE,fr_FR,es_ES,pt_BR --steps 700 --threads 1 --seed 3 --out three
    python docs/book/watch_facts.py two three

The chapter watches one training. Whether what it sees belongs to the task takes several, which no page can wait for.
"""

from __future__ import annotations

import json
import sys

import torch
from record import RECORDS, recipe_hash
from torch import Tensor, nn
from torch.nn import functional as F

import glassformer
from glassformer import Run
from glassformer.data.datasets.local_files import load_text_data
from glassformer.explain.subject import with_checkpoint

RECORD = RECORDS / "plain" / "watch.json"
N_DATES = 200
CENTURIES = {"1900 to 1949": 100, "2050 to 2099": -100}
"""Years outside the dates of the training, and how far the century that their decade has there is."""
AMBIGUOUS = [(m, d) for m in range(1, 13) for d in range(1, 13) if m != d][::3]


def tokens_right(run: Run, model: nn.Module) -> Tensor:
    """Return which tokens of the answers are right where all before them are given, (200, 11)."""
    tokenizer, test = run.task.tokenizer, load_text_data(run.task.schema, run.config.data).test
    assert test is not None  # the recipe generates one
    sources = [torch.tensor(tokenizer.with_end(tokenizer.encode(text))) for text in test.text[:N_DATES]]
    source = nn.utils.rnn.pad_sequence(sources, batch_first=True, padding_value=tokenizer.pad_id)
    labels = torch.tensor([tokenizer.with_end(tokenizer.encode(answer)) for answer in test.answers[:N_DATES]])
    given = F.pad(labels[:, :-1], (1, 0), value=tokenizer.bos_id)
    with torch.no_grad():
        logits = model(source, given, source != tokenizer.pad_id)
    return (logits.argmax(dim=-1) == labels).float()


def share_right(run: Run, model: nn.Module, texts: list[str], answers: list[str]) -> float:
    """Return the share of texts that are translated into their answers."""
    found = run.task.predict(model, texts, run.config.decode)
    return sum(one["translation"] == answer for one, answer in zip(found, answers, strict=True)) / len(texts)


def measures(run: Run, model: nn.Module) -> dict[str, float]:
    """Return what a snapshot can do, as the chapter measures it."""
    right = tokens_right(run, model)
    answers = [f"2026-{m:02}-{d:02}" for m, d in AMBIGUOUS]
    both = (
        share_right(run, model, [f"[en_US] {m:02}/{d:02}/2026" for m, d in AMBIGUOUS], answers),
        share_right(run, model, [f"[en_GB] {d:02}/{m:02}/2026" for m, d in AMBIGUOUS], answers),
    )
    found = {
        "hyphens and end right": right[:, [4, 7, 10]].mean().item(),
        "year right": right[:, :4].prod(dim=1).mean().item(),
        "month right": right[:, 5:7].prod(dim=1).mean().item(),
        "day right": right[:, 8:10].prod(dim=1).mean().item(),
        "both orders of day and month": min(both),
    }
    return {name: round(share, 3) for name, share in found.items()}


def centuries(run: Run) -> dict[str, dict[str, float]]:
    """Return for years outside the training how many are written as they stand, and as their decade demands."""
    found = {}
    for name, shift in CENTURIES.items():
        years = range(int(name[:4]), int(name[-4:]) + 1)
        texts = [f"[de_DE] 16.11.{year}" for year in years]
        kinds = {"century as written": 0, "as the decade demands": shift}
        found[name] = {
            kind: share_right(run, run.model, texts, [f"{year + by}-11-16" for year in years])
            for kind, by in kinds.items()
        }
    return found


def facts(run: Run) -> dict[str, object]:
    """Return the seed of a run, what each of its snapshots can do, and what it does with unknown years."""
    names = [*sorted(path.name for path in (run.path / "snapshots").iterdir()), "model"]
    shares = [measures(run, with_checkpoint(run, name).model) for name in names]
    by_measure = {name: [each[name] for each in shares] for name in shares[0]}
    return {"seed": run.config.train.seed, "snapshots": names, "measures": by_measure, "centuries": centuries(run)}


if __name__ == "__main__":
    runs = [facts(glassformer.load(path)) for path in sys.argv[1:]]
    record = {"recipe": "dates", "recipe_sha256": recipe_hash("dates"), "runs": runs}
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
