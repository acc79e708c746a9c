"""The page of a report for everyone: contrast in both themes, and what axe-core finds."""

from __future__ import annotations

from importlib import resources

import nbformat
import pytest
from nbconvert import HTMLExporter

from jitmagic import render
from jitmagic.render.html import page as whole_page
from tests.render import samples

SCHEMES = ["light", "dark"]
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
CONTRASTS = """() => {
  const parse = text => { const n = text.match(/[\\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
  const over = (top, under) => [0, 1, 2].map(i => top[i] * top[3] + under[i] * (1 - top[3]));
  const ground = e => { const under = e.parentElement ? ground(e.parentElement) : [255, 255, 255];
                        return over(parse(getComputedStyle(e).backgroundColor), under); };
  const part = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = c => 0.2126 * part(c[0]) + 0.7152 * part(c[1]) + 0.0722 * part(c[2]);
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim()) continue;
    const under = ground(e), top = over(parse(getComputedStyle(e).color), under);
    const [low, high] = [light(top), light(under)].sort((a, b) => a - b);
    found.push([(high + 0.05) / (low + 0.05), walk.currentNode.data.slice(0, 40)]);
  }
  return found;
}"""


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
        ratios = page.evaluate(CONTRASTS)
        assert len(ratios) > 20
        assert [pair for pair in ratios if pair[0] < 4.5] == []


@pytest.mark.parametrize("theme", SCHEMES)
def test_contrast_in_a_page_that_nbconvert_makes(page, theme):
    """Such a page is dark without telling the browser so: the report brings its own ground."""
    output = nbformat.v4.new_output("display_data", data=samples.failing()._repr_mimebundle_())
    cell = nbformat.v4.new_code_cell("pass", outputs=[output])
    made, _ = HTMLExporter(theme=theme).from_notebook_node(nbformat.v4.new_notebook(cells=[cell]))
    page.route("**/*", lambda route: route.abort())  # nothing from outside
    page.set_content(made, wait_until="commit")
    page.locator("text=error[JM101]").first.wait_for()
    page.evaluate("() => document.querySelector('.jp-RenderedHTMLCommon').scrollIntoView()")
    ratios = page.evaluate(
        CONTRASTS.replace("document.body,", "document.querySelector('.jp-RenderedHTMLCommon'),")
    )
    assert len(ratios) > 20
    assert [pair for pair in ratios if pair[0] < 4.5] == []


def test_the_contrast_is_measured(page):
    page.set_content("<body style='background:#fff'><p style='color:#777'>too pale")
    [[ratio, text]] = page.evaluate(CONTRASTS)
    assert text == "too pale" and ratio == pytest.approx(4.48, abs=0.01)


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
