"""The card of an exported folder: what is in it, and lines that use it with its library alone."""

from __future__ import annotations

from string import Template

from glassformer.interop.export_facts import SIDE_FILES, CheckResult, ExportFacts
from glassformer.report.run_record import RunRecord
from glassformer.report.write import dataset
from glassformer.runs.records import Origin
from glassformer.tasks import Task
from glassformer.text.tokenizer import Tokenizer

_TOKENIZER = """\
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("tokenizer.json")
tokenizer.encode_special_tokens = $as_text
"""
_PIECES = """\
pieces = Tokenizer.from_file("$pieces")  # which cuts a source
pieces.encode_special_tokens = True
tokens = pieces.encode("a text", add_special_tokens=False).tokens
"""
_OF_TEXT = f"""\
import json
from pathlib import Path

import numpy as np
import onnxruntime
{_TOKENIZER}facts = json.loads(Path("glassformer.json").read_text(encoding="utf-8"))
text = "$text"
encoding = tokenizer.encode(text)
ids = np.array([encoding.ids])
inputs = {{"input_ids": ids, "attention_mask": np.ones_like(ids)}}
[outputs] = onnxruntime.InferenceSession("model.onnx").run(None, inputs)
"""
_THRESHOLDS = """\
chosen = (facts["decision"] or {}).get("thresholds") or [0.5] * len(facts["labels"])
threshold = dict(zip(facts["labels"], chosen, strict=True))
"""
_PIPELINE = """\
from transformers import pipeline

print(pipeline("$tag", "."$options)("$text"))
"""
EXAMPLES = {
    ("ctranslate2", "translator"): f"""\
import ctranslate2
{_TOKENIZER}{_PIECES}model = ctranslate2.Translator(".")
result = model.translate_batch([tokens], beam_size=4, min_decoding_length=0)[0]
print(tokenizer.decode([tokenizer.token_to_id(token) for token in result.hypotheses[0]]))
""",
    ("ctranslate2", "language_model"): f"""\
import ctranslate2
{_TOKENIZER}model = ctranslate2.Generator(".")
result = model.generate_batch([tokenizer.encode("a text").tokens], max_length=$n_new, sampling_topk=0)[0]
print(tokenizer.decode([tokenizer.token_to_id(token) for token in result.sequences[0]]))
""",
    **{("hf", kind): _PIPELINE for kind in ("classifier", "tagger", "language_model", "masked_language_model")},
    ("hf", "multilabel_classifier"): f"""\
import json
from pathlib import Path

from transformers import pipeline

facts = json.loads(Path("glassformer.json").read_text(encoding="utf-8"))
{_THRESHOLDS}[found] = pipeline("$tag", ".", truncation=True, top_k=None)(["a text"])
print([one["label"] for one in found if one["score"] >= threshold[one["label"]]])
""",
    ("hf", "translator"): """\
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained("."), AutoModelForSeq2SeqLM.from_pretrained(".")
ids = model.generate(**tokenizer("a text", return_tensors="pt"))
print(tokenizer.decode(ids[0], skip_special_tokens=True))
""",
    ("onnx", "classifier"): f"""{_OF_TEXT}print(facts["labels"][outputs[0].argmax()])\n""",
    ("onnx", "multilabel_classifier"): f"""\
{_OF_TEXT}{_THRESHOLDS}probabilities = 1 / (1 + np.exp(-outputs[0]))
print([name for name, p in zip(facts["labels"], probabilities, strict=True) if p >= threshold[name]])
""",
    ("onnx", "tagger"): f"""\
{_OF_TEXT}for (start, end), row in zip(encoding.offsets, outputs[0], strict=True):
    print(text[start:end], facts["labels"][row.argmax()])  # a word has the tag of its first token
""",
    ("onnx", "regressor"): f"{_OF_TEXT}print(outputs[0, 0])\n",
    ("onnx", "text_embedder"): f"{_OF_TEXT}print(outputs[0])\n",
    ("onnx", "masked_language_model"): f"""\
{_OF_TEXT}logits = outputs[0, encoding.ids.index($mask_id)]
logits[$without_text] = -np.inf  # special tokens are never predicted
print(tokenizer.decode([logits.argmax()]))
""",
}
"""The lines by target and kind of model; names with a dollar are filled in."""
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


def example_of(facts: ExportFacts, t: Tokenizer) -> str:
    """Return the lines for an exported model with this tokenizer."""
    if t.ngrams is not None:  # of a model of texts
        return f"# Words are spelled with spelling.json as {PAGE} of Glassformer shows.\n"
    return Template(EXAMPLES[facts.target, facts.kind]).substitute(
        pieces="tokenizer.json" if t.of_targets is t else SIDE_FILES[0],
        tag=PIPELINES[facts.kind],
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
    report = task.report
    head = ["---", f"library_name: {'transformers' if facts.target == 'hf' else facts.target}"]
    head += [f"pipeline_tag: {PIPELINES[facts.kind]}", "tags: [glassformer]"]
    head += origin.front_matter(license) if origin else [f"license: {license}"] if license else []
    began = record is not None and record.config.train.init_from
    how = "fine-tuned" if began else "imported" if record is None and origin else "trained from scratch"
    trained = f" on {dataset(record)}" if record is not None else ""
    lines = [*head, "---", "", f"# {facts.run}", "", f"A {report.model_name} {how} with Glassformer{trained}.", ""]
    lines += [f"- Exported for {facts.target} as {facts.architecture}, weights in {facts.dtype}."]
    if record is not None and record.evaluation and (score := report.score(record.evaluation)).text:
        low_to_high = " to ".join(map(score.metric.write, score.interval or []))
        interval = f", 95% interval {low_to_high}" if low_to_high else ""
        split = record.evaluation.split
        lines.append(f"- Score before export, {split} split: {score.metric.name} {score.text}{interval}.")
    compared = (
        f"Compared with the run: {CheckResult(**facts.check).words}" if facts.check else "Not compared with the run"
    )
    lines += [f"- {note[0].upper()}{note[1:]}." for note in (compared, *facts.notes)]
    lines += ["", "\n\n".join(origin.of_descendant())] if origin else []
    lines += ["", f"Limits: {report.limits} It reads texts up to {min(facts.max_len, facts.context):,} tokens.", ""]
    lines += ["```python", example_of(facts, task.tokenizer).rstrip(), "```", ""]
    lines += ["With Glassformer: `glassformer predict FOLDER TEXT`, which keeps the run's limits of length.", ""]
    return "\n".join(lines)
