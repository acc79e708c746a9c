"""Where a span lies in the source: exact columns, other cells, lines that moved."""

from __future__ import annotations

import pytest

from jitmagic.render.listing import MOST, around, cell_rows, marked, split
from jitmagic.render.parts import Mark, Row, crop, segments, shown
from jitmagic.report import Finding, Span

CELL = """%%jit
def f(x, n):
    y = x + 1
    if x < 3:
        return (y +
                n)
    return y
"""
LINES = split(CELL)


def underlined(rows):
    return ["".join(piece for piece, tone in segments(row) if tone) for row in rows]


def test_split_counts_as_python_does():
    assert split("a\r\nb\x0cc\u2028d\n") == ("a", "b\x0cc\u2028d", "")
    assert split("") == ()


def test_exact_columns_of_a_line_of_the_cell():
    rows = marked(Span(4, 7, 4, 12, "if x < 3:"), LINES, "error")
    assert rows == (Row(4, "    if x < 3:", (Mark(7, 12, "error"),)),)
    assert underlined(rows) == ["x < 3"]


def test_a_span_of_several_lines_leaves_margins_alone():
    assert underlined(marked(Span(5, 15, 6, 18, "return (y +"), LINES, "error")) == ["(y +", "n)"]


def test_a_long_span_says_what_it_leaves_out():
    lines = [f"line{i}" for i in range(1, 41)]
    rows = marked(Span(1, 0, 40, 3, "line1"), lines, "error")
    assert len(rows) == 7 and rows[-1].text == "… 34 lines not shown"


@pytest.mark.parametrize("columns", [(50, 60), (9, 7), (0, 0), (-3, 2), (12, 10_000)])
def test_columns_outside_the_line_never_fail(columns):
    (row,) = marked(Span(4, columns[0], 4, columns[1], "if x < 3:"), LINES, "error")
    (mark,) = row.marks
    assert 0 <= mark.start < mark.end <= len(row.text)


@pytest.mark.parametrize("line", [0, -1, 99])
def test_lines_outside_the_cell_show_the_span_alone(line):
    (row,) = marked(Span(line, 0, line, 4, "if x < 3:"), LINES, "error")
    assert row.number == line and row.text == "if x < 3:"


def test_a_line_that_changed_since_is_shown_as_it_was():
    (row,) = marked(Span(4, 7, 4, 12, "if y < 9:"), LINES, "error")
    assert row.text == "if y < 9:" and underlined([row]) == ["y < 9"]


@pytest.mark.parametrize(
    ("source", "column", "end", "text"),
    [
        ("if x < 3:", 7, 12, "x < 3"),
        ("self.w = self.w - step * g", 17, 23, "self.w"),
        ("return float(x.sum())", 15, 29, "float(x.sum())"),
        ("total = total + alpha", 16, 21, "total"),
        ("while err > tol:", 14, 23, "err > tol"),
    ],
)
def test_columns_of_another_cell_are_found_without_its_indent(source, column, end, text):
    (row,) = marked(Span(9, column, 9, end, source, "<ipython-input-2-abc>"), LINES, "error")
    assert underlined([row]) == [text]


def test_a_stretch_that_fits_nowhere_marks_the_whole_line():
    (row,) = marked(Span(9, 3, 9, 5, "while running", "other"), LINES, "error")
    assert underlined([row]) == ["while running"]


def test_a_span_without_source_elsewhere_shows_nothing():
    assert marked(Span(9, 0, 9, 1, "", "other"), LINES, "error") == ()


def test_around_adds_two_lines_on_each_side():
    rows = around(marked(Span(4, 7, 4, 12, "if x < 3:"), LINES, "error"), LINES)
    assert [(row.number, row.around) for row in rows] == [
        (2, True),
        (3, True),
        (4, False),
        (5, True),
        (6, True),
    ]


def finding(line, code="JM101", severity="error"):
    return Finding(code, "k", severity, "f", "m", Span(line, 0, line, 4, ""))


def test_a_short_cell_is_shown_whole_with_labels():
    rows = cell_rows(LINES, [finding(4), finding(4, "JM205", "warning")], {3: "w constant"}, {3: 0.5})
    assert [row.number for row in rows] == list(range(1, len(LINES) + 1))
    assert [mark.tone for mark in rows[3].marks] == ["error", "warning"]
    assert (rows[2].label, rows[2].share, rows[3].share) == ("w constant", 0.5, None)


def test_a_long_cell_without_findings_shows_the_lines_that_say_something():
    lines = [f"line{i}" for i in range(1, 5001)]
    rows = cell_rows(lines, [], {10: "w constant"}, {n: 0.001 for n in range(100, 5000)})
    assert rows[0].text == "… 7 lines not shown" and len(rows) <= MOST + 3
    assert rows[-1].text.endswith("lines not shown")


def test_a_long_cell_shows_marked_lines_and_counts_the_rest():
    lines = [f"line{i}" for i in range(1, 5001)]
    rows = cell_rows(lines, [finding(1000), finding(1003), finding(4999)])
    numbers = [row.number for row in rows]
    assert numbers == [None, *range(998, 1006), None, *range(4997, 5001)]
    assert rows[0].text == "… 997 lines not shown" and rows[9].text == "… 3,991 lines not shown"


def test_overlapping_marks_show_the_severest():
    row = Row(1, "abcdef", (Mark(0, 4, "error"), Mark(2, 6, "note")))
    assert segments(row) == [("abcd", "error"), ("ef", "note")]


def test_marks_move_with_escapes_and_tabs():
    row = shown(Row(1, "\tx\x1b = y", (Mark(6, 7, "error"),)))
    assert row.text == "    x\\x1b = y" and underlined([row]) == ["y"]


@pytest.mark.parametrize("at", [0, 300, 990])
def test_crop_keeps_the_mark_in_sight(at):
    row = crop(Row(1, "a" * at + "BAD" + "c" * (997 - at), (Mark(at, at + 3, "error"),)), 60)
    assert len(row.text) <= 60 and underlined([row]) == ["BAD"]


def test_crop_of_wide_characters_counts_columns():
    row = crop(Row(1, "漢" * 100, (Mark(50, 52, "error"),)), 40)
    assert len(row.text) <= 21 and underlined([row]) == ["漢漢"]
