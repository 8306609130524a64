"""The screen Learn, and gradients on Flow and Step: their numbers are torch's, on a served page and in a saved one."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.browser.app import App, Watch
from tests.browser.models import ANSWERS, MODELS, TEXTS, subject_of
from tests.browser.test_screens import problems

from glassformer.explain.explanation import Explanation, explain
from glassformer.explain.page.saved_page import saved_page_html
from glassformer.explain.request import TraceRequest

FAMILIES = ("classify, pre-norm", "translate, pre-norm", "lm, pre-norm", "pretrain, pre-norm")
CLASSIFIER = "classify, pre-norm"
CHECKED = {"adamw": 3, "adam": 3, "sgd": 1, "muon": 2}
"""Numbers of an update that the optimizer keeps, too: its averages, and the parameter after the step."""
LOOKS = {
    "light": {"color_scheme": "light", "viewport": {"width": 360, "height": 800}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 360, "height": 800}},
}


def request_of(name: str, **more: Any) -> TraceRequest:
    task = MODELS[name][0]
    return TraceRequest(TEXTS[task], answer=ANSWERS[task], **more)


def at(name: str, **more: Any) -> dict[str, Any]:
    """Return the same as parameters of the address."""
    task = MODELS[name][0]
    return {"text": TEXTS[task], "answer": ANSWERS[task]} | more


@cache
def learned(name: str, steps: int, optimizer: str | None = None) -> Explanation:
    return explain(subject_of(MODELS[name]), request_of(name, learn_steps=steps, optimizer=optimizer))


def number(page: App, role: str) -> float:
    """Return the number that an element shows, which the page marks as that of the model."""
    element = page.page.wait_for_selector(f"[data-role={role}][data-state=ok]")
    assert element is not None
    return float(element.get_attribute("data-value") or "nan")


def checks_of_update(page: App) -> list[tuple[str, str]]:
    page.page.wait_for_selector("[data-role=update-lines][data-state=ready] [data-check-line]")
    return page.page.locator("[data-check-line]").evaluate_all(
        "all => all.map(one => [one.dataset.checkLine, one.dataset.state])"
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_steps_are_taken_and_put_back(app: Callable[..., App], name: str) -> None:
    task = MODELS[name][0]
    page = app(name, "learn", text=TEXTS[task])
    field = page.page.locator("[data-role=learn-answer]")
    field.select_option(ANSWERS[task]) if task == "classify" else field.fill(ANSWERS[task])
    page.page.locator("[data-role=loss]").click()
    before = number(page, "mean-before")
    assert before == pytest.approx(learned(name, 1).base.learning.loss, rel=1e-5)  # pyright: ignore
    assert page.param["answer"] == ANSWERS[task] and "learn_steps" not in page.param
    page.page.locator("[data-role=one-step]").click()
    assert number(page, "mean-after") == pytest.approx(learned(name, 1).learning.learned.loss, rel=1e-4)  # pyright: ignore
    page.page.locator("[data-role=ten-steps]").click()
    page.page.wait_for_selector("[data-step='11']")
    assert page.param["learn_steps"] == "11"
    assert number(page, "mean-after") == pytest.approx(learned(name, 11).learning.learned.loss, rel=1e-3)  # pyright: ignore
    page.page.locator("[data-role=put-back]").click()
    page.page.wait_for_selector("[data-role=mean-after]", state="detached")
    page.settle()
    assert number(page, "mean-before") == before and "learn_steps" not in page.param
    assert page.page.locator("[data-role=update]").count() == 0


def test_no_loss_of_other_steps_is_shown_as_that_after_these(app: Callable[..., App]) -> None:
    page = app(CLASSIFIER, "learn", **at(CLASSIFIER, learn_steps=1))
    number(page, "mean-after")
    held: list[Any] = []
    page.page.route("**/t/loss.each*", lambda route: held.append(route))
    with page.page.expect_request("**/t/loss.each*"):
        page.page.locator("[data-role=ten-steps]").click()
    page.page.wait_for_selector("[data-step='11']")
    assert page.page.locator("[data-role=mean-after]").count() == 0 and held
    for route in held:
        route.continue_()
    assert number(page, "mean-after") == pytest.approx(learned(CLASSIFIER, 11).learning.learned.loss, rel=1e-3)  # pyright: ignore


@pytest.mark.parametrize("optimizer", list(CHECKED))
@pytest.mark.parametrize("steps", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_every_number_of_an_update_is_the_optimizers(app: Callable[..., App], optimizer: str, steps: int) -> None:
    name = CLASSIFIER
    weight = "encoder.layers.0.self_attention.q_proj.weight"
    page = app(name, "learn", **at(name, learn_steps=steps, optimizer=optimizer, param=weight, cell="3,5"))
    found = checks_of_update(page)
    assert len(found) == CHECKED[optimizer] and all(state == "ok" for _, state in found), found
    shown = page.page.locator("tr:has([data-check-line='θ after']) td").first.inner_text()
    after = learned(name, steps, optimizer).tensor(weight)
    assert float(shown.split("=")[-1].replace("−", "-").strip()) == pytest.approx(float(after[3, 5]), abs=2e-6)
    page.page.locator("[data-role=parameter]").select_option("embedding.weight")
    page.settle()
    assert all(state == "ok" for _, state in checks_of_update(page))


def test_a_forged_weight_turns_the_update_red(app: Callable[..., App]) -> None:
    weight = "encoder.layers.0.self_attention.q_proj.weight"
    page = app(CLASSIFIER, "flow", **at(CLASSIFIER))

    def perturb(route: Any) -> None:
        answer = route.fetch()
        body = bytearray(answer.body())
        body[2] ^= 0x10  # a bit of the fraction
        route.fulfill(response=answer, body=bytes(body))

    page.page.route(f"**/t/{weight}?*", perturb)
    page.go("learn", **at(CLASSIFIER, learn_steps=1, param=weight, cell="0,0"))
    assert dict(checks_of_update(page))["θ after"] == "bad"
    page.page.unroute_all()


def test_steps_until_the_answer_is_learned(app: Callable[..., App]) -> None:
    page = app(CLASSIFIER, "learn", **at(CLASSIFIER))
    page.page.locator("[data-role=until]").click()
    page.page.locator("[data-role=said]").filter(has_text=re.compile("earned after|already")).wait_for()
    page.settle()
    states = learned(CLASSIFIER, 100).learning.learned  # pyright: ignore[reportOptionalMemberAccess]
    assert states is not None
    reached = [*(step.right or step.loss < 0.1 for step in states.steps), states.right or states.loss < 0.1]
    assert page.param.get("learn_steps", "0") == str(reached.index(True))


def test_the_text_before_learning_is_kept_while_steps_are_taken(app: Callable[..., App]) -> None:
    """The server keeps few traces; a request for a tensor of one that it dropped would be an error in the console."""
    name = "translate, pre-norm"
    page = app(name, "learn", **at(name))
    for steps in ("1", "2", "3", "4"):
        page.page.locator("[data-role=one-step]").click()
        page.page.wait_for_selector(f"[data-step='{steps}']")
        page.settle()
    page.go("flow", **at(name, learn_steps=4, show="before"))
    page.settle()
    assert page.page.locator("canvas").count() > 0


def test_the_model_s_own_answer_and_what_each_optimizer_moves_are_said(app: Callable[..., App]) -> None:
    name = "translate, pre-norm"
    page = app(name, "learn", **at(name, learn_steps=1, optimizer="muon", lr=0.0015))
    own = explain(subject_of(MODELS[name]), TraceRequest(TEXTS["translate"])).answer
    page.page.wait_for_selector("[data-role=own-answer]")
    assert page.page.inner_text("[data-role=own-answer] strong") == own["headline"]
    assert page.page.inner_text(".learn-rate output") == "0.0015"
    assert "0.01" in page.page.inner_text("[data-role=matrix-lr]"), "in proportion: 0.02 · 0.0015 / 0.003"
    page.go("flow", **at(name))
    assert "given" in page.page.inner_text(".flow-decoder h2")


def test_a_parameter_that_muon_leaves_out_names_its_optimizer(app: Callable[..., App]) -> None:
    bias = "encoder.layers.0.self_attention.q_proj.bias"
    page = app(CLASSIFIER, "learn", **at(CLASSIFIER, learn_steps=1, optimizer="muon", param=bias))
    assert "AdamW" in page.page.inner_text("[data-role=not-muon]")
    page.page.locator("[data-role=parameter]").select_option(bias.replace("bias", "weight"))
    page.page.wait_for_selector("[data-role=not-muon]", state="detached")


def test_the_loss_is_the_sum_of_its_largest_terms_and_the_rest(app: Callable[..., App]) -> None:
    name = "translate, pre-norm"
    page = app(name, "learn", **at(name))
    mean = number(page, "mean-before")
    text = page.page.inner_text("[data-role=mean-before]").replace("−", "-")
    terms, n = re.search(r"\((.*)\) / (\d+)", text).groups()  # pyright: ignore[reportOptionalMemberAccess]
    values = [float(term.split(" of ")[0]) for term in terms.split(" + ")]
    assert sum(values) / int(n) == pytest.approx(mean, rel=1e-3)
    assert values[:-1] == sorted(values[:-1], reverse=True)


def test_keys_switch_between_values_and_gradients(app: Callable[..., App]) -> None:
    name, node = "translate, pre-norm", "decoder.0.cross.weights"
    page = app(name, "step", **at(name, node=node, head=1))
    page.press("g")
    assert page.check(f"{node}.grad") == "ok"
    assert page.param["node"] == f"{node}.grad" and page.param["numbers"] == "gradients"
    listed = page.page.locator(".step-list a").evaluate_all("all => all.map(one => one.dataset.nodeBox)")
    assert listed and all(".grad" in id for id in listed), "forward steps and gradients are not mixed"
    page.press("]")
    assert page.check("decoder.1.cross.weights.grad") == "ok"
    page.press(" ")
    page.press("g")
    assert ".grad" not in page.param["node"] and "numbers" not in page.param
    page.press("g", "1")
    page.ready("flow")
    boxes = page.page.locator("[data-node-box]").evaluate_all("all => all.map(one => one.dataset.nodeBox)")
    assert "decoder.0.cross.weights.grad" in boxes and "decoder.0.cross.weights" not in boxes
    page.press("g")
    assert page.page.locator("[data-node-box='decoder.0.cross.weights']").count() > 0
    page.press("7")
    page.ready("learn")


def test_a_weight_s_gradient_opens_from_its_step_with_what_each_token_adds(app: Callable[..., App]) -> None:
    name, weight = CLASSIFIER, "encoder.layers.0.self_attention.q_proj.weight"
    page = app(name, "step", **at(name, node="encoder.0.self.q_proj", arithmetic=1))
    page.page.get_by_role("link", name="its gradient").first.click()
    assert page.check(f"{weight}.grad") == "ok"
    page.go("step", **at(name, node=f"{weight}.grad", arithmetic=1, cell="2,4"))
    page.page.wait_for_selector("[data-role=arithmetic][data-cell='2,4'] table")
    rows = page.page.locator("[data-role=arithmetic] tbody tr:not(.table-sum)").count()
    assert rows == len(learned(name, 1).streams[0])
    total = page.page.locator("[data-role=arithmetic] .sum").inner_text().replace("−", "-")
    base = learned(name, 1).base
    assert base is not None
    assert float(total) == pytest.approx(float(base.tensor(f"{weight}.grad")[2, 4]), rel=1e-2, abs=1e-5)
    assert page.page.get_attribute("[data-sum-check]", "data-sum-check") == "ok"


def test_a_forged_gradient_of_a_weight_differs_from_its_sum(app: Callable[..., App]) -> None:
    name, weight = CLASSIFIER, "encoder.layers.0.self_attention.q_proj.weight"
    page = app(name, "flow", **at(name))

    def double(route: Any) -> None:
        answer = route.fetch()
        numbers = 2 * np.frombuffer(answer.body(), dtype="<f4")
        route.fulfill(response=answer, body=numbers.tobytes())

    page.page.route(f"**/t/{weight}.grad?*", double)
    page.go("step", **at(name, node=f"{weight}.grad", arithmetic=1, cell="2,4"))
    page.page.wait_for_selector("[data-sum-check=bad]")
    page.page.unroute_all()


def test_nothing_of_learning_is_shown_without_an_answer(app: Callable[..., App]) -> None:
    page = app(CLASSIFIER, "step", text=TEXTS["classify"], node="encoder.0.self.weights")
    page.press("g")
    assert page.param["node"] == "encoder.0.self.weights"
    assert page.page.locator("[data-numbers]").count() == 0
    assert page.page.locator(".step-from a:has-text('gradient')").count() == 0
    assert page.page.locator(".step-list a[data-node-box^=loss]").count() == 0


@pytest.mark.parametrize(
    ("name", "params", "says"),
    [
        (CLASSIFIER, {"answer": "neutral"}, "is not a class of this model"),
        ("translate, pre-norm", {"answer": "#"}, "not in the vocabulary"),
        (CLASSIFIER, {"answer": "good", "edits": "encoder.0.self.out=0"}, "without edits only"),
        ("pretrain, pre-norm", {"answer": "a b c"}, "[MASK]"),
    ],
    ids=lambda one: str(one)[:40],
)
def test_what_is_refused_is_said(
    app: Callable[..., App], watch: Watch, name: str, params: dict[str, Any], says: str
) -> None:
    watch.expected = "status of 400"
    page = app(name, "learn", text=TEXTS[MODELS[name][0]])
    page.go("learn", **({"text": TEXTS[MODELS[name][0]]} | params))
    alert = page.page.locator("[role=alert]").first
    alert.wait_for()
    assert says in alert.inner_text()
    assert page.param.get("edits") is None or "learn_steps" not in page.param


def test_edits_are_removed_before_learning(app: Callable[..., App]) -> None:
    page = app(CLASSIFIER, "learn", text=TEXTS["classify"], edits="encoder.0.self.out=0")
    refused = page.page.locator("main [data-role=refused]")
    refused.wait_for()
    assert "without edits only" in refused.inner_text()
    refused.get_by_role("button").click()
    page.page.wait_for_selector("[data-role=one-step]")
    assert "edits" not in page.param


@pytest.mark.parametrize(("name", "look"), [(CLASSIFIER, "light"), ("translate, pre-norm", "dark")])
def test_no_serious_findings_at_360_pixels(app: Callable[..., App], name: str, look: str) -> None:
    found: list[str] = []
    page = app(name, options=LOOKS[look])
    for screen in ("learn", "flow", "step"):
        node = "encoder.0.ff.w_in.grad" if screen == "step" else None
        page.go(screen, **at(name, learn_steps=2, numbers="gradients", node=node))
        page.settle()
        found += problems(page, f"{screen} of {name}")
    assert not found, "\n".join(found)


def test_a_saved_page_holds_the_trace_before_and_after(app: Callable[..., App], tmp_path: Path) -> None:
    name = CLASSIFIER
    html, dropped = saved_page_html(learned(name, 3), seconds=1)
    file = tmp_path / "learned.html"
    file.write_text(html, encoding="utf-8")
    assert dropped == []
    page = app(file, "learn")
    assert number(page, "mean-before") == pytest.approx(learned(name, 3).base.learning.loss, rel=1e-3)  # pyright: ignore
    assert number(page, "mean-after") == pytest.approx(learned(name, 3).learning.learned.loss, rel=1e-2)  # pyright: ignore
    assert all(state == "ok" for _, state in checks_of_update(page))
    assert page.page.locator("[data-role=one-step]").count() == 0
    for node in (
        "encoder.0.self.weights.grad",
        "encoder.0.ff.norm.grad",
        "encoder.layers.1.feed_forward.up_proj.weight.grad",
    ):
        page.go("step", node=node, head=1)
        assert page.check(node) == "ok"
    page.press("v")
    page.settle()
    assert page.page.locator("[data-check]").count() == 0
