"""Conditions on traced values: `and`, `or`, `not`, chains, `in`, `a if c else b`, checks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.checks import checked
from jitmagic.fixes.rewrite.place import Candidate, Place
from jitmagic.fixes.rewrite.truths import is_boolean, maybe_traced, stripped, truth


def candidates(place: Place) -> Iterator[Candidate]:
    """Rewrites of the condition itself; `if` and `while` statements are for others."""
    if place.kind not in ("tracer-bool", "tracer-hash"):
        return
    yield from _conditional_expressions(place)
    yield from checked(place)
    if not statement_asks(place):
        yield from _operators(place)


def statement_asks(place: Place) -> bool:
    """The place is the test of an `if` or `while` (or a part of it), which is rewritten as a whole."""
    import libcst as cst

    inner: Any = None
    for node in place.path:
        if isinstance(node, (cst.If, cst.While)):
            return inner is node.test and not _is_builtin(place)
        if isinstance(node, (cst.Call, cst.Lambda, cst.Subscript)) and inner is not None:
            return False
        inner = node
    return False


def _is_builtin(place: Place) -> bool:
    import libcst as cst

    node = place.path[0]
    return isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value in BUILTINS


# -- the constructs


def _conditional_expressions(place: Place) -> Iterator[Candidate]:
    import libcst as cst

    ifexp = next((n for n in place.on_line(cst.IfExp) if _asks(place, n)), None)
    if ifexp is None:
        return
    code = place.cell.code
    guarded = _guarded_division(place, ifexp, stripped(truth(place, ifexp.test)))
    if guarded is not None:
        yield Candidate("choose with `jnp.where`, and divide by 1 where the divisor is not used",
                        place.cell.edit({ifexp: guarded}))  # fmt: skip
    new = choice(place, ifexp)
    yield Candidate("choose with `jnp.where` in place of the conditional expression", place.cell.edit({ifexp: new}),
                    cost="both values are computed")  # fmt: skip
    test = stripped(truth(place, ifexp.test))
    then, other = code(ifexp.body), code(ifexp.orelse)
    new = f"{place.lax}.cond({test}, lambda: {then}, lambda: {other})"
    yield Candidate(
        "choose with `jax.lax.cond` in place of the conditional expression", place.cell.edit({ifexp: new})
    )


def _guarded_division(place: Place, ifexp: Any, test: str) -> str | None:
    """`a / b if b != 0 else c` with a divisor that is never zero: both values are computed, and so is `a / b`."""
    import libcst as cst

    compared = ifexp.test.left if isinstance(ifexp.test, cst.Comparison) else ifexp.test
    name = place.cell.code(compared)
    divisors = [
        n.right for n in place.cell.within(ifexp.body, cst.BinaryOperation)
        if isinstance(n.operator, (cst.Divide, cst.FloorDivide, cst.Modulo)) and place.cell.code(n.right) == name
    ]  # fmt: skip
    if len(divisors) != 1:
        return None
    whole, safe = place.cell.code(ifexp.body), f"{place.jnp}.where({test}, {name}, 1)"
    at = place.cell.positions[divisors[0]].start, place.cell.positions[ifexp.body].start
    if at[0].line != at[1].line:
        return None
    start = at[0].column - at[1].column
    then = f"{whole[:start]}{safe}{whole[start + len(name) :]}"
    return f"{place.jnp}.where({test}, {then}, {stripped(place.cell.code(ifexp.orelse))})"


def _asks(place: Place, ifexp: Any) -> bool:
    """The place is the test of the conditional expression, or the whole of it."""
    if place.path and place.path[0] is ifexp:
        return True
    test = set(map(id, place.cell.within(ifexp.test, object)))
    return id(place.path[0]) in test if place.path else True


def choice(place: Place, ifexp: Any) -> str:
    """A conditional expression, and those in its branches that depend on traced values, as `jnp.where`."""
    import libcst as cst

    def side(node: Any) -> str:
        if isinstance(node, cst.IfExp) and maybe_traced(place, node.test):
            return choice(place, node)
        return stripped(place.cell.code(node))

    asked, sides = ifexp.test, [side(ifexp.body), side(ifexp.orelse)]
    if isinstance(asked, cst.UnaryOperation) and isinstance(asked.operator, cst.Not):
        asked, sides = asked.expression, sides[::-1]
    return f"{place.jnp}.where({stripped(truth(place, asked))}, {', '.join(sides)})"


def _operators(place: Place) -> Iterator[Candidate]:
    import libcst as cst

    def logical(n: Any) -> bool:
        if isinstance(n, cst.Comparison):
            return len(n.comparisons) > 1 or isinstance(n.comparisons[0].operator, (cst.In, cst.NotIn))
        return isinstance(n, cst.BooleanOperation) or (
            isinstance(n, cst.UnaryOperation) and isinstance(n.operator, cst.Not)
        )

    found = [n for n in place.on_line(cst.BooleanOperation, cst.UnaryOperation, cst.Comparison) if logical(n)]
    if not found:
        return
    node = found[0]
    while (parent := place.cell.parents.get(node)) is not None and logical(parent):
        node = parent
    if isinstance(node, cst.BooleanOperation) and not all(
        is_boolean(place, p) for p in (node.left, node.right)
    ) and not _in_test(place, node):  # fmt: skip
        a, b = place.cell.code(node.left), place.cell.code(node.right)
        if isinstance(node.operator, cst.Or) and _may_be_none(place, node.left):
            new = f"{stripped(b)} if {a} is None else {a}"
            whole = isinstance(place.cell.parents.get(node), (cst.Assign, cst.AnnAssign, cst.Return, cst.Arg))
            yield Candidate("take what stands behind `or` for `None`", place.cell.edit(
                {node: new if whole else f"({new})"}), "unsafe", "0 is then a value like any other")  # fmt: skip
        idiom = _if_else(place, node)
        if idiom is not None:
            yield Candidate(
                "choose with `jnp.where` in place of `and` and `or`", place.cell.edit({node: idiom})
            )
            return
        new = f"{place.jnp}.where({a}, {b}, {a})" if isinstance(node.operator, cst.And) else (
            f"{place.jnp}.where({a}, {a}, {b})"
        )  # fmt: skip
        yield Candidate("choose with `jnp.where` in place of `and` and `or`", place.cell.edit({node: new}))
        return
    new = truth(place, node)
    parent = place.cell.parents.get(node)
    if isinstance(parent, (cst.BinaryOperation, cst.Comparison, cst.ComparisonTarget, cst.UnaryOperation)):
        new = names.wrapped(new)
    word = "combine the conditions with `&`, `|` and `~`"
    yield Candidate(word, place.cell.edit({node: new}))


def _may_be_none(place: Place, node: Any) -> bool:
    """A parameter of a function around the place whose default is None."""
    import libcst as cst

    functions = (n for n in place.path if isinstance(n, (cst.FunctionDef, cst.Lambda)))
    parameters = [p for f in functions for p in place.cell.within(f.params, cst.Param)]
    return isinstance(node, cst.Name) and any(
        p.name.value == node.value and isinstance(p.default, cst.Name) and p.default.value == "None"
        for p in parameters
    )


def _if_else(place: Place, node: Any) -> str | None:
    """`c and a or b` with an `a` that is true, which was how to write `a if c else b`."""
    import libcst as cst

    inner = node.left
    if not isinstance(node.operator, cst.Or) or not isinstance(inner, cst.BooleanOperation):
        return None
    try:
        true = bool(ast.literal_eval(stripped(place.cell.code(inner.right))))
    except (ValueError, SyntaxError):
        return None
    if not true or not isinstance(inner.operator, cst.And):
        return None
    parts = [truth(place, inner.left), place.cell.code(inner.right), place.cell.code(node.right)]
    return f"{place.jnp}.where({', '.join(map(stripped, parts))})"


def _in_test(place: Place, node: Any) -> bool:
    import libcst as cst

    parent = place.cell.parents.get(node)
    return isinstance(parent, (cst.If, cst.While, cst.IfExp, cst.Assert)) and parent.test is node


BUILTINS = {"min": "minimum", "max": "maximum", "any": "any", "all": "all", "sorted": "sort", "round": "round",
            "abs": "abs", "sum": "sum", "bool": "bool_"}  # fmt: skip
"""Python's functions that ask for the truth of what they are given, and those of `jnp` that do not."""
