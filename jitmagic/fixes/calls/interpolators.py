"""Interpolators of SciPy that are made while jax traces: those along straight lines as calls of `jnp.interp`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.fixes.change import Change, Spot

COST = "beyond the ends it is the last value, not an error"


def interpolators(spot: Spot) -> Iterator[Change]:
    """`interp1d(xs, ys)` as `lambda x: jnp.interp(x, xs, ys)`, and a call of it as `jnp.interp` itself."""
    for call in spot.on_line(ast.Call):
        ends = _ends(spot, call) if spot.full(call) == "scipy.interpolate.interp1d" else None
        if len(call.args) != 2 or ends is None:
            continue
        parent = spot.text.parents[call]
        if isinstance(parent, ast.Call) and parent.func is call and len(parent.args) == 1:
            new = spot.write("jnp.interp($x, $*given, $*ends)", x=parent.args[0], given=call.args, ends=ends)
            edits = spot.edits().replace(parent, new)
        else:
            asked = spot.fresh("x")
            new = spot.write(
                "lambda $$x: jnp.interp($x, $*given, $*ends)", x=asked, given=call.args, ends=ends
            )
            edits = spot.edits().replace(call, new)
        yield Change("interpolate with `jnp.interp`", edits, cost="" if ends else COST, sure=bool(ends))


def _ends(spot: Spot, call: ast.Call) -> str | None:
    """What `interp1d` gives beyond the ends, as arguments of `jnp.interp`; None for what that cannot do."""
    said = {k.arg: k.value for k in call.keywords}
    if set(said) - {"kind", "bounds_error", "fill_value"} or not _is(said.pop("kind", None), None, "linear"):
        return None
    fill = said.get("fill_value")
    if fill is None:
        unbounded = _is(said.get("bounds_error"), False)
        return spot.write("left=jnp.nan, right=jnp.nan") if unbounded else ""
    left, right = fill.elts if isinstance(fill, ast.Tuple) and len(fill.elts) == 2 else (fill, fill)
    return f"left={spot.code(left)}, right={spot.code(right)}"


def _is(node: ast.expr | None, *values: object) -> bool:
    """The node is one of these constants, or is not there where None is one of them."""
    return getattr(node, "value", ...) in values if node is not None else None in values
