"""A loop's head as a counter and as an array: as many numbers as Python's `range` has, and the same ones."""

from __future__ import annotations

import ast
import itertools

import pytest

from jitmagic.fixes.change import Spot
from jitmagic.fixes.loops.heads import counted, minus, plus
from jitmagic.source.edits import CannotEdit, Text
from jitmagic.source.loops import Turns


@pytest.mark.parametrize(
    "bounds", ["n", "1, n", "n, m", "n - 1, -1, -1", "n, m, s", "0, n, 3", "n, 0, -2", "m, n, -1"]
)
@pytest.mark.parametrize("turned", [False, True])
def test_a_range_as_a_counter(bounds: str, turned: bool) -> None:
    head = f"reversed(range({bounds}))" if turned else f"range({bounds})"
    text = Text(f"for i in {head}: pass\n")
    turns = Turns.of(text.tree.body[0])  # type: ignore[arg-type]
    if turned and bounds.count(",") == 2:
        with pytest.raises(CannotEdit):
            counted(Spot(text, "", 1), turns)
        return
    found = counted(Spot(text, "", 1), turns)
    for n, m, s in itertools.product(range(5), range(6), (1, 2, 3)):
        names = {"n": n, "m": m, "s": s}
        count = eval(found.count, names)
        numbers = [eval(found.value_at("k"), {**names, "k": k}) for k in range(max(0, count))]
        assert numbers == list(eval(head, dict(names))), (found, names)


@pytest.mark.parametrize(
    ("code", "number", "other"),
    [("n", -1, "n - 1"), ("n - 1", 1, "n"), ("n + 2", -1, "n + 1"), ("3", -1, "2"), ("-1", 1, "0"), ("a * b", 2, "a * b + 2"),
     ("a if c else b", 1, "(a if c else b) + 1"), ("x.shape[0] - 1", 1, "x.shape[0]"), ("a - (b - 1)", 1, "a - (b - 1) + 1")],
)  # fmt: skip
def test_numbers_are_added_up_where_they_stand(code: str, number: int, other: str) -> None:
    assert plus(code, number) == other
    assert ast.dump(ast.parse(minus(code, str(-number)))) == ast.dump(ast.parse(other))
