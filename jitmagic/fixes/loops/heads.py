"""What a loop goes over, as a counter with bounds or as the arrays of which it takes the rows."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from jitmagic.fixes.change import Spot
from jitmagic.source.edits import CannotEdit, Text
from jitmagic.source.loops import Counting, Turns
from jitmagic.source.pattern import atom, expression, stripped


@dataclass(frozen=True)
class Counted:
    """A loop's head as a counter: its name, where it begins and ends, and what each iteration takes by it."""

    index: str
    start: str
    stop: str
    step: str = "1"
    head: str = ""
    before: str = ""
    """Names in front of the loop for arrays that have none."""

    @classmethod
    def of(cls, spot: Spot, numbers: Counting, index: str = "") -> Counted:
        """The numbers of a range."""
        bounds = ((numbers.start, "0"), (numbers.stop, ""), (numbers.step, "1"))
        return cls(index, *(stripped(spot.code(n)) if n is not None else usual for n, usual in bounds))

    @property
    def count(self) -> str:
        """How often it counts."""
        step = _number(self.step)
        if step is None:
            return f"-({atom(minus(self.start, self.stop))} // {atom(self.step)})"
        width = minus(self.stop, self.start) if step > 0 else minus(self.start, self.stop)
        return f"{atom(plus(width, abs(step) - 1))} // {abs(step)}" if abs(step) > 1 else width

    def value_at(self, iteration: str) -> str:
        """The value of the counter in an iteration."""
        sign, size = ("-", self.step[1:]) if self.step.startswith("-") else ("+", self.step)
        steps = iteration if size == "1" else f"{iteration} * {atom(size)}"
        return steps if (self.start, sign) == ("0", "+") else f"{self.start} {sign} {steps}"

    def turned(self) -> Counted:
        """From its last number to its first."""
        if self.step != "1":
            raise CannotEdit("a step is turned round")
        return Counted(self.index, plus(self.stop, -1), plus(self.start, -1), "-1", self.head, self.before)


def counted(spot: Spot, turns: Turns | None) -> Counted:
    """The head as a counter; arrays by their rows."""
    if turns is None:
        raise CannotEdit("what the loop goes over is not clear")
    numbers = turns.counting
    if numbers is not None and numbers.stop is not None:
        found = Counted.of(spot, numbers, spot.code(turns.columns[0].target))
        return found.turned() if turns.backwards else found
    plain = [c.target for c in turns.columns if isinstance(c.source, Counting) and c.source.plain]
    index = spot.code(plain[0]) if plain else spot.fresh("i", "k")
    head, before, stop = "", "", ""
    for column in turns.columns:
        target, given = spot.code(column.target), column.source
        if isinstance(given, Counting):
            every = Counted.of(spot, given)
            value, end = every.value_at(index), every.stop if given.plain else ""
        else:
            array = spot.code(given)
            if not isinstance(given, ast.Name | ast.Attribute):
                array = fresh(spot, before, f"{target}s" if target.isidentifier() else "rows", "rows")
                before += f"{array} = {spot.code(given)}\n"
            value, end = f"{array}[{index}]", f"len({array})"
        head += f"{target} = {value}\n" if column.target not in plain[:1] else ""
        stop = stop or end
    found = Counted(index, "0", stop, "1", head, before)
    return found.turned() if turns.backwards else found


def rows(spot: Spot, turns: Turns) -> list[tuple[str, str]]:
    """What each iteration takes, by the array of which it takes the rows."""
    first = next((spot.code(a) for a in turns.arrays), "")
    return [(spot.code(c.target), array_of(spot, c.source, first)) for c in turns.columns]


def array_of(spot: Spot, given: ast.expr | Counting, like: str = "") -> str:
    """What a loop goes over as an array; numbers without an end are as many as the rows of `like`."""
    numbers = given if isinstance(given, Counting) else Counting.of(given)
    if numbers is not None:
        n = Counted.of(spot, numbers)
        stop = n.stop or (f"len({like})" if n.start == "0" else f"{n.start} + len({like})")
        bounds = [n.start, stop, n.step] if n.step != "1" else [n.start, stop] if n.start != "0" else [stop]
        return spot.write("jnp.arange($*bounds)", bounds=", ".join(bounds))
    assert isinstance(given, ast.expr)
    listed = isinstance(given, ast.List | ast.Tuple)
    return spot.write("jnp.array($listed)", listed=given) if listed else spot.code(given)


def fresh(spot: Spot, code: str, *wanted: str) -> str:
    """A name that is free in the cell and in code of ours."""
    return spot.text.fresh(*wanted, taken={*spot.modules.names, *Text(code).names})


def plus(code: str, number: int) -> str:
    """An expression and a number; `n` for `n - 1` and one more."""
    node, known = expression(code), _number(code)
    if known is not None or not number:
        return code if known is None else str(known + number)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        left, right = (_number(ast.unparse(n)) for n in (node.left, node.right))
        if left is not None and isinstance(node.op, ast.Add):
            return plus(ast.unparse(node.right), number + left)
        if right is not None:
            return plus(ast.unparse(node.left), number + (right if isinstance(node.op, ast.Add) else -right))
    product = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.FloorDiv)
    return f"{code if product else atom(code)} {'+' if number > 0 else '-'} {abs(number)}"


def minus(code: str, other: str) -> str:
    """The difference of two expressions."""
    number = _number(other)
    return plus(code, -number) if number is not None else f"{code} - {atom(other)}"


def _number(code: str) -> int | None:
    return int(code) if code.removeprefix("-").isdigit() else None
