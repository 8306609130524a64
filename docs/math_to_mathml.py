"""A renderer of formulas as MathML, which browsers draw without scripts or fonts from elsewhere.

docutils has the converter from LaTeX; Sphinx takes renderers through `add_html_math_renderer`.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml


def add_renderer(app: Any) -> None:
    """Register the renderer, and select it."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    app.config.html_math_renderer = "mathml"


def visit_inline(translator: Any, node: nodes.math) -> None:
    """Write a formula in a line."""
    translator.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def visit_block(translator: Any, node: nodes.math_block) -> None:
    """Write a formula on lines of its own, in a box that scrolls if it is too wide."""
    formula = tex2mathml(node.astext(), as_block=True)
    translator.body.append(f'<div class="math-wrapper" tabindex="0">{formula}</div>')
    raise nodes.SkipNode
