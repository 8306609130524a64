"""One step alone, in a frame of another page; and where embeddings lie."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import BrowserContext
from step_frame import LEARN_ADDRESS, learn_frame_html, step_address, step_frame_html
from tests.browser.models import ANSWERS, MODELS, TEXTS, subject_of

from glassformer.explain.explanation import explain
from glassformer.explain.page.responses import WHOLE, asset
from glassformer.explain.request import TraceRequest

NAME = "classify, pre-norm"
OUTER = """<!doctype html><title>outer</title><body><iframe src="frame.html{}"></iframe><script>
addEventListener("message", ({{ data, source }}) => {{
  document.body.dataset.height = data.glassformer.height;
  source.postMessage({{ glassformer: {{ theme: "dark" }} }}, "*");
}});
</script></body>"""


def test_a_framed_step_is_alone_checked_and_tells_its_height(
    context: Callable[..., BrowserContext], tmp_path: Path
) -> None:
    page = context().new_page()
    explanation = explain(subject_of(MODELS[NAME]), TEXTS["classify"])
    ids = ["encoder.0.self.scores", "encoder.0.self.weights"]
    (tmp_path / "frame.html").write_text(step_frame_html(explanation, ids, "."), encoding="utf-8")
    for name in (WHOLE, "app.css"):
        (tmp_path / name).write_text(asset(name), encoding="utf-8")
    outer = tmp_path / "outer.html"
    outer.write_text(OUTER.format(step_address(ids[1], head=1)), encoding="utf-8")
    page.goto(outer.as_uri())
    inside = page.frame_locator("iframe")
    inside.locator(f"[data-check='{ids[1]}'][data-state=ok]").wait_for()
    assert inside.locator("header, form, nav, [data-role=answer], .step-list").count() == 0
    inside.locator("html[data-theme=dark]").wait_for()
    assert float(page.get_attribute("body", "data-height") or 0) > 100
    inside.locator("body").press("1")  # no other screen
    assert inside.locator("main").get_attribute("data-screen") == "step"
    inside.get_by_role("button", name="Previous").click()
    inside.locator(f"[data-check='{ids[0]}'][data-state=ok]").wait_for()


def test_a_frame_of_what_was_learned_recomputes_its_loss_and_its_update(
    context: Callable[..., BrowserContext], tmp_path: Path
) -> None:
    page = context().new_page()
    request = TraceRequest(TEXTS["classify"], answer=ANSWERS["classify"], learn_steps=2)
    after = explain(subject_of(MODELS[NAME]), request)
    (tmp_path / "frame.html").write_text(learn_frame_html(after, ["head.weight"], "."), encoding="utf-8")
    for name in (WHOLE, "app.css"):
        (tmp_path / name).write_text(asset(name), encoding="utf-8")
    page.goto(f"{(tmp_path / 'frame.html').as_uri()}{LEARN_ADDRESS}")
    for found in ("[data-role=mean-before]", "[data-role=mean-after]", "[data-check-line='θ after']"):
        page.locator(f"{found}[data-state=ok]").wait_for()
    assert page.locator("[data-state=bad]").count() == 0
    assert page.locator("header, form, nav, [data-role=answer]").count() == 0
    assert page.locator("main :is(a, button.link)").filter(visible=True).count() == 0, "none leads to what is not there"
    page.locator("body").press("2")  # no other screen
    assert page.locator("main").get_attribute("data-screen") == "learn"
    page.locator("[data-role=update] input").last.fill("3")
    page.locator("[data-role=update-lines][data-state=ready]").wait_for()
    page.locator("[data-check-line='θ after'][data-state=ok]").wait_for()
    assert page.locator("[data-state=bad]").count() == 0
