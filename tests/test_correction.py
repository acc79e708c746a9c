"""A fix written into the text of a cell: the same cases as the in-editor layer's."""

from __future__ import annotations

import pytest

from jitmagic.correction import corrected
from jitmagic.report import Fix

BODY = "def f(x, n):\n    return x * n\n"


@pytest.mark.parametrize(
    ("line", "fix", "after"),
    [
        ("%%jit", Fix("t", static_argnames=("n",)), "%%jit --static n"),
        ("%%jit -s m -q f(x, 3)", Fix("t", static_argnames=("m", "n")), "%%jit --static m,n -q f(x, 3)"),
        ("%%jit --static=m", Fix("t", static_argnames=("n",)), "%%jit --static n"),
        ("%%jit --static n -q", Fix("t", static_argnames=()), "%%jit -q"),
        ("%%jit", Fix("t", static_argnums=(1, 2)), "%%jit --static-argnums 1,2"),
        ('%%jit --dyn "w, b"', Fix("t", dyn=("w", "p['k']")), "%%jit --dyn w,p['k']"),
        ("%%jitcheck -d w", Fix("t", dyn=("w", "p['a b']")), "%%jitcheck --dyn \"w,p['a b']\""),
        ("%%jit f(x, 3); f(x, 4)", Fix("t", calls=("f(x, n=3)", "f(x, n=4)")), "%%jit f(x, n=3); f(x, n=4)"),
        ("%%jit f(x, 3); f(x, 4)", Fix("t", calls=("f(x, n=3)",)), "%%jit f(x, 3); f(x, 4)"),
        ("%%jit", Fix("t", calls=("f(x)",)), "%%jit"),
        ("%%time", Fix("t", static_argnames=("n",)), "%%time"),
    ],
)
def test_the_magic_line(line, fix, after):
    assert corrected(f"{line}\n{BODY}", fix) == f"{after}\n{BODY}"


def test_the_body_keeps_the_magic_line_and_the_last_line_end():
    fix = Fix("t", cell="def f(x, n):\n    return n * x\n", static_argnames=("n",))
    assert corrected("%%jit\n" + BODY, fix) == "%%jit --static n\ndef f(x, n):\n    return n * x\n"
    assert corrected("%%jit\ndef f(x): ...", fix) == "%%jit --static n\ndef f(x, n):\n    return n * x"


def test_a_whole_new_magic_line_with_its_calls():
    fix = Fix(title="", applicability="unsafe", magic="%%jit -f g f(x); g(x)", calls=("g(x)", "g(2 * x)"))
    assert corrected("%%jit f(x); g(x)\ndef g(x): ...\n", fix) == "%%jit -f g f(x); g(x)\ndef g(x): ...\n"
    one = Fix(title="", applicability="unsafe", magic="%%jit -f g g(x)", calls=("g(2 * x)",))
    assert corrected("%%jit g(x)\ndef g(x): ...\n", one) == "%%jit -f g g(2 * x)\ndef g(x): ...\n"


def test_a_magic_line_inside_the_cell():
    fix = Fix("t", static_argnames=("n",))
    assert corrected("a = 1\n%jit -q\n" + BODY, fix) == "a = 1\n%jit --static n -q\n" + BODY


def test_a_cell_without_a_magic_takes_the_body_alone():
    assert corrected(BODY, Fix("t", static_argnames=("n",))) == BODY
    assert corrected(BODY, Fix("t", cell="x = 1\n")) == "x = 1\n"
