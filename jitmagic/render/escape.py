"""Text that came from the user, made harmless: in a terminal, in a table's column, in HTML.

Names, source lines and messages may hold anything. Whatever a reader could not see as itself (control
characters, ANSI escapes, bidirectional overrides, lone surrogates) is shown as a Python escape such as
`\\x1b` or `\\u202e`, so that it neither acts nor hides.
"""

from __future__ import annotations

import html as _html
import re
import unicodedata

from jitmagic.report import Span

JOINERS = frozenset("\u200c\u200d")
"""Invisible, but part of how some scripts and symbols are written."""

KEPT = JOINERS | {"\u3000"}
TAB = "    "


def visible(text: str) -> str:
    """`text` on one line, with everything that is not a visible character or a space shown as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in KEPT else _escape(c) for c in text)


def _escape(char: str) -> str:
    if char == "\t":
        return TAB
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def one_line(text: str) -> str:
    """`text` with every stretch of white space as one space, and `visible`."""
    return visible(" ".join(text.split()))


def for_html(text: str) -> str:
    """`visible(text)` for use between tags and in quoted attributes."""
    return _html.escape(visible(text), quote=True)


def columns(text: str) -> int:
    """Columns that `text` takes in a terminal: wide East Asian characters two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(_columns(c) for c in text)


def _columns(char: str) -> int:
    if char in JOINERS or unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def fit(text: str, room: int) -> int:
    """How many characters of `text`, from the left, fit into `room` columns."""
    if text.isascii():
        return min(len(text), room)
    used = 0
    for i, char in enumerate(text):
        used += _columns(char)
        if used > room:
            return i
    return len(text)


def shorten(text: str, limit: int) -> str:
    """`text`, or its first `limit` characters and a word about the rest."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]} … ({len(text) - limit:,} characters more)"


def brief(text: str, limit: int = 60) -> str:
    """`text`, or its beginning and end around an ellipsis; for names, of which both ends tell something."""
    if len(text) <= limit:
        return text
    tail = limit // 3
    return f"{text[: limit - tail - 1]}…{text[-tail:]}"


_SLASH = re.compile(r"[/\\]")


def place(span: Span) -> str:
    """`line 3`, `line 3 of cell [2]`."""
    cell = span.cell_name or span.cell
    return f"line {span.line}{other_cell(cell) if cell is not None else ''}"


def other_cell(name: str) -> str:
    r"""Where a line lies, by the name of its code object: ` of cell [3]`, ` of \`helpers.py\``."""
    if match := re.match(r"(?:<ipython-input-|Cell In ?\[)(\d+)", name):
        return f" of cell [{match.group(1)}]"
    if name.startswith("<the "):
        return f" of {name[1:-1]}"
    if "ipykernel_" in name:
        return " of another cell"
    return f" of `{brief(_SLASH.split(name)[-1])}`"
