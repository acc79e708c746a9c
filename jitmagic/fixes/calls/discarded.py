"""A call whose result is thrown away: bound to what the call started from, or returned."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.fixes.change import Change, Claim, Spot
from jitmagic.fixes.loops.lax_calls import LaxLoop
from jitmagic.source.tree import updated_array

NEW = Claim(results="new")


def discarded(spot: Spot) -> Iterator[Change]:
    """`x = jax.lax.fori_loop(0, n, body, x)` for the call alone; `return f(x)` at the end of a function."""
    line, function = next(iter(spot.on_line(ast.Expr)), None), spot.innermost
    if line is None or not isinstance(line.value, ast.Call) or updated_array(line.value):
        return
    call, code = line.value, spot.code(line)
    if names := _names(spot, call):
        target = ", ".join(names)
        bound = target
        if spot.full(call) == "jax.lax.scan":
            bound = f"({target}), _" if len(names) > 1 else f"{target}, _"
        yield Change(
            f"bind the result to `{target}`", spot.edits().replace(line, f"{bound} = {code}"), claim=NEW
        )
    if function is not None and line is function.body[-1] and not spot.text.own(function, ast.Return):
        yield Change("return the result", spot.edits().replace(line, f"return {code}"), claim=NEW)


def _names(spot: Spot, call: ast.Call) -> list[str]:
    """Names of what a loop starts with, or of the only argument that is traced."""
    loop = LaxLoop.of(spot, call)
    if loop is not None:
        parts = loop.start.elts if isinstance(loop.start, ast.Tuple) else [loop.start]
        found = [p.id for p in parts if isinstance(p, ast.Name)]
        return found if len(found) == len(parts) else []
    on = call.func.value if isinstance(call.func, ast.Attribute) else None
    if isinstance(on, ast.Name) and on.id in spot.traced:
        return [on.id]  # `x.astype(...)`, `s._replace(...)`
    given = [a.id for a in call.args if isinstance(a, ast.Name) and a.id in spot.traced]
    return given if len(given) == 1 else []
