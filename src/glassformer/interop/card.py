"""The cards of an exported folder and of an import, from the templates in `cards/`.

That of an export has lines that use the folder with its library alone.
"""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Any

from glassformer.interop.export_facts import SIDE_FILES, CheckResult, ExportFacts
from glassformer.report.run_record import RunRecord
from glassformer.report.write import dataset
from glassformer.runs.records import Origin
from glassformer.tasks import Task
from glassformer.text.tokenizer import Tokenizer
from glassformer.utils.formatting import cell_text

TEMPLATES = Path(__file__).parent / "cards"
PARTS = ("of_text", "tokenizer", "pieces", "thresholds")
"""Templates that others hold; the first holds the second."""
PIPELINES = {
    "translator": "translation",
    "language_model": "text-generation",
    **dict.fromkeys(("classifier", "multilabel_classifier", "regressor"), "text-classification"),
    "tagger": "token-classification",
    "masked_language_model": "fill-mask",
    "text_embedder": "feature-extraction",
}
"""Names of tasks as model hubs write them."""
PAGE = "docs/how-to/export/onnx.md"


def template(name: str) -> str:
    """Return a template, with the parts that it holds in their places."""
    text = (TEMPLATES / f"{name}.tmpl").read_text(encoding="utf-8")
    for part in PARTS:
        if f"${{{part}}}" in text:
            text = text.replace(f"${{{part}}}", template(part))
    return text


def example_of(facts: ExportFacts, t: Tokenizer) -> str:
    """Return the lines for an exported model with this tokenizer."""
    if t.ngrams is not None:  # of a model of texts
        return f"# Words are spelled with spelling.json as {PAGE} of Glassformer shows.\n"
    name = f"{facts.target}_{facts.kind}"
    return Template(template(name if (TEMPLATES / f"{name}.tmpl").exists() else "hf_pipeline")).substitute(
        pieces_file="tokenizer.json" if t.of_targets is t else SIDE_FILES[0],
        pipeline=PIPELINES[facts.kind],
        options=", truncation=True" if facts.kind == "classifier" else "",
        as_text=facts.kind != "masked_language_model",  # in which a mask is found
        text=f"a {t.tokens([t.mask_id])[0]} text" if facts.kind == "masked_language_model" else "a text",
        mask_id=t.mask_id,
        n_new=min(40, facts.context // 2),  # positions end with the context
        without_text=sorted(t.without_text),
    )


def card(
    facts: ExportFacts, task: Task, record: RunRecord | None, license: str | None, origin: Origin | None = None
) -> str:
    """Return the card of an exported model of a task.

    `record` is None without a run folder. A licence is never guessed: that of imported weights (`origin`) is on their
    card.
    """
    report, notes = task.report, [f"Compared with the run: {CheckResult(**facts.check).words}" if facts.check else ""]
    if record is not None and record.evaluation and (score := report.score(record.evaluation)).text:
        low_to_high = " to ".join(map(score.metric.write, score.interval or []))
        interval = f", 95% interval {low_to_high}" if low_to_high else ""
        split = record.evaluation.split
        notes.insert(0, f"Score before export, {split} split: {score.metric.name} {score.text}{interval}")
    notes = [note or "Not compared with the run" for note in notes] + facts.notes
    began = record is not None and record.config.train.init_from
    metadata = origin.front_matter(license) if origin else [f"license: {license}"] if license else []
    values: dict[str, Any] = vars(facts) | {
        "library": "transformers" if facts.target == "hf" else facts.target,
        "pipeline": PIPELINES[facts.kind],
        "metadata": "".join(f"\n{line}" for line in metadata),
        "model": report.model_name,
        "how": "fine-tuned" if began else "imported" if record is None and origin else "trained from scratch",
        "trained": f" on {dataset(record)}" if record is not None else "",
        "notes": "\n".join(f"- {note[0].upper()}{note[1:]}." for note in notes),
        "origin": "".join(f"\n\n{part}" for part in origin.of_descendant()) if origin else "",
        "limits": report.limits,
        "longest": f"{min(facts.max_len, facts.context):,}",
        "example": example_of(facts, task.tokenizer).rstrip(),
    }
    return Template(template("export.md")).substitute(values)


def import_card(origin: Origin, task: Task, check: CheckResult | None) -> str:
    """Return the card of an imported model."""
    return Template(template("import.md")).substitute(
        metadata="".join(f"\n{line}" for line in origin.front_matter()),
        name=cell_text(origin.name),
        model=task.report.model_name,
        title=origin.title,
        longest=f"{task.config.text.max_len:,}",
        check=check.words if check else "Not compared with the library it came from.",
        source="\n\n".join(origin.source()),
    )
