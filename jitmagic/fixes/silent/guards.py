"""Operations whose gradient, or value, is not finite at the border of their domain, kept away from it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

from jitmagic.fixes.silent.text import Text
from jitmagic.source.expressions import dotted_name

Guard = Callable[[Text, Any, str], "str | None"]


def candidates(text: str, nodes: Callable[[Text], list[Any]], jnp: str) -> Iterator[tuple[str, bool, str]]:
    """(title, whether the new value is beyond doubt, corrected cell) for each guard that applies to these nodes."""
    for title, guard in GUARDS:
        new = Text(text)
        for node in nodes(new):
            start = new.span(node)[0]
            if any(a <= start < b for a, b, _ in new.changes):
                continue  # it is inside of what was replaced
            replacement = guard(new, node, jnp)
            if replacement is not None:
                new.replace(node, replacement)
        if new.changes:
            yield title, False, new.result()


def _called(node: Any) -> str:
    if not isinstance(node, ast.Call):
        return ""
    return dotted_name(node.func).rpartition(".")[2] or getattr(node.func, "attr", "")


def _rest(text: Text, call: ast.Call, skip: int = 1) -> str:
    return "".join(f", {text.code(a)}" for a in (*call.args[skip:], *call.keywords))


def _grouped(code: str) -> str:
    return code if code.isidentifier() or code.endswith((")", "]")) and code[0].isalpha() else f"({code})"


def _power(text: Text, node: Any, jnp: str) -> str | None:
    """`b ** p` for a base that may be zero: zero there, and its gradient too."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        base, exponent = node.left, node.right
    elif _called(node) in ("power", "float_power") and len(node.args) == 2:
        base, exponent = node.args
    else:
        return None
    if isinstance(exponent, ast.Constant) and isinstance(exponent.value, int) and exponent.value > 0:
        return None
    b, p = text.code(base), text.code(exponent)
    if not any(isinstance(n, ast.Name) for n in ast.walk(base)):
        return None
    return f"{jnp}.where({b} > 0, {jnp}.where({b} > 0, {b}, 1.0) ** {_grouped(p)}, 0.0)"


def _cube_root(text: Text, node: Any, jnp: str) -> str | None:
    """`b ** (1 / 3)`, which is NaN for a negative base."""
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow)):
        return None
    third = isinstance(node.right, ast.BinOp) and ast.unparse(node.right).replace(".0", "") == "1 / 3"
    return f"{jnp}.cbrt({text.code(node.left)})" if third else None


def _deviation(text: Text, node: Any, jnp: str) -> str | None:
    """`std(x)` of equal numbers."""
    if _called(node) != "std":
        return None
    if dotted_name(node.func).partition(".")[0] in ("jnp", "jax", "np", jnp) and node.args:
        return f"{jnp}.sqrt({jnp}.var({text.code(node.args[0])}{_rest(text, node)}) + 1e-10)"
    if isinstance(node.func, ast.Attribute):
        return f"{jnp}.sqrt({text.code(node.func.value)}.var({_rest(text, node, 0)[2:]}) + 1e-10)"
    return None


def _root(text: Text, node: Any, jnp: str) -> str | None:
    """A root or norm by which something is divided: of one where it would be of zero."""
    if not isinstance(node, ast.Call) or not node.args:
        return None
    if _called(node) == "norm":
        vector = text.code(node.args[0])
        squares = f"{jnp}.sum({_grouped(vector)} ** 2{_rest(text, node)})"
    elif _called(node) == "sqrt":
        squares = text.code(node.args[0])
    else:
        return None
    return f"{jnp}.sqrt({jnp}.where({squares} > 0, {squares}, 1.0))"


def _angle(text: Text, node: Any, jnp: str) -> str | None:
    """The angle of the vector zero."""
    if _called(node) != "arctan2" or len(node.args) != 2:
        return None
    y, x = (text.code(a) for a in node.args)
    return f"{jnp}.arctan2({y}, {jnp}.where(({x} == 0) & ({y} == 0), 1.0, {x}))"


def _matrix(text: Text, node: Any, jnp: str) -> str | None:
    """A factor, inverse or solution of a matrix that is (nearly) singular: of one with a little on its diagonal."""
    if _called(node) not in ("cholesky", "inv", "solve", "cho_factor") or not node.args:
        return None
    matrix = text.code(node.args[0])
    more = f"{_grouped(matrix)} + 1e-6 * {jnp}.eye({_grouped(matrix)}.shape[-1])"
    return f"{text.code(node.func)}({more}{_rest(text, node)})"


def _least(text: Text, node: Any, jnp: str) -> str | None:
    """`arccosh` at one, `arctanh` and `logit` at the ends."""
    name = _called(node)
    if name == "arccosh" and node.args:
        return f"{text.code(node.func)}({jnp}.maximum({text.code(node.args[0])}, 1.0 + 1e-6))"
    if name == "logit" and node.args:
        return f"{text.code(node.func)}({jnp}.clip({text.code(node.args[0])}, 1e-6, 1.0 - 1e-6))"
    return None


GUARDS: tuple[tuple[str, Guard], ...] = (
    ("take the real root, which negative numbers have too", _cube_root),
    ("keep zero away from the power", _power),
    (
        "take the root of the variance and a little more, which has a gradient where all numbers are equal",
        _deviation,
    ),
    ("keep zero away from the root: it is 1 there", _root),
    ("give the zero vector an angle of its own", _angle),
    ("add a little to the diagonal of the matrix", _matrix),
    ("keep the argument within the domain", _least),
)
