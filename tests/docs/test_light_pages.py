"""Large figures of chapters become files in two colours, and code keeps its text."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import light_pages
import torch
from tools import InlineSvg, draw_weights


def test_a_large_figure_is_a_file_for_light_and_one_for_dark_pages(tmp_path: Path) -> None:
    """Small figures, figures with links and what is no output of a cell stay."""
    output, rest = '<p>before</p><div class="output text_html">{}</div><p>after</p>', "-" * light_pages.LARGE
    link = f'<svg role="img" aria-label="x"><a href="text.html">{rest}</a></svg>'
    for page in (
        output.format('<svg role="img" aria-label="x"></svg>'),
        output.format(link),
        link.replace("a h", "b h"),
    ):
        assert light_pages.move_figures(page, "heads", tmp_path) == page and not any(tmp_path.iterdir())
    figure = InlineSvg(draw_weights(torch.eye(5), [*"abcde"], [*"abcde"], "T"), "five & more").data
    page = light_pages.move_figures(output.format(figure), "heads", tmp_path)
    assert page.startswith("<p>before</p>") and page.endswith("</div><p>after</p>") and "<svg" not in page
    assert page.count('alt="five &amp; more"') == 2
    for theme, ink in light_pages.INKS.items():
        assert f'class="figure only-{theme}" src="figures/heads-1-{theme}.svg"' in page
        written = (tmp_path / f"heads-1-{theme}.svg").read_text(encoding="utf-8")
        assert written == figure.strip().replace("currentColor", ink) and "xmlns=" in written


def test_code_keeps_its_text_and_its_colours(tmp_path: Path) -> None:
    (tmp_path / "book").mkdir()
    page = tmp_path / "book" / "heads.html"
    code = '<span class="kn">import</span><span class="w"> </span><span class="n">math</span><span class="p">;</span>'
    page.write_text(code, encoding="utf-8")
    app = SimpleNamespace(outdir=tmp_path, builder=SimpleNamespace(name="html"))
    light_pages.lighten_pages(app, ValueError("a build that failed"))
    assert page.read_text(encoding="utf-8") == code
    light_pages.lighten_pages(app, None)
    lighter = page.read_text(encoding="utf-8")
    assert lighter == '<span class="kn">import</span> math;'
    assert re.sub("<.*?>", "", lighter) == re.sub("<.*?>", "", code)
