"""The page of a report for everyone: contrast in both themes, and what axe-core finds."""

from __future__ import annotations

from importlib import resources

import nbformat
import pytest
from nbconvert import HTMLExporter

from jitmagic import render
from jitmagic.render.html import page as whole_page
from tests.browser.look import contrasts, too_pale
from tests.render import samples

SCHEMES = ["light", "dark"]
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


def show(page, name: str, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_content(whole_page(render.html(samples.TYPICAL[name]()), name))
    page.evaluate("() => document.querySelectorAll('details').forEach(d => { d.open = true; })")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_word_contrasts_with_what_is_drawn_under_it(page, shot, scheme):
    for name in samples.TYPICAL:
        show(page, name, scheme)
        shot(page, f"page-{name}-{scheme}", full_page=True)
        if name == "shared" and scheme == "light":
            shot(page.locator("details", has=page.locator("img")), "docs-shared")
        assert too_pale(page.locator("body")) == []


@pytest.mark.parametrize("theme", SCHEMES)
def test_contrast_in_a_page_that_nbconvert_makes(page, theme):
    """Such a page is dark without telling the browser so: the report goes by the colour of its words."""
    output = nbformat.v4.new_output("display_data", data=samples.failing()._repr_mimebundle_())
    cell = nbformat.v4.new_code_cell("pass", outputs=[output])
    made, _ = HTMLExporter(theme=theme).from_notebook_node(nbformat.v4.new_notebook(cells=[cell]))
    page.route("**/*", lambda route: route.abort())  # nothing from outside
    page.set_content(made, wait_until="commit")
    page.locator("text=error[JM101]").first.wait_for()
    assert too_pale(page.locator(".jp-RenderedHTMLCommon")) == []


def test_the_contrast_is_measured(page):
    page.set_content("<body style='background:#fff'><p style='color:#777'>too pale")
    [[ratio, text]] = contrasts(page.locator("body"))
    assert text == "too pale" and ratio == pytest.approx(4.48, abs=0.01)
    page.set_content("<body style='background:#fff'><p style='color:color-mix(in srgb,#777 60%,#fff)'>mixed")
    [[ratio, _]] = contrasts(page.locator("body"))
    assert ratio == pytest.approx(2.24, abs=0.05)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", [1200, 420])
def test_axe_finds_no_violation(page, scheme, width):
    pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
    axe = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    page.set_viewport_size({"width": width, "height": 900})
    for name in samples.TYPICAL:
        show(page, name, scheme)
        page.add_script_tag(content=axe)
        found = page.evaluate("tags => axe.run(document, {runOnly: {type: 'tag', values: tags}})", TAGS)
        assert len(found["passes"]) > 5
        assert [(v["id"], v["nodes"][0]["html"]) for v in found["violations"]] == []
