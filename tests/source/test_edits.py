"""Changes of a text: an expression keeps together where it is put, an argument comes last."""

from __future__ import annotations

import ast

import pytest

from jitmagic.source.edits import Edits, Text

REPLACED = [
    ("y = float(x) * 2\n", "a + b", "y = (a + b) * 2\n"),
    ("y = float(x) * 2\n", "a ** b", "y = a ** b * 2\n"),
    ("y = -float(x).real\n", "a - b", "y = -(a - b).real\n"),
    ("y = (float(x)).real\n", "a - b", "y = (a - b).real\n"),
    ("y = float(x)(3)\n", "lambda v: v", "y = (lambda v: v)(3)\n"),
    ("y = f(float(x), 2)\n", "a if c else b", "y = f(a if c else b, 2)\n"),
    ("y = [v for v in float(x) if v]\n", "a if c else b", "y = [v for v in (a if c else b) if v]\n"),
    ("y = float(x) * 2\n", "a\n    + b", "y = (a\n    + b) * 2\n"),
    ("y = float(x)\n", "a\n    + b", "y = (a\n    + b)\n"),
]


@pytest.mark.parametrize(("source", "new", "wanted"), REPLACED)
def test_expression_keeps_together_at_its_new_place(source: str, new: str, wanted: str) -> None:
    text = Text(source)
    old = next(n for n in text.within(text.tree, ast.Call) if text.code(n) == "float(x)")
    assert Edits(text).replace(old, new).result() == wanted


CALLED = {
    "f()": "f(k=1)", "f(a)": "f(a, k=1)", "f((a))": "f((a), k=1)", "f(a, )": "f(a, k=1 )",
    "f(\n  é,  # é\n  b  # b\n)": "f(\n  é,  # é\n  b, k=1  # b\n)",
}  # fmt: skip


@pytest.mark.parametrize("call", CALLED)
def test_argument_comes_last(call: str) -> None:
    text = Text(f"y = {call}\n")
    (node,) = text.within(text.tree, ast.Call)
    assert Edits(text).argument(node, "k=1").result() == f"y = {CALLED[call]}\n"


def test_decorator_goes_with_its_line() -> None:
    text = Text("@first\n@second(  # why\n    3)\ndef f(x):\n    return x\n")
    (function,) = text.within(text.tree, ast.FunctionDef)
    wanted = "@first\ndef f(x):\n    return x\n"
    assert Edits(text).undecorate(function.decorator_list[1]).result() == wanted


def test_line_is_found_without_its_comment() -> None:
    text = Text("def f(x):\n    y = '#'  # a comment\n    return y\n")
    assert isinstance(text.at(2)[0], ast.Assign)
