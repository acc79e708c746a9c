"""The tree of parts as an HTML fragment that survives notebooks, trusted or not.

Inline styles only, and of them those that JupyterLab's sanitizer keeps; no scripts, ids, outside links.
Colours are mixed from the page's own text colour, over translucent tints, and never stand alone: with every
style gone the signs, words and bold type still say all. What lies beyond the first glance is folded.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence

from jitmagic.render.escape import columns, for_html, one_line
from jitmagic.render.parts import (
    Bar,
    Buttons,
    Cell,
    Diff,
    Document,
    Inline,
    Listing,
    Para,
    Part,
    Phrase,
    Picture,
    Row,
    Section,
    Table,
    Tone,
    VerdictLine,
    crop,
    segments,
    shown,
)
from jitmagic.render.strips import Strip, as_html

COLORS: dict[Tone, tuple[int, int, int]] = {
    "error": (255, 48, 32),
    "warning": (212, 142, 0),
    "note": (70, 138, 255),
    "ok": (0, 168, 56),
    "dim": (128, 128, 128),
}
"""What the page's own text colour is mixed with, so that words stand out from whatever ground that one stands out
from: a dark page does not always say that it is dark (`color-scheme`), but its text is light."""

MIXED = 45
"""Percent of the tone in the mixture."""

TINTS: dict[Tone, tuple[int, int, int, float]] = {
    "error": (217, 48, 37, 0.16),
    "warning": (227, 160, 8, 0.12),
    "note": (66, 133, 244, 0.12),
    "ok": (30, 142, 62, 0.14),
    "plain": (127, 127, 127, 0.1),
}
"""Translucent backgrounds: red, green, blue and opacity."""

EDGES: dict[Tone, str] = {"error": "#d9534f", "warning": "#b8860b", "note": "#5b8def", "ok": "#2e9e57"}
"""Borders, and bars, in both themes."""

LINE = 160
"""Columns of a source line that are shown."""

BAR = 96
"""Pixels of a full bar."""

EMPTY = "<span></span>"
"""An empty line: a blank one would end the HTML where the report stands in Markdown."""

GUTTER = 24
"""Pixels of a full bar before a line."""

HIDING = "jp-LastModified-hidden delete-button"
"""Classes that nbconvert's pages (`lab`, `classic`) hide, unless a style shows the element."""

WIDE = 40
"""Columns of code that fit into a narrow window."""

ROW = '<tr style="background-color:transparent">'
"""The lab tints every other row by itself."""

LABEL = "font-family:system-ui,sans-serif;font-size:smaller"
FOOT = "font-size:smaller;margin-top:8px"
PRE = "color:inherit;font-family:monospace;text-align:left;line-height:1.4;white-space:pre;margin:4px 0;padding:4px 8px"


def render(document: Document) -> str:
    """`document` as one `div`."""
    verdicts = "\n".join(map(_verdict, document.verdicts))
    parts = _parts(document.parts)
    foot = _block(_inline(document.foot), FOOT) if document.foot else ""
    style = "max-width:1000px;line-height:1.45;text-align:left;overflow-wrap:break-word"
    return _block("\n".join(filter(None, ("", verdicts, parts, foot, ""))), style)


def with_text(fragment: str, text: str) -> str:
    """`fragment`, and `text` in its place where a sanitizer shows tags as text.

    nbconvert's does that with `details` and `table`. It takes styles away and leaves classes, which then hide the
    fragment; elsewhere a style hides the text. Where both are taken away, the text is folded. An item of the list ends
    where the next one begins, but not for who knows `details`.
    """
    fold = f'<li class="{HIDING}"><details><summary>as plain text</summary>\n'
    lines = _pre([for_html(line) for line in text.split("\n")])
    items = f'{fold}<li class="jp-RenderedText">{lines}</li><li class="{HIDING}"></details></li>'
    return (
        f'<div class="{HIDING}" style="display:block">{fragment}</div>\n'
        f'<ul type="none" style="display:none">{items}</ul>'
    )


def page(fragment: str, title: str) -> str:
    """`fragment` as a whole document, for a file."""
    return (
        '<!doctype html>\n<html lang="en" style="color-scheme:light dark">\n<head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{for_html(one_line(title))}</title></head>\n"
        '<body style="font-family:system-ui,sans-serif;font-size:14px;margin:24px;'
        f'color:light-dark(#111111,#eeeeee);background-color:light-dark(#ffffff,#111111)">\n{fragment}\n</body>\n</html>\n'
    )


def color(tone: Tone) -> str:
    """The style of words in this tone. JupyterLab's sanitizer lets `color-mix` through where it holds an `rgb(`."""
    red, green, blue = COLORS[tone]
    return f"color:color-mix(in oklab,rgb({red},{green},{blue}) {MIXED}%,currentcolor)"


def _tint(tone: Tone) -> str:
    return "background-color:rgba({}, {}, {}, {})".format(*TINTS[tone])


def _block(content: str, style: str = "") -> str:
    return f'<div style="{style}">{content}</div>' if style else f"<div>{content}</div>"


def _verdict(verdict: VerdictLine) -> str:
    tone: Tone = verdict.tone if verdict.tone in TINTS else "plain"
    head = f'<b style="{color(tone)}">{for_html(verdict.sign)} {for_html(one_line(verdict.name))}</b>'
    style = f"border-left:4px solid {EDGES[tone]};{_tint(tone)};padding:4px 10px;margin:2px 0"
    return _block(f"{head} &nbsp;{_inline(verdict.runs)}", style)


def _parts(parts: Sequence[Part]) -> str:
    return "\n".join(filter(None, map(_part, parts)))


def _part(part: Part) -> str:
    match part:
        case Para():
            label = f"<b>{for_html(part.label)}:</b> " if part.label not in ("", "-") else ""
            dash = "– " if part.label == "-" else ""
            return _block(label + dash + _inline(part.runs), "margin:2px 0")
        case Section():
            return _section(part)
        case Listing():
            return _listing(part)
        case Diff():
            return _diff(part)
        case Table():
            return _table(part)
        case Picture():
            return _picture(part)
        case Buttons():
            return f'<div class="jm-fix" data-fix="{part.finding}.{part.fix}"></div>'


def _section(part: Section) -> str:
    if part.medium == "text":
        return ""
    title = _inline(part.title)
    if not title:
        return _parts(part.parts)
    inner = _parts(part.parts)
    edge = f"border-left:3px solid {EDGES[part.tone]};padding-left:9px;" if part.tone in EDGES else ""
    if part.fold:
        summary = f'<summary style="cursor:pointer">{title}</summary>'
        margin = "4px 0 4px 8px" if edge else "4px 0"
        return (
            f'<details style="{edge}margin:{margin}">{summary}\n{_block(inner, "margin-left:14px")}</details>'
        )
    if edge:
        return _block(f"{_block(title)}\n{inner}", f"{edge}margin:8px 0 10px 8px")
    return _block(f"{_block(title)}\n{_block(inner, 'margin-left:14px')}", "margin:4px 0")


def _inline(inline: Inline) -> str:
    return "".join(map(_run, inline))


def _run(run: Phrase) -> str:
    text = one_line(run.text)
    head = " " if run.text[:1].isspace() else ""
    tail = " " if text and run.text[-1:].isspace() else ""
    words = for_html(text)
    match run.tone:
        case "plain":
            return head + words + tail
        case "strong":
            words = f"<b>{words}</b>"
        case "code":
            words = f'<code style="{_tint("plain")};color:inherit;padding:0 3px">{words}</code>'
        case "dim":
            words = f'<span style="{color("dim")}">{words}</span>'
        case "place":
            words = f'<span class="jm-place">{words}</span>'
        case tone:
            words = f'<b style="{color(tone)}">{words}</b>'
    return head + words + tail


def _pre(lines: list[str], width: int = 0, *, own: bool = False, beyond: str = "overflow-x:auto") -> str:
    """Lines that keep their columns; where they may be wider than the page, scrolled by the keyboard too."""
    focus = ' class="jm-source"' if own else ""
    focus += ' tabindex="0"' if width > WIDE else ""
    text = "\n".join(line if line.strip() else EMPTY for line in lines)
    return f'<pre{focus} style="{_tint("plain")};{PRE};{beyond}">{text}</pre>'


def to_copy(text: str) -> str:
    """`text` as it is, all of it selected by one click."""
    style = f"{_tint('plain')};{PRE};overflow-x:auto;user-select:all"
    return f'<pre tabindex="0" style="{style}">{html.escape(text)}</pre>'


def _listing(part: Listing) -> str:
    rows = [crop(shown(row), LINE) for row in part.rows]
    width = max((columns(row.text) + columns(row.label) for row in rows), default=0)
    if not part.gutter:
        return _pre([for_html(row.text) for row in rows], width)
    digits = max((len(str(row.number)) for row in rows if row.number is not None), default=1)
    bars = part.bars or any(row.share is not None for row in rows)
    return _pre([_row(row, max(digits, part.digits), bars) for row in rows], width, own=part.own)


def _row(row: Row, digits: int, bars: bool) -> str:
    number = "" if row.number is None else str(row.number)
    share = _share(row.share or 0.0) if bars else ""
    gutter = f'<span style="{color("dim")}">{number:>{digits}} | </span>'
    text = "".join(_marked(piece, tone) for piece, tone in segments(row))
    label = f'   <i style="{color("dim")};{LABEL}">← {for_html(one_line(row.label))}</i>' if row.label else ""
    if row.around:
        text = f'<span style="{color("dim")}">{text}</span>'
    return share + gutter + text + label


def _share(share: float) -> str:
    """A bar before the line's number; the share stands behind the line in words."""
    width = max(round(share * GUTTER), 1 if share > 0 else 0)
    inner = f"display:inline-block;height:9px;width:{width}px;background-color:{EDGES['warning']}"
    outer = f"display:inline-block;width:{GUTTER + 6}px"
    return f'<span style="{outer}"><span style="{inner}"></span></span>'


def _marked(text: str, tone: Tone | None) -> str:
    """A marked stretch: tinted, bold and underlined; an untrusted notebook drops only the wave."""
    if tone is None:
        return for_html(text)
    wave = f"text-decoration:underline;text-decoration-style:wavy;text-decoration-color:{EDGES[tone]}"
    return f'<b style="{_tint(tone)};{wave}">{for_html(text)}</b>'


def _diff(part: Diff) -> str:
    """Long lines go on in the next one: what is applied is shown whole."""
    return _pre(
        [_diff_line(line) for line in part.lines],
        beyond="white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere",
    )


def _diff_line(line: str) -> str:
    text = for_html(shown(Row(None, line)).text)
    tones: dict[str, Tone] = {"+": "ok", "-": "error"}
    tone = tones.get(line[:1])
    return f'<span style="{color(tone)};{_tint(tone)}">{text}</span>' if tone else text


def _picture(part: Picture) -> str:
    """As an image, so that nothing in it is part of the page; the words are what is read out."""
    data = base64.b64encode(part.svg.encode("utf-8", "backslashreplace")).decode()
    style = "max-width:100%;height:auto;margin:4px 0"
    words = for_html(one_line(part.words))
    return f'<img src="data:image/svg+xml;base64,{data}" alt="{words}" style="{style}">'


def _table(part: Table) -> str:
    used = [i for i in range(len(part.head)) if any(_filled(row[i]) for row in part.rows)]
    head = "".join(_head_cell(part.head[i], i in part.right) for i in used)
    rows = "\n".join(
        ROW + "".join(_table_cell(row[i], i in part.right) for i in used) + "</tr>" for row in part.rows
    )
    style = "border-collapse:collapse;margin:4px 0"
    table = f'<table style="{style}">\n{ROW}{head}</tr>\n{rows}\n</table>'
    if sum(_columns(part, i) for i in used) <= WIDE:
        return table
    return f'<div tabindex="0" style="overflow-x:auto">{table}</div>'


def _columns(part: Table, index: int) -> int:
    """Width of a column in characters, with the room before the next one."""
    cells = [row[index] for row in part.rows]
    widths = [columns("".join(run.text for run in cell)) if isinstance(cell, tuple) else 12 for cell in cells]
    return 2 + max([columns(part.head[index]), *widths])


def _filled(cell: Cell) -> bool:
    return isinstance(cell, (Bar, Strip)) or any(run.text for run in cell)


def _cell_style(right: bool) -> str:
    number = "text-align:right;white-space:nowrap" if right else "text-align:left"
    return f"{number};padding:1px 10px 1px 0"


def _head_cell(name: str, right: bool) -> str:
    if not name:
        return "<td></td>"
    style = f"{_cell_style(right)};{color('dim')};font-weight:normal"
    return f'<th scope="col" style="{style}">{for_html(name)}</th>'


def _table_cell(cell: Cell, right: bool) -> str:
    match cell:
        case Bar():
            content = _bar(cell)
        case Strip():
            content = as_html(cell)
        case _:
            content = _inline(cell)
    return f'<td style="{_cell_style(right)}">{content}</td>'


def _bar(bar: Bar) -> str:
    width = max(round(min(max(bar.share, 0.0), 1.0) * BAR), 1 if bar.share > 0 else 0)
    style = f"display:inline-block;height:8px;width:{width}px;background-color:{EDGES[bar.tone]}"
    return f'<span style="{style}"></span>'
