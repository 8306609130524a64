"""A page of some steps: it holds them, what they are computed from, and nothing more."""

from __future__ import annotations

import pytest
import step_frame
from step_frame import learn_frame_html, step_address, step_frame_html
from tests.explain.test_report import Page
from tests.helpers.inference import untrained

from glassformer.errors import UsageError
from glassformer.explain.explanation import Explanation, explain
from glassformer.explain.request import TraceRequest


@pytest.fixture(scope="module")
def explanation() -> Explanation:
    return explain(untrained("classify"), "a b good c, d")


def test_it_holds_the_steps_their_inputs_and_their_parameters(explanation: Explanation) -> None:
    html = step_frame_html(explanation, ["encoder.0.self.weights", "encoder.0.self.q_proj"], "../assets")
    data = Page(html).data()
    [trace] = data["traces"]
    assert [node["id"] for node in trace["nodes"]] == ["encoder.0.self.q_proj", "encoder.0.self.weights"]
    inputs = {id for node in trace["nodes"] for id in node["inputs"]}
    assert data["tensors"][trace["id"]].keys() == {
        "encoder.0.self.weights",
        "encoder.0.self.q_proj",
        *inputs,
        *trace["params"],
    }
    assert 'src="../assets/whole.js"' in html and 'href="../assets/app.css"' in html


def test_what_was_learned_holds_the_loss_before_and_after_and_one_update() -> None:
    after = explain(untrained("classify"), TraceRequest("a b good c, d", answer="good", learn_steps=2))
    data = Page(learn_frame_html(after, ["head.weight"], ".")).data()
    before, learned = data["traces"]
    assert not before["learning"]["learned"] and len(learned["learning"]["learned"]["steps"]) == 2
    losses = {"loss", "loss.each", "loss.probabilities", "loss.targets"}
    assert data["tensors"][before["id"]].keys() == losses
    kept = data["tensors"][learned["id"]].keys() - losses
    assert {"head.weight", "head.weight.before", "head.weight.clipped_grad"} < kept
    assert all(id.startswith("head.weight") for id in kept) and [*learned["params"]] == ["head.weight"]


def test_what_is_not_there_or_too_much_is_refused(explanation: Explanation, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"no step 'encoder.9'"):
        step_frame_html(explanation, ["encoder.9"], ".")
    monkeypatch.setattr(step_frame, "MAX_BYTES", 1000)
    with pytest.raises(UsageError, match="bytes, more than"):
        step_frame_html(explanation, ["encoder.0.self.weights"], ".")


def test_an_address_opens_a_step_and_a_head_in_a_frame() -> None:
    assert step_address("encoder.0.self.q", head=1) == "#/step?node=encoder.0.self.q&head=1&frame=step"
