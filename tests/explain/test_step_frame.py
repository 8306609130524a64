"""A page of some steps: it holds them, what they are computed from, and nothing more."""

from __future__ import annotations

import pytest
import step_frame
from step_frame import learn_frame_html, step_address, step_frame_html
from tests.browser.models import subject_of
from tests.explain.test_report import Page

from glassformer.errors import UsageError
from glassformer.explain.explanation import TraceRequest, explain

TEXT = "a b good c, d"
STEPS = ["encoder.0.self.q_proj", "encoder.0.self.weights"]


def test_it_holds_the_steps_their_inputs_and_their_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    explanation = explain(subject_of(("classify", {})), TEXT)
    html = step_frame_html(explanation, STEPS[::-1], "../assets")
    data = Page(html).data()
    [trace] = data["traces"]
    assert [node["id"] for node in trace["nodes"]] == STEPS
    inputs = {id for node in trace["nodes"] for id in node["inputs"]}
    assert data["tensors"][trace["id"]].keys() == {*STEPS, *inputs, *trace["params"]}
    assert 'src="../assets/whole.js"' in html and 'href="../assets/app.css"' in html
    assert step_address("encoder.0.self.q", head=1) == "#/step?node=encoder.0.self.q&head=1&frame=step"
    with pytest.raises(UsageError, match=r"no step 'encoder.9'"):
        step_frame_html(explanation, ["encoder.9"], ".")
    monkeypatch.setattr(step_frame, "MAX_BYTES", 1000)
    with pytest.raises(UsageError, match="bytes, more than"):
        step_frame_html(explanation, STEPS, ".")


def test_what_was_learned_holds_the_loss_before_and_after_and_one_update() -> None:
    after = explain(subject_of(("classify", {})), TraceRequest(TEXT, answer="good", learn_steps=2))
    data = Page(learn_frame_html(after, ["head.weight"], ".")).data()
    before, learned = data["traces"]
    assert not before["learning"]["learned"] and len(learned["learning"]["learned"]["steps"]) == 2
    losses = {"loss", "loss.each", "loss.probabilities", "loss.targets"}
    assert data["tensors"][before["id"]].keys() == losses
    kept = data["tensors"][learned["id"]].keys() - losses
    assert {"head.weight", "head.weight.before", "head.weight.clipped_grad"} < kept
    assert all(id.startswith("head.weight") for id in kept) and [*learned["params"]] == ["head.weight"]
