"""HTML that survives notebooks: inline styles, nothing active, readable with every style gone."""

from __future__ import annotations

import html as html_module
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from nbconvert.filters import strings

from jitmagic import render
from jitmagic.render import Report
from jitmagic.render.html import COLORS, EDGES, MIXED, TINTS
from jitmagic.report import CellText, Finding, Fix, Span
from tests.render import samples

EVERY = {
    **samples.TYPICAL,
    "everything": samples.everything,
    "hostile": samples.hostile,
    "huge": samples.huge,
}
TAGS = {"div", "span", "b", "i", "code", "img", "pre", "table", "tr", "th", "td", "details", "summary"}
EXTRA = {
    "th": {"scope"},
    "span": {"class"},
    "pre": {"tabindex", "class"},
    "div": {"tabindex", "class", "data-fix"},
    "img": {"src", "alt"},
}
SERVED = dict.fromkeys(TAGS, None) | {"div": "jm-fix", "span": "jm-place", "pre": "jm-source"}
"""Classes of what the in-editor layer works on."""
PICTURE = "data:image/svg+xml;base64,"
PROPERTIES = {
    "background-color", "border-collapse", "border-left", "color", "cursor", "display", "font-family",
    "font-size", "font-weight", "height", "line-height", "margin", "margin-left", "margin-top", "max-width",
    "overflow-wrap", "overflow-x", "padding", "padding-left", "text-align", "text-decoration",
    "text-decoration-color", "text-decoration-style", "vertical-align", "white-space", "width", "word-break",
}  # fmt: skip
"""What JupyterLab's sanitizer keeps; the two of the wave are dropped there, and the plain line stays."""


class Page(HTMLParser):
    """Tags with their attributes, in order; fails at what is not closed where it should be."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(source)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag != "img":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data}")


@pytest.mark.parametrize("name", EVERY)
def test_only_known_tags_attributes_and_styles(name):
    for tag, attributes in Page(render.html(EVERY[name]())).tags:
        assert tag in TAGS
        assert set(attributes) <= {"style"} | EXTRA.get(tag, set())
        assert attributes.get("src", PICTURE).startswith(PICTURE)
        assert attributes.get("class", SERVED[tag]) == SERVED[tag]
        assert "data-fix" not in attributes or attributes["class"] == "jm-fix"
        for rule in filter(None, (attributes.get("style") or "").split(";")):
            property_, _, value = rule.partition(":")
            assert property_ in PROPERTIES, rule
            assert "url" not in value and "var(" not in value
            assert "light-dark" not in value  # a dark page does not always say that it is dark
            if "color-mix" in value:
                assert "rgb(" in value and "#" not in value  # else an untrusted notebook drops it


def test_what_the_user_wrote_is_text():
    page = Page(render.html(samples.hostile()))
    words = "".join(page.words)
    assert (
        "</pre><script>alert(1)</script>\\x1b[31m\\u202e<img src=x onerror=alert(2)>\"'&\\udc80\\x00`"
        in words
    )
    assert all(c.isprintable() or c == "\n" for c in words.replace("\xa0", " "))


@pytest.mark.parametrize("name", samples.TYPICAL)
def test_a_typical_report_is_small(name):
    assert len(render.html(samples.TYPICAL[name]()).encode()) < 20_000


@pytest.mark.parametrize("name", samples.TYPICAL)
def test_words_of_the_text_are_in_the_html(name):
    report = samples.TYPICAL[name]()
    page = " ".join(" ".join(Page(render.html(report)).words).split()).replace(" ", "")
    for word in re.findall(r"\w{3,}", render.text(report)):
        assert word in page


def test_the_span_is_bold_and_underlined_and_the_finding_stands_under_it():
    source = render.html(samples.failing())
    marked = re.search(r'if <b style="[^"]*text-decoration:underline;[^"]*">train</b>:</pre>', source)
    assert marked
    following = re.sub(r"<[^>]*>", "", source[marked.end() :]).strip()
    assert following.startswith("error[JM101] tracer-bool: the condition of this if")


def test_the_editor_is_told_what_is_the_cells_own_and_which_line_a_finding_is_about():
    source = render.html(samples.failing())
    own = re.findall(r'<pre class="jm-source"[^>]*>(.*?)</pre>', source, re.DOTALL)
    numbered = re.findall(r"^\s*(\d+) \| ", re.sub(r"<[^>]*>", "", "\n".join(own)), re.MULTILINE)
    assert numbered == [str(n) for n in range(1, 10)]
    assert re.findall(r'<span class="jm-place">([^<]*)</span>', source) == ["line 3", "line 7"]
    elsewhere = replace(samples.failing().findings[0], span=Span(3, 0, 3, 1, "x = 1", "/m/helpers.py"))
    assert "jm-place" not in render.html(Report(findings=(elsewhere,)))


def test_every_line_of_the_cell_is_shown_once():
    words = "".join(Page(render.html(samples.failing())).words)
    assert words.count("| def dropout(x, rate, train):") == 1 and words.count("|     if train:") == 1
    assert words.count("return float(x.sum())") == 2  # the line, and what the fix takes away


def test_lines_say_what_they_take_from_outside_and_what_they_cost():
    words = "".join(Page(render.html(samples.stale())).words)
    row = next(line for line in words.split("\n") if "tanh(x @ w + b)" in line)
    assert row.endswith(
        "← w f32[10,3] constant, changed since; b bf16[3] constant; model.layers[0].w dynamic"
    )
    heat = "".join(Page(render.html(samples.warnings())).words)
    assert "u = u + 0.1 * (jnp.roll(u, 1) - u)   ← 100 % of the flop" in heat


def test_pictures_are_images_that_an_untrusted_notebook_keeps():
    page = Page(render.html(samples.good()))
    pictures = [attributes for tag, attributes in page.tags if tag == "img"]
    assert len(pictures) == 2 and all(p["src"].startswith(PICTURE) and p["alt"] for p in pictures)
    assert "svg" not in {tag for tag, _ in page.tags}


def test_a_long_line_can_be_scrolled_by_the_keyboard():
    long = render.html(samples.good())
    assert re.search(r'<pre tabindex="0"[^>]*>(?:(?!</pre>).)*jnp.where', long, re.S)
    short = render.html(
        Report((), (Finding("JM101", "k", "error", "f", "m", Span(1, 0, 1, 1, "")),), cell=CellText("f(x)"))
    )
    assert '<pre class="jm-source" style' in short and "tabindex" not in short


def test_beyond_the_first_glance_all_is_folded():
    page = render.html(samples.good())
    glance = re.sub(r"<details.*?</details>", "", page, flags=re.S)
    assert "faster than without jit" in glance and "<table" not in glance and "JM202" not in glance
    failing = re.sub(r"<details.*?</details>", "", render.html(samples.failing()), flags=re.S)
    assert "JM101" in failing and "JM103" in failing and "<pre" in failing


def test_a_cell_without_findings_is_folded_away():
    source = render.html(samples.good())
    glance = re.sub(r"<details.*?</details>", "", source, flags=re.S)
    assert "the cell, line by line" in source and "jnp.where" not in glance


def test_readable_after_nbconverts_sanitizer():
    for name, make in samples.TYPICAL.items():
        clean = strings.clean_html(render.html(make()))
        plain = html_module.unescape(re.sub(r"<[^>]*>", "", clean))
        for word in re.findall(r"\w{3,}", render.text(make())):
            assert word in plain, name
    clean = strings.clean_html(render.html(samples.failing()))
    assert "style=" not in re.sub(r"&lt;.*?&gt;", "", clean)
    assert "<b>train</b>" in clean
    assert "<script" not in strings.clean_html(render.html(samples.hostile()))


LIGHT, DARK = (255, 255, 255), (0x11, 0x11, 0x11)
PAGES = {
    "JupyterLab, light": ("#212121", "#ffffff"),
    "JupyterLab, dark": ("#ffffff", "#111111"),
    "VS Code, light": ("#3b3b3b", "#ffffff"),
    "VS Code, dark": ("#cccccc", "#1f1f1f"),
    "VS Code, high contrast": ("#ffffff", "#000000"),
    "Colab, dark": ("#d5d5d5", "#383838"),
}
"""Words and ground."""


def blend(tint, background):
    *color, alpha = tint
    return tuple(alpha * c + (1 - alpha) * b for c, b in zip(color, background, strict=True))


def luminance(color):
    parts = (c / 255 for c in color)
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    """The contrast ratio of WCAG 2.2."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def parse(color):
    return tuple(int(color[i : i + 2], 16) for i in (1, 3, 5))


def backgrounds(base, *tones):
    """The page and a listing on it, and the tints of these tones on both."""
    listing = blend(TINTS["plain"], base)
    return [base, listing, *(blend(TINTS[t], ground) for t in tones for ground in (base, listing))]


TO_LMS = ((0.4122214708, 0.5363325363, 0.0514459929), (0.2119034982, 0.6806995451, 0.1073969566),
          (0.0883024619, 0.2817188376, 0.6299787005))  # fmt: skip
FROM_LMS = ((4.0767416621, -3.3077115913, 0.2309699292), (-1.2684380046, 2.6097574011, -0.3413193965),
            (-0.0041960863, -0.7034186147, 1.7076147010))  # fmt: skip


def mixed(tone, words):
    """`color-mix(in oklab, ...)`: oklab is linear in the cube roots of LMS, so these can be mixed instead."""

    def cube_roots(color):
        linear = [
            c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (c / 255 for c in color)
        ]
        return [sum(m * c for m, c in zip(row, linear, strict=True)) ** (1 / 3) for row in TO_LMS]

    share = MIXED / 100
    pairs = zip(cube_roots(COLORS[tone]), cube_roots(words), strict=True)
    lms = [(share * one + (1 - share) * other) ** 3 for one, other in pairs]
    linear = [min(max(sum(m * c for m, c in zip(row, lms, strict=True)), 0), 1) for row in FROM_LMS]
    return [255 * (12.92 * c if c <= 0.0031308 else 1.055 * c ** (1 / 2.4) - 0.055) for c in linear]


def test_contrast_reference_values():
    assert contrast(LIGHT, (0, 0, 0)) == pytest.approx(21)
    assert contrast(LIGHT, (0x76, 0x76, 0x76)) == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("tone", COLORS)
def test_text_contrasts_on_its_backgrounds_in_every_theme(tone, page):
    words, ground = map(parse, PAGES[page])
    over = [tone] if tone in TINTS else []
    assert min(contrast(mixed(tone, words), g) for g in backgrounds(ground, *over)) >= 4.5


def test_a_colour_is_still_one():
    """Mixed with black or white words it is not just grey."""
    for words in ((0x21, 0x21, 0x21), (255, 255, 255)):
        for tone in COLORS:
            shade = mixed(tone, words)
            assert (max(shade) - min(shade) > 40) is (tone != "dim")


@pytest.mark.parametrize("page", PAGES)
def test_the_themes_own_text_contrasts_on_every_tint(page):
    words, ground = map(parse, PAGES[page])
    assert min(contrast(words, g) for g in backgrounds(ground, *TINTS)) >= 4.5


@pytest.mark.parametrize("tone", EDGES)
def test_bars_and_borders_contrast_in_both_themes(tone):
    assert min(contrast(parse(EDGES[tone]), ground) for ground in (LIGHT, DARK)) >= 3


def test_a_note_on_constants_has_a_button_for_each_and_the_text_none():
    fixes = [Fix(f"make `{n}` dynamic", "safe", True, "the cell re-run", dyn=(n,), magic=f"%%jit --dyn {n}") for n in "wb"]  # fmt: skip
    note = Finding("JM201", "captured-constant", "note", "f", "`w` and `b` are constant", culprits=("w", "b"), fixes=tuple(fixes))  # fmt: skip
    report = Report(findings=(note,), cell=CellText("%%jit\nf(x)", magic="%%jit"))
    source = render.html(report)
    assert re.findall(r'data-fix="([^"]*)"', source) == ["0.0", "0.1"]
    words = "".join(Page(source).words)
    assert (
        "to change it later: make w dynamic" in words
        and "+%%jit --dyn w" in words
        and "1 note, no action needed" in words
    )
    assert "make" not in render.text(report) and "--dyn" not in render.text(report)
