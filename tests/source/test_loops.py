"""What the head of a loop goes over, and what its body does besides computing."""

from __future__ import annotations

import ast

import pytest

from jitmagic.source.edits import Text
from jitmagic.source.loops import Counting, LoopBody, Turns, mutates

HEADS = {
    "i in range(n)": "i: 0..n",
    "i in range(0, n, 1)": "i: 0..n",
    "i in range(a, b, s)": "i: a..b by s",
    "i in reversed(range(2, n))": "i: 2..n backwards",
    "x in xs": "x: xs",
    "(a, b) in pairs": "(a, b): pairs",
    "i, x in enumerate(xs)": "i: 0.., x: xs",
    "i, (x, y) in enumerate(zip(xs, ys), start=1)": "i: 1.., x: xs, y: ys",
    "x, i in zip(reversed(xs), range(9))": "x: reversed(xs), i: 0..9",
    "x, y in reversed(list(zip(xs, ys)))": "x: xs, y: ys backwards",
    "pair in zip(xs, ys)": "pair: zip(xs, ys)",
    "k, v in p.items()": "(k, v): p.items()",
    "i in range(*bounds)": "",
    "x, y in zip(*rows)": "",
    "a, b in range(n)": "",
}


@pytest.mark.parametrize("head", HEADS)
def test_what_a_loop_goes_over(head: str) -> None:
    turns = Turns.of(ast.parse(f"for {head}: pass").body[0])  # type: ignore[arg-type]
    assert ("" if turns is None else told(turns)) == HEADS[head]


def told(turns: Turns) -> str:
    return (
        ", ".join(f"{ast.unparse(c.target)}: {of(c.source)}" for c in turns.columns)
        + " backwards" * turns.backwards
    )


def of(source: ast.expr | Counting) -> str:
    if isinstance(source, ast.expr):
        return ast.unparse(source)
    start, stop = (
        ast.unparse(n) if n is not None else d for n, d in ((source.start, "0"), (source.stop, ""))
    )
    return f"{start}..{stop}" + (f" by {ast.unparse(source.step)}" if source.step is not None else "")


def test_jumps_of_an_inner_loop_are_not_those_of_the_outer() -> None:
    text = Text(
        "def f(x):\n    while x:\n        for y in x:\n            if y: break\n            return y\n"
        "        def g():\n            return 1\n        if x: continue\n"
    )
    (loop,) = text.within(text.tree, ast.While)
    assert [type(n) for n in LoopBody(text, loop).jumps] == [ast.Return, ast.Continue]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("ys.append(x)", True),
        ("ys = []\nys.append(x)", False),
        ("x = jnp.add(x, 1)", False),
        ("seen[k].add(x)", False),
    ],
)
def test_what_a_body_changes_outside_of_itself(body: str, found: bool) -> None:
    assert mutates(ast.parse(body), ("jnp",)) is found
