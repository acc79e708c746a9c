"""Operations whose results nobody uses: the compiler removes them, and no timing holds them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from jax.extend.core import Literal
from jax.interpreters import partial_eval

from jitmagic.measure.program import Operation, walk
from jitmagic.tracing.compat import jaxpr_of, subjaxprs
from jitmagic.tracing.stages import equation_count


def dead_lines(closed_jaxpr: object, file: str) -> tuple[tuple[int, int], ...]:
    """`(line, count)` of operations that compute and reach no result, of lines of `file`, in order.

    What writes to the outside (a print, a callback) is used by itself."""
    body = jaxpr_of(closed_jaxpr)
    if _all_used(body):  # looks once at each equation, where jax's way writes the program anew
        return ()
    alive, _ = partial_eval.dce_jaxpr(body, [True] * len(body.outvars), instantiate=True)
    if equation_count(alive) == equation_count(body):
        return ()
    before = _counts(walk(closed_jaxpr, file))
    after = _counts(walk(alive, file))
    lost = {line: count - after.get(line, 0) for line, count in before.items()}
    return tuple(sorted((line, count) for line, count in lost.items() if count > 0))


def _counts(operations: list[Operation]) -> Counter[int]:
    return Counter(op.line for op in operations if op.line is not None and op.flops > 0)


def _all_used(body: Any) -> bool:
    """Every result of every equation is read by another, or returned; those of inner programs included."""
    used = {atom for eqn in body.eqns for atom in eqn.invars if not isinstance(atom, Literal)}
    used.update(atom for atom in body.outvars if not isinstance(atom, Literal))
    return all(
        used.issuperset(eqn.outvars) and all(_all_used(jaxpr_of(inner)) for inner in subjaxprs(eqn))
        for eqn in body.eqns
    )
