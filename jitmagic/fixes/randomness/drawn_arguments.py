"""What Python draws while jax traces, as an argument: each call draws for itself and passes that."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.fixes.change import Change, Claim, Spot
from jitmagic.fixes.inputs.questions import around, as_argument, asking, smallest
from jitmagic.fixes.randomness.host_draws import draws_in, is_in_loop
from jitmagic.source.edits import FunctionNode
from jitmagic.source.modules import dotted


def drawn_arguments(spot: Spot) -> Iterator[Change]:
    """The draw, or the largest expression around it that the caller can make too, is an argument; a static one where
    its value has to be known."""
    function = spot.text.definition(spot.function)
    if function is None or _origins(spot) & {"fixed", "captured"} or len(draws_in(spot, function)) > 1:
        return
    for node in _expressions(spot, function):
        for static in (False, True):
            name, edits, later = as_argument(spot, function, node)
            title = f"pass `{spot.code(node)}` as an argument at each call"
            more, claim = ((name, spot.code(node)),), Claim("other random")
            yield Change(title, edits, later, (name,) if static else (), passed=more, claim=claim)


def objects_made_once(spot: Spot) -> Iterator[Change]:
    """An object that a function makes anew from a fixed seed at each call, to call it, is made once beside the
    function and passed: its random state goes on."""
    function = spot.text.definition(spot.function)
    for made in spot.on_line(ast.Assign) if function is not None and "fixed" in _origins(spot) else ():
        assert function is not None
        called = [dotted(c.func).partition(".")[0] for c in spot.text.within(function, ast.Call)]
        if spot.text.bound_to(made.value) in called and made.value in _expressions(spot, function):
            name, edits, later = as_argument(spot, function, made.value, once=True)
            title = f"make `{name}` once and pass it as an argument"
            yield Change(title, edits, later, claim=Claim("other random"))


def _origins(spot: Spot) -> set[str]:
    """Where the random numbers of the line come from."""
    line = spot.text.lines[spot.line - 1].strip()
    return {f.origin for f in spot.silent.random if f.where.source == line}


def _expressions(spot: Spot, function: FunctionNode) -> list[ast.expr]:
    """What draws, and what is made of it alone, where that is drawn once in a call."""
    draws = asking(spot, function)
    return around(spot, function, draws) if draws and not is_in_loop(spot, smallest(spot, draws)) else []
