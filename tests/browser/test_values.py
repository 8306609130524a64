"""What stands in the page's cells is what torch computed, at every step of every kind of model."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.browser.app import App, address
from tests.browser.models import ANSWERS, MODELS, TEXTS, subject_of

from glassformer.explain.explanation import Explanation, TraceRequest, explain

CASES = [
    *(pytest.param(name, {}, marks=pytest.mark.slow) for name in MODELS),
    ("classify, pre-norm", {"answer": ANSWERS["classify"], "learn_steps": 3}),
    pytest.param("classify, pre-norm", {"pad": 3}, marks=pytest.mark.slow),
    ("translate, pre-norm", {"beam_size": 3, "pad": 2}),
    ("translate, post-norm", {"target": "gfe"}),
    (
        "classify, pre-norm",
        {"edits": "encoder.0.self.scores[head:1;key:0]=blocked encoder.1.ff.hidden[hidden:3]*0.5 pooled[pooled:2]=1"},
    ),
    ("classify, post-norm", {"edits": "encoder.0.self.scores[head:1;token:2]=blocked encoder.1.self.out=0"}),
    pytest.param(
        "translate, pre-norm", {"edits": "encoder.1.state=skip decoder.0.cross.head1=0"}, marks=pytest.mark.slow
    ),
    ("translate, post-norm", {"edits": "encoder.0.state=skip decoder.0.self.weights[head:0;token:1]*0.5"}),
    ("classify, post-norm", {"answer": ANSWERS["classify"], "learn_steps": 3}),
    pytest.param("translate, pre-norm", {"answer": ANSWERS["translate"]}, marks=pytest.mark.slow),
    ("lm, pre-norm", {"answer": ANSWERS["lm"]}),
    ("pretrain, post-norm", {"answer": ANSWERS["pretrain"]}),
    ("lm, pre-norm", {"edits": "decoder.0.state[token:1]=B decoder.1.self.q[head:0]*2", "other_text": "cba d"}),
]

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


@pytest.mark.parametrize(("name", "params"), CASES, ids=lambda x: str(x))
def test_every_cell_is_torchs_and_every_check_agrees(
    app: Callable[..., App], name: str, params: dict[str, Any]
) -> None:
    task = MODELS[name][0]
    settings = {key: value for key, value in params.items() if key == "beam_size"}
    rest = {key: value for key, value in params.items() if key != "beam_size"}
    if "edits" in rest:
        rest["edits"] = tuple(rest["edits"].split())
    request = TraceRequest(TEXTS[task], **rest, **({"decode": settings} if settings else {}))
    explanation = explain(subject_of(MODELS[name]), request)
    page = app(name, "step", text=TEXTS[task], **params)
    answer = page.page.inner_text("[data-role=answer]")
    assert re.sub(r"\s", "", explanation.answer["headline"]) in re.sub(r"\s", "", answer)
    nodes = [*explanation.records, "probabilities"]
    addresses = [address("step", {"text": TEXTS[task]} | params | {"node": n, "head": 1}) for n in nodes]
    seen = 0
    for node, found in zip(nodes, page.page.evaluate(WALK, [nodes, addresses]), strict=True):
        assert found["state"] == "ok", (node, found["says"])
        expected = matrix_of(explanation, node, found["slice"])
        assert found["cells"], node
        for row, column, value, text in found["cells"]:
            assert float(value) == pytest.approx(expected[row, column], rel=1e-6, abs=1e-7), (node, row, column)
            assert_reads_as(text, float(value))
        seen += len(found["cells"])
    assert seen > 10 * len(nodes)


def matrix_of(explanation: Explanation, node: str, part: str) -> np.ndarray:
    """The numbers of a figure as torch has them, the last axis across, all others down."""
    if node == "probabilities":
        prediction = explanation.predictions[0]
        logits = torch.from_numpy(np.array(explanation.tensor("logits"), dtype=np.float64))
        if prediction.position is not None:
            token = int(part.split(";")[0].split(":")[1])
            logits = logits[token]
            ids = part.split("vocab:")[1]
            chosen = [int(i) for i in ids.split(".")] if "-" not in ids else [int(ids.split("-")[0])]
        else:
            chosen = [c.id for c in prediction.top]
        values = logits.softmax(dim=-1)[chosen].numpy()
    else:
        values = explanation.tensor(node, part)
    return np.asarray(values, dtype=np.float64).reshape(-1, values.shape[-1] if values.ndim else 1)


def assert_reads_as(text: str, value: float) -> None:
    """A cell's text is its value to the digits it shows."""
    if text == "masked":
        return
    if text == "blocked":
        assert value < -1e30
        return
    plain = text.replace("−", "-").replace("\u2009", "").replace("\u202f", "").strip()
    power = re.fullmatch(r"(-?[\d.]+)\s*[·×]\s*10(.*)", plain)
    if power:
        digits = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
        plain = f"{power[1]}e{power[2].translate(digits)}"
    shown = float(plain)
    mantissa = plain.lower().split("e")[0]
    decimals = len(mantissa.split(".")[1]) if "." in mantissa else 0
    scale = 10 ** (int(plain.lower().split("e")[1]) if "e" in plain.lower() else 0)
    assert math.isclose(shown, value, rel_tol=1e-6, abs_tol=0.5001 * 10**-decimals * scale), (text, value)
