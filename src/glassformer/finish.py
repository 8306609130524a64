"""What follows training: the model folder, the one evaluation on the test split, and the report."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from glassformer import console
from glassformer.data.splits import TextData
from glassformer.files import atomic_write_text, write_json
from glassformer.report.model_card import model_card
from glassformer.report.write import write_report
from glassformer.runs.model_folder import save_model
from glassformer.tasks import Task

if TYPE_CHECKING:
    from glassformer.training.context import RunContext


def model_facts(task: Task) -> dict[str, Any]:
    """What `model/config.json` says: enough to build, load and use the model without its data."""
    config = task.config
    return {
        "task": task.name,
        "recipe": config.recipe,
        "label_names": task.label_names,
        "vocab_size": task.tokenizer.vocab_size,
        "tokenizer_sha256": task.tokenizer.sha256,
        "text": asdict(config.text),
        "model": asdict(config.model),
        "decode": asdict(config.decode),
    }


def save_task_model(task: Task, model: nn.Module, out: Path) -> None:
    """Write `model/`: configuration, weights, tokenizer and a card."""
    weights = {name: p.detach().cpu().contiguous() for name, p in model.named_parameters()}
    facts = model_facts(task)
    tokenizer = (out / "tokenizer.json").read_bytes()
    save_model(out / "model", facts, weights, {"tokenizer.json": tokenizer}, model_card(out, facts))


def evaluate_and_report(p: RunContext, model: nn.Module, out: Path) -> None:
    """Evaluate on the test split once, where there is one, on the validation split otherwise; report."""
    split_name, split = ("test", p.data.test) if p.data.test is not None else ("valid", p.data.valid)
    console.say(f"evaluating on {split.source} ({len(split):,} examples)")
    save_evaluation(p.task, model, p.data, split_name, out)
    save_task_model(p.task, model, out)  # once more: the card now has the result
    write_report(out)


def save_evaluation(
    task: Task, model: nn.Module, data: TextData, split_name: str, out: Path
) -> dict[str, Any]:
    """Score a split with full precision and write `evaluation.json` and `predictions.jsonl`."""
    split = data.test if split_name == "test" and data.test is not None else data.valid
    scores = task.evaluate(model, split, task.config.decode, data.train)
    predictions = scores.pop("predictions")
    if task.config.data.use_test_as_validation:
        scores["warning"] = "the test split was also used to choose the epoch; this is no clean test result"
    result = {"task": task.name, "split": split_name, **scores}
    rows = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in predictions)
    atomic_write_text(out / "predictions.jsonl", rows)
    write_json(out / "evaluation.json", result)
    return result
