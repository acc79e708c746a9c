"""Source lines as rows: where a span lies in the text that the user sees."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from jitmagic.render.parts import Mark, Row, Tone
from jitmagic.report import Finding, Span

CONTEXT = 2
"""Lines shown before and after a marked one."""

WHOLE = 24
"""A cell of at most so many lines is shown whole."""

MOST = 200
"""Lines of a cell that are shown."""

SPAN_LINES = 6
"""Lines of one span that are shown."""


def split(source: str) -> tuple[str, ...]:
    """The lines of a cell as Python counts them, without their ends."""
    return tuple(line.removesuffix("\r") for line in source.split("\n")) if source else ()


def in_cell(span: Span, lines: Sequence[str]) -> bool:
    """Whether the span's line is in `lines`, and still the line that was meant."""
    if span.cell is not None or not 1 <= span.line <= len(lines):
        return False
    return not span.source or lines[span.line - 1].strip() == span.source.strip()


def marked(span: Span, lines: Sequence[str], tone: Tone) -> tuple[Row, ...]:
    """The lines of `span` with the exact stretch marked, from the cell where they stand in it."""
    if not in_cell(span, lines):
        return (Row(span.line, span.source, (_guess(span, tone),)),) if span.source else ()
    end_line = min(max(span.end_line, span.line), len(lines))
    last = min(end_line, span.line + SPAN_LINES - 1)
    rows = [Row(n, lines[n - 1], (_mark(span, n, lines[n - 1], tone),)) for n in range(span.line, last + 1)]
    if last < end_line:
        rows.append(Row(None, left_out(end_line - last)))
    return tuple(rows)


def last_marked(span: Span, lines: Sequence[str]) -> int:
    """The number of the last line that is marked for the span."""
    return max((row.number or 0 for row in marked(span, lines, "error")), default=span.line)


def known(span: Span) -> tuple[str, ...]:
    """The lines of another cell, as far as the span brings them; empty ones before."""
    before = max(1, span.line - CONTEXT) - 1
    return ("",) * before + span.around if span.around else ()


def around(rows: Sequence[Row], lines: Sequence[str]) -> tuple[Row, ...]:
    """`rows` of the cell with up to two lines of it before and after."""
    numbers = [row.number for row in rows if row.number]
    if not numbers:
        return tuple(rows)
    before = range(max(1, numbers[0] - CONTEXT), numbers[0])
    last = max((n for n, line in enumerate(lines, 1) if line.strip()), default=0)
    after = range(numbers[-1] + 1, min(last, numbers[-1] + CONTEXT) + 1)
    head = tuple(Row(n, lines[n - 1], around=True) for n in before)
    tail = tuple(Row(n, lines[n - 1], around=True) for n in after)
    return head + tuple(rows) + tail


def excerpt(spans: Iterable[Span], lines: Sequence[str], tone: Tone) -> tuple[Row, ...]:
    """The marked lines of several spans of the cell, each with those around it."""
    rows: dict[int, Row] = {}
    for span in spans:
        for row in around(marked(span, lines, tone), lines):
            known = rows.get(row.number or 0)
            if row.number and known:
                row = replace(row, marks=known.marks + row.marks, around=known.around and row.around)
            rows[row.number or 0] = row
    rows.pop(0, None)  # remarks on lines that are left out
    out: list[Row] = []
    for number in sorted(rows):
        gap = number - (out[-1].number or 0) - 1 if out else 0
        out += [Row(None, left_out(gap)), rows[number]] if gap else [rows[number]]
    return tuple(out)


def left_out(count: int) -> str:
    """The remark that stands for lines not shown."""
    return f"… {count:,} line{'' if count == 1 else 's'} not shown"


def cell_rows(
    lines: Sequence[str],
    findings: Iterable[Finding],
    labels: Mapping[int, str] | None = None,
    shares: Mapping[int, float] | None = None,
) -> tuple[Row, ...]:
    """The cell with its marked lines: whole where it is short, else these with two lines around each.

    `labels` are words behind lines, `shares` shares of the cost; both are given by line."""
    labels, shares = labels or {}, shares or {}
    marks: dict[int, list[Mark]] = {}
    for finding in findings:
        for span in (s for s in (finding.span, finding.shows) if s and in_cell(s, lines)):
            for row in marked(span, lines, finding.severity):
                marks.setdefault(row.number or 0, []).extend(row.marks)
    marks.pop(0, None)  # of remarks on lines that are left out
    near = _near(marks, len(lines)) if marks else _near({**labels, **shares}, len(lines))
    chosen = list(range(1, len(lines) + 1)) if len(lines) <= WHOLE else near
    rows, previous = [], 0
    for number in [*chosen, len(lines) + 1]:
        if number - previous > 1:
            rows.append(Row(None, left_out(number - previous - 1)))
        if number <= len(lines):
            rows.append(Row(number, lines[number - 1], tuple(marks.get(number, ())), labels.get(number, ""),
                            share=shares.get(number)))  # fmt: skip
        previous = number
    return tuple(rows)


def _near(places: Iterable[int], count: int) -> list[int]:
    """The lines that stand around `places`, at most `MOST` of them."""
    near = {n for line in places for n in range(line - CONTEXT, line + CONTEXT + 1)}
    return sorted(n for n in near if 1 <= n <= count)[:MOST]


def _mark(span: Span, number: int, line: str, tone: Tone) -> Mark:
    """The part of `line` that belongs to `span`: blank margins of the inner lines aside."""
    start = span.column if number == span.line else len(line) - len(line.lstrip())
    end = span.end_column if number == span.end_line else len(line.rstrip())
    if span.end_line < span.line or not 0 <= start < min(end, len(line)):
        return Mark(len(line) - len(line.lstrip()), len(line.rstrip()), tone)
    return Mark(start, min(end, len(line)), tone)


def _guess(span: Span, tone: Tone) -> Mark:
    """The mark in a line of which only the stripped text is known, while its columns count the indent.

    Of the indents that are possible the first one is taken that makes the stretch a whole expression, none
    last, as most lines stand in a function; where none does, the whole line is marked.
    """
    text = span.source
    if span.end_line > span.line:
        return Mark(0, len(text), tone)
    lowest = max(0, span.end_column - len(text))
    for indent in sorted(range(lowest, span.column + 1), key=lambda n: (n % 4 > 0, n % 2, n == 0, n)):
        start, end = span.column - indent, span.end_column - indent
        if start < end and _whole(text, start, end):
            return Mark(start, end, tone)
    return Mark(0, len(text), tone)


def _whole(text: str, start: int, end: int) -> bool:
    """Whether the stretch cuts through no word and is an expression by itself."""
    piece = text[start:end]
    if piece != piece.strip() or re.match(r"\w\w", text[start - 1 : start + 1] if start else ""):
        return False
    if re.match(r"\w\w", text[end - 1 : end + 1]):
        return False
    try:
        ast.parse(piece, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return True
