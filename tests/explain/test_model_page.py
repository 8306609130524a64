"""The page that runs the model answers as Python does, with the weights that it holds: eight kinds, by Node."""

from __future__ import annotations

import base64
import json
import math
import os
import random
import re
import shutil
import subprocess
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.helpers.matrix import ANSWERS, FAMILIES, LETTERS, TEXTS, matrix_run
from tests.helpers.pretrained import bert_folder
from tests.helpers.small import config_of

from glassformer import load
from glassformer.data.splits import Split, TextData
from glassformer.explain.attribution import AttributeRequest, attribute
from glassformer.explain.edits.sweeps import sweep
from glassformer.explain.explanation import TraceRequest, explain
from glassformer.explain.page.manifest import plain
from glassformer.explain.page.model_page import OPTIMIZERS, model_page
from glassformer.interop.check import n_alike
from glassformer.interop.imported import restore_imported
from glassformer.interop.sources import read_source
from glassformer.run import Run
from glassformer.tasks import TASKS

DOCS = Path(__file__).parents[2] / "docs"
WEB = Path(__file__).parents[2] / "web"
ODD = ["", "😀 a", "مرحبا a b", "e\u0301 é", "a\nb", "  a  ", "x" * 40, "a, b! c", "abcdefg " * 64, "abcdefg" * 80]


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The engine and what asks it, as one file for Node."""
    esbuild = WEB / "node_modules" / ".bin" / "esbuild"
    if shutil.which("node") is None or not esbuild.is_file():
        missing = "Node and web/node_modules are not installed: make web"
        pytest.fail(missing) if os.environ.get("CI") == "true" else pytest.skip(missing)
    path = tmp_path_factory.mktemp("engine") / "model_page.mjs"
    words = ["--bundle", "--platform=node", "--format=esm", "--define:SAVED=false", f"--outfile={path}"]
    subprocess.run([esbuild, "test/model_page.ts", *words, "--log-level=warning"], check=True, cwd=WEB)
    return path


def data_of_page(page: str) -> Any:
    return json.loads(page.split('id="glassformer-data">')[1].split("</script>")[0])


def answers_of(script: Path, run: Run, questions: list[dict[str, Any]], page: Any = None) -> list[Any]:
    """What the page of a run answers, a new one or the data of another."""
    path, page = script.with_name("questions.json"), page or data_of_page(model_page(run, [], n_alike)[0])
    path.write_text(json.dumps({"page": page, "questions": questions}), encoding="utf-8")
    done = subprocess.run(["node", script, path], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


APART = {"kl", "unit", "baseline_value", "beats_random", "warnings"}
"""What no screen shows, and what rounding decides: whether a number lies above another."""
WHERE = {"position", "before", "after"}
"""Of a row of a sweep where its change is largest, which is chance where nothing changes."""


NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def differences(ours: Any, theirs: Any, tolerance: float, where: str = "") -> list[str]:
    """Where two JSON values differ; a field that is null may be absent."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        # A key's bias moves all scores of a row alike, which softmax ignores: its gradient is rounding alone.
        names = {name for name in {*ours, *theirs} - APART if not name.endswith("k_proj.bias")}
        names -= WHERE if abs(ours.get("value_after", math.inf) - ours.get("value_before", 0.0)) < tolerance else set()
        pairs = [(f"{where}.{name}", ours.get(name), theirs.get(name)) for name in sorted(names)]
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = [(f"{where}[{i}]", *pair) for i, pair in enumerate(zip(ours, theirs, strict=True))]
    else:
        numbers = [list(map(float, NUMBER.findall(str(one).replace("−", "-")))) for one in (ours, theirs)]
        words = [NUMBER.sub("", str(one).replace("−", "-")) for one in (ours, theirs)]
        same = words[0] == words[1] and all(
            abs(a - b) <= tolerance * max(1.0, abs(a)) for a, b in zip(*numbers, strict=True)
        )
        return [] if same else [f"{where}: {ours!r:.80} and {theirs!r:.80}"]
    return [found for name, one, other in pairs for found in differences(one, other, tolerance, name)]


def texts_of(task: str) -> list[str]:
    """A hundred texts: odd ones, and words of the letters that the models know."""
    rng = random.Random(1)

    def words() -> str:
        return " ".join("".join(rng.choices(LETTERS, k=rng.randint(1, 4))) for _ in range(rng.randint(1, 12)))

    texts = [TEXTS[task], *ODD, *(words() for _ in range(89))]
    if task == "tag":
        return [text for text in texts if text.strip()]
    if task == "pretrain":
        return [text.replace("b", "[MASK]", 1) for text in texts]
    return [text if "[SEP]" in text else f"{text} [SEP] {words()}" for text in texts] if task == "pairs" else texts


def rounded(run: Run) -> Run:
    """A run whose weights are numbers of 16 bits."""
    for parameter in run.model.parameters():
        parameter.data.copy_(parameter.detach().half())
    return run


@pytest.mark.parametrize("task", FAMILIES.values())
def test_a_page_has_the_tokens_logits_and_answers_of_python(task: str, script: Path) -> None:
    run = rounded(matrix_run(task, seed=6))
    requests = [TraceRequest(text) for text in texts_of(task)]
    if task in ("translate", "lm"):
        requests += [replace(requests[i], prefix=(6,)) for i in (0, 12)]
        requests += [replace(one, decode={"sample": True, "top_k": 3}) for one in requests[12:20]]
    if task == "translate":
        requests += [replace(one, decode={"beam_size": 3, "n_best": 2}) for one in requests[12:20]]
    output = "logits" if task != "regress" else "pooled"
    found = answers_of(script, run, [{"request": one.to_json(), "tensors": [output]} for one in requests])
    for request, theirs in zip(requests, found, strict=True):
        ours = explain(run, request)
        expected, got = ours.manifest(), theirs["manifest"]
        for name in ("streams", "decode", "answer", "warnings", "labels", "predictions", "nodes"):
            assert not differences(expected[name], got[name], 1e-3, name)[:3], request
        values = ours.tensor(output).astype(float).flatten().tolist()
        assert max(map(abs, map(float.__sub__, values, map(float, theirs["tensors"][output])))) < 1e-4


@pytest.mark.parametrize("task", FAMILIES.values())
def test_a_page_edits_sweeps_weighs_and_learns_as_python(task: str, script: Path) -> None:
    run = rounded(matrix_run(task, seed=6))
    request = TraceRequest(TEXTS[task])
    kinds = ["parts", "keys", "layers", *(["contributions"] if task != "pretrain" else [])]
    methods = ["erase", "integrated_gradients"]
    questions = [("sweep", {"kind": kind}) for kind in kinds] + [("attribute", {"method": one}) for one in methods]
    edited = replace(request, edits=("encoder.0.self.out[token:1]=0" if task != "lm" else "decoder.0.ff.out*2",))
    lesson = replace(request, answer=ANSWERS[task])
    lessons = [lesson, *(replace(lesson, learn_steps=2, optimizer=one) for one in OPTIMIZERS)]
    base, changed, *taught = (explain(run, one) for one in (request, edited, *lessons))
    gradients = [name for name in taught[1].records if name.endswith("weight.grad")]
    asks = [{"request": request.to_json(), "asked": questions}, {"request": edited.to_json()}]
    asks += [{"request": one.to_json(), "tensors": gradients} for one in lessons]
    first, second, *learned = answers_of(script, run, asks)
    expected = [plain(sweep(base, kind)) for kind in kinds]
    expected += [plain(attribute(base, AttributeRequest.from_dict({"method": one}))) for one in methods]
    for question, one, other in zip(questions, expected, first["asked"], strict=True):
        assert not differences(one, other, 2e-3)[:3], question
    for name in ("edited", "answer", "predictions", "nodes"):
        assert not differences(changed.manifest()[name], second["manifest"][name], 1e-3)[:3], name
    for ours, theirs in zip(taught, learned, strict=True):
        steps = ("nodes", "gradients") if not ours.request.learn_steps else ()
        for name in ("learning", "answer", "predictions", *steps):
            assert not differences(ours.manifest()[name], theirs["manifest"][name], 1e-3)[:3], name
        for name in gradients:
            value, other = (
                torch.tensor(each).double().flatten() for each in (ours.tensor(name), theirs["tensors"][name])
            )
            assert (value - other).norm() <= 1e-3 * value.norm() + 1e-9, name


HARD = """Hello, world! don't stop|He said: \u201cno\u201d \u2019tis|😀😁 emoji 👩‍👩‍👧‍👦|שלום
你好，世界 hello|한국어 문장|e\u0301 combining é|ÅÄÖ åäö ß ẞ İ ı|ﬁ ligature Ⅻ
<br /> line<BR>x|[PAD] [UNK] [MASK]|1234567 89,5 3.14|foo_bar __init__|tab\tsep
\u00a0nbsp\u2003em|▁ mark ▁▁|\u200bzero\u200dwidth|नमस्ते दुनिया|А\u0306 Й й|x²+y³=z⁴ $100 €5
\u0000nul|🇩🇪🇫🇷|Σίσυφος ΣΊΣΥΦΟΣ|\ufeffbom|naïve café|a  b   c| lead
trail |“quotes”—dash…|\u2028sep\u2029|THE film was not Good . bs"""
HARD = HARD.replace("\n", "|").split("|")


def run_with(kind: str, folder: Path) -> Run:
    """A classifier whose tokenizer is of a kind, trained here or imported."""
    if kind == "wordpiece":
        imported = read_source(bert_folder(folder / "bert"))
        task, model = restore_imported(imported)
        return Run(folder, task, model.eval(), torch.device("cpu"))
    given, split = config_of("classify"), Split(HARD * 2, ["a", "b"] * len(HARD), "train")
    more = {"ngrams": 90, "bigrams": 50, "lowercase": True} if kind == "word" else {}
    config = replace(given, text=replace(given.text, tokenizer=kind, vocab_size=400, max_len=64, **more))
    task = TASKS["classify"].from_data(config, TextData(split, split, split))
    torch.manual_seed(0)
    return Run(folder, task, task.build_model().eval(), torch.device("cpu"))


@pytest.mark.parametrize("kind", ["word", "char", "bpe", "byte-bpe", "wordpiece"])
def test_a_page_cuts_texts_as_the_tokenizer_does(kind: str, script: Path, tmp_path: Path) -> None:
    run = run_with(kind, tmp_path)
    found = answers_of(script, run, [{"request": {"text": text}} for text in HARD])
    for text, theirs in zip(HARD, found, strict=True):
        ours = explain(run, TraceRequest(text)).manifest()
        for name in ("streams", "answer"):
            assert not differences(ours[name], theirs["manifest"][name], 1e-3, name)[:3], text


def test_the_first_link_of_the_readme_is_the_committed_model(script: Path) -> None:
    """Its program and its answers; the bits of a compressed file differ by version of zlib."""
    run, page = load(DOCS / "front" / "dates"), (DOCS / "_static" / "front.html").read_text(encoding="utf-8")
    assert len(page.encode()) < 2_500_000
    [_, facts, _], [_, again, _] = map(data_of_page, (page, model_page(run, [], n_alike)[0]))
    ours, theirs = (json.loads(zlib.decompress(base64.b64decode(each))) for each in (again, facts))
    for name in ("task", "tokenizers", "weights", "learn"):
        assert ours[name] == theirs[name]
    described = [
        [[node[name] for name in ("id", "op", "inputs", "params")] for node in each["nodes"]] for each in (ours, theirs)
    ]
    assert described[0] == described[1]
    texts = ["[en_US] 03/05/2026", "[de_DE] 3. Mai 2026", "[ja_JP] 2024年5月3日"]
    found = answers_of(script, run, [{"request": {"text": text}} for text in texts], data_of_page(page))
    assert [one["manifest"]["answer"]["headline"] for one in found] == [
        run.predict(text)["translation"] for text in texts
    ]


@pytest.mark.parametrize("task", ["classify", "multilabel", "tag", "regress", "pretrain"])
def test_a_page_holds_all_members_of_an_ensemble(task: str, script: Path) -> None:
    run = rounded(matrix_run(task, members=2, seed=6))
    edit = ("encoder.0.self.out[token:1]=0",)
    requests = [TraceRequest(TEXTS[task], member=member, edits=edits) for member in (0, 1) for edits in ((), edit)]
    requests.append(TraceRequest(TEXTS[task], member=1, answer=ANSWERS[task], learn_steps=1, optimizer="sgd"))
    found = answers_of(script, run, [{"request": one.to_json()} for one in requests])
    for request, theirs in zip(requests, found, strict=True):
        ours = explain(run, request).manifest()
        for name in ("answer", "together", "labels", "edited", "predictions", "temperature"):
            assert not differences(ours[name], theirs["manifest"][name], 1e-3, name)[:3], request
        assert not differences(ours["warnings"], theirs["manifest"]["warnings"], 1e-3)
