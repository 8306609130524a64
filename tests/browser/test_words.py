"""The page of a tagger: a word is chosen from a list, and every screen is about its tag."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.browser.app import App
from tests.browser.models import subject_of

TEXT = "a b good c"


@pytest.mark.parametrize("members", [1, 2])
def test_a_word_is_chosen_and_its_tag_is_recomputed(app: Callable[..., App], members: int) -> None:
    run = subject_of(("tag", {"ensemble_size": members}))
    page = app(run, "decode", text=TEXT)
    options = page.page.locator("[data-role=label] option").all_inner_texts()
    assert [option.split()[:2] for option in options] == [[str(i + 1), word] for i, word in enumerate(TEXT.split())]
    tags = run.predict(TEXT)["tags"]
    assert [option.split()[2] for option in options] == tags
    page.page.select_option("[data-role=label]", f"3 good {tags[2]}")
    page.until("() => document.querySelector('[data-role=label]').value.startsWith('3 ')")
    assert page.page.locator("[data-role=labels]").count() == 0  # thresholds are of several labels
    assert page.check("decision") == "ok"
    page.go("step", node="pooled")
    assert page.check("pooled") == "ok"
