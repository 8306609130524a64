"""What stands in the page's cells is what torch computed, at every step of every kind of model; what is not is red."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.browser.app import App, Open, address
from tests.browser.models import ANSWERS, MODELS, TEXTS, subject_of
from tests.helpers.matrix import matrix_run
from tests.helpers.ngram_runs import ngram_run

from glassformer.explain.explanation import Explanation, TraceRequest, explain
from glassformer.run import Run

CASES = [
    ("classify, one layer", {"answer": ANSWERS["classify"], "learn_steps": 3}),
    ("translate, one layer", {"beam_size": 3}),
    ("pretrain, post-norm", {"edits": "encoder.0.state=skip encoder.1.self.scores[head:1;key:0]=blocked"}),
    ("lm, pre-norm", {"edits": "decoder.0.state[token:1]=B decoder.1.self.q[head:0]*2", "other_text": "cba d"}),
]
ONE_LAYER = {
    f"{task}, one layer": (task, MODELS[f"{task}, pre-norm"][1] | {"n_layers": 1}) for task in ("classify", "translate")
}
PARTS = MODELS | ONE_LAYER
OTHERS: dict[str, tuple[Callable[[], Run], dict[str, Any]]] = {
    "n-grams of one member of three": (lambda: ngram_run(members=3), {"text": "refunds xyzzy 😀 card", "member": 1}),
    "bigrams": (lambda: ngram_run(bigrams=40), {"text": "card cards card lost"}),
    "pairs": (lambda: matrix_run("pairs"), {"text": "ab c [SEP] good b"}),
}

WALK = """async ([nodes, addresses]) => {
    const until = async (what) => {
        for (const began = performance.now(); performance.now() - began < 10000;) {
            const found = what();
            if (found) return found;
            await new Promise((resolve) => setTimeout(resolve, 4));
        }
        throw new Error(`nothing to see at ${location.hash}`);
    };
    const out = [];
    for (const [i, node] of nodes.entries()) {
        location.hash = addresses[i];
        const check = await until(() => document.querySelector(`[data-check="${node}"]:not([data-state=pending])`));
        const figure = await until(() => document.querySelector(`main figure[data-node="${node}"]:has(td[data-row])`));
        out.push({
            state: check.dataset.state, says: check.textContent, slice: figure.dataset.slice,
            cells: [...figure.querySelectorAll('td[data-row]')].map(
                (td) => [+td.dataset.row, +td.dataset.col, td.dataset.value, td.textContent]),
        });
    }
    return out;
}"""
"""Opens every step, and returns its check and its cells."""


def compare(page: App, explanation: Explanation, params: dict[str, Any], stack: str = "") -> None:
    """Open every step of a stack; each cell has its number, to the digits that it shows, and each check agrees."""
    nodes = [node for node in [*explanation.records, "probabilities"] if node.startswith(stack)]
    addresses = [address("step", params | {"node": node, "head": 1}) for node in nodes]
    seen = 0
    for node, found in zip(nodes, page.page.evaluate(WALK, [nodes, addresses]), strict=True):
        assert found["state"] == "ok", (node, found["says"])
        expected = matrix_of(explanation, node, found["slice"])
        assert found["cells"], node
        for row, column, value, text in found["cells"]:
            assert float(value) == pytest.approx(expected[row, column], rel=1e-6, abs=1e-7), (node, row, column)
            if text == "blocked":
                assert float(value) < -1e30
            elif text != "masked":
                mantissa, _, power = text.replace("−", "-").partition("e")
                last_digit = 10.0 ** (int(power or 0) - len(mantissa.partition(".")[2]))
                assert float(value) == pytest.approx(read(text), rel=1e-6, abs=0.5001 * last_digit), text
        seen += len(found["cells"])
    assert seen > 5 * len(nodes)


def read(text: str) -> float:
    return float(text.replace("−", "-"))


def matrix_of(explanation: Explanation, node: str, part: str) -> np.ndarray:
    """The numbers of a figure as torch has them, the last axis across, all others down."""
    if node == "probabilities":
        prediction = explanation.predictions[0]
        logits = torch.from_numpy(np.array(explanation.tensor("logits"), dtype=np.float64))
        chosen = [c.id for c in prediction.top]
        if prediction.position is not None:
            token, ids = re.fullmatch(r"token:(\d+);vocab:([\d.]+)(?:-\d+)?", part).groups()  # pyright: ignore
            logits, chosen = logits[int(token)], [int(i) for i in ids.split(".")]
        values = logits.softmax(dim=-1)[chosen].numpy()
    else:
        values = explanation.tensor(node, part)
    return np.asarray(values, dtype=np.float64).reshape(-1, values.shape[-1] if values.ndim else 1)


@pytest.mark.parametrize(("name", "params"), CASES, ids=lambda x: str(x))
def test_every_cell_is_torchs_and_every_check_agrees(app: Open, name: str, params: dict[str, Any]) -> None:
    given = {"text": TEXTS[PARTS[name][0]]} | params
    fields = dict(given)
    if "beam_size" in fields:
        fields["decode"] = {"beam_size": fields.pop("beam_size")}
    fields["edits"] = fields.get("edits", "").split()
    run = subject_of(PARTS[name])
    explanation = explain(run, TraceRequest.from_dict(fields))
    page = app(run, "step", **given)
    answer = page.text("[data-role=answer]")
    assert re.sub(r"\s", "", explanation.answer["headline"]) in re.sub(r"\s", "", answer)
    compare(page, explanation, given)


@pytest.mark.parametrize("kind", list(OTHERS))
def test_so_is_every_cell_of_other_embeddings(app: Open, kind: str) -> None:
    """And the n-grams of a token are written out."""
    make, params = OTHERS[kind]
    run = make()
    page, e = app(run, "step", **params), explain(run, TraceRequest(**params))
    compare(page, e, params, "embedding")
    stream = e.streams[0]
    if kind == "bigrams":
        at = next(place for place, number in enumerate(stream.bigram_ids or ()) if number)
        page.go("step", **params, node="embedding.bigram_ids", cell=f"0,{at}", arithmetic=1)
        page.wait("[data-role=arithmetic] p")
        assert (stream.bigrams or ())[at] in page.text("[data-role=arithmetic]")
    elif stream.ngrams:
        page.go("step", **params, node="embedding.ngrams", cell="0,3", arithmetic=1)
        assert page.text("[data-role=ngrams]").startswith("refunds [UNK]: <re · <ref")
        page.until("document.querySelectorAll('[data-role=arithmetic] tbody tr').length > 5")
        total = read(page.text("[data-role=arithmetic] .sum"))
        assert total == pytest.approx(e.tensor("embedding.ngrams")[0, 3], abs=1e-3)
        page.go("step", **params, node="embedding.ngram_ids", cell="2,1")
        assert page.text("[data-role=ngrams]").endswith("0xF0 · 0x9F · 0x98 · 0x80")


@pytest.mark.parametrize(
    ("node", "forged", "edits"),
    [
        ("encoder.0.self.weights", "encoder.0.self.weights", None),
        ("encoder.0.self.scores", "encoder.0.self.products", None),
        ("encoder.0.self.context", "encoder.0.self.context", "encoder.0.self.context[head:1]=0"),
    ],
)
def test_one_forged_number_turns_the_check_red(app: Open, node: str, forged: str, edits: str | None) -> None:
    """Of the step that is computed from it, and of no step after that: each is computed from the model's numbers."""
    page = app("classify, pre-norm", "step", node=node, head=1, edits=edits)
    assert page.check(node) == "ok" and page.count("[data-role=set-by-you]") == (edits is not None)
    page.forge(forged, lambda values: np.add.at(values, -1, 0.5))
    page.page.reload()
    page.ready("step")
    assert page.check(node) == "bad"
    check = page.page.locator(f'[data-check="{node}"]')
    assert "disagree" in check.inner_text()
    if node == forged:
        assert float(check.get_attribute("data-delta") or "nan") == pytest.approx(0.5, rel=0.05)
    else:
        page.go("step", node="encoder.0.self.weights")
        assert page.check("encoder.0.self.weights") == "ok"
