"""Plain text: columns, underlines, colours."""

from __future__ import annotations

import re

import pytest

from jitmagic import render
from jitmagic.render import Report
from jitmagic.render.escape import columns
from jitmagic.render.parts import Document, Listing, Mark, Para, Phrase, Row, Table, runs
from jitmagic.render.text import bar, wrap
from jitmagic.render.text import render as draw
from jitmagic.report import CellText, Finding, FunctionReport, Span, State
from tests.render import samples

EVERY = {**samples.TYPICAL, "hostile": samples.hostile, "huge": samples.huge}


@pytest.mark.parametrize("width", [40, 60, 88, 120])
@pytest.mark.parametrize("name", EVERY)
def test_no_line_is_wider_than_asked(name, width):
    for line in render.text(EVERY[name](), width=width).split("\n"):
        assert columns(line) <= width, line


def test_a_silly_width_still_works():
    assert "dropout" in render.text(samples.failing(), width=1)


@pytest.mark.parametrize("name", EVERY)
def test_no_control_character_reaches_the_terminal(name):
    text = render.text(EVERY[name]())
    assert all(c.isprintable() or c == "\n" for c in text)


@pytest.mark.parametrize("name", EVERY)
def test_colour_changes_no_word(name):
    report = EVERY[name]()
    painted = render.text(report, color=True)
    assert "\x1b[" in painted
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == render.text(report)


def underlined(line: str, start: int, end: int) -> tuple[str, str]:
    cell = CellText("%%jit\n" + line, magic="%%jit")
    span = Span(2, start, 2, end, line.strip())
    text = render.text(Report((), (Finding("JM101", "k", "error", "f", "m", span),), cell=cell))
    rows = text.split("\n")
    at = next(i for i, row in enumerate(rows) if set(row.partition("|")[2].strip()) == {"^"})
    return rows[at - 1], rows[at]


def test_carets_stand_under_the_exact_span():
    source, carets = underlined("    if x < 3:", 7, 12)
    assert source[carets.index("^") : carets.rindex("^") + 1] == "x < 3"


def test_carets_are_placed_by_columns_not_characters():
    source, carets = underlined("s = '漢字' + x", 11, 12)
    assert carets.index("^") == columns(source[: source.rindex("x")])


def test_carets_of_a_tab_indented_line():
    source, carets = underlined("\tif x < 3:", 4, 9)
    assert source[carets.index("^") : carets.rindex("^") + 1] == "x < 3"


def test_a_very_long_line_is_cut_around_its_span():
    line = "y = " + "a + " * 400 + "BAD" + " + c" * 400
    source, carets = underlined(line, line.index("BAD"), line.index("BAD") + 3)
    assert source[carets.index("^") : carets.rindex("^") + 1] == "BAD" and source.count("…") == 2


def words(lines):
    return ["".join(text for text, _ in line) for line in lines]


def test_wrap_breaks_at_spaces_and_hangs():
    assert words(wrap(runs("one two three four"), 9, hang=2)) == ["one two", "  three", "  four"]


def test_wrap_breaks_a_word_longer_than_a_line():
    assert words(wrap(runs("x" * 10), 4)) == ["xxxx", "xxxx", "xx"]
    assert words(wrap(runs("漢" * 5), 4)) == ["漢漢", "漢漢", "漢"]
    assert words(wrap(runs("漢"), 1)) == ["漢"]


def test_wrap_does_not_part_a_comma_from_its_code():
    assert words(wrap(runs("see `abc`, now"), 10)) == ["see `abc`,", "now"]


def test_code_stands_between_backticks_and_a_single_backtick_is_text():
    assert words(wrap(runs("a `b c` d ` e"), 80)) == ["a `b c` d ` e"]


@pytest.mark.parametrize(
    ("share", "drawn"),
    [(0, ""), (1, "████"), (0.5, "██"), (0.001, "▏"), (7.0, "████"), (-1, ""), (0.34, "█▍")],
)
def test_bar(share, drawn):
    assert bar(share, 4) == drawn


def test_empty_columns_of_a_table_are_left_out():
    state = (State("w", "constant", bytes=8, origin=""),)
    text = render.text(Report((FunctionReport("f", "ok", state=state),)))
    head = next(line for line in text.split("\n") if "path" in line)
    assert head.split() == ["path", "role", "type", "size"]


def test_a_table_wraps_its_widest_cells():
    table = Table(("a", "b"), (((Phrase("word " * 30),), (Phrase("12"),)),), frozenset({1}))
    lines = draw(Document((), (table,)), width=40).split("\n")
    assert len(lines) > 3 and max(map(len, lines)) <= 40 and lines[1].endswith("12")


def test_rows_without_a_number_and_paragraphs_without_words():
    listing = Listing((Row(None, "… 3 lines not shown"), Row(10, "x", (Mark(0, 1, "error"),))))
    assert draw(Document((), (listing, Para(())))) == "   | … 3 lines not shown\n10 | x\n   | ^"
