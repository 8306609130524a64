"""What stands in the page's cells is what torch computed, at every step of every kind of model; what is not is red.

So it is of what is learned: the screen Learn, and gradients on Flow and Step, on a served page and in a saved one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.browser.app import App, Open, Watch, address
from tests.browser.models import ANSWERS, CLASSIFIER, MODELS, TEXTS, TRANSLATOR, WRITER, explained, subject_of
from tests.helpers.matrix import matrix_run
from tests.helpers.ngram_runs import ngram_run

from glassformer.explain.explanation import Explanation, TraceRequest, explain
from glassformer.explain.learn.learning import Learned
from glassformer.run import Run

CASES = [
    ("classify, one layer", {"answer": ANSWERS["classify"], "learn_steps": 3}),
    ("translate, one layer", {"beam_size": 3}),
    ("pretrain, post-norm", {"edits": "encoder.0.state=skip encoder.1.self.scores[head:1;key:0]=blocked"}),
    (WRITER, {"edits": "decoder.0.state[token:1]=B decoder.1.self.q[head:0]*2", "other_text": "cba d"}),
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
    page = app(CLASSIFIER, "step", node=node, head=1, edits=edits)
    assert page.check(node) == "ok" and page.count("[data-role=set-by-you]") == (edits is not None)
    page.forge(forged, lambda values: np.add.at(values, -1, 0.5))
    page.reload()
    assert page.check(node) == "bad"
    check = page.page.locator(f'[data-check="{node}"]')
    assert "disagree" in check.inner_text()
    if node == forged:
        assert float(check.get_attribute("data-delta") or "nan") == pytest.approx(0.5, rel=0.05)
    else:
        page.agrees("encoder.0.self.weights")


WEIGHT = "encoder.layers.0.self_attention.q_proj.weight"
CHECKED = {"adamw": 3, "adam": 3, "sgd": 1, "muon": 2}
"""Numbers of an update that the optimizer keeps, too: its averages, and the parameter after the step."""


def at(name: str, **more: Any) -> dict[str, Any]:
    """Return a text with its answer as parameters of the address."""
    task = MODELS[name][0]
    return {"text": TEXTS[task], "answer": ANSWERS[task]} | more


@cache
def taught(name: str, steps: int, optimizer: str | None = None) -> Explanation:
    return explained(name, answer=at(name)["answer"], learn_steps=steps, optimizer=optimizer)


def learned(name: str, steps: int) -> Learned:
    facts = taught(name, steps).learning
    assert facts is not None and facts.learned is not None
    return facts.learned


def loss(page: App, when: str) -> float:
    """Return the loss that is shown, which the page marks as that of the model."""
    return page.value(f"[data-role=mean-{when}]:has([data-check=loss][data-state=ok])")


def checks_of_update(page: App) -> dict[str, str]:
    page.wait("[data-role=update-lines][data-state=ready] [data-check-line]")
    return dict(page.all("[data-check-line]", "[one.dataset.checkLine, one.dataset.state]"))


@pytest.mark.parametrize("name", [CLASSIFIER, WRITER])
def test_steps_are_taken_and_put_back(app: Open, name: str) -> None:
    task = MODELS[name][0]
    page = app(name, "learn", text=TEXTS[task])
    field = page.page.locator("[data-role=learn-answer]")
    field.select_option(ANSWERS[task]) if task == "classify" else field.fill(ANSWERS[task])
    page.click("[data-role=loss]")
    before = loss(page, "before")
    assert before == pytest.approx(learned(name, 1).steps[0].loss, rel=1e-5)
    assert page.param["answer"] == ANSWERS[task] and "learn_steps" not in page.param
    page.click("[data-role=one-step]")
    assert loss(page, "after") == pytest.approx(learned(name, 1).loss, rel=1e-4)
    page.click("[data-role=ten-steps]")
    page.wait("[data-step='11']")
    assert page.param["learn_steps"] == "11"
    assert loss(page, "after") == pytest.approx(learned(name, 11).loss, rel=1e-3)
    page.click("[data-role=put-back]")
    page.gone("[data-role=mean-after]")
    page.settle()
    assert loss(page, "before") == before and "learn_steps" not in page.param
    assert page.count("[data-role=update]") == 0


def test_steps_until_the_answer_is_learned(app: Open) -> None:
    page = app(CLASSIFIER, "learn", **at(CLASSIFIER))
    page.click("[data-role=until]")
    page.page.locator("[data-role=said]").filter(has_text=re.compile("earned after|already")).wait_for()
    page.settle()
    states = learned(CLASSIFIER, 100)
    reached = [step.right or step.loss < 0.1 for step in (*states.steps, states)]
    assert page.param.get("learn_steps", "0") == str(reached.index(True))


@pytest.mark.parametrize(("optimizer", "steps"), [("adamw", 3), ("adam", 1), ("sgd", 3), ("muon", 3)])
def test_every_number_of_an_update_is_the_optimizers(app: Open, optimizer: str, steps: int) -> None:
    """And a forged weight turns it red."""
    params = at(CLASSIFIER, learn_steps=steps, optimizer=optimizer, param=WEIGHT, cell="3,5")
    page = app(CLASSIFIER, "learn", **params)
    found = checks_of_update(page)
    assert len(found) == CHECKED[optimizer] and set(found.values()) == {"ok"}, found
    shown = page.page.locator("tr:has([data-check-line='θ after']) td").first.inner_text()
    after = taught(CLASSIFIER, steps, optimizer).tensor(WEIGHT)
    assert float(shown.split("=")[-1].replace("−", "-").strip()) == pytest.approx(float(after[3, 5]), abs=2e-6)
    page.page.select_option("[data-role=parameter]", "embedding.weight")
    page.settle()
    assert set(checks_of_update(page).values()) == {"ok"}
    assert page.count("[data-role=not-muon]:has-text('AdamW')") == (optimizer == "muon")
    if optimizer == "adamw":
        page.forge(WEIGHT, lambda values: np.multiply(values, 1.1, out=values))
        page.reload()
        page.page.select_option("[data-role=parameter]", WEIGHT)
        page.settle()
        assert checks_of_update(page)["θ after"] == "bad"


def test_the_text_before_learning_is_kept_while_steps_are_taken(app: Open) -> None:
    """The server keeps few traces; a request for a tensor of one that it dropped would be an error in the console."""
    page = app(TRANSLATOR, "learn", **at(TRANSLATOR))
    mean = loss(page, "before")
    shown = float(page.text("[data-role=mean-before] .sum"))
    assert shown == pytest.approx(mean, rel=1e-3), "of the losses of all labels"
    for steps in ("1", "2", "3", "4"):
        page.click("[data-role=one-step]")
        page.wait(f"[data-step='{steps}']")
        page.settle()
    page.go("flow", **at(TRANSLATOR, learn_steps=4, show="before"))
    page.settle()
    assert page.count("canvas") > 0 and "given" in page.text(".flow-decoder h2")


def test_the_model_s_own_answer_and_the_rate_of_each_optimizer_are_shown(app: Open) -> None:
    page = app(TRANSLATOR, "learn", **at(TRANSLATOR, learn_steps=1, optimizer="muon", lr=0.0015))
    page.wait("[data-role=own-answer]")
    own = explained(TRANSLATOR).answer
    assert page.text("[data-role=own-answer] strong") == own["headline"]
    assert page.text(".learn-rate output") == "0.0015"
    assert "0.01" in page.text("[data-role=matrix-lr]"), "in proportion: 0.02 · 0.0015 / 0.003"


def test_keys_switch_between_values_and_gradients(app: Open) -> None:
    node = "decoder.0.cross.weights"
    page = app(TRANSLATOR, "step", **at(TRANSLATOR, node=node, head=1))
    page.press("g")
    assert page.check(f"{node}.grad") == "ok"
    assert page.param["node"] == f"{node}.grad" and page.param["numbers"] == "gradients"
    listed = page.all(".step-list a", "one.dataset.nodeBox")
    assert listed and all(".grad" in id for id in listed), "forward steps and gradients are not mixed"
    page.press("]")
    assert page.check("decoder.1.cross.weights.grad") == "ok"
    page.press(" ", "g")
    assert ".grad" not in page.param["node"] and "numbers" not in page.param
    page.press("g", "1")
    page.ready("flow")
    boxes = page.all("[data-node-box]", "one.dataset.nodeBox")
    assert f"{node}.grad" in boxes and node not in boxes
    page.press("g")
    assert page.count(f"[data-node-box='{node}']") > 0
    page.press("7")
    page.ready("learn")
    page.go("step", text=TEXTS["translate"], node=node)
    page.press("g")
    assert page.param["node"] == node, "without an answer there are no gradients"
    assert page.count("[data-numbers], .step-from a:has-text('gradient'), .step-list a[data-node-box^=loss]") == 0


@pytest.mark.parametrize("factor", [1, 2])
def test_a_weight_s_gradient_is_the_sum_of_what_each_token_adds(app: Open, factor: int) -> None:
    """And is marked where it is not, as when it comes doubled."""
    page = app(CLASSIFIER, "step", **at(CLASSIFIER, node="encoder.0.self.q_proj", arithmetic=1))
    page.forge(f"{WEIGHT}.grad", lambda values: np.multiply(values, factor, out=values))
    page.page.get_by_role("link", name="its gradient").first.click()
    assert page.check(f"{WEIGHT}.grad") == ("ok" if factor == 1 else "bad")
    page.go("step", **at(CLASSIFIER, node=f"{WEIGHT}.grad", arithmetic=1, cell="2,4"))
    page.wait("[data-role=arithmetic][data-cell='2,4'] table")
    e = taught(CLASSIFIER, 1)
    assert e.base is not None
    assert page.count("[data-role=arithmetic] tbody tr:not(.table-sum)") == len(e.streams[0])
    total = page.text("[data-role=arithmetic] .sum").replace("−", "-")
    assert float(total) == pytest.approx(float(e.base.tensor(f"{WEIGHT}.grad")[2, 4]), rel=1e-2, abs=1e-5)
    assert page.page.get_attribute("[data-sum-check]", "data-sum-check") == ("ok" if factor == 1 else "bad")


def test_edits_are_removed_before_learning(app: Open, watch: Watch) -> None:
    watch.expected = "status of 400"
    page = app(CLASSIFIER, "learn", text=TEXTS["classify"], edits="encoder.0.self.out=0")
    page.wait("main [data-role=refused]")
    assert "without edits only" in page.text("main [data-role=refused]")
    page.click("main [data-role=refused] button")
    page.wait("[data-role=one-step]")
    assert "edits" not in page.param
    page.go("learn", **at(CLASSIFIER, edits="encoder.0.self.out=0"))
    page.wait("[role=alert]:has-text('without edits only')")


def test_a_saved_page_holds_the_trace_before_and_after(app: Open, saved: Callable[..., Path]) -> None:
    page, states = app(saved(taught(CLASSIFIER, 3)), "learn"), learned(CLASSIFIER, 3)
    assert loss(page, "before") == pytest.approx(states.steps[0].loss, rel=1e-3)
    assert loss(page, "after") == pytest.approx(states.loss, rel=1e-2)
    assert page.count("[data-role=one-step]") == 0
    nodes = ("encoder.0.self.weights", "encoder.0.ff.norm", "encoder.layers.1.feed_forward.up_proj.weight")
    page.agrees(*(f"{node}.grad" for node in nodes), head=1)
    page.press("v")
    page.settle()
    assert page.count("[data-check]") == 0
