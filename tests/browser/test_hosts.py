"""The report in other hosts, as far as one can know them: their frames, their themes, what they strip.

VS Code and Colab show an output's HTML in a frame of their own, dark without `color-scheme`; code hosts strip
styles. The colours are those of their default themes.
"""

from __future__ import annotations

import html
import re

import pytest
from nbconvert import HTMLExporter

from jitmagic import render
from tests.browser.look import too_pale
from tests.render import samples
from tests.render.test_nbconvert import converted, keeps_the_meaning

VSCODE = {
    "vscode-light": {"editor-background": "#ffffff", "editor-foreground": "#3b3b3b",
                     "textPreformat-foreground": "#3b3b3b", "textPreformat-background": "#0000001f"},
    "vscode-dark": {"editor-background": "#1f1f1f", "editor-foreground": "#cccccc",
                    "textPreformat-foreground": "#d0d0d0", "textPreformat-background": "#3c3c3c"},
    "vscode-high-contrast": {"editor-background": "#000000", "editor-foreground": "#ffffff",
                             "textPreformat-foreground": "#000000", "textPreformat-background": "#ffffff"},
    "vscode-high-contrast-light": {"editor-background": "#ffffff", "editor-foreground": "#292929",
                                   "textPreformat-foreground": "#ffffff", "textPreformat-background": "#09345f"},
}  # fmt: skip
VSCODE_STYLE = """
  html { background: var(--vscode-editor-background) }
  body { color: var(--vscode-editor-foreground); font: 13px system-ui, sans-serif; margin: 0; padding: 0 20px }
  code { color: var(--vscode-textPreformat-foreground); background: var(--vscode-textPreformat-background) }
"""
CELL = "def f(x, n):\n    for _ in range(n):\n        x = x + 1\n    return x\n"
COLAB = {"light": ("#212121", "#ffffff"), "dark": ("#d5d5d5", "#383838")}


def vscode(kind: str, report: str) -> str:
    """The document of an output in VS Code's webview."""
    variables = ";".join(f"--vscode-{name}:{value}" for name, value in VSCODE[kind].items())
    return (
        f'<!doctype html><html lang="en" style="{variables}"><head><style>{VSCODE_STYLE}</style></head>'
        f'<body class="{kind}" data-vscode-theme-kind="{kind}"><div class="output">{report}</div></body></html>'
    )


def colab(theme: str, report: str) -> str:
    """The document of an output in Colab's frame."""
    words, ground = COLAB[theme]
    return (
        f'<!doctype html><html lang="en" theme="{theme}"><head><style>html[theme={theme}] {{background:{ground}}} '
        f"body {{color:{words};font:14px Roboto,sans-serif;margin:0}} pre {{white-space:pre-wrap}}</style></head>"
        f'<body><div id="output-body"><div class="output_subarea output_html rendered_html">{report}</div></div></body></html>'
    )


def in_a_frame(page, document: str, background: str = "#777777"):
    """The body of this document in a frame that runs no script."""
    page.set_content(
        f'<body style="margin:0;background:{background}"><iframe sandbox="" title="output" '
        f'style="border:0;width:100%;height:890px" srcdoc="{html.escape(document)}"></iframe>'
    )
    body = page.frame_locator("iframe").locator("body")
    body.locator("div").first.wait_for()
    return body


def is_whole(body, report) -> None:
    """Every word of the report's text stands in the page, what is folded included."""
    words = "".join(
        body.evaluate("e => e.textContent + [...e.querySelectorAll('img')].map(i => i.alt)").split()
    )
    missing = [w for w in re.findall(r"\w{3,}", render.text(report)) if w not in words]
    assert missing == []


def unfold(body) -> None:
    """By a click, as no script runs in there."""
    while (folded := body.locator("details:not([open]) > summary >> visible=true")).count():
        folded.first.click()


@pytest.mark.parametrize("kind", VSCODE)
def test_vscode(page, shot, kind):
    for name in ("failing", "good", "shared", "stale", "warnings"):
        report = samples.TYPICAL[name]()
        body = in_a_frame(page, vscode(kind, render.html(report)))
        assert too_pale(body) == []
        is_whole(body, report)
        unfold(body)
        shot(page, f"{kind}-{name}")


@pytest.mark.parametrize("theme", COLAB)
def test_colab(page, shot, theme):
    for name in ("failing", "good", "shared", "stale", "warnings"):
        report = samples.TYPICAL[name]()
        body = in_a_frame(page, colab(theme, render.html(report)))
        assert too_pale(body) == []
        is_whole(body, report)
        unfold(body)
        shot(page, f"colab-{theme}-{name}")


@pytest.mark.parametrize("theme", COLAB)
def test_the_panel_in_colab(page, shot, notebook, theme):
    """Its HTML without the layer: no button that does nothing, and the whole cell to copy by one click."""
    from jitmagic.notebook.session import current
    from jitmagic.panel import Panel

    notebook.ok("%%jit -q --no-time --static n f(jnp.ones(3), 2)\n" + CELL)
    panel = Panel(current().last.checkers["f"])
    panel.rows.roles["n"].value = "dynamic"
    panel.check()
    panel.show_code()
    parts = (panel.verdict, panel.code, panel.details)
    body = in_a_frame(page, colab(theme, "".join(part.value for part in parts)))
    assert body.locator("button >> visible=true").count() == 0
    assert too_pale(body) == []
    unfold(body)
    assert too_pale(body) == []
    text = body.locator("pre", has_text="fori_loop").first
    assert text.evaluate("e => getComputedStyle(e).userSelect") == "all"
    assert text.inner_text().startswith("%%jit -q --no-time")
    shot(page, f"colab-panel-{theme}")


KEPT = {
    "div",
    "span",
    "b",
    "i",
    "code",
    "img",
    "pre",
    "table",
    "tr",
    "th",
    "td",
    "details",
    "summary",
    "ul",
    "li",
}


def stripped(source: str) -> str:
    """What a code host leaves: known tags, no style, no class, no image that is not on the web."""
    bare = re.sub(r'<img src="data:[^"]*" alt="([^"]*)"[^>]*>', r'<img alt="\1">', source)
    bare = re.sub(r"<(\w+)(?! alt)[^>]*>", lambda m: f"<{m[1]}>" if m[1] in KEPT else "", bare)
    assert "style" not in bare.partition("%%jit")[0]
    return bare


@pytest.mark.parametrize("name", samples.TYPICAL)
def test_a_code_host_that_strips_every_style(page, shot, name):
    report = samples.TYPICAL[name]()
    page.set_content(
        f"<body style='font-family:sans-serif'>{stripped(report._repr_mimebundle_()['text/html'])}"
    )
    body = page.locator("body")
    is_whole(body, report)
    assert body.locator("[style], [class], script, style").count() == 0
    assert body.inner_text().count(f"Python {report.versions.python}") == 1  # the text is folded
    unfold(body)
    shot(page, f"stripped-{name}")
    lines = body.inner_text().split("\n")
    if name == "failing":  # what carries the meaning by its place keeps it
        assert (
            "✗ dropout  can't be compiled: line 3 branches on a traced value, and 1 more problem (line 7); tested fix: make train static"
            in [line.replace("\xa0", " ") for line in lines]
        )
        assert "+    return x.sum()" in lines and "3 |     if train:" in lines
        assert body.locator("b", has_text="train").count() == 1


TAG = r"</?(?:details|summary|div|span|table|tbody|th|td|tr|pre|ul|li|b|i|code)\b[^<]*>|<img src=.data|base64|style="


@pytest.mark.parametrize("template", ["lab", "classic"])
def test_nbconvert_sanitized_shows_the_text_and_no_tag(page, shot, template):
    made, _ = HTMLExporter(sanitize_html=True, template_name=template).from_notebook_node(converted())
    assert "<script>alert(1)" not in made and "<img src=x" not in made
    page.route("**/*", lambda route: route.abort())  # nothing from outside
    page.set_content(made, wait_until="commit")
    page.locator("pre", has_text="alert(1)").last.wait_for()
    shot(page, f"nbconvert-sanitized-{template}", full_page=True)
    seen = page.locator("body").inner_text()
    own = {*re.findall(TAG, render.text(samples.hostile())), *re.findall(TAG, samples.hostile().cell.source)}
    assert "<details>" not in own and set(re.findall(TAG, seen)) <= own  # what the user wrote stays text
    keeps_the_meaning(re.sub(r"[\s`]", "", seen))
    columns = page.locator("pre", has_text="error[JM101]").first.evaluate(
        "e => getComputedStyle(e).fontFamily"
    )
    assert columns.endswith("monospace")


@pytest.mark.parametrize("sanitize", [False, True], ids=["whole", "sanitized"])
def test_nbconvert_shows_each_report_once(page, sanitize):
    made, _ = HTMLExporter(sanitize_html=sanitize).from_notebook_node(converted())
    page.route("**/*", lambda route: route.abort())
    page.set_content(made, wait_until="commit")
    page.locator("text=alert(1) >> visible=true").last.wait_for()
    seen = page.locator("body").inner_text().replace("`", "")
    firsts = [render.text(make(), width=400).split("\n")[0] for make in samples.TYPICAL.values()]
    heads = [" ".join(first.replace("`", "").split()) for first in firsts]
    counts = {head: " ".join(seen.split()).count(head) for head in heads}
    assert counts == dict.fromkeys(heads, 1)
