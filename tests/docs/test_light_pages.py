"""Large figures of chapters become files in two colours, and code keeps its text."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import light_pages
import torch
from tools import InlineSvg, draw_weights


def output_of(figure: str) -> str:
    """Return a page with one output that is a figure."""
    return f'<p>before</p><div class="output text_html">{figure}</div><p>after</p>'


def test_a_large_figure_is_a_file_for_light_and_one_for_dark_pages(tmp_path: Path) -> None:
    names = ["a", "b", "c", "d", "e"]
    figure = InlineSvg(draw_weights(torch.eye(5), names, names, "T"), "five & more").data
    assert len(figure) > light_pages.LARGE
    page = light_pages.move_figures(output_of(figure), "heads", tmp_path)
    assert page.startswith("<p>before</p>") and page.endswith("</div><p>after</p>") and "<svg" not in page
    assert page.count('alt="five &amp; more"') == 2
    for theme, ink in light_pages.INKS.items():
        assert f'class="figure only-{theme}" src="figures/heads-1-{theme}.svg"' in page
        written = (tmp_path / f"heads-1-{theme}.svg").read_text(encoding="utf-8")
        assert written == figure.strip().replace("currentColor", ink)
        assert "xmlns=" in written and "currentColor" not in written


def test_small_figures_figures_with_links_and_those_for_print_stay(tmp_path: Path) -> None:
    large = '<svg role="img" aria-label="x"><a href="text.html">' + "-" * light_pages.LARGE + "</a></svg>"
    pages = [output_of('<svg role="img" aria-label="x"></svg>'), output_of(large)]
    pages.append(large.replace("a href", "b href"))  # not the output of a cell
    assert [light_pages.move_figures(page, "heads", tmp_path) for page in pages] == pages
    assert list(tmp_path.iterdir()) == []


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
