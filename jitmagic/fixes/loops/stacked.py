"""Uses of a list that a loop has filled, as uses of the arrays that `scan` and `vmap` stack in its place."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from jitmagic.fixes.change import Spot
from jitmagic.source.edits import Edits
from jitmagic.source.pattern import Pattern

STACKS = (
    Pattern("stack($xs)"),
    Pattern("stack($xs, axis=0)"),
    Pattern("array($xs)"),
    Pattern("asarray($xs)"),
)
_JOINED = (Pattern("tree.map($f, *$xs)"), Pattern("tree_util.tree_map($f, *$xs)"))


def stacks(spot: Spot, node: ast.AST) -> bool:
    """The call makes one array of a list, along a new first axis."""
    return any(p.match(node, spot.modules) for p in STACKS)


def uses_after(spot: Spot, statement: ast.stmt, name: str) -> list[ast.Name]:
    """Where a name stands in the function around a statement, below it."""
    around, end = spot.text.function(statement) or spot.text.tree, spot.text.span(statement)[1]
    return [n for n in spot.text.within(around, ast.Name) if n.id == name and spot.text.span(n)[0] > end]


def as_stacked(spot: Spot, edits: Edits, uses: Sequence[ast.Name], value: ast.expr) -> str:
    """`jnp.stack(seen)` as `seen`, where each entry is like `value`, and `list(seen)` where a list is needed. Gives a
    statement that makes a list of it again, where something is done with that list or name."""
    several, name = isinstance(value, ast.Tuple), uses[0].id if uses else ""
    listed = f"list(zip(*{name}))" if several else f"list({name})"
    if any(isinstance(spot.text.parents[n], ast.Attribute) or not isinstance(n.ctx, ast.Load) for n in uses):
        return f"{name} = {listed}\n"
    for node in uses:
        use = _use_of_several(spot, node) if several else _use_of_rows(spot, node)
        edits.replace(*(use or (node, listed)))
    return ""


def _use_of_rows(spot: Spot, node: ast.Name) -> tuple[ast.AST, str] | None:
    """What stands for a use of a list in which each entry is an array; None where it has to be a list."""
    parent, name = spot.text.parents[node], node.id
    if isinstance(parent, ast.Call) and node in parent.args:
        if stacks(spot, parent):
            return parent, name
        if _is(parent, "sum", node):
            return parent, f"{name}.sum(0)"
        fits = _is(parent, "len", node) or spot.full(parent).startswith("jax.numpy.")
        return (node, name) if fits else None
    if isinstance(parent, ast.Starred) and _joins(spot, spot.text.parents[parent]):
        return spot.text.parents[parent], name
    rows = isinstance(parent, ast.Subscript) and parent.value is node
    return (node, name) if rows or isinstance(parent, ast.Starred | ast.For | ast.comprehension) else None


def _use_of_several(spot: Spot, node: ast.Name) -> tuple[ast.AST, str] | None:
    """What stands for a use of a list in which each entry is a tuple of arrays."""
    parent, name = spot.text.parents[node], node.id
    around = spot.text.parents.get(parent)
    if isinstance(parent, ast.Starred) and isinstance(around, ast.Call):
        return (around, name) if _joins(spot, around) or _is(around, "zip", parent) else None
    if isinstance(parent, ast.Subscript) and parent.value is node:
        return parent, spot.write("jax.tree.map(lambda v: v[$at], $$n)", at=parent.slice, n=name)
    return (parent, spot.write("jnp.stack($$n, axis=1)", n=name)) if stacks(spot, parent) else None


def _joins(spot: Spot, node: ast.AST) -> bool:
    """Trees are stacked leaf by leaf."""
    return any(p.match(node, spot.modules) for p in _JOINED)


def _is(call: ast.Call, name: str, argument: ast.expr) -> bool:
    """A call of one of Python's own functions with nothing but this argument."""
    return (
        isinstance(call.func, ast.Name)
        and call.func.id == name
        and call.args == [argument]
        and not call.keywords
    )
