"""What a loop computes in Python from its counter alone (a schedule, say), made in front of it as rows of an array."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator

from jitmagic.fixes.change import Change, Family, Spot
from jitmagic.fixes.loops.traced_loops import moved
from jitmagic.source import scope
from jitmagic.source.loops import Turns
from jitmagic.source.modules import last_name
from jitmagic.source.tree import in_order

_CONVERTS = frozenset(("float", "int", "round", "bool"))


def of_counters(family: Family) -> Family:
    """A family for loops, asked of a loop over numbers with a row of its own for each value that the host computes."""

    @functools.wraps(family)
    def asked(spot: Spot) -> Iterator[Change]:
        loop = spot.here(ast.For)
        turns = Turns.of(loop) if loop is not None else None
        if loop is None or turns is None or turns.counting is None:
            return
        counter, edits = spot.code(loop.target), spot.edits()
        found: dict[str, str] = {}
        for call in _host_calls(spot, loop, counter):
            name = found.setdefault(
                spot.code(call), spot.text.fresh(*_names(call, counter), taken=found.values())
            )
            edits.replace(call, name)
        if not found:
            return
        rows = [
            spot.fresh(f"{name.removesuffix(f'_{counter}')}_values", f"all_{name}") for name in found.values()
        ]
        listed = "$$row = jnp.array([$$code for $$t in $looped])"
        made = (
            spot.write(listed, row=row, code=code, t=counter, looped=loop.iter)
            for row, code in zip(rows, found, strict=True)
        )
        edits.before(loop, "\n".join(made))
        edits.replace(loop.target, ", ".join((counter, *found.values())))
        edits.replace(loop.iter, f"zip({spot.code(loop.iter)}, {', '.join(rows)})")
        yield from family(moved(spot, edits, len(rows)))

    return asked


def _host_calls(spot: Spot, loop: ast.For, counter: str) -> list[ast.Call]:
    """Calls in the body, the outermost ones, that compute in Python with the counter and what is known while
    jax traces."""
    bound, found = {*scope.stores(scope.body_of(loop.body))}, list[ast.Call]()
    for node in in_order(scope.body_of(loop.body), own=True):
        if isinstance(node, ast.Call) and not any(node in ast.walk(outer) for outer in found):
            reads = scope.loads(node)
            known = counter in reads and not reads & bound
            if known and not (reads - {counter} - spot.known) & spot.traced and _is_of_host(spot, node):
                found.append(node)
    return found


def _is_of_host(spot: Spot, call: ast.Call) -> bool:
    """The function is one of Python's or NumPy's, or one of the cell that calls such."""
    if spot.full(call).startswith(("math.", "numpy.")) or last_name(call.func) in _CONVERTS:
        return True
    functions = [n for n in ast.walk(spot.text.tree) if getattr(n, "name", "") == last_name(call.func)]
    inside = [n for f in functions for n in spot.text.within(f, ast.Call)]
    return any(spot.full(n).startswith(("math.", "numpy.")) or last_name(n.func) in _CONVERTS for n in inside)


def _names(call: ast.Call, counter: str) -> tuple[str, ...]:
    name = last_name(call.func)
    return f"{name}_{counter}", f"{name}_now", f"this_{name}"
