"""The card of an exported model: Markdown with a YAML head, as model hubs read it."""

from __future__ import annotations

from glassformer.interop.exported import ExportFacts
from glassformer.runs.records import Evaluation
from glassformer.tasks.reporting import TaskReport

PIPELINES = {
    "translator": "translation",
    "language_model": "text-generation",
    "classifier": "text-classification",
    "masked_language_model": "fill-mask",
}
LIBRARIES = {"hf": "transformers", "gguf": "llama.cpp"}
"""Names of libraries as model hubs write them, where they are not those of the targets."""
_TOKENIZER = """\
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("tokenizer.json")
tokenizer.encode_special_tokens = True
"""
_PIPELINE = """\
from transformers import pipeline

print(pipeline("{}", ".")("a text"))
"""
EXAMPLES = {
    ("ctranslate2", "translator"): f"""\
import ctranslate2
{_TOKENIZER}model = ctranslate2.Translator(".")
source = tokenizer.encode("a text", add_special_tokens=False).tokens
result = model.translate_batch([source], beam_size=4, min_decoding_length=0)[0]
ids = [tokenizer.token_to_id(token) for token in result.hypotheses[0]]
print(tokenizer.decode(ids))
""",
    ("ctranslate2", "language_model"): f"""\
import ctranslate2
{_TOKENIZER}model = ctranslate2.Generator(".")
prompt = tokenizer.encode("a text", add_special_tokens=False).tokens
result = model.generate_batch([prompt], max_length=40, sampling_topk=0)[0]
print(tokenizer.decode([tokenizer.token_to_id(token) for token in result.sequences[0]]))
""",
    ("hf", "classifier"): _PIPELINE.format("text-classification"),
    ("hf", "masked_language_model"): _PIPELINE.format("fill-mask").replace("a text", "a [MASK] text"),
    ("hf", "language_model"): _PIPELINE.format("text-generation"),
    ("hf", "translator"): """\
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained("."), AutoModelForSeq2SeqLM.from_pretrained(".")
ids = model.generate(**tokenizer("a text", return_tensors="pt"))
print(tokenizer.decode(ids[0], skip_special_tokens=True))
""",
}
"""Use of an exported model with its library alone, by target and kind of model."""


def card(facts: ExportFacts, report: TaskReport, evaluation: Evaluation | None, license: str | None) -> str:
    """Return the card.

    Args:
        facts: the description of the exported folder.
        report: the report of the task, which names its score.
        evaluation: the evaluation of the run; None if it has none.
        license: the identifier of a licence; it is never guessed.
    """
    head = [
        "---",
        f"library_name: {LIBRARIES.get(facts.target, facts.target)}",
        f"pipeline_tag: {PIPELINES[facts.kind]}",
        "tags: [glassformer]",
    ]
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
    example = EXAMPLES[facts.target, facts.kind].rstrip()
    if facts.architecture.startswith("Glassformer"):
        example = f"import glassformer.interop.hf_class  # it registers the class\n{example}"
    lines += ["", "```python", example, "```", ""]
    lines += ["With Glassformer: `glassformer predict FOLDER TEXT`, which keeps the run's limits of length.", ""]
    return "\n".join(lines)
