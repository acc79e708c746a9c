"""Comprehensions, which are written out while jax traces, as `vmap`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.fixes.change import Change, Spot
from jitmagic.fixes.loops.heads import rows
from jitmagic.fixes.loops.scanned import FEWER
from jitmagic.fixes.loops.stacked import as_stacked, stacks, uses_after
from jitmagic.source.loops import Turns
from jitmagic.source.modules import dotted
from jitmagic.source.pattern import atom

TITLE = "map with `jax.vmap`"


def mapped_comprehensions(spot: Spot) -> Iterator[Change]:
    """`jnp.stack([f(x) for x in xs])` as `jax.vmap(f)(xs)`, `sum(...)` as the sum of that."""
    for node in spot.on_line(ast.ListComp, ast.GeneratorExp):
        if isinstance(node, ast.ListComp | ast.GeneratorExp) and (mapped := _as_vmap(spot, node)):
            yield from _placed(spot, node, mapped, node.elt)


def _as_vmap(spot: Spot, node: ast.ListComp | ast.GeneratorExp) -> str:
    """A comprehension without conditions as `jax.vmap`, inner ones with it; a second `for` gives rows in a row."""
    code = _as_vmap(spot, node.elt) if isinstance(node.elt, ast.ListComp) else spot.code(node.elt)
    element: ast.expr | None = node.elt
    for generator in reversed(node.generators):
        turns = Turns.of(generator)
        if not code or turns is None or generator.ifs or turns.backwards:
            return ""
        given = rows(spot, turns)
        names, arrays = ", ".join(t for t, _ in given), ", ".join(a for _, a in given)
        if not all(t.isidentifier() for t, _ in given):
            return ""
        function = f"lambda {names}: {code}"
        if isinstance(element, ast.Call) and not element.keywords and dotted(element.func):
            if ", ".join(map(spot.code, element.args)) == names:
                function = dotted(element.func)
        code, element = spot.write("jax.vmap($$function)($$arrays)", function=function, arrays=arrays), None
    for _ in node.generators[1:]:
        code = spot.write("jnp.concatenate($code)", code=code)
    return code


def _placed(spot: Spot, node: ast.expr, mapped: str, value: ast.expr) -> Iterator[Change]:
    """What is mapped in the place of a list: stacked already where it was stacked, added up by `jnp.sum`."""
    around, edits, title = spot.text.parents[node], spot.edits(), TITLE
    if isinstance(around, ast.Call) and around.args[:1] == [node]:
        if stacks(spot, around):
            edits.replace(around, mapped)
        elif isinstance(around.func, ast.Name) and around.func.id == "sum":
            total, title = spot.write("jnp.sum($mapped, axis=0)", mapped=mapped), f"{TITLE} and add up"
            start = f"{atom(spot.code(around.args[1]))} + " if around.args[1:] else ""
            edits.replace(around, start + total)
        else:
            edits.replace(node, mapped)
    elif isinstance(around, ast.Assign) and isinstance(around.targets[0], ast.Name):
        edits.replace(node, mapped)
        if again := as_stacked(spot, edits, uses_after(spot, around, around.targets[0].id), value):
            edits.after(around, again)
    elif isinstance(node, ast.GeneratorExp):
        return
    else:
        edits.replace(node, f"list({mapped})")
    yield Change(title, edits, claim=FEWER)
