"""Blocks of statements taken out of a cell: what comes with them, and what stands in their place."""

from __future__ import annotations

import ast

import pytest

from jitmagic.source import scope
from jitmagic.source.edits import Edits, Text

CELL = '''def f(x):
    if x > 0:
        y = 1

        # above
        z = """a
  b"""  # beside
    # other
    elif x < 0:
        y = 2; z = 3
    else: y = 4  # last
    return y
'''


@pytest.fixture
def text() -> Text:
    return Text(CELL)


def _if(text: Text) -> ast.If:
    return text.within(text.tree, ast.If)[0]


def test_a_block_comes_with_its_comments_and_blank_lines(text: Text) -> None:
    assert text.block(_if(text).body) == 'y = 1\n\n# above\nz = """a\n  b"""  # beside\n'


def test_an_elif_reads_if(text: Text) -> None:
    (inner,) = _if(text).orelse
    assert text.is_elif(inner) and not text.is_elif(_if(text))
    assert text.block([inner]).startswith("# other\nif x < 0:\n    y = 2; z = 3\nelse:")
    assert text.code(inner).startswith("if x < 0:")


def test_statements_that_share_a_line_come_alone(text: Text) -> None:
    first, second = _if(text).orelse[0].body  # type: ignore[attr-defined]
    assert text.block([first]) == "y = 2\n" and text.block([second]) == "z = 3\n"


def test_statements_of_different_blocks_follow_each_other(text: Text) -> None:
    function = text.within(text.tree, ast.FunctionDef)[0]
    assert text.block([_if(text).body[0], function.body[-1]]) == "y = 1\nreturn y\n"


def test_a_block_has_the_changes_inside_it(text: Text) -> None:
    edits = Edits(text).replace(_if(text).body[0], "y = 9")
    assert edits.block(_if(text).body[:1]) == "y = 9\n"


def test_a_function_in_the_place_of_statements_stands_apart() -> None:
    text = Text("x = 1\ny = 2\n")
    new = "def g():\n    pass\n\ny = g()"
    assert Edits(text).statements(text.tree.body[1], new).result() == f"x = 1\n\n{new}\n"
    assert Edits(text).statements(text.tree.body[0], new).result() == f"{new}\ny = 2\n"


@pytest.mark.parametrize(
    ("cell", "new"),
    [
        ("a + (x if c else y) * 2", "a + g(x) * 2"),
        ("g((x if c else y))", "g(g(x))"),
        ("g(x if c else y)", "g(g(x))"),
        ("(\n    x\n    if c else y\n)", "(\n    g(x)\n)"),
        ("[(x if c else y)]", "[g(x)]"),
        ("(x if c else y  # why\n)", "(g(x)  # why\n)"),
        ("a if(x if c else y)else b", "a if(g(x))else b"),
    ],
)
def test_brackets_that_are_not_needed_go_with_the_expression(cell: str, new: str) -> None:
    text = Text(f"v = {cell}\n")
    node = [
        n for n in text.within(text.tree, ast.IfExp) if isinstance(n.test, ast.Name) and n.test.id == "c"
    ][-1]
    wanted = new if "\n    g" not in new else "g(x)"
    assert Edits(text).replace(node, "g(x)").result() == f"v = {wanted}\n"


def test_defaults_and_what_is_bound_above() -> None:
    text = Text(
        "def f(a, b=1, *, c=2, d):\n    with a as w:\n        for i in w:\n            y = i\n            z = 1\n"
    )
    function = text.within(text.tree, ast.FunctionDef)[0]
    assert {k: ast.unparse(v) for k, v in scope.defaults_of(function).items()} == {"b": "1", "c": "2"}
    last = text.within(text.tree, ast.Assign)[-1]
    assert scope.bound_before(text, last) == {"a", "b", "c", "d", "w", "i", "y"}
