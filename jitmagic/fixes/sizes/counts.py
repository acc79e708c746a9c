"""How many different values an array holds, where that is all that `jnp.unique` or `set` is asked for."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import islice

from jitmagic.fixes.change import Change, Spot
from jitmagic.source.pattern import Pattern, stripped

_DIFFERENT = [Pattern(p) for p in ("unique($x)", "unique_values($x)", "set(tolist($x))")]
_COUNTS = [
    Pattern(p) for p in ("len($u)", "$u.size", "$u.shape[0]", "len($u[0])", "$u[0].size", "$u[0].shape[0]")
]
_NUMBER = "jnp.sum(jnp.diff(jnp.sort($x, axis=None)) != 0) + ($x.size > 0)"


def different_values(spot: Spot) -> Iterator[Change]:
    """`len(jnp.unique(x))`, by a name too, as the number of places where the sorted values change."""
    for call in spot.on_line(ast.Call):
        array = next((m.holes["x"] for p in _DIFFERENT if (m := p.match(call, spot.modules))), None)
        asked = counted(spot, call)
        if not asked or not isinstance(array, ast.expr):
            continue
        number = spot.write(_NUMBER, x=stripped(spot.code(array)))
        edits = spot.edits()
        for use in asked:
            inside = call in spot.text.within(use, ast.Call)
            alone = isinstance(spot.text.parents[use], ast.Assign | ast.Return | ast.Call)
            edits.replace(use, (number if alone else f"({number})") if inside else _name_of(spot, call))
        if call not in [c for use in asked for c in spot.text.within(use, ast.Call)]:
            edits.replace(call, number)
        whole = all(s.dtype.startswith(("int", "uint", "bool")) for s in spot.seen(array))
        cost = "" if whole else "each NaN counts as a value of its own"
        yield Change("count the places where the sorted values change", edits, cost=cost)


def counted(spot: Spot, call: ast.Call) -> list[ast.expr]:
    """The expressions (`len(u)`, `u.size`, `u.shape[0]`) that count what the call gives, where nothing else is made
    of it; `u` is the call itself, or the name that it is bound to."""
    name, scope = _name_of(spot, call), spot.outermost
    uses: list[ast.expr] = [call]
    if name and scope is not None:
        uses = [n for n in spot.text.within(scope, ast.Name) if n.id == name and isinstance(n.ctx, ast.Load)]
    counts = [_count(spot, n) for n in uses]
    return [c for c in counts if c is not None] if None not in counts else []


def _name_of(spot: Spot, call: ast.Call) -> str:
    match spot.text.parents[call]:
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name
    return ""


def _count(spot: Spot, node: ast.expr) -> ast.expr | None:
    """What counts the node, around it."""
    for around in islice(spot.text.ancestors(node), 3):
        for pattern in _COUNTS:
            match = pattern.match(around, spot.modules)
            if match is not None and match.holes["u"] is node:
                return match.node
    return None
