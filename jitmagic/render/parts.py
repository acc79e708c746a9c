"""What a report is made of: one tree of parts, rendered to text and to HTML.

The parts say what something is (a listing, a table, something to fold away), never how it looks. Their
texts are the user's own, raw; making them harmless is the business of each renderer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from jitmagic.render.escape import columns, fit, visible
from jitmagic.render.strips import Strip

Tone = Literal["plain", "strong", "dim", "code", "place", "ok", "error", "warning", "note"]
Medium = Literal["both", "text", "html"]
SEVERITIES: tuple[Tone, ...] = ("error", "warning", "note")
"""The worst first."""

BEFORE = 16
"""Characters before the first mark in a line that is cut."""


@dataclass(frozen=True)
class Phrase:
    """A run of text in one tone; `place` names lines of the report's own cell. Line breaks in it count as spaces."""

    text: str
    tone: Tone = "plain"


Inline = tuple[Phrase, ...]


@dataclass(frozen=True)
class Para:
    """A paragraph, wrapped by words, with a label such as `help` before it."""

    runs: Inline
    label: str = ""


@dataclass(frozen=True)
class Picture:
    """An SVG drawing with the words that say the same; where no picture can be shown the words stand alone."""

    svg: str
    words: str


@dataclass(frozen=True)
class Mark:
    """Characters `start` to `end` (exclusive) of a row, from 0."""

    start: int
    end: int
    tone: Tone


@dataclass(frozen=True)
class Row:
    """One source line; without a number, a remark between lines. `around`: shown only to place the others."""

    number: int | None
    text: str
    marks: tuple[Mark, ...] = ()
    label: str = ""
    """Words behind the line, in the tone of its marks."""
    around: bool = False
    share: float | None = None
    """The line's share of the cost, from 0 to 1."""


@dataclass(frozen=True)
class Listing:
    """Source lines with their numbers, or, with `gutter` off, any text that must keep its columns.

    For listings that follow each other: the least width of their numbers, and whether room is kept for bars. `own`:
    lines of the report's own cell, which an editor hides where it has marked the cell itself."""

    rows: tuple[Row, ...]
    gutter: bool = True
    digits: int = 1
    bars: bool = False
    own: bool = False


@dataclass(frozen=True)
class Diff:
    """Lines of a unified diff, each with its sign, without file headers."""

    lines: tuple[str, ...]


@dataclass(frozen=True)
class Bar:
    """A share of the largest, from 0 to 1; the number itself always stands beside it."""

    share: float
    tone: Tone = "note"


Cell = Inline | Bar | Strip


@dataclass(frozen=True)
class Table:
    """Rows of cells under the column names `head`; `right` names the columns that hold numbers, `spare` those that a
    narrow terminal goes without, in this order."""

    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    right: frozenset[int] = frozenset()
    spare: tuple[int, ...] = ()


@dataclass(frozen=True)
class Section:
    """Parts under a title, or, without one, just parts that belong together. `fold`: beyond the first glance.
    `medium`: where it is shown; what only one of them shows, the other says in its own way."""

    title: Inline
    parts: tuple[Part, ...] = ()
    fold: bool = False
    tone: Tone = "plain"
    medium: Medium = "both"


@dataclass(frozen=True)
class Buttons:
    """Where the editor may put buttons for a fix: its finding and its number in the report's data, from 0."""

    finding: int
    fix: int


Part = Para | Listing | Diff | Table | Picture | Section | Buttons


@dataclass(frozen=True)
class VerdictLine:
    """The one line that says how a function fares: a sign, its name, the words."""

    sign: str
    tone: Tone
    name: str
    runs: Inline


@dataclass(frozen=True)
class Document:
    """A whole report."""

    verdicts: tuple[VerdictLine, ...]
    parts: tuple[Part, ...]
    foot: Inline = ()


def runs(text: str, tone: Tone = "plain") -> Inline:
    """`text` as runs: what stands between two backticks is code."""
    pieces = re.split(r"`([^`\n]+)`", text)
    return tuple(Phrase(piece, "code" if i % 2 else tone) for i, piece in enumerate(pieces) if piece)


def worst(tones: set[Tone]) -> Tone:
    """The severest of `tones`; `ok` where there is none."""
    return next((t for t in SEVERITIES if t in tones), "ok")


def shown(row: Row) -> Row:
    """`row` with its text made visible and its marks moved along with the characters."""
    if visible(row.text) == row.text:
        return row
    starts = [0]
    for char in row.text:
        starts.append(starts[-1] + len(visible(char)))
    last = len(row.text)
    marks = tuple(Mark(starts[min(m.start, last)], starts[min(m.end, last)], m.tone) for m in row.marks)
    return replace(row, text=visible(row.text), marks=marks)


def crop(row: Row, room: int) -> Row:
    """`row`, already `shown`, cut to `room` columns around its first mark."""
    if columns(row.text) <= room:
        return row
    first = min((m.start for m in row.marks), default=0)
    start = first - BEFORE if columns(row.text[:first]) + BEFORE > room else 0
    start = max(start, 0)
    head = "…" if start else ""
    count = fit(row.text[start:], room - len(head) - 1)
    tail = "…" if start + count < len(row.text) else ""
    shift = len(head) - start
    last = len(head) + count

    def moved(place: int) -> int:
        return min(max(place + shift, 0), last)

    marks = (Mark(moved(m.start), moved(m.end), m.tone) for m in row.marks)
    text = head + row.text[start : start + count] + tail
    return replace(row, text=text, marks=tuple(m for m in marks if m.start < m.end))


def segments(row: Row) -> list[tuple[str, Tone | None]]:
    """The text of `row` in stretches of one tone; where marks overlap, the severest shows."""
    tones: list[Tone | None] = [None] * len(row.text)
    for mark in sorted(row.marks, key=lambda m: -_rank(m.tone)):
        end = min(mark.end, len(tones))
        tones[mark.start : end] = [mark.tone] * max(end - mark.start, 0)
    pairs = groupby(zip(row.text, tones, strict=True), key=lambda pair: pair[1])
    return [("".join(char for char, _ in group), tone) for tone, group in pairs]


def _rank(tone: Tone) -> int:
    return SEVERITIES.index(tone) if tone in SEVERITIES else len(SEVERITIES)
