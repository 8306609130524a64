"""The code shown beside a step is the code that computes it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from tests.helpers.for_each import for_each
from torch import nn

import glassformer
from glassformer.config import ModelConfig
from glassformer.explain import trace
from glassformer.explain.capture.sites import SITES, source_line
from glassformer.models import LanguageModel, TextClassifier

PACKAGE = Path(glassformer.__file__).parent
SMALL = ModelConfig(n_layers=1, d_model=8, n_heads=2)


LINES = {key: site.line for key, site in SITES.items() if site.line is not None}


@for_each("kind", LINES)
def test_every_kind_of_step_has_its_line(kind: str) -> None:
    source = source_line(*LINES[kind])
    assert source is not None
    lines = (PACKAGE / source.file).read_text(encoding="utf-8").splitlines()
    assert LINES[kind][1] in lines[source.mark - 1]
    assert source.marked == lines[source.mark - 1].strip()
    shown = source.code.splitlines()
    assert 1 <= len(shown) <= 9
    assert source.line <= source.mark < source.line + len(shown)
    for i, line in enumerate(shown):
        assert line.strip() == lines[source.line - 1 + i].strip()


OF_CLASSIFIER = {
    "embedding.positions": "angle.sin()",
    "encoder.0.self.norm": "F.layer_norm(",
    "encoder.0.self.k_proj": "self.k_proj(source)",
    "encoder.0.self.scores": "products * scale",
    "encoder.0.self.mask": "padding_mask[:, None, None, :]",
    "encoder.0.self.context": "@ v",
    "encoder.0.self.residual": "x + self.dropout(",
    "encoder.0.ff.hidden": "F.relu(",
    "pooled": "n_real",
    "head": "self.head(",
    "logits": "torch.cat([torch.zeros_like",
}
OF_LANGUAGE_MODEL = {
    "decoder.0.self.q": "return x * cos",
    "decoder.0.self.mask": "tril(",
    "decoder.0.ff.w_gate": "self.gate_proj(x)",
    "decoder.0.ff.hidden": "F.silu(",
    "decoder.0.ff.norm": "torch.rsqrt(",
    "decoder.0.ff.residual": 'self.norm(step(self, "residual", x + self.dropout(',
    "logits": "F.linear(x, weight)",
}
"""Steps of which a line of another module, or of another branch of it, could be shown."""
OTHER = replace(SMALL, activation="swiglu", norm="rms", positions="rotary", pre_norm=False)


@for_each(
    "model, expected",
    [(TextClassifier(SMALL, 20, 2, 10), OF_CLASSIFIER), (LanguageModel(OTHER, 20, 10), OF_LANGUAGE_MODEL)],
)
def test_steps_point_at_the_lines_one_would_look_for(model: nn.Module, expected: dict[str, str]) -> None:
    mask = [torch.ones(1, 4, dtype=torch.bool)] if isinstance(model, TextClassifier) else []
    with trace(model) as t:
        model(torch.randint(20, (1, 4)), *mask)
    for id, piece in expected.items():
        source = t[id].source
        assert source is not None and piece in source.marked, (id, source)
