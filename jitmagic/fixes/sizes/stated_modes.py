"""Indices outside of their array, with what is to happen there in words."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.fixes.change import Change, Claim, Spot

FILLED = Claim("new", "0 in place of what was read from outside of the array")
DROPPED = Claim(words="the write outside of the array stays dropped")


def stated_modes(spot: Spot) -> Iterator[Change]:
    """`x[i]` as `x.at[i].get(mode="fill", fill_value=0)`, `x.at[i].set(y)` with `mode="drop"`."""
    node = spot.here(ast.Subscript, ast.Call)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "get":
            edits = spot.edits().argument(node, 'mode="fill", fill_value=0')
            yield Change("read 0 outside of the array", edits, claim=FILLED)
        elif isinstance(node.func.value, ast.Subscript):
            edits = spot.edits().argument(node, 'mode="drop"')
            yield Change("say that writes outside of the array are dropped", edits, claim=DROPPED)
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        array, index = spot.code(node.value), spot.code(node.slice)
        new = f'{array}.at[{index}].get(mode="fill", fill_value=0)'
        yield Change("read 0 outside of the array", spot.edits().replace(node, new), claim=FILLED)
