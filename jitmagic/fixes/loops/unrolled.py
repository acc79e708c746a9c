"""Loops of Python's that jax writes out, iteration by iteration: the families for them, the best first."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from jitmagic.fixes.change import Change, Spot
from jitmagic.fixes.loops.iterations import rebindings
from jitmagic.fixes.loops.scanned import FEWER
from jitmagic.fixes.loops.traced_loops import FORI, codes, lowered
from jitmagic.source.edits import Edits
from jitmagic.source.loops import LoopBody, LoopNode, Turns


def nested_loops(spot: Spot) -> Iterator[Change]:
    """A loop and those in it as loops of `jax.lax`."""
    loop = next((n for n in spot.path if isinstance(n, LoopNode)), None)
    if loop is None or LoopBody(spot.text, loop).jumps:
        return
    if edits := _inner(spot, loop):
        yield from (
            Change(FORI, spot.edits().statements(loop, new), claim=FEWER) for new in codes(spot, loop, edits)
        )


def _inner(spot: Spot, loop: LoopNode) -> Edits:
    """The loops in the body of a loop as loops of `jax.lax`."""
    edits, found = rebindings(spot, loop.body), spot.edits()
    for inner in spot.text.own(loop, ast.For, ast.While):
        own = spot.text.around(inner, ast.For, ast.While) is loop
        if own and isinstance(inner, LoopNode) and not LoopBody(spot.text, inner).jumps:
            inside = _inner(spot, inner) or rebindings(spot, inner.body)
            found = edits.statements(inner, next(codes(spot, inner, inside), spot.code(inner)))
    return found


def counting_loops(spot: Spot) -> Iterator[Change]:
    """A `for` over a range as a `fori_loop`, a `while`, and what breaks off, as a `while_loop`."""
    loop = next((n for n in spot.path if isinstance(n, LoopNode)), None)
    turns = Turns.of(loop) if isinstance(loop, ast.For) and not LoopBody(spot.text, loop).jumps else None
    if loop is not None and (turns is None or turns.counting is not None):
        yield from (replace(change, claim=FEWER) for change in lowered(spot, loop))
