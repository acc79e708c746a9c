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
    match parent:
        case ast.Call() if stacks(spot, parent):
            return parent, name
        case ast.Call(ast.Name("sum"), [_], []):
            return parent, f"{name}.sum(0)"
        case ast.Call(func, arguments) if node in arguments:
            own = isinstance(func, ast.Name) and func.id == "len"
            return (node, name) if own or spot.full(parent).startswith("jax.numpy.") else None
        case ast.Starred() if _joins(spot, spot.text.parents[parent]):
            return spot.text.parents[parent], name
        case ast.Subscript(value) if value is not node:
            return None
        case ast.Subscript() | ast.Starred() | ast.For() | ast.comprehension():
            return node, name
    return None


def _use_of_several(spot: Spot, node: ast.Name) -> tuple[ast.AST, str] | None:
    """What stands for a use of a list in which each entry is a tuple of arrays."""
    parent, name = spot.text.parents[node], node.id
    around = spot.text.parents.get(parent)
    match parent, around:
        case ast.Starred(), ast.Call(ast.Name("zip"), [_], []) as whole:
            return whole, name
        case ast.Starred(), ast.Call() as whole if _joins(spot, whole):
            return whole, name
        case ast.comprehension(each, _, []), ast.ListComp(part, [_]) if (at := _part(each, part)) is not None:
            if stacks(spot, outer := spot.text.parents[around]):
                return outer, f"{name}[{at}]"
            return around, f"list({name}[{at}])"
        case ast.Subscript(value, index), _ if value is node:
            return parent, spot.write("jax.tree.map(lambda v: v[$at], $$n)", at=index, n=name)
        case ast.Call(), _ if stacks(spot, parent):
            return parent, spot.write("jnp.stack($$n, axis=1)", n=name)
    return None


def _part(each: ast.expr, part: ast.expr) -> int | None:
    """Which part of an entry `o[1]` is, or `b`, where the entry is `o`, or `a, b`."""
    match each, part:
        case ast.Name(entry), ast.Subscript(ast.Name(of), ast.Constant(int() as at)) if entry == of:
            return at
        case ast.Tuple(parts), ast.Name(name):
            names = [n.id if isinstance(n, ast.Name) else "" for n in parts]
            return names.index(name) if name in names else None
    return None


def _joins(spot: Spot, node: ast.AST) -> bool:
    """Trees are stacked leaf by leaf."""
    return any(p.match(node, spot.modules) for p in _JOINED)
