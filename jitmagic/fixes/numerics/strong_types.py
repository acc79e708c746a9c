"""Numbers of weak type as arrays of fixed dtype: where they are written, or in the calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from jitmagic.evidence import Leaf
from jitmagic.fixes.change import Change, Claim, Spot
from jitmagic.fixes.objects.displays import part_of
from jitmagic.rules.words import listed
from jitmagic.source.edits import Edits
from jitmagic.source.modules import last_name

FEWER = Claim(fewer="traces")


def strong_starts(spot: Spot) -> Iterator[Change]:
    """What becomes an array later is one from the start: `t = jnp.float32(0.0)`, `f(jnp.float32(0.0))`."""
    leaves = _arrays_later(spot)
    title = f"pass {listed(leaves)} as {'arrays' if len(leaves) > 1 else 'an array'} of fixed dtype"
    for change in (_written, _converted):
        cells = spot.cells()
        for leaf in leaves.values():
            change(spot, cells, leaf)
        if any(cells):
            yield Change.of_cells(title, cells, claim=FEWER)


def _arrays_later(spot: Spot) -> dict[str, Leaf]:
    """Strong forms of the culprits, and the other numbers that come back as arrays: jax keeps an entry for each."""
    leaves = [x for x in spot.every_leaf if not x.static]
    numbers = {x.path for x in leaves if x.kind == "scalar"}
    return {
        x.path: x for x in leaves
        if (x.path in spot.names and not x.weak_type) or (x.path in numbers and x.kind == "array")
    }  # fmt: skip


def _written(spot: Spot, cells: Sequence[Edits], leaf: Leaf) -> None:
    """`jnp.float32(...)` around the number where the cells write it, into a name or a display that is passed."""
    given = [(cell, node) for cell, node, _ in spot.given(cells, leaf.argument)]
    names = {node.id for _, node in given if isinstance(node, ast.Name)}
    bound = [
        (cell, s.value) for cell in cells for s in cell.text.tree.body
        if isinstance(s, ast.Assign) and any(isinstance(t, ast.Name) and t.id in names for t in s.targets)
    ]  # fmt: skip
    for cell, node in [*bound, *(g for g in given if leaf.path != leaf.argument)]:
        number = part_of(spot, node, leaf.path.removeprefix(leaf.argument))
        signed = number.operand if isinstance(number, ast.UnaryOp) else number
        match signed:
            case ast.Constant(int() | float() | complex()) if isinstance(number, ast.expr):
                cell.replace(number, spot.write(f"jnp.{leaf.dtype}($x)", cell, x=number))


def _converted(spot: Spot, cells: Sequence[Edits], leaf: Leaf) -> None:
    """The argument converted in each call; all that it holds, where the number is inside of it."""
    form = f"jnp.{leaf.dtype}($x)" if leaf.shape == () else f"jnp.asarray($x, jnp.{leaf.dtype})"
    if leaf.path != leaf.argument:
        form = "jax.tree.map(lambda v: jnp.asarray(v, jnp.result_type(v)), $x)"
    for cell, node, _ in spot.given(cells, leaf.argument):
        if not (isinstance(node, ast.Call) and last_name(node.func) in (leaf.dtype, "map")):
            cell.replace(node, spot.write(form, cell, x=node))
