"""The page of a report for everyone: contrast in both themes, and what axe-core finds."""

from __future__ import annotations

import re
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
    page.set_content(whole_page(render.html(getattr(samples, name)()), name))
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


FOCUSED = """() => { const e = document.activeElement, s = getComputedStyle(e);
  return [e.tagName, s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) > 0, e.innerText.split('\\n')[0]]; }"""


def walk(page) -> list[list]:
    """What Tab reaches, in order: the tag, whether the focus is seen, the first line."""
    stops = []
    page.evaluate("() => { document.body.tabIndex = -1; document.body.focus(); }")  # from the top
    while True:
        page.keyboard.press("Tab")
        stop = page.evaluate(FOCUSED)
        if stop[0] == "BODY":
            return stops
        stops.append(stop)
        assert len(stops) < 300


def test_the_keyboard_reaches_and_opens_everything(page):
    page.set_content(whole_page(render.html(samples.everything()), "everything"))
    folded = page.locator("details:not([open]) > summary >> visible=true")
    stops = walk(page)
    assert [s[2] for s in stops if s[0] == "SUMMARY"] == folded.all_inner_texts()
    assert all(seen for _, seen, _ in stops)
    while folded.count():  # Enter and Space both open
        folded.first.focus()
        page.keyboard.press("Enter")
        if folded.count():
            folded.first.focus()
            page.keyboard.press(" ")
    assert page.locator("details:not([open])").count() == 0
    summaries = [s[2] for s in walk(page) if s[0] == "SUMMARY"]
    assert len(summaries) == page.locator("summary").count() >= 30


def test_what_a_screen_reader_reads(page):
    show(page, "failing", "light")
    tree = page.locator("body").aria_snapshot()
    assert "✗ dropout" in tree and "can't be compiled" in tree
    assert "3 | if train:" in " ".join(tree.split())
    show(page, "good", "light")
    tree = page.locator("body").aria_snapshot()
    assert re.search(r"row .*stage time", tree) and 'columnheader "median"' in tree
    assert 'cell "8.1 ms"' in tree
    assert re.search(r'img "[^"]*2\.77 ms[^"]*"', tree)  # the spread of the runs, in words


def test_narrow_zoomed_printed_and_in_forced_colours(page, shot):
    show(page, "everything", "light")
    for width, zoom in ((400, 1), (1200, 1), (1200, 2)):
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate("zoom => { document.body.style.zoom = zoom; }", zoom)
        shot(page, f"everything-{width}-{zoom}", full_page=True)
        assert page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0
    page.evaluate("() => { document.body.style.zoom = 1; }")
    page.emulate_media(forced_colors="active", reduced_motion="reduce")
    shot(page, "everything-forced", full_page=True)
    assert too_pale(page.locator("body")) == []
    page.emulate_media(forced_colors="none", media="print")
    shot(page, "everything-print", full_page=True)
    assert page.locator("pre").first.is_visible()
