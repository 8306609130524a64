"""Nearest embeddings against every row, and the plane against the singular value decomposition's own promises."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.helpers.for_each import for_each
from tests.helpers.inference import untrained
from torch.nn import functional as F

from glassformer.errors import UsageError
from glassformer.explain.embedding_view import embedding_view, lookups_of, principal_plane
from glassformer.explain.explanation import Explanation, explain
from glassformer.explain.page.saved_page import embedding_views

TEXTS = {"classify": "a b good c, d", "translate": "abc de", "lm": "abc ba"}


def explained(task: str) -> Explanation:
    return explain(untrained(task), TEXTS[task])


@for_each("task", TEXTS)
def test_the_nearest_are_those_of_the_whole_table(task: str) -> None:
    e = explained(task)
    for stream, id in lookups_of(e):
        table = e.subject.model.state_dict()[e.records[id].params["weight"]]
        for row in (0, len(stream) - 1):
            view, token = embedding_view(e, id, row), stream.ids[row]
            cosines = F.normalize(table, dim=-1) @ F.normalize(table[token], dim=0)
            others = [i for i in range(5, e.subject.task.tokenizer.vocab_size) if i != token]
            best = sorted(others, key=lambda i: -cosines[i].item())[:10]
            assert [n["piece"] for n in view["neighbours"]] == e.subject.task.tokenizer.tokens(best)
            np.testing.assert_allclose([n["cosine"] for n in view["neighbours"]], cosines[best], atol=1e-5)
            assert view["n_rows"] == len(others)
            assert [p["kind"] for p in view["points"]][: 1 + len(best)] == ["token"] + ["neighbour"] * len(best)
            pieces = [p["piece"] for p in view["points"]]
            assert len(set(pieces)) == len(pieces) and pieces[0] == view["piece"]


def test_a_plane_keeps_distances_in_two_dimensions_and_says_what_it_loses() -> None:
    flat = torch.cat([torch.randn(7, 2, generator=torch.Generator().manual_seed(0)), torch.zeros(7, 5)], dim=1)
    rotation, _ = torch.linalg.qr(torch.randn(7, 7, generator=torch.Generator().manual_seed(1)))
    points, share = principal_plane(flat @ rotation)
    assert share == pytest.approx(1.0)
    np.testing.assert_allclose(
        torch.cdist(torch.tensor(points).float(), torch.tensor(points).float()), torch.cdist(flat, flat), atol=1e-4
    )
    again, _ = principal_plane(flat @ rotation)
    np.testing.assert_array_equal(points, again)
    _, share = principal_plane(torch.eye(6))
    assert share == pytest.approx(2 / 5)  # five directions, all equal
    for few in (torch.ones(1, 3), torch.ones(4, 3), torch.tensor([[1.0], [2.0]])):
        points, share = principal_plane(few)
        assert points.shape == (len(few), 2) and np.isfinite(points).all() and share == pytest.approx(1.0)


@for_each(("id", "row"), [("encoder.0.self.q", 0), ("nothing", 0), ("embedding.rows", 99), ("embedding.rows", -1)])
def test_what_is_no_lookup_and_no_row_is_refused(id: str, row: int) -> None:
    with pytest.raises(UsageError):
        embedding_view(explained("classify"), id, row)


def test_a_saved_page_has_each_distinct_token_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    e, dropped = explained("translate"), []
    views = embedding_views(e, dropped)
    for stream, id in lookups_of(e):
        assert {key for key in views if key.startswith(f"{id}/")} == {f"{id}/{token}" for token in stream.ids}
    assert dropped == []
    monkeypatch.setattr("glassformer.explain.page.saved_page.MAX_EMBEDDING_VIEWS", 2)
    assert len(embedding_views(e, dropped)) == 2 * len(lookups_of(e))
    assert dropped and "first 2 distinct tokens" in dropped[0]
