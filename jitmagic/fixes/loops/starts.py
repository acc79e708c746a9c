"""What a loop of jax's starts with: in the type and shape that its body gives back."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.fixes.change import Change, Spot
from jitmagic.fixes.loops.bodies import state_probe, widened
from jitmagic.fixes.loops.lax_calls import LaxLoop, lax_loops
from jitmagic.fixes.objects.displays import part_of
from jitmagic.source.edits import Edits
from jitmagic.tracing.messages import CarryMismatch, carry_mismatches

TITLE = "start the loop with the type that its body gives"
_DTYPE_AT = {"zeros": 1, "ones": 1, "empty": 1, "full": 2, "array": 1, "asarray": 1}
"""Position of the dtype in what makes an array."""


def loop_starts(spot: Spot) -> Iterator[Change]:
    """A start that has another type than what the body gives, as that type."""
    for loop in lax_loops(spot):
        # that a number comes out of what is an array is no matter of the start
        found = [m for m in carry_mismatches(spot.message) if m.shape or m.shape is None]
        sized, rows = any(m.shape for m in found), loop.parts.get("xs")
        likes = [f"{rows.id}[0]", ""] if isinstance(rows, ast.Name) and rows.id != "None" and sized else [""]
        for like in likes:
            edits = spot.edits()
            for mismatch in found:
                _start(loop, mismatch, like, edits)
            if edits:
                cost = "for arrays of this size" if sized and not like else ""
                yield Change(TITLE, edits, cost=cost, sure=not cost)
            elif found and not sized:
                yield from _cast(loop)


def _part(loop: LaxLoop, path: str) -> ast.expr | None:
    """The part of the start that a path names; None where it is not spelt out."""
    node = part_of(loop.spot, loop.start, path, loop.spelt_out)
    whole = loop.spelt_out(node) if isinstance(node, ast.expr) and not path else node
    return whole if isinstance(whole, ast.Constant) else node


def _start(loop: LaxLoop, mismatch: CarryMismatch, like: str, edits: Edits) -> None:
    """The part of the start that does not fit, as what the body gives."""
    part = _part(loop, mismatch.path)
    if isinstance(part, ast.expr):
        edits.replace(part, _typed(loop.spot, part, mismatch, like))


def _cast(loop: LaxLoop) -> Iterator[Change]:
    """A start that is not spelt out, cast where it does not fit."""
    spot, trees = loop.spot, loop.spot.outputs(state_probe(loop))
    new = widened(spot, spot.code(loop.start), *trees) if len(trees) == 2 else None
    if new and new != spot.code(loop.start):
        yield Change(TITLE, spot.edits().replace(loop.start, new))


def _typed(spot: Spot, part: ast.expr, mismatch: CarryMismatch, like: str) -> str:
    """A start value with another dtype, and spread to a shape (that of `like`) where that differs too."""
    dtype = f"jnp.{mismatch.new_dtype}"
    if mismatch.shape is not None and like:
        return spot.write(f"jnp.full_like($like, $part, {dtype})", like=like, part=part)
    if mismatch.shape is not None:
        return spot.write(f"jnp.full({mismatch.shape}, $part, {dtype})", part=part)
    if isinstance(part, ast.Constant) and type(part.value) is int and dtype == "jnp.float32":
        return f"{part.value}.0"
    made = spot.full(part).removeprefix("jax.numpy.") if isinstance(part, ast.Call) else ""
    if isinstance(part, ast.Call) and made == mismatch.dtype and part.args:
        return spot.write(f"{dtype}($x)", x=part.args[0])
    if isinstance(part, ast.Call) and made in _DTYPE_AT:
        named = [k.value for k in part.keywords if k.arg == "dtype"] or part.args[_DTYPE_AT[made] :][:1]
        if named:
            return spot.edits().replace(named[0], spot.write(dtype)).code(part)
    return spot.write(f"jnp.asarray($part, {dtype})", part=part)
