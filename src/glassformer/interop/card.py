"""The card of an exported folder, with examples of how to use it."""

from __future__ import annotations

from glassformer.interop.export_facts import CheckResult, ExportFacts
from glassformer.report.run_record import RunRecord
from glassformer.report.write import dataset
from glassformer.runs.origin import Origin
from glassformer.runs.records import Evaluation
from glassformer.tasks import Task
from glassformer.tasks.reporting import TaskReport
from glassformer.text.special_tokens import SpecialTokens

_TOKENIZER = """\
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("tokenizer.json")
tokenizer.encode_special_tokens = True
"""
_PIPELINE = """\
from transformers import pipeline

print(pipeline("{}", ".")("a text"))
"""
_ONNX = f"""\
import numpy as np
import onnxruntime
{_TOKENIZER}"""
_PAST = """\
decoder = onnxruntime.InferenceSession("decoder_step.onnx")
shapes = {one.name: one.shape for one in decoder.get_inputs()}
layers, _, heads, _, width = shapes["past_keys"]
keys = values = np.zeros((layers, 1, heads, 0, width), np.float32)
"""
_THRESHOLDS = """\
facts = json.loads(Path("glassformer.json").read_text(encoding="utf-8"))
chosen = (facts["decision"] or {}).get("thresholds") or [0.5] * len(facts["labels"])
threshold = dict(zip(facts["labels"], chosen, strict=True))
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
    ("hf", "classifier"): _PIPELINE.format("text-classification").replace('"."', '".", truncation=True'),
    ("hf", "multilabel_classifier"): f"""\
import json
from pathlib import Path

from transformers import pipeline

{_THRESHOLDS}[found] = pipeline("text-classification", ".", truncation=True, top_k=None)(["a text"])
print([one["label"] for one in found if one["score"] >= threshold[one["label"]]])
""",
    ("hf", "regressor"): _PIPELINE.format("text-classification").replace(
        '"."', '".", truncation=True, function_to_apply="none"'
    ),
    ("hf", "tagger"): _PIPELINE.format("token-classification"),
    ("hf", "masked_language_model"): _PIPELINE.format("fill-mask").replace("a text", "a [MASK] text"),
    ("hf", "text_embedder"): """\
import torch
from transformers import AutoModel, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained("."), AutoModel.from_pretrained(".").eval()
inputs = tokenizer(["a text", "another one"], padding=True, truncation=True, return_tensors="pt")
with torch.no_grad():
    states = model(**inputs).last_hidden_state
real = inputs["attention_mask"][:, :, None]
vectors = POOLED
print(torch.nn.functional.cosine_similarity(vectors[0], vectors[1], dim=0))
""",
    ("hf", "language_model"): _PIPELINE.format("text-generation"),
    ("hf", "translator"): """\
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained("."), AutoModelForSeq2SeqLM.from_pretrained(".")
ids = model.generate(**tokenizer("a text", return_tensors="pt"))
print(tokenizer.decode(ids[0], skip_special_tokens=True))
""",
    ("onnx", "language_model"): f"""\
{_ONNX}{_PAST}ids = new = np.array([tokenizer.encode("a text", add_special_tokens=False).ids])
for _ in range(40):
    inputs = {{"input_ids": new, "past_keys": keys, "past_values": values}}
    if "recent_ids" in shapes:
        inputs["recent_ids"] = ids[:, : ids.shape[1] - new.shape[1]][:, -15:]
    logits, keys, values = decoder.run(None, inputs)
    logits[..., [0, 1, 2, 4]] = -np.inf  # of the special tokens only [EOS] is generated
    new = logits[:, -1:].argmax(axis=-1)
    ids = np.concatenate([ids, new], axis=1)
    if new[0, 0] == 3:
        break
print(tokenizer.decode(ids[0].tolist()))
""",
    ("onnx", "translator"): f"""\
{_ONNX}{_PAST}ids = np.array([[*tokenizer.encode("a text", add_special_tokens=False).ids, 3]])  # 3 is [EOS]
source = {{"input_ids": ids, "attention_mask": np.ones_like(ids)}}
memory = onnxruntime.InferenceSession("encoder.onnx").run(None, source)
inputs = {{"memory_keys": memory[0], "memory_values": memory[1], "attention_mask": source["attention_mask"]}}
new, written = np.array([[2]]), []  # 2 is [BOS]
for _ in range(40):
    step = {{"input_ids": new, "past_keys": keys, "past_values": values}}
    logits, keys, values = decoder.run(None, inputs | step)
    logits[..., [0, 2]] = -np.inf  # [PAD] and [BOS] are never generated
    new = logits[:, -1:].argmax(axis=-1)
    if new[0, 0] == 3:
        break
    written.append(int(new[0, 0]))
print(tokenizer.decode(written))
""",
}
"""By target and kind of model; those of texts in ONNX are made below."""
_POOLED = {
    "first": "states[:, 0]",
    "mean": "(states * real).sum(dim=1) / real.sum(dim=1)",
    "max": "states.masked_fill(real == 0, float('-inf')).amax(dim=1)",
}
_FILL_IMPORTED = """\
from transformers import pipeline

fill = pipeline("fill-mask", ".")
print(fill(f"a {fill.tokenizer.mask_token} text"))
"""
_WORDS = {
    "classifier": """\
text = "a text"
encoding = tokenizer.encode(text, add_special_tokens=False)
ids = np.array([encoding.ids])
words = [text[start:end] for start, end in encoding.offsets]
""",
    "masked_language_model": """\
parts = [tokenizer.encode(part, add_special_tokens=False).ids for part in ("a", "text")]
ids = np.array([[*parts[0], 4, *parts[1]]])  # 4 is [MASK]
words = ["a", "", "text"]
""",
}
_SPELLED = """\
spelling = json.loads(Path("spelling.json").read_text(encoding="utf-8"))
number = {ngram: spelling["first"] + i for i, ngram in enumerate(spelling["ngrams"])}


def spelled(word):
    \"\"\"Return the n-grams of a word, which is none of a script without spaces.\"\"\"
    marked = f"<{word.lower() if spelling['lowercase'] else word}>"
    places = [(i, i + n) for i in range(len(marked)) for n in spelling["lengths"]]
    ngrams = [marked[start:end] for start, end in places if end <= len(marked)]
    known = [number[ngram] for ngram in ngrams if ngram in number]
    return (known or [1 + byte for byte in marked[1:-1].encode()])[: spelling["most"]]


rows = [[0], *(spelled(word) for word in words)]  # row 0 has no n-grams
ngrams = np.array([[*row, *[0] * (spelling["most"] - len(row))] for row in rows])
inputs |= {"ngram_index": np.arange(1, len(rows))[None], "ngrams": ngrams}
"""
_WORDS |= dict.fromkeys(("multilabel_classifier", "regressor", "text_embedder"), _WORDS["classifier"])
_WORDS["tagger"] = _WORDS["classifier"].replace('"a text"', '"words , separated by spaces"')
_RESULT = {
    "multilabel_classifier": f"""\
{_THRESHOLDS}probabilities = 1 / (1 + np.exp(-logits[0]))
print([name for name, p in zip(facts["labels"], probabilities, strict=True) if p >= threshold[name]])
""",
    "classifier": """\
facts = json.loads(Path("glassformer.json").read_text(encoding="utf-8"))
print(facts["labels"][logits[0].argmax()])
""",
    "tagger": """\
facts = json.loads(Path("glassformer.json").read_text(encoding="utf-8"))
for (start, end), row in zip(encoding.offsets, logits[0], strict=True):
    print(text[start:end], facts["labels"][row.argmax()])  # a word has the tag of its first token
""",
    "regressor": """\
print(logits[0, 0])
""",
    "masked_language_model": """\
print(tokenizer.decode([logits[0, ids[0].tolist().index(4), 5:].argmax() + 5]))
""",
    "text_embedder": """\
print(vector[0])
""",
}


def example_of(
    facts: ExportFacts,
    spelled: bool,
    pooling: str = "mean",
    has_sides: bool = False,
    special: SpecialTokens | None = None,
) -> str:
    """Return the lines for an exported model; arguments as of `card`."""
    if facts.target == "onnx" and facts.kind in _WORDS:
        words = _WORDS[facts.kind]
        if not spelled:
            words = "".join(line for line in words.splitlines(keepends=True) if not line.startswith("words"))
        inputs = 'inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}\n'
        output = "vector" if facts.kind == "text_embedder" else "logits"
        run = f'[{output}] = onnxruntime.InferenceSession("model.onnx").run(None, inputs)\n'
        first = "import json\nfrom pathlib import Path\n\n" if facts.kind != "text_embedder" else ""
        parts = [first, _ONNX, words, inputs, _SPELLED if spelled else "", run]
        example = "".join([*parts, _RESULT[facts.kind]])
        return example if special is None else _with_own_tokens(example, special)
    n_new = min(40, facts.context // 2)  # positions end with the context
    example = EXAMPLES[facts.target, facts.kind].replace("40", str(n_new)).replace("POOLED", _POOLED.get(pooling, ""))
    if special is not None and (facts.target, facts.kind) == ("hf", "masked_language_model"):
        example = _FILL_IMPORTED
    if special is not None:
        example = _with_ids(_with_sides(example) if has_sides else example, special)
    if facts.architecture.startswith("Glassformer"):
        return f"import glassformer.interop.hf_class  # it registers the class\n{example}"
    return example


def _with_sides(example: str) -> str:
    """Return the example of a translator whose source is cut by a file of its own."""
    example = example.replace(_TOKENIZER, f'{_TOKENIZER}pieces = Tokenizer.from_file("source_tokenizer.json")\n')
    cut = 'pieces.encode("a text", add_special_tokens=False).tokens'
    example = example.replace('tokenizer.encode("a text", add_special_tokens=False).tokens', cut)
    return example.replace(_PLAIN, f"(tokenizer.token_to_id(piece) or UNKNOWN for piece in {cut})")


_PLAIN = 'tokenizer.encode("a text", add_special_tokens=False).ids'


def _with_ids(example: str, special: SpecialTokens) -> str:
    """Return the example of a translator or a language model in ONNX with the ids of an imported tokenizer."""
    plain, never = _PLAIN, {special.pad, special.bos} - {special.eos}
    example = example.replace("or UNKNOWN", f"or {max(0, special.unk)}")
    if "*(tokenizer" in example:
        plain = example[example.index("*(tokenizer") + 1 : example.index(", 3]])")]
    around = ", ".join([*map(str, special.prefix), f"*{plain}", *map(str, special.suffix)])
    for ours, theirs in {
        f"*{plain}, 3]])  # 3 is [EOS]": f"{around}]])",
        "[[2]]), []  # 2 is [BOS]": f"[[{special.bos}]]), []  # its start token",
        "[0, 2]] = -np.inf  # [PAD] and [BOS] are": f"{sorted(never)}] = -np.inf  # these are",
        "== 3:": f"== {special.eos}:",
        f"new = np.array([{_PLAIN}])": 'new = np.array([tokenizer.encode("a text").ids])',
        "[0, 1, 2, 4]] = -np.inf  # of the special tokens only [EOS] is": (
            f"{sorted(special.ids - {special.eos})}] = -np.inf  # of the special tokens only the end is"
        ),
    }.items():
        example = example.replace(ours, theirs)
    return example


def _with_own_tokens(example: str, special: SpecialTokens) -> str:
    """Return the example of a model of texts in ONNX with the tokens and ids of an imported tokenizer."""
    before, after = ("".join(text) for text in ([f"{i}, " for i in special.prefix], [f", {i}" for i in special.suffix]))
    for ours, theirs in {
        "encoding = tokenizer.encode(text, add_special_tokens=False)": "encoding = tokenizer.encode(text)",
        "[[*parts[0], 4, *parts[1]]])  # 4 is [MASK]": f"[[{before}*parts[0], {special.mask}, *parts[1]{after}]])",
        "print(tokenizer.decode([logits[0, ids[0].tolist().index(4), 5:].argmax() + 5]))": (
            f"logits[..., {sorted(special.ids)}] = -np.inf  # special tokens are never guessed\n"
            f"print(tokenizer.decode([logits[0, ids[0].tolist().index({special.mask})].argmax()]))"
        ),
    }.items():
        example = example.replace(ours, theirs)
    return example


PIPELINES = {
    "translator": "translation",
    "language_model": "text-generation",
    "classifier": "text-classification",
    "multilabel_classifier": "text-classification",
    "tagger": "token-classification",
    "regressor": "text-classification",
    "masked_language_model": "fill-mask",
    "text_embedder": "feature-extraction",
}
LIBRARIES = {"hf": "transformers"}
"""Names of libraries as model hubs write them, where they are not those of the targets."""


def card(
    facts: ExportFacts, task: Task, record: RunRecord | None, license: str | None, origin: Origin | None = None
) -> str:
    """Return the card of an exported model of a task.

    `record` is None without a run folder. A licence is never guessed: that of imported weights (`origin`) is on their
    card.
    """
    report, t = task.report, task.tokenizer
    head = [
        "---",
        f"library_name: {LIBRARIES.get(facts.target, facts.target)}",
        f"pipeline_tag: {PIPELINES[facts.kind]}",
        "tags: [glassformer]",
    ]
    head += origin.front_matter(license) if origin else [f"license: {license}"] if license else []
    how = "trained from scratch"
    if record is not None and record.config.train.init_from:
        how = "fine-tuned"
    elif record is None and origin is not None:
        how = "imported"  # and not trained
    trained = f" on {dataset(record)}" if record is not None else ""
    intro = f"A {report.model_name} {how} with Glassformer{trained}."
    lines = [*head, "---", "", f"# {facts.run}", "", intro, ""]
    lines += [f"- Exported for {facts.target} as {facts.architecture}, weights in {facts.dtype}."]
    lines += _score(report, record.evaluation) if record is not None and record.evaluation else []
    if facts.check:
        lines.append(f"- Compared with the run: {CheckResult(**facts.check).words}.")
    else:
        lines.append("- Not compared with the run.")
    lines += [f"- {note[0].upper()}{note[1:]}." for note in facts.notes]
    lines += ["", "\n\n".join(origin.of_descendant())] if origin else []
    lines += ["", f"Limits: {report.limits} It reads texts up to {min(facts.max_len, facts.context):,} tokens."]
    lines += [
        "",
        "```python",
        example_of(facts, t.ngrams is not None, task.config.model.pooling, t.of_targets is not t, t.special).rstrip(),
        "```",
        "",
    ]
    lines += ["With Glassformer: `glassformer predict FOLDER TEXT`, which keeps the run's limits of length.", ""]
    return "\n".join(lines)


def _score(report: TaskReport, evaluation: Evaluation) -> list[str]:
    """Return a line with the headline score and its interval."""
    score = report.score(evaluation)
    if not score.text:
        return []
    low_to_high = " to ".join(map(score.metric.write, score.interval or []))
    interval = f", 95% interval {low_to_high}" if low_to_high else ""
    return [f"- Score before export, {evaluation.split} split: {score.metric.name} {score.text}{interval}."]
