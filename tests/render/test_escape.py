"""What the user wrote can neither act nor hide in a terminal or a page."""

from __future__ import annotations

import pytest

from jitmagic.render.escape import brief, columns, fit, for_html, one_line, shorten, visible


@pytest.mark.parametrize(
    ("raw", "safe"),
    [
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("a\u202eb\u2066c\u200fd", "a\\u202eb\\u2066c\\u200fd"),
        ("\x00\x07\x7f\x9b", "\\x00\\x07\\x7f\\x9b"),
        ("zero\u200bwidth\ufeff", "zero\\u200bwidth\\ufeff"),
        ("\udc80", "\\udc80"),
        ("\U000e0041", "\\U000e0041"),
        ("a\nb\r\u2028c", "a\\x0ab\\x0d\\u2028c"),
        ("\tx", "    x"),
        ("plain ünïcödé 漢字 λ", "plain ünïcödé 漢字 λ"),
        ("नि\u200dx", "नि\u200dx"),
    ],
)
def test_visible(raw, safe):
    assert visible(raw) == safe


def test_one_line_joins_white_space():
    assert one_line("  a\n\n  b\tc ") == "a b c"


def test_for_html_leaves_no_markup():
    assert for_html("<b a=\"x\" c='y'>&\x1b") == "&lt;b a=&quot;x&quot; c=&#x27;y&#x27;&gt;&amp;\\x1b"


@pytest.mark.parametrize(("text", "width"), [("abc", 3), ("漢字", 4), ("e\u0301", 1), ("ａ", 2), ("", 0)])
def test_columns(text, width):
    assert columns(text) == width


def test_fit_counts_columns():
    assert fit("abcdef", 4) == 4
    assert fit("漢字漢字", 5) == 2
    assert fit("ab", 9) == 2


def test_shorten_says_how_much_is_missing():
    assert shorten("abc", 3) == "abc"
    assert shorten("x" * 2000, 10) == "x" * 10 + " … (1,990 characters more)"


def test_brief_keeps_both_ends():
    short = brief("begin" + "." * 100 + "end", 20)
    assert len(short) == 20 and short.startswith("begin") and short.endswith("end")
