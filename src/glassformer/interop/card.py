"""The card of an exported model: Markdown with a YAML head, as model hubs read it."""

from __future__ import annotations

from glassformer.interop.exported import ExportFacts
from glassformer.runs.records import Evaluation
from glassformer.tasks.reporting import TaskReport

PIPELINES = {"translator": "translation", "language_model": "text-generation"}
EXAMPLES = {
    "translator": """\
import ctranslate2
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("tokenizer.json")
tokenizer.encode_special_tokens = True
model = ctranslate2.Translator(".")
source = tokenizer.encode("a text", add_special_tokens=False).tokens
result = model.translate_batch([source], beam_size=4, min_decoding_length=0)[0]
ids = [tokenizer.token_to_id(token) for token in result.hypotheses[0]]
print(tokenizer.decode(ids))
""",
    "language_model": """\
import ctranslate2
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("tokenizer.json")
tokenizer.encode_special_tokens = True
model = ctranslate2.Generator(".")
prompt = tokenizer.encode("a text", add_special_tokens=False).tokens
result = model.generate_batch([prompt], max_length=40, sampling_topk=0)[0]
print(tokenizer.decode([tokenizer.token_to_id(token) for token in result.sequences[0]]))
""",
}
"""Use of an exported model with its library alone, by kind of model."""


def card(facts: ExportFacts, report: TaskReport, evaluation: Evaluation | None, license: str | None) -> str:
    """Return the card.

    Args:
        facts: the description of the exported folder.
        report: the report of the task, which names its score.
        evaluation: the evaluation of the run; None if it has none.
        license: the identifier of a licence; it is never guessed.
    """
    head = ["---", f"library_name: {facts.target}", f"pipeline_tag: {PIPELINES[facts.kind]}", "tags: [glassformer]"]
    head += [f"license: {license}"] if license else []
    lines = [*head, "---", "", f"# {facts.run}", ""]
    lines.append(
        f"A {report.model_name} trained with Glassformer, exported for {facts.target} as `{facts.architecture}`."
    )
    lines += ["", f"- Weights: {facts.dtype}.", f"- Longest text: {facts.context} tokens."]
    if evaluation is not None and (score := report.score(evaluation)).text:
        low_to_high = " to ".join(map(score.metric.write, score.interval or []))
        interval = f", 95% interval {low_to_high}" if low_to_high else ""
        lines.append(f"- Score before export, {evaluation.split} split: {score.metric.name} {score.text}{interval}.")
    if facts.check:
        equal, difference = 100 * facts.check["equal_answers"], facts.check["largest_difference"]
        texts = f"{facts.check['n_texts']} validation texts"
        agrees = f"{equal:.1f}% equal answers, largest difference {difference:.1e}"
        lines.append(f"- Compared with the run on {texts}: {agrees}.")
    else:
        lines.append("- Not compared with the run.")
    lines += [f"- {note[0].upper()}{note[1:]}." for note in facts.notes]
    lines += ["", "```python", EXAMPLES[facts.kind].rstrip(), "```", ""]
    lines += ["With Glassformer: `glassformer predict FOLDER TEXT`, which keeps the run's limits of length.", ""]
    return "\n".join(lines)
