"""Conditions as expressions: `a if c else b`, and `and`, `or`, `not`, chains and `in` outside of an `if`'s test."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.fixes.branches.choice import Choice
from jitmagic.fixes.branches.truth import is_boolean, maybe_traced, truth
from jitmagic.fixes.change import Change, Spot
from jitmagic.source import scope
from jitmagic.source.edits import shifted
from jitmagic.source.pattern import Pattern, stripped
from jitmagic.tracing import messages

COND = "choose with `jax.lax.cond` in place of the conditional expression"
WHERE = "choose with `jnp.where` in place of the conditional expression"
DIVIDED = "choose with `jnp.where`, and divide by 1 where the divisor is not used"
MEMBER = "ask with `jnp.isin` in place of `in`"
COMBINED = "combine the conditions with `&`, `|` and `~`"
AND_OR = "choose with `jnp.where` in place of `and` and `or`"
LEAVES = "choose leaf by leaf with `jax.tree.map`"
NONE = "take what stands behind `or` for `None`"
_WHERE = Pattern("where($c, $x, $y)")
BUILTINS = {
    "min": "min", "max": "max", "any": "any", "all": "all", "sorted": "sort", "round": "round", "abs": "abs",
    "sum": "sum", "bool": "bool_",
}  # fmt: skip
"""Python's functions that ask for the truth of what they are given, and those of `jnp` that do not."""


def choosing_expressions(spot: Spot) -> Iterator[Change]:
    """`a if c else b` as `jnp.where`."""
    for node in _asked(spot):
        if (divided := _divided(spot, node)) is not None:
            yield Change(DIVIDED, spot.edits().replace(node, divided))
        new = shifted(_choice(spot, node), "", " " * spot.text.statement(node).col_offset)
        yield Change(WHERE, spot.edits().replace(node, new), cost="both values are computed")


def branching_expressions(spot: Spot) -> Iterator[Change]:
    """`a if c else b` as `jax.lax.cond`."""
    for node in _asked(spot):
        new = spot.write(
            "lax.cond($test, lambda: $then, lambda: $other)",
            test=stripped(truth(spot, node.test)), then=node.body, other=node.orelse,
        )  # fmt: skip
        yield Change(COND, spot.edits().replace(node, new))


def _asked(spot: Spot) -> list[ast.IfExp]:
    """The conditional expression whose condition stands at the place."""
    place = spot.node
    return [
        n for n in spot.on_line(ast.IfExp)
        if place is n or place in ast.walk(n.test)
        or isinstance(place, scope.COMPREHENSIONS) and n in ast.walk(place) and maybe_traced(spot, n.test)
    ][:1]  # fmt: skip


def _choice(spot: Spot, node: ast.expr) -> str:
    """A conditional expression, and those in its branches that depend on traced values, as choices."""
    if isinstance(node, ast.IfExp) and maybe_traced(spot, node.test):
        return Choice(spot, node.test).of(_choice(spot, node.body), _choice(spot, node.orelse))
    return stripped(spot.code(node))


def _divided(spot: Spot, node: ast.IfExp) -> str | None:
    """`a / b if b != 0 else c` with a divisor that is never zero: both values are computed, and so is `a / b`."""
    compared = node.test.left if isinstance(node.test, ast.Compare) else node.test
    divisors = [
        n.right for n in spot.text.within(node.body, ast.BinOp)
        if isinstance(n.op, ast.Div | ast.FloorDiv | ast.Mod) and spot.code(n.right) == spot.code(compared)
    ]  # fmt: skip
    if len(divisors) != 1:
        return None
    test = stripped(truth(spot, node.test))
    safe = spot.write("jnp.where($test, $divisor, 1)", test=test, divisor=divisors[0])
    then = spot.edits().replace(divisors[0], safe).code(node.body)
    other = stripped(spot.code(node.orelse))
    return spot.write("jnp.where($test, $then, $other)", test=test, then=then, other=other)


def leaf_by_leaf(spot: Spot) -> Iterator[Change]:
    """`jnp.where(c, x, y)` of dicts, tuples and objects, which takes arrays alone."""
    if messages.refusal(spot.message) != "tree for an array":
        return
    for match in filter(None, (_WHERE.match(n, spot.modules) for n in spot.on_line(ast.Call))):
        free = [n for n in ("a", "b", "this", "other") if n not in scope.loads(match.expr("c"))]
        new = spot.write(
            "jax.tree.map(lambda $$a, $$b: jnp.where($c, $$a, $$b), $x, $y)",
            a=free[0],
            b=free[1],
            **match.holes,
        )
        yield Change(LEAVES, spot.edits().replace(match.node, new))


def operators(spot: Spot) -> Iterator[Change]:
    """`and`, `or`, `not`, chains and `in` as what arrays have for them."""
    found = [n for n in spot.on_line(ast.expr) if _is_logical(n)]
    if not found or statement_asks(spot):
        return
    node, parent = found[0], spot.text.parents[found[0]]
    while isinstance(parent, ast.expr) and _is_logical(parent):
        node, parent = parent, spot.text.parents[parent]
    asks = isinstance(parent, ast.If | ast.While | ast.IfExp | ast.Assert) and parent.test is node
    if isinstance(node, ast.BoolOp) and not asks and not all(is_boolean(spot, v) for v in node.values):
        yield from _values(spot, node)
    else:
        asked = isinstance(node, ast.Compare) and len(node.ops) == 1
        yield Change(MEMBER if asked else COMBINED, spot.edits().replace(node, truth(spot, node)))


def _is_logical(node: ast.expr) -> bool:
    if isinstance(node, ast.Compare):
        return len(node.ops) > 1 or isinstance(node.ops[0], ast.In | ast.NotIn)
    return isinstance(node, ast.BoolOp) or isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _values(spot: Spot, node: ast.BoolOp) -> Iterator[Change]:
    """`a or b` of values that are no booleans."""
    *values, last = node.values
    new, either = stripped(spot.code(last)), isinstance(node.op, ast.Or)
    match values:
        case [ast.Name() as value] if either and _is_none_at_first(spot, value):
            default = spot.write("$new if $value is None else $value", value=value, new=new)
            whole = isinstance(spot.text.parents[node], ast.stmt | ast.Call | ast.keyword)
            edits = spot.edits().replace(node, default if whole else f"({default})")
            yield Change(NONE, edits, cost="0 is then a value like any other", sure=False)
        case [ast.BoolOp(op=ast.And(), values=[test, ast.Constant() as value])] if either and value.value:
            values, new = [], Choice(spot, test).of(spot.code(value), new)  # an old `if` and `else`
    for operand in values[::-1]:
        form = "jnp.where($v, $v, $new)" if either else "jnp.where($v, $new, $v)"
        new = spot.write(form, v=operand, new=new)
    yield Change(AND_OR, spot.edits().replace(node, new))


def _is_none_at_first(spot: Spot, name: ast.Name) -> bool:
    """A parameter of a function around the place whose default is None."""
    functions = [n for n in spot.path if isinstance(n, ast.FunctionDef | ast.Lambda)]
    defaults = [scope.defaults_of(f).get(name.id) for f in functions]
    return any(isinstance(d, ast.Constant) and d.value is None for d in defaults)


def statement_asks(spot: Spot) -> bool:
    """The place is the test of an `if` or `while`, or a part of it, which is rewritten as a whole."""
    inner: ast.AST | None = None
    for node in spot.path:
        if isinstance(node, ast.If | ast.While):
            builtin = isinstance(spot.node, ast.Call) and spot.code(spot.node.func) in BUILTINS
            return inner is node.test and not builtin
        if isinstance(node, ast.Call | ast.Lambda | ast.Subscript) and inner is not None:
            return False
        inner = node
    return False
